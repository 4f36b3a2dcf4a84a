//! Which of two values of one key was written later, as far as the rows show.

use super::row::Row;

/// Whether a value was written after another one of the same key; false if undecidable.
#[must_use]
pub fn is_later(key: &[u8], value: &[u8], other: &[u8]) -> bool {
    match (age(key, value), age(key, other)) {
        (Some(age), Some(other)) => age > other,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Numbers that never decrease from one value of a key to the next, the most significant one first;
/// `None` for an invalid row.
fn age(key: &[u8], value: &[u8]) -> Option<[u64; 3]> {
    Some(match Row::decode(key, value).ok()? {
        Row::Inode(row) => [row.version.0.max(row.touched.0), row.next_cookie, row.size_bytes],
        Row::Dirent { row, .. } | Row::Listing { row, .. } => [row.version.0, row.cookie, 0],
        Row::Slot { row, .. } => [row.transno.0, row.xid.0, 0],
        Row::Shard { row, .. } => [row.lsn, row.transno.0, row.next_count],
        Row::Object { row, .. } => [row.write_time_ns, row.size_bytes, 0],
        Row::Recovered { transno, .. } | Row::Prepared { transno, .. } => [transno.0, 0, 0],
        Row::Store(row) => [row.boot_id, row.first_boot_id, 0],
        Row::Log { row, .. } => [row.boot_id, row.batch_no, u64::from(row.is_applied)],
        Row::Evicted { boot_id, .. } | Row::EvictedLast { boot_id } => [boot_id, 0, 0],
        Row::Target { .. }
        | Row::Xattr { .. }
        | Row::Orphan { .. }
        | Row::Session { .. }
        | Row::Sums { .. }
        | Row::Stripe { .. }
        | Row::VbrFailed { .. }
        | Row::Decided { .. }
        | Row::Export(_) => [0; 3],
    })
}
