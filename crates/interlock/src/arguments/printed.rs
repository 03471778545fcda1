//! What messages name exists: every command, option and document in a string of any crate, tried on the command line itself.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};

use super::Arguments;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a folder with an ending.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|own| own == ending) {
            found.push(path);
        }
    }
}

/// The strings of a Rust file, as they are printed, and what its documentation says, which clap prints.
fn texts(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '/', 'r']) {
        let (from, before) = (&rest[at..], rest[..at].chars().next_back());
        let is_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let raw = from
            .strip_prefix('r')
            .map(|raw| raw.trim_start_matches('#'))
            .filter(|raw| !is_name && raw.starts_with('"'));
        rest = if from.starts_with("//") {
            let end = from.find('\n').unwrap_or(from.len());
            if let Some(said) = from[..end].strip_prefix("///") {
                found.push(said.to_owned());
            }
            &from[end..]
        } else if let Some(raw) = raw {
            let close = format!("\"{}", "#".repeat(from.len() - raw.len() - 1));
            let end = raw[1..].find(&close).unwrap();
            found.push(raw[1..=end].to_owned());
            &raw[1 + end + close.len()..]
        } else if let Some(quoted) = from.strip_prefix('"') {
            let (text, length) = string(quoted);
            found.push(text);
            &quoted[length..]
        } else if let Some(quoted) = from.strip_prefix('\'') {
            // A character; else a lifetime.
            let length = quoted.chars().next().map_or(0, char::len_utf8);
            if quoted.starts_with('\\') {
                &quoted[2 + quoted[2..].find('\'').unwrap() + 1..]
            } else if quoted[length..].starts_with('\'') {
                &quoted[length + 1..]
            } else {
                quoted
            }
        } else {
            &from[1..]
        };
    }
    found
}

/// A string without its quotes, and how long it is in the code.
fn string(code: &str) -> (String, usize) {
    let (mut text, mut characters) = (String::new(), code.char_indices().peekable());
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (text, at + 1),
            '\\' => match characters.next() {
                Some((_, '\n')) => {
                    while characters.next_if(|(_, c)| c.is_whitespace()).is_some() {}
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, c)) => text.push(c),
                None => {}
            },
            c => text.push(c),
        }
    }
    (text, code.len())
}

/// The part of a file that ships.
fn shipped(path: &Path) -> String {
    let is_test = path.ends_with("printed.rs") || path.ends_with("tests.rs");
    let code = fs::read_to_string(path).unwrap();
    let code = if is_test { "" } else { code.split("#[cfg(test)]\nmod tests {").next().unwrap() };
    code.to_owned()
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Everything that is printed, with where.
fn printed() -> Vec<(String, String)> {
    let (root, mut sources) = (workspace(), Vec::new());
    for package in fs::read_dir(root.join("crates")).unwrap() {
        let source = package.unwrap().path().join("src");
        files(&source, "rs", &mut sources);
    }
    let mut found = Vec::new();
    for path in sources {
        let place = path.strip_prefix(&root).unwrap().display().to_string();
        found.extend(texts(&shipped(&path)).into_iter().map(|text| (place.clone(), text)));
    }
    found
}

/// A mention as words of a command line: what is filled in, and what stands for something, is a word.
fn words(mention: &str) -> Vec<String> {
    let mut filled = String::new();
    let mut rest = mention;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        filled.push('x');
        rest = rest[at..].split_once('}').map_or("", |(_, rest)| rest);
    }
    filled.push_str(rest);
    // What stands in quotes is one word.
    let parts = filled.split(['"', '\'']).enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 0 { part } else { "x" });
    let filled = parts.collect::<String>();
    let words = filled.split_whitespace().filter(|word| !matches!(*word, "…" | "..." | "|" | "\\"));
    words.map(|word| word.trim_matches(['[', ']', '\'', '"']).to_owned()).collect()
}

/// Why a command line that a message names does not work, if so.
fn refusal(mention: &str) -> Option<String> {
    let words = words(mention);
    let error = Arguments::try_parse_from(words).err()?;
    // A command may be named without what it is about, or with a word for it.
    let is_named = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::ValueValidation,
        ErrorKind::InvalidValue,
        ErrorKind::NoEquals,
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let said = error.to_string();
    let said = || format!("{mention}: {}", said.lines().next().unwrap_or_default());
    (!is_named.contains(&error.kind())).then(said)
}

/// All options that there are, and all commands of the first rank.
fn model() -> (BTreeSet<String>, BTreeSet<String>) {
    fn options(command: &clap::Command, found: &mut BTreeSet<String>) {
        let own = command.get_arguments().filter_map(|argument| argument.get_long());
        found.extend(own.map(|long| format!("--{long}")));
        command.get_subcommands().for_each(|inner| options(inner, found));
    }
    let mut command = Arguments::command();
    command.build();
    let mut found = BTreeSet::new();
    options(&command, &mut found);
    (found, command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect())
}

