//! Encoding the kernel's structs, in the machine's byte order, with reserved fields 0.

use crate::abi::{
    FOPEN_CACHE_DIR, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_PARALLEL_DIRECT_WRITES, lock_type,
    size, statx_mask,
};
use crate::handle::FileHandle;
use crate::leases::Validity;
use crate::node::Node;
use alloc::vec::Vec;
use wire::{Attr, ByteRange, HandleId, LockRow, LockType, NAME_BYTES_MAX, Space, Timestamp};

/// The preferred size of a read or write for programs: each one is an exchange.
const BLOCK_BYTES: u32 = 65_536;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// The unit of STATFS.
const STATFS_BLOCK_BYTES: u32 = 4096;

pub(crate) fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_ne_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_ne_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_ne_bytes());
}

/// `fuse_attr`.
fn put_attr(out: &mut Vec<u8>, attr: &Attr) {
    let secs = |time: Timestamp| time.secs.cast_unsigned();
    put_u64(out, attr.inode.0);
    put_u64(out, attr.size_bytes);
    put_u64(out, attr.allocated_bytes.div_ceil(SECTOR_BYTES));
    put_u64(out, secs(attr.atime));
    put_u64(out, secs(attr.mtime));
    put_u64(out, secs(attr.ctime));
    put_u32(out, attr.atime.nanos);
    put_u32(out, attr.mtime.nanos);
    put_u32(out, attr.ctime.nanos);
    put_u32(out, attr.kind.mode_bits() | attr.mode);
    put_u32(out, attr.nlink);
    put_u32(out, attr.uid);
    put_u32(out, attr.gid);
    put_u32(out, attr.rdev);
    put_u32(out, BLOCK_BYTES);
    put_u32(out, 0); // flags
}

/// `fuse_entry_out`.
pub(crate) fn put_entry(out: &mut Vec<u8>, node: Node, attr: &Attr, validity: Validity) {
    put_entry_head(out, node.0, validity);
    put_attr(out, attr);
}

/// `fuse_entry_out` of a name that does not exist: the kernel caches that.
pub(crate) fn put_absent(out: &mut Vec<u8>, name_ns: u64) {
    let start = out.len();
    put_entry_head(out, 0, Validity { name_ns, attributes_ns: 0 });
    out.resize(start + size::ENTRY_OUT, 0);
}

fn put_entry_head(out: &mut Vec<u8>, node: u64, validity: Validity) {
    let (name_secs, name_nanos) = secs(validity.name_ns);
    let (attributes_secs, attributes_nanos) = secs(validity.attributes_ns);
    put_u64(out, node);
    put_u64(out, 0); // generation: inode numbers are never reused
    put_u64(out, name_secs); // entry_valid
    put_u64(out, attributes_secs); // attr_valid
    put_u32(out, name_nanos); // entry_valid_nsec
    put_u32(out, attributes_nanos); // attr_valid_nsec
}

/// Seconds and nanoseconds.
fn secs(ns: u64) -> (u64, u32) {
    (ns / 1_000_000_000, u32::try_from(ns % 1_000_000_000).unwrap_or(0))
}

/// `fuse_attr_out`.
pub(crate) fn put_attr_out(out: &mut Vec<u8>, attr: &Attr, attributes_ns: u64) {
    let (secs, nanos) = secs(attributes_ns);
    put_u64(out, secs); // attr_valid
    put_u32(out, nanos); // attr_valid_nsec
    put_u32(out, 0); // dummy
    put_attr(out, attr);
}

