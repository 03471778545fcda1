//! TLS for `tokio-postgres`.

use std::{
    fmt,
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::AddressError;

/// Whom to believe that it is the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belief {
    /// Nobody reads along who only listens; who stands between is not noticed.
    Anybody,
    /// Who has a certificate of an authority that is believed.
    Certified,
    /// The same, for the host of the address.
    Named,
}

/// Certificates in files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The authorities that are believed; those of the machine, if there is none.
    pub(crate) authority: Option<PathBuf>,
    /// Our certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// Makes connections secure.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    pub(crate) fn new(belief: Belief, files: &Files) -> Result<Self, AddressError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = match belief {
            Belief::Anybody => None,
            Belief::Certified | Belief::Named => {
                let roots = Arc::new(roots(files.authority.as_deref())?);
                let chain =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(chain.build().map_err(|error| AddressError(error.to_string()))?)
            }
        };
        let verifier = Verifier { chain, belief, provider: Arc::clone(&provider) };
        let unusable = |error: Error| AddressError(format!("TLS cannot be used: {error}"));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &files.client {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable("sslkey", key, &error))?;
                config.with_client_auth_cert(certificates("sslcert", certificate)?, key)
            }
            None => Ok(config.with_no_client_auth()),
        };
        Ok(Self(TlsConnector::from(Arc::new(config.map_err(unusable)?))))
    }
}

fn roots(authority: Option<&Path>) -> Result<RootCertStore, AddressError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = authority else {
        // One that cannot be used is one less to be believed.
        let _skipped =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() {
            let message =
                "this machine has no authorities to believe: name one with `sslrootcert=FILE`";
            Err(AddressError(message.to_owned()))
        } else {
            Ok(roots)
        };
    };
    for certificate in certificates("sslrootcert", file)? {
        roots.add(certificate).map_err(|error| unreadable("sslrootcert", file, &error))?;
    }
    Ok(roots)
}

fn certificates(key: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, AddressError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(unreadable(key, file, &"it holds no certificate in PEM format"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(key, file, &error)),
    }
}

fn unreadable(key: &str, file: &Path, error: &dyn fmt::Display) -> AddressError {
    AddressError(format!("`{key}` names {}, which cannot be used: {error}", file.display()))
}

/// Looks at the server's certificate as far as was asked for; at its signature always.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    belief: Belief,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let verified =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // Names are compared last: all else was in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.belief == Belief::Certified => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Secured<S>;
    type TlsConnect = Greeting;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Greeting, io::Error> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(Greeting { connector: self.0.clone(), name })
    }
}

/// One connection that is to be made secure.
pub(crate) struct Greeting {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for Greeting
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let Self { connector, name } = self;
            Ok(Secured(Box::new(connector.connect(name, stream).await?)))
        })
    }
}

/// A connection over TLS.
#[derive(Debug)]
pub struct Secured<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
