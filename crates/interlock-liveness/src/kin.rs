//! Which processes descend from which, as `/proc` has it.

use std::{collections::BTreeMap, fs};

/// What a line of `/proc/…/stat` says after the name of the process, which may hold anything, even parentheses.
pub(crate) fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, after)| after).split_whitespace()
}

/// The children of every process, in the order of their numbers.
fn families() -> BTreeMap<i32, Vec<i32>> {
    let mut families = BTreeMap::<i32, Vec<i32>>::new();
    let Ok(processes) = fs::read_dir("/proc") else { return families };
    let ids = processes.flatten().filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    for pid in ids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = after_name(&stat).nth(1).and_then(|parent| parent.parse().ok()) {
            families.entry(parent).or_default().push(pid);
        }
    }
    for children in families.values_mut() {
        children.sort_unstable();
    }
    families
}

/// The children of a process.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    families().remove(&parent).unwrap_or_default()
}

/// All that descends from a process, generation by generation.
pub(crate) fn descendants_of(ancestor: i32) -> Vec<i32> {
    let mut families = families();
    let mut found = families.remove(&ancestor).unwrap_or_default();
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        found.extend(families.remove(parent).unwrap_or_default());
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use interlock_wait::{BOUND, ChildWithin as _, wait_for};

    use super::*;

    #[test]
    fn children_come_before_their_children() {
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'read line; :'; :"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let grandchild = wait_for("the shell's child", BOUND, || match children_of(pid)[..] {
            [grandchild] => Some(grandchild),
            _ => None,
        });
        let own = std::process::id().cast_signed();
        let all = descendants_of(own);
        let place = |pid: i32| all.iter().position(|it| *it == pid);
        assert!(place(pid) < place(grandchild) && place(pid).is_some(), "{all:?}");
        assert_eq!(descendants_of(pid), [grandchild]);
        drop(child.stdin.take());
        child.wait_within("the end of both shells", BOUND);
    }
}
