//! The API over real connections, against a daemon at work: what it answers is what the commands print.

mod anywhere;
mod contract;
mod doctor;
mod events;
mod facts;
mod incidents;
mod instances;
mod logs;
mod next_slots;
mod page;
mod pipelines;
mod plans;
mod readiness;
mod runs;
mod slots;
mod story;
mod stream;
mod writes;

use std::fs;

use serde_json::Value;

use crate::{Daemon, pings::curl, project::Project};

/// A free port of this machine.
const SERVER: &str = "server: {addr: '127.0.0.1:0'}\n";

/// A project that is served.
struct ApiSite {
    project: Project,
    daemon: Daemon,
    /// Where: `http://127.0.0.1:4711`.
    base: String,
}

/// What was answered.
#[derive(Debug)]
struct ApiAnswer {
    status: u16,
    body: Value,
}

impl ApiSite {
    /// Serves pipelines, by name and text.
    fn new(pipelines: &[(&str, &str)]) -> Self {
        Self::with(pipelines, SERVER)
    }

    /// The same with an `interlock.yaml`.
    fn with(pipelines: &[(&str, &str)], config: &str) -> Self {
        let project = Project::new(pipelines);
        fs::write(project.path().join("interlock.yaml"), config).unwrap();
        Self::serving(project)
    }

    /// Serves a project.
    fn serving(project: Project) -> Self {
        let daemon = Daemon::start(project.path());
        let base = project.until("it listens", || {
            let text = fs::read_to_string(project.folder().join("http.json")).ok()?;
            let told: Value = serde_json::from_str(&text).ok()?;
            Some(format!("http://{}", told["address"].as_str()?))
        });
        Self { project, daemon, base }
    }

    /// What a route answers.
    fn get(&self, path: &str) -> ApiAnswer {
        self.ask(&[], path)
    }

    /// The same with more arguments for `curl`.
    fn ask(&self, arguments: &[&str], path: &str) -> ApiAnswer {
        let url = format!("{}{path}", self.base);
        let asked = curl(&[&["-w", "\n%{http_code}", &url], arguments].concat());
        let (body, status) = asked.stdout.rsplit_once('\n').unwrap_or_default();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        ApiAnswer { status: status.parse().unwrap_or_default(), body }
    }

    /// Waits until so many pipelines are declared: it listens before.
    fn until_declared(&self, count: usize) {
        self.project.until("its pipelines are declared", || {
            let listed = self.get("/api/v1/pipelines").body;
            (listed["items"].as_array()?.len() == count).then_some(())
        });
    }

    /// What a command prints with `--json`.
    fn json_of(&self, arguments: &[&str]) -> Value {
        let printed = self.project.run(arguments);
        serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"))
    }
}

impl ApiAnswer {
    /// The body of a 200.
    #[track_caller]
    fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }
}
