//! Random changes, replies, losses and crashes against a model of a correct server: after every
//! recovery it has every answered change exactly once.

use super::FILE;
use super::harness::{Harness, ReceivedRequest};
use super::replays::{chmod, entry, write, written};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::ConnId;
use wire::{InodeNo, Op, Reply, Resume, ShardId, Transno, Wire, Xid, request_flag};

const OTHER: InodeNo = InodeNo((3 << 48) | 9);

/// One shard of the server.
#[derive(Default)]
struct Shard {
    transno_last: u64,
    /// Executed changes, by transaction; those that are not durable are lost with the boot.
    executed: BTreeMap<u64, Xid>,
    durable: u64,
    /// Changes answered with a token, and not yet reported durable; whether it is a write.
    owed: BTreeMap<u64, bool>,
    /// Transactions replayed on this connection.
    replayed: u64,
}

struct Model {
    harness: Harness,
    rng: fastrand::Rng,
    shards: BTreeMap<ShardId, Shard>,
    done: BTreeSet<(ShardId, Xid)>,
    boot: u64,
    call_last: u64,
    answered_count: u64,
    replayed_count: u64,
    resent_count: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut harness = Harness::new(2);
        harness.answers_recovery = false;
        Self {
            harness,
            rng: fastrand::Rng::with_seed(seed),
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
        if self.harness.client.busy_count() > 60 {
            return;
        }
        self.call_last += 1;
        let call = match self.rng.u64(..3) {
            0 => chmod(FILE),
            1 => chmod(OTHER),
            _ => write(7, 4096),
        };
        self.harness.call(self.call_last, call);
    }

    /// The server executes one request; those of a recovery in order.
    fn serve(&mut self) {
        if self.harness.requests.is_empty() {
            return;
        }
        let count = self.harness.requests.len() as u64;
        let mut at = usize::try_from(self.rng.u64(..count)).unwrap();
        if self.harness.requests.iter().any(is_recovery) {
            at = self.harness.requests.iter().position(is_recovery).unwrap();
        }
        let request = self.harness.requests.remove(at).unwrap();
        let shard = self.shards.entry(request.head.shard).or_default();
        match request.head.op {
            Op::Resume => {
                let resume = Resume::decode_all(&request.body).unwrap();
                assert!(resume.known_committed.0 <= shard.durable);
                shard.replayed = shard.durable;
                let committed = shard.durable;
                shard.owed.retain(|transno, _| *transno > committed);
                self.harness.resumed(&request, committed, true);
            }
            Op::ReplayDone => {
                let lacking: Vec<_> =
                    shard.owed.keys().filter(|it| !shard.executed.contains_key(*it)).collect();
                assert_eq!(lacking, Vec::<&u64>::new(), "answered and not replayed");
                self.harness.answer(&request, &[]);
            }
            _ if request.head.flags & request_flag::REPLAY != 0 => self.replay(&request),
            _ => self.change(&request),
        }
    }

    fn replay(&mut self, request: &ReceivedRequest) {
        let transno = request.head.transno.0;
        let shard = self.shards.get_mut(&request.head.shard).unwrap();
        assert!(transno > shard.replayed, "replays come in the order of transactions");
        shard.replayed = transno;
        // Unless it has become durable while the replay was in flight.
        if transno > shard.durable {
            let is_write = shard.owed.get(&transno).expect("only answered changes are replayed");
            assert_eq!(request.bulk.is_some(), *is_write);
        }
        shard.executed.insert(transno, request.head.xid);
        self.done.insert((request.head.shard, request.head.xid));
        self.replayed_count += 1;
        let committed = Transno(shard.durable);
        let reply = Reply { committed, transno: Transno(transno), ..self.harness.reply(request) };
        self.harness.send(request.conn, reply, &[], None);
    }

