//! A client that believes exactly the certificates that it was told of.
//!
//! A process that reads the state folder or the store knows the certificate of the process that it asks; no authority and no name is needed.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{
        WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::Fingerprint;

/// How a client speaks TLS to a server that shows one of these certificates.
pub fn client_config(known: Vec<Fingerprint>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(provider::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(PinnedVerifier { known, algorithms });
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// A connection to a server that shows one of these certificates.
pub async fn connect(
    address: SocketAddr,
    known: Vec<Fingerprint>,
) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    let config = client_config(known).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::IpAddress(address.ip().into()), stream).await
}

/// Compares certificates; that the other end has the key as well is checked as ever.
#[derive(Debug)]
struct PinnedVerifier {
    known: Vec<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.known.contains(&Fingerprint::of(end_entity)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("it shows another certificate than the one that is known".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
