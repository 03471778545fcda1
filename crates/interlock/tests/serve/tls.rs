//! HTTPS by `server.tls`, with certificates that `openssl` made for each test and clients that are not ours: what is shown, what becomes of
//! it when the files change, and what instances with certificates ask of each other.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use interlock_private_server::certify;
use interlock_wait::{BOUND, CommandWithin as _};
use serde_json::Value;

use crate::{
    Daemon, log,
    pings::curl,
    project::{Project, Ran, interlock},
};

const WATCHED: &str =
    "name: far\nschedules: [{name: s, every: 1h, from: last}]\ntrigger: {type: external}\n";

/// A project that is served with a certificate.
pub(crate) struct TlsSite {
    pub(crate) project: Project,
    pub(crate) daemon: Daemon,
    /// Where the present authority is.
    authority: tempfile::TempDir,
    pub(crate) port: u16,
}

/// Wraps a job that does nothing in `exec`, for the pipeline `far`.
pub(crate) fn exec(project: &Project, arguments: &[&str]) -> Ran {
    Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(project.path())
        .args(["exec", "far"])
        .args(arguments)
        .args(["--", "true"])
        .env("INTERLOCK_SPOOL", project.path().join("spool"))
        .output_within(BOUND)
        .unwrap()
        .into()
}

/// What `http.json` says.
fn told(project: &Project) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(project.folder().join("http.json")).ok()?).ok()
}

/// Has an authority of its own make a certificate for `localhost`, and puts it where the project names it.
fn put_certificate(project: &Path) -> tempfile::TempDir {
    let made = tempfile::tempdir().unwrap();
    certify(made.path());
    fs::create_dir_all(project.join("tls")).unwrap();
    for file in ["cert.pem", "key.pem"] {
        fs::copy(made.path().join(file), project.join("tls").join(file)).unwrap();
    }
    fs::set_permissions(project.join("tls/key.pem"), Permissions::from_mode(0o600)).unwrap();
    made
}

impl TlsSite {
    /// Serves pipelines, with these lines before `server` in interlock.yaml.
    pub(crate) fn new(pipelines: &[(&str, &str)], store: &str) -> Self {
        let project = Project::new(pipelines);
        let authority = put_certificate(project.path());
        let server = "server: {addr: '127.0.0.1:0', tls: {cert: tls/cert.pem, key: tls/key.pem}}\n";
        fs::write(project.path().join("interlock.yaml"), format!("{store}{server}")).unwrap();
        let daemon = Daemon::start(project.path());
        let port = project.until("it listens", || {
            let address = told(&project)?["address"].as_str()?.to_owned();
            address.rsplit_once(':')?.1.parse().ok()
        });
        Self { project, daemon, authority, port }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.authority.path().join("ca.pem")
    }

    /// What `curl` gets, believing the present authority alone.
    pub(crate) fn ask(&self, arguments: &[&str], path: &str) -> Ran {
        let (url, ca) = (self.url(path), self.ca().display().to_string());
        curl(&[&["--cacert", &ca, &url], arguments].concat())
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask(&["-f"], path).stdout).unwrap_or_default()
    }

    /// What the process says is wrong with itself.
    fn complaints(&self) -> Vec<String> {
        let health = self.json("/healthz");
        let said = health["self"]["complaints"].as_array().cloned().unwrap_or_default();
        said.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect()
    }

    fn finding(&self, code: &str) -> String {
        let printed = self.project.run(&["doctor"]).stdout;
        let line = printed.lines().find(|line| line.starts_with(code));
        line.unwrap_or_else(|| panic!("{printed}")).to_owned()
    }
}

