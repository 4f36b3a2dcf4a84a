//! Inode numbers that clients choose for files that they create behind (docs/protocol.md R20.30).
//!
//! ```text
//! Mkdir, Create behind ─▶ a range is given ─▶ each number is used once ─▶ a further range
//! Claim, after a restart ─▶ numbers of an earlier term ─▶ each is used once
//! ```
//! Invariant: a number is valid for at most one use of the client that it was given to.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use interface::ConnId;
use wire::{ClientUuid, InodeNo, SessionId, ShardId};

/// The numbers that are given at a time.
pub(super) const GIVEN_COUNT: u32 = 1024;
/// The most ranges of a session at a shard: the oldest one ends when a further one is given.
const RANGE_COUNT_MAX: usize = 4;
/// The most sessions that have numbers of a shard.
const SESSION_COUNT_MAX: usize = 256;
/// The most runs of consecutive valid numbers of a client.
const RUN_COUNT_MAX: usize = 65_536;

/// What a session was given at a shard.
#[derive(Debug)]
struct Given {
    client: ClientUuid,
    /// The first number of each range, the newest last.
    ranges: VecDeque<InodeNo>,
    /// The connection that the newest was given over.
    conn: ConnId,
    /// A number beyond the half of the newest range was used.
    is_short: bool,
}

/// The numbers that clients of a lane may choose.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    given: BTreeMap<(ShardId, SessionId), Given>,
    /// The valid numbers of each client, as runs: the first number, and the one behind the last.
    valid: BTreeMap<ClientUuid, BTreeMap<InodeNo, InodeNo>>,
}

impl Numbers {
    /// Whether a client may choose a number.
    pub(super) fn is_valid(&self, client: ClientUuid, inode: InodeNo) -> bool {
        self.run_of(client, inode).is_some()
    }

    fn run_of(&self, client: ClientUuid, inode: InodeNo) -> Option<(InodeNo, InodeNo)> {
        let (first, end) = self.valid.get(&client)?.range(..=inode).next_back()?;
        (inode < *end).then_some((*first, *end))
    }

    /// A session has used a number.
    pub(super) fn spend(&mut self, (session, client): (SessionId, ClientUuid), inode: InodeNo) {
        let Some((first, end)) = self.run_of(client, inode) else { return };
        let Some(runs) = self.valid.get_mut(&client) else { return };
        runs.remove(&first);
        let next = InodeNo(inode.0 + 1);
        for (first, end) in [(first, inode), (next, end)] {
            if first < end && runs.len() < RUN_COUNT_MAX {
                runs.insert(first, end);
            }
        }
        if let Some(given) = self.given.get_mut(&(inode.shard(), session))
            && let Some(newest) = given.ranges.back()
        {
            let half = InodeNo(newest.0 + u64::from(GIVEN_COUNT / 2));
            given.is_short |= inode >= half && inode.0 < newest.0 + u64::from(GIVEN_COUNT);
        }
    }

    /// The range to give to a session again, because it may not have it: the last one was given over
    /// another connection.
    pub(super) fn given_before(
        &mut self,
        key: (ShardId, SessionId),
        conn: ConnId,
    ) -> Option<InodeNo> {
        let given = self.given.get_mut(&key)?;
        let before = core::mem::replace(&mut given.conn, conn);
        (before != conn).then(|| given.ranges.back().copied()).flatten()
    }

    /// Whether a session is to be given its first range.
    pub(super) fn is_new(&self, key: (ShardId, SessionId)) -> bool {
        let of_shard = (key.0, SessionId(0))..=(key.0, SessionId(u64::MAX));
        !self.given.contains_key(&key) && self.given.range(of_shard).count() < SESSION_COUNT_MAX
    }

    /// Whether a session is to be given a further range.
    pub(super) fn is_short(&self, key: (ShardId, SessionId)) -> bool {
        self.given.get(&key).is_some_and(|given| given.is_short)
    }

    /// Gives a session a range.
    pub(super) fn give(
        &mut self,
        key: (ShardId, SessionId),
        (client, conn): (ClientUuid, ConnId),
        first: InodeNo,
    ) {
        let new = || Given { client, ranges: VecDeque::new(), conn, is_short: false };
        let given = self.given.entry(key).or_insert_with(new);
        (given.conn, given.is_short) = (conn, false);
        given.ranges.push_back(first);
        let is_over = given.ranges.len() > RANGE_COUNT_MAX;
        let ended = if is_over { given.ranges.pop_front() } else { None };
        ended.into_iter().for_each(|ended| self.end_range(client, ended));
        let end = InodeNo(first.0 + u64::from(GIVEN_COUNT));
        self.valid.entry(client).or_default().insert(first, end);
    }

    /// What is left of a range is not valid any more.
    fn end_range(&mut self, client: ClientUuid, first: InodeNo) {
        let Some(runs) = self.valid.get_mut(&client) else { return };
        let range = first..InodeNo(first.0 + u64::from(GIVEN_COUNT));
        for run in runs.range(range).map(|(first, _)| *first).collect::<Vec<_>>() {
            runs.remove(&run);
        }
    }

    /// A client claims numbers of an earlier term. Returns whether it may choose them.
    pub(super) fn claim(&mut self, client: ClientUuid, (first, count): (InodeNo, u32)) -> bool {
        let (mut first, mut end) = (first, InodeNo(first.0 + u64::from(count)));
        let runs = self.valid.entry(client).or_default();
        let overlapping = runs.range(..=end).rev().take_while(|(_, end)| **end >= first);
        for (known, known_end) in overlapping.map(|run| (*run.0, *run.1)).collect::<Vec<_>>() {
            runs.remove(&known);
            (first, end) = (first.min(known), end.max(known_end));
        }
        let fits = runs.len() < RUN_COUNT_MAX;
        if fits {
            runs.insert(first, end);
        }
        fits
    }

    /// A session has ended, and what it was given with it.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        let ended = self.given.extract_if(.., |(_, of), _| *of == session);
        for (_, given) in ended.collect::<Vec<_>>() {
            given.ranges.iter().for_each(|first| self.end_range(given.client, *first));
        }
    }

    /// Whether no client may choose a number.
    pub(super) fn is_empty(&self) -> bool {
        self.valid.is_empty()
    }

    /// A client has left: none of its numbers is valid any more.
    pub(super) fn forget(&mut self, client: ClientUuid) {
        self.valid.remove(&client);
        self.given.retain(|_, given| given.client != client);
    }
}
