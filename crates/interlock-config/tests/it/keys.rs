//! Every key acts or is refused: `keys.txt` has a row for each, and each row is tried (ADR 53).

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use interlock_config::{FileKind, Loaded, reference};

use crate::support::{files, fixtures, load, problems};

/// What the reference page says there is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: String,
    /// `trigger[http].url`: the sections, the type that brings it, its name; a type that is refused ends in `]`.
    path: String,
    other_spellings: Vec<String>,
    is_refused: bool,
    is_for_people: bool,
}

/// The keys of the reference page, each once.
fn keys() -> BTreeSet<Key> {
    let (mut file, mut section, mut variant) = (String::new(), String::new(), String::new());
    let mut found = BTreeSet::new();
    for line in reference().lines() {
        let quoted = |text: &str| text.split('`').nth(1).unwrap().to_owned();
        let dot = if section.is_empty() && variant.is_empty() { "" } else { "." };
        let place = |name: &str| format!("{section}{variant}{dot}{name}");
        if let Some(title) = line.strip_prefix("## ") {
            (file, section, variant) = (title.to_owned(), String::new(), String::new());
        } else if line.starts_with("### ") {
            (section, variant) = (quoted(line), String::new());
        } else if line.starts_with("With `type: ") {
            let types = quoted(line);
            let first = types.trim_start_matches("type: ").split(" | ").next().unwrap().to_owned();
            variant = format!("[{first}]");
        } else if line.starts_with("Refused (IL0211)") {
            let path = format!("{section}{variant}");
            let file = file.clone();
            let other_spellings = Vec::new();
            found.insert(Key {
                file,
                path,
                other_spellings,
                is_refused: true,
                is_for_people: false,
            });
        } else if line.starts_with("| `") && file != "Problems" {
            let cells: Vec<&str> = line.split(" | ").collect();
            let mut names = cells[0].trim_start_matches("| ").split(", ").map(quoted);
            found.insert(Key {
                file: file.clone(),
                path: place(&names.next().unwrap()),
                other_spellings: names.collect(),
                is_refused: cells[1].starts_with("refused"),
                is_for_people: line.contains("| For people. |"),
            });
        }
    }
    found
}

/// One row of the list.
#[derive(Debug)]
struct Row {
    file: String,
    path: String,
    without: String,
    with: String,
    read_by: String,
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(fixtures().join("keys.txt")).unwrap();
    let mut file = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            title.clone_into(&mut file);
        } else if !file.is_empty() && !line.is_empty() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 4, "not a row: {line}");
            let [path, without, with, read_by] = [cells[0], cells[1], cells[2], cells[3]];
            let lines = |cell: &str| {
                let lines: Vec<_> = cell.split(";;").map(str::trim).collect();
                lines.join("\n") + "\n"
            };
            rows.push(Row {
                file: file.clone(),
                path: path.to_owned(),
                without: lines(without),
                with: lines(with),
                read_by: read_by.to_owned(),
            });
        }
    }
    rows
}

impl Row {
    fn kind(&self) -> FileKind {
        match self.file.as_str() {
            "Pipeline files" => FileKind::Pipeline,
            "interlock.yaml" => FileKind::Config,
            "Archetype files" => FileKind::Archetype,
            _ => FileKind::Calendar,
        }
    }

    /// What a project with a file decodes to, as far as the kind of file is concerned.
    fn decoded(&self, text: &str) -> String {
        let named =
            text.lines().any(|line| line.starts_with("name:") || line.starts_with("pipeline:"));
        let name = if named || self.kind() != FileKind::Pipeline { "" } else { "name: pp\n" };
        let text = if text.trim().is_empty() && name.is_empty() { "{}\n" } else { text };
        let text = format!("{name}{text}");
        let wrong = problems(self.kind(), &text);
        let errors = wrong.iter().filter(|it| it.code.as_str() < "IL0900").map(|it| &it.message);
        let errors: Vec<_> = errors.collect();
        assert!(errors.is_empty(), "{}: {errors:?}\n{text}", self.path);
        let loaded = match self.kind() {
            FileKind::Pipeline => project(&text, "{}\n"),
            FileKind::Config => project("name: pp\n", &text),
            FileKind::Archetype => project_with("archetypes", &text),
            FileKind::Calendar => project_with("calendars", &text),
        };
        shown(&loaded)
    }

    /// The lines that bring the key, under `defaults` of interlock.yaml, instead of in the pipeline.
    fn decoded_by_default(&self) -> String {
        let own: BTreeSet<&str> = self.without.lines().collect();
        let moved = self.with.lines().filter(|line| !own.contains(line));
        let defaults: Vec<_> = moved.map(|line| format!("  {line}\n")).collect();
        let defaults = defaults.concat();
        let loaded =
            project(&format!("name: pp\n{}", self.without), &format!("defaults:\n{defaults}"));
        shown(&loaded)
    }
}

