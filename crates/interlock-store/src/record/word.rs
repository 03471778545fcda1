//! Words from closed lists, as rows and events have them.
//!
//! A state, a disposition or the kind of an event is one of a few words that the program knows by heart, and there are
//! millions of rows that say them. So a word is not copied: it points at the one in the program. A word that another
//! version wrote, and that this one does not know, is kept as it was found.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A word. It reads like the text that it is.
#[derive(Clone)]
pub struct Word(Text);

#[derive(Clone)]
enum Text {
    /// Of this program.
    Known(&'static str),
    /// Read, or put together.
    Found(Arc<str>),
}

impl Word {
    /// The word as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Known(word) => word,
            Text::Found(word) => word,
        }
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Word {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&'static str> for Word {
    fn from(word: &'static str) -> Self {
        Self(Text::Known(word))
    }
}

impl From<String> for Word {
    fn from(word: String) -> Self {
        Self(Text::Found(word.into()))
    }
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        word.as_str().to_owned()
    }
}

impl From<Word> for serde_json::Value {
    fn from(word: Word) -> Self {
        word.as_str().into()
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Word {}

impl PartialOrd for Word {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Word {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Word {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<Word> for str {
    fn eq(&self, other: &Word) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Word> for &str {
    fn eq(&self, other: &Word) -> bool {
        *self == other.as_str()
    }
}

impl PartialEq<Word> for String {
    fn eq(&self, other: &Word) -> bool {
        self == other.as_str()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_stored_as_the_text_that_it_is_and_read_as_the_same_word() {
        let known = Word::from("running");
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(text, r#""running""#);
        let found: Word = serde_json::from_str(&text).unwrap();
        assert_eq!(found, known);
        assert_eq!(found, "running");
        assert_eq!(format!("{found:>8}|{found:?}"), " running|\"running\"");
    }

    #[test]
    fn a_word_that_nobody_knows_is_kept() {
        let found: Word = serde_json::from_str(r#""hibernating""#).unwrap();
        assert_eq!(String::from(found), "hibernating");
    }
}
