//! Addresses, in both forms that libpq has.

use std::{path::PathBuf, str::FromStr as _};

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::{
    Line,
    tls::{Belief, Files, Tls},
};

/// Where a server is, and how it is spoken to.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Tls,
}

/// Why an address is none. It never shows the address, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(pub(crate) String);

/// Says where it is and who we are there, without the password.
impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.config))
    }
}

/// What may be shown of an address, if it is one.
pub fn place(text: &str) -> Option<String> {
    let (rest, _) = if text.contains("://") { of_url(text).ok()? } else { of_words(text) };
    Config::from_str(&rest).ok().map(|config| shown(&config))
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    });
    let hosts: Vec<String> = hosts.collect();
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{user}{}/{database}", hosts.join(","))
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").finish_non_exhaustive()
    }
}

impl Address {
    /// Reads `postgres://user:secret@host/database?sslmode=…` or `host=… user=… sslmode=…`. Files that it names are read.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if !text.contains("://") && !text.contains('=') {
            return Err(AddressError(
                "write `postgres://user:password@host:5432/database`, or `host=… user=… dbname=…`"
                    .to_owned(),
            ));
        }
        let (rest, asked) = if text.contains("://") { of_url(text)? } else { of_words(text) };
        let mut config = Config::from_str(&rest).map_err(|error| said(&error))?;
        let files = Files {
            authority: asked.get("sslrootcert").filter(|name| *name != "system").map(PathBuf::from),
            client: client(&asked)?,
        };
        let (mode, belief) = match asked.get("sslmode").unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Belief::Anybody),
            "allow" | "prefer" => (SslMode::Prefer, Belief::Anybody),
            "require" if files.authority.is_none() => (SslMode::Require, Belief::Anybody),
            "require" | "verify-ca" => (SslMode::Require, Belief::Certified),
            "verify-full" => (SslMode::Require, Belief::Named),
            other => {
                return Err(AddressError(format!(
                    "`sslmode={other}` is not known: write `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"
                )));
            }
        };
        config.ssl_mode(mode);
        Ok(Self { config, tls: Tls::new(belief, &files)? })
    }

    /// What else may be set.
    pub fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Connects.
    pub async fn connect(&self) -> Result<Line, tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }
}

fn client(asked: &Asked) -> Result<Option<(PathBuf, PathBuf)>, AddressError> {
    match (asked.get("sslcert"), asked.get("sslkey")) {
        (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => {
            Err(AddressError("`sslcert` and `sslkey` belong together".to_owned()))
        }
    }
}

fn said(error: &tokio_postgres::Error) -> AddressError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    AddressError(format!("{error}{}", cause.unwrap_or_default()))
}

/// What an address says about TLS.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked(Vec<(String, String)>);

impl Asked {
    /// The last one counts, as in libpq.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

fn is_ours(key: &str) -> bool {
    matches!(key, "sslmode" | "sslrootcert" | "sslcert" | "sslkey")
}

/// An address without what it says about TLS, and that.
fn of_url(text: &str) -> Result<(String, Asked), AddressError> {
    let Some((place, query)) = text.split_once('?') else {
        return Ok((text.to_owned(), Asked::default()));
    };
    let (mut left, mut asked) = (Vec::new(), Asked::default());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some((key, value)) if is_ours(key) => asked.0.push((key.to_owned(), plain(value)?)),
            Some(_) | None => left.push(pair),
        }
    }
    let mark = if left.is_empty() { "" } else { "?" };
    Ok((format!("{place}{mark}{}", left.join("&")), asked))
}

/// Resolves `%2F` and the like.
fn plain(value: &str) -> Result<String, AddressError> {
    let broken = || AddressError(format!("`{value}` is not a value in an address: see `%`"));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or_else(broken)?;
        let digits = str::from_utf8(digits).map_err(|_not_text| broken())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_no_number| broken())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_not_text| broken())
}

/// The same for `key=value` with quotes. What is not understood stays, and is refused by who reads the rest.
fn of_words(text: &str) -> (String, Asked) {
    let (mut left, mut asked) = (String::new(), Asked::default());
    let mut rest = text.trim_start();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, length) = value(after);
        let (word, behind) = rest.split_at_checked(key.len() + 1 + length).unwrap_or((rest, ""));
        if is_ours(key.trim()) {
            asked.0.push((key.trim().to_owned(), value));
        } else {
            left.push_str(word);
            left.push(' ');
        }
        rest = behind.trim_start();
    }
    left.push_str(rest);
    (left.trim_end().to_owned(), asked)
}

/// A value at the beginning of a text, and how much of that it takes.
fn value(text: &str) -> (String, usize) {
    let blank = text.len() - text.trim_start().len();
    let (mut value, mut is_escaped, mut is_quoted) = (String::new(), false, false);
    for (at, character) in text.char_indices().filter(|(at, _)| *at >= blank) {
        match character {
            _ if is_escaped => {
                is_escaped = false;
                value.push(character);
            }
            '\\' => is_escaped = true,
            '\'' if is_quoted => return (value, at + 1),
            '\'' if at == blank => is_quoted = true,
            _ if character.is_whitespace() && !is_quoted => return (value, at),
            _ => value.push(character),
        }
    }
    (value, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Asked {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Asked(pairs.collect())
    }

    #[test]
    fn what_is_about_tls_is_taken_out_of_both_forms() {
        let url =
            "postgres://u:p%40@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa%20b.pem";
        let said = asked(&[("sslmode", "verify-full"), ("sslrootcert", "/a b.pem")]);
        assert_eq!(of_url(url), Ok(("postgres://u:p%40@h/d?connect_timeout=3".to_owned(), said)));
        let bare = of_url("postgres://h/d?sslmode=require").unwrap().0;
        assert_eq!(bare, "postgres://h/d");
        let words =
            r"host=h password='a sslmode=b\' c' sslrootcert = '/a b.pem'  sslmode=require user=u";
        let said = asked(&[("sslrootcert", "/a b.pem"), ("sslmode", "require")]);
        assert_eq!(of_words(words), (r"host=h password='a sslmode=b\' c' user=u".to_owned(), said));
    }

    #[test]
    fn where_it_is_is_shown_without_the_password() {
        for (address, expected) in [
            ("postgres://u:secret@h:17101/d?sslmode=require", "u@h:17101/d"),
            ("postgres://u:secret@a,b:6000/d", "u@a:5432,b:6000/d"),
            ("host=h user=u password='se cret'", "u@h:5432/u"),
            ("host=/run/pg dbname=d", "/run/pg:5432/d"),
        ] {
            assert_eq!(place(address).as_deref(), Some(expected));
            assert_eq!(Address::parse(address).unwrap().to_string(), expected);
        }
        assert_eq!(place("secret:5432"), None);
    }

    #[test]
    fn what_cannot_be_meant_is_said_without_the_password() {
        for (address, expected) in [
            ("postgres://u:secret@h/d?sslmode=tls", "`sslmode=tls` is not known"),
            ("postgres://u:secret@h/d?sslcert=/a", "belong together"),
            ("postgres://u:secret@h/d?sslmode=verify-ca&sslrootcert=/no/such", "/no/such"),
            ("postgres://u:secret@h/d?sslrootcert=%2", "%"),
            ("host=h password=secret nonsense=1", "nonsense"),
            ("host=h password=secret nonsense", "connection string"),
            ("secret:5432", "write `postgres://"),
        ] {
            let said = Address::parse(address).unwrap_err().to_string();
            assert!(said.contains(expected) && !said.contains("secret"), "{address}: {said}");
        }
    }
}
