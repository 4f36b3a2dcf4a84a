//! The file commands: coreutils' behaviour on `lanefs://` paths, through the library.
//!
//! This file holds what they share: connections, complaints and the exit code. Invariant: a
//! command goes on with its next path after a failure, and ends with 1 then.

pub(crate) mod cat;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mv;
pub(crate) mod rm;
mod show;
mod side;
pub(crate) mod stat;

use crate::address::{Place, Url, resolve};
use crate::exit::{Code, Exit, code_of};
use crate::{args, out, secret};
use anyhow::Result;
use library::{ConnectOptions, Identity, Volume};
use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

/// The connections of one command, and whether anything failed.
pub(crate) struct Session {
    command: &'static str,
    access: args::Access,
    volumes: HashMap<String, Volume>,
    failed: bool,
}

impl Session {
    pub(crate) fn new(command: &'static str, access: &args::Access) -> Self {
        Self { command, access: access.clone(), volumes: HashMap::new(), failed: false }
    }

    /// The volume of a URL, connected when it is first needed.
    pub(crate) fn volume(&mut self, url: &Url) -> Result<&mut Volume> {
        // Looked up twice, because a borrow that is returned early lasts for the whole function.
        if !self.volumes.contains_key(&url.address) {
            let volume = self.connect(url)?;
            self.volumes.insert(url.address.clone(), volume);
        }
        let volume = self.volumes.get_mut(&url.address);
        Ok(volume.ok_or_else(|| Exit::new(Code::Unreachable, "no connection"))?)
    }

    fn connect(&self, url: &Url) -> Result<Volume> {
        let secret_file = secret::path(self.access.secret.secret_file.as_deref())?;
        let options = ConnectOptions {
            address: resolve(&url.address)?,
            secret: secret::read(&secret_file)?,
            export: self.access.export.clone(),
            identity: Identity::of_process(),
            connect_timeout: Duration::from_secs(u64::from(self.access.connect_timeout)),
        };
        Ok(Volume::connect(&options)?)
    }

    /// Says what went wrong with one path and goes on, unless the server itself is out of reach.
    pub(crate) fn note<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => match code_of(&error) {
                Code::Unreachable | Code::Secret => Err(error),
                Code::Failed | Code::Usage | Code::CannotMount => {
                    self.complain(&format!("{what}: {}", reason(&error)));
                    Ok(None)
                }
            },
        }
    }

    /// Says one line; the command ends with 1.
    pub(crate) fn complain(&mut self, line: &str) {
        out::complain(&format!("lanefs {}: {line}", self.command));
        self.failed = true;
    }

    /// What the command ends with.
    pub(crate) fn end(mut self) -> Result<()> {
        for (address, mut volume) in std::mem::take(&mut self.volumes) {
            let reports = volume.take_reports();
            reports.iter().for_each(|report| self.complain(&report.to_string()));
            // What was done is durable when the command ends.
            let left = volume.leave().map_err(anyhow::Error::from);
            self.note(&address, left)?;
        }
        if self.failed { Err(Exit::said(Code::Failed).into()) } else { Ok(()) }
    }
}

/// An error without the path that its reader has before his eyes already.
fn reason(error: &anyhow::Error) -> String {
    if let Some(status) = error.downcast_ref::<library::Error>().and_then(library::Error::status) {
        return status.text().to_owned();
    }
    match error.downcast_ref::<std::io::Error>() {
        Some(error) => local_reason(error),
        None => format!("{error:#}"),
    }
}

/// A local error in the words of the operating system.
fn local_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

/// Reads arguments that must all be on a server.
pub(crate) fn urls(paths: &[OsString]) -> Result<Vec<Url>> {
    paths.iter().map(url).collect()
}

fn url(path: &OsString) -> Result<Url> {
    match Place::parse(path)? {
        Place::Remote(url) => Ok(url),
        Place::Local(path) => {
            let line = format!("{} is no lanefs://HOST:PORT/path", path.display());
            Err(Exit::new(Code::Usage, line).into())
        }
    }
}
