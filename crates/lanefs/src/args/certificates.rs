//! Certificates instead of the secret, on the command line of both ends.

use crate::exit::Exit;
use anyhow::{Result, bail};
use clap::Args;
use library::certificates::Files;
use std::path::PathBuf;

use super::SealArg;

/// All three, or none.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct CertArg {
    /// Certificate to show instead of a secret (PEM, and behind it those that lead to the CA); all
    /// connections are under TLS then. `lanefs cert` makes them
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca", conflicts_with = "plain")]
    pub(crate) cert: Option<PathBuf>,
    /// Its private key (PEM, mode 0600)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The CA that has signed the other end's certificate (PEM; it may be several)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) ca: Option<PathBuf>,
}

impl CertArg {
    /// Where they are, if there shall be any.
    pub(crate) fn files(&self, seal: SealArg) -> Result<Option<Files>> {
        match self {
            Self { cert: None, key: None, ca: None } => Ok(None),
            Self { cert: Some(_), key: Some(_), ca: Some(_) } if seal.plain => {
                bail!(Exit::usage("certificates need TLS: leave plain away"))
            }
            Self { cert: Some(cert), key: Some(key), ca: Some(ca) } => {
                // A process in the background is elsewhere.
                let full = |path: &PathBuf| std::path::absolute(path);
                Ok(Some(Files { cert: full(cert)?, key: full(key)?, ca: full(ca)? }))
            }
            Self { .. } => bail!(Exit::usage("cert, key and ca are needed together")),
        }
    }
}

/// Such files as arguments.
pub(crate) fn texts(files: &Files) -> impl Iterator<Item = std::ffi::OsString> {
    let Files { cert, key, ca } = files;
    [("--cert", cert), ("--key", key), ("--ca", ca)]
        .into_iter()
        .flat_map(|(name, path)| [name.into(), path.clone().into_os_string()])
}
