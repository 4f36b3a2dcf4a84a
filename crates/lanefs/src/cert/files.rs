//! PEM files, and the modes that they are made with.

use crate::atomic_file::{self, AtomicFile};
use anyhow::{Context as _, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Columns of a PEM text.
const LINE_CHARS_MAX: usize = 64;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The files of one certificate.
pub(super) struct Paths {
    pub(super) name: String,
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Paths {
    pub(super) fn new(dir: &Path, name: &str) -> Self {
        let path = |end: &str| dir.join(format!("{name}.{end}"));
        Self { name: name.to_owned(), cert: path("crt"), key: path("key") }
    }
}

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Secrecy {
    Private,
    Public,
}

impl Secrecy {
    const fn mode(self) -> u32 {
        match self {
            Self::Private => 0o600,
            Self::Public => 0o644,
        }
    }
}

/// A directory for keys, if there is none yet.
pub(super) fn make_dir(dir: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("cannot make the directory {}", dir.display()))
}

/// Makes a file that is not there.
pub(super) fn create(path: &Path, text: &str, secrecy: Secrecy) -> Result<()> {
    let made = atomic_file::create(path, text, secrecy.mode());
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Puts a certificate in the place of an existing one. A reader finds the old or the new one, whole.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let replaced = AtomicFile::beside(path, Secrecy::Public.mode()).and_then(|mut draft| {
        draft.write(text)?;
        draft.replace(path)
    });
    replaced.with_context(|| format!("cannot replace {}", path.display()))
}

/// RFC 7468.
pub(super) fn pem(what: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {what}-----\n");
    let digits: Vec<char> = der.chunks(3).flat_map(base64).collect();
    for line in digits.chunks(LINE_CHARS_MAX) {
        text.extend(line);
        text.push('\n');
    }
    text.push_str(&format!("-----END {what}-----\n"));
    text
}

/// Up to three bytes as four characters (RFC 4648).
fn base64(bytes: &[u8]) -> [char; 4] {
    let byte = |index: usize| bytes.get(index).copied().map_or(0, u32::from);
    let number = byte(0) << 16 | byte(1) << 8 | byte(2);
    [18, 12, 6, 0].map(|shift| {
        let is_padding = (18 - shift) / 6 > bytes.len();
        let digit = DIGITS[(number >> shift & 63) as usize];
        if is_padding { '=' } else { char::from(digit) }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let digits: String = bytes.as_bytes().chunks(3).flat_map(base64).collect();
            assert_eq!(digits, text);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let der: Vec<u8> = (0..=255).collect();
        let text = pem("CERTIFICATE", &der);
        assert!(text.lines().all(|line| line.len() <= LINE_CHARS_MAX), "{text}");
        assert_eq!(seal::certificate_der(text.as_bytes()).unwrap(), der);
    }
}
