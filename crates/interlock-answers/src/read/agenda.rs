//! What the pipelines' rows say: how far their schedules are recorded, and which are paused.

use interlock_core::id::PipelineId;
use interlock_store::AgendaRow;

use super::{pipeline_walk::PipelineWalk, run::pipeline_id};
use crate::{
    AnswerError, Cursor, LIMIT_MAX, Listing, Reader, SCAN_MAX,
    cursor::not_ours,
    listing::limit,
    model::{
        page::PageQuery,
        pause::PauseAnswer,
        watermark::{WatermarkAnswer, WatermarksQuery},
    },
};

/// Where a list of watermarks goes on.
#[derive(Debug, Clone, Default)]
struct WatermarkPlace {
    /// Behind which pipeline.
    pipeline: Option<PipelineId>,
    /// Behind which schedule of the next one.
    schedule: Option<String>,
}

impl WatermarkPlace {
    fn decode(after: Option<&str>) -> Result<Self, AnswerError> {
        let Some(after) = after else { return Ok(Self::default()) };
        let Cursor::Watermarks { pipeline, schedule } = Cursor::decode(after)? else {
            return Err(not_ours());
        };
        let pipeline = pipeline.as_deref().map(PipelineId::parse).transpose();
        Ok(Self { pipeline: pipeline.map_err(|_malformed| not_ours())?, schedule })
    }

    fn encode(self) -> String {
        let Self { pipeline, schedule } = self;
        let pipeline = pipeline.map(|name| name.to_string());
        Cursor::Watermarks { pipeline, schedule }.encode()
    }
}

impl Reader<'_> {
    /// How far schedules are recorded, by pipeline.
    pub async fn watermarks(
        &self,
        asked: &WatermarksQuery,
    ) -> Result<Listing<WatermarkAnswer>, AnswerError> {
        if let Some(name) = &asked.pipeline {
            let row = self.agenda_row(&pipeline_id(name)?).await?;
            return Ok(Listing::whole(row.iter().flat_map(watermark_answers).collect()));
        }
        let limit = limit(asked.limit)?;
        let mut place = WatermarkPlace::decode(asked.after.as_deref())?;
        let mut walk = PipelineWalk::new(self, place.pipeline.clone(), limit);
        let (mut items, mut scanned): (Vec<WatermarkAnswer>, u64) = (Vec::new(), 0);
        while scanned < SCAN_MAX as u64 {
            let Some(found) = walk.take(1).await?.pop() else {
                return Ok(Listing { items, next: None, scanned, unreadable: vec![] });
            };
            let behind = place.schedule.take();
            let marks = found.row.iter().flat_map(watermark_answers);
            let marks =
                marks.filter(|mark| behind.as_ref().is_none_or(|behind| mark.schedule > *behind));
            for mark in marks {
                if items.len() == limit {
                    let own = items.last().filter(|it| it.pipeline == found.name.as_str());
                    place.schedule = own.map(|it| it.schedule.clone()).or(behind);
                    let next = Some(place.encode());
                    return Ok(Listing { items, next, scanned, unreadable: vec![] });
                }
                items.push(mark);
            }
            scanned += 1;
            place.pipeline = Some(found.name);
        }
        Ok(Listing { items, next: Some(place.encode()), scanned, unreadable: vec![] })
    }

    /// The pipelines that are paused now, by name.
    pub async fn pauses(&self, asked: &PageQuery) -> Result<Listing<PauseAnswer>, AnswerError> {
        let limit = limit(asked.limit)?;
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let mut after = after.map(Cursor::pipeline).transpose()?;
        let mut walk = PipelineWalk::new(self, after.clone(), LIMIT_MAX);
        let (mut items, mut scanned) = (Vec::new(), 0);
        while items.len() < limit && scanned < SCAN_MAX as u64 {
            let Some(found) = walk.take(1).await?.pop() else {
                return Ok(Listing { items, next: None, scanned, unreadable: vec![] });
            };
            scanned += 1;
            items.extend(found.row.as_ref().and_then(|row| self.pause(row)));
            after = Some(found.name);
        }
        let next = after.map(|name| Cursor::Pipelines { name: name.to_string() }.encode());
        Ok(Listing { items, next, scanned, unreadable: vec![] })
    }

    fn pause(&self, row: &AgendaRow) -> Option<PauseAnswer> {
        let record = &row.record.record;
        let pause = record.pause.as_ref().filter(|pause| pause.is_in_force(self.now))?;
        record.retired_at.is_none().then(|| PauseAnswer {
            pipeline: row.pipeline.to_string(),
            reason: pause.reason.clone(),
            since: pause.since,
            until: pause.until,
        })
    }
}

fn watermark_answers(row: &AgendaRow) -> impl Iterator<Item = WatermarkAnswer> {
    row.watermarks.iter().map(|(schedule, mark)| WatermarkAnswer {
        pipeline: row.pipeline.to_string(),
        schedule: schedule.to_string(),
        at: mark.record.at,
    })
}