    fn change(&mut self, request: &ReceivedRequest) {
        let head = request.head;
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
            *seen.expect("an executed change is recorded").0
        };
        let body = if is_write { written(4096) } else { entry() };
        match self.rng.u64(..4) {
            // A synchronous request waits for the disk.
            0 => {
                shard.durable = shard.durable.max(transno);
                let reply = Reply {
                    transno: Transno(transno),
                    committed: Transno(shard.durable),
                    ..self.harness.reply(request)
                };
                let committed = shard.durable;
                shard.owed.retain(|owed, _| *owed > committed);
                self.harness.send(request.conn, reply, &body, None);
            }
            // The reply is lost or late; a resend gets it.
            1 => {}
            _ => {
                shard.owed.insert(transno, is_write);
                self.harness.token(request, transno, &body);
            }
        }
    }

    /// Makes changes durable and sends a commit notification on this connection.
    fn notify_commit(&mut self, conn: ConnId) {
        let Some(lane) = self.harness.lane_of(conn) else { return };
        let map = self.harness.shape.map.clone();
        let mut rows = Vec::new();
        for (shard_id, shard) in &mut self.shards {
            let highest = shard.executed.keys().next_back().copied().unwrap_or(0);
            if map.lane(*shard_id) == lane && highest > shard.durable {
                shard.durable += 1 + self.rng.u64(..highest - shard.durable);
                let durable = shard.durable;
                shard.owed.retain(|owed, _| *owed > durable);
                rows.push((*shard_id, durable));
            }
        }
        self.harness.send_commit_notification(conn, &rows);
    }

    fn crash(&mut self) {
        self.boot += 1;
        for (shard_id, shard) in &mut self.shards {
            let durable = shard.durable;
            for (_, xid) in shard.executed.extract_if(durable + 1.., |_, _| true) {
                self.done.remove(&(*shard_id, xid));
            }
        }
        self.harness.restart();
    }

    fn check(&mut self) {
        let writes = self.shards.values().flat_map(|shard| shard.owed.values());
        assert_eq!(self.harness.retained.len(), writes.filter(|is_write| **is_write).count());
        let bytes: usize = self
            .harness
            .client
            .servers
            .sessions()
            .iter()
            .map(|session| session.replay.bytes())
            .sum();
        assert_eq!(bytes, self.harness.client.replay_bytes());
        for (shard_id, shard) in &self.shards {
            let index = self.harness.client.servers.session_index(*shard_id).unwrap();
            let held = self.harness.client.servers.sessions()[index].replay.transnos();
            let owed: Vec<_> = shard.owed.keys().map(|transno| Transno(*transno)).collect();
            assert_eq!(held, owed, "{shard_id}");
        }
        for answer in self.harness.answers() {
            assert!(answer.result.is_ok(), "{answer:?}");
            self.answered_count += 1;
        }
        assert!(self.harness.client.take_reports().is_empty());
        assert_eq!(self.harness.client.counters().protocol_error_count, 0);
    }
}

fn is_recovery(request: &ReceivedRequest) -> bool {
    let recovers = matches!(request.head.op, Op::Resume | Op::ReplayDone);
    recovers || request.head.flags & request_flag::REPLAY != 0
}

fn run(seed: u64) -> (u64, u64) {
    let mut model = Model::new(seed);
    for _ in 0..800 {
        match model.rng.u64(..40) {
            0..12 => model.call(),
            12..32 => model.serve(),
            32..36 => {
                let conn = model.harness.requests.front().map(|request| request.conn);
                if let Some(conn) = conn {
                    model.notify_commit(conn);
                }
            }
            36 => model.harness.hang_up(),
            37 => model.harness.wait_ms(model.rng.u64(..1_000)),
            _ => model.crash(),
        }
        model.check();
    }
    while model.harness.client.busy_count() > 0 {
        // Unanswered requests are resent.
        if model.harness.requests.is_empty() {
            model.harness.hang_up();
            model.harness.wait_ms(1_000);
        }
        model.serve();
        model.check();
    }
    assert_eq!(model.answered_count, model.call_last);
    (model.replayed_count, model.resent_count)
}

#[test]
fn no_answered_change_is_ever_lost() {
    let (mut replayed_count, mut resent_count) = (0, 0);
    for seed in 1..40 {
        let (replayed, resent) = run(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        replayed_count += replayed;
        resent_count += resent;
    }
    assert!(replayed_count > 300, "{replayed_count} replays");
    assert!(resent_count > 300, "{resent_count} resends");
}