/// Everything of a project that Interlock goes by. Secrets are not in what is printed, so they are compared by themselves.
fn shown(loaded: &Loaded) -> String {
    let pipelines: Vec<_> = loaded.pipelines.iter().map(|found| &found.pipeline).collect();
    let archetypes = loaded.archetypes.values();
    let archetypes: Vec<_> =
        archetypes.map(|found| (&found.name, found.rule, &found.traits)).collect();
    let all = format!("{:?} {pipelines:?} {archetypes:?} {:?}", loaded.config, loaded.calendars);
    let secrets = format!("{:?}", secrets(loaded));
    // Where a temporary directory is says nothing.
    format!("{all} {secrets}")
}

/// The secrets that a project names, in the order of the file.
fn secrets(loaded: &Loaded) -> Vec<String> {
    use interlock_config::server::{Channel, StoreConfig};
    let config = &loaded.config;
    let mut found: Vec<String> = Vec::new();
    let mut add =
        |secret: &interlock_core::pipeline::Secret| found.push(secret.expose().to_owned());
    match &config.store {
        StoreConfig::Redis(redis) => redis.password.iter().for_each(&mut add),
        StoreConfig::Postgres(postgres) => add(&postgres.dsn),
        StoreConfig::Embedded { .. } => {}
    }
    config.archiver.iter().for_each(|archiver| add(&archiver.dsn));
    config.server.api_key.iter().for_each(&mut add);
    config.server.tokens.iter().for_each(|token| add(&token.token));
    config.beacons.iter().for_each(|beacon| add(&beacon.url));
    for alert in &config.alerts {
        match &alert.channel {
            Channel::Console | Channel::File { .. } => {}
            Channel::Webhook { url, secret, headers } => {
                add(url);
                secret.iter().chain(headers.values()).for_each(&mut add);
            }
            Channel::Slack(slack) => slack.url.iter().chain(&slack.token).for_each(&mut add),
            Channel::Email(email) => email.password.iter().for_each(&mut add),
            Channel::Pagerduty { routing_key, url } => {
                add(routing_key);
                url.iter().for_each(&mut add);
            }
            Channel::Http { url, headers, .. } => {
                add(url);
                headers.values().for_each(&mut add);
            }
        }
    }
    found
}

fn project(pipeline: &str, config: &str) -> Loaded {
    in_project(&[("interlock.yaml", config), ("pipelines/pp.yaml", pipeline)])
}

fn project_with(folder: &str, text: &str) -> Loaded {
    in_project(&[(&format!("{folder}/row.yaml"), text)])
}

/// A project with these files, beside the calendars and archetypes of the good examples.
fn in_project(own: &[(&str, &str)]) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["calendars", "archetypes", "pipelines", "evaluators", "a"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    for (kind, folder) in [("calendar", "calendars"), ("archetype", "archetypes")] {
        for (name, text) in files(&format!("good/{kind}")) {
            std::fs::write(dir.path().join(folder).join(format!("{name}.yaml")), text).unwrap();
        }
    }
    for (path, text) in own {
        std::fs::write(dir.path().join(path), text).unwrap();
    }
    std::fs::write(
        dir.path().join("pipelines/upstream.yaml"),
        "name: upstream\nschedule: '0 1 * * *'\n",
    )
    .unwrap();
    load(dir.path())
}

/// Whether a key needs no row of its own: a section has those of its keys, and a default that of the pipeline's key.
fn follows(key: &Key, rows: &[Row]) -> bool {
    let below = [".", "["].map(|mark| format!("{}{mark}", key.path));
    let is_of = |row: &Row, path: &str| row.file == "Pipeline files" && row.path == path;
    let has_keys = |row: &Row| {
        row.file == key.file && below.iter().any(|below| row.path.starts_with(below.as_str()))
    };
    let default = key.path.strip_prefix("defaults.").filter(|_| key.file == "interlock.yaml");
    let is_default = |path: &str| {
        let below = format!("{path}.");
        rows.iter().any(|row| {
            is_of(row, path) || (row.file == "Pipeline files" && row.path.starts_with(&below))
        })
    };
    rows.iter().any(has_keys) || default.is_some_and(is_default) || key.path == "defaults"
}

#[test]
fn every_key_has_a_row_and_every_row_a_key() {
    let (keys, rows) = (keys(), rows());
    assert!(keys.len() > 300, "the reference page has only {} keys", keys.len());
    let has_row = |key: &Key| rows.iter().any(|row| row.file == key.file && row.path == key.path);
    let without: Vec<_> = keys.iter().filter(|key| !has_row(key) && !follows(key, &rows)).collect();
    assert!(without.is_empty(), "say in tests/keys.txt what these do: {without:#?}");
    // The page shows a section once, where it comes first; `defaults` has its own.
    let is_key = |row: &Row| {
        let default = format!("defaults.{}", row.path);
        keys.iter().any(|key| (key.file == row.file && key.path == row.path) || key.path == default)
    };
    let unknown: Vec<_> = rows.iter().filter(|row| !is_key(row)).collect();
    assert!(unknown.is_empty(), "these are no keys any more: {unknown:#?}");
}

