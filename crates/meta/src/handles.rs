//! Open handles: a volatile set, so that opening or closing twice equals once. A handle permits
//! exactly what its open was permitted.
//!
//! After a restart the clients' handles are unknown until the clients have reopened them; until
//! then a missing handle does not show that a file is closed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use wire::{ClientUuid, Handle, HandleId, InodeNo, OpenFor, PrivilegedBits};

/// Writers of an inode come first ([`OpenFor::ALL`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    inode: InodeNo,
    open_for: OpenFor,
    client: ClientUuid,
    handle: HandleId,
}

impl Key {
    /// The lowest key of an inode.
    const fn first(inode: InodeNo) -> Self {
        Self { inode, open_for: OpenFor::ALL[0], client: NO_CLIENT, handle: HandleId(0) }
    }
}

const NO_CLIENT: ClientUuid = ClientUuid([0; 16]);

/// A query of a data shard for the size of an inode that nobody writes any more.
#[derive(Clone, Copy, Debug)]
struct Query {
    number: u64,
    closed: Closed,
}

/// The last writer of an inode has closed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    single_writer: Option<ClientUuid>,
}

/// The open handles of all clients.
#[derive(Debug)]
pub(crate) struct Handles {
    open: BTreeSet<Key>,
    /// Number of handles by client.
    counts: BTreeMap<ClientUuid, usize>,
    count_max: usize,
    /// Clients whose handles were dropped: they must reopen them.
    dropped: BTreeSet<ClientUuid>,
    /// Inodes without writers whose data shard was queried for the size. An open for writing cancels
    /// the query.
    queries: BTreeMap<InodeNo, Query>,
    query_count: u64,
    /// Inodes open for writing that one client alone has opened for that since their sizes were
    /// settled. So it alone has written what is not durable, and writes it again after a crash.
    single_writers: BTreeMap<InodeNo, ClientUuid>,
    /// Inodes open for writing that had a writer whose client disconnected without closing and
    /// whose writes may still arrive. Their sizes stay at the data shards after the last close.
    unsettled: BTreeSet<InodeNo>,
    /// Directories being listed: the first cookie that is too new for the listing.
    listed: BTreeMap<Key, u64>,
    /// The privileged bits that were sent to data shards, of files open for writing.
    privileged_bits: BTreeMap<InodeNo, PrivilegedBits>,
    known: bool,
}

impl Handles {
    /// The default limit of handles at one shard.
    pub(crate) const COUNT_MAX: usize = 4_000_000;

    pub(crate) const fn new() -> Self {
        Self {
            open: BTreeSet::new(),
            counts: BTreeMap::new(),
            count_max: Self::COUNT_MAX,
            dropped: BTreeSet::new(),
            queries: BTreeMap::new(),
            query_count: 0,
            single_writers: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            listed: BTreeMap::new(),
            privileged_bits: BTreeMap::new(),
            known: true,
        }
    }

