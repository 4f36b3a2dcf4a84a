//! Two small files a server reads at every start: the key its redo tokens are signed with, and what
//! it must know of the last recovery that was completed.

use crate::{StoreError, StoreFault, files};
use disk::{Fault, Share};
use std::path::{Path, PathBuf};

/// Name of the key's file.
pub(crate) const REDO_KEY: &str = "redo-key";
/// Name of the file about the last recovery.
pub(crate) const SHARE: &str = "share";

/// What is kept of recoveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The weakest sharing mode that was in force since one was completed.
    pub share: Share,
    /// The boot that completed it; 0: none.
    pub boot_id: u64,
}

/// The key; made if there is none.
pub(crate) fn redo_key(path: &Path) -> Result<[u8; 32], StoreError> {
    let file = path.join(REDO_KEY);
    if !file.exists() {
        let mut key = [0; 32];
        random(path, &mut key)?;
        files::place(&file, &key)?;
        return Ok(key);
    }
    files::read(&file)?.try_into().map_err(|found: Vec<u8>| {
        let fault = Fault::new("the redo key is not 32 bytes", 0);
        let found_bytes = u64::try_from(found.len()).unwrap_or(u64::MAX);
        StoreError::new(&file, StoreFault::Damage(fault.numbers(32_u64, found_bytes)))
    })
}

/// What is kept of recoveries; none in a store that was never served.
pub(crate) fn recovered(path: &Path) -> Result<Option<Recovered>, StoreError> {
    let file = path.join(SHARE);
    if !file.exists() {
        return Ok(None);
    }
    let bytes = files::read(&file)?;
    let read = |text: &str| {
        let (share, boot_id) = text.trim_end().split_once(' ')?;
        let (share, boot_id) = (Share::from_text(share)?, boot_id.parse().ok()?);
        Some(Recovered { share, boot_id })
    };
    let recovered = std::str::from_utf8(&bytes).ok().and_then(read);
    let damage = || {
        let fault = Fault::new("not a sharing mode and a boot", 0);
        StoreError::new(&file, StoreFault::Damage(fault))
    };
    recovered.map(Some).ok_or_else(damage)
}

/// Where a store remembers what a recovery must know of those before.
#[derive(Clone, Debug)]
pub struct RecoveredFile(PathBuf);

impl RecoveredFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.join(SHARE))
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be written.
    pub fn set(&self, recovered: Recovered) -> Result<(), StoreError> {
        let Recovered { share, boot_id } = recovered;
        files::place(&self.0, format!("{} {boot_id}\n", share.text()).as_bytes()).map(drop)
    }
}

/// Random bytes for something in the store.
pub(crate) fn random(path: &Path, bytes: &mut [u8]) -> Result<(), StoreError> {
    let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(count) => assert!(count == bytes.len(), "few random bytes come in one piece"),
        Err(errno) => return Err(StoreError::io("get random bytes for", path, errno)),
    }
    Ok(())
}