#[test]
fn every_key_that_is_accepted_changes_what_is_decoded() {
    for row in rows().iter().filter(|row| row.read_by != "refused") {
        let (without, with) = (row.decoded(&row.without), row.decoded(&row.with));
        let is_note = row.read_by == "note";
        assert_eq!(without == with, is_note, "{}: {}", row.path, row.with);
    }
}

#[test]
fn what_is_only_for_people_says_so() {
    for (row, key) in with_keys() {
        assert!(row.read_by != "note" || key.is_for_people, "{} is no note", row.path);
    }
}

#[test]
fn what_is_refused_says_what_to_write_instead() {
    let mut refused = 0;
    for (row, key) in with_keys() {
        assert_eq!(key.is_refused, row.read_by == "refused", "{}", row.path);
        if key.is_refused {
            let name = if row.kind() == FileKind::Pipeline { "name: pp\n" } else { "" };
            let found = problems(row.kind(), &format!("{name}{}", row.with));
            let of_it: Vec<_> = found.iter().filter(|it| it.code.as_str() == "IL0211").collect();
            assert_eq!(of_it.len(), 1, "{}: {found:?}", row.path);
            assert!(of_it[0].help.contains(['`', ':']) && of_it[0].span.end > 0, "{:?}", of_it[0]);
            refused += 1;
        }
    }
    assert!(refused >= 8, "only {refused} rows are refused");
    let found = problems(FileKind::Config, "provider: dynamodb\n");
    assert_eq!(found.iter().map(|it| it.code.as_str()).collect::<Vec<_>>(), ["IL0211"]);
}

/// Whether a file, or one below a folder, has words outside comments and tests.
fn is_in_code(path: &Path, words: &str) -> bool {
    if path.is_dir() {
        let mut entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        return entries.any(|path| is_in_code(&path, words));
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.any(|line| line.contains(words))
}

#[test]
fn what_is_decoded_is_read_by_the_code_that_the_row_names() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for row in rows().iter().filter(|row| !["refused", "note"].contains(&row.read_by.as_str())) {
        let (file, words) = row.read_by.split_once(": ").unwrap();
        if !is_in_code(&crates.join(file), words) {
            wrong.push(format!("{}: {}", row.path, row.read_by));
        }
    }
    assert!(wrong.is_empty(), "nothing reads these where the row says so:\n{}", wrong.join("\n"));
}

#[test]
fn every_other_spelling_means_the_same() {
    let mut tried = 0;
    for (row, key) in with_keys().into_iter().filter(|(row, _)| row.read_by != "refused") {
        let name = key.path.rsplit('.').next().unwrap();
        for other in &key.other_spellings {
            let at = row.with.rfind(&format!("{name}:")).unwrap();
            let spelled = format!("{}{other}{}", &row.with[..at], &row.with[at + name.len()..]);
            assert_eq!(row.decoded(&spelled), row.decoded(&row.with), "{spelled}");
            tried += 1;
        }
    }
    assert!(tried >= 15, "only {tried} other spellings");
}

#[test]
fn every_default_means_what_the_same_key_of_a_pipeline_means() {
    let keys = keys();
    let mut tried = 0;
    for row in rows().iter().filter(|row| row.file == "Pipeline files" && row.read_by != "refused")
    {
        let path = format!("defaults.{}", row.path);
        let is_default = |key: &Key| key.file == "interlock.yaml" && key.path == path;
        if keys.iter().any(is_default) {
            let own = row.decoded(&row.with);
            let (own, by_default) = (pipelines_in(&own), row.decoded_by_default());
            assert_eq!(pipelines_in(&by_default), own, "{path}");
            tried += 1;
        }
    }
    assert!(tried >= 40, "only {tried} defaults");
}

/// The part of a decoded project that is about the pipeline `pp`.
fn pipelines_in(shown: &str) -> &str {
    let from = shown.find("PipelineId(\"pp\")").or_else(|| shown.find("Pipeline {")).unwrap();
    let rest = &shown[from..];
    &rest[..rest.find("PipelineId(\"upstream\")").unwrap_or(rest.len())]
}

/// The rows with their keys.
fn with_keys() -> Vec<(Row, Key)> {
    let keys = keys();
    let of =
        |row: &Row| keys.iter().find(|key| key.file == row.file && key.path == row.path).cloned();
    rows().into_iter().filter_map(|row| of(&row).map(|key| (row, key))).collect()
}
