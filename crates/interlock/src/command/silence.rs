//! `interlock silence`: which alerts are kept back, and what that would hide.

use std::io::Write as _;

use interlock_answers::{
    LIMIT_MAX,
    model::{
        plan::{AlertFilterAnswer, HiddenIncidentAnswer, SilencePlanAnswer, SilencePlanRequest},
        silence::{SilenceAnswer, SilencesQuery},
    },
    silence_of,
};
use interlock_config::{SystemZones, silence::Silence, zones};
use interlock_core::duration;
use interlock_store::{block_on, record::InboxRecord};
use jiff::Timestamp;
use serde_json::to_value;

use crate::{
    arguments::{Matching, SilenceAdd, SilenceCommand, SilenceList},
    clock,
    exit::{Failure, SUCCESS},
    inbox::fresh_key,
    ledger::Ledger,
    output::{Form, Output, instant},
    remote::{RemoteServer, query::path, route},
    source::{RequestSource, Source, change_there},
    target::Target,
};

pub(super) fn run(
    target: &Target,
    command: &SilenceCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        SilenceCommand::Add(add) => self::add(target, add, output),
        SilenceCommand::List(asked) => list(target, asked, output),
        SilenceCommand::Remove { id, by, sending } => {
            let record = InboxRecord::Silence { id: id.clone(), silence: None, by: by.name() };
            by.check(target)?;
            RequestSource::system(target, output)?.send(&record, *sending, output)
        }
    }
}

fn add(target: &Target, asked: &SilenceAdd, output: &mut Output) -> Result<u8, Failure> {
    let request = request(asked, clock::now())?;
    if let Target::Server(address) = target {
        asked.by.check(target)?;
        return add_there(&RemoteServer::new(address, output)?, &request, asked, output);
    }
    let silence = silence_of(&request, &asked.by.name(), clock::now())?;
    if asked.preview {
        return preview(target, &silence, Form::asked(asked.sending.json), output);
    }
    let record = InboxRecord::Silence {
        id: silence.id.clone(),
        silence: Some(silence.to_json()),
        by: silence.by.clone(),
    };
    RequestSource::system(target, output)?.send(&record, asked.sending, output)
}

/// What is asked for.
fn request(asked: &SilenceAdd, now: Timestamp) -> Result<SilencePlanRequest, Failure> {
    let zone = zones::resolve(&SystemZones::new(), &asked.tz);
    let zone = zone.map_err(|error| Failure::usage(error.message, error.help))?;
    let Matching { levels, types, pipelines, owners, labels } = asked.matching.clone();
    let labels = labels.into_iter().collect();
    Ok(SilencePlanRequest {
        id: Some(asked.id.clone().unwrap_or_else(new_name)),
        when: AlertFilterAnswer { levels, types, pipelines, owners, labels },
        from: asked.from.map(|from| from.at(now, &zone)),
        until: asked.until.map(|until| until.at(now, &zone)),
        length: asked.length.map(duration::format),
        weekly: asked.weekly.clone(),
        cron: asked.cron.clone(),
        timezone: Some(asked.tz.clone()),
        reason: asked.reason.clone(),
    })
}

/// Adds one at a server, or asks it what that would hide.
fn add_there(
    server: &RemoteServer,
    request: &SilencePlanRequest,
    asked: &SilenceAdd,
    output: &mut Output,
) -> Result<u8, Failure> {
    if asked.preview {
        let (plan, _) = server.plan(&path(&["silences", "plan"]), request)?;
        print_preview(&plan, Form::asked(asked.sending.json), output)?;
        return Ok(SUCCESS);
    }
    let change = route::post(path(&["silences"]), request);
    change_there(server, &change, asked.sending, output)
}

fn new_name() -> String {
    let key = fresh_key();
    format!("s-{}", key.get(key.len().saturating_sub(6)..).unwrap_or_default())
}

/// What a silence would keep back: open incidents, and those of the last week that would have been.
fn preview(
    target: &Target,
    silence: &Silence,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let Target::Project(directory) = target else {
        return Err(Failure::failed("internal error: no project", ""));
    };
    let ledger = Ledger::open_or_empty(directory)?;
    let plan = block_on(ledger.reader().silence_plan(silence))?;
    print_preview(&plan, form, output)?;
    ledger.conclude(None, output)
}

fn print_preview(plan: &SilencePlanAnswer, form: Form, output: &mut Output) -> Result<(), Failure> {
    match form {
        Form::Json => output.json(&to_value(plan).unwrap_or_default())?,
        Form::Text if plan.incidents.is_empty() => writeln!(
            output.out,
            "nothing that is open now, and nothing of the last 7 days, is of this kind; nothing was added"
        )?,
        Form::Text => {
            let rows: Vec<_> = plan.incidents.iter().map(shown).collect();
            output.table(["STATE", "PIPELINE", "SINCE", "KEY"], &rows)?;
            let when = if plan.is_in_force { "from now on" } else { "not now" };
            let count = plan.incidents.len();
            writeln!(
                output.err,
                "{count} of now and of the last 7 days are of this kind; {when}; nothing was added"
            )?;
        }
    }
    Ok(())
}

fn shown(incident: &HiddenIncidentAnswer) -> [String; 4] {
    let HiddenIncidentAnswer { pipeline, key, state, opened_at } = incident;
    [state.clone(), pipeline.clone(), instant(*opened_at), key.clone()]
}

fn list(target: &Target, asked: &SilenceList, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let states: &[&str] = if asked.all { &[] } else { &["silent", "waiting"] };
    let mut query = SilencesQuery {
        state: states.iter().map(|state| (*state).to_owned()).collect(),
        after: None,
        limit: Some(LIMIT_MAX),
    };
    let mut found = Vec::new();
    loop {
        let page = source.silences(&query)?;
        found.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    match Form::asked(asked.json) {
        Form::Json => output.json(&to_value(&found).unwrap_or_default())?,
        Form::Text if found.is_empty() => writeln!(output.out, "no silences")?,
        Form::Text => {
            let rows: Vec<_> = found.iter().map(listed).collect();
            output.table(["ID", "STATE", "MATCHES", "WHEN", "BY", "REASON"], &rows)?;
        }
    }
    Ok(SUCCESS)
}

fn listed(silence: &SilenceAnswer) -> [String; 6] {
    let until = silence.until.map(|until| format!("until {}", instant(until)));
    let windows = silence
        .windows
        .as_ref()
        .map(|windows| format!("{} for {} ({})", windows.cron, windows.length, windows.timezone));
    let when: Vec<String> = windows.into_iter().chain(until).collect();
    [
        silence.id.clone(),
        silence.state.clone(),
        matches(&silence.when),
        when.join(", "),
        silence.by.clone(),
        silence.reason.clone(),
    ]
}

fn matches(filter: &AlertFilterAnswer) -> String {
    let AlertFilterAnswer { levels, types, pipelines, owners, labels } = filter;
    let lists = [("pipeline", pipelines), ("type", types), ("level", levels), ("owner", owners)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let lists = lists.map(|(name, list)| format!("{name}={}", list.join(",")));
    let labels = labels.iter().map(|(key, value)| format!("label={key}={value}"));
    lists.chain(labels).collect::<Vec<_>>().join(" ")
}
