//! How a command gets in at a server: by certificate if it names one, else by the secret.

use crate::args::{CertArg, SealArg};
use crate::exit::{Code, Exit};
use crate::{address, out, secret};
use anyhow::{Result, bail};
use library::{Certificates, Sealing, Secret};
use std::path::Path;
use std::sync::Arc;

/// What a client shows.
pub(crate) struct Login {
    pub(crate) secret: Secret,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) sealing: Sealing,
}

impl Login {
    /// What is shown to the server at this address, as people wrote it.
    pub(crate) fn read(
        address: &str,
        secret_file: Option<&Path>,
        (seal, certificates): (SealArg, &CertArg),
    ) -> Result<Self> {
        let Some(files) = certificates.files(seal)? else {
            let secret = secret::read(&secret::path(secret_file)?)?;
            return Ok(Self { secret, certificates: None, sealing: seal.sealing() });
        };
        if secret_file.is_some() {
            let line = "a certificate stands for the secret: name one of them, not both";
            bail!(Exit::new(Code::Usage, line));
        }
        let warn = Arc::new(|line: &str| out::complain(&format!("lanefs: {line}")));
        let certificates = Certificates::read(files, address::host(address), warn)?;
        Ok(Self {
            secret: Secret::certified(),
            certificates: Some(certificates),
            sealing: Sealing::All,
        })
    }
}
