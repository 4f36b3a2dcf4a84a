//! The file system's secret on disk: its places, and when it is refused. A file has one secret, or
//! two while it is being changed: the current one first, then the earlier one.
//!
//! Invariant: the secret is never printed, and a file that others may read is never used.

use crate::on_disk;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;
use wire::{Credential, Secret, Secrets};

const SECRET_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 4096;
/// The prefix of an export's secret, which grants access to that export only.
const EXPORT_PREFIX: &str = "export:";

/// Why there is no secret, as a message with the remedy.
#[derive(Error, Debug)]
#[error("{line}")]
pub struct SecretError {
    line: String,
    kind: io::ErrorKind,
}

impl SecretError {
    fn new(line: String) -> Self {
        Self { line, kind: io::ErrorKind::InvalidData }
    }

    fn of(error: &io::Error, what: fmt::Arguments<'_>) -> Self {
        Self { line: format!("{what}: {error}"), kind: error.kind() }
    }

    /// [`io::ErrorKind::NotFound`] without a file.
    #[must_use]
    pub const fn kind(&self) -> io::ErrorKind {
        self.kind
    }
}

/// The host's secret, for root's mounts and processes.
const OF_HOST: &str = "/etc/lanefs/secret";

/// The places of a secret.
struct Places {
    /// In the order of search; at least one.
    paths: Vec<PathBuf>,
    /// The place was named by an option or the environment.
    named: bool,
}

impl Places {
    fn of(wanted: Option<&Path>) -> Self {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = wanted.map(Path::to_path_buf);
        if let Some(path) = named.or_else(|| from("LANEFS_SECRET_FILE").map(PathBuf::from)) {
            return Self { paths: vec![path], named: true };
        }
        // Without $HOME the password database has it.
        let home = || std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let folder = from("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = folder.or_else(|| Some(home()?.join(".config")));
        let of_user = folder.map(|folder| folder.join("lanefs").join("secret"));
        let paths = of_user.into_iter().chain([PathBuf::from(OF_HOST)]).collect();
        Self { paths, named: false }
    }

    /// The first place with a file that this user may open.
    fn find(&self) -> Option<PathBuf> {
        let found = self.paths.iter().find(|path| match path.symlink_metadata() {
            Ok(_) if *path == Path::new(OF_HOST) => on_disk::open(path).is_ok(),
            found => found.is_ok(),
        });
        found.cloned()
    }

    /// The error without a file.
    fn none(&self) -> SecretError {
        let shown = |path: &PathBuf| {
            let opened = on_disk::open(path);
            let closed = opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
            let note = if closed { " (which this user cannot read)" } else { "" };
            format!("{}{note}", path.display())
        };
        let shown: Vec<String> = self.paths.iter().map(shown).collect();
        let line = format!(
            "no secret at {}: copy the server's secret file there (mode 0600), or name one with \
             --secret-file, -o secret_file= of a mount, or $LANEFS_SECRET_FILE",
            shown.join(", nor at ")
        );
        SecretError { line, kind: io::ErrorKind::NotFound }
    }
}

/// The path of the secret: `wanted`, else `$LANEFS_SECRET_FILE`, else the first existing one of
/// `lanefs/secret` in the user's configuration folder (`$XDG_CONFIG_HOME`, else `.config` in
/// `$HOME`, else in the home directory of the password database) and `/etc/lanefs/secret`. A named
/// one is not checked.
///
/// # Errors
/// With [`SecretError::kind`] `NotFound` when no place has a file; the error names the places.
pub fn path(wanted: Option<&Path>) -> Result<PathBuf, SecretError> {
    let mut places = Places::of(wanted);
    if places.named {
        return Ok(places.paths.remove(0));
    }
    places.find().ok_or_else(|| places.none())
}

/// The same for a server: without a file, the first place, for a new one.
#[must_use]
pub fn path_or_new(wanted: Option<&Path>) -> PathBuf {
    let mut places = Places::of(wanted);
    let found = if places.named { None } else { places.find() };
    found.unwrap_or_else(|| places.paths.remove(0))
}

/// The current secret in `path`, a file in the format of [`text_of`] that only its owner may read.
///
/// # Errors
/// As [`read_all`].
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    Ok(read_all(path)?.current)
}

/// All secrets in such a file.
///
/// # Errors
/// With [`SecretError::kind`] `NotFound` without a file; when it cannot be read, is no regular
/// file, is open to others, or has no valid secret.
pub fn read_all(path: &Path) -> Result<Secrets, SecretError> {
    read_open(path, &open(path)?)
}