#[test]
fn https_is_spoken_with_the_certificate_of_the_files_and_nothing_else_is() {
    let began = Instant::now();
    let site = TlsSite::new(&[("far", WATCHED)], "");
    let pinged = site.project.until("the pipeline is known", || {
        let pinged = site.ask(&["-f"], "/ping/far");
        (pinged.code == 0).then_some(pinged)
    });
    assert_eq!(pinged.stdout, "OK");
    for version in ["1.2", "1.3"] {
        let arguments = ["-f", "--tls-max", version, "-o", "/dev/null"];
        assert_eq!(site.ask(&arguments, "/healthz").code, 0, "TLS {version}");
    }
    assert_ne!(site.ask(&["--tls-max", "1.1"], "/healthz").code, 0, "TLS 1.1 is over");
    // A client that does not know the authority, and one that forgot the `s`.
    assert_eq!(curl(&[&site.url("/healthz")]).code, 60);
    let plain = curl(&["-i", &format!("http://127.0.0.1:{}/healthz", site.port)]);
    assert!(plain.stdout.starts_with("HTTP/1.1 400"), "{plain:?}");
    assert!(plain.stdout.contains("tls_needed") && plain.stdout.contains("https://"), "{plain:?}");
    // A page of this address is no page of another site.
    let origin = format!("Origin: https://localhost:{}", site.port);
    assert_eq!(site.ask(&["-f", "-H", &origin], "/api/v1/runs").code, 0);
    assert_eq!(site.ask(&["-f", "-H", "Origin: https://evil.example"], "/api/v1/runs").code, 22);

    // Our own programs find it by what the process says of itself.
    assert!(
        site.finding("server").contains(&format!("https://127.0.0.1:{} is healthy", site.port))
    );
    assert!(site.finding("tls").contains("ok       until 20"), "{}", site.finding("tls"));
    assert!(site.project.run(&["doctor", "--live"]).stdout.contains("loops   ok"));
    let ca = site.ca().display().to_string();
    let ran = exec(&site.project, &["--server", &site.url(""), "--ca", &ca]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    // So does the sentinel, which asks every five seconds, and complains after three that were not answered.
    site.project.until("three questions were asked", || {
        (began.elapsed() > Duration::from_secs(17)).then_some(())
    });
    assert_eq!(site.complaints(), [""; 0], "{}", log(site.project.path()));

    // A key that others may read is found.
    let key = site.project.path().join("tls/key.pem");
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let open = site.finding("tls");
    assert!(open.contains("problem") && open.contains("0040"), "{open}");
    let over_http = site.json("/api/v1/doctor");
    let found = over_http["findings"].as_array().unwrap().iter().find(|it| it["code"] == "tls");
    assert_eq!(found.unwrap()["level"], "problem", "{over_http}");
}

#[test]
fn changed_files_are_taken_up_and_a_broken_pair_leaves_the_old_one_in_force() {
    let mut site = TlsSite::new(&[("far", WATCHED)], "");
    let incidents = |site: &TlsSite| site.project.run(&["incidents"]).stdout;
    assert_eq!(site.ask(&["-f"], "/healthz").code, 0);
    let first = told(&site.project).unwrap()["certificates"][0].clone();

    site.authority = put_certificate(site.project.path());
    site.project.until("the new certificate is shown", || {
        (site.ask(&["-f"], "/healthz").code == 0).then_some(())
    });
    let named = told(&site.project).unwrap()["certificates"].clone();
    assert!(named[0] != first && named[1] == first, "the new one, and the one before: {named}");
    assert!(site.finding("server").contains("is healthy"));

    let cert = site.project.path().join("tls/cert.pem");
    let good = fs::read(&cert).unwrap();
    let other = tempfile::tempdir().unwrap();
    certify(other.path());
    for (broken, says) in [
        (b"nonsense".to_vec(), "there is no certificate in"),
        (fs::read(other.path().join("cert.pem")).unwrap(), "do not fit"),
    ] {
        fs::write(&cert, broken).unwrap();
        site.project.until("the broken pair is told", || {
            let complaints = site.complaints();
            complaints.iter().any(|said| said.contains(says)).then_some(())
        });
        assert_eq!(site.ask(&["-f"], "/healthz").code, 0, "the old certificate stays");
        site.project.until("the incident is open", || {
            incidents(&site).contains("CERTIFICATE_UNUSABLE").then_some(())
        });
    }
    assert!(log(site.project.path()).contains("the old one stays in force"));
    assert!(site.finding("tls").contains("problem"), "{}", site.finding("tls"));
    fs::write(&cert, good).unwrap();
    site.project.until("the incident is over", || {
        (!incidents(&site).contains("CERTIFICATE_UNUSABLE")).then_some(())
    });
    assert_eq!(site.complaints(), [""; 0]);
}

#[test]
fn serve_refuses_a_certificate_that_it_cannot_use_and_warns_where_there_is_none() {
    let project = Project::new(&[("far", WATCHED)]);
    let server = |text: &str| {
        fs::write(project.path().join("interlock.yaml"), format!("server: {text}\n")).unwrap();
    };
    let authority = put_certificate(project.path());
    server("{addr: '127.0.0.1:0', tls: {cert: tls/cert.pem, key: tls/nowhere.pem}}");
    let refused = interlock(project.path(), &["serve"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("cannot speak HTTPS: cannot read"), "{}", refused.stderr);
    let other = tempfile::tempdir().unwrap();
    certify(other.path());
    fs::copy(other.path().join("key.pem"), project.path().join("tls/key.pem")).unwrap();
    server("{addr: '127.0.0.1:0', tls: {cert: tls/cert.pem, key: tls/key.pem}}");
    let refused = interlock(project.path(), &["serve"]);
    assert!(refused.stderr.contains("do not fit"), "{}", refused.stderr);
    drop(authority);

    server("{addr: '0.0.0.0:0', tokens: [{name: a, token: b}]}");
    let daemon = Daemon::start(project.path());
    project.until("it warns", || log(project.path()).contains("is not encrypted").then_some(()));
    let doctor = project.run(&["doctor"]).stdout;
    assert!(doctor.contains("tls     warning  0.0.0.0:0 can be reached"), "{doctor}");
    drop(daemon);
}