#[test]
fn every_command_that_a_message_names_exists() {
    let (_, commands) = model();
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for (place, text) in printed() {
        for mention in quoted(&text) {
            let first = mention.split_whitespace().next().unwrap_or_default();
            let mention = match first {
                "interlock" if mention.contains(' ') => mention.to_owned(),
                // Without the program's name, as `run --detach`.
                command if commands.contains(command) && mention.contains(" --") => {
                    format!("interlock {mention}")
                }
                _ => continue,
            };
            tried += 1;
            wrong.extend(refusal(&mention).map(|why| format!("{place}: {why}")));
        }
    }
    assert!(tried > 60, "only {tried} commands are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_option_that_a_message_names_exists() {
    // What other programs take that our messages tell people to run.
    const OF_OTHERS: [&str; 8] = [
        "--scan",
        "--pattern",
        "--appendonly",
        "--repair",
        "--cluster",
        "--privileged",
        "--user",
        "--fsync",
    ];
    let (options, _) = model();
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for (place, text) in printed() {
        for mention in quoted(&text).filter(|mention| mention.starts_with("--")) {
            let option = mention.split([' ', '=', ',']).next().unwrap_or_default();
            tried += 1;
            if !options.contains(option) && !OF_OTHERS.contains(&option) {
                wrong.insert(format!("{place}: {mention}"));
            }
        }
    }
    assert!(tried > 10, "only {tried} options are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The files of the repository that a text names.
fn documents(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "/._-".contains(c)));
    let words = words.map(|word| word.trim_end_matches(['.', '/']));
    let ours = ["docs/", "examples/", "deploy/"];
    words
        .filter(|word| ours.iter().any(|start| word.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

/// Words that leave open who does what.
const VAGUE: [&str; 4] = ["somebody", "nobody", "whoever", "cannot be had"];

/// What nothing that ships is made of.
const OF_TESTS: [&str; 4] =
    ["interlock-sim", "interlock-store-conformance", "interlock-private-server", "interlock-wait"];

#[test]
fn nothing_that_is_printed_leaves_open_who_does_what() {
    let (root, mut sources) = (workspace(), Vec::new());
    for package in fs::read_dir(root.join("crates")).unwrap() {
        let package = package.unwrap();
        if !OF_TESTS.iter().any(|name| package.file_name() == *name) {
            files(&package.path().join("src"), "rs", &mut sources);
        }
    }
    let (mut vague, mut looked_at) = (BTreeSet::new(), 0);
    for path in sources {
        let place = path.strip_prefix(&root).unwrap().display().to_string();
        let code = shipped(&path);
        // Of comments only those that clap prints.
        let is_help = place.contains("src/arguments");
        let is_code = |line: &&str| is_help || !line.trim_start().starts_with("//");
        let code = code.lines().filter(is_code).collect::<Vec<_>>().join("\n");
        for text in texts(&code) {
            looked_at += 1;
            let is_vague = VAGUE.iter().any(|word| text.to_lowercase().contains(word));
            vague.extend(is_vague.then(|| format!("{place}: {text}")));
        }
    }
    assert!(looked_at > 3_000, "only {looked_at} strings were looked at");
    assert!(vague.is_empty(), "{vague:#?}");
}

#[test]
fn every_document_that_a_message_names_is_in_the_repository() {
    assert_eq!(
        documents("see `docs/json.md`, or examples/quickstart/."),
        ["docs/json.md", "examples/quickstart"]
    );
    let root = workspace();
    let mut wrong = BTreeSet::new();
    for (place, text) in printed() {
        let missing = documents(&text).into_iter().filter(|word| !root.join(word).exists());
        wrong.extend(missing.map(|word| format!("{place}: {word}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_command_in_the_guides_exists() {
    let root = workspace();
    let mut pages =
        vec![root.join("README.md"), root.join("docs/operating.md"), root.join("docs/json.md")];
    files(&root.join("docs/guide"), "md", &mut pages);
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let in_lines = text.lines().map(|line| line.trim().trim_start_matches("$ "));
        let in_lines = in_lines.filter(|line| line.starts_with("interlock "));
        for mention in in_lines.chain(text.lines().flat_map(quoted)) {
            let is_ours = mention.starts_with("interlock ") && !mention.contains(" is ");
            // What follows in the shell is not ours.
            let end = mention.find([';', '>', '#', '|', '&']).unwrap_or(mention.len());
            if is_ours {
                tried += 1;
                wrong.extend(
                    refusal(&mention[..end]).map(|why| format!("{}: {why}", page.display())),
                );
            }
        }
    }
    assert!(tried > 40, "only {tried} commands are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn strings_are_found_as_they_are_printed() {
    let code = "/// Says `a`.\nlet x = \"one \\\"two\\\" \\\n    three\"; // \"not this\"\nlet c = '\"';\nf::<'a>(r#\"raw \"four\"\"#);";
    assert_eq!(texts(code), [" Says `a`.", "one \"two\" three", "raw \"four\""]);
    assert!(refusal("interlock rum orders").is_some());
    assert!(refusal("interlock run orders --detached").is_some());
    assert!(refusal("interlock run {pipeline} --slot {}/{}").is_none());
}
