//! The query of an address: what it says, and the same with something changed.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in a part of a path or in a value as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same of a value, where these change nothing and are easier to read.
const PLAIN_VALUE: &AsciiSet = &PLAIN.remove(b':').remove(b'/').remove(b',').remove(b'*');

/// A part of a path.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Names and values, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// What an address or a form says. A parameter that is given and empty is left out: a form without script sends all its fields.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        Self(pairs.filter(|(_, value)| !value.trim().is_empty()).collect())
    }

    /// The first value under a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All of them.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Whether a name has this value.
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.all(name).any(|own| own == value)
    }

    /// With one more value.
    #[must_use]
    pub(crate) fn and(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// With one more value, if there is one.
    #[must_use]
    pub(crate) fn and_if(self, name: &str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.and(name, value),
            None => self,
        }
    }

    /// With this value alone under a name.
    #[must_use]
    pub(crate) fn with(self, name: &str, value: impl Into<String>) -> Self {
        self.without(name).and(name, value)
    }

    /// With nothing under a name.
    #[must_use]
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(own, _)| own != name);
        self
    }

    /// With this value under a name if it was not there, else without it.
    #[must_use]
    pub(crate) fn toggled(mut self, name: &str, value: &str) -> Self {
        if self.has(name, value) {
            self.0.retain(|(own, said)| own != name || said != value);
            self
        } else {
            self.and(name, value)
        }
    }

    /// Only what is under these names.
    #[must_use]
    pub(crate) fn only(mut self, names: &[&str]) -> Self {
        self.0.retain(|(own, _)| names.contains(&own.as_str()));
        self
    }

    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As pairs, for a form to repeat.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// A path with this query behind it.
    pub(crate) fn at(&self, path: &str) -> String {
        let mut text = path.to_owned();
        for (number, (name, value)) in self.0.iter().enumerate() {
            text.push(if number == 0 { '?' } else { '&' });
            text.push_str(&part(name));
            text.push('=');
            text.push_str(&utf8_percent_encode(value, PLAIN_VALUE).to_string());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_the_same_with_something_changed() {
        let query = Query::parse("status=FAILED&status=CANCELLED&q=&pipeline=a%20b&after=x");
        assert_eq!(query.get("q"), None);
        let newest = query.clone().without("after");
        assert_eq!(newest.at("/runs"), "/runs?status=FAILED&status=CANCELLED&pipeline=a%20b");
        assert_eq!(
            newest.clone().toggled("status", "FAILED").at("/runs"),
            "/runs?status=CANCELLED&pipeline=a%20b"
        );
        assert!(newest.clone().toggled("status", "RUNNING").has("status", "RUNNING"));
        assert_eq!(
            newest.only(&["pipeline"]).with("pipeline", "&=#").at("/"),
            "/?pipeline=%26%3D%23"
        );
        assert_eq!(Query::default().at("/"), "/");
    }
}
