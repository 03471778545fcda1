//! Requests as the routes of the API: which one takes what stands in an entry of the inbox.

use interlock_answers::model::plan::ResumePlanRequest;
use interlock_answers::model::request::{
    BarkRequest, CancelBackfillRequest, CancelRequest, CompleteRequest, IncidentRequest,
    PauseRequest, RerunRequest, RunRequest, SensorRequest,
};
use interlock_core::{id::PipelineId, incident::Hand};
use interlock_store::record::{InboxRecord, SlotName};
use serde::Serialize;
use serde_json::json;

use super::{Change, query::path};

/// The route for an entry in the inbox of a pipeline; `None` for what no person asks for, or for what needs more than is in it.
pub(crate) fn of(pipeline: &PipelineId, record: &InboxRecord) -> Option<Change> {
    let name = pipeline.as_str();
    let about_slot = |slot: &SlotName, what: &str| {
        path(&["pipelines", name, "slots", &slot.schedule, &slot.nominal.to_string(), what])
    };
    Some(match record {
        InboxRecord::Sensor { key, value, at } => {
            let body = SensorRequest { value: value.clone(), at: Some(json!(at)) };
            post(path(&["pipelines", name, "sensors", key]), &body)
        }
        InboxRecord::Run { slot, force, params, webhook: _ } => {
            let slot = slot.as_ref().map(|slot| format!("{}/{}", slot.schedule, slot.nominal));
            let body = RunRequest { slot, force: *force, params: params.clone() };
            post(path(&["pipelines", name, "run"]), &body)
        }
        InboxRecord::Rerun { slot, reason } => {
            post(about_slot(slot, "rerun"), &RerunRequest { reason: reason.clone() })
        }
        InboxRecord::Cancel { slot, reason } => {
            post(about_slot(slot, "cancel"), &CancelRequest { reason: Some(reason.clone()) })
        }
        InboxRecord::Pause { reason, until } => {
            let body = PauseRequest { reason: reason.clone(), until: *until };
            post(path(&["pipelines", name, "pause"]), &body)
        }
        InboxRecord::Resume { catchup } => {
            let body = ResumePlanRequest { catchup: catchup.clone() };
            post(path(&["pipelines", name, "resume"]), &body)
        }
        InboxRecord::Catchup {} => post(path(&["pipelines", name, "catchup"]), &json!({})),
        InboxRecord::Incident { key, hand, by: _, note } => {
            let hand = Hand::parse(hand)?.as_str();
            let body = IncidentRequest { note: note.clone() };
            post(path(&["incidents", name, key, hand]), &body)
        }
        InboxRecord::Silence { id, silence: None, by: _ } => delete(path(&["silences", id])),
        InboxRecord::Bark { .. } => {
            let pipeline = (*pipeline != PipelineId::system()).then(|| name.to_owned());
            post(path(&["barks"]), &BarkRequest { pipeline })
        }
        InboxRecord::Keep { kind, id, value: None, by: _ } if kind == "token" => {
            delete(path(&["tokens", id]))
        }
        InboxRecord::Complete { run_id, success, message, .. } => {
            let status = if *success { "success" } else { "failed" };
            completed(run_id, status, message.as_ref())
        }
        InboxRecord::PauseBackfill { backfill } => {
            of_backfill(name, *backfill, "pause", &json!({}))
        }
        InboxRecord::ResumeBackfill { backfill } => {
            of_backfill(name, *backfill, "resume", &json!({}))
        }
        InboxRecord::CancelBackfill { backfill, reason, ends_runs } => {
            let (reason, ends_runs) = (Some(reason.clone()), *ends_runs);
            of_backfill(name, *backfill, "cancel", &CancelBackfillRequest { reason, ends_runs })
        }
        InboxRecord::StopCatchup { .. }
        | InboxRecord::StartBackfill { .. }
        | InboxRecord::Silence { .. }
        | InboxRecord::Keep { .. }
        | InboxRecord::SendAgain { .. }
        | InboxRecord::Asked { .. }
        | InboxRecord::Look {}
        | InboxRecord::File { .. }
        | InboxRecord::Report(_)
        | InboxRecord::Noticed { .. }
        | InboxRecord::Job { .. }
        | InboxRecord::Unreadable { .. }
        | InboxRecord::Heard { .. } => return None,
    })
}

/// The end of a run, as a person says it.
fn completed(run_id: &str, status: &str, message: Option<&String>) -> Change {
    let body = CompleteRequest {
        status: status.to_owned(),
        message: message.cloned(),
        category: None,
        metadata: std::collections::BTreeMap::default(),
    };
    post(path(&["runs", run_id, "complete"]), &body)
}

/// What is asked of a backfill.
fn of_backfill(pipeline: &str, number: u64, what: &str, body: &impl Serialize) -> Change {
    post(path(&["pipelines", pipeline, "backfills", &number.to_string(), what]), body)
}

/// A change that is posted with a body.
pub(crate) fn post(path: String, body: &impl Serialize) -> Change {
    let body = serde_json::to_string(body).unwrap_or_default();
    Change { method: "POST", path, body: Some(body), if_match: None }
}

fn delete(path: String) -> Change {
    Change { method: "DELETE", path, body: None, if_match: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(record: &InboxRecord) -> String {
        let change = of(&PipelineId::parse("orders").unwrap(), record).unwrap();
        format!("{} {} {}", change.method, change.path, change.body.unwrap_or_default())
    }

    #[test]
    fn a_request_goes_to_its_route_with_what_it_says() {
        let slot = SlotName {
            schedule: "hourly".to_owned(),
            nominal: "2026-02-25T11:00:00Z".parse().unwrap(),
        };
        assert_eq!(
            said(&InboxRecord::Rerun { slot: slot.clone(), reason: "late".to_owned() }),
            r#"POST /api/v1/pipelines/orders/slots/hourly/2026-02-25T11%3A00%3A00Z/rerun {"reason":"late"}"#
        );
        let run = InboxRecord::Run {
            slot: Some(slot),
            force: true,
            params: [("a".to_owned(), "b".to_owned())].into(),
            webhook: false,
        };
        assert_eq!(
            said(&run),
            r#"POST /api/v1/pipelines/orders/run {"slot":"hourly/2026-02-25T11:00:00Z","force":true,"params":{"a":"b"}}"#
        );
        let ack = InboxRecord::Incident {
            key: "k/1".to_owned(),
            hand: "acknowledge".to_owned(),
            by: "ann".to_owned(),
            note: None,
        };
        assert_eq!(said(&ack), r#"POST /api/v1/incidents/orders/k%2F1/acknowledge {"note":null}"#);
        let revoke = InboxRecord::Keep {
            kind: "token".to_owned(),
            id: "t1".to_owned(),
            value: None,
            by: String::new(),
        };
        assert_eq!(said(&revoke), "DELETE /api/v1/tokens/t1 ");
    }
}
