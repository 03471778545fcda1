//! Tokens: what somebody shows, and what is kept of it.
//!
//! A token is `il_` and 43 characters that were drawn, 256 bits. Only its SHA-256 is kept, so whoever reads the store
//! cannot use it; with so much chance in it, a slow hash would add nothing. It is shown once, when it is made. The
//! first characters of the hash are its id: enough to name it in a list and in the log, useless to anybody else.
//!
//! A token of `interlock.yaml` is hashed when it is read, and the same from then on.

use std::fmt::{self, Write as _};

use aws_lc_rs::{constant_time, digest, rand};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use interlock_config::route::fits;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What every token begins with, so that scanners for secrets find one that was committed.
const PREFIX: &str = "il_";
/// Bytes that are drawn for a token.
const DRAWN: usize = 32;
/// Bytes of the hash that an id shows.
const ID_BYTES: usize = 6;

/// What a token may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Report on pipelines whose names match one of these (`*` stands for anything), and nothing else.
    Ping(Vec<String>),
    /// Show badges, and nothing else.
    Badge,
    /// Look.
    Viewer,
    /// Look, report, and act on pipelines.
    Operator,
    /// Everything.
    Admin,
}

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To report on the pipeline that the path names as `{pipeline}`.
    Ping,
    /// To show how a pipeline stands, in a word.
    Badge,
    /// To look.
    View,
    /// To act on pipelines.
    Operate,
    /// To change who may do what, and the like.
    Administer,
}

impl Scope {
    /// Whether it is enough for a need, at a path that names this pipeline.
    pub fn allows(&self, need: Need, pipeline: Option<&str>) -> bool {
        match (self, need) {
            (Self::Ping(patterns), Need::Ping) => {
                pipeline.is_some_and(|name| patterns.iter().any(|pattern| fits(pattern, name)))
            }
            (Self::Badge, Need::Badge)
            | (Self::Viewer, Need::Badge | Need::View)
            | (Self::Operator, Need::Ping | Need::Badge | Need::View | Need::Operate)
            | (
                Self::Admin,
                Need::Ping | Need::Badge | Need::View | Need::Operate | Need::Administer,
            ) => true,
            (Self::Ping(_), Need::Badge | Need::View | Need::Operate | Need::Administer)
            | (Self::Badge, Need::Ping | Need::View | Need::Operate | Need::Administer)
            | (Self::Viewer, Need::Ping | Need::Operate | Need::Administer)
            | (Self::Operator, Need::Administer) => false,
        }
    }

    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ping(_) => "ping",
            Self::Badge => "badge",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Reads the word for it; the pipelines are those of a token for pings.
    pub fn parse(word: &str, pipelines: Vec<String>) -> Option<Self> {
        match word {
            "ping" => Some(Self::Ping(pipelines)),
            "badge" => Some(Self::Badge),
            "viewer" => Some(Self::Viewer),
            "operator" => Some(Self::Operator),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

impl Need {
    /// The least that is enough, in words.
    pub(crate) fn least(self) -> &'static str {
        match self {
            Self::Ping => "ping (for this pipeline) or operator",
            Self::Badge => "badge, viewer, operator or admin",
            Self::View => "viewer, operator or admin",
            Self::Operate => "operator or admin",
            Self::Administer => "admin",
        }
    }
}

/// The hash of a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash([u8; DRAWN]);

impl Hash {
    /// Of a token's text.
    pub fn of(text: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let mut bytes = [0; DRAWN];
        for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
            *to = *from;
        }
        Self(bytes)
    }

    /// Whether both are the same, in a time that tells nothing.
    fn is(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    pub(crate) fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0)
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?))
    }
}

/// Of no use to anybody, and still nobody's business.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash")
    }
}

/// A token, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose it is, for people.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// What is left of it.
    pub hash: Hash,
    /// When it was made; unknown for those of the files.
    pub created_at: Option<Timestamp>,
    /// Who made it.
    pub by: String,
    /// From when on it is worth nothing.
    pub expires_at: Option<Timestamp>,
}

