//! Rules about what is shipped to be run: the image, the compose file, the units. No Docker is needed.
//!
//! They know the mistakes that would be found only by somebody who follows the instructions: a tag that moves, a mount of a
//! folder that is not there, a service that nobody declared, a unit that systemd does not understand.

use std::{collections::BTreeSet, fs, process::Command};

use super::{File, Problem};

const IMAGE: &str = "Dockerfile";
const COMPOSE: &str = "deploy/compose/compose.yaml";
const UNITS: &str = "deploy/systemd/";

/// The image: what hadolint would say that matters here.
pub(super) fn check_image(files: &[File]) -> Vec<Problem> {
    let Some(image) = files.iter().find(|file| file.path == IMAGE) else { return vec![] };
    let (mut problems, mut stages, mut user) = (Vec::new(), BTreeSet::new(), "root".to_owned());
    for (number, instruction) in instructions(image) {
        let mut words = instruction.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let first = words.next().unwrap_or_default();
        let cure = match verb {
            "FROM" => {
                "root".clone_into(&mut user);
                let is_fixed = stages.contains(first) || is_pinned(first);
                stages.extend(instruction.split(" AS ").nth(1).map(str::to_owned));
                (!is_fixed).then_some("name a tag that does not move")
            }
            "RUN" if instruction.contains("apt-get install") => {
                let is_small = ["--no-install-recommends", "--yes", "rm -rf /var/lib/apt/lists"]
                    .iter()
                    .all(|part| instruction.contains(part));
                let cure = "install with --yes --no-install-recommends, and remove the lists in the same step";
                (!is_small).then_some(cure)
            }
            "ADD" => Some("use COPY: it does nothing else"),
            "COPY" => {
                let stage = first.strip_prefix("--from=");
                let is_known = stage.is_none_or(|stage| stages.contains(stage));
                (!is_known).then_some("no stage has this name")
            }
            "USER" => {
                first.clone_into(&mut user);
                None
            }
            "ENTRYPOINT" | "CMD" => {
                (!first.starts_with('[')).then_some("write a list: a shell would get the signals")
            }
            _ => None,
        };
        problems.extend(cure.map(|cure| image.problem(number, cure)));
    }
    if user == "root" {
        let cure = "the last stage runs as root: name a USER";
        problems.push(image.problem(image.lines().count(), cure));
    }
    problems
}

/// Whole instructions with the line at which each begins.
fn instructions(image: &File) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in image.lines().filter(|(_, line)| !line.trim_start().starts_with('#')) {
        let (text, more) = match line.trim_end().strip_suffix('\\') {
            Some(text) => (text, true),
            None => (line, false),
        };
        match found.last_mut() {
            Some((_, last)) if goes_on => last.push_str(text),
            _ if text.trim().is_empty() => {}
            _ => found.push((number, text.to_owned())),
        }
        goes_on = more;
    }
    found
}

/// Whether an image has a tag that means the same tomorrow.
fn is_pinned(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_some_and(|(_, tag)| !tag.is_empty() && tag != "latest")
}

/// A line of a plain YAML file: where it stands in the tree, and what it says.
struct Entry<'a> {
    line: usize,
    path: Vec<&'a str>,
    value: &'a str,
}

/// The entries of a file of nested maps and lists, as this repository writes them.
fn entries(file: &File) -> Vec<Entry<'_>> {
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut found = Vec::new();
    for (line, text) in file.lines() {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let depth = text.len() - text.trim_start().len();
        above.retain(|(other, _)| *other < depth);
        let path = || above.iter().map(|(_, key)| *key).collect::<Vec<_>>();
        if let Some(value) = trimmed.strip_prefix("- ") {
            found.push(Entry { line, path: path(), value });
            continue;
        }
        let (key, value) = trimmed.split_once(':').unwrap_or((trimmed, ""));
        above.push((depth, key));
        found.push(Entry { line, path: path_with(&above), value: value.trim() });
    }
    found
}

fn path_with<'a>(above: &[(usize, &'a str)]) -> Vec<&'a str> {
    above.iter().map(|(_, key)| *key).collect()
}

/// What the Compose specification has for a service, in its words; those of other machinery (`develop`, `deploy` and the
/// like) are left out on purpose, because nothing here uses them.
const SERVICE: &[&str] = &[
    "build",
    "cap_add",
    "cap_drop",
    "command",
    "configs",
    "container_name",
    "cpus",
    "depends_on",
    "devices",
    "dns",
    "entrypoint",
    "env_file",
    "environment",
    "expose",
    "extra_hosts",
    "group_add",
    "healthcheck",
    "hostname",
    "image",
    "init",
    "labels",
    "logging",
    "mem_limit",
    "network_mode",
    "networks",
    "pid",
    "platform",
    "ports",
    "privileged",
    "profiles",
    "pull_policy",
    "read_only",
    "restart",
    "secrets",
    "security_opt",
    "shm_size",
    "stdin_open",
    "stop_grace_period",
    "stop_signal",
    "sysctls",
    "tmpfs",
    "tty",
    "ulimits",
    "user",
    "volumes",
    "working_dir",
];
const BUILD: &[&str] = &[
    "args",
    "cache_from",
    "context",
    "dockerfile",
    "labels",
    "network",
    "pull",
    "secrets",
    "tags",
    "target",
];
const HEALTHCHECK: &[&str] =
    &["disable", "interval", "retries", "start_interval", "start_period", "test", "timeout"];
