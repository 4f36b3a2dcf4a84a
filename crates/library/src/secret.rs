//! The file system's secret on disk: where it is looked for, and when it is refused. A file has one secret, or
//! two while it is changed: the current one first, then the earlier one.
//!
//! Invariant: the secret is never printed, and a file that others may read is never used.

use crate::on_disk;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use wire::{Credential, Secret, Secrets};

const SECRET_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 4096;
/// What the secret of an export begins with: it opens that and nothing else.
const EXPORT_PREFIX: &str = "export:";

/// Why there is no secret, in a line for people that says what to do.
#[derive(Debug)]
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

    /// [`io::ErrorKind::NotFound`] where there is no such file.
    #[must_use]
    pub const fn kind(&self) -> io::ErrorKind {
        self.kind
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for SecretError {}

/// Where the secret is: `wanted`, else `$LANEFS_SECRET_FILE`, else `lanefs/secret` in the user's
/// configuration folder (`$XDG_CONFIG_HOME`, else `~/.config`).
///
/// # Errors
/// When none of these says where.
pub fn path(wanted: Option<&Path>) -> Result<PathBuf, SecretError> {
    if let Some(path) = wanted {
        return Ok(path.to_path_buf());
    }
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = from("LANEFS_SECRET_FILE") {
        return Ok(PathBuf::from(path));
    }
    let folder = match (from("XDG_CONFIG_HOME"), from("HOME")) {
        (Some(folder), _) => PathBuf::from(folder),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => {
            return Err(SecretError::new(
                "no place for the secret: name one with --secret-file, or -o secret_file= of a \
                 mount (HOME is not set)"
                    .to_owned(),
            ));
        }
    };
    Ok(folder.join("lanefs").join("secret"))
}

/// The secret in `path`, a file that its owner alone may read and that has what [`text_of`] says; of two the
/// current one.
///
/// # Errors
/// As [`read_all`].
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    Ok(read_all(path)?.current)
}

/// All secrets in such a file.
///
/// # Errors
/// With [`SecretError::kind`] `NotFound` when there is none; when it cannot be read, is no regular
/// file, is open to others, or is no secret.
pub fn read_all(path: &Path) -> Result<Secrets, SecretError> {
    read_open(path, &open(path)?)
}

/// The file of a secret, open for reading.
///
/// # Errors
/// With [`SecretError::kind`] `NotFound` when there is none; when it cannot be opened.
pub fn open(path: &Path) -> Result<File, SecretError> {
    let shown = path.display();
    match on_disk::open(path) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SecretError {
            line: format!(
                "no secret at {shown}: copy the server's secret file there (mode 0600), or name \
                 one with --secret-file"
            ),
            kind: io::ErrorKind::NotFound,
        }),
        Err(error) => Err(SecretError::of(&error, format_args!("cannot read the secret {shown}"))),
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

/// One secret, or two different ones that open the same, the current one first.
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

/// Why something that nobody else may know is not read from a file.
pub(crate) fn why_not_private(metadata: &Metadata, what: &str, path: &Path) -> Option<String> {
    let shown = path.display();
    if !metadata.is_file() {
        return Some(format!("the {what} {shown} is not a regular file"));
    }
    let mode = metadata.mode() & 0o7777;
    let line = format!("the {what} {shown} is open to others (mode {mode:04o}): chmod 600 {shown}");
    (mode & 0o077 != 0).then_some(line)
}

/// What a file has that holds this secret: 64 hexadecimal digits, behind `export:` if it opens one export
/// and nothing else.
#[must_use]
pub fn text_of(secret: &Secret) -> String {
    let prefix = match secret.credential() {
        Credential::Store => "",
        Credential::Export => EXPORT_PREFIX,
        // Whoever has a certificate keeps no secret.
        Credential::Certificate => return String::new(),
    };
    format!("{prefix}{}\n", secret.to_hex())
}

/// What a file has that holds these.
#[must_use]
pub fn text_of_all(secrets: &Secrets) -> String {
    secrets.iter().map(text_of).collect()
}

/// The secret that [`text_of`] has written.
#[must_use]
pub fn of_text(text: &str) -> Option<Secret> {
    let text = text.trim_end();
    match text.strip_prefix(EXPORT_PREFIX) {
        Some(digits) => from_hex(digits).map(Secret::of_one_export),
        None => from_hex(text).map(Secret::new),
    }
}

fn from_hex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * SECRET_BYTES {
        return None;
    }
    let mut bytes = [0; SECRET_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let mut value = 0;
        for digit in pair {
            value = value * 16 + char::from(*digit).to_digit(16)?;
        }
        *byte = u8::try_from(value).ok()?;
    }
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
    fn a_file_has_one_secret_or_two_that_open_the_same() {
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
