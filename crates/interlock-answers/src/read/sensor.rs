//! Sensors of a pipeline, by key.

use interlock_core::id::PipelineId;
use interlock_store::{Key, Record, record::SensorRecord};

use crate::{
    AnswerError, Listing, Reader,
    listing::NamedPage,
    model::{page::PageQuery, sensor::SensorAnswer},
};

impl Reader<'_> {
    /// The sensors of a pipeline.
    pub async fn sensors(
        &self,
        pipeline: &str,
        asked: &PageQuery,
    ) -> Result<Listing<SensorAnswer>, AnswerError> {
        let page = NamedPage::of("sensors", asked)?;
        // What Interlock keeps for itself is kept in the same way, secrets too: that is no pipeline.
        let pipeline = self.known(pipeline).await?;
        let rows = self.store.sensors(&pipeline).await?.into_iter();
        let sensors = rows.map(|(key, row)| sensor_answer(key, &row.record));
        Ok(page.listing(sensors, |sensor| sensor.key.clone()))
    }

    /// One sensor of a pipeline.
    pub async fn sensor(&self, pipeline: &str, key: &str) -> Result<SensorAnswer, AnswerError> {
        let pipeline: PipelineId = self.known(pipeline).await?;
        let rows = self.store.read(&pipeline, &[Key::Sensor(key.to_owned())]).await?;
        let row = rows.into_iter().flatten().next().map(|row| row.record);
        let Some(Record::Sensor(record)) = row else {
            let message = format!("there is no sensor `{key}` of {pipeline}");
            let hint = format!("`interlock sensor list {pipeline}` has those that were reported.");
            return Err(AnswerError::not_found(message, &hint));
        };
        Ok(sensor_answer(key.to_owned(), &record))
    }
}

fn sensor_answer(key: String, record: &SensorRecord) -> SensorAnswer {
    let SensorRecord { value, at, received_at, .. } = record.clone();
    SensorAnswer { key, value, at, received_at }
}
