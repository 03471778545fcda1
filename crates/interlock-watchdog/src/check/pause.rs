//! paused-too-long: a pause that nobody ends.

use jiff::Timestamp;

use interlock_core::duration;
use interlock_store::DueKind;

use crate::{
    finding::{CheckName, Finding, Remedy},
    snapshot::Snapshot,
};

/// Pauses that are in force and whose time to be looked at has come.
pub(super) fn too_long(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let name = CheckName::PausedTooLong;
    let mut found = Vec::new();
    for due in snapshot.due.iter().filter(|due| due.kind == DueKind::Pause) {
        let pause = snapshot.pause.as_ref().filter(|pause| pause.is_in_force(now));
        let since = due.details.get("since").and_then(|since| since.as_str());
        // Another pause has an entry of its own.
        let pause = pause.filter(|pause| since.is_none_or(|it| it == pause.since.to_string()));
        let Some(pause) = pause.filter(|_| !snapshot.is_retired) else {
            let overtaken = Finding::silent(name, &snapshot.pipeline);
            found.push(overtaken.with(Remedy::Drop(due.clone())));
            continue;
        };
        let long = duration::format_go(now.duration_since(pause.since));
        let message = format!("paused for {long}, since {}: {}", pause.since, pause.reason);
        let alert = format!("Pipeline {} has been {message}", snapshot.pipeline);
        found.push(
            Finding::of(name, "PIPELINE_PAUSED", &snapshot.pipeline)
                .says(message)
                .alerts(alert)
                .due(due.at())
                .detail("thing", snapshot.pipeline.as_str())
                .detail("since", pause.since.to_string())
                .detail("duration", long)
                .detail("actionHint", "Resume it with `interlock resume`, or give the pause an end (`interlock pause --until`).")
                .with(Remedy::Drop(due.clone())),
        );
    }
    found
}
