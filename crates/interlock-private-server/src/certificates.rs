//! Certificates for a test, made by `openssl`.

use std::{fs, path::Path, process::Command};

use crate::run;

/// Makes an authority (`ca.pem`), and a certificate of its for `localhost` (`cert.pem`, `key.pem`), in a folder.
pub fn certify(folder: &Path) {
    fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for arguments in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"),
        format!("req -new {key} -keyout key.pem -out request.pem -subj /CN=localhost"),
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem"
            .to_owned(),
    ] {
        let arguments = arguments.split_whitespace();
        run(Command::new("openssl").args(arguments).current_dir(folder));
    }
}
