//! Certificates: what one end presents, which roots it trusts, and the identity of the other end.
//!
//! `rustls` and `webpki` check the chain to a root, the validity period, the name that a client
//! asked for and the key usage. Revocation lists are not read.

use crate::SetupError;
use crypto::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use webpki::EndEntityCert;

/// Longest certificate chain that an end may send, in bytes: it must fit one handshake flight.
pub const CHAIN_BYTES_MAX: usize = 16 * 1024;

/// Most certificates of a chain.
pub const CHAIN_COUNT_MAX: usize = 5;

/// The part of a PEM configuration that an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PemPart {
    /// The certificate and its intermediates.
    Chain,
    /// The certificate's key.
    Key,
    /// The roots.
    Roots,
}

/// PEM texts.
#[derive(Clone, Copy, Debug)]
pub struct Pem<'a> {
    /// A certificate, and behind it those that lead to a root.
    pub chain: &'a [u8],
    /// Its private key, not encrypted: PKCS #8, SEC 1 or PKCS #1.
    pub key: &'a [u8],
    /// The roots that sign the other end's certificates.
    pub roots: &'a [u8],
}

/// The certificate that an end presents, and the roots that it trusts.
pub struct Certificates {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) roots: Arc<RootCertStore>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates(..)")
    }
}

impl Certificates {
    /// Parses the texts. Whether the key belongs to the certificate is checked when an end is
    /// configured with them.
    ///
    /// # Errors
    /// The part that is unusable, and why.
    pub fn from_pem(pem: Pem<'_>) -> Result<Self, (PemPart, SetupError)> {
        let chain = certificates(pem.chain).map_err(|error| (PemPart::Chain, error))?;
        let chain_bytes: usize = chain.iter().map(|certificate| certificate.len()).sum();
        if chain.len() > CHAIN_COUNT_MAX || chain_bytes > CHAIN_BYTES_MAX {
            let line = format!(
                "there are {} certificates of {chain_bytes} bytes in it, and at most {CHAIN_COUNT_MAX} \
                 of {CHAIN_BYTES_MAX} bytes together are taken",
                chain.len()
            );
            return Err((PemPart::Chain, SetupError::new(line)));
        }
        let key = key(pem.key).map_err(|error| (PemPart::Key, error))?;
        let roots = of_roots(pem.roots).map_err(|error| (PemPart::Roots, error))?;
        Ok(Self { chain, key, roots: Arc::new(roots) })
    }
}

/// The first certificate of a PEM text.
///
/// # Errors
/// When there is none.
pub fn certificate_der(pem: &[u8]) -> Result<Vec<u8>, SetupError> {
    Ok(certificates(pem)?.swap_remove(0).as_ref().to_vec())
}

/// The first private key of a PEM text.
///
/// # Errors
/// When there is no unencrypted key.
pub fn key_der(pem: &[u8]) -> Result<Vec<u8>, SetupError> {
    key(pem).map(|key| key.secret_der().to_vec())
}

fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, SetupError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let line = "there is no private key in it that can be read; it must not be encrypted";
        SetupError::new(line.to_owned())
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| SetupError::new(format!("it is no PEM text: {error}")))?;
    if found.is_empty() {
        return Err(SetupError::new("there is no certificate in it".to_owned()));
    }
    Ok(found)
}

fn of_roots(pem: &[u8]) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(pem)? {
        let added = roots.add(root);
        added.map_err(|error| SetupError::new(format!("one in it is of no use: {error}")))?;
    }
    Ok(roots)
}

/// The identity in a verified certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub key: [u8; 32],
    /// The URIs among its subject alternative names, verbatim.
    pub uris: Vec<String>,
}

impl Peer {
    /// Reads a verified certificate.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let spki = certificate.subject_public_key_info();
        let key = digest(&SHA256, spki.as_ref()).as_ref().try_into().ok()?;
        let uris = certificate.valid_uri_names().map(str::to_owned).collect();
        Some(Self { key, uris })
    }
}
