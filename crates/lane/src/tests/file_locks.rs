//! File locks, as clients and lanes see them: waits and grants, resends, cancels, evictions,
//! restarts, deadlocks.

use super::peer::{HelloFields, Peer, ReceivedReply, got};
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::{
    ByteRange, CancelLock, Grant, Header, InodeNo, LaneId, LockCancelled, LockKind, LockSet,
    LockType, Op, Relock, Request, SetLock, ShardId, Status, Wire, request_flag,
};

const LOSSY: u64 = crate::test_server::Delivery::LOSSY_SEED_MIN;
pub(super) const WRITE: Option<LockType> = Some(LockType::Write);

pub(super) fn file(shard: u16) -> InodeNo {
    InodeNo::new(shard, 77)
}

pub(super) fn ask(inode: InodeNo, owner: u64, lock: Option<LockType>) -> SetLock {
    let (kind, range, pid) = (LockKind::Posix, ByteRange::ALL, 5);
    SetLock { inode, kind, owner, lock, range, pid, wait_id: 0, place: 0 }
}

pub(super) fn waits(wait_id: u64, ask: SetLock) -> SetLock {
    SetLock { wait_id, ..ask }
}

/// A client lane with its connections to server lanes.
pub(super) struct Client {
    fields: HelloFields,
    peers: Vec<Peer>,
    grants: Vec<(u64, Status)>,
    replies: Vec<ReceivedReply>,
}

impl Client {
    pub(super) fn new(server: &mut TestServer, number: u8) -> Self {
        Self::of(server, HelloFields::new(number))
    }

    fn of(server: &mut TestServer, fields: HelloFields) -> Self {
        let lanes = 0..server.lane_count();
        let peers = lanes.map(|lane| {
            let mut peer =
                Peer::new(server, &HelloFields { server_lane: LaneId(lane), ..fields.clone() });
            peer.xid = u64::from(fields.conn_epoch) << 32;
            peer
        });
        let peers = peers.collect();
        Self { fields, peers, grants: Vec::new(), replies: Vec::new() }
    }

    /// The same client reconnects.
    fn again(&mut self, server: &mut TestServer) {
        let fields = HelloFields { conn_epoch: self.fields.conn_epoch + 1, ..self.fields.clone() };
        let grants = core::mem::take(&mut self.grants);
        *self = Self { grants, ..Self::of(server, fields) };
    }

    fn peer(&mut self, server: &TestServer, shard: ShardId) -> &mut Peer {
        &mut self.peers[usize::from(server.map.lane(shard).0)]
    }

    fn head(&mut self, server: &TestServer, op: Op, shard: ShardId) -> Request {
        let slot = u16::from(op.row().retry == wire::Retry::Once);
        self.peer(server, shard).head(op, shard, slot)
    }

