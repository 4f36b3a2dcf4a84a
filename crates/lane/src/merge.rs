//! The queues of replays, and which replay is next (docs/protocol.md §9): of the queues that are merged
//! into one order, the smallest transaction, once none of them is silent.
//!
//! Invariant: a group knows the first replay of each of its queues, so that the next replay is
//! found without a walk over all queues; every change of a queue goes through [`Queues::change`].

use crate::config::Share;
use crate::request::Replay;
use crate::request_header::RequestHeader;
use crate::session::Key;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::ConnId;
use wire::{ClientUuid, SessionId, ShardId, Transno};

/// The replays of one session at one shard.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) client: ClientUuid,
    pub(crate) replays: VecDeque<Replay>,
    /// The log knew the session: recovery waits for its ReplayDone.
    pub(crate) waited: bool,
    /// Its ReplayDone, answered when the replays are executed.
    pub(crate) done: Option<(ConnId, RequestHeader)>,
}

/// The queues whose replays are executed in one order: at a shard those of a client; with sharing
/// off, those of all clients; without merging, those of a session.
type Group = (ShardId, ClientUuid, SessionId);

/// The front of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Front {
    /// Its session may still send a replay smaller than all others.
    Silent,
    Replay(Transno),
    #[default]
    Nothing,
}

/// The state of a queue that its group depends on; the default is that of a queue that does not
/// exist.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Shown {
    front: Front,
    ended: bool,
    replay_count: usize,
}

/// The queues of a group.
#[derive(Default, Debug)]
struct Members {
    silent_count: usize,
    fronts: BTreeSet<(Transno, SessionId)>,
}

/// All queues of a lane.
#[derive(Debug)]
pub(crate) struct Queues {
    share: Share,
    merges_peer_lanes: bool,
    queues: BTreeMap<Key, Queue>,
    groups: BTreeMap<Group, Members>,
    /// Groups without a silent queue and with a replay.
    ready: BTreeSet<Group>,
    /// Sessions that are done and whose replays are executed.
    ended: BTreeSet<Key>,
    replay_count: usize,
}

impl Queue {
    fn front(&self) -> Front {
        match self.replays.front() {
            Some(replay) => Front::Replay(replay.transno),
            None if self.waited && self.done.is_none() => Front::Silent,
            None => Front::Nothing,
        }
    }

    fn shown(&self) -> Shown {
        let ended = self.done.is_some() && self.replays.is_empty();
        Shown { front: self.front(), ended, replay_count: self.replays.len() }
    }
}

impl Queues {
    /// `share`: the mode in force when the replayed changes were made.
    pub(crate) const fn new(share: Share, merges_peer_lanes: bool) -> Self {
        Self {
            share,
            merges_peer_lanes,
            queues: BTreeMap::new(),
            groups: BTreeMap::new(),
            ready: BTreeSet::new(),
            ended: BTreeSet::new(),
            replay_count: 0,
        }
    }

    /// Recovery waits for a session that the log knows.
    pub(crate) fn expect(&mut self, key: Key, client: ClientUuid) {
        self.open(key, client, true);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Queue> {
        self.queues.get(&key)
    }

    /// Adds a replay. False: it is out of order, or its session had ended its replays.
    pub(crate) fn push(&mut self, key: Key, client: ClientUuid, replay: Replay) -> bool {
        if !self.queues.contains_key(&key) {
            self.open(key, client, false);
        }
        let pushed = self.change(key, |queue| {
            let last = queue.replays.back();
            let in_order = last.is_none_or(|last| last.transno < replay.transno);
            let fits = in_order && queue.done.is_none();
            if fits {
                queue.replays.push_back(replay);
            }
            fits
        });
        pushed == Some(true)
    }

    /// A session has replayed everything. False: it has no queue.
    pub(crate) fn end(&mut self, key: Key, done: (ConnId, RequestHeader)) -> bool {
        self.change(key, |queue| queue.done = Some(done)).is_some()
    }

    /// The queue whose first replay is next.
    pub(crate) fn next(&self) -> Option<Key> {
        let group = self.ready.first()?;
        let (_, session) = self.groups.get(group)?.fronts.first()?;
        Some((group.0, *session))
    }

    /// Removes a session's first replay.
    pub(crate) fn pop(&mut self, key: Key) -> Option<Replay> {
        self.change(key, |queue| queue.replays.pop_front()).flatten()
    }

    /// Whether no replay waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.replay_count == 0
    }

