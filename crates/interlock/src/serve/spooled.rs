//! Reports that `interlock exec` could not deliver while this process was not there.

use std::{collections::BTreeSet, fs, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use interlock_core::id::PipelineId;
use interlock_store::{
    Store, StoreError,
    record::{InboxRecord, ReportRecord},
};

use crate::{
    exec::{
        spool::{self, Waiting},
        way::{Parcel, Way, project_name},
    },
    inbox::fresh_key,
};

/// How often the spool is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The names under which reports may wait for this process: its folder, its project, and its address as people write it.
pub(crate) fn names(
    (directory, folder): (&Path, &Path),
    address: Option<(&str, SocketAddr)>,
) -> Vec<String> {
    let mut names = vec![Way::Inbox(folder.to_owned()).name(), project_name(directory)];
    if let Some((scheme, address)) = address {
        let (ip, port) = (address.ip(), address.port());
        names.push(format!("{scheme}://{address}"));
        if ip.is_loopback() || ip.is_unspecified() {
            names.extend(
                ["localhost", "127.0.0.1", "[::1]"].map(|it| format!("{scheme}://{it}:{port}")),
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
            let pipeline = parcel.pipeline.clone();
            if let Err(error) = take(store.as_ref(), parcel).await {
                tracing::warn!(%error, "a stored report could not be applied");
                rests = true;
                break;
            }
            tracing::info!(%pipeline, "a stored report was applied");
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "{} was applied and cannot be removed", file.display());
                    taken.insert(file);
                }
                Ok(()) | Err(_) => {}
            }
        }
        if rests {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Puts a report into the inbox. One that the store refuses for good is kept for people, with why: the others do not wait behind it.
async fn take(
    store: &dyn Store,
    Parcel { pipeline, key, report }: Parcel,
) -> Result<(), StoreError> {
    let record = InboxRecord::Report(Box::new(report.clone()));
    let error = match store.post(&pipeline, &key, &record).await {
        Err(error) if !error.is_retryable => error,
        posted => return posted,
    };
    let (pipeline, refused) = (Some(pipeline.to_string()), Some(error.message));
    let record = InboxRecord::Report(Box::new(ReportRecord { pipeline, refused, ..report }));
    store.post(&PipelineId::system(), &fresh_key(), &record).await
}

#[cfg(test)]
mod tests {
    use interlock_store::{Shard, block_on, memory::MemoryStore, record::ReportRecord as Report};

    use super::*;

    #[test]
    fn what_the_store_refuses_for_good_is_kept_with_why() {
        let store = MemoryStore::new(1, Arc::new(crate::clock::now));
        let report = Report::of("fail", crate::clock::now(), Some("disk full"));
        let pipeline = PipelineId::parse("backup").unwrap();
        let parcel = |key: &str| Parcel {
            pipeline: pipeline.clone(),
            key: key.to_owned(),
            report: report.clone(),
        };
        block_on(take(&store, parcel("odd\0key"))).unwrap();
        block_on(take(&store, parcel("key"))).unwrap();
        let kept = block_on(store.inbox(Shard(0), 10)).unwrap().items;
        assert_eq!(kept.len(), 2);
        assert_eq!((&kept[0].pipeline, &kept[1].pipeline), (&PipelineId::system(), &pipeline));
        let InboxRecord::Report(odd) = &kept[0].record else { panic!("{kept:?}") };
        assert_eq!(
            (odd.pipeline.as_deref(), odd.body.as_deref()),
            (Some("backup"), Some("disk full"))
        );
        assert!(odd.refused.as_deref().unwrap().contains("NUL"), "{odd:?}");
    }
}
