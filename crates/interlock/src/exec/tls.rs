//! TLS for reports: whom to believe, and a connection that checks it. Nothing of it is loaded unless it is needed.

use std::{
    io,
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
};

use interlock_api::tls::{Fingerprint, client_config, fingerprint_in};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

use crate::serve::http;

/// Whose certificates are believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those that this machine believes.
    #[default]
    System,
    /// Those of the authorities in a file, and nobody else's.
    Only(PathBuf),
    /// The certificates that a process says it shows, in its `http.json`: read anew each time, as they change.
    Told(PathBuf),
    /// The certificate in a file.
    Exactly(PathBuf),
}

/// A connection to whoever can prove to be that host.
pub(crate) fn wrap(
    stream: TcpStream,
    authority: &str,
    trust: &Trust,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let config = config(trust)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

fn config(trust: &Trust) -> io::Result<ClientConfig> {
    let authorities = match trust {
        Trust::System => None,
        Trust::Only(file) => Some(file.as_path()),
        Trust::Told(file) => return pinned(http::certificates_told(file)?),
        Trust::Exactly(file) => {
            return pinned(vec![fingerprint_in(file).map_err(io::Error::other)?]);
        }
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots(authorities)?).with_no_client_auth())
}

fn pinned(known: Vec<Fingerprint>) -> io::Result<ClientConfig> {
    client_config(known).map_err(io::Error::other)
}

/// The authorities of a file, or of this machine.
fn roots(authorities: Option<&Path>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match authorities {
        None => {
            // What of it cannot be read is left out; a certificate that is then not believed says so.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(file) => {
            let broken = |error: &dyn std::fmt::Display| {
                io::Error::other(format!("the authorities in {}: {error}", file.display()))
            };
            let all = CertificateDer::pem_file_iter(file).map_err(|error| broken(&error))?;
            for certificate in all {
                let certificate = certificate.map_err(|error| broken(&error))?;
                roots.add(certificate).map_err(|error| broken(&error))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(io::Error::other(match authorities {
            None => "this machine believes no authority".to_owned(),
            Some(file) => format!("there is no certificate in {}", file.display()),
        }));
    }
    Ok(roots)
}