impl Token {
    /// A new one, and the text that is shown once. The system's chance is asked, which may fail.
    pub fn mint(name: &str, scope: Scope) -> Option<(String, Self)> {
        let mut drawn = [0; DRAWN];
        rand::fill(&mut drawn).ok()?;
        let text = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(drawn));
        let token = Self::known(name, scope, &text);
        Some((text, token))
    }

    /// One whose text is known, such as one of the files.
    pub fn known(name: &str, scope: Scope, text: &str) -> Self {
        let (name, by) = (name.to_owned(), String::new());
        Self { name, scope, hash: Hash::of(text), created_at: None, by, expires_at: None }
    }

    /// What it is called where its text must not be.
    pub fn id(&self) -> String {
        let mut id = String::new();
        for byte in self.hash.0.iter().take(ID_BYTES) {
            // Writing to a text cannot fail.
            let _written = write!(id, "{byte:02x}");
        }
        id
    }

    /// Whether it still opens anything.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }

    /// As it is stored.
    pub fn to_json(&self) -> Value {
        let pipelines = match &self.scope {
            Scope::Ping(pipelines) => Some(pipelines),
            Scope::Badge | Scope::Viewer | Scope::Operator | Scope::Admin => None,
        };
        json!({
            "name": self.name,
            "scope": self.scope.as_str(),
            "pipelines": pipelines,
            "hash": self.hash.text(),
            "createdAt": self.created_at.map(|at| at.to_string()),
            "by": self.by,
            "expiresAt": self.expires_at.map(|at| at.to_string()),
        })
    }

    /// Reads what is stored; one that cannot be read opens nothing.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let instant = |key: &str| match text(key) {
            Some(written) => written.parse().ok().map(Some),
            None => Some(None),
        };
        let pipelines = value.get("pipelines").and_then(Value::as_array).into_iter().flatten();
        let pipelines = pipelines.filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Self {
            name: text("name")?.to_owned(),
            scope: Scope::parse(text("scope")?, pipelines)?,
            hash: Hash::parse(text("hash")?)?,
            created_at: instant("createdAt")?,
            by: text("by").unwrap_or_default().to_owned(),
            expires_at: instant("expiresAt")?,
        })
    }
}

/// The token that a text is, if it is one of these and still in force. Every one is looked at to its end, whether or
/// not it was found, so that the time it takes tells nothing.
pub(crate) fn find<'a>(
    tokens: impl Iterator<Item = &'a Token>,
    shown: &str,
    now: Timestamp,
) -> Option<&'a Token> {
    let hash = Hash::of(shown);
    let found =
        tokens.fold(None, |found, token| if token.hash.is(&hash) { Some(token) } else { found });
    found.filter(|token| token.is_in_force(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_opens_what_it_says_and_nothing_else() {
        let ping = Scope::Ping(vec!["orders-*".to_owned()]);
        let at = Some("orders-eu");
        for (scope, needs) in [
            (&ping, [true, false, false, false, false]),
            (&Scope::Badge, [false, true, false, false, false]),
            (&Scope::Viewer, [false, true, true, false, false]),
            (&Scope::Operator, [true, true, true, true, false]),
            (&Scope::Admin, [true, true, true, true, true]),
        ] {
            let all = [Need::Ping, Need::Badge, Need::View, Need::Operate, Need::Administer];
            assert_eq!(all.map(|need| scope.allows(need, at)), needs, "{scope:?}");
        }
        assert!(!ping.allows(Need::Ping, Some("billing")));
        assert!(!ping.allows(Need::Ping, None));
        assert!(!Scope::Ping(vec![]).allows(Need::Ping, at));
    }

    #[test]
    fn what_is_stored_is_not_the_token_and_finds_it_again() {
        let (text, token) = Token::mint("ci", Scope::Operator).unwrap();
        let (other, _) = Token::mint("ci", Scope::Operator).unwrap();
        assert_ne!(text, other);
        assert!(text.starts_with("il_") && text.len() == 46, "{text}");
        let stored = token.to_json().to_string();
        assert!(!stored.contains(text.trim_start_matches(PREFIX)), "{stored}");
        let back = Token::from_json(&token.to_json()).unwrap();
        assert_eq!(back, token);
        let all = [back];
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(find(all.iter(), &text, now).map(|token| token.name.as_str()), Some("ci"));
        for wrong in [other.as_str(), "", "il_", &text[1..], &format!("{text} ")] {
            assert!(find(all.iter(), wrong, now).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_token_whose_time_is_over_or_that_cannot_be_read_opens_nothing() {
        let mut token = Token::known("old", Scope::Admin, "text");
        token.expires_at = Some(Timestamp::UNIX_EPOCH);
        assert!(find([&token].into_iter(), "text", Timestamp::UNIX_EPOCH).is_none());
        let before = Timestamp::UNIX_EPOCH - jiff::SignedDuration::from_secs(1);
        assert!(find([&token].into_iter(), "text", before).is_some());
        for key in ["scope", "hash", "expiresAt"] {
            let mut broken = token.to_json();
            broken[key] = "nonsense".into();
            assert_eq!(Token::from_json(&broken), None, "{key}");
        }
    }
}
