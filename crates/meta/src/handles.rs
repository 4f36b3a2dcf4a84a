//! Open handles: volatile, a set, so that opening or closing twice is as once. Each permits what its
//! open was permitted, and nothing else.
//!
//! After a restart the clients' handles are unknown until they opened them again; until then
//! nobody may conclude from a missing handle that a file is not open.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{ClientUuid, Handle, HandleId, InodeNo, OpenFor, PrivilegedBits};

/// Writers of an inode stand before all others ([`OpenFor::ALL`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    inode: InodeNo,
    open_for: OpenFor,
    client: ClientUuid,
    handle: HandleId,
}

impl Key {
    /// The first of an inode.
    const fn first(inode: InodeNo) -> Self {
        Self { inode, open_for: OpenFor::ALL[0], client: NOBODY, handle: HandleId(0) }
    }
}

const NOBODY: ClientUuid = ClientUuid([0; 16]);

/// Which clients have which inodes open.
#[derive(Debug)]
pub(crate) struct Handles {
    open: BTreeSet<Key>,
    /// How many each client has.
    counts: BTreeMap<ClientUuid, usize>,
    count_max: usize,
    /// Clients whose handles were dropped: they must open again what they still hold.
    gone: BTreeSet<ClientUuid>,
    /// Of inodes that nobody writes to any more: the number under which their data shard was asked
    /// for what it keeps. Whoever opens one for writing takes the question back.
    asked: BTreeMap<InodeNo, u64>,
    asked_count: u64,
    /// Of inodes open for writing: those to which somebody wrote who left without a word, and may
    /// have more on its way. Their sizes stay with the data shards once everybody has closed.
    unsettled: BTreeSet<InodeNo>,
    /// Of directories that are being listed: the first cookie that came too late.
    listed: BTreeMap<Key, u64>,
    /// What data shards were told that files give which are open for writing.
    gives: BTreeMap<InodeNo, PrivilegedBits>,
    known: bool,
}

impl Handles {
    /// Most handles at one shard, unless it is told otherwise.
    pub(crate) const COUNT_MAX: usize = 4_000_000;

    pub(crate) const fn new() -> Self {
        Self {
            open: BTreeSet::new(),
            counts: BTreeMap::new(),
            count_max: Self::COUNT_MAX,
            gone: BTreeSet::new(),
            asked: BTreeMap::new(),
            asked_count: 0,
            unsettled: BTreeSet::new(),
            listed: BTreeMap::new(),
            gives: BTreeMap::new(),
            known: true,
        }
    }

    /// All are forgotten, and clients may still hold some.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.counts.clear();
        self.gone.clear();
        self.asked.clear();
        self.unsettled.clear();
        self.listed.clear();
        self.gives.clear();
        self.known = false;
    }

    /// Whoever wanted to has opened again what he held.
    pub(crate) const fn end_grace(&mut self) {
        self.known = true;
    }

    /// Whether a client may have no more: there are too many, or a quarter of them are its own.
    pub(crate) fn is_full(&self, client: ClientUuid) -> bool {
        let own_count = self.counts.get(&client).copied().unwrap_or(0);
        self.open.len() >= self.count_max || own_count >= self.count_max / 4
    }

    /// So many at most.
    pub(crate) const fn limit(&mut self, count_max: usize) {
        self.count_max = count_max;
    }

    /// How many each client has, if all together are so many that it matters who has them: three
    /// quarters of what there may be.
    pub(crate) fn crowd(&self) -> Option<impl Iterator<Item = (ClientUuid, usize)>> {
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

    pub(crate) fn knows(&self, client: ClientUuid) -> bool {
        !self.gone.contains(&client)
    }

    pub(crate) fn open(&mut self, inode: InodeNo, client: ClientUuid, handle: Handle) {
        let Handle { id, open_for } = handle;
        if self.open.insert(Key { inode, open_for, client, handle: id }) {
            *self.counts.entry(client).or_default() += 1;
        }
        if open_for.writes() {
            self.asked.remove(&inode);
        }
    }

    /// Drops a handle. Whether nobody writes to the inode any more, somebody did until now, and all
    /// who did have closed it.
    pub(crate) fn close(&mut self, inode: InodeNo, client: ClientUuid, handle: HandleId) -> bool {
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
            return false;
        }
        !self.unsettled.remove(&inode) && self.known
    }

    /// A data shard is about to be asked what it keeps of an inode; the question's number.
    pub(crate) fn ask(&mut self, inode: InodeNo) -> u64 {
        self.asked_count += 1;
        self.asked.insert(inode, self.asked_count);
        self.asked_count
    }

    /// The answer to a question is here. Whether it is still asked.
    pub(crate) fn answered(&mut self, inode: InodeNo, number: u64) -> bool {
        let asked = self.asked.get(&inode) == Some(&number);
        if asked {
            self.asked.remove(&inode);
        }
        asked
    }

    /// Whether the data shard must be told what a file gives. Of one that nobody writes, it is
    /// nothing.
    pub(crate) fn tell_gives(&mut self, inode: InodeNo, gives: PrivilegedBits) -> bool {
        let told = if gives == PrivilegedBits::default() {
            self.gives.remove(&inode)
        } else {
            self.gives.insert(inode, gives)
        };
        told.unwrap_or_default() != gives
    }

    pub(crate) fn is_being_written(&self, inode: InodeNo) -> bool {
        let first = self.first_from(Key::first(inode));
        first.is_some_and(|key| key.open_for.writes())
    }

    /// Nobody has it open, for certain.
    pub(crate) fn is_free(&self, inode: InodeNo) -> bool {
        self.known && self.first_from(Key::first(inode)).is_none()
    }

    /// Somebody has it open, as far as is known.
    pub(crate) fn has_any(&self, inode: InodeNo) -> bool {
        self.first_from(Key::first(inode)).is_some()
    }

    /// Whether this client has it open, for whatever.
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

    /// Where a listing through a handle ends that goes on behind `cookie`: before what was the next
    /// new entry's cookie when it began. Else names that are renamed away and back while they are
    /// listed would come for ever. `None` without such a handle.
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
        // In the middle and not known: a restart has forgotten it.
        Some(*self.listed.entry(key).or_insert(next_cookie))
    }

    /// Drops a client's handles; the inodes that had some, in rising order.
    pub(crate) fn client_gone(&mut self, client: ClientUuid) -> Vec<InodeNo> {
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
        for inode in written {
            if self.is_being_written(inode) {
                self.unsettled.insert(inode);
            } else {
                self.unsettled.remove(&inode);
            }
        }
        self.gone.insert(client);
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
        handles.client_gone(greedy);
        assert!(handles.counts.is_empty() && handles.open.is_empty());
    }

    #[test]
    fn who_has_them_is_told_when_few_are_left() {
        let mut handles = Handles::new();
        handles.limit(8);
        let client = |number: u8| ClientUuid([number; 16]);
        (0..5).for_each(|number| handles.open(FILE, client(number), handle(1, OpenFor::Read)));
        assert!(handles.crowd().is_none());
        handles.open(FILE, client(0), handle(2, OpenFor::Read));
        let crowd: Vec<(ClientUuid, usize)> = handles.crowd().into_iter().flatten().collect();
        assert_eq!((crowd.len(), crowd[0]), (5, (client(0), 2)));
    }
}