    /// Takes the frames received.
    fn look(&mut self, server: &mut TestServer) {
        for peer in &self.peers {
            for received in server.take(peer.conn) {
                match Header::decode(&received.frame).unwrap() {
                    (Header::Grant, body) => {
                        let Grant { wait_id, status, .. } = Grant::decode_all(body).unwrap();
                        self.grants.push((wait_id, status));
                    }
                    (Header::Reply(_), _) => self.replies.push(got(received)),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn grants(&mut self, server: &mut TestServer) -> Vec<(u64, Status)> {
        self.look(server);
        core::mem::take(&mut self.grants)
    }

    fn ask<'a>(
        &mut self,
        server: &mut TestServer,
        (op, inode): (Op, InodeNo),
        body: &impl Wire<'a>,
    ) -> ReceivedReply {
        let head = self.head(server, op, inode.shard());
        self.send(server, &head, &body.to_bytes());
        server.run();
        self.look(server);
        assert_eq!(self.replies.len(), 1, "one reply to {op:?}");
        self.replies.remove(0)
    }

    fn send(&mut self, server: &mut TestServer, head: &Request, body: &[u8]) {
        self.peer(server, head.shard).clone().send(server, head, body, None);
    }

    /// Whether the lock was granted.
    pub(super) fn set(&mut self, server: &mut TestServer, ask: SetLock) -> Result<bool, Status> {
        set_of(&self.ask(server, (Op::SetLock, ask.inode), &ask)).map(|set| set.granted)
    }

    fn cancel(&mut self, server: &mut TestServer, inode: InodeNo, wait_id: u64) -> bool {
        let got = self.ask(server, (Op::CancelLock, inode), &CancelLock { inode, wait_id });
        LockCancelled::decode_all(&got.body).unwrap().waited
    }

    fn relock(&mut self, server: &mut TestServer, inode: InodeNo, owner: u64) -> Status {
        let SetLock { kind, range, pid, .. } = ask(inode, owner, None);
        let relock = Relock { inode, kind, owner, lock: LockType::Write, range, pid };
        self.ask(server, (Op::Relock, inode), &relock).head.status
    }
}

fn set_of(got: &ReceivedReply) -> Result<LockSet, Status> {
    let set = (got.head.status == Status::Ok).then(|| LockSet::decode_all(&got.body).unwrap());
    set.ok_or(got.head.status)
}

#[test]
fn a_wait_is_answered_at_once_and_granted_later() {
    let mut server = TestServer::started(1, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
    assert_eq!(other.set(&mut server, ask(file(0), 1, WRITE)), Err(Status::Again));
    // More than there are slots and credits.
    for wait_id in 1..=200 {
        let asked = ask(file(0), 100 + wait_id, WRITE);
        assert_eq!(other.set(&mut server, waits(wait_id, asked)), Ok(false));
    }
    assert!(other.cancel(&mut server, file(0), 1));
    assert_eq!(one.set(&mut server, ask(file(0), 1, None)), Ok(true));
    assert_eq!(other.grants(&mut server), [(2, Status::Ok)]);
    assert!(!other.cancel(&mut server, file(0), 2), "too late");
}

#[test]
fn a_late_duplicate_of_a_lock_request_changes_nothing() {
    let mut server = TestServer::started(2, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    let lock = ask(file(0), 1, WRITE);
    let head = one.head(&server, Op::SetLock, file(0).shard());
    one.send(&mut server, &head, &lock.to_bytes());
    server.run();
    // Its reply is lost with the connection; the client resends it.
    one.replies.clear();
    server.cut(one.peers[0].conn);
    server.run();
    one.again(&mut server);
    let conn_epoch = one.fields.conn_epoch;
    let resent = Request { conn_epoch, flags: request_flag::RESENT, ..head };
    one.send(&mut server, &resent, &lock.to_bytes());
    server.run();
    one.look(&mut server);
    assert_eq!(set_of(&one.replies.remove(0)).map(|set| set.granted), Ok(true));
    assert_eq!(one.set(&mut server, ask(file(0), 1, None)), Ok(true));
    assert_eq!(other.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
    assert_eq!(other.set(&mut server, ask(file(0), 1, None)), Ok(true));
    // A late duplicate of the first request: the slot has a later one.
    one.send(&mut server, &resent, &lock.to_bytes());
    server.run();
    one.look(&mut server);
    assert!(one.replies.is_empty());
    assert_eq!(other.set(&mut server, ask(file(0), 1, WRITE)), Ok(true), "it is free");
}

#[test]
fn a_wait_is_requested_again_under_its_id_after_a_lost_connection() {
    let mut server = TestServer::started(3, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
    let wait = waits(9, ask(file(0), 1, WRITE));
    assert_eq!(other.set(&mut server, wait), Ok(false));
    server.cut(other.peers[0].conn);
    server.run();
    // Granted while the client had no connection.
    assert_eq!(one.set(&mut server, ask(file(0), 1, None)), Ok(true));
    assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Err(Status::Again));
    other.again(&mut server);
    assert_eq!(other.set(&mut server, wait), Ok(true));
    assert_eq!(other.relock(&mut server, file(0), 1), Status::Ok);
    assert_eq!(one.relock(&mut server, file(0), 1), Status::Again, "it has been lost");
}

#[test]
fn the_expired_locks_of_a_client_are_granted_to_waiters() {
    for (waits_first, lane_count) in [(true, 1), (false, 1), (true, 2), (false, 2)] {
        let mut server = TestServer::started(4, lane_count);
        let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
        assert_eq!(one.set(&mut server, ask(file(1), 1, WRITE)), Ok(true));
        assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
        let wait = waits(9, ask(file(1), 2, WRITE));
        if waits_first {
            assert_eq!(other.set(&mut server, wait), Ok(false));
        }
        for peer in &one.peers {
            server.cut(peer.conn);
        }
        server.run();
        server.pass_ms(server.limits.lock_absent_ms - 100);
        assert_eq!(other.set(&mut server, ask(file(1), 3, WRITE)), Err(Status::Again));
        server.pass_ms(200);
        server.run();
        if waits_first {
            assert_eq!(other.grants(&mut server), [(9, Status::Ok)]);
        } else {
            assert_eq!(other.set(&mut server, wait), Ok(true));
        }
        // No client wants the other lock, which may be at another lane.
        one.again(&mut server);
        let conflicts = lane_count == 1 && waits_first;
        let status = if conflicts { Status::Again } else { Status::Ok };
        assert_eq!(one.relock(&mut server, file(0), 1), status);
        assert_eq!(one.relock(&mut server, file(1), 1), Status::Again);
        server.pass_ms(server.limits.client_absent_ms);
        server.run();
    }
}

/// The successor of a mount that has ended finds its locks free at once, whether the server has
/// seen its connections end or not, and so do waiters.
#[test]
fn a_successor_finds_the_locks_free() {
    for (seen, lane_count) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let mut server = TestServer::started(6, lane_count);
        let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
        for shard in 0..2 {
            assert_eq!(one.set(&mut server, ask(file(shard), 1, WRITE)), Ok(true));
        }
        assert_eq!(other.set(&mut server, waits(9, ask(file(1), 2, WRITE))), Ok(false));
        if seen {
            for peer in &one.peers {
                server.cut(peer.conn);
            }
            server.run();
        }
        let predecessor = one.fields.client;
        let mut next = Client::of(&mut server, HelloFields { predecessor, ..HelloFields::new(3) });
        assert_eq!(other.grants(&mut server), [(9, Status::Ok)]);
        assert_eq!(next.set(&mut server, ask(file(0), 3, WRITE)), Ok(true));
        assert_eq!(next.set(&mut server, ask(file(1), 3, WRITE)), Err(Status::Again), "it waited");
    }
}

#[test]
fn holders_and_waiters_survive_a_restart() {
    let mut server = TestServer::started(5, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    let mut third = Client::new(&mut server, 3);
    let lock = ask(file(0), 1, WRITE);
    assert_eq!(one.set(&mut server, lock), Ok(true));
    let mut places = Vec::new();
    for client in [&mut other, &mut third] {
        let got = client.ask(&mut server, (Op::SetLock, file(0)), &waits(9, lock));
        places.push(set_of(&got).unwrap().place);
    }
    server.crash();
    server.start(1);
    server.run();
    // The waiters reconnect first, in the wrong order: they wait for the holder's Relock.
    for (client, place) in [(&mut third, places[1]), (&mut other, places[0])] {
        client.again(&mut server);
        client.peers[0].come_back(&mut server, file(0).shard());
        let head = client.head(&server, Op::SetLock, file(0).shard());
        let again = SetLock { place, ..waits(9, lock) };
        client.send(&mut server, &head, &again.to_bytes());
        server.run();
        client.look(&mut server);
        assert!(client.replies.is_empty() && client.grants.is_empty());
    }
    one.again(&mut server);
    let head = one.head(&server, Op::ReplayDone, file(0).shard());
    one.send(&mut server, &head, &wire::ReplayDone { reopen_count: 1 }.to_bytes());
    server.run();
    assert!(!server.lane(0).recovery.is_over(), "the lock that was announced is waited for");
    one.look(&mut server);
    one.replies.clear();
    assert_eq!(one.relock(&mut server, file(0), 1), Status::Ok);
    assert!(server.lane(0).recovery.is_over());
    for client in [&mut third, &mut other] {
        client.look(&mut server);
        let set = set_of(&client.replies.remove(0)).unwrap();
        assert!(!set.granted && places.contains(&set.place));
    }
    assert_eq!(one.set(&mut server, ask(file(0), 1, None)), Ok(true));
    assert_eq!(other.grants(&mut server), [(9, Status::Ok)], "in the order of before");
    assert_eq!(third.grants(&mut server), []);
    assert_eq!(other.set(&mut server, ask(file(0), 1, None)), Ok(true));
    assert_eq!(third.grants(&mut server), [(9, Status::Ok)]);
}

/// The reply to a Relock is lost with the server, and it is the first that its lane has done there:
/// the resend does not tell of a lock that was lost with the start that granted it.
#[test]
fn a_relock_that_is_sent_again_to_the_next_start_locks_there() {
    let mut server = TestServer::started(5, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    assert_eq!(other.set(&mut server, ask(file(0), 1, None)), Ok(true));
    let mut relocked: Option<Request> = None;
    for conn_epoch in 2..4 {
        server.crash();
        server.start(1);
        server.run();
        one.again(&mut server);
        let done = one.head(&server, Op::ReplayDone, file(0).shard());
        let head = *relocked.get_or_insert(one.head(&server, Op::Relock, file(0).shard()));
        let SetLock { inode, kind, owner, range, pid, .. } = ask(file(0), 1, WRITE);
        let relock = Relock { inode, kind, owner, range, pid, lock: LockType::Write };
        one.send(&mut server, &done, &wire::ReplayDone { reopen_count: 1 }.to_bytes());
        one.send(&mut server, &Request { conn_epoch, ..head }, &relock.to_bytes());
        server.run();
        one.look(&mut server);
        assert_eq!(one.replies.len(), 2);
        assert!(one.replies.iter().all(|reply| reply.head.status == Status::Ok));
        assert!(!server.lane(0).recovery.is_over(), "the other client is waited for");
    }
    other.again(&mut server);
    other.peers[0].come_back(&mut server, file(0).shard());
    assert_eq!(other.set(&mut server, ask(file(0), 1, WRITE)), Err(Status::Again));
}

#[test]
fn an_evicted_client_holds_no_locks() {
    let mut server = TestServer::started(6, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
    assert_eq!(other.set(&mut server, ask(file(1), 1, WRITE)), Ok(true));
    server.crash();
    server.start(1);
    server.run();
    other.again(&mut server);
    for shard in [0, 1] {
        other.peers[0].come_back(&mut server, ShardId::meta(shard));
    }
    let head = other.head(&server, Op::SetLock, file(0).shard());
    other.send(&mut server, &head, &waits(4, ask(file(0), 1, WRITE)).to_bytes());
    server.run();
    assert!(!server.lane(0).recovery.is_over());
    server.pass_ms(server.limits.recovery_soft_ms);
    server.run();
    other.look(&mut server);
    assert_eq!(set_of(&other.replies.remove(0)).map(|set| set.granted), Ok(true));
}

#[test]
fn the_last_wait_of_a_cycle_is_refused_at_any_lane() {
    for (seed, lane_count) in [(7, 1), (8, 2), (9, 2), (LOSSY, 2), (LOSSY + 1, 2)] {
        let mut server = TestServer::started(seed, lane_count);
        let mut clients = [1, 2, 3].map(|number| Client::new(&mut server, number));
        let files = [file(0), file(1), InodeNo::new(0, 99)];
        for (client, inode) in clients.iter_mut().zip(files) {
            assert_eq!(client.set(&mut server, ask(inode, 1, WRITE)), Ok(true));
        }
        for at in 0..3 {
            let wait = waits(9, ask(files[(at + 1) % 3], 1, WRITE));
            assert_eq!(clients[at].set(&mut server, wait), Ok(false));
        }
        server.run();
        assert_eq!(clients[2].grants(&mut server), [(9, Status::Deadlock)]);
        assert!(clients[..2].iter_mut().all(|client| client.grants(&mut server).is_empty()));
        assert!(!clients[2].cancel(&mut server, files[0], 9), "it waits no more");
        // Another owner of the same client is not in the cycle.
        let wait = waits(10, ask(files[0], 2, WRITE));
        assert_eq!(clients[2].set(&mut server, wait), Ok(false));
        assert_eq!(clients[2].set(&mut server, ask(files[2], 1, None)), Ok(true));
        assert_eq!(clients[1].grants(&mut server), [(9, Status::Ok)]);
        assert_eq!(clients[2].grants(&mut server), []);
    }
}

/// Two clients lock a file each and request the other's before either has a reply. Returns which is
/// refused.
fn refused_of_a_circle(
    server: &mut TestServer,
    files: [InodeNo; 2],
    second_first: bool,
) -> Vec<(u64, Status)> {
    let mut clients = [1, 2].map(|number| Client::new(server, number));
    for (client, inode) in clients.iter_mut().zip(files) {
        assert_eq!(client.set(server, ask(inode, 1, WRITE)), Ok(true));
    }
    let mut waits_for: Vec<_> = clients.iter_mut().zip([files[1], files[0]]).collect();
    if second_first {
        waits_for.reverse();
    }
    for (client, inode) in waits_for {
        let head = client.head(server, Op::SetLock, inode.shard());
        client.send(server, &head, &waits(9, ask(inode, 1, WRITE)).to_bytes());
    }
    server.run();
    clients.iter_mut().flat_map(|client| client.grants(server)).collect()
}

#[test]
fn of_two_waits_that_close_a_cycle_at_once_one_is_refused() {
    for seed in (20..60).chain(LOSSY..LOSSY + 20) {
        let mut server = TestServer::started(seed, 2);
        let refused = refused_of_a_circle(&mut server, [file(0), file(1)], false);
        assert_eq!(refused, [(9, Status::Deadlock)], "seed {seed}");
    }
}

#[test]
fn of_a_cycle_that_closes_in_one_turn_one_wait_is_refused() {
    for seed in 0..20 {
        let mut server = TestServer::started(seed, 1);
        let files = [file(0), InodeNo::new(0, 78)];
        let refused = refused_of_a_circle(&mut server, files, seed % 2 == 1);
        assert_eq!(refused, [(9, Status::Deadlock)], "seed {seed}");
    }
}

#[test]
fn the_client_whose_lock_others_wait_for_is_named_with_how_long() {
    use crate::tests::counters;
    use wire::counters::{By, Label, Metric};
    let mut server = TestServer::started(3, 1);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    let mut admin = counters::admin(&mut server);
    assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
    assert_eq!(other.set(&mut server, waits(1, ask(file(0), 1, WRITE))), Ok(false));
    server.sleep(3_000_000);
    let found = counters::snapshot(&mut server, &mut admin);
    let holder = counters::of(&found, (By::Client, Label::Client), &"01".repeat(16));
    assert_eq!(holder.number(Metric::WaitingFileLock), Some(1));
    assert!(holder.number(Metric::FileLockAge) >= Some(3000), "{holder:?}");
    let waiter = counters::of(&found, (By::Client, Label::Client), &"02".repeat(16));
    assert_eq!(waiter.number(Metric::WaitingFileLock), None);
    assert_eq!(one.set(&mut server, ask(file(0), 1, None)), Ok(true));
    let found = counters::snapshot(&mut server, &mut admin);
    assert_eq!(found.rows(By::Lane)[0].number(Metric::WaitingFileLock), Some(0));
}