    /// Drops all handles; clients may still hold some.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.counts.clear();
        self.dropped.clear();
        self.queries.clear();
        self.single_writers.clear();
        self.unsettled.clear();
        self.listed.clear();
        self.privileged_bits.clear();
        self.known = false;
    }

    /// The grace period is over: clients have reopened their handles.
    pub(crate) const fn end_grace(&mut self) {
        self.known = true;
    }

    /// Whether a client may open no more handles: there are too many, or a quarter of the limit are
    /// its own.
    pub(crate) fn is_full(&self, client: ClientUuid) -> bool {
        let own_count = self.counts.get(&client).copied().unwrap_or(0);
        self.open.len() >= self.count_max || own_count >= self.count_max / 4
    }

    /// Sets the limit.
    pub(crate) const fn limit(&mut self, count_max: usize) {
        self.count_max = count_max;
    }

    /// Number of handles by client, if at least three quarters of the limit are open.
    pub(crate) fn counts_if_crowded(&self) -> Option<impl Iterator<Item = (ClientUuid, usize)>> {
        let crowded = self.open.len() >= self.count_max - self.count_max / 4;
        crowded.then(|| self.counts.iter().map(|(client, count)| (*client, *count)))
    }

    fn count_closed(&mut self, client: ClientUuid) {
        if let Some(count) = self.counts.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&client);
            }
        }
    }

    pub(crate) fn has_all_handles_of(&self, client: ClientUuid) -> bool {
        !self.dropped.contains(&client)
    }

    pub(crate) fn open(&mut self, inode: InodeNo, client: ClientUuid, handle: Handle) {
        let Handle { id, open_for } = handle;
        if self.open.insert(Key { inode, open_for, client, handle: id }) {
            *self.counts.entry(client).or_default() += 1;
        }
        if open_for.writes() {
            let query = self.queries.remove(&inode);
            let single = query.and_then(|query| query.closed.single_writer);
            let single = single.or(self.single_writers.remove(&inode));
            self.single_writers.extend(single.filter(|it| *it == client).map(|it| (inode, it)));
        }
    }

    /// A client opens an inode for writing whose size is settled.
    pub(crate) fn begin_writing(&mut self, inode: InodeNo, client: ClientUuid) {
        self.single_writers.insert(inode, client);
    }

    /// Drops a handle. `Some` if this closed the inode's last writer, and all its writers were
    /// closed regularly.
    pub(crate) fn close(
        &mut self,
        inode: InodeNo,
        client: ClientUuid,
        handle: HandleId,
    ) -> Option<Closed> {
        let mut wrote = false;
        for open_for in OpenFor::ALL {
            let key = Key { inode, open_for, client, handle };
            if self.open.remove(&key) {
                wrote |= open_for.writes();
                self.count_closed(client);
            }
            self.listed.remove(&key);
        }
        if !wrote || self.is_being_written(inode) {
            return None;
        }
        let single_writer = self.single_writers.remove(&inode);
        let is_regular = !self.unsettled.remove(&inode) && self.known;
        is_regular.then_some(Closed { single_writer })
    }

    /// Begins a query of a data shard for an inode's contents; returns the query's number.
    pub(crate) fn begin_query(&mut self, inode: InodeNo, closed: Closed) -> u64 {
        self.query_count += 1;
        self.queries.insert(inode, Query { number: self.query_count, closed });
        self.query_count
    }

    /// Whether an inode that nobody writes is being settled, and this client alone has written it
    /// since it was settled last.
    pub(crate) fn settles_for(&self, inode: InodeNo, client: ClientUuid) -> bool {
        let query = self.queries.get(&inode);
        query.is_some_and(|query| query.closed.single_writer == Some(client))
    }

    /// Ends a query. Returns whether it is still valid.
    pub(crate) fn end_query(&mut self, inode: InodeNo, number: u64) -> bool {
        let queries = self.queries.get(&inode).is_some_and(|query| query.number == number);
        if queries {
            self.queries.remove(&inode);
        }
        queries
    }

    /// The privileged bits that were sent to data shards.
    pub(crate) fn privileged_bits(&self) -> impl Iterator<Item = (InodeNo, PrivilegedBits)> {
        self.privileged_bits.iter().map(|(inode, bits)| (*inode, *bits))
    }

    /// Records a file's privileged bits. Returns whether the data shard must be notified; without
    /// writers the bits are empty.
    pub(crate) fn update_privileged_bits(
        &mut self,
        inode: InodeNo,
        privileged_bits: PrivilegedBits,
    ) -> bool {
        let sent = if privileged_bits == PrivilegedBits::default() {
            self.privileged_bits.remove(&inode)
        } else {
            self.privileged_bits.insert(inode, privileged_bits)
        };
        sent.unwrap_or_default() != privileged_bits
    }

    pub(crate) fn is_being_written(&self, inode: InodeNo) -> bool {
        let first = self.first_from(Key::first(inode));
        first.is_some_and(|key| key.open_for.writes())
    }

    /// Certainly not open.
    pub(crate) fn is_free(&self, inode: InodeNo) -> bool {
        self.known && self.first_from(Key::first(inode)).is_none()
    }

    /// Whether another client than this has it open for writing, or had and may still write.
    pub(crate) fn is_written_by_others(&self, inode: InodeNo, client: ClientUuid) -> bool {
        let mut modes = OpenFor::ALL.into_iter().filter(|open_for| open_for.writes());
        let foreign = modes.any(|open_for| {
            let own = Key { inode, open_for, client, handle: HandleId(0) };
            let first = Key { client: NO_CLIENT, ..own };
            let behind = Key { handle: HandleId(u64::MAX), ..own };
            let before = self.open.range(first..own).next();
            let after = self.open.range((Bound::Excluded(behind), Bound::Unbounded)).next();
            let same = |key: &Key| (key.inode, key.open_for) == (inode, open_for);
            before.is_some() || after.is_some_and(same)
        });
        foreign || self.unsettled.contains(&inode)
    }

    /// Open, as far as known.
    pub(crate) fn has_any(&self, inode: InodeNo) -> bool {
        self.first_from(Key::first(inode)).is_some()
    }

    /// Whether this client alone has it open, as far as known, and through one handle that writes.
    pub(crate) fn is_opened_once(&self, inode: InodeNo, client: ClientUuid) -> bool {
        let keys = self.open.range(Key::first(inode)..).take_while(|key| key.inode == inode);
        let mut writer_count = 0;
        for key in keys {
            writer_count += usize::from(key.open_for.writes());
            if key.client != client || writer_count > 1 {
                return false;
            }
        }
        writer_count == 1 && !self.unsettled.contains(&inode)
    }

    /// Whether this client has it open in any mode.
    pub(crate) fn has_open(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.has(inode, client, |_| true)
    }

    /// Whether this client has it open for reading or listing it.
    pub(crate) fn reads(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.has(inode, client, OpenFor::reads)
    }

    /// Whether this client has it open for writing.
    pub(crate) fn writes(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.has(inode, client, OpenFor::writes)
    }

    /// Whether this client has it open for running it.
    pub(crate) fn executes(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.has(inode, client, OpenFor::executes)
    }

    fn has(&self, inode: InodeNo, client: ClientUuid, wanted: fn(OpenFor) -> bool) -> bool {
        let mut wanted = OpenFor::ALL.into_iter().filter(|open_for| wanted(*open_for));
        wanted.any(|open_for| {
            let first = Key { inode, open_for, client, handle: HandleId(0) };
            self.first_from(first)
                .is_some_and(|key| (key.open_for, key.client) == (open_for, client))
        })
    }

    /// The end of a listing through a handle that continues behind `cookie`: the next cookie at the
    /// start of the listing. Otherwise a listing could go on for ever while names are renamed away
    /// and back. `None` without such a handle.
    pub(crate) fn list(
        &mut self,
        (inode, client, handle): (InodeNo, ClientUuid, HandleId),
        cookie: u64,
        next_cookie: u64,
    ) -> Option<u64> {
        let key = Key { inode, open_for: OpenFor::Read, client, handle };
        if !self.open.contains(&key) {
            return None;
        }
        if cookie == 0 {
            self.listed.insert(key, next_cookie);
        }
        // Unknown in the middle of a listing after a restart.
        Some(*self.listed.entry(key).or_insert(next_cookie))
    }

    /// Drops a client's handles; returns their inodes, in rising order.
    pub(crate) fn drop_client(&mut self, client: ClientUuid) -> Vec<InodeNo> {
        let mut inodes = Vec::new();
        let mut written = Vec::new();
        self.open.retain(|key| {
            if key.client == client && inodes.last() != Some(&key.inode) {
                inodes.push(key.inode);
            }
            if key.client == client && key.open_for.writes() {
                written.push(key.inode);
            }
            key.client != client
        });
        self.counts.remove(&client);
        self.listed.retain(|key, _| key.client != client);
        for query in self.queries.values_mut() {
            let single = &mut query.closed.single_writer;
            *single = single.filter(|writer| *writer != client);
        }
        for inode in written {
            self.single_writers.remove(&inode);
            if self.is_being_written(inode) {
                self.unsettled.insert(inode);
            } else {
                self.unsettled.remove(&inode);
            }
        }
        self.dropped.insert(client);
        inodes
    }

    fn first_from(&self, key: Key) -> Option<&Key> {
        self.open.range(key..).next().filter(|first| first.inode == key.inode)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: InodeNo = InodeNo(7);

    fn handle(number: u64, open_for: OpenFor) -> Handle {
        Handle { id: HandleId(number), open_for }
    }

    #[test]
    fn a_client_has_at_most_a_quarter_of_the_handles() {
        let mut handles = Handles::new();
        handles.limit(16);
        let (greedy, other) = (ClientUuid([1; 16]), ClientUuid([2; 16]));
        for number in 0..4 {
            assert!(!handles.is_full(greedy));
            let open_for = OpenFor::ALL[usize::try_from(number).unwrap()];
            handles.open(FILE, greedy, handle(number, open_for));
            handles.open(FILE, greedy, handle(number, open_for));
        }
        assert!(handles.is_full(greedy) && !handles.is_full(other));
        handles.close(FILE, greedy, HandleId(0));
        handles.close(FILE, greedy, HandleId(0));
        assert!(!handles.is_full(greedy));
        handles.drop_client(greedy);
        assert!(handles.counts.is_empty() && handles.open.is_empty());
    }

    #[test]
    fn foreign_writers_are_found_before_and_behind_the_own_handles() {
        let client = |number: u8| ClientUuid([number; 16]);
        for other in [1, 9] {
            for open_for in [OpenFor::Write, OpenFor::ReadWrite] {
                let mut handles = Handles::new();
                handles.open(FILE, client(5), handle(1, OpenFor::ReadWrite));
                handles.open(FILE, client(other), handle(2, OpenFor::Read));
                handles.open(InodeNo(FILE.0 + 1), client(other), handle(3, open_for));
                assert!(!handles.is_written_by_others(FILE, client(5)));
                assert!(handles.is_written_by_others(FILE, client(other)));
                handles.open(FILE, client(other), handle(4, open_for));
                assert!(handles.is_written_by_others(FILE, client(5)));
                // Its client has left; what it wrote may still arrive.
                handles.drop_client(client(other));
                assert!(handles.is_written_by_others(FILE, client(5)));
            }
        }
    }

    #[test]
    fn counts_of_handles_are_known_when_most_are_used() {
        let mut handles = Handles::new();
        handles.limit(8);
        let client = |number: u8| ClientUuid([number; 16]);
        (0..5).for_each(|number| handles.open(FILE, client(number), handle(1, OpenFor::Read)));
        assert!(handles.counts_if_crowded().is_none());
        handles.open(FILE, client(0), handle(2, OpenFor::Read));
        let counts_if_crowded: Vec<(ClientUuid, usize)> =
            handles.counts_if_crowded().into_iter().flatten().collect();
        assert_eq!((counts_if_crowded.len(), counts_if_crowded[0]), (5, (client(0), 2)));
    }
}
