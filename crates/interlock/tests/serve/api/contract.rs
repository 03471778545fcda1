//! The OpenAPI document is what the API does: schemathesis asks everything that it allows and more, and a client that is made from it
//! lists what the commands list. Both programs are installed by `cargo xtask test`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_wait::CommandWithin as _;

use super::*;
use crate::project::Ran;

/// A token that may do everything: with it, what needs one can be told from what does not.
const ADMIN: &str = "a-token-of-the-contract-test";
/// How long everything is asked; the nightly asks longer (`INTERLOCK_CONTRACT_SECONDS`).
const ASKED_FOR: u64 = 45;
/// Beyond the time that is asked for: starting Python, and shrinking what was found.
const SPARE: Duration = Duration::from_mins(4);
/// What every answer must be, whatever was asked.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,ignored_auth";

/// An address that shows many wrong tokens is kept waiting with 429 (docs/api.md), and schemathesis shows one to each operation: it tries again
/// until the operation itself refuses.
const HOOKS: &str = "import time
import schemathesis.specs.openapi.checks as checks
once = checks.send_probe
def until_answered(*args):
    for _ in range(30):
        response = once(*args)
        if response.status_code != 429:
            break
        time.sleep(1)
    return response
checks.send_probe = until_answered
";

const JOBS: &[(&str, &str)] = &[
    (
        "orders",
        "name: orders
schedule: '* * * * *'
owner: data
labels: {team: core}
readiness: {rule: all-required, traits: {landed: {required: true, type: sensor, config: {key: orders-landed}}}}
trigger: {type: command, command: 'true'}
",
    ),
    ("by-hand", "name: by-hand\nschedule: '0 0 1 1 *'\ntrigger: {type: command, command: 'echo done'}\n"),
    ("nightly", "name: nightly\nschedule: '* * * * *'\ntrigger: {type: external}\n"),
];

fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools")
}

/// A program that `cargo xtask test` installs.
#[track_caller]
fn installed(program: &str) -> PathBuf {
    let path = tools().join(program);
    assert!(path.exists(), "{} is missing: `cargo xtask test` installs it", path.display());
    path
}

/// The server that has the ledger, if it is not a file.
enum StoreServer {
    None,
    Redis(PrivateRedis),
    Postgres(PrivatePostgres),
}

impl StoreServer {
    /// On the store that the nightly names (`INTERLOCK_CONTRACT_STORE`); in a file otherwise.
    fn start() -> Self {
        match env::var("INTERLOCK_CONTRACT_STORE").as_deref() {
            Ok("redis") => Self::Redis(PrivateRedis::start()),
            Ok("postgres") => Self::Postgres(PrivatePostgres::start()),
            Ok("embedded") | Err(_) => Self::None,
            Ok(other) => {
                panic!("INTERLOCK_CONTRACT_STORE is embedded, redis or postgres, not {other}")
            }
        }
    }

    fn settings(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Redis(server) => {
                format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address())
            }
            Self::Postgres(server) => {
                format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn())
            }
        }
    }
}

fn site(store: &StoreServer) -> ApiSite {
    let store = store.settings();
    let server = format!(
        "{store}server:\n  addr: '127.0.0.1:0'\n  maxRequestsPerSecond: 100000\n  tokens: [{{name: all, scope: admin, token: {ADMIN}}}]\n"
    );
    let site = ApiSite::with(JOBS, &server);
    for _ in 0..2 {
        assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    }
    site
}

#[test]
fn every_answer_is_as_the_document_says_whatever_is_asked() {
    let schemathesis = installed("python/bin/schemathesis");
    let store = StoreServer::start();
    let site = site(&store);
    let seconds = env::var("INTERLOCK_CONTRACT_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(ASKED_FOR);
    fs::write(site.project.path().join("refusals.py"), HOOKS).unwrap();
    let asked: Ran = Command::new(schemathesis)
        .current_dir(site.project.path())
        .env("SCHEMATHESIS_HOOKS", "refusals")
        .args(["run", &format!("{}/api/v1/openapi.json", site.base), "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {ADMIN}")])
        .args(["--checks", CHECKS, "--max-time", &seconds.to_string(), "--max-examples", "30"])
        .args(["--generation-deterministic", "--no-shrink", "--continue-on-failure"])
        // Streams end when their reader leaves, not when they are complete.
        .args(["--exclude-path-regex", "/stream$", "--request-timeout", "30"])
        .output_within(Duration::from_secs(seconds) + SPARE)
        .unwrap()
        .into();
    assert_eq!(asked.code, 0, "{}\n{}", asked.stdout, asked.stderr);
    assert!(asked.stdout.contains("Tested:"), "{}", asked.stdout);
}

#[test]
fn a_client_made_from_the_document_compiles_and_lists_runs() {
    let make = installed("node/node_modules/.bin/openapi-typescript");
    let store = StoreServer::start();
    let site = site(&store);
    let folder = site.project.path().join("client");
    fs::create_dir(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/api/client");
    for file in ["client.ts", "tsconfig.json", "package.json"] {
        fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    std::os::unix::fs::symlink(tools().join("node/node_modules"), folder.join("node_modules"))
        .unwrap();
    let document = format!("{}/api/v1/openapi.json", site.base);
    let run = |command: &mut Command| {
        let ran: Ran = command.current_dir(&folder).output_within(SPARE).unwrap().into();
        assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
        ran.stdout
    };
    // The document needs no token, as health does not: it holds nothing of the project.
    run(Command::new(make).args([&document, "--output", "api.d.ts"]));
    run(Command::new(tools().join("node/node_modules/.bin/tsc")).args(["--project", "."]));
    let listed = run(Command::new("node").args(["client.js", &site.base, ADMIN]));
    let printed = site.json_of(&["runs", "--json"]);
    let expected: Vec<_> =
        printed.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
}
