//! Reports that `interlock exec` could not deliver while this process was not there.

use std::{collections::BTreeSet, fs, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use interlock_store::{Store, record::InboxRecord};

use crate::exec::{
    spool::{self, Waiting},
    way::{Way, project_name},
};

/// How often the spool is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The names under which reports may wait for this process: its folder, its project, and its address as people write it.
pub(crate) fn names(
    (directory, folder): (&Path, &Path),
    address: Option<SocketAddr>,
) -> Vec<String> {
    let mut names = vec![Way::Inbox(folder.to_owned()).name(), project_name(directory)];
    if let Some(address) = address {
        let (ip, port) = (address.ip(), address.port());
        names.push(format!("http://{address}"));
        if ip.is_loopback() || ip.is_unspecified() {
            names.extend(
                ["localhost", "127.0.0.1", "[::1]"].map(|it| format!("http://{it}:{port}")),
            );
        }
    }
    names
}

/// Takes over what waits in this user's spool for one of the names that this process has.
pub(crate) async fn take_over(store: Arc<dyn Store>, names: Vec<String>) {
    // Taken, and still there: this process may read the spool, and not write to it.
    let mut taken = BTreeSet::new();
    loop {
        let found = {
            let (names, known) = (names.clone(), taken.clone());
            let read = move || spool::waiting(&spool::folder(), &names, &known);
            tokio::task::spawn_blocking(read).await.unwrap_or_default()
        };
        let mut rests = found.is_empty();
        for Waiting { file, parcel } in found {
            let record = InboxRecord::Report(Box::new(parcel.report));
            match store.post(&parcel.pipeline, &parcel.key, &record).await {
                Ok(()) => {
                    tracing::info!(pipeline = %parcel.pipeline, "a report that had waited was taken");
                    match fs::remove_file(&file) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            tracing::warn!(%error, "{} was taken and cannot be removed", file.display());
                            taken.insert(file);
                        }
                        Ok(()) | Err(_) => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a report that had waited could not be taken");
                    rests = true;
                    break;
                }
            }
        }
        if rests {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
