//! Which file systems cannot keep a ledger.
//!
//! The write-ahead log needs memory that is shared between processes and locks that work; over a network
//! neither can be relied on, and the ledger would be damaged in silence. The kernel's list of mounts names
//! them, and unlike the numbers of `statfs` it also tells `fuse.sshfs` from a local FUSE.

use std::path::{Path, PathBuf};

/// Types of file systems that another machine stands behind.
const REMOTE: &[&str] = &[
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "fuse.ceph",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "glusterfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
];

/// The type of the network file system that a folder is on; `None` if it is local or cannot be told, as
/// on systems that list no mounts.
pub(crate) fn remote_type(folder: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let folder = folder.canonicalize().ok()?;
    remote_type_in(&mounts, &folder).map(str::to_owned)
}

fn remote_type_in<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    // A later mount at the same place hides the earlier one, and `max_by_key` takes the last.
    let (_, kind) = mounts
        .lines()
        .filter_map(mount)
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.components().count())?;
    REMOTE.contains(&kind).then_some(kind)
}

/// The place and the type of one line: `36 35 98:0 /root /place options… - type source options`.
fn mount(line: &str) -> Option<(PathBuf, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    Some((PathBuf::from(unescaped(point)), after.split(' ').next()?))
}

/// Spaces and their like are written as `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (code, part.get(3..)) {
            (Some(code), Some(rest)) => {
                plain.push(char::from(code));
                plain.push_str(rest);
            }
            _ => plain.push_str(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:1 - nfs4 server:/home rw
31 30 8:2 / /home/fast rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/my\\040share rw - cifs //server/share rw
33 22 0:42 / /mnt/far rw - fuse.sshfs me@host: rw
34 22 0:43 / /mnt/near rw - fuse.bindfs /data rw
";

    #[test]
    fn innermost_mount_decides() {
        let expected = [
            ("/var/lib/interlock", None),
            ("/home/ann/.interlock", Some("nfs4")),
            ("/home/fast/.interlock", None),
            ("/homeless", None),
            ("/mnt/my share/x", Some("cifs")),
            ("/mnt/far", Some("fuse.sshfs")),
            ("/mnt/near", None),
        ];
        for (folder, kind) in expected {
            assert_eq!(remote_type_in(MOUNTS, Path::new(folder)), kind, "{folder}");
        }
    }
}
