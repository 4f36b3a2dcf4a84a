//! Random changes, answers, losses and crashes against a model of a server that keeps its word:
//! after every recovery it has all that was answered, each once.

use super::replays::{chmod, entry, write, written};
use super::rig::{Asked, Rig};
use super::{Dice, FILE};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::ConnId;
use wire::{InodeNo, Op, Reply, Resume, ShardId, Transno, Wire, Xid, request_flag};

const OTHER: InodeNo = InodeNo((3 << 48) | 9);

/// What one shard of the server has.
#[derive(Default)]
struct Shard {
    transno_last: u64,
    /// Executed, by transaction; what is not durable dies with the boot.
    executed: BTreeMap<u64, Xid>,
    durable: u64,
    /// Answered with a token, and not yet said to be durable; whether it is a write.
    owed: BTreeMap<u64, bool>,
    /// What this connection's recovery has brought so far.
    replayed: u64,
}

struct World {
    rig: Rig,
    dice: Dice,
    shards: BTreeMap<ShardId, Shard>,
    done: BTreeSet<(ShardId, Xid)>,
    boot: u64,
    call_last: u64,
    answered_count: u64,
    replayed_count: u64,
    resent_count: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::new(2);
        rig.answers_recovery = false;
        Self {
            rig,
            dice: Dice(seed),
            shards: BTreeMap::new(),
            done: BTreeSet::new(),
            boot: 1,
            call_last: 0,
            answered_count: 0,
            replayed_count: 0,
            resent_count: 0,
        }
    }

    fn call(&mut self) {
        if self.rig.client.busy_count() > 60 {
            return;
        }
        self.call_last += 1;
        let call = match self.dice.roll(3) {
            0 => chmod(FILE),
            1 => chmod(OTHER),
            _ => write(7, 4096),
        };
        self.rig.call(self.call_last, call);
    }

    /// The server takes up one request; those of a recovery in their order.
    fn serve(&mut self) {
        if self.rig.asked.is_empty() {
            return;
        }
        let count = self.rig.asked.len() as u64;
        let mut at = usize::try_from(self.dice.roll(count)).unwrap();
        if self.rig.asked.iter().any(is_recovery) {
            at = self.rig.asked.iter().position(is_recovery).unwrap();
        }
        let asked = self.rig.asked.remove(at).unwrap();
        let shard = self.shards.entry(asked.head.shard).or_default();
        match asked.head.op {
            Op::Resume => {
                let resume = Resume::decode_all(&asked.body).unwrap();
                assert!(resume.known_committed.0 <= shard.durable);
                shard.replayed = shard.durable;
                let committed = shard.durable;
                shard.owed.retain(|transno, _| *transno > committed);
                self.rig.resumed(&asked, committed, true);
            }
            Op::ReplayDone => {
                let lacking: Vec<_> =
                    shard.owed.keys().filter(|it| !shard.executed.contains_key(*it)).collect();
                assert_eq!(lacking, Vec::<&u64>::new(), "answered and not replayed");
                self.rig.answer(&asked, &[]);
            }
            _ if asked.head.flags & request_flag::REPLAY != 0 => self.replay(&asked),
            _ => self.change(&asked),
        }
    }

    fn replay(&mut self, asked: &Asked) {
        let transno = asked.head.transno.0;
        let shard = self.shards.get_mut(&asked.head.shard).unwrap();
        assert!(transno > shard.replayed, "replays come in the order of transactions");
        shard.replayed = transno;
        // Unless it has become durable while the replay was on its way.
        if transno > shard.durable {
            let is_write = shard.owed.get(&transno).expect("only what was answered is replayed");
            assert_eq!(asked.bulk.is_some(), *is_write);
        }
        shard.executed.insert(transno, asked.head.xid);
        self.done.insert((asked.head.shard, asked.head.xid));
        self.replayed_count += 1;
        let committed = Transno(shard.durable);
        let reply = Reply { committed, transno: Transno(transno), ..self.rig.reply(asked) };
        self.rig.send(asked.conn, reply, &[], None);
    }

    fn change(&mut self, asked: &Asked) {
        let head = asked.head;
        let key = (head.shard, head.xid);
        let is_write = head.op == Op::Write;
        let shard = self.shards.get_mut(&head.shard).unwrap();
        self.resent_count += u64::from(head.flags & request_flag::RESENT != 0);
        let transno = if self.done.insert(key) {
            shard.transno_last = (shard.transno_last + 1).max(self.boot << 32);
            shard.executed.insert(shard.transno_last, head.xid);
            shard.transno_last
        } else {
            let seen = shard.executed.iter().find(|(_, xid)| **xid == head.xid);
            *seen.expect("what is done is known").0
        };
        let body = if is_write { written(4096) } else { entry() };
        match self.dice.roll(4) {
            // The reply waits for the disk.
            0 => {
                shard.durable = shard.durable.max(transno);
                let reply = Reply {
                    transno: Transno(transno),
                    committed: Transno(shard.durable),
                    ..self.rig.reply(asked)
                };
                let committed = shard.durable;
                shard.owed.retain(|owed, _| *owed > committed);
                self.rig.send(asked.conn, reply, &body, None);
            }
            // The reply is lost, or is still to come; a resend gets it.
            1 => {}
            _ => {
                shard.owed.insert(transno, is_write);
                self.rig.token(asked, transno, &body);
            }
        }
    }

    /// Something becomes durable, and is told on this connection.
    fn note(&mut self, conn: ConnId) {
        let Some(lane) = self.rig.lane_of(conn) else { return };
        let map = self.rig.shape.map;
        let mut rows = Vec::new();
        for (shard_id, shard) in &mut self.shards {
            let highest = shard.executed.keys().next_back().copied().unwrap_or(0);
            if map.lane(*shard_id) == lane && highest > shard.durable {
                shard.durable += 1 + self.dice.roll(highest - shard.durable);
                let durable = shard.durable;
                shard.owed.retain(|owed, _| *owed > durable);
                rows.push((*shard_id, durable));
            }
        }
        self.rig.note_on(conn, &rows);
    }

    fn crash(&mut self) {
        self.boot += 1;
        for (shard_id, shard) in &mut self.shards {
            let durable = shard.durable;
            for (_, xid) in shard.executed.extract_if(durable + 1.., |_, _| true) {
                self.done.remove(&(*shard_id, xid));
            }
        }
        self.rig.restart();
    }

    fn check(&mut self) {
        let writes = self.shards.values().flat_map(|shard| shard.owed.values());
        assert_eq!(self.rig.kept.len(), writes.filter(|is_write| **is_write).count());
        let bytes: usize =
            self.rig.client.sessions.iter().map(|session| session.replay.bytes()).sum();
        assert_eq!(bytes, self.rig.client.replay_bytes());
        for (shard_id, shard) in &self.shards {
            let index = crate::send::session_index(self.rig.shape.map, *shard_id);
            let held = self.rig.client.sessions[index].replay.transnos();
            let owed: Vec<_> = shard.owed.keys().map(|transno| Transno(*transno)).collect();
            assert_eq!(held, owed, "{shard_id}");
        }
        for answer in self.rig.answers() {
            assert!(answer.result.is_ok(), "{answer:?}");
            self.answered_count += 1;
        }
        assert!(self.rig.client.take_reports().is_empty());
        assert_eq!(self.rig.client.counters().protocol_error_count, 0);
    }
}

