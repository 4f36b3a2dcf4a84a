//! The key of the file system: redo tokens are signed with keys that follow from it, and clients are
//! known under ids that do.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "LANEFSFK"
//!      8     4 zeros
//!     12     4 crc32c over these 64 bytes, this field as 0
//!     16    16 fs
//!     32    32 the key
//! ```
//! With another key no client could resume its session or replay changes after a crash; so the file
//! names the file system.

use crate::{StoreError, StoreFault, files};
use disk::Fault;
use std::path::Path;
use wire::FsUuid;

/// Name of the key's file.
pub(crate) const FS_KEY: &str = "fs-key";

const FILE_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"LANEFSFK";

/// Writes the key of a file system.
pub(crate) fn make(path: &Path, fs: FsUuid, key: &[u8; 32]) -> Result<(), StoreError> {
    files::place(&path.join(FS_KEY), &encode(fs, key)).map(drop)
}

/// Reads a key whose file system nothing else names yet.
pub(crate) fn read_any(path: &Path) -> Result<(FsUuid, [u8; 32]), StoreError> {
    let file = path.join(FS_KEY);
    let bytes = files::read(&file)?;
    let fs = bytes.first_chunk().map(fs_of).map(FsUuid).unwrap_or_default();
    let key = decode(fs, &bytes);
    Ok((fs, key.map_err(|fault| StoreError::new(&file, StoreFault::Damage(fault)))?))
}

/// Reads the key.
pub(crate) fn read(path: &Path, fs: FsUuid) -> Result<[u8; 32], StoreError> {
    let file = path.join(FS_KEY);
    if !file.exists() {
        return Err(StoreError::new(&file, StoreFault::Missing));
    }
    let bytes = files::read(&file)?;
    decode(fs, &bytes).map_err(|fault| StoreError::new(&file, StoreFault::Damage(fault)))
}

fn encode(fs: FsUuid, key: &[u8; 32]) -> [u8; FILE_BYTES] {
    let mut bytes = [0; FILE_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[16..32].copy_from_slice(&fs.0);
    bytes[32..].copy_from_slice(key);
    let sum = wire::crc32c(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(fs: FsUuid, bytes: &[u8]) -> Result<[u8; 32], Fault> {
    let length = || {
        let found_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Fault::new("a file system's key of the wrong length", 0).numbers(64_u64, found_bytes)
    };
    let bytes: &[u8; FILE_BYTES] = bytes.try_into().map_err(|_| length())?;
    let mut key = [0; 32];
    key.copy_from_slice(&bytes[32..]);
    if &bytes[..8] != MAGIC {
        return Err(Fault::new("not a file system's key", 0));
    }
    if bytes[16..32] != fs.0 && encode(FsUuid(fs_of(bytes)), &key) == *bytes {
        return Err(Fault::new("the key of another file system", 16));
    }
    if encode(fs, &key) != *bytes {
        return Err(Fault::new("the checksum of the file system's key does not fit", 12));
    }
    Ok(key)
}

fn fs_of(bytes: &[u8; FILE_BYTES]) -> [u8; 16] {
    let mut fs = [0; 16];
    fs.copy_from_slice(&bytes[16..32]);
    fs
}

/// Random bytes for a part of the store.
pub(crate) fn random(path: &Path, bytes: &mut [u8]) -> Result<(), StoreError> {
    let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(count) => assert!(count == bytes.len(), "few random bytes come in one piece"),
        Err(errno) => return Err(StoreError::io("get random bytes for", path, errno)),
    }
    Ok(())
}