const RESTART: &[&str] = &["no", "always", "on-failure", "unless-stopped"];
const CONDITION: &[&str] =
    &["service_started", "service_healthy", "service_completed_successfully"];

/// What the specification does not know: keys of a service and of its parts, and words that are chosen from a list.
fn unknown(path: &[&str], value: &str) -> Option<String> {
    let among = |known: &[&str], word: &str| {
        (!known.contains(&word)).then(|| format!("Compose knows no `{word}` here"))
    };
    match path {
        ["services", _, "restart"] => among(RESTART, value.trim_matches('"')),
        ["services", _, "stop_grace_period"]
        | ["services", _, "healthcheck", "interval" | "timeout" | "start_period"] => {
            let (count, unit) = value.split_at(value.trim_end_matches(char::is_alphabetic).len());
            let is_time = count.parse::<u32>().is_ok() && ["ms", "s", "m", "h"].contains(&unit);
            (!is_time).then(|| format!("`{value}` is no duration"))
        }
        ["services", _, "healthcheck", "retries"] => {
            value.parse::<u32>().is_err().then(|| format!("`{value}` is no number"))
        }
        ["services", _, key] => among(SERVICE, key),
        ["services", _, "build", key] => among(BUILD, key),
        ["services", _, "healthcheck", key] => among(HEALTHCHECK, key),
        ["services", _, "depends_on", _] => {
            let said = value.trim_start_matches('{').trim_end_matches('}');
            let (key, word) = said.split_once(':').unwrap_or((said, ""));
            among(&["condition"], key.trim()).or_else(|| among(CONDITION, word.trim()))
        }
        _ => None,
    }
}

/// The compose file: what the specification knows, and images, mounts, volumes and services that are there.
pub(super) fn check_compose(files: &[File]) -> Vec<Problem> {
    let Some(compose) = files.iter().find(|file| file.path == COMPOSE) else { return vec![] };
    let entries = entries(compose);
    let names = |section: &str| -> BTreeSet<&str> {
        let of = entries.iter().filter(|entry| entry.path.len() == 2 && entry.path[0] == section);
        of.map(|entry| entry.path[1]).collect()
    };
    let (services, volumes) = (names("services"), names("volumes"));
    let mut problems = Vec::new();
    for service in &services {
        let has = |key: &str| {
            let wanted = ["services", *service, key];
            entries.iter().any(|entry| entry.path.starts_with(&wanted))
        };
        if !has("image") && !has("build") {
            problems.push(compose.problem(1, format!("`{service}` has neither image nor build")));
        }
    }
    for Entry { line, path, value } in &entries {
        let key = path.iter().skip(2).copied().collect::<Vec<_>>().join(".");
        let cure = match (path.first().copied().unwrap_or_default(), key.as_str()) {
            ("services", "image") => {
                (!is_pinned(value)).then(|| "name a tag that does not move".to_owned())
            }
            ("services", "build.context") => {
                let is_there = *value == "../.." && files.iter().any(|file| file.path == IMAGE);
                (!is_there).then(|| format!("there is no {IMAGE} in `{value}`"))
            }
            ("services", "volumes") if !value.is_empty() => mount_problem(value, &volumes, files),
            ("services", depends) if depends.starts_with("depends_on.") => {
                let name = depends.trim_start_matches("depends_on.");
                (!services.contains(name)).then(|| format!("there is no service `{name}`"))
            }
            ("services" | "volumes", _) => None,
            (other, _) => Some(format!("`{other}` is nothing that this file has")),
        };
        let cure = cure.or_else(|| unknown(path, value));
        problems.extend(cure.map(|cure| compose.problem(*line, cure)));
    }
    problems
}

fn mount_problem(mount: &str, volumes: &BTreeSet<&str>, files: &[File]) -> Option<String> {
    let source = mount.split(':').next().unwrap_or_default();
    let is_there = match source.strip_prefix("./") {
        Some(path) => {
            let path = format!("deploy/compose/{path}");
            let inside = format!("{path}/");
            files.iter().any(|file| file.path == path || file.path.starts_with(&inside))
        }
        None => volumes.contains(source),
    };
    (!is_there).then(|| format!("`{source}` is mounted and not there"))
}

/// The units, as systemd reads them, where it is installed; and the one line that jobs live by.
pub(super) fn check_units(files: &[File]) -> Vec<Problem> {
    let units = files.iter().filter(|file| file.path.starts_with(UNITS));
    let mut problems = Vec::new();
    for unit in units {
        if !unit.lines().any(|(_, line)| line.trim() == "KillMode=process") {
            problems.push(unit.problem(1, "without `KillMode=process` a restart ends every job"));
        }
        problems.extend(verified(unit).unwrap_or_default());
    }
    problems
}

