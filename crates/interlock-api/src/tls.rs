//! TLS of the listener: the certificate that it shows, loaded again when its files change; and clients that believe exactly the
//! certificates that they were told of.
//!
//! A new pair of files that cannot be used changes nothing: the old certificate stays in force, and the trouble is told. A program
//! that renews certificates writes two files, one after the other, so that trouble counts only once it has lasted for a while.

mod expiry;
mod pair;
mod pinned;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

pub use self::{
    expiry::Validity,
    pair::{CertificatePair, Fingerprint, TlsError, fingerprint_in},
    pinned::{client_config, connect},
};
use crate::access::Clock;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a pair may be unusable while the second of its files is being written.
const TROUBLE_AFTER: Duration = Duration::from_secs(5);

/// The files of the listener's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that vouch for it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Called with the certificates that clients may meet, before the first of them is shown.
pub type Announce = dyn Fn(&[Fingerprint]) + Send + Sync;

/// The certificate that the listener shows.
pub struct ListenerCertificate {
    files: TlsFiles,
    clock: Clock,
    announce: Box<Announce>,
    state: Mutex<CertificateState>,
}

struct CertificateState {
    pair: CertificatePair,
    /// The certificate before this one, which a client may still have been told of.
    previous: Option<Fingerprint>,
    trouble: Option<Trouble>,
}

/// Why the files cannot be used.
struct Trouble {
    since: Instant,
    error: String,
    is_logged: bool,
}

impl std::fmt::Debug for ListenerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerCertificate").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ListenerCertificate {
    /// The certificate of the files as they are now.
    pub fn load(files: TlsFiles, clock: Clock, announce: Box<Announce>) -> Result<Self, TlsError> {
        let pair = CertificatePair::load(&files)?;
        let state = Mutex::new(CertificateState { pair, previous: None, trouble: None });
        Ok(Self { files, clock, announce, state })
    }

    /// The certificates that a client may meet: the present one, and the one before it.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        let state = self.lock();
        std::iter::once(&state.pair.fingerprint).chain(&state.previous).cloned().collect()
    }

    /// The certificate that is shown now.
    pub fn fingerprint(&self) -> Fingerprint {
        self.lock().pair.fingerprint.clone()
    }

    /// What people should hear: the files cannot be used, or the certificate is over or soon will be.
    pub fn complaint(&self) -> Option<String> {
        let state = self.lock();
        if let Some(trouble) = &state.trouble
            && trouble.since.elapsed() >= TROUBLE_AFTER
        {
            let error = &trouble.error;
            return Some(format!(
                "the certificate of `server.tls` changed and cannot be used, so the old one stays: {error}"
            ));
        }
        state.pair.validity?.complaint((self.clock)())
    }

    /// How connections are accepted now.
    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        Arc::clone(&self.lock().pair.config).into()
    }

    /// Looks at the files again and again; it ends with the interface.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let looking = Arc::clone(&self);
            // A disk that hangs holds up this task and no connection.
            let looked = tokio::task::spawn_blocking(move || looking.look()).await;
            if let Err(error) = looked {
                tracing::error!(%error, "the certificate's files could not be looked at");
            }
        }
    }

    fn look(&self) {
        let found = CertificatePair::load(&self.files);
        let is_new = match &found {
            Ok(pair) => pair.digest != self.lock().pair.digest,
            Err(_) => false,
        };
        if is_new && let Ok(pair) = &found {
            // Those who read of it must know it when they meet it.
            (self.announce)(&[pair.fingerprint.clone(), self.fingerprint()]);
        }
        let mut state = self.lock();
        match found {
            Ok(pair) => {
                if state.trouble.take().is_some_and(|trouble| trouble.is_logged) {
                    tracing::info!("the certificate of `server.tls` can be used again");
                }
                if is_new {
                    tracing::info!(
                        certificate = pair.fingerprint.as_str(),
                        "the certificate of `server.tls` changed and is in force"
                    );
                    state.previous = Some(std::mem::replace(&mut state.pair, pair).fingerprint);
                }
            }
            Err(error) => {
                let error = error.to_string();
                let known = state.trouble.take();
                let since = known.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
                let mut is_logged = known.is_some_and(|trouble| trouble.is_logged);
                if !is_logged && since.elapsed() >= TROUBLE_AFTER {
                    tracing::error!(
                        "the certificate of `server.tls` cannot be used, and the old one stays in force: {error}"
                    );
                    is_logged = true;
                }
                state.trouble = Some(Trouble { since, error, is_logged });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, CertificateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
