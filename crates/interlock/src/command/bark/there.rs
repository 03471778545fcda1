//! `interlock bark` at a server: which channels have the test is what its alerts on their way say.

use std::{collections::BTreeMap, io::Write as _, thread, time::Duration};

use interlock_answers::model::{
    incident::IncidentDetailAnswer, page::PageQuery, request::IncidentRequest,
};
use interlock_core::id::PipelineId;
use interlock_store::record::InboxRecord;

use super::{Heard, print};
use crate::{
    arguments::{Bark, Every},
    exit::Failure,
    output::Output,
    remote::{RemoteServer, query::path, route},
    source::{Source, applied},
    target::ServerAddress,
};

/// How often is looked who has it.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) fn run(
    address: &ServerAddress,
    asked: &Bark,
    output: &mut Output,
) -> Result<u8, Failure> {
    if let Some(Every::So(_) | Every::Off) = asked.every {
        return Err(Failure::usage(
            "a server takes no standing order for tests of the alerts",
            "Give it where the project is: `interlock -C DIR bark --every 1h`.",
        ));
    }
    let source = Source::at(address, output)?;
    let server = source.server()?;
    let pipeline = match &asked.pipeline {
        Some(name) => source.known_or_system(name)?,
        None => PipelineId::system(),
    };
    let bark = InboxRecord::Bark { id: String::new(), by: String::new() };
    let change = route::of(&pipeline, &bark)
        .ok_or_else(|| Failure::failed("internal error: a test has no route", ""))?;
    let answer = server.change(&change, asked.timeout)?;
    let incident = applied(&answer)
        .filter(|it| it.accepted)
        .and_then(|it| it.result.get("incident").and_then(|key| key.as_str()).map(str::to_owned));
    let Some(key) = incident else {
        return Err(Failure::failed(format!("{} did not take it in time", server.host()), ""));
    };
    let heard = heard(server, (&pipeline, &key), asked)?;
    let body = IncidentRequest { note: Some("the test is over".to_owned()) };
    let end = route::post(path(&["incidents", pipeline.as_str(), &key, "resolve"]), &body);
    server.change(&end, asked.timeout)?;
    let heard: Vec<_> = heard.into_values().collect();
    if heard.is_empty() && !asked.json {
        writeln!(
            output.out,
            "no alert of the test is left on its way: each channel that asks for misses of this pipeline has it, if any does"
        )?;
        return Ok(crate::exit::SUCCESS);
    }
    print(&heard, asked, output)
}

/// How far the test is on each channel that was seen to have it before it. What is gone was delivered.
fn heard(
    server: &RemoteServer,
    (pipeline, key): (&PipelineId, &str),
    asked: &Bark,
) -> Result<BTreeMap<String, Heard>, Failure> {
    let looks = asked.timeout.as_millis() / LOOK_EVERY.as_millis() as i128;
    let path = path(&["incidents", pipeline.as_str(), key]);
    let mut all: BTreeMap<String, Heard> = BTreeMap::new();
    for _ in 0..looks.max(1) {
        let detail: IncidentDetailAnswer = server.get(&path, &PageQuery::default())?;
        let is_routed = detail.deliveries.iter().all(|it| it.channel.is_some());
        for heard in all.values_mut() {
            heard.state = "delivered";
            heard.error = None;
        }
        for delivery in &detail.deliveries {
            let Some(channel) = delivery.channel.clone() else { continue };
            let state = match delivery.state.as_str() {
                "dead" => "dead",
                "held" => "held",
                _ => "waiting",
            };
            let error = delivery.reason.clone();
            all.insert(channel.clone(), Heard { channel, state, error });
        }
        if is_routed && all.values().all(|it| it.state != "waiting") {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(all)
}