fn is_recovery(asked: &Asked) -> bool {
    let recovers = matches!(asked.head.op, Op::Resume | Op::ReplayDone);
    recovers || asked.head.flags & request_flag::REPLAY != 0
}

fn run(seed: u64) -> (u64, u64) {
    let mut world = World::new(seed);
    for _ in 0..800 {
        match world.dice.roll(40) {
            0..12 => world.call(),
            12..32 => world.serve(),
            32..36 => {
                let conn = world.rig.asked.front().map(|asked| asked.conn);
                if let Some(conn) = conn {
                    world.note(conn);
                }
            }
            36 => world.rig.hang_up(),
            37 => world.rig.wait_ms(world.dice.roll(1_000)),
            _ => world.crash(),
        }
        world.check();
    }
    while world.rig.client.busy_count() > 0 {
        // What was left unanswered is asked again.
        if world.rig.asked.is_empty() {
            world.rig.hang_up();
            world.rig.wait_ms(1_000);
        }
        world.serve();
        world.check();
    }
    assert_eq!(world.answered_count, world.call_last);
    (world.replayed_count, world.resent_count)
}

#[test]
fn nothing_that_was_answered_is_ever_lacking() {
    let (mut replayed_count, mut resent_count) = (0, 0);
    for seed in 1..40 {
        let (replayed, resent) = run(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        replayed_count += replayed;
        resent_count += resent;
    }
    assert!(replayed_count > 300, "{replayed_count} replays");
    assert!(resent_count > 300, "{resent_count} resends");
}
