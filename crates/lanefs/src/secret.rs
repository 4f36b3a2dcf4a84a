//! The file system's secret on disk: where it is looked for, how it is made, when it is refused.
//!
//! Invariant: the secret is never printed, and a file that others may read is never used.

use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use wire::{Credential, Secret};

const SECRET_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 4096;
/// What the secret of an export begins with: it opens that and nothing else.
const EXPORT_PREFIX: &str = "export:";

/// Where the secret is: `flag`, else `$LANEFS_SECRET_FILE`, else the user's configuration folder.
pub(crate) fn path(flag: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = flag {
        return Ok(path.to_path_buf());
    }
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = from("LANEFS_SECRET_FILE") {
        return Ok(PathBuf::from(path));
    }
    let folder = match from("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => match from("HOME") {
            Some(home) => PathBuf::from(home).join(".config"),
            None => bail!(
                "no place for the secret: name one with --secret-file, or \
                           -o secret_file= of a mount (HOME is not set)"
            ),
        },
    };
    Ok(folder.join("lanefs").join("secret"))
}

/// The secret in `path`, which must exist.
pub(crate) fn read(path: &Path) -> Result<Secret> {
    match open(path) {
        Ok(file) => parse(path, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "no secret at {}: copy the server's secret file there (mode 0600), or name one with \
             --secret-file",
            path.display()
        ),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// What a file has that holds this secret.
pub(crate) fn text_of(secret: &Secret) -> String {
    let prefix = match secret.credential() {
        Credential::Store => "",
        Credential::Export => EXPORT_PREFIX,
    };
    format!("{prefix}{}\n", secret.to_hex())
}

/// The store's secret in `path`, made first if there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<Secret> {
    match open(path) {
        Ok(file) => {
            let secret = parse(path, file)?;
            if secret.credential() != Credential::Store {
                bail!("the secret {} is that of an export, not the store's", path.display());
            }
            Ok(secret)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path).with_context(|| format!("cannot make the secret {}", path.display()))?;
            read(path)
        }
        Err(error) => Err(unreadable(path, error)),
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Not blocking, so that a FIFO in its place is refused below instead of waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot read the secret {}", path.display()))
}

fn parse(path: &Path, file: File) -> Result<Secret> {
    let shown = path.display();
    let metadata = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
    if !metadata.is_file() {
        bail!("the secret {shown} is not a regular file");
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o7777;
        bail!("the secret {shown} is open to others (mode {mode:04o}): chmod 600 {shown}");
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.with_context(|| format!("cannot read the secret {shown}"))?;
    let text = text.trim_end();
    let (digits, make): (_, fn(_) -> _) = match text.strip_prefix(EXPORT_PREFIX) {
        Some(digits) => (digits, Secret::of_one_export),
        None => (text, Secret::new),
    };
    let bytes = from_hex(digits);
    let bytes =
        bytes.with_context(|| format!("the secret {shown} is not 64 hexadecimal digits"))?;
    Ok(make(bytes))
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

/// Writes a new secret beside `path` and links it there: whoever comes second finds the first's.
fn make(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut draft_name = path.as_os_str().to_owned();
    draft_name.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft_name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write(&mut file);
    let linked = written.and_then(|()| match std::fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    std::fs::remove_file(&draft)?;
    linked?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn write(file: &mut File) -> io::Result<()> {
    let bytes: [u8; SECRET_BYTES] = library::random()?;
    let mut text = String::with_capacity(2 * SECRET_BYTES + 1);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{byte:02x}");
    }
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
