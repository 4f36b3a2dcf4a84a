//! Certificates, where there are any: what one end shows and whom it takes, and who the other end is.
//!
//! What is checked of them is `rustls` and `webpki`'s: the chain to a root, the time, the name that a
//! client asked for, and what the key may be used for. Revocation lists are not read.

use crate::SetupError;
use crypto::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use webpki::EndEntityCert;

/// Longest chain that an end may show, in bytes of its certificates: it has to fit into a flight.
pub const CHAIN_BYTES_MAX: usize = 16 * 1024;

/// Most certificates of a chain.
pub const CHAIN_COUNT_MAX: usize = 5;

/// Which of three texts it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PemPart {
    /// The certificate and what leads from it to a root.
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
    /// Who signs certificates of the other end.
    pub roots: &'a [u8],
}

/// What an end shows, and whose certificates it takes.
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
    /// What these texts say. Whether the key is the certificate's is seen when an end is made of it.
    ///
    /// # Errors
    /// Which of them says nothing of use, and why.
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
/// When there is none that is not encrypted.
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

/// Who has shown a certificate that is good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub key: [u8; 32],
    /// The URIs among its alternative names, as they stand there.
    pub uris: Vec<String>,
}

impl Peer {
    /// Whose certificate this is; it was checked.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let spki = certificate.subject_public_key_info();
        let key = digest(&SHA256, spki.as_ref()).as_ref().try_into().ok()?;
        let uris = certificate.valid_uri_names().map(str::to_owned).collect();
        Some(Self { key, uris })
    }
}