    /// Removes the queues that have ended.
    pub(crate) fn take_ended(&mut self) -> Vec<Queue> {
        let ended = core::mem::take(&mut self.ended);
        ended.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The clients that block others: with a session that neither has ended nor has sent a replay.
    pub(crate) fn idle(&self) -> BTreeSet<ClientUuid> {
        let idle = |queue: &&Queue| queue.waited && queue.replays.is_empty();
        self.queues.values().filter(idle).map(|queue| queue.client).collect()
    }

    /// Removes the queues of a client; returns its replays.
    pub(crate) fn drop_client(&mut self, client: ClientUuid) -> Vec<Replay> {
        let of_client = self.queues.iter().filter(|(_, queue)| queue.client == client);
        let keys: Vec<Key> = of_client.map(|(key, _)| *key).collect();
        let dropped = keys.into_iter().filter_map(|key| self.remove(key));
        dropped.flat_map(|queue| queue.replays).collect()
    }

    /// Removes the replays that came over a connection, and returns them.
    pub(crate) fn drop_conn(&mut self, conn: ConnId) -> Vec<Replay> {
        let by = |queue: &Queue| {
            let done = queue.done.is_some_and(|(by, _)| by == conn);
            done || queue.replays.iter().any(|replay| replay.conn == conn)
        };
        let of_conn = self.queues.iter().filter(|(_, queue)| by(queue));
        let keys: Vec<Key> = of_conn.map(|(key, _)| *key).collect();
        let mut dropped = Vec::new();
        for key in keys {
            self.change(key, |queue| {
                let replays = core::mem::take(&mut queue.replays);
                let (dropped_replays, retained): (Vec<Replay>, Vec<Replay>) =
                    replays.into_iter().partition(|replay| replay.conn == conn);
                queue.replays = retained.into();
                queue.done = queue.done.filter(|(by, _)| *by != conn);
                dropped.extend(dropped_replays);
            });
        }
        dropped
    }

    fn open(&mut self, key: Key, client: ClientUuid, waited: bool) {
        let queue = Queue { client, replays: VecDeque::new(), waited, done: None };
        let now = queue.shown();
        self.queues.insert(key, queue);
        self.show(key, client, Shown::default(), now);
    }

    fn remove(&mut self, key: Key) -> Option<Queue> {
        let queue = self.queues.remove(&key)?;
        self.show(key, queue.client, queue.shown(), Shown::default());
        Some(queue)
    }

    /// Changes a queue and updates its group.
    fn change<T>(&mut self, key: Key, act: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let queue = self.queues.get_mut(&key)?;
        let before = queue.shown();
        let outcome = act(queue);
        let (client, now) = (queue.client, queue.shown());
        self.show(key, client, before, now);
        Some(outcome)
    }

    /// Updates the group of a queue whose state has changed.
    fn show(&mut self, key: Key, client: ClientUuid, before: Shown, now: Shown) {
        self.replay_count = self.replay_count + now.replay_count - before.replay_count;
        if now.ended && !before.ended {
            self.ended.insert(key);
        } else if before.ended && !now.ended {
            self.ended.remove(&key);
        }
        if now.front == before.front {
            return;
        }
        let group = self.group(key, client);
        let members = self.groups.entry(group).or_default();
        match before.front {
            Front::Silent => members.silent_count -= 1,
            Front::Replay(transno) => {
                members.fronts.remove(&(transno, key.1));
            }
            Front::Nothing => {}
        }
        match now.front {
            Front::Silent => members.silent_count += 1,
            Front::Replay(transno) => {
                members.fronts.insert((transno, key.1));
            }
            Front::Nothing => {}
        }
        if members.silent_count > 0 {
            self.ready.remove(&group);
        } else if members.fronts.is_empty() {
            self.ready.remove(&group);
            self.groups.remove(&group);
        } else {
            self.ready.insert(group);
        }
    }

    fn group(&self, (shard, session): Key, client: ClientUuid) -> Group {
        let client = if self.share == Share::Off { ClientUuid::default() } else { client };
        (shard, client, if self.merges_peer_lanes { SessionId(0) } else { session })
    }
}
