//! Two small files a server reads at every start: the key its redo tokens are signed with, and the
//! weakest sharing mode since the last recovery that was completed.

use crate::{StoreError, StoreFault, files};
use disk::{Fault, Share};
use std::path::{Path, PathBuf};

/// Name of the key's file.
pub(crate) const REDO_KEY: &str = "redo-key";
/// Name of the mode's file.
pub(crate) const SHARE: &str = "share";

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

/// The weakest mode; none in a store where no recovery was completed yet.
pub(crate) fn share(path: &Path) -> Result<Option<Share>, StoreError> {
    let file = path.join(SHARE);
    if !file.exists() {
        return Ok(None);
    }
    let bytes = files::read(&file)?;
    let share = std::str::from_utf8(&bytes).ok().and_then(|text| Share::from_text(text.trim()));
    let damage = || {
        let fault = Fault::new("the sharing mode is none that exists", 0);
        StoreError::new(&file, StoreFault::Damage(fault))
    };
    share.map(Some).ok_or_else(damage)
}

/// Where a store remembers the weakest sharing mode there may be changes of.
#[derive(Clone, Debug)]
pub struct ShareFile(PathBuf);

impl ShareFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.join(SHARE))
    }

    /// Writes the mode, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be written.
    pub fn set(&self, share: Share) -> Result<(), StoreError> {
        files::place(&self.0, format!("{}\n", share.text()).as_bytes()).map(drop)
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
