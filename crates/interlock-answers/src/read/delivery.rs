//! Alerts on their way: what the outbox says of those of an incident.

use interlock_core::{id::PipelineId, incident::Alert};
use interlock_store::{OutboxRow, record::OutboxRecord};

use crate::{AnswerError, LIMIT_MAX, Reader, model::incident::DeliveryAnswer};

/// Something speaks against telling it now.
pub(super) const HELD: &str = "held";

/// How many alerts of one incident are listed.
const LISTED_MAX: usize = LIMIT_MAX;

impl Reader<'_> {
    /// The alerts of an incident that are not delivered.
    pub(super) async fn deliveries(
        &self,
        pipeline: &PipelineId,
        key: &str,
    ) -> Result<Vec<DeliveryAnswer>, AnswerError> {
        // Alerts are named after their incident.
        let name = format!("{key}~");
        let page = self.store.notifications(pipeline, Some(&name), LISTED_MAX).await?;
        let own = page.items.iter().take_while(|row| row.name.starts_with(&name));
        Ok(own.map(delivery_answer).collect())
    }
}

/// What a row of the outbox says.
fn delivery_answer(row: &OutboxRow) -> DeliveryAnswer {
    let OutboxRecord { channel, tries, not_before, last_error, dead, held, .. } = &row.record;
    let tells = Alert::from_json(&row.record.alert).state();
    let state = match held {
        _ if *dead => "dead",
        Some(_) => HELD,
        None if *tries > 0 => "retrying",
        None => "waiting",
    };
    DeliveryAnswer {
        name: row.name.clone(),
        channel: Some(channel.clone()).filter(|channel| !channel.is_empty()),
        tells: tells.map(|state| state.as_str().to_owned()),
        state: state.to_owned(),
        tries: *tries,
        next_try_at: (!dead).then_some(*not_before),
        reason: held.clone().or_else(|| last_error.clone()),
    }
}
