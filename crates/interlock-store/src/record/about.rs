//! What lists say of a declaration, kept in the pipeline's row: so that a list of ten thousand pipelines reads no declaration.

use std::collections::BTreeMap;

use interlock_core::pipeline::Pipeline;
use serde::{Deserialize, Serialize};

use super::Word;

/// Most characters of a description that are kept here: lists show a line or two, and the whole text is in the declaration.
const DESCRIPTION_MAX: usize = 500;

/// What people know a pipeline by. Its upstreams are in [`AgendaRecord::upstreams`](super::AgendaRecord::upstreams).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AboutRecord {
    /// See [`Pipeline::owner`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The beginning of [`Pipeline::description`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// See [`Pipeline::tier`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<u32>,
    /// See [`Pipeline::labels`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The kind of its trigger, such as `command`; none of a pipeline without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Word>,
}

impl AboutRecord {
    /// What lists say of a declaration.
    pub fn of(pipeline: &Pipeline) -> Self {
        let kind = pipeline.trigger.as_ref().map(|trigger| trigger.kind.as_str());
        Self {
            owner: pipeline.owner.clone(),
            description: pipeline.description.as_deref().map(beginning),
            tier: pipeline.tier,
            labels: pipeline.labels.clone(),
            trigger: kind.map(|kind| kind.to_owned().into()),
        }
    }
}

/// A text, cut where it is too long for a list.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(DESCRIPTION_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_as_long_as_a_book_is_cut_at_a_character() {
        assert_eq!(beginning(&"ä".repeat(DESCRIPTION_MAX)), "ä".repeat(DESCRIPTION_MAX));
        let cut = format!("{}…", "ä".repeat(DESCRIPTION_MAX));
        assert_eq!(beginning(&"ä".repeat(100_000)), cut);
    }
}
