//! Which alerts a channel gets.

use std::collections::BTreeMap;

use crate::server::AlertFilter;

/// What routes look at.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// `error`, `warning` or `info`.
    pub level: &'a str,
    /// Such as `schedule_missed`.
    pub alert_type: &'a str,
    /// Whose it is.
    pub pipeline: &'a str,
    /// Who is told, by the pipeline's word.
    pub owner: Option<&'a str>,
    /// The pipeline's labels; none for what belongs to no pipeline.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

impl AlertFilter {
    /// Whether a channel with this filter gets an alert: each list that is not empty names it, and all labels
    /// are there.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let word = |list: &[String], word: &str| {
            list.is_empty() || list.iter().any(|one| one.eq_ignore_ascii_case(word))
        };
        let has = |(key, value): (&String, &String)| {
            subject.labels.is_some_and(|labels| labels.get(key) == Some(value))
        };
        word(&self.levels, subject.level)
            && word(&self.types, subject.alert_type)
            && (self.pipelines.is_empty()
                || self.pipelines.iter().any(|pattern| fits(pattern, subject.pipeline)))
            && (self.owners.is_empty()
                || self.owners.iter().any(|owner| subject.owner == Some(owner.as_str())))
            && self.labels.iter().all(has)
    }
}

/// Whether a name fits a pattern, in which `*` stands for anything.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        // The first place that fits leaves most for what follows.
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("*", "orders", true),
            ("*", "", true),
            ("ord*", "orders", true),
            ("*ers", "orders", true),
            ("o*r*s", "orders", true),
            ("ord*ders", "orders", false),
            ("*rd*rd*", "orders", false),
            ("a*a", "a", false),
            ("", "orders", false),
            ("*.silver.*", "eu.silver.orders", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn every_part_of_a_filter_must_let_it_pass() {
        let labels = BTreeMap::from([("team".to_owned(), "core".to_owned())]);
        let subject = Subject {
            level: "error",
            alert_type: "schedule_missed",
            pipeline: "orders",
            owner: Some("ann"),
            labels: Some(&labels),
        };
        let list = |text: &str| vec!["other".to_owned(), text.to_owned()];
        let all = AlertFilter {
            levels: list("error"),
            types: list("SCHEDULE_MISSED"),
            pipelines: list("ord*"),
            owners: list("ann"),
            labels: labels.clone(),
        };
        assert!(all.matches(&subject) && AlertFilter::default().matches(&subject));
        let nobody = Subject { owner: None, labels: None, ..subject };
        assert!(AlertFilter::default().matches(&nobody) && !all.matches(&nobody));
        let other = || vec!["other".to_owned()];
        for without in [
            AlertFilter { levels: other(), ..all.clone() },
            AlertFilter { types: other(), ..all.clone() },
            AlertFilter { pipelines: other(), ..all.clone() },
            AlertFilter { owners: other(), ..all.clone() },
            AlertFilter {
                labels: BTreeMap::from([("team".to_owned(), "other".to_owned())]),
                ..all.clone()
            },
        ] {
            assert!(!without.matches(&subject), "{without:?}");
        }
    }
}
