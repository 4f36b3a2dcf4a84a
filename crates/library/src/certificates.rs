//! Certificates on disk: read, refused where others may read the key, and read again when they were renewed.
//!
//! Invariants: no key is printed, and none that others may read is used; files that are no good any more
//! change nothing, for what was read before stays in use.

use crate::on_disk::{self, Stamp};
use crate::secret::why_not_private;
use ring::{ClientSeals, ServerSeals};
use seal::{PemPart, Pem, SetupError};
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest file that is read: a bundle of many roots.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why certificates are of no use, in a line for people that says what to do.
#[derive(Debug)]
pub struct CertificateError(String);

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateError {}

/// Where certificates are: PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// Our certificate, and behind it those that lead to the other end's root.
    pub cert: PathBuf,
    /// Its key, which its owner alone may read.
    pub key: PathBuf,
    /// Who signs the other end's certificates.
    pub ca: PathBuf,
}

/// What people are told when renewed files are of no use.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// What a client shows and wants to see, instead of a secret.
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
    /// Those in these files. The server's has to be for `server`, the name or address that it is
    /// reached by, without a port. They are looked at again at each new connection.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    pub fn read(files: Files, server: &str, warn: Warn) -> Result<Self, CertificateError> {
        let server = server.to_owned();
        let make =
            move |found: &seal::Certificates| seal::Client::with_certificates(found, &server);
        Ok(Self { seals: renewed(files, make, warn)? })
    }

    /// What connections are put under TLS with.
    #[must_use]
    pub fn seals(&self) -> ClientSeals {
        Arc::clone(&self.seals)
    }
}

/// What a server with certificates puts connections under TLS with. `secrets`: clients that have the
/// secret are served, too.
///
/// # Errors
/// Which file is of no use, and why.
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
/// When there is none that can be read.
pub fn read_certificate(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let text = read(path, "certificate", false)?;
    seal::certificate_der(&text).map_err(|error| CertificateError(of_no_use(path, &error)))
}

/// The first private key in a PEM file, as DER.
///
/// # Errors
/// When there is none that can be read, or others may read it.
pub fn read_key(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let text = read(path, "key", true)?;
    seal::key_der(&text).map_err(|error| CertificateError(of_no_use(path, &error)))
}

impl Files {
    fn stamps(&self) -> [Option<Stamp>; 3] {
        [&self.cert, &self.key, &self.ca].map(|path| Stamp::of(path))
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
            CertificateError(of_no_use(path, &error))
        })
    }
}

fn of_no_use(path: &Path, error: &SetupError) -> String {
    format!("{} is of no use: {error}", path.display())
}

/// What is made of certificates, now and again whenever the files are others.
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
    // Looked at before they are read: what changes meanwhile is read again.
    let stamps = files.stamps();
    let kept = Mutex::new((stamps, load(&files)?));
    Ok(Arc::new(move || {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = files.stamps();
        if stamps != kept.0 {
            kept.0 = stamps;
            match load(&files) {
                Ok(made) => kept.1 = made,
                Err(error) => {
                    warn(&format!("{error}; the certificates that were read before stay in use"));
                }
            }
        }
        kept.1.clone()
    }))
}

/// A file's bytes; of a private one only if nobody else may read it.
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
