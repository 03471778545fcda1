//! `exec` over TLS, to an end of it that nobody here wrote: Python's `ssl` in front of a real `serve`, as a proxy stands
//! before it, with certificates that `openssl` made for this test.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{exec::exec, pings::Site};

/// Its arguments are the folder with the certificate, and the address behind it. It prints its port.
const PROXY: &str = r#"
import socket, ssl, sys, threading
folder, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass

def serve(stream):
    try:
        stream = context.wrap_socket(stream, server_side=True)
    except OSError:
        return
    behind = socket.create_connection((host, port))
    threading.Thread(target=copy, args=(stream, behind), daemon=True).start()
    copy(behind, stream)
    stream.close()

while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

struct Proxy {
    process: Child,
    port: u16,
}

impl Proxy {
    fn start(folder: &Path, behind: SocketAddr) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", PROXY]).arg(folder);
        python.args([behind.ip().to_string(), behind.port().to_string()]);
        let mut process = python.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// An authority, and a certificate of its for `localhost`.
fn certify(folder: &Path) {
    fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for arguments in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"),
        format!("req -new {key} -keyout key.pem -out request.pem -subj /CN=localhost"),
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem"
            .to_owned(),
    ] {
        let arguments = arguments.split_whitespace();
        let ran = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn exec_reports_over_tls_to_whom_it_can_check_and_to_nobody_else() {
    let site = Site::new(&["far"]);
    let certificates = tempfile::tempdir().unwrap();
    certify(certificates.path());
    let proxy = Proxy::start(certificates.path(), site.address());
    let at = |host: &str| format!("https://{host}:{}", proxy.port);
    let ca = certificates.path().join("ca.pem").display().to_string();
    let spool = site.project.path().join("spool");
    let waiting = || fs::read_dir(&spool).map_or(0, Iterator::count);
    // Nobody knows the authority; and a certificate for another name is nobody's. The job runs, and its reports wait.
    for (arguments, host) in [(vec![], "localhost"), (vec!["--ca", &ca], "127.0.0.1")] {
        let before = waiting();
        let server = at(host);
        let arguments = [vec!["far", "--server", &server], arguments].concat();
        let ran = exec(&site, &arguments, &["echo", "ran"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "ran\n"), "{}", ran.stderr);
        assert!(ran.stderr.contains("certificate"), "{}", ran.stderr);
        assert_eq!(waiting(), before + 2, "a start and an end");
    }
    assert_eq!(site.runs("far").len(), 0);
    // Known: what waits for this name goes along.
    let ran = exec(&site, &["far", "--server", &at("localhost"), "--ca", &ca], &["echo", "known"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let runs = site.until_ended("far", 2);
    let bodies: Vec<_> = runs.iter().filter_map(|run| run["metadata"]["body"].as_str()).collect();
    assert!(bodies.contains(&"known\n") && bodies.contains(&"ran\n"), "{bodies:?}");
    assert_eq!(waiting(), 2, "those for the other name wait on");
    // A file that is no certificate says so.
    let names = certificates.path().join("names").display().to_string();
    let ran = exec(&site, &["far", "--server", &at("localhost"), "--ca", &names], &["true"]);
    assert!(ran.stderr.contains("there is no certificate in"), "{}", ran.stderr);
}
