//! Buffers named by the core: copies of bulk that outlive the original's owner (`Action::Retain`), and
//! what is put together from several (`Action::Zeros`).
//!
//! The memory is the pool's; this maps the core's name to a pool buffer. A copy does not count
//! against the pool's limit: it must not fail, and the core bounds it. A buffer that the bulk
//! mostly fills, unless it is pinned, is retained instead of copied. Invariant: a name means one
//! buffer until it is released, and every id below [`interface::CORE_BUF_ID_MIN`] means itself.

use crate::buffer::Pool;
use interface::{BufId, Bulk, CORE_BUF_ID_MIN};
use std::collections::HashMap;

/// The pool buffer of a name.
#[derive(Clone, Copy)]
struct Target {
    buf: BufId,
    /// Offset of the bytes in it.
    start: u32,
}

/// The names of one lane.
#[derive(Default)]
pub(crate) struct NamedBuffers {
    bufs: HashMap<BufId, Target>,
}

impl NamedBuffers {
    /// Copies `bulk` into a buffer with the name `as_buf`.
    pub(crate) fn copy(&mut self, as_buf: BufId, bulk: Bulk, pool: &mut Pool) {
        assert!(as_buf.0 >= CORE_BUF_ID_MIN, "{as_buf:?} is not a core's name");
        let bulk = self.resolve(bulk);
        let (buf, start) = pool.copy_uncounted(bulk.buf, bulk.start, bulk.bulk_bytes as usize);
        let before = self.bufs.insert(as_buf, Target { buf, start });
        assert!(before.is_none(), "{as_buf:?} is in use");
    }

    /// Makes a buffer of zeros with the name `as_buf`.
    pub(crate) fn make(&mut self, as_buf: BufId, bulk_bytes: u32, pool: &mut Pool) {
        assert!(as_buf.0 >= CORE_BUF_ID_MIN, "{as_buf:?} is not a core's name");
        let buf = pool.zeros_uncounted(bulk_bytes as usize);
        let before = self.bufs.insert(as_buf, Target { buf, start: 0 });
        assert!(before.is_none(), "{as_buf:?} is in use");
    }

    /// Copies bytes into a buffer that [`Self::make`] has made.
    pub(crate) fn fill(&mut self, (to, at): (BufId, u32), bulk: Bulk, pool: &mut Pool) {
        let to = self.resolve(Bulk { buf: to, start: at, ..bulk });
        pool.copy_between(self.resolve(bulk), to);
    }

    /// Replaces a name in a bulk by its pool buffer.
    pub(crate) fn resolve(&self, bulk: Bulk) -> Bulk {
        if bulk.buf.0 < CORE_BUF_ID_MIN {
            return bulk;
        }
        let Some(target) = self.bufs.get(&bulk.buf) else { panic!("{:?} was released", bulk.buf) };
        Bulk { buf: target.buf, start: target.start + bulk.start, ..bulk }
    }

    /// Ends a name and returns its buffer, for release.
    pub(crate) fn release(&mut self, buf: BufId) -> BufId {
        if buf.0 < CORE_BUF_ID_MIN {
            return buf;
        }
        let Some(target) = self.bufs.remove(&buf) else { panic!("{buf:?} was released twice") };
        target.buf
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

    fn renamed(bulk: Bulk) -> Bulk {
        Bulk { buf: NAME, start: 0, ..bulk }
    }

    #[test]
    fn a_copy_outlives_its_original() {
        let mut pool = Pool::new(8 << 20);
        let mut named = NamedBuffers::default();
        // One that the bytes fill, one that they do not fill, and one that is pinned.
        let full = filled(&mut pool, &[5; 8192]);
        let half_empty = filled(&mut pool, &[6; 8192]);
        let half_empty = Bulk { start: 100, bulk_bytes: 50, ..half_empty };
        let pinned = pool.pin(4096);
        pool.bytes_mut(pinned, 0, 4096).fill(7);
        let pinned = Bulk { buf: pinned, start: 1, bulk_bytes: 4000, crc32c: None, mac: NO_MAC };
        for (bulk, byte) in [(full, 5), (half_empty, 6), (pinned, 7)] {
            named.copy(NAME, bulk, &mut pool);
            if byte != 7 {
                pool.release(bulk.buf);
                let other = filled(&mut pool, &[9; 8192]);
                pool.release(other.buf);
            } else {
                pool.bytes_mut(bulk.buf, 0, 4096).fill(9);
            }
            let target = named.resolve(renamed(bulk));
            let bytes = pool.bytes(target.buf, target.start as usize, target.bulk_bytes as usize);
            assert!(bytes.iter().all(|found| *found == byte), "{byte}");
            assert_eq!(pool.used_bytes(), if byte == 5 { 8192 } else { 0 }, "copies do not count");
            let buf = named.release(NAME);
            pool.release(buf);
        }
        assert_eq!(pool.used_bytes(), 0);
        assert!(named.bufs.is_empty());
    }

    #[test]
    fn a_buffer_is_put_together_from_several() {
        let mut pool = Pool::new(1 << 20);
        let mut named = NamedBuffers::default();
        // A buffer that was used before is zeros again.
        let used = filled(&mut pool, &[8; 4096]);
        pool.release(used.buf);
        named.make(NAME, 100, &mut pool);
        let (one, two) = (filled(&mut pool, &[1; 50]), filled(&mut pool, &[2; 50]));
        named.fill((NAME, 0), Bulk { start: 10, bulk_bytes: 30, ..one }, &mut pool);
        named.fill((NAME, 80), Bulk { bulk_bytes: 20, ..two }, &mut pool);
        pool.release(one.buf);
        pool.release(two.buf);
        let made = named.resolve(Bulk { buf: NAME, start: 0, bulk_bytes: 100, ..one });
        let expected = [&[1; 30][..], &[0; 50], &[2; 20]].concat();
        assert_eq!(pool.bytes(made.buf, made.start as usize, 100), expected);
        let buf = named.release(NAME);
        pool.release(buf);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_full_pool_still_makes_copies() {
        let mut pool = Pool::new(2 << 20);
        let mut named = NamedBuffers::default();
        for number in 0..16 {
            let bulk = filled(&mut pool, &[1; 1 << 20]);
            named.copy(BufId(CORE_BUF_ID_MIN + number), bulk, &mut pool);
            pool.release(bulk.buf);
            assert_eq!(pool.used_bytes(), 0);
        }
        for number in 0..16 {
            let buf = named.release(BufId(CORE_BUF_ID_MIN + number));
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
        let mut named = NamedBuffers::default();
        let bulk = filled(&mut pool, b"x");
        named.copy(NAME, bulk, &mut pool);
        named.release(NAME);
        named.release(NAME);
    }
}
