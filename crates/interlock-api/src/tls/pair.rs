//! A certificate with its key, as two files hold them.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use aws_lc_rs::digest;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs as provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{
    TlsFiles,
    expiry::{self, Validity},
};

/// No file of a certificate or a key is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a pair of files cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences say it")]
pub enum TlsError {
    #[error("cannot read {path}: {source}")]
    Unreadable {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("there is no certificate in {path}")]
    NoCertificate { path: String },
    #[error("there is no private key in {path}")]
    NoKey { path: String },
    #[error("{cert} and {key} do not fit: {source}")]
    Mismatch {
        cert: String,
        key: String,
        #[source]
        source: rustls::Error,
    },
}

/// The SHA-256 of a certificate, in small hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(hexadecimal(certificate))
    }

    /// One that was written down.
    pub fn known(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct CertificatePair {
    /// How connections are accepted with it.
    pub(super) config: Arc<ServerConfig>,
    /// What tells it from others.
    pub fingerprint: Fingerprint,
    /// When it holds, if that can be read.
    pub validity: Option<Validity>,
    /// Of both files.
    pub(super) digest: String,
}

impl CertificatePair {
    /// Reads both files, and makes sure that they belong together.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let (cert, key) = (read(&files.cert)?, read(&files.key)?);
        let path = |path: &Path| path.display().to_string();
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| TlsError::NoCertificate { path: path(&files.cert) })?;
        let no_key = |_unusable| TlsError::NoKey { path: path(&files.key) };
        let private = PrivateKeyDer::from_pem_slice(&key).map_err(no_key)?;
        let mismatch =
            |source| TlsError::Mismatch { cert: path(&files.cert), key: path(&files.key), source };
        let leaf = chain.first().map(|leaf| (Fingerprint::of(leaf), expiry::validity(leaf)));
        let (fingerprint, validity) =
            leaf.ok_or_else(|| TlsError::NoCertificate { path: path(&files.cert) })?;
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(mismatch)?
            .with_no_client_auth()
            .with_single_cert(chain, private);
        let mut config = config.map_err(mismatch)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let digest = hexadecimal(&[cert.as_slice(), b"\0", key.as_slice()].concat());
        Ok(Self { config: Arc::new(config), fingerprint, validity, digest })
    }
}

/// The fingerprint of the first certificate in a file.
pub fn fingerprint_in(path: &Path) -> Result<Fingerprint, TlsError> {
    let bytes = read(path)?;
    let first = CertificateDer::pem_slice_iter(&bytes).next().and_then(Result::ok);
    let none = || TlsError::NoCertificate { path: path.display().to_string() };
    first.map(|leaf| Fingerprint::of(&leaf)).ok_or_else(none)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(source) => Err(TlsError::Unreadable { path: path.display().to_string(), source }),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest::digest(&digest::SHA256, bytes).as_ref() {
        // Writing to a text cannot fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}
