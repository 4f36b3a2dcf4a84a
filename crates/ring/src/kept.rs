//! Buffers that a core has named itself (`Action::Retain`): copies of bulk that outlive its owner.
//!
//! The memory is the pool's; here stands which buffer a name means. A copy does not count against
//! the pool's limit: it must not fail, and the core bounds it. A buffer that is mostly filled by
//! the bulk, and is nobody's for reuse, is held instead of being copied. Invariant: a name means
//! one buffer until it is released, and every name below [`interface::CORE_BUF_ID_MIN`] means itself.

use crate::buffer::Pool;
use interface::{BufId, Bulk, CORE_BUF_ID_MIN};
use std::collections::HashMap;

/// What a name means.
#[derive(Clone, Copy)]
struct Copied {
    buf: BufId,
    /// Where in it the bytes begin.
    start: u32,
}

/// The names of one lane.
#[derive(Default)]
pub(crate) struct Kept {
    bufs: HashMap<BufId, Copied>,
}

impl Kept {
    /// Copies `bulk` into a buffer that is called `as_buf`.
    pub(crate) fn keep(&mut self, as_buf: BufId, bulk: Bulk, pool: &mut Pool) {
        assert!(as_buf.0 >= CORE_BUF_ID_MIN, "{as_buf:?} is not a core's name");
        let bulk = self.meant(bulk);
        let (buf, start) = pool.keep(bulk.buf, bulk.start, bulk.bulk_bytes as usize);
        let before = self.bufs.insert(as_buf, Copied { buf, start });
        assert!(before.is_none(), "{as_buf:?} is in use");
    }

    /// The piece that a bulk means.
    pub(crate) fn meant(&self, bulk: Bulk) -> Bulk {
        if bulk.buf.0 < CORE_BUF_ID_MIN {
            return bulk;
        }
        let Some(copied) = self.bufs.get(&bulk.buf) else { panic!("{:?} was released", bulk.buf) };
        Bulk { buf: copied.buf, start: copied.start + bulk.start, ..bulk }
    }

    /// The buffer that a name meant until now.
    pub(crate) fn end(&mut self, buf: BufId) -> BufId {
        if buf.0 < CORE_BUF_ID_MIN {
            return buf;
        }
        let Some(copied) = self.bufs.remove(&buf) else { panic!("{buf:?} was released twice") };
        copied.buf
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use interface::NO_MAC;

    const NAME: BufId = BufId(CORE_BUF_ID_MIN);

    fn filled(pool: &mut Pool, bytes: &[u8]) -> Bulk {
        let buf = pool.take(bytes.len()).unwrap();
        pool.bytes_mut(buf, 0, bytes.len()).copy_from_slice(bytes);
        let bulk_bytes = u32::try_from(bytes.len()).unwrap();
        Bulk { buf, start: 0, bulk_bytes, crc32c: Some(7), mac: NO_MAC }
    }

    fn named(bulk: Bulk) -> Bulk {
        Bulk { buf: NAME, start: 0, ..bulk }
    }

    #[test]
    fn a_copy_outlives_what_was_copied() {
        let mut pool = Pool::new(8 << 20);
        let mut kept = Kept::default();
        // One that the bytes fill, one that they do not, and one that is the ring's own.
        let full = filled(&mut pool, &[5; 8192]);
        let roomy = filled(&mut pool, &[6; 8192]);
        let roomy = Bulk { start: 100, bulk_bytes: 50, ..roomy };
        let pinned = pool.pin(4096);
        pool.bytes_mut(pinned, 0, 4096).fill(7);
        let pinned = Bulk { buf: pinned, start: 1, bulk_bytes: 4000, crc32c: None, mac: NO_MAC };
        for (bulk, byte) in [(full, 5), (roomy, 6), (pinned, 7)] {
            kept.keep(NAME, bulk, &mut pool);
            if byte != 7 {
                pool.release(bulk.buf);
                let other = filled(&mut pool, &[9; 8192]);
                pool.release(other.buf);
            } else {
                pool.bytes_mut(bulk.buf, 0, 4096).fill(9);
            }
            let meant = kept.meant(named(bulk));
            let bytes = pool.bytes(meant.buf, meant.start as usize, meant.bulk_bytes as usize);
            assert!(bytes.iter().all(|found| *found == byte), "{byte}");
            assert_eq!(pool.used_bytes(), if byte == 5 { 8192 } else { 0 }, "copies do not count");
            let buf = kept.end(NAME);
            pool.release(buf);
        }
        assert_eq!(pool.used_bytes(), 0);
        assert!(kept.bufs.is_empty());
    }

    #[test]
    fn a_full_pool_keeps_all_the_same() {
        let mut pool = Pool::new(2 << 20);
        let mut kept = Kept::default();
        for number in 0..16 {
            let bulk = filled(&mut pool, &[1; 1 << 20]);
            kept.keep(BufId(CORE_BUF_ID_MIN + number), bulk, &mut pool);
            pool.release(bulk.buf);
            assert_eq!(pool.used_bytes(), 0);
        }
        for number in 0..16 {
            let buf = kept.end(BufId(CORE_BUF_ID_MIN + number));
            pool.release(buf);
        }
        assert_eq!(pool.used_bytes(), 0);
        let bulk = filled(&mut pool, &[1; 1 << 20]);
        assert!(pool.used_bytes() > 0, "a buffer used again counts again");
        pool.release(bulk.buf);
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn a_name_is_released_once() {
        let mut pool = Pool::new(1 << 20);
        let mut kept = Kept::default();
        let bulk = filled(&mut pool, b"x");
        kept.keep(NAME, bulk, &mut pool);
        kept.end(NAME);
        kept.end(NAME);
    }
}
