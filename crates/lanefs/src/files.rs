//! The file commands: coreutils' behaviour on `lanefs://` paths, through the library.
//!
//! This file has their common parts: connections, error messages and the exit code. Invariant: after a
//! failure a command continues with its next path, and then ends with 1.

pub(crate) mod bounds;
pub(crate) mod cat;
pub(crate) mod chmod;
pub(crate) mod chown;
mod conditions;
mod copying;
pub(crate) mod cp;
mod denied;
pub(crate) mod df;
pub(crate) mod du;
pub(crate) mod find;
pub(crate) mod json;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod mkdir;
mod mode;
pub(crate) mod mv;
mod parts;
mod pipes;
pub(crate) mod rm;
mod show;
mod side;
pub(crate) mod stat;
pub(crate) mod sync;
mod target;
pub(crate) mod tree;

pub(crate) use show::human;

use crate::address::{Place, Url, resolve};
use crate::exit::{Code, Exit, code_of};
use crate::login::Login;
use crate::{args, out};
use anyhow::Result;
use library::{Attr, ConnectOptions, DirEntry, DriverChoice, FileKind, Identity, Volume};
use std::collections::HashMap;
use std::ffi::OsString;

/// Connects to a server.
fn connect(access: &args::Access, address: &str) -> Result<Volume> {
    let secret_file = access.secret.secret_file.as_deref();
    let shown = (access.seal, &access.certificates);
    let Login { secrets, secret_file, certificates, sealing } =
        Login::read(address, secret_file, shown)?;
    let options = ConnectOptions {
        address: resolve(address)?,
        secret: secrets.current,
        secret_file,
        certificates,
        export: access.export.clone(),
        purpose: library::Purpose::Use,
        identity: Identity::of_process(),
        connect_timeout: access.connect_timeout,
        driver: DriverChoice::Auto,
        sealing,
    };
    Ok(Volume::connect(&options)?)
}

/// The connections of one command, and whether anything failed.
pub(crate) struct Session {
    command: &'static str,
    access: args::Access,
    /// Of this server only.
    access_to: Option<(String, args::Access)>,
    volumes: HashMap<String, Volume>,
    failed: bool,
    /// A refusal for want of rights was explained.
    explained: bool,
}

impl Session {
    pub(crate) fn new(command: &'static str, access: &args::Access) -> Self {
        Self {
            command,
            access: access.clone(),
            access_to: None,
            volumes: HashMap::new(),
            failed: false,
            explained: false,
        }
    }

    /// Uses another secret or export for one server.
    pub(crate) fn go_to(&mut self, address: &str, access: args::Access) {
        self.access_to = Some((address.to_owned(), access));
    }

    /// The volume of a URL, connected when it is first needed.
    pub(crate) fn volume(&mut self, url: &Url) -> Result<&mut Volume> {
        // Looked up twice, because a borrow that is returned early lasts for the whole function.
        if !self.volumes.contains_key(&url.address) {
            let volume = connect(&self.access_to(&url.address), &url.address)?;
            self.volumes.insert(url.address.clone(), volume);
        }
        let volume = self.volumes.get_mut(&url.address);
        Ok(volume.ok_or_else(|| Exit::new(Code::Unreachable, "no connection"))?)
    }

    /// How a server is used.
    fn access_to(&self, address: &str) -> args::Access {
        match &self.access_to {
            Some((to, access)) if to == address => access.clone(),
            Some(_) | None => self.access.clone(),
        }
    }

    /// Reports an error of one path and continues, unless the server is unreachable.
    pub(crate) fn report<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => match code_of(&error) {
                Code::Unreachable | Code::Secret => Err(error),
                Code::Failed
                | Code::Usage
                | Code::CannotMount
                | Code::Repaired
                | Code::Mendable
                | Code::Damaged
                | Code::Warnings
                | Code::Errors => {
                    let why = self.why_denied(&error).unwrap_or_default();
                    self.report_error(&format!("{what}: {}{why}", reason(&error)));
                    Ok(None)
                }
            },
        }
    }

    /// What is said of the first refusal for want of rights, where there is one server.
    fn why_denied(&mut self, error: &anyhow::Error) -> Option<String> {
        let error = error.downcast_ref::<library::Error>()?;
        let mut volumes = self.volumes.iter_mut();
        let (Some((address, volume)), None) = (volumes.next(), volumes.next()) else { return None };
        let export = match &self.access_to {
            Some((to, access)) if to == address => &access.export,
            Some(_) | None => &self.access.export,
        };
        if self.explained {
            return None;
        }
        let why = denied::explain(volume, error, export)?;
        self.explained = true;
        Some(format!(": {why}"))
    }

    /// Says one line; the command ends with 1.
    pub(crate) fn report_error(&mut self, line: &str) {
        out::print_error_line(&format!("lanefs {}: {line}", self.command));
        self.failed = true;
    }

    /// All entries of a directory, in the server's order.
    pub(crate) fn list(&mut self, url: &Url) -> Result<Vec<DirEntry>> {
        let volume = self.volume(url)?;
        let mut dir = volume.read_dir(&url.path)?;
        let mut entries = Vec::new();
        loop {
            let piece = volume.next_entries(&mut dir)?;
            if piece.is_empty() {
                return Ok(entries);
            }
            entries.extend(piece);
        }
    }

    /// The target of a symbolic link; `None` for other kinds and on errors.
    pub(crate) fn link_target(&mut self, url: &Url, attr: &Attr) -> Option<OsString> {
        if attr.kind != FileKind::Symlink {
            return None;
        }
        self.volume(url).ok()?.readlink(&url.path).ok()
    }

    /// Applies an operation to a file and, if requested, recursively.
    pub(crate) fn each(
        &mut self,
        url: &Url,
        attr: &Attr,
        recursive: bool,
        act: &mut impl FnMut(&mut Self, &Url, &Attr) -> Result<()>,
    ) -> Result<()> {
        act(self, url, attr)?;
        if !recursive || attr.kind != FileKind::Directory {
            return Ok(());
        }
        let listed = self.list(url);
        let what = format!("cannot read directory '{}'", url.text());
        for entry in self.report(&what, listed)?.unwrap_or_default() {
            self.each(&url.at(url.path.join(&entry.name)), &entry.attr, recursive, act)?;
        }
        Ok(())
    }

    /// What the command ends with.
    pub(crate) fn end(mut self) -> Result<()> {
        for (address, mut volume) in std::mem::take(&mut self.volumes) {
            let reports = volume.take_reports();
            reports.iter().for_each(|report| self.report_error(&report.to_string()));
            // What was done is durable when the command ends.
            let left = volume.leave().map_err(anyhow::Error::from);
            self.report(&address, left)?;
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
            Err(Exit::usage(line).into())
        }
    }
}
