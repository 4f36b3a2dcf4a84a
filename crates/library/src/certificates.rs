//! Certificates on disk: read, refused if others may read the key, and read again after a renewal.
//!
//! Invariants: no key is printed, and no key that others may read is used; if renewed files are
//! invalid, the earlier certificates stay in use.

use crate::on_disk::{self, FileStamp};
use crate::secret::why_not_private;
use ring::{ClientSeals, ServerSeals};
use seal::{Pem, PemPart, SetupError};
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// The size limit of a file: a bundle of many roots.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why certificates cannot be used, as a message with the remedy.
#[derive(Error, Debug)]
#[error("{0}")]
pub struct CertificateError(String);

/// The paths of certificates: PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// Our certificate, followed by the chain to the other end's root.
    pub cert: PathBuf,
    /// Its key; only its owner may have permission to read it.
    pub key: PathBuf,
    /// The CA that signs the other end's certificates.
    pub ca: PathBuf,
}

/// Called with a message when renewed files are invalid.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// A client's certificates, which replace the secret.
#[derive(Clone)]
pub struct Certificates {
    seals: ClientSeals,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(..)")
    }
}

impl Certificates {
    /// The certificates in these files. The server's certificate must be for `server`, the name or
    /// address of the connection, without a port. The files are checked for changes at each new
    /// connection.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(files: Files, server: &str, warn: Warn) -> Result<Self, CertificateError> {
        let server = server.to_owned();
        let make =
            move |found: &seal::Certificates| seal::Client::with_certificates(found, &server);
        Ok(Self { seals: renewed(files, make, warn)? })
    }

    /// The TLS configuration for connections.
    #[must_use]
    pub fn seals(&self) -> ClientSeals {
        Arc::clone(&self.seals)
    }
}

/// A server's TLS configuration with certificates. `secrets`: clients with the secret are served as
/// well.
///
/// # Errors
/// Which file cannot be used, and why.
pub fn server(files: Files, secrets: bool, warn: Warn) -> Result<ServerSeals, CertificateError> {
    let make = move |found: &seal::Certificates| {
        let server = seal::Server::with_certificates(found)?;
        if secrets { server.and_new_key() } else { Ok(server) }
    };
    renewed(files, make, warn)
}

/// The first certificate in a PEM file, as DER.
///
/// # Errors
/// When there is no valid one.
pub fn read_certificate(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let text = read(path, "certificate", false)?;
    seal::certificate_der(&text).map_err(|error| CertificateError(unusable(path, &error)))
}

/// The first private key in a PEM file, as DER.
///
/// # Errors
/// When there is no valid one, or others may read the file.
pub fn read_key(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let text = read(path, "key", true)?;
    seal::key_der(&text).map_err(|error| CertificateError(unusable(path, &error)))
}

impl Files {
    fn stamps(&self) -> [Option<FileStamp>; 3] {
        [&self.cert, &self.key, &self.ca].map(|path| FileStamp::of(path))
    }

    fn load(&self) -> Result<seal::Certificates, CertificateError> {
        let chain = read(&self.cert, "certificate", false)?;
        let key = read(&self.key, "key", true)?;
        let roots = read(&self.ca, "certificate of the CA", false)?;
        let pem = Pem { chain: &chain, key: &key, roots: &roots };
        seal::Certificates::from_pem(pem).map_err(|(part, error)| {
            let path = match part {
                PemPart::Chain => &self.cert,
                PemPart::Key => &self.key,
                PemPart::Roots => &self.ca,
            };
            CertificateError(unusable(path, &error))
        })
    }
}

fn unusable(path: &Path, error: &SetupError) -> String {
    format!("{} is of no use: {error}", path.display())
}

/// A value derived from certificates, derived again whenever the files change.
fn renewed<T: Clone + Send + 'static>(
    files: Files,
    make: impl Fn(&seal::Certificates) -> Result<T, SetupError> + Send + Sync + 'static,
    warn: Warn,
) -> Result<Arc<dyn Fn() -> T + Send + Sync>, CertificateError> {
    let load = move |files: &Files| {
        let made = make(&files.load()?);
        made.map_err(|error| {
            let (cert, key) = (files.cert.display(), files.key.display());
            CertificateError(format!("{cert} and {key} cannot be used together: {error}"))
        })
    };
    // Before the read: later changes cause another read.
    let stamps = files.stamps();
    let loaded = Mutex::new((stamps, load(&files)?));
    Ok(Arc::new(move || {
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = files.stamps();
        if stamps != loaded.0 {
            loaded.0 = stamps;
            match load(&files) {
                Ok(made) => loaded.1 = made,
                Err(error) => {
                    warn(&format!("{error}; the certificates that were read before stay in use"));
                }
            }
        }
        loaded.1.clone()
    }))
}

/// A file's bytes; a private file is read only if no other user may read it.
fn read(path: &Path, what: &str, private: bool) -> Result<Vec<u8>, CertificateError> {
    let shown = path.display();
    let failed =
        |error: io::Error| CertificateError(format!("cannot read the {what} {shown}: {error}"));
    let file = on_disk::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if private && let Some(line) = why_not_private(&metadata, what, path) {
        return Err(CertificateError(line));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|count| count > FILE_BYTES_MAX) {
        let line = format!("the {what} {shown} has more than {FILE_BYTES_MAX} bytes");
        return Err(CertificateError(line));
    }
    Ok(bytes)
}
