//! Keeping what `retention` says, and no longer: the output of jobs.

use std::{io, path::PathBuf, time::Duration};

use interlock_trigger::runner::{LogSweep, Step, Swept};
use jiff::SignedDuration;

use crate::clock;

/// Between two sweeps. Retention is counted in days.
const PAUSE: Duration = Duration::from_hours(1);

/// Between two steps of one sweep, so that the disk belongs to the jobs.
const BREATH: Duration = Duration::from_millis(100);

/// Files looked at in one step.
const LOOKS_MAX: usize = 1_000;

/// Deletes the logs of settled runs that nothing was written to for this long, now and then, for ever.
pub(crate) async fn keep_logs(runner: PathBuf, retention: SignedDuration) {
    loop {
        match sweep(runner.clone(), retention).await {
            Ok(swept) if swept == Swept::default() => {}
            Ok(Swept { deleted, bytes, unsettled, failed, failure }) => {
                tracing::info!(
                    deleted,
                    bytes,
                    unsettled,
                    failed,
                    failure,
                    "old job logs were deleted"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "old job logs cannot be deleted; tried again in 1 h");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn sweep(runner: PathBuf, retention: SignedDuration) -> io::Result<Swept> {
    let now = clock::now();
    let before = now.checked_sub(retention).map_err(io::Error::other)?;
    // The journal names its logs by the real path.
    let open = move || LogSweep::new(&runner.canonicalize()?, before);
    let mut sweep = tokio::task::spawn_blocking(open).await.map_err(io::Error::other)??;
    loop {
        let stepped = tokio::task::spawn_blocking(move || {
            let step = sweep.step(LOOKS_MAX);
            (sweep, step)
        });
        let (unfinished, step) = stepped.await.map_err(io::Error::other)?;
        match step? {
            Step::Done(swept) => return Ok(swept),
            Step::More => sweep = unfinished,
        }
        tokio::time::sleep(BREATH).await;
    }
}