/// Opens the file of a secret for reading.
///
/// # Errors
/// With [`SecretError::kind`] `NotFound` without a file; when it cannot be opened.
pub fn open(path: &Path) -> Result<File, SecretError> {
    match on_disk::open(path) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Places { paths: vec![path.to_path_buf()], named: true }.none())
        }
        Err(error) => {
            let shown = path.display();
            Err(SecretError::of(&error, format_args!("cannot read the secret {shown}")))
        }
    }
}

/// All secrets in a file that was opened at `path` and not read yet.
///
/// # Errors
/// As [`read_all`].
pub fn read_open(path: &Path, file: &File) -> Result<Secrets, SecretError> {
    let shown = path.display();
    let looked_at = file.metadata();
    let metadata = looked_at
        .map_err(|error| SecretError::of(&error, format_args!("cannot look at {shown}")))?;
    if let Some(line) = why_not_private(&metadata, "secret", path) {
        return Err(SecretError::new(line));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| SecretError::of(&error, format_args!("cannot read the secret {shown}")))?;
    of_lines(&text).ok_or_else(|| {
        SecretError::new(format!(
            "the secret {shown} is not 64 hexadecimal digits, nor two different lines of them"
        ))
    })
}

/// One secret, or two different ones for the same credential, the current one first.
fn of_lines(text: &str) -> Option<Secrets> {
    let mut lines = text.trim_end().lines();
    let current = of_text(lines.next()?)?;
    let earlier = lines.next().map(of_text);
    match earlier {
        None => Some(Secrets::from(current)),
        Some(Some(earlier)) if lines.next().is_none() => {
            let fits = earlier != current && earlier.credential() == current.credential();
            fits.then_some(Secrets { current, earlier: Some(earlier) })
        }
        Some(_) => None,
    }
}

/// Why a file is not private, if it is not.
pub(crate) fn why_not_private(metadata: &Metadata, what: &str, path: &Path) -> Option<String> {
    let shown = path.display();
    if !metadata.is_file() {
        return Some(format!("the {what} {shown} is not a regular file"));
    }
    let mode = metadata.mode() & 0o7777;
    let line = format!("the {what} {shown} is open to others (mode {mode:04o}): chmod 600 {shown}");
    (mode & 0o077 != 0).then_some(line)
}

/// The contents of a secret's file: 64 hexadecimal digits, with the prefix `export:` for an
/// export's secret.
#[must_use]
pub fn text_of(secret: &Secret) -> String {
    let prefix = match secret.credential() {
        Credential::Store => "",
        Credential::Export => EXPORT_PREFIX,
        // A client with a certificate has no secret file.
        Credential::Certificate => return String::new(),
    };
    format!("{prefix}{}\n", secret.to_hex())
}

/// The contents of a file with these secrets.
#[must_use]
pub fn text_of_all(secrets: &Secrets) -> String {
    secrets.iter().map(text_of).collect()
}

/// Parses the contents that [`text_of`] writes.
#[must_use]
pub fn of_text(text: &str) -> Option<Secret> {
    let text = text.trim_end();
    match text.strip_prefix(EXPORT_PREFIX) {
        Some(digits) => from_hex(digits).map(Secret::of_one_export),
        None => from_hex(text).map(Secret::new),
    }
}

fn from_hex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_secret_is_64_hexadecimal_digits() {
        let text = format!("0fF0{}", "0".repeat(60));
        assert_eq!(from_hex(&text).unwrap()[..2], [0x0f, 0xf0]);
        assert!(from_hex(&"0g".repeat(32)).is_none());
        assert!(from_hex(&"0".repeat(63)).is_none());
    }

    #[test]
    fn a_file_has_one_secret_or_two_for_the_same_credential() {
        let [one, two, three] = [1, 2, 3].map(|byte| Secret::new([byte; 32]));
        let both = Secrets { current: one, earlier: Some(two) };
        assert_eq!(of_lines(&text_of(&one)), Some(Secrets::from(one)));
        assert_eq!(of_lines(&text_of_all(&both)), Some(both));
        assert_eq!(of_lines(text_of_all(&both).trim_end()), Some(both), "without the last newline");
        let [current, earlier] = [one, two].map(|secret| secret.of_export(b"a", 1));
        let exports = Secrets { current, earlier: Some(earlier) };
        assert_eq!(of_lines(&text_of_all(&exports)), Some(exports));
        let [one, two, three] = [one, two, three].map(|secret| text_of(&secret));
        let export = text_of(&exports.current);
        let wrong = [
            String::new(),
            "\n".to_owned(),
            format!("{one}{two}{three}"),
            format!("{one}\n{two}"),
            format!("{one}{one}"),
            format!("{one}{export}"),
            format!("{one}x"),
        ];
        for text in wrong {
            assert_eq!(of_lines(&text), None, "{text:?}");
        }
    }
}
