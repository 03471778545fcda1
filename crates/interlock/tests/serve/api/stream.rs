//! What happens, as it happens.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _};

use super::*;

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

/// A `curl` that listens.
struct Listener {
    curl: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

/// An event as it came.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    id: u64,
    kind: String,
    data: Value,
}

impl Listener {
    fn new(site: &ApiSite, query: &str, arguments: &[&str]) -> Self {
        let url = format!("{}/api/v1/stream{query}", site.base);
        // It ends by itself, whatever happens to the test.
        let mut curl = Command::new("curl")
            .args(["-sSN", "-m", "60", &url])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Bounded: curl ends by itself.
        let lines = BufReader::new(curl.stdout.take().unwrap()).lines();
        Self { curl, lines }
    }

    /// The next event; none at the end.
    fn next(&mut self) -> Option<Told> {
        let (mut id, mut kind) = (0, String::new());
        // Bounded: `curl` ends after a minute.
        while let Some(Ok(line)) = self.lines.next() {
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.parse().unwrap();
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                return Some(Told { id, kind, data: serde_json::from_str(text).unwrap() });
            }
        }
        None
    }

    /// Everything up to an event of a kind.
    #[track_caller]
    fn until(&mut self, kind: &str) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some(event) = self.next() {
            let is_it = event.kind == kind;
            told.push(event);
            if is_it {
                return told;
            }
        }
        panic!("the stream ended before {kind}: {told:?}");
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _gone = self.curl.kill();
        let _gone = self.curl.wait_within("curl", BOUND);
    }
}

#[test]
fn a_stream_has_each_event_once_in_order_and_goes_on_behind_the_last_that_came() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    let mut first = Listener::new(&site, "?after=0", &[]);
    assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    let told = first.until("JOB_COMPLETED");
    let last = told.last().unwrap().id;
    // The rest comes by the number of the last, given either way, and by filters.
    assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    let header = format!("Last-Event-ID: {last}");
    let more = Listener::new(&site, "?after=0", &["-H", &header]).until("JOB_COMPLETED");
    let printed = site.events();
    let streamed: Vec<&Value> = told.iter().chain(&more).map(|event| &event.data).collect();
    assert_eq!(streamed, printed.iter().take(streamed.len()).collect::<Vec<_>>(), "as printed");
    for event in told.iter().chain(&more) {
        assert_eq!(
            (event.data["number"].as_u64(), event.data["kind"].as_str()),
            (Some(event.id), Some(&*event.kind))
        );
    }
    let mut chosen =
        Listener::new(&site, "?after=0&kind=JOB_COMPLETED&kind=JOB_FAILED&pipeline=by-hand", &[]);
    assert_eq!(
        [chosen.next(), chosen.next()].map(|event| event.unwrap().kind),
        ["JOB_COMPLETED"; 2]
    );

    // The end of the process is the end of the stream, and the next process goes on where it was.
    let mut open = Listener::new(&site, "", &[]);
    site.project.until("it listens", || {
        let metrics = curl(&[&format!("{}/metrics", site.base)]).stdout;
        (!metrics.contains("interlock_streams_open 0")).then_some(())
    });
    let ApiSite { project, daemon, .. } = site;
    drop(daemon);
    while open.next().is_some() {}
    // It was killed, and says still where it was.
    fs::remove_file(project.folder().join("http.json")).unwrap();
    let site = ApiSite::serving(project);
    let again = Listener::new(&site, &format!("?after={last}"), &[]).until("JOB_COMPLETED");
    assert_eq!(again.last().map(|event| event.id), more.last().map(|event| event.id));

    let odd = site.ask(&["-H", "Last-Event-ID: x"], "/api/v1/stream");
    assert_eq!((odd.status, &odd.body["code"]), (400, &"bad_cursor".into()), "{odd:?}");
}
