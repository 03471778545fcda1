//! Mail over TLS, from the moment of connecting and after STARTTLS, to a server that nobody here wrote: Python's `ssl`,
//! with a certificate that `openssl` made for this test.

use std::{fs, path::Path, process::Command};

use interlock_private_server::{PythonServer, certify};

use crate::{project, run};

/// A mail server: its arguments are the folder with the certificate and whether TLS comes first. It prints its port, and
/// writes down what it was told inside TLS.
const POSTMAN: &str = r#"
import socket, ssl, sys, threading
folder, first = sys.argv[1], sys.argv[2] == "tls"
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

def serve(stream):
    secret = first
    if first:
        stream = context.wrap_socket(stream, server_side=True)
    file = stream.makefile("rwb", 0)
    file.write(b"220 localhost ESMTP\r\n")
    while line := file.readline():
        word = line.split()[0].upper()
        if secret:
            with open(folder + "/heard", "ab") as heard:
                heard.write(line)
        if word == b"EHLO":
            file.write(b"250-localhost\r\n" + (b"250 AUTH PLAIN\r\n" if secret else b"250 STARTTLS\r\n"))
        elif word == b"STARTTLS":
            file.write(b"220 go on\r\n")
            stream = context.wrap_socket(stream, server_side=True)
            file, secret = stream.makefile("rwb", 0), True
        elif word == b"AUTH":
            file.write(b"235 welcome\r\n")
        elif word == b"DATA":
            file.write(b"354 go on\r\n")
            while (line := file.readline()) not in (b".\r\n", b""):
                with open(folder + "/heard", "ab") as heard:
                    heard.write(line)
            file.write(b"250 taken\r\n")
        else:
            file.write(b"250 fine\r\n")

def try_serve(stream):
    try:
        serve(stream)
    except OSError:
        pass

while True:
    threading.Thread(target=try_serve, args=(listener.accept()[0],), daemon=True).start()
"#;

#[test]
fn mail_goes_over_tls_to_a_server_whose_certificate_can_be_checked() {
    for tls in ["tls", "starttls"] {
        let certificates = tempfile::tempdir().unwrap();
        certify(certificates.path());
        let postman = PythonServer::start(POSTMAN, certificates.path(), &[tls]);
        let config = format!(
            "alerts:\n- {{type: email, name: mail, smtp: 'localhost:{}', tls: {tls}, from: il@example.com, to: \
             [ann@example.com], username: il, password: hush}}\n",
            postman.port
        );
        let directory = project(&[("interlock.yaml", &config)]);
        let test = |authority: Option<&Path>| {
            let mut interlock = Command::new(env!("CARGO_BIN_EXE_interlock"));
            interlock.arg("-C").arg(directory.path()).args(["incidents", "test", "mail"]);
            interlock
                .env_remove("SSL_CERT_FILE")
                .envs(authority.map(|path| ("SSL_CERT_FILE", path)));
            run(&mut interlock)
        };
        let heard = certificates.path().join("heard");
        let ran = test(None);
        assert_eq!(ran.code, 1, "{tls}: nobody knows the authority: {}", ran.stdout);
        assert!(ran.stderr.contains("certificate"), "{tls}: {}", ran.stderr);
        assert!(!heard.exists(), "{tls}: it spoke to somebody whom it does not know");
        let ran = test(Some(&certificates.path().join("ca.pem")));
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, "mail: delivered\n"),
            "{tls}: {}",
            ran.stderr
        );
        let heard = fs::read_to_string(heard).unwrap();
        for line in ["AUTH PLAIN ", "RCPT TO:<ann@example.com>", "Subject: "] {
            assert!(heard.contains(line), "{tls}: no {line} in {heard}");
        }
    }
}
