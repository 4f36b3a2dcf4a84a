//! An object's path in the store.

use interface::Object;
use std::io::Write as _;

/// An object's path, relative to the store, NUL-terminated.
pub(crate) struct ObjectPath {
    pub(crate) bytes: [u8; 48],
    /// Ends of the two directory names.
    pub(crate) dir_ends: [usize; 2],
    /// Shard, and directory in it.
    pub(crate) dirs: (u16, u8),
}

impl ObjectPath {
    pub(crate) fn new(object: Object) -> Self {
        let shard = object.shard_index;
        let folder = object.folder();
        let mut bytes = [0; 48];
        let mut dir_ends = [0; 2];
        let mut rest = &mut bytes[..];
        let mut left_bytes = [0; 2];
        // 4 + 1 + 2 + 1 + 16 + 1 + 8 bytes and a NUL fit.
        let mut fits = write!(rest, "{shard:02x}").is_ok();
        left_bytes[0] = rest.len();
        fits &= write!(rest, "/{folder:02x}").is_ok();
        left_bytes[1] = rest.len();
        fits &= write!(rest, "/{:016x}.{:x}", object.inode.0, object.stripe_index).is_ok();
        assert!(fits && !rest.is_empty(), "a path fits");
        dir_ends[0] = bytes.len() - left_bytes[0];
        dir_ends[1] = bytes.len() - left_bytes[1];
        Self { bytes, dir_ends, dirs: (shard, folder) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::InodeNo;

    fn text(path: &ObjectPath) -> &str {
        let end = path.bytes.iter().position(|byte| *byte == 0).unwrap_or(path.bytes.len());
        std::str::from_utf8(&path.bytes[..end]).unwrap_or("")
    }

    #[test]
    fn a_path_names_shard_and_spreads_by_inode() {
        let object =
            Object { shard_index: 5, stripe_index: 0xa, inode: InodeNo(0x0003_0000_0004_8234) };
        let path = ObjectPath::new(object);
        assert_eq!(text(&path), "05/12/0003000000048234.a");
        assert_eq!(path.dir_ends, [2, 5]);
        assert_eq!(object.to_string(), format!("objects/{}", text(&path)));
    }

    #[test]
    fn the_longest_path_fits() {
        let object =
            Object { shard_index: u16::MAX, stripe_index: u32::MAX, inode: InodeNo(u64::MAX) };
        assert_eq!(ObjectPath::new(object).bytes.last(), Some(&0));
    }
}
