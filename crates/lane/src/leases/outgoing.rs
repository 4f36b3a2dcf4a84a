//! Recalls on their way out, and those that are not acknowledged.

use super::table::Lease;
use alloc::boxed::Box;
use alloc::vec::Vec;
use interface::Mono;
use meta::LeaseKey;
use wire::{BODY_BYTES_MAX, LeaseNo, SessionId, Wire as _, Writer};

/// Behind this many bytes a frame still holds a key with the longest name.
const KEYS_BYTES_MAX: usize = BODY_BYTES_MAX as usize - 1024;

/// A lease that is recalled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recalled {
    pub(super) lease: Lease,
    pub(super) key: LeaseKey,
}

/// The recalls of a turn to one session.
#[derive(Default, Debug)]
pub(super) struct Outgoing {
    pub(super) frames: Vec<Keys>,
    /// Everything is recalled.
    pub(super) all: bool,
}

/// The keys of one frame.
#[derive(Default, Debug)]
pub(super) struct Keys {
    pub(super) encoded: Vec<u8>,
    pub(super) keys: Vec<LeaseKey>,
    pub(super) lease_no_max: LeaseNo,
    pub(super) until: Mono,
}

/// A recall that is not acknowledged.
#[derive(Debug)]
pub(super) struct SentRecall {
    pub(super) session: SessionId,
    pub(super) keys: Vec<LeaseKey>,
    pub(super) lease_no_max: LeaseNo,
    /// All of its leases have expired then.
    pub(super) until: Mono,
    pub(super) all: bool,
}

impl Outgoing {
    /// Adds a key.
    pub(super) fn add(&mut self, recalled: Recalled, name: &[u8]) {
        let Recalled { lease, key } = recalled;
        let is_full = |frame: &Keys| frame.encoded.len() >= KEYS_BYTES_MAX;
        if self.frames.last().is_none_or(is_full) {
            self.frames.push(Keys::default());
        }
        let Some(frame) = self.frames.last_mut() else { return };
        if let Some(key) = wire_key(key, name) {
            key.encode(&mut Writer::new(&mut frame.encoded));
        }
        frame.keys.push(key);
        frame.lease_no_max = frame.lease_no_max.max(lease.lease_no);
        frame.until = frame.until.max(lease.ends_at);
    }
}

/// The encoded key of a recall.
fn wire_key<'a>(key: LeaseKey, name: &'a [u8]) -> Option<wire::LeaseKey<'a>> {
    Some(match key {
        LeaseKey::Attributes(inode) => wire::LeaseKey::Attributes(inode),
        LeaseKey::Contents(inode) => wire::LeaseKey::Contents(inode),
        LeaseKey::Pages(inode) => wire::LeaseKey::Pages(inode),
        LeaseKey::Writing(inode) => wire::LeaseKey::Writing(inode),
        LeaseKey::Name(dir, _) => wire::LeaseKey::Name(dir, wire::Name::new(name).ok()?),
    })
}

/// What a request that is suspended for leases waits for first, and all of its keys.
pub(crate) type LeaseWait = (LeaseKey, Box<[LeaseKey]>);
