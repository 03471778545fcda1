//! Silences, by name.

use interlock_config::{ZoneSource, server::AlertFilter, silence::Silence};
use interlock_core::{duration, id::PipelineId, zone::Zone};
use interlock_engine::SILENCE_PREFIX;
use jiff::Timestamp;

use super::run::{one_of, words};
use crate::{
    AnswerError, Declarations, Listing, Reader, UnreadableRow,
    listing::NamedPage,
    model::{
        page::PageQuery,
        plan::{AlertFilterAnswer, SilenceWindowsAnswer},
        silence::{SilenceAnswer, SilencesQuery},
    },
};

/// How a silence may stand.
const STATES: [&str; 3] = ["silent", "waiting", "over"];

/// The zones that declarations know.
struct DeclaredZones<'a>(&'a dyn Declarations);

impl ZoneSource for DeclaredZones<'_> {
    fn zone(&self, name: &str) -> Option<Zone> {
        self.0.zone(name)
    }

    /// Nothing is suggested in place of a zone that is not there.
    fn names(&self) -> &[String] {
        &[]
    }
}

impl Reader<'_> {
    /// Silences. One that cannot be read silences nothing, and is named.
    pub async fn silences(
        &self,
        asked: &SilencesQuery,
    ) -> Result<Listing<SilenceAnswer>, AnswerError> {
        let states = words(&asked.state, |word| one_of("state of a silence", word, &STATES))?;
        let SilencesQuery { after, limit, .. } = asked.clone();
        let page = NamedPage::of("silences", &PageQuery { after, limit })?;
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for (key, row) in self.store.sensors(&PipelineId::system()).await? {
            let Some(id) = key.strip_prefix(SILENCE_PREFIX) else { continue };
            let zones = DeclaredZones(self.declarations);
            match Silence::from_json(id, &row.record.value, &zones) {
                Ok(silence) => found.push(silence_answer(&silence, self.now)),
                Err(message) => {
                    let pipeline = PipelineId::system().to_string();
                    unreadable.push(UnreadableRow { pipeline, key, message });
                }
            }
        }
        found.retain(|it| states.is_empty() || states.contains(&it.state.as_str()));
        let listing = page.listing(found.into_iter(), |silence| silence.id.clone());
        Ok(Listing { unreadable, ..listing })
    }
}

/// What a silence is at an instant.
pub fn silence_answer(silence: &Silence, now: Timestamp) -> SilenceAnswer {
    let AlertFilter { levels, types, pipelines, owners, labels } = silence.when.clone();
    let state = match silence.in_force(now) {
        Some(_) => "silent",
        None if silence.is_over(now) => "over",
        None => "waiting",
    };
    SilenceAnswer {
        id: silence.id.clone(),
        state: state.to_owned(),
        when: AlertFilterAnswer { levels, types, pipelines, owners, labels },
        from: silence.from,
        until: silence.until,
        windows: silence.windows.as_ref().map(|windows| SilenceWindowsAnswer {
            cron: windows.cron.clone(),
            length: duration::format(windows.length),
            timezone: windows.zone().to_owned(),
        }),
        reason: silence.reason.clone(),
        by: silence.by.clone(),
    }
}
