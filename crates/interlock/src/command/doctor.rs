//! `interlock doctor`: whether everything around the pipelines is as it should be; with `--live` also whether `serve` does what it
//! must.

use std::{io::Write as _, path::Path};

use interlock_answers::{
    ProcessHealth,
    model::{
        doctor::{DoctorAnswer, DoctorFinding, FindingCode, FindingLevel},
        page::PageQuery,
    },
};
use jiff::SignedDuration;
use serde_json::{Value, to_value};

use crate::{
    clock,
    doctor::{host, ledger},
    exit::{Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::{Form, Output},
    place::Place,
    project,
    remote::{RemoteServer, query::path},
    serve::http::{self, InterfaceAddress},
    target::Target,
};

/// How long the ledger is looked through at most.
const SCAN_IN: SignedDuration = SignedDuration::from_secs(10);

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// At what stands around the pipelines.
    Around,
    /// Also at what runs.
    Live,
}

pub(super) fn run(
    target: &Target,
    depth: Depth,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let answer = match target {
        Target::Project(directory) => around(directory, depth)?,
        // It looks at its own machine, files and loops, whatever the depth.
        Target::Server(address) => {
            let server = RemoteServer::new(address, output)?;
            server.get(&path(&["doctor"]), &PageQuery::default())?
        }
    };
    match form {
        Form::Json => output.json(&to_value(&answer).unwrap_or_default())?,
        Form::Text => {
            for finding in &answer.findings {
                print(finding, output)?;
            }
        }
    }
    Ok(if answer.is_well() { SUCCESS } else { PROBLEMS })
}

/// What is found on this machine.
fn around(directory: &Path, depth: Depth) -> Result<DoctorAnswer, Failure> {
    let place = Place::of(directory)?;
    let loaded = project::load(directory)?;
    let mut findings = host::findings(directory, &place, &loaded);
    if depth == Depth::Live {
        findings.extend(live(directory, &place));
    }
    Ok(DoctorAnswer::new(clock::now(), findings))
}

/// A line for what was found, and one for what to do.
fn print(finding: &DoctorFinding, output: &mut Output) -> Result<(), Failure> {
    let DoctorFinding { level, code, message, hint, instance: _ } = finding;
    writeln!(output.out, "{:7} {:8} {message}", code.as_str(), level.as_str())?;
    if let Some(hint) = hint.as_ref().filter(|_| *level != FindingLevel::Ok) {
        writeln!(output.out, "{:16} {hint}", "")?;
    }
    Ok(())
}

/// What the running `serve` does, as far as it can be seen from outside.
fn live(directory: &Path, place: &Place) -> Vec<DoctorFinding> {
    if !place.is_served() {
        return vec![DoctorFinding::problem(
            FindingCode::Live,
            "no `interlock serve` is running here",
            "Start it; without `--live` only what stands around it is looked at.",
        )];
    }
    let ledger = match Ledger::open(directory) {
        Ok(ledger) => ledger,
        Err(failure) => return vec![host::failed(FindingCode::Live, failure)],
    };
    let mut findings = match health(&place.folder) {
        Ok(health) => health.findings().to_vec(),
        Err(unheard) => vec![*unheard],
    };
    let recorded = ledger::findings(ledger.store(), SCAN_IN).into_iter();
    // The command has looked at the files themselves.
    findings.extend(recorded.filter(|finding| finding.code != FindingCode::Files));
    findings
}

/// What `/healthz` says of loops, complaints and beacons.
fn health(folder: &Path) -> Result<ProcessHealth, Box<DoctorFinding>> {
    let unheard = |message: String, hint: &str| {
        Box::new(DoctorFinding::problem(FindingCode::Loops, message, hint))
    };
    let Some(address) = InterfaceAddress::of(folder) else {
        let message = "it has no HTTP interface, so it cannot be asked".to_owned();
        return Err(unheard(message, "Give it the role `api`."));
    };
    let body = match http::health(&address) {
        Ok((_, body)) => body,
        Err(error) => {
            let message = format!("{address} does not answer: {error}");
            return Err(unheard(message, "End the process and start it again."));
        }
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let loops = list(&body["loops"]);
    let named = |late: bool| {
        let some = loops.iter().filter(|one| one["late"] == late);
        some.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    let complaints = list(&body["self"]["complaints"]).into_iter();
    let beacons = list(&body["self"]["beacons"]);
    Ok(ProcessHealth {
        loops: named(false),
        late_loops: named(true),
        complaints: complaints.filter_map(|said| said.as_str().map(str::to_owned)).collect(),
        beacons: beacons.len(),
        failing_beacons: beacons.iter().filter(|beacon| beacon["failing"] == true).count(),
    })
}
