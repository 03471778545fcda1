//! `~/.config/interlock/contexts.yaml`: servers by name.
//!
//! ```yaml
//! contexts:
//!   prod: {url: "https://interlock.example", tokenFile: prod.token, ca: ca.pem}
//! ```
//!
//! People write the file; `interlock context list` shows what is in it. Paths in it are relative to it.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use interlock_config::parse_data;
use serde_json::{Map, Value};

use super::Token;
use crate::exit::Failure;

/// What stands in a context.
const KEYS: [&str; 4] = ["url", "token", "tokenFile", "ca"];
const EXAMPLE: &str =
    "Write `contexts: {prod: {url: \"https://interlock.example\", tokenFile: prod.token}}`.";

/// The contexts of this user.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// Where they are written.
    pub(crate) file: PathBuf,
    /// By name.
    pub(crate) all: BTreeMap<String, Context>,
    /// Whether others may read a token that stands in the file.
    pub(crate) is_exposed: bool,
}

/// A server with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) url: String,
    /// The token itself.
    pub(crate) token: Option<Token>,
    /// A file that holds it, which comes first.
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the authorities that are believed.
    pub(crate) authorities: Option<PathBuf>,
}

impl Contexts {
    /// Reads them; none where there is no file.
    pub(crate) fn read(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let file = place(environment).ok_or_else(|| {
            Failure::failed(
                "it is not known where the contexts are: neither `$XDG_CONFIG_HOME` nor `$HOME` is set",
                "Name the server itself with `--url`.",
            )
        })?;
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::file("read", &file, &error)),
        };
        let all = parse(&file, &text)?;
        let holds_token = all.values().any(|context| context.token.is_some());
        let is_exposed = holds_token && is_for_others(&file);
        Ok(Self { file, all, is_exposed })
    }

    /// The one with a name.
    pub(crate) fn find(&self, name: &str) -> Result<&Context, Failure> {
        self.all.get(name).ok_or_else(|| {
            let file = self.file.display();
            let help = if self.all.is_empty() {
                format!("There is none in {file}. {EXAMPLE}")
            } else {
                let names: Vec<_> = self.all.keys().map(String::as_str).collect();
                format!("{file} has {}.", names.join(", "))
            };
            Failure::usage(format!("there is no context `{name}`"), help)
        })
    }
}

/// Where the file is.
fn place(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("interlock/contexts.yaml"))
}

fn is_for_others(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

fn parse(file: &Path, text: &str) -> Result<BTreeMap<String, Context>, Failure> {
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let wrong = |why: String| Failure::failed(format!("{}: {why}", file.display()), EXAMPLE);
    let (data, problems) = parse_data(file, text);
    // What is wrong is not shown with its line: a token may stand there.
    if let Some(problem) = problems.first() {
        return Err(wrong(problem.message.clone()));
    }
    let Some(Value::Object(mut data)) = data else {
        return Err(wrong("it is no map".to_owned()));
    };
    let contexts = match data.remove("contexts") {
        Some(Value::Object(contexts)) => contexts,
        Some(_) => return Err(wrong("`contexts` is no map".to_owned())),
        None => Map::new(),
    };
    if let Some(unknown) = data.keys().next() {
        return Err(wrong(format!("`{unknown}` is not known there")));
    }
    let folder = file.parent().unwrap_or(Path::new("."));
    let read = |(name, value): (String, Value)| {
        let context = context(folder, value);
        context
            .map(|it| (name.clone(), it))
            .map_err(|why| wrong(format!("context `{name}`: {why}")))
    };
    contexts.into_iter().map(read).collect()
}

fn context(folder: &Path, value: Value) -> Result<Context, String> {
    let Value::Object(fields) = value else { return Err("it is no map".to_owned()) };
    if let Some(unknown) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("`{unknown}` is not known there; there are {}", KEYS.join(", ")));
    }
    let text = |key: &str| match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` is no text")),
    };
    let url = text("url")?.ok_or("`url` is missing")?;
    let token = text("token")?.map(|text| Token::parse(&text)).transpose()?;
    let path = |key: &str| Ok::<_, String>(text(key)?.map(|path| folder.join(path)));
    Ok(Context { url, token, token_file: path("tokenFile")?, authorities: path("ca")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_in_the_folder_for_settings() {
        let of = |pairs: &[(&str, &str)]| {
            place(&|name| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.config/interlock/contexts.yaml".into()));
        let both = [("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")];
        assert_eq!(of(&both), Some("/x/interlock/contexts.yaml".into()));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_token() {
        let why = |text: &str| parse(Path::new("contexts.yaml"), text).unwrap_err().message;
        assert!(why("contexts: {a: {urk: x}}").contains("`urk` is not known"));
        assert!(why("contexts: {a: {token: t}}").contains("context `a`: `url` is missing"));
        assert!(why("contexts: [a]").contains("`contexts` is no map"));
        assert!(why("current: a").contains("`current` is not known"));
        let cut = why("contexts: {a: {url: x, token: hush");
        assert!(!cut.contains("hush"), "{cut}");
        assert!(parse(Path::new("contexts.yaml"), "\n").unwrap().is_empty());
    }

    #[test]
    fn a_file_that_others_may_read_is_noticed_if_it_holds_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("interlock");
        fs::create_dir(&place).unwrap();
        let file = place.join("contexts.yaml");
        let of =
            |name: &str| (name == "XDG_CONFIG_HOME").then(|| folder.path().display().to_string());
        let exposed = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            Contexts::read(&of).unwrap().is_exposed
        };
        let with = "contexts: {a: {url: 'https://a', token: t}}";
        assert!(exposed(with, 0o644));
        assert!(!exposed(with, 0o600));
        assert!(!exposed("contexts: {a: {url: 'https://a'}}", 0o644));
    }
}
