//! What was promised to whom: which calls must have had their effect for good.
//!
//! An acknowledged call is certain when its client is there to repeat what the server may have lost,
//! when the server answers only what is durable, or when a sync said so. A client that the server
//! rightly went on without may have lost what it was told before.

use crate::bytes::Done;
use crate::lies::Seat;
use crate::work::{Asked, Tag, Wish};
use crate::world::World;
use client::Report;
use wire::{InodeNo, ShardId};

/// A client that is away for less time is waited for.
const PATIENCE_NS: u64 = 5_000_000_000;

impl World {
    /// Whether what the call was told holds, whatever dies.
    pub(crate) fn is_certain(&self, asked: &Asked) -> bool {
        if asked.brought().is_none() {
            return false;
        }
        let mount = &self.mounts[asked.client];
        // A peer lane may hear of it only after what the server said before it.
        let evicted = mount.evicted_ns.is_some_and(|ns| asked.began_ns <= ns);
        !self.plan.shared()
            || (mount.alive && !evicted && !mount.was_late)
            || is_synchronous(&asked.wish)
    }

    /// Whether a sync at the shard came after the call was answered.
    pub(crate) fn is_synced(&self, asked: &Asked, shard: ShardId) -> bool {
        let synced_ns = self.synced.get(&(shard, asked.ended_life)).copied().unwrap_or(0);
        asked.ended_ns.is_some_and(|ended_ns| ended_ns < synced_ns)
    }

    /// A sync was answered: what the same server process answered before it began is durable.
    pub(crate) fn note_sync(&mut self, asked: &Asked) {
        let Wish::Sync { inode, contents } = asked.wish else { return };
        let life = asked.ended_life;
        if asked.brought().is_none() || asked.began_life != life {
            return;
        }
        let synced_ns = self.synced.entry((inode.shard(), life)).or_default();
        *synced_ns = asked.began_ns.max(*synced_ns);
        if contents {
            let synced_ns = self.synced_files.entry((inode, life)).or_default();
            *synced_ns = asked.began_ns.max(*synced_ns);
        }
    }

    /// What was done to a file, for one who looked from `looked_ns` on.
    pub(crate) fn deeds_of(&self, inode: InodeNo, looked_ns: u64) -> Vec<Done> {
        let deeds = self.deeds.get(&inode).map_or(&[][..], Vec::as_slice);
        let certain = |tag: Tag, done: &Done| {
            let ended_ns = done.ended_ns.filter(|ended_ns| done.certain && *ended_ns < looked_ns);
            let (Some(ended_ns), Some(asked)) = (ended_ns, self.asked(tag)) else { return false };
            let synced_ns = self.synced_files.get(&(inode, asked.ended_life));
            synced_ns.is_some_and(|synced_ns| ended_ns < *synced_ns) || self.is_certain(asked)
        };
        deeds.iter().map(|(tag, done)| Done { certain: certain(*tag, done), ..*done }).collect()
    }

    /// Somebody is kept away for so long.
    pub(crate) fn keep_away(&mut self, client: Option<usize>, span_ns: u64) {
        let late = span_ns > PATIENCE_NS;
        self.absent |= late;
        if let Some(client) = client.filter(|_| late) {
            self.mounts[client].was_late = true;
        }
    }

    /// A client has something to tell people: mostly that a promise to it was broken.
    pub(crate) fn on_report(&mut self, seat: Seat, report: &Report) {
        let client = seat.0;
        self.tell(|| format!("client {client} reports: {report}"));
        let others_lost = self.server_ever_off() && self.mounts.iter().any(|mount| !mount.alive);
        let excused = self.absent || others_lost || self.lies.is_any();
        if !matches!(report, Report::TooManyFiles { .. }) {
            self.lies.alarm(seat);
        }
        match report {
            // It breaks no promise.
            Report::TooManyFiles { .. } => {}
            Report::RolledBack { shard, .. } => {
                self.lies.stop(seat);
                if !self.lies.is_lost(seat, *shard) {
                    self.breaks(format!("a false alarm at client {seat:?}: {report}"));
                }
            }
            // Nothing is under TLS here.
            Report::NotConnected { .. } => self.breaks(format!("client {client}: {report}")),
            Report::Evicted { .. } | Report::ReplayRefused { .. } | Report::LockLost { .. } => {
                self.mounts[client].evicted_ns = Some(self.now_ns);
                if !excused {
                    self.breaks(format!("I6: client {client}, which was never away: {report}"));
                }
            }
        }
    }

    fn server_ever_off(&self) -> bool {
        self.plan.share == lane::Share::Off || self.plan.share_changes
    }
}

const fn is_synchronous(wish: &Wish) -> bool {
    matches!(wish, Wish::Write { sync: true, .. } | Wish::WriteList { sync: true, .. })
}