/// `fuse_statx_out`.
pub(crate) fn put_statx_out(out: &mut Vec<u8>, attr: &Attr, attributes_ns: u64) {
    let (secs, nanos) = secs(attributes_ns);
    put_u64(out, secs); // attr_valid
    put_u32(out, nanos); // attr_valid_nsec
    put_u32(out, 0); // flags
    out.extend_from_slice(&[0; 16]); // spare
    put_u32(out, statx_mask::BASIC_STATS | statx_mask::BIRTH);
    put_u32(out, BLOCK_BYTES);
    put_u64(out, 0); // attributes
    put_u32(out, attr.nlink);
    put_u32(out, attr.uid);
    put_u32(out, attr.gid);
    put_u16(out, u16::try_from(attr.kind.mode_bits() | attr.mode).unwrap_or(0));
    put_u16(out, 0); // spare
    put_u64(out, attr.inode.0);
    put_u64(out, attr.size_bytes);
    put_u64(out, attr.allocated_bytes.div_ceil(SECTOR_BYTES));
    put_u64(out, 0); // attributes_mask
    for time in [attr.atime, attr.birth, attr.ctime, attr.mtime] {
        put_u64(out, time.secs.cast_unsigned());
        put_u32(out, time.nanos);
        put_u32(out, 0); // reserved
    }
    put_u32(out, attr.rdev >> 8 & 0xfff);
    put_u32(out, attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
    out.extend_from_slice(&[0; 8 + 112]); // dev_major, dev_minor, spare
}

/// `fuse_open_out` of a file that is read and written past the page cache.
pub(crate) fn put_open(out: &mut Vec<u8>, attr: &Attr, handle: HandleId) {
    put_u64(out, FileHandle::new(handle, attr).0);
    put_u32(out, FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES);
    put_u32(out, 0); // padding
}

/// `fuse_open_out` of a file that is read through the page cache.
pub(crate) fn put_cached_open(out: &mut Vec<u8>, opened: FileHandle, keeps: bool) {
    put_u64(out, opened.0);
    put_u32(out, if keeps { FOPEN_KEEP_CACHE } else { 0 });
    put_u32(out, 0); // padding
}

/// `fuse_entry_out` and `fuse_open_out` of a file.
pub(crate) fn put_created(out: &mut Vec<u8>, attr: &Attr, handle: HandleId, validity: Validity) {
    put_entry(out, Node::plain(attr.inode), attr, validity);
    put_open(out, attr, handle);
}

/// `fuse_open_out` of a directory. The kernel caches listings if `keeps` says whether it keeps those
/// that it has.
pub(crate) fn put_opendir(out: &mut Vec<u8>, handle: HandleId, keeps: Option<bool>) {
    put_u64(out, handle.0);
    put_u32(
        out,
        match keeps {
            None => 0,
            Some(false) => FOPEN_CACHE_DIR,
            Some(true) => FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE,
        },
    );
    put_u32(out, 0); // padding
}

/// `fuse_write_out`.
pub(crate) fn put_written(out: &mut Vec<u8>, written_bytes: u32) {
    put_u32(out, written_bytes);
    put_u32(out, 0); // padding
}

/// `fuse_lk_out`: the conflicting lock, or none.
pub(crate) fn put_lock(out: &mut Vec<u8>, found: Option<LockRow>) {
    let (range, lock, pid) = match found {
        Some(LockRow { range, lock: LockType::Read, pid }) => (range, lock_type::READ, pid),
        Some(LockRow { range, lock: LockType::Write, pid }) => (range, lock_type::WRITE, pid),
        None => (ByteRange::ALL, lock_type::UNLOCK, 0),
    };
    put_u64(out, range.start());
    put_u64(out, range.end());
    put_u32(out, lock);
    put_u32(out, pid);
}

/// `fuse_getxattr_out`.
pub(crate) fn put_value_size(out: &mut Vec<u8>, value_bytes: u32) {
    put_u32(out, value_bytes);
    put_u32(out, 0); // padding
}

/// `fuse_statfs_out`.
pub(crate) fn put_statfs(out: &mut Vec<u8>, space: &Space) {
    let blocks = |bytes: u64| bytes / u64::from(STATFS_BLOCK_BYTES);
    put_u64(out, blocks(space.total_bytes));
    put_u64(out, blocks(space.free_bytes));
    put_u64(out, blocks(space.available_bytes));
    put_u64(out, space.inode_count.saturating_add(space.inode_free_count));
    put_u64(out, space.inode_free_count);
    put_u32(out, STATFS_BLOCK_BYTES);
    put_u32(out, u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX));
    put_u32(out, STATFS_BLOCK_BYTES);
    out.extend_from_slice(&[0; 28]); // padding, spare
}
