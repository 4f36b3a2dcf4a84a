//! A server's verifier of client certificates: `webpki`'s, with a limit on the chain.
//!
//! Anyone who reaches the port may send a chain, and path building takes at least one signature
//! check per certificate, so a chain of more than [`CHAIN_COUNT_MAX`] certificates or
//! [`CHAIN_BYTES_MAX`] bytes is refused unread.

use crate::certificates::{CHAIN_BYTES_MAX, CHAIN_COUNT_MAX};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct ClientVerifier(pub(crate) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let more_bytes: usize = intermediates.iter().map(|between| between.len()).sum();
        let too_many = 1 + intermediates.len() > CHAIN_COUNT_MAX;
        if too_many || end_entity.len() + more_bytes > CHAIN_BYTES_MAX {
            return Err(CertificateError::BadEncoding.into());
        }
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
