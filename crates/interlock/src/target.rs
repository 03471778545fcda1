//! Whom a command asks: the project on this machine, or a server elsewhere (ADR 65).
//!
//! The more specific word wins: `--url` before `--context` before `-C`, and what was typed before `$INTERLOCK_URL` and
//! `$INTERLOCK_CONTEXT`. There is no context that holds without being named: a command that acts must not reach another place
//! than the one that was thought of.

pub(crate) mod contexts;
pub(crate) mod here;

use std::{
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use self::contexts::Contexts;
use crate::{arguments::ServerArgs, environment, exit::Failure};

/// Whom a command asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The project in a directory of this machine.
    Project(PathBuf),
    /// A server.
    Server(ServerAddress),
}

/// Where a server is, and how it knows us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    /// `https://interlock.example`, without a slash at the end.
    pub(crate) url: String,
    /// What is shown to it.
    pub(crate) token: Option<Token>,
    /// A file with the authorities that are believed, instead of those of this machine.
    pub(crate) authorities: Option<PathBuf>,
}

/// A token as a server takes it. It is in no `Debug` and in no message.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A token of a text, without what an editor leaves around it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_token
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| "a token has visible ASCII characters alone".to_owned())
    }

    /// What is sent.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl Target {
    /// Whom a command line means, with what the environment says.
    pub(crate) fn of(asked: &ServerArgs, directory: &Path) -> Result<Self, Failure> {
        Self::chosen(asked, directory, &environment::variable)
    }

    fn chosen(
        asked: &ServerArgs,
        directory: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        asked.check()?;
        if let Some(url) = &asked.url {
            return Ok(Self::Server(ServerAddress::of(url, asked.token.as_ref(), &set)?));
        }
        if let Some(name) = &asked.context {
            return Ok(Self::Server(ServerAddress::of_context(name, asked.token.as_ref(), &set)?));
        }
        if asked.is_project_named {
            return Ok(Self::Project(directory.to_owned()));
        }
        match (set("INTERLOCK_URL"), set("INTERLOCK_CONTEXT")) {
            (Some(url), _) => {
                Ok(Self::Server(ServerAddress::of(&url, asked.token.as_ref(), &set)?))
            }
            (None, Some(name)) => {
                Ok(Self::Server(ServerAddress::of_context(&name, asked.token.as_ref(), &set)?))
            }
            (None, None) if asked.token.is_some() => Err(Failure::usage(
                "`--token` is shown to a server, and none is named",
                "Name it with `--url https://HOST` or `--context NAME`.",
            )),
            (None, None) => Ok(Self::Project(directory.to_owned())),
        }
    }
}

impl ServerAddress {
    /// The server of a URL, with the token that was typed, else the one of the environment.
    fn of(
        url: &str,
        token: Option<&Token>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let token = match token {
            Some(token) => Some(token.clone()),
            None => token_of(environment)?,
        };
        let authorities = environment("INTERLOCK_CA").map(PathBuf::from);
        Ok(Self { url: base(url)?, token, authorities })
    }

    /// The server of a context. Its own token is shown to it alone; one of the environment where it has none.
    fn of_context(
        name: &str,
        token: Option<&Token>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let contexts = Contexts::read(environment)?;
        let context = contexts.find(name)?;
        let own = match (token, &context.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(file)) => {
                let text = fs::read_to_string(file)
                    .map_err(|error| Failure::file("read the token in", file, &error))?;
                let token = Token::parse(&text);
                Some(
                    token
                        .map_err(|why| Failure::failed(format!("{}: {why}", file.display()), ""))?,
                )
            }
            (None, None) => context.token.clone(),
        };
        let token = match own {
            Some(token) => Some(token),
            None => token_of(environment)?,
        };
        let authorities =
            context.authorities.clone().or_else(|| environment("INTERLOCK_CA").map(PathBuf::from));
        Ok(Self { url: base(&context.url)?, token, authorities })
    }

    /// The server's name and port, as messages say it.
    pub(crate) fn host(&self) -> &str {
        self.url.split_once("://").map_or(&*self.url, |(_, host)| host)
    }

    /// Whether others on the way can read the token.
    pub(crate) fn shows_its_token(&self) -> bool {
        let Some(authority) = self.url.strip_prefix("http://") else { return false };
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.split(['/', ':']).next().unwrap_or_default(),
        };
        let is_here = host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        self.token.is_some() && !is_here
    }
}

fn token_of(environment: &dyn Fn(&str) -> Option<String>) -> Result<Option<Token>, Failure> {
    let token = environment("INTERLOCK_TOKEN").map(|text| Token::parse(&text)).transpose();
    token.map_err(|why| Failure::usage(format!("`$INTERLOCK_TOKEN` cannot be used: {why}"), ""))
}

