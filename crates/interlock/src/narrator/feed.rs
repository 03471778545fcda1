//! What a narrator asks about its slot: of the ledger and the logs of this machine, or of a server.

use interlock_answers::{
    event_answer,
    model::{
        event::EventAnswer,
        page::PageQuery,
        pipeline::{PauseAnswer, SlotStateAnswer},
        slot::SlotAnswer,
    },
    slot_answer,
};
use interlock_core::id::{PipelineId, SlotKey};

use crate::{
    clock,
    command::logs::print_from,
    exit::Failure,
    ledger::Ledger,
    output::Output,
    remote::{
        Opened, RemoteServer,
        query::{self, path},
    },
    source::{EventPage, events_there, known_there},
};

/// Who knows a slot.
pub(crate) trait SlotFeed {
    /// How it stands, with its runs.
    fn slot(&self, key: &SlotKey) -> Result<Option<SlotAnswer>, Failure>;

    /// What happened to its pipeline after an event.
    fn events(&self, pipeline: &PipelineId, after: u64) -> Result<EventPage, Failure>;

    /// Prints what the job of a run wrote from a byte on, and says where that ends; `None` if there is nothing.
    fn print_log(
        &self,
        run: (&PipelineId, &str),
        from: u64,
        output: &mut Output,
    ) -> Result<Option<u64>, Failure>;

    /// The pause that is in force.
    fn pause(&self, pipeline: &PipelineId) -> Result<Option<PauseAnswer>, Failure>;

    /// The open slots of its pipeline.
    fn open(&self, pipeline: &PipelineId) -> Result<Vec<SlotStateAnswer>, Failure>;
}

impl SlotFeed for Ledger {
    fn slot(&self, key: &SlotKey) -> Result<Option<SlotAnswer>, Failure> {
        let SlotKey { pipeline, schedule, nominal } = key;
        let Some(record) = Ledger::slot(self, pipeline, schedule, *nominal)? else {
            return Ok(None);
        };
        let runs = self.runs_of(pipeline, schedule, *nominal)?;
        Ok(Some(slot_answer(key, &record, &runs, clock::now())))
    }

    fn events(&self, pipeline: &PipelineId, after: u64) -> Result<EventPage, Failure> {
        let page = Ledger::events(self, Some(pipeline), after)?;
        let items: Vec<EventAnswer> = page.items.into_iter().map(event_answer).collect();
        Ok(EventPage { items, more: page.more })
    }

    fn print_log(
        &self,
        (pipeline, run): (&PipelineId, &str),
        from: u64,
        output: &mut Output,
    ) -> Result<Option<u64>, Failure> {
        print_from(&self.place().log_path(pipeline, run), from, output)
    }

    fn pause(&self, pipeline: &PipelineId) -> Result<Option<PauseAnswer>, Failure> {
        let pause = self.pipeline(pipeline)?.and_then(|row| row.pause);
        let pause = pause.filter(|pause| pause.is_in_force(clock::now()));
        Ok(pause.map(|it| PauseAnswer { reason: it.reason, since: it.since, until: it.until }))
    }

    fn open(&self, pipeline: &PipelineId) -> Result<Vec<SlotStateAnswer>, Failure> {
        let open = self.open_slots_of(pipeline)?.into_iter().map(|(key, slot)| SlotStateAnswer {
            slot: key.to_string(),
            schedule: key.schedule.to_string(),
            utc: key.nominal,
            state: slot.state.to_string(),
            disposition: None,
            reason: None,
        });
        Ok(open.collect())
    }
}

impl SlotFeed for RemoteServer {
    fn slot(&self, key: &SlotKey) -> Result<Option<SlotAnswer>, Failure> {
        let SlotKey { pipeline, schedule, nominal } = key;
        let instant = nominal.to_string();
        let parts = ["pipelines", pipeline.as_str(), "slots", schedule.as_str(), &instant];
        self.find(&path(&parts), &PageQuery::default())
    }

    fn events(&self, pipeline: &PipelineId, after: u64) -> Result<EventPage, Failure> {
        events_there(self, Some(pipeline), after)
    }

    fn print_log(
        &self,
        (_, run): (&PipelineId, &str),
        from: u64,
        output: &mut Output,
    ) -> Result<Option<u64>, Failure> {
        let asked = interlock_answers::model::log::LogQuery {
            offset: Some(from),
            ..interlock_answers::model::log::LogQuery::default()
        };
        let path = format!("{}{}", path(&["runs", run, "log"]), query::text(&asked));
        // What is not there, or not here any more, may be there at the next look.
        let Opened::Answer(mut answer) = self.open(&path, &[])? else { return Ok(None) };
        let start = answer.header("interlock-log-start").and_then(|text| text.parse().ok());
        let mut printed: u64 = start.unwrap_or(from);
        while let Ok(Some(piece)) = self.piece(&mut answer, super::PIECE_IN) {
            printed += piece.len() as u64;
            output.bytes(&piece)?;
        }
        Ok(Some(printed))
    }

    fn pause(&self, pipeline: &PipelineId) -> Result<Option<PauseAnswer>, Failure> {
        Ok(known_there(self, pipeline.as_str())?.standing.paused)
    }

    fn open(&self, pipeline: &PipelineId) -> Result<Vec<SlotStateAnswer>, Failure> {
        Ok(known_there(self, pipeline.as_str())?.standing.open)
    }
}
