//! Each value is stored with the CRC-32C of its key and itself.

use crate::damage::Damage;
use wire::Crc32c;

const SUM_BYTES: usize = 4;

fn sum(key: &[u8], value: &[u8]) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(key);
    sum.update(value);
    sum.sum()
}

/// The stored value, in a reused buffer.
pub(crate) fn seal<'o>(key: &[u8], value: &[u8], out: &'o mut Vec<u8>) -> &'o [u8] {
    out.clear();
    out.extend_from_slice(value);
    out.extend_from_slice(&sum(key, value).to_le_bytes());
    out
}

/// The value in a stored value, if its checksum is right.
pub(crate) fn open<'v>(key: &[u8], sealed: &'v [u8]) -> Result<&'v [u8], Damage> {
    let table = key.first().copied().unwrap_or(0);
    let (value, expected) =
        sealed.split_last_chunk::<SUM_BYTES>().ok_or_else(|| Damage::row(table, 0, 0))?;
    let (expected, found) = (u32::from_le_bytes(*expected), sum(key, value));
    if expected == found { Ok(value) } else { Err(Damage::row(table, expected, found)) }
}