/// An address without what does not belong to it. A path in front of `/api/v1` may be a proxy's.
fn base(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str| {
        // A password in it must not be repeated.
        let shown = if url.contains('@') {
            "the address of the server".to_owned()
        } else {
            format!("`{url}`")
        };
        Failure::usage(
            format!("{shown} cannot be used: {why}"),
            "Write `https://HOST`, or `http://127.0.0.1:8420` on this machine.",
        )
    };
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or_else(|| wrong("it begins with https:// or http://"))?;
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() {
        return Err(wrong("it names no host"));
    }
    if authority.contains('@') {
        return Err(wrong("a name or a password has no place in it; a token goes into `--token`"));
    }
    if rest.contains(['?', '#']) || rest.contains(char::is_whitespace) {
        return Err(wrong("nothing comes behind its path"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(url: Option<&str>, context: Option<&str>) -> ServerArgs {
        ServerArgs {
            url: url.map(str::to_owned),
            context: context.map(str::to_owned),
            ..ServerArgs::default()
        }
    }

    fn chosen(asked: &ServerArgs, environment: &[(&str, &str)]) -> Result<Target, Failure> {
        let of = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Target::chosen(asked, Path::new("project"), &of)
    }

    fn url(target: Result<Target, Failure>) -> String {
        match target.unwrap() {
            Target::Server(server) => server.url,
            Target::Project(path) => path.display().to_string(),
        }
    }

    #[test]
    fn what_was_typed_comes_before_the_environment() {
        let of_environment = [("INTERLOCK_URL", "http://b")];
        assert_eq!(url(chosen(&asked(Some("https://a/"), None), &of_environment)), "https://a");
        assert_eq!(url(chosen(&asked(None, None), &of_environment)), "http://b");
        assert_eq!(url(chosen(&asked(None, None), &[("INTERLOCK_URL", "")])), "project");
        let named = ServerArgs { is_project_named: true, ..ServerArgs::default() };
        assert_eq!(url(chosen(&named, &of_environment)), "project", "`-C` was typed");
        let token = Token::parse("hush").ok();
        let without = ServerArgs { token, ..ServerArgs::default() };
        assert_eq!(chosen(&without, &[]).unwrap_err().exit_code(), 2, "a token without a server");
    }

    #[test]
    fn a_context_is_found_by_its_name_with_its_own_token() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/interlock");
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("contexts.yaml"),
            "contexts:\n  prod: {url: 'https://a', tokenFile: prod.token, ca: ca.pem}\n  dev: {url: 'http://127.0.0.1:1'}\n",
        )
        .unwrap();
        fs::write(folder.join("prod.token"), "of-prod\n").unwrap();
        let home = home.path().display().to_string();
        let around = [("HOME", &*home), ("INTERLOCK_TOKEN", "of-all")];
        let of = |name: &str| match chosen(&asked(None, Some(name)), &around).unwrap() {
            Target::Server(server) => server,
            Target::Project(_) => panic!("{name} is a server"),
        };
        let prod = of("prod");
        assert_eq!(prod.token.as_ref().map(Token::expose), Some("of-prod"));
        assert_eq!(prod.authorities, Some(folder.join("ca.pem")));
        assert_eq!(of("dev").token.as_ref().map(Token::expose), Some("of-all"));
        let unknown = chosen(&asked(None, Some("stage")), &around).unwrap_err();
        assert_eq!(unknown.exit_code(), 2);
        assert!(unknown.help.contains("dev, prod"), "{}", unknown.help);
    }

    #[test]
    fn an_address_is_a_scheme_a_host_and_perhaps_a_path() {
        for right in
            ["https://a", "http://127.0.0.1:8420/", "https://a/interlock", "http://[::1]:1"]
        {
            assert!(base(right).is_ok(), "{right}");
        }
        for wrong in
            ["a:8420", "ftp://a", "https://", "https://u:p@a", "https://a?b", "https://a b"]
        {
            let failure = base(wrong).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{wrong}");
            assert!(!failure.message.contains("u:p"), "{}", failure.message);
        }
    }

    #[test]
    fn a_token_is_shown_to_those_who_listen_on_a_plain_way_beyond_this_machine() {
        let shows = |url: &str, token: Option<&str>| {
            let token = token.map(|text| Token::parse(text).unwrap());
            ServerAddress { url: url.to_owned(), token, authorities: None }.shows_its_token()
        };
        for here in
            ["http://127.0.0.1:8420", "http://localhost:1", "http://[::1]:1", "http://127.1.2.3"]
        {
            assert!(!shows(here, Some("t")), "{here}");
        }
        assert!(!shows("https://interlock.example", Some("t")));
        assert!(!shows("http://interlock.example", None));
        for open in ["http://interlock.example", "http://10.0.0.1:8420", "http://localhost.example"]
        {
            assert!(shows(open, Some("t")), "{open}");
        }
    }

    #[test]
    fn a_token_is_in_no_debug_output() {
        let token = Token::parse(" il_secret\n").unwrap();
        assert_eq!((token.expose(), format!("{token:?}").contains("secret")), ("il_secret", false));
        for odd in ["", " \n", "two words", "naïve"] {
            assert!(Token::parse(odd).is_err(), "{odd:?}");
        }
    }
}
