//! `exec` over TLS, to an end of it that nobody here wrote: Python's `ssl` in front of a real `serve`, as a proxy stands
//! before it, with certificates that `openssl` made for this test.

use std::fs;

use interlock_private_server::{PythonServer, certify};

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

#[test]
fn exec_reports_over_tls_to_whom_it_can_check_and_to_nobody_else() {
    let site = Site::new(&["far"]);
    let certificates = tempfile::tempdir().unwrap();
    certify(certificates.path());
    let behind = site.address();
    let (host, port) = (behind.ip().to_string(), behind.port().to_string());
    let proxy = PythonServer::start(PROXY, certificates.path(), &[&host, &port]);
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
