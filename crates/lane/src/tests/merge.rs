//! Replays are executed in the protocol's order, however they are distributed over sessions.

use crate::Share;
use crate::merge::Queues;
use crate::request::Replay;
use crate::request_header::{RequestHeader, Times};
use crate::session::Key;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use fastrand::Rng;
use interface::ConnId;
use wire::{ClientUuid, Op, SessionId, ShardId, Transno, Xid};

fn header_of((shard, session): Key) -> RequestHeader {
    RequestHeader {
        op: Op::Create,
        shard,
        slot: 1,
        session,
        xid: Xid(1),
        trace_id: 0,
        times: Times::default(),
    }
}

fn replay(key: Key, transno: u64, conn: ConnId) -> Replay {
    let (transno, body, bulk) = (Transno(transno), Vec::new(), None);
    Replay { conn, header: header_of(key), transno, body, bulk }
}

/// A model of a session's queue.
struct ModelQueue {
    client: ClientUuid,
    transnos: VecDeque<u64>,
    waited: bool,
    done: bool,
}

/// The rule of the protocol: of all replays in one order the smallest, unless an awaited session is
/// silent.
fn may_come(all: &BTreeMap<Key, ModelQueue>, share: Share, merges: bool) -> BTreeSet<Key> {
    let together = |one: (&Key, &ModelQueue), other: (&Key, &ModelQueue)| {
        let same = one.0.0 == other.0.0;
        let clients = share == Share::Off || one.1.client == other.1.client;
        same && clients && (merges || one.0 == other.0)
    };
    let first = |simple: &ModelQueue| simple.transnos.front().copied();
    let comes = |one: &(&Key, &ModelQueue)| {
        let mut others = all.iter().filter(|other| together(*one, *other));
        first(one.1).is_some()
            && others.all(|(_, other)| match first(other) {
                Some(transno) => first(one.1) <= Some(transno),
                None => !other.waited || other.done,
            })
    };
    all.iter().filter(comes).map(|(key, _)| *key).collect()
}

/// Sessions of three clients at two shards send replays, end and disconnect in any order.
#[test]
fn the_next_replay_is_always_a_permitted_one() {
    let mut executed_count = 0;
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let share = [Share::Off, Share::Write][rng.usize(..2)];
        let merges = share == Share::Off || rng.usize(..4) != 0;
        let mut queues = Queues::new(share, merges);
        let mut all: BTreeMap<Key, ModelQueue> = BTreeMap::new();
        let session = |number: usize| SessionId(number as u64 + 1);
        let client = |number: usize| ClientUuid([number as u8 / 2 + 1; 16]);
        for number in 0..6 {
            for shard in (0..2).map(ShardId::meta) {
                if rng.usize(..2) == 0 {
                    let key = (shard, session(number));
                    queues.expect(key, client(number));
                    let transnos = VecDeque::new();
                    let simple =
                        ModelQueue { client: client(number), transnos, waited: true, done: false };
                    all.insert(key, simple);
                }
            }
        }
        let mut transno = 0;
        for _ in 0..120 {
            let number = rng.usize(..6);
            let (client, conn) = (client(number), ConnId(number as u64));
            let key = (ShardId::meta(rng.usize(..2) as u16), session(number));
            match rng.usize(..24) {
                0..12 => {
                    transno += 1;
                    let pushed = queues.push(key, client, replay(key, transno, conn));
                    let new = ModelQueue {
                        client,
                        transnos: VecDeque::new(),
                        waited: false,
                        done: false,
                    };
                    let simple = all.entry(key).or_insert(new);
                    assert_eq!(pushed, !simple.done);
                    if pushed {
                        simple.transnos.push_back(transno);
                        let again = replay(key, transno, conn);
                        assert!(!queues.push(key, client, again), "they only rise");
                    }
                }
                12..15 => {
                    let known = all.get_mut(&key).map(|simple| simple.done = true);
                    assert_eq!(queues.end(key, (conn, header_of(key))), known.is_some());
                }
                15 => {
                    let of_conn = |(key, _): &(&Key, &mut ModelQueue)| key.1 == session(number);
                    for (_, simple) in all.iter_mut().filter(of_conn) {
                        simple.transnos.clear();
                        simple.done = false;
                    }
                    queues.drop_conn(conn);
                }
                16 if rng.usize(..4) == 0 => {
                    all.retain(|_, simple| simple.client != client);
                    queues.drop_client(client);
                }
                _ => {}
            }
            while let Some(key) = queues.next().filter(|_| rng.usize(..3) != 0) {
                let may = may_come(&all, share, merges);
                assert_eq!(may.iter().next().map(|first| first.0), Some(key.0), "seed {seed}");
                assert!(may.contains(&key), "seed {seed}");
                let popped = queues.pop(key).unwrap().transno.0;
                assert_eq!(Some(popped), all.get_mut(&key).unwrap().transnos.pop_front());
                executed_count += 1;
            }
            assert_eq!(queues.next().is_none(), may_come(&all, share, merges).is_empty());
            let waits = all.values().any(|simple| !simple.transnos.is_empty());
            assert_eq!(queues.is_empty(), !waits);
            if rng.usize(..3) == 0 {
                let ended = all.values().filter(|it| it.done && it.transnos.is_empty()).count();
                assert_eq!(queues.take_ended().len(), ended);
                all.retain(|_, simple| !simple.done || !simple.transnos.is_empty());
            }
        }
    }
    assert!(executed_count > 1000, "{executed_count}");
}
