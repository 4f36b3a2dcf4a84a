//! Reading the superblock of a store.

use crate::layout::SUPERBLOCK;
use crate::{StoreError, StoreFault, files};
use disk::Superblock;
use std::path::Path;

/// The superblock of a store in a directory.
pub(crate) fn read_superblock(path: &Path) -> Result<Superblock, StoreError> {
    let file = path.join(SUPERBLOCK);
    let bytes = files::read(&file)?;
    // Version first: another version may have another length.
    if let Some(found) = version_of(&bytes).filter(|found| !Superblock::knows(*found)) {
        let known = Superblock::FORMAT_VERSION;
        return Err(StoreError::new(&file, StoreFault::Version { known, found }));
    }
    Superblock::decode(&bytes).map_err(|fault| StoreError::new(&file, StoreFault::Damage(fault)))
}

/// The format version, if the bytes start as a superblock.
fn version_of(bytes: &[u8]) -> Option<u32> {
    let rest = bytes.strip_prefix(b"LANEFSSB")?;
    rest.first_chunk::<4>().map(|number| u32::from_le_bytes(*number))
}
