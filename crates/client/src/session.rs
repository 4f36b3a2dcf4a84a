//! The state of one session at one shard that makes requests take effect once: xids, slots and
//! acknowledgements (docs/protocol.md §3, §4, §8). It is independent of connections.
//!
//! Invariants: xids only rise; a slot has at most one request; `ack_xid` never passes an xid whose
//! reply was not received.

use crate::replay::List;
use alloc::collections::VecDeque;
use wire::{Transno, Xid};

/// The most slots of a session.
pub(crate) const SLOT_COUNT_MAX: u16 = 64;
const SACK_BITS: u64 = 64;

/// Which slots a request may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotClass {
    /// Others wait for it, and it waits for nobody: all of them.
    Awaited,
    /// Its caller has the answer. Requests of other clients wait for it, and requests of this one may
    /// wait for those.
    Behind,
    Other,
}

/// So many of a session's slots are kept for what is changed behind.
pub(crate) const fn slots_behind(slot_count: u16) -> u16 {
    match slot_count {
        0..4 => 0,
        4..8 => 1,
        8..16 => 2,
        16.. => 4,
    }
}

/// Which replies were received, for the next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acks {
    pub(crate) ack_xid: Xid,
    pub(crate) sack: u64,
}

/// Stands for the exchange of recovery's own requests.
pub(crate) const RECOVERY: usize = usize::MAX;

/// A session's phase of recovery with its server lane's boot.
#[derive(Debug, Default)]
pub(crate) enum RecoveryPhase {
    /// No recovery.
    #[default]
    Settled,
    /// Resume is to be sent (no xid yet), or in flight.
    Resuming { xid: Option<Xid> },
    /// All entries up to `sent` were sent.
    Replaying { sent: Transno },
    /// ReplayDone was sent.
    Finishing { xid: Xid },
}

/// A session's recovery.
#[derive(Debug, Default)]
pub(crate) struct SessionRecovery {
    pub(crate) phase: RecoveryPhase,
    /// Replays in flight, in the order they were sent.
    pub(crate) in_flight: VecDeque<(Xid, Transno)>,
}

impl SessionRecovery {
    pub(crate) fn replayed(&mut self, xid: Xid) -> Option<Transno> {
        let at = self.in_flight.iter().position(|(sent, _)| *sent == xid)?;
        self.in_flight.remove(at).map(|(_, transno)| transno)
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    xid_last: u64,
    /// Bit n: slot n + 1 is taken.
    slots_taken: u64,
    /// Xids in flight or to be resent, with their exchanges, ascending.
    unreplied: VecDeque<(Xid, usize)>,
    /// Exchanges that wait for a slot.
    pub(crate) slot_waiters: VecDeque<usize>,
    /// Answered changes that may still be lost.
    pub(crate) replay: List,
    /// A changing request was sent, here or, for a data shard, at another one of its lane: the
    /// server may remember this session over restarts.
    pub(crate) used: bool,
    /// The server's boot that has all changes of this session.
    pub(crate) boot_id: u64,
    /// The highest transaction of this session that is known to be durable.
    pub(crate) known_committed: Transno,
    pub(crate) recovery: SessionRecovery,
    /// A sync that shortens the replay list is under way.
    pub(crate) syncing: bool,
}

impl Session {
    /// A session whose first xid follows `xid_start`.
    pub(crate) fn new(xid_start: u64) -> Self {
        Self {
            xid_last: xid_start,
            slots_taken: 0,
            unreplied: VecDeque::new(),
            slot_waiters: VecDeque::new(),
            replay: List::default(),
            used: false,
            boot_id: 0,
            known_committed: Transno(0),
            recovery: SessionRecovery::default(),
            syncing: false,
        }
    }

    /// Another server has the shard, whose boots count anew: it recovers this session.
    pub(crate) fn set_moved(&mut self) {
        self.boot_id = 0;
        self.replay.forget_boots();
    }

    /// The server may remember this session over restarts, as of this boot.
    pub(crate) const fn set_used(&mut self, boot_id: u64) {
        if !self.used {
            self.used = true;
            self.boot_id = boot_id;
        }
    }

    /// The server has no session of this client any more.
    pub(crate) const fn reset(&mut self) {
        self.used = false;
        self.boot_id = 0;
        self.known_committed = Transno(0);
    }

    /// A new xid for an exchange.
    pub(crate) fn begin(&mut self, exchange: usize) -> Xid {
        self.xid_last += 1;
        let xid = Xid(self.xid_last);
        self.unreplied.push_back((xid, exchange));
        xid
    }

    /// The exchange that waits for a reply to `xid`.
    pub(crate) fn find(&self, xid: Xid) -> Option<usize> {
        let at = self.unreplied.binary_search_by_key(&xid, |(xid, _)| *xid).ok()?;
        self.unreplied.get(at).map(|(_, exchange)| *exchange)
    }

    /// The reply to `xid` was received, or is no longer needed.
    pub(crate) fn end(&mut self, xid: Xid) {
        if let Ok(at) = self.unreplied.binary_search_by_key(&xid, |(xid, _)| *xid) {
            self.unreplied.remove(at);
        }
    }

    /// Takes the lowest free slot of `1 ..= slot_count` that a request may have. Of a client that
    /// changes anything behind (`keeps_behind`), some are kept for that.
    pub(crate) fn take_slot(
        &mut self,
        slot_count: u16,
        (class, keeps_behind): (SlotClass, bool),
    ) -> Option<u16> {
        let slot_index = self.free_slot_index(slot_count, (class, keeps_behind))?;
        self.slots_taken |= 1 << slot_index;
        Some(slot_index + 1)
    }

    /// Whether [`Session::take_slot`] would succeed.
    pub(crate) fn has_slot(&self, slot_count: u16, wanted: (SlotClass, bool)) -> bool {
        self.free_slot_index(slot_count, wanted).is_some()
    }

    fn free_slot_index(&self, slot_count: u16, wanted: (SlotClass, bool)) -> Option<u16> {
        let slot_count = slot_count.min(SLOT_COUNT_MAX);
        let kept = match wanted {
            (SlotClass::Awaited, _) => 0,
            (SlotClass::Behind, _) | (SlotClass::Other, false) => 1,
            (SlotClass::Other, true) => 1 + slots_behind(slot_count),
        };
        let usable = slot_count.saturating_sub(kept);
        let slot_index = u16::try_from(self.slots_taken.trailing_ones()).unwrap_or(u16::MAX);
        (slot_index < usable).then_some(slot_index)
    }

    pub(crate) fn free_slot(&mut self, slot: u16) {
        assert!(slot > 0, "slot 0 is never taken");
        let bit = 1_u64 << (slot - 1);
        assert!(self.slots_taken & bit != 0, "only a taken slot is freed");
        self.slots_taken &= !bit;
    }

    /// The acknowledgement of the replies received so far.
    pub(crate) fn acks(&self) -> Acks {
        let Some((first, _)) = self.unreplied.front() else {
            return Acks { ack_xid: Xid(self.xid_last), sack: 0 };
        };
        let ack_xid = first.0 - 1;
        let above_count = (self.xid_last - ack_xid).min(SACK_BITS);
        let mut sack = u64::MAX >> (SACK_BITS - above_count);
        for (xid, _) in &self.unreplied {
            let bit = xid.0 - ack_xid - 1;
            if bit >= SACK_BITS {
                break;
            }
            sack &= !(1 << bit);
        }
        Acks { ack_xid: Xid(ack_xid), sack }
    }
}
