//! Tests of the pool.

#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_released_buffer_is_reused_and_a_retained_one_is_not() {
    let mut pool = Pool::new(8 << 20);
    let first = pool.take(5000).unwrap();
    assert_eq!(pool.used_bytes(), 8192);
    pool.retain(first);
    pool.release(first);
    let second = pool.take(5000).unwrap();
    assert_ne!(first, second);
    pool.release(first);
    assert_eq!(pool.take(8192), Some(first));
}

#[test]
fn the_limit_holds_and_a_released_buffer_can_be_taken_again() {
    let mut pool = Pool::new(2 << 20);
    let first = pool.take(1 << 20).unwrap();
    let second = pool.take(1 << 20).unwrap();
    assert_eq!(pool.take(1), None);
    pool.release(second);
    assert!(pool.take_freed());
    assert!(!pool.take_freed());
    assert!(pool.take(1 << 20).is_some());
    pool.release(first);
    assert_eq!(pool.used_bytes(), 1 << 20);
}

#[test]
fn memory_that_left_is_reused_when_it_returns() {
    let mut pool = Pool::new(2 << 20);
    let bulk_of =
        |buf, bulk_bytes| Bulk { buf, start: 0, bulk_bytes, crc32c: None, mac: interface::NO_MAC };
    let buf = pool.take(1 << 20).unwrap();
    pool.bytes_mut(buf, (1 << 20) - 3, 3).copy_from_slice(b"abc");
    let at = pool.at(buf, 0, 1);
    pool.retain(buf);
    assert!(pool.detach(bulk_of(buf, 1 << 20)).is_none(), "it has another reference");
    pool.release(buf);
    assert!(pool.detach(bulk_of(buf, DETACHED_BYTES_MIN - 1)).is_none(), "it is short");
    let bytes = pool.detach(bulk_of(buf, 1 << 20)).unwrap();
    assert_eq!(pool.used_bytes(), 0);
    assert!(bytes.as_ref().ends_with(b"\0abc"));
    let other = pool.take(1 << 20).unwrap();
    assert_ne!(pool.at(other, 0, 1), at, "the bytes are still used");
    drop(bytes);
    let again = pool.take(1 << 20).unwrap();
    assert_eq!(pool.at(again, 0, 1), at);
    assert_eq!((pool.used_bytes(), pool.spare_bytes), (2 << 20, 0));
}

#[test]
fn returned_memory_beyond_the_limit_is_freed() {
    let mut pool = Pool::new(2 << 20);
    let buf = pool.take(1 << 20).unwrap();
    let bulk = Bulk { buf, start: 0, bulk_bytes: 1 << 20, crc32c: None, mac: interface::NO_MAC };
    let bytes = pool.detach(bulk).unwrap();
    let used = [pool.take(1 << 20).unwrap(), pool.take(1 << 19).unwrap()];
    drop(bytes);
    assert!(pool.take(1 << 18).is_some());
    assert_eq!(pool.spare_bytes, 0);
    used.iter().for_each(|buf| pool.release(*buf));
}

#[test]
fn bytes_written_by_the_owner_are_read_back() {
    let mut pool = Pool::new(0);
    let buf = pool.take(BUFFER_BYTES_MAX).unwrap();
    pool.bytes_mut(buf, 4096, 3).copy_from_slice(b"abc");
    assert_eq!(pool.bytes(buf, 4095, 5), b"\0abc\0");
}

#[test]
fn memory_unused_for_a_while_is_freed() {
    let mut pool = Pool::new(256 << 20);
    let bufs: Vec<BufId> = (0..100).map(|_| pool.take(1 << 20).unwrap()).collect();
    bufs.iter().for_each(|buf| pool.release(*buf));
    assert_eq!((pool.spare_bytes, pool.used_bytes()), (100 << 20, 0));
    pool.trim(Mono(0));
    let at = pool.trim_at().unwrap();
    // Ninety buffers are used meanwhile: those are retained.
    let bufs: Vec<BufId> = (0..90).map(|_| pool.take(1 << 20).unwrap()).collect();
    bufs.iter().for_each(|buf| pool.release(*buf));
    pool.trim(at);
    assert_eq!((pool.spare_bytes, pool.trim_at()), (90 << 20, None));
    pool.trim(at);
    pool.trim(pool.trim_at().unwrap());
    assert_eq!(pool.spare_bytes, SPARE_BYTES_MIN);
    pool.trim(at);
    assert_eq!(pool.trim_at(), None, "the least is kept for ever");
}

#[test]
fn spare_and_used_buffers_share_the_limit() {
    let mut pool = Pool::new(8 << 20);
    let bufs: Vec<BufId> = (0..8).map(|_| pool.take(1 << 20).unwrap()).collect();
    bufs.iter().for_each(|buf| pool.release(*buf));
    (0..1024).for_each(|_| assert!(pool.take(8192).is_some()));
    assert_eq!(pool.used_bytes(), 8 << 20);
    assert!(pool.spare_bytes < 2 * BUFFER_BYTES_MAX, "{} are kept", pool.spare_bytes);
}
