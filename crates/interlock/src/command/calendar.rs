//! `interlock calendar import`: an iCalendar file becomes a calendar of the project.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use interlock_config::ics::{self, Imported};
use interlock_core::text::counted;

use crate::{
    arguments::CalendarCommand,
    exit::{Failure, SUCCESS},
    output::Output,
    project,
};

pub(super) fn run(
    directory: &Path,
    command: &CalendarCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    let CalendarCommand::Import { file, name, force } = command;
    let name = calendar_name(file, name.as_deref())?;
    let bytes = fs::read(file).map_err(|error| Failure::file("read", file, &error))?;
    let text = String::from_utf8_lossy(&bytes);
    let imported = ics::import(&name, &text).map_err(|message| {
        Failure::failed(format!("{}: {message}", file.display()), "Export it again as .ics.")
    })?;
    for left_out in &imported.left_out {
        writeln!(output.err, "left out: {left_out}")?;
    }
    if imported.calendar.is_empty() {
        return Err(Failure::failed(
            format!("{} holds no day that a calendar can keep", file.display()),
            "Nothing was written.",
        ));
    }
    let target = target(directory, &name)?;
    if target.exists() && !force {
        return Err(Failure::failed(
            format!("{} already exists", target.display()),
            "Give another `--name`, or replace it with `--force`.",
        ));
    }
    fs::write(&target, to_yaml(&imported, file))
        .map_err(|error| Failure::file("write", &target, &error))?;
    writeln!(
        output.out,
        "wrote {} from {}; use it with `exclusions: {{calendar: {name}}}`",
        target.display(),
        counted(imported.events, "event"),
    )?;
    Ok(SUCCESS)
}

fn calendar_name(file: &Path, name: Option<&str>) -> Result<String, Failure> {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().to_lowercase().replace(' ', "-"));
    let name = name.map(str::to_owned).or(stem).unwrap_or_default();
    interlock_core::id::check_name("calendar", &name).map_err(|error| {
        Failure::usage(error.message, format!("{} Give one with `--name`.", error.help))
    })?;
    Ok(name)
}

/// Where the calendar goes: the project's first calendar directory.
fn target(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let loaded = project::load(directory)?;
    let folder = loaded.config.dirs.calendars.first().cloned();
    let folder = directory.join(folder.unwrap_or_else(|| "calendars".into()));
    fs::create_dir_all(&folder).map_err(|error| Failure::file("create", &folder, &error))?;
    Ok(folder.join(format!("{name}.yaml")))
}

fn to_yaml(imported: &Imported, file: &Path) -> String {
    let calendar = &imported.calendar;
    let source = file.file_name().map(|name| name.to_string_lossy().replace('\n', " "));
    let mut yaml = format!("# Imported from {}.\n", source.unwrap_or_default());
    let _infallible = writeln!(yaml, "name: {}", calendar.name);
    section(&mut yaml, "dates", calendar.dates.iter().map(ToString::to_string));
    let yearly = calendar.yearly.iter().map(|(month, day)| format!("\"{month:02}-{day:02}\""));
    section(&mut yaml, "yearly", yearly);
    let ranges =
        calendar.ranges.iter().map(|(first, last)| format!("{{from: {first}, to: {last}}}"));
    section(&mut yaml, "ranges", ranges);
    yaml
}

fn section(yaml: &mut String, key: &str, items: impl Iterator<Item = String>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    let _infallible = writeln!(yaml, "{key}:");
    for item in items {
        let _infallible = writeln!(yaml, "  - {item}");
    }
}
