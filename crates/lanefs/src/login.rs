//! Authentication of a command to a server: by certificate if one is named, else by the secret.

use crate::args::{CertArg, SealArg};
use crate::exit::Exit;
use crate::{address, log, secret};
use anyhow::{Result, bail};
use library::{Certificates, Sealing, Secret};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Secrets;

/// What a client shows.
pub(crate) struct Login {
    pub(crate) secrets: Secrets,
    /// Where the secrets were read, absolute; none with a certificate.
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) sealing: Sealing,
}

impl Login {
    /// The credential for the server at this address, in text form.
    pub(crate) fn read(
        address: &str,
        secret_file: Option<&Path>,
        (seal, certificates): (SealArg, &CertArg),
    ) -> Result<Self> {
        let Some(files) = certificates.files(seal)? else {
            let secret_file = std::path::absolute(secret::path(secret_file)?)?;
            return Ok(Self {
                secrets: secret::read_all(&secret_file)?,
                secret_file: Some(secret_file),
                certificates: None,
                sealing: seal.sealing(),
            });
        };
        if secret_file.is_some() {
            let line = "a certificate stands for the secret: name one of them, not both";
            bail!(Exit::usage(line));
        }
        let warn = Arc::new(|line: &str| log::report(line));
        let certificates = Certificates::read(files, address::host(address), warn)?;
        Ok(Self {
            secrets: Secret::certified().into(),
            secret_file: None,
            certificates: Some(certificates),
            sealing: Sealing::All,
        })
    }
}
