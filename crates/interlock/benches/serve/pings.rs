//! Durable pings, by a client that nobody here wrote (`wrk`), beside what a bare axum server does in the same run; and
//! what `interlock exec` costs a job.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_store::{Shard, Store as _, block_on};
use interlock_store_embedded::EmbeddedStore;

use crate::served::{Served, now, project};

const WATCHED: &[&str] =
    &["name: ping-N\nschedule: {every: 1d, from: last}\ntrigger: {type: external}\n"];
/// How many connections `wrk` keeps busy, and for how long.
const CONNECTIONS: &str = "100";
const DURATION: &str = "10s";
/// Calls of `exec` that are timed.
const CALLS: u32 = 200;

/// Pings to so many pipelines in turn.
pub(crate) fn durable(pipelines: usize) {
    let folder = project(pipelines, WATCHED);
    fs::write(folder.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n")
        .expect("a file");
    let served = Served::start(folder.path());
    let address = address(folder.path());
    let script = script(folder.path(), pipelines);
    let bare = wrk(bare(), CONNECTIONS, Some(&script), "");
    println!("RESULT name=serve/pings@limit per_second={:.0}", bare.per_second);
    let pings = wrk(address, CONNECTIONS, Some(&script), "");
    println!("RESULT name=serve/pings per_second={:.0}", pings.per_second);
    println!("RESULT name=serve/pings_p99 seconds={:.4}", pings.p99);
    println!("RESULT name=serve/pings_memory rss_mb={:.1}", served.rss_mb());
    println!(
        "{:.0} durable pings/s, {:.1} % of bare axum",
        pings.per_second,
        100.0 * pings.per_second / bare.per_second
    );
    let began = now();
    while waiting(folder.path()) > 0 {
        thread::sleep(Duration::from_millis(100));
    }
    let seconds = now().duration_since(began).as_secs_f64();
    println!("RESULT name=serve/pings_applied_after seconds={seconds:.2}");
    drop(served);
}

/// How many pings are durable and not yet applied, at most a few.
fn waiting(project: &Path) -> usize {
    let store =
        EmbeddedStore::open_reader(&project.join(".interlock"), Arc::new(now)).expect("a ledger");
    block_on(store.inbox(Shard(0), 10)).expect("an inbox").items.len()
}

pub(crate) fn address(project: &Path) -> SocketAddr {
    let text = fs::read_to_string(project.join(".interlock/http.json")).expect("it listens");
    let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    told["address"].as_str().and_then(|text| text.parse().ok()).expect("an address")
}

/// A program for `wrk` that pings one pipeline after the other.
fn script(folder: &Path, pipelines: usize) -> std::path::PathBuf {
    let path = folder.join("ping.lua");
    let text = format!(
        "local n = 0\nrequest = function()\n  n = n + 1\n  return wrk.format('GET', '/ping/ping-' .. (n % {pipelines}))\nend\n"
    );
    fs::write(&path, text).expect("a file");
    path
}

/// What `wrk` measured.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) p99: f64,
}

/// Asks for a path over and over, or for what a program says.
pub(crate) fn wrk(
    address: SocketAddr,
    connections: &str,
    script: Option<&Path>,
    path: &str,
) -> Measured {
    let mut command = Command::new("wrk");
    command.args(["-t", "1", "-c", connections, "-d", DURATION, "--timeout", "20s", "--latency"]);
    if let Some(script) = script {
        command.arg("-s").arg(script);
    }
    let output = command
        .arg(format!("http://{address}{path}"))
        .stdin(Stdio::null())
        .output()
        .expect("wrk is installed (`cargo xtask bench` does that)");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        !text.contains("Non-2xx") && !text.contains("Socket errors"),
        "not every question was answered 200"
    );
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim).expect("wrk says so").to_owned()
    };
    let per_second = field("Requests/sec:").parse().expect("a number");
    Measured { per_second, p99: seconds(&field("99%")) }
}

/// `12.34ms`, `900us` or `1.2s`, in seconds.
fn seconds(text: &str) -> f64 {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text.trim_end_matches(unit).parse().expect("a number");
    match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        _ => number,
    }
}

/// A server that only says OK, on one thread as ours.
pub(crate) fn bare() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let router: axum::Router =
                axum::Router::new().route("/ping/{name}", axum::routing::get(|| async { "OK" }));
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper_util::service::TowerToHyperService::new(router.clone());
                let stream = hyper_util::rt::TokioIo::new(stream);
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(stream, service),
                );
            }
        });
    });
    address
}

/// What `exec` adds to a job, through the inbox of a project.
pub(crate) fn exec() {
    let folder = project(1, WATCHED);
    fs::write(folder.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n")
        .expect("a file");
    let _served = Served::start(folder.path());
    let timed = |command: &dyn Fn() -> Command| {
        let began = now();
        for _ in 0..CALLS {
            let status = command().stdin(Stdio::null()).stdout(Stdio::null()).status();
            assert!(status.is_ok_and(|status| status.success()), "the job runs");
        }
        now().duration_since(began).as_secs_f64() / f64::from(CALLS)
    };
    let alone = timed(&|| Command::new("/bin/true"));
    let server = format!("http://{}", address(folder.path()));
    for (name, server) in
        [("serve/exec_overhead", None), ("serve/exec_overhead_http", Some(server))]
    {
        let wrapped = timed(&|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
            command.args(["exec", "ping-0", "-C"]).arg(folder.path());
            command.args(server.iter().flat_map(|url| ["--server", url]));
            command.args(["--", "/bin/true"]);
            command
        });
        println!("RESULT name={name} seconds={:.5}", wrapped - alone);
    }
}