/// What `systemd-analyze verify` says, with a program in place of ours that every machine has.
fn verified(unit: &File) -> std::io::Result<Vec<Problem>> {
    let folder = std::env::temp_dir().join(format!("interlock-units-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let path = folder.join(unit.path.trim_start_matches(UNITS));
    fs::write(&path, unit.text.replace("/usr/local/bin/interlock", "/bin/true"))?;
    let said = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    fs::remove_dir_all(&folder)?;
    let said = String::from_utf8_lossy(&said?.stderr).into_owned();
    let name = path.display().to_string();
    // It speaks about the machine's own units too.
    let ours = said.lines().filter(|line| line.starts_with(&name));
    let problem = |line: &str| {
        let rest = line.trim_start_matches(&name).trim_start_matches(':');
        let number = rest.split(':').next().and_then(|number| number.parse().ok()).unwrap_or(1);
        unit.problem(number, format!("systemd does not understand it: {rest}"))
    };
    Ok(ours.map(problem).collect())
}

#[cfg(test)]
mod tests {
    use interlock_wait::{BOUND, CommandWithin as _};

    use super::*;
    use crate::tidy::tree;

    const GOOD: &str = "FROM rust:1.95 AS build\nFROM debian:12\nRUN apt-get update \\\n && apt-get install --yes \
        --no-install-recommends jq \\\n && rm -rf /var/lib/apt/lists/*\nCOPY --from=build /a /b\nUSER me\nCMD [\"a\"]\n";

    #[test]
    fn image_is_checked() {
        assert_eq!(check_image(&tree(&[("Dockerfile", GOOD)])), []);
        for (good, bad, line) in [
            ("debian:12", "debian", 2),
            ("debian:12", "debian:latest", 2),
            ("--no-install-recommends ", "", 3),
            ("--from=build", "--from=built", 6),
            ("COPY", "ADD", 6),
            ("USER me\n", "", 6),
            ("[\"a\"]", "a", 8),
        ] {
            let problems = check_image(&tree(&[("Dockerfile", &GOOD.replace(good, bad))]));
            let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
            assert_eq!(
                lines,
                [if bad.is_empty() && good.starts_with("USER") { 7 } else { line }],
                "{bad}"
            );
        }
    }

    #[test]
    fn compose_is_checked() {
        let good = "services:\n  a:\n    image: x:1\n    depends_on:\n      b: {condition: service_healthy}\n    volumes:\n      \
            - ./p:/p:ro\n      - v:/v\n  b:\n    build:\n      context: ../..\nvolumes:\n  v:\n";
        let check = |text: &str| {
            let files = [
                (COMPOSE, text),
                ("Dockerfile", "FROM x:1\nUSER me\n"),
                ("deploy/compose/p/x", ""),
            ];
            check_compose(&tree(&files)).iter().map(|problem| problem.line).collect::<Vec<_>>()
        };
        assert_eq!(check(good), Vec::<usize>::new());
        for (right, wrong, line) in [
            ("x:1", "x", 3),
            ("      b: {", "      c: {", 5),
            ("./p:", "./q:", 7),
            ("- v:", "- w:", 8),
            ("../..", "..", 11),
            ("volumes:\n  v:", "volume:\n  v:", 12),
            ("    image: x:1\n", "", 1),
            ("    image: x:1", "    image: x:1\n    enviroment: {}", 4),
            ("service_healthy", "service_health", 5),
            ("    build:\n", "    build:\n      contxt: x\n", 11),
            ("  b:\n    build", "  b:\n    restart: allways\n    build", 10),
            ("  b:\n    build", "  b:\n    healthcheck:\n      interval: 2 seconds\n    build", 11),
            ("  b:\n    build", "  b:\n    healthcheck:\n      intervall: 2s\n    build", 11),
            ("  b:\n    build", "  b:\n    healthcheck:\n      retries: many\n    build", 11),
        ] {
            assert!(check(&good.replacen(right, wrong, 1)).contains(&line), "{wrong}");
        }
    }

    #[test]
    fn unit_that_would_end_jobs_is_reported() {
        let unit = "[Service]\nExecStart=/usr/local/bin/interlock serve\nKillMode=process\n";
        assert_eq!(check_units(&tree(&[("deploy/systemd/a.service", unit)])), []);
        let ends = unit.replace("KillMode=process\n", "");
        assert_eq!(check_units(&tree(&[("deploy/systemd/a.service", &ends)])).len(), 1);
        if Command::new("systemd-analyze").arg("--version").output_within(BOUND).is_ok() {
            let strange = format!("{unit}Restart=perhaps\n");
            let problems = check_units(&tree(&[("deploy/systemd/a.service", &strange)]));
            assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [4]);
        }
    }
}
