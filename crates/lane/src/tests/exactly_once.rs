//! Lost replies, cut connections, crashes at any moment, other lane counts: each request takes
//! effect once, and acknowledged changes survive.
//!
//! Every slot of every client works on names of its own, so each request's outcome is known
//! beforehand. A request that is executed twice, or lost after its reply, changes a status, the
//! listing or the bytes of a file that all slots append to.

use super::peer::{
    HelloFields, Peer, ROOT, ReceivedReply, commit_rows, create, got, handshake, handshake_frame,
    name, request, stated_layout,
};
use crate::test_server::TestServer;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fastrand::Rng;
use interface::ConnId;
use wire::{
    Challenge, Dirent, FrameKind, InodeNo, LaneId, Listing, Op, PLAIN, Proof, Proven, Read,
    Readdir, RenameHow, Reply, Request, SessionId, ShardId, Status, Welcome, Wire, Xid, reply_flag,
    request_flag,
};

const LOSSY: u64 = crate::test_server::Delivery::LOSSY_SEED_MIN;

fn proof_of(server: &TestServer, fields: &HelloFields, challenge: &Challenge) -> [u8; 32] {
    let (nonce, channel) = (&challenge.nonce, &PLAIN);
    server.secret.client_proof(Proven { hello: &fields.hello(&server.secret), nonce, channel })
}

/// A request without a reply yet.
#[derive(Clone, Debug)]
struct OutstandingRequest {
    head: Request,
    body: Vec<u8>,
    bulk: Option<Vec<u8>>,
    doing: Work,
    /// The connection that it was sent on last.
    sent: Option<ConnId>,
}

/// The next work of a slot.
#[derive(Clone, Debug)]
enum Work {
    Create(String),
    Mkdir(String),
    Rename(String, String),
    Unlink(String),
    Rmdir(String),
    Append(Vec<u8>),
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Hello,
    Proof,
    Open(SessionId),
}

/// A reply, and the request, for replaying its change.
#[derive(Clone, Debug)]
struct RetainedReply {
    head: Request,
    replay: Vec<u8>,
    bulk: Option<Vec<u8>>,
}

/// The replay state of a session at a shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ReplayState {
    #[default]
    Settled,
    /// On this connection.
    Resuming(ConnId),
    Replaying(ConnId),
}

/// A client's state for a shard.
#[derive(Clone, Default, Debug)]
struct Part {
    boot_id: u64,
    course: ReplayState,
    retained: BTreeMap<u64, RetainedReply>,
    /// Highest own transaction that was reported durable.
    known_committed: u64,
}

impl Part {
    fn record_committed(&mut self, committed: u64) {
        let rest = self.retained.split_off(&(committed + 1));
        let pruned = core::mem::replace(&mut self.retained, rest);
        let last = pruned.last_key_value().map_or(0, |(last, _)| *last);
        self.known_committed = self.known_committed.max(last);
    }
}

/// One client lane with its connections to server lanes.
struct Client {
    number: u8,
    conn_epoch: u32,
    xid: u64,
    links: BTreeMap<u16, (ConnId, HelloFields, Stage)>,
    owed: BTreeMap<u16, OutstandingRequest>,
    /// By shard, the changes that it may have to replay.
    parts: BTreeMap<ShardId, Part>,
    /// The existing files and directories of each slot.
    files: BTreeMap<u16, Vec<String>>,
    folders: BTreeMap<u16, Vec<String>>,
    appended: Vec<Vec<u8>>,
    name_count: u32,
}

struct Run {
    seed: u64,
    server: TestServer,
    rng: Rng,
    clients: Vec<Client>,
    /// The file that all slots append to.
    log: InodeNo,
    answered_count: u64,
    from_slot_count: u64,
    token_count: u64,
    replayed_count: u64,
}

impl Run {
    fn new(seed: u64, names_bytes_max: Option<u64>) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5555);
        let mut server = TestServer::new(seed);
        server.limits.share = crate::Share::ALL[rng.usize(..3)];
        server.limits.sync = rng.usize(..8) == 0;
        server.log_slowness = rng.usize(..3) * 20;
        names_bytes_max.into_iter().for_each(|bytes| server.bound_names(bytes));
        server.start(1 + rng.usize(..3) as u16);
        server.limits.object_count_max = 1 + rng.usize(..4);
        let mut maker = Peer::new(&mut server, &HelloFields::new(99));
        let log = maker.create(&mut server, "log");
        let goodbye = maker.ask(&mut server, Op::Goodbye, 0, &[0_u8; 0]);
        assert_eq!(goodbye.head.status, Status::Ok);
        server.cut(maker.conn);
        let client_count = 1 + rng.usize(..3) as u8;
        let client = |number| Client {
            number,
            conn_epoch: 0,
            xid: 1 << 40,
            links: BTreeMap::new(),
            owed: BTreeMap::new(),
            parts: BTreeMap::new(),
            files: BTreeMap::new(),
            folders: BTreeMap::new(),
            appended: Vec::new(),
            name_count: 0,
        };
        let clients = (1..=client_count).map(client).collect();
        Self {
            seed,
            server,
            rng,
            clients,
            log,
            answered_count: 0,
            from_slot_count: 0,
            token_count: 0,
            replayed_count: 0,
        }
    }

    /// Draws new work for a free slot.
    fn invent(&mut self, index: usize, slot: u16) {
        let client = &mut self.clients[index];
        client.name_count += 1;
        let fresh = format!("c{}-{}", client.number, client.name_count);
        let files = client.files.entry(slot).or_default();
        let folders = client.folders.entry(slot).or_default();
        let doing = match self.rng.usize(..8) {
            0 | 1 => Work::Create(fresh),
            2 => Work::Mkdir(fresh),
            3 if !files.is_empty() => Work::Rename(files[0].clone(), fresh),
            4 if !files.is_empty() => Work::Unlink(files[0].clone()),
            5 if !folders.is_empty() => Work::Rmdir(folders[0].clone()),
            _ => Work::Append(format!("<{fresh}>").into_bytes()),
        };
        let (caller, parent) = (ROOT, InodeNo::ROOT);
        let (op, body, bulk) = match &doing {
            Work::Create(text) => (Op::Create, create(text).to_bytes(), None),
            Work::Mkdir(text) => {
                let mkdir = wire::Mkdir { caller, parent, name: name(text), mode: 0o755, umask: 0 };
                (Op::Mkdir, mkdir.to_bytes(), None)
            }
            Work::Rename(from, to) => {
                let rename = wire::Rename {
                    caller,
                    parent,
                    name: name(from),
                    new_parent: parent,
                    new_name: name(to),
                    how: RenameHow::NoReplace,
                };
                (Op::Rename, rename.to_bytes(), None)
            }
            Work::Unlink(text) => (
                Op::Unlink,
                wire::Unlink { caller, parent, name: name(text), behind: None }.to_bytes(),
                None,
            ),
            Work::Rmdir(text) => {
                (Op::Rmdir, wire::Rmdir { caller, parent, name: name(text) }.to_bytes(), None)
            }
            Work::Append(bytes) => {
                let write = wire::Write {
                    inode: self.log,
                    file_offset: 0,
                    append: true,
                    clears: wire::ClearPrivileges::Nothing,
                };
                (Op::Write, write.to_bytes(), Some(bytes.clone()))
            }
        };
        let client = &mut self.clients[index];
        client.xid += 1;
        let oldest = client.owed.values().map(|owed| owed.head.xid.0).min().unwrap_or(client.xid);
        let head = Request {
            op,
            lane_hint: LaneId(0),
            shard: self.server.map.shard(op, self.log, (None, 0)).unwrap(),
            slot,
            flags: 0,
            session: SessionId(0),
            xid: Xid(client.xid),
            ack_xid: Xid(oldest - 1),
            sack: 0,
            conn_epoch: 0,
            layout: stated_layout(op),
            transno: wire::Transno(0),
            trace_id: 0,
            map_epoch: self.server.map.epoch(),
        };
        client.owed.insert(slot, OutstandingRequest { head, body, bulk, doing, sent: None });
    }

    /// Connects where needed, replays lost changes, then sends the requests that the present
    /// connection has not carried yet.
    fn send(&mut self, index: usize) {
        let boot_id = self.server.boot_id;
        let shards: BTreeSet<ShardId> = {
            let client = &self.clients[index];
            let owed = client.owed.values().map(|owed| owed.head.shard);
            let unsettled = client.parts.iter().filter(|(_, part)| part.boot_id != boot_id);
            owed.chain(unsettled.map(|(shard, _)| *shard)).collect()
        };
        for shard in shards {
            let lane = self.server.map.lane(shard);
            let client = &mut self.clients[index];
            let Some((conn, fields, stage)) = client.links.get(&lane.0).cloned() else {
                client.conn_epoch += 1;
                let fields = HelloFields {
                    server_lane: lane,
                    conn_epoch: client.conn_epoch,
                    ..HelloFields::new(client.number)
                };
                let conn = self.server.connect();
                self.server.send(
                    conn,
                    handshake(FrameKind::Hello, &fields.hello(&self.server.secret)),
                    None,
                );
                client.links.insert(lane.0, (conn, fields, Stage::Hello));
                continue;
            };
            let Stage::Open(session) = stage else { continue };
            if self.server.is_closed(conn) {
                continue; // What came over it is taken in first.
            }
            if !self.resume(index, shard, (conn, session, fields.conn_epoch)) {
                continue;
            }
            let client = &mut self.clients[index];
            for owed in client.owed.values_mut().filter(|owed| owed.head.shard == shard) {
                if owed.sent == Some(conn) {
                    continue;
                }
                client.parts.entry(shard).or_default().boot_id = boot_id;
                // The server records the session at all data shards of the lane.
                for at in self.server.map.shard_counts().shards() {
                    if shard.is_data() && at.is_data() && self.server.map.lane(at) == lane {
                        let part = || Part { boot_id, ..Part::default() };
                        client.parts.entry(at).or_insert_with(part);
                    }
                }
                owed.head.session = session;
                owed.head.conn_epoch = fields.conn_epoch;
                owed.head.flags = if owed.sent.is_some() { request_flag::RESENT } else { 0 };
                owed.sent = Some(conn);
                let map_epoch = self.server.map.epoch();
                let head = Request { map_epoch, ..owed.head };
                let frame = request(&head, &owed.body, owed.bulk.as_deref());
                self.server.send(conn, frame, owed.bulk.clone());
            }
        }
    }

    /// Whether nothing is left to be replayed to a shard.
    fn resume(
        &mut self,
        index: usize,
        shard: ShardId,
        (conn, session, conn_epoch): (ConnId, SessionId, u32),
    ) -> bool {
        let client = &mut self.clients[index];
        let boot_id = self.server.boot_id;
        let Some(part) = client.parts.get_mut(&shard) else { return true };
        if part.boot_id == boot_id {
            return true;
        }
        let begun = matches!(part.course, ReplayState::Resuming(on) | ReplayState::Replaying(on) if on == conn);
        if !begun {
            part.course = ReplayState::Resuming(conn);
            client.xid += 1;
            let known_committed = wire::Transno(part.known_committed);
            let replay_count = part.retained.len() as u32;
            let head = Request {
                session,
                shard,
                conn_epoch,
                xid: Xid(client.xid),
                map_epoch: self.server.map.epoch(),
                ..Request::of(Op::Resume)
            };
            let body = wire::Resume { known_committed, replay_count }.to_bytes();
            self.server.send(conn, request(&head, &body, None), None);
        }
        false
    }

    /// The reply to a Resume: all replays follow at once.
    fn on_resumed(&mut self, index: usize, shard: ShardId, got: &ReceivedReply) {
        let resumed = wire::Resumed::decode_all(&got.body).unwrap();
        let client = &mut self.clients[index];
        let lane = self.server.map.lane(shard);
        let (conn, fields, _) = client.links[&lane.0].clone();
        let part = client.parts.get_mut(&shard).unwrap();
        assert!(resumed.committed.0 >= part.known_committed, "reported durability holds");
        part.record_committed(resumed.committed.0);
        assert!(part.retained.is_empty() || resumed.recovering, "no client is late here");
        part.course = ReplayState::Replaying(conn);
        for (transno, retained) in &part.retained {
            let head = Request {
                conn_epoch: fields.conn_epoch,
                flags: request_flag::REPLAY,
                transno: wire::Transno(*transno),
                map_epoch: self.server.map.epoch(),
                ..retained.head
            };
            let frame = request(&head, &retained.replay, retained.bulk.as_deref());
            self.server.send(conn, frame, retained.bulk.clone());
        }
        client.xid += 1;
        let session = got.head.session;
        let xid = Xid(client.xid);
        let conn_epoch = fields.conn_epoch;
        let map_epoch = self.server.map.epoch();
        let done = Request::of(Op::ReplayDone);
        let head = Request { session, shard, conn_epoch, xid, map_epoch, ..done };
        let done = wire::ReplayDone { reopen_count: 0 }.to_bytes();
        self.server.send(conn, request(&head, &done, None), None);
    }

    /// Applies the frames received.
    fn receive(&mut self, index: usize) {
        let links = self.clients[index].links.clone();
        for (lane, (conn, fields, mut stage)) in links {
            for received in self.server.take(conn) {
                if matches!(stage, Stage::Open(_)) {
                    match commit_rows(&received) {
                        Some(rows) => self.on_commit_notification(index, &rows),
                        None => self.on_reply(index, conn, got(received)),
                    }
                    continue;
                }
                let (kind, body) = handshake_frame(&[received]);
                let link = self.clients[index].links.get_mut(&lane).unwrap();
                match kind {
                    FrameKind::Challenge => {
                        let challenge = Challenge::decode_all(&body).unwrap();
                        let proof = proof_of(&self.server, &fields, &challenge);
                        let proof = handshake(FrameKind::Proof, &Proof { proof }.to_bytes());
                        self.server.send(conn, proof, None);
                        link.2 = Stage::Proof;
                    }
                    FrameKind::Welcome => {
                        stage = Stage::Open(Welcome::decode_all(&body).unwrap().session);
                        link.2 = stage;
                    }
                    other => panic!("{other:?} in a handshake"),
                }
            }
            if self.server.is_closed(conn) {
                self.clients[index].links.remove(&lane);
            }
        }
    }

    fn on_commit_notification(&mut self, index: usize, rows: &[wire::CommitRow]) {
        for row in rows {
            self.clients[index]
                .parts
                .get_mut(&row.shard)
                .unwrap()
                .record_committed(row.committed.0);
        }
    }

    fn on_reply(&mut self, index: usize, conn: ConnId, got: ReceivedReply) {
        let shard = got.head.shard;
        let client = &mut self.clients[index];
        let Reply { slot, xid, status, flags, transno, committed, .. } = got.head;
        assert_eq!(status, Status::Ok, "{:?}", client.owed.get(&slot));
        let part = client.parts.get_mut(&shard).unwrap();
        match got.head.op {
            Op::Resume
                if part.course != ReplayState::Resuming(conn) || self.server.is_closed(conn) =>
            {
                return;
            }
            Op::Resume => return self.on_resumed(index, shard, &got),
            Op::ReplayDone => {
                part.record_committed(committed.0);
                (part.boot_id, part.course) = (got.head.boot_id, ReplayState::Settled);
                return;
            }
            _ => {}
        }
        if client.owed.get(&slot).is_none_or(|owed| owed.head.xid != xid) {
            self.replayed_count += 1;
            return part.record_committed(committed.0);
        }
        let owed = client.owed.remove(&slot).unwrap();
        assert!(transno.0 > 0);
        if got.token.is_empty() {
            assert!(committed >= transno, "without a token it is durable");
            part.known_committed = part.known_committed.max(transno.0);
        } else {
            let (reply, token) = (wire::Bytes(&got.body), wire::Bytes(&got.token));
            let replay = wire::Replay { reply, token }.to_bytes();
            let (head, bulk) = (owed.head, owed.bulk);
            part.retained.insert(transno.0, RetainedReply { head, replay, bulk });
            self.token_count += 1;
        }
        part.record_committed(committed.0);
        self.answered_count += 1;
        self.from_slot_count += u64::from(flags & reply_flag::FROM_SLOT != 0);
        let files = client.files.entry(slot).or_default();
        let folders = client.folders.entry(slot).or_default();
        match owed.doing {
            Work::Create(text) => files.push(text),
            Work::Mkdir(text) => folders.push(text),
            Work::Rename(_, to) => files[0] = to,
            Work::Unlink(_) => drop(files.remove(0)),
            Work::Rmdir(_) => drop(folders.remove(0)),
            Work::Append(bytes) => client.appended.push(bytes),
        }
    }

    /// A random fault.
    fn inject_fault(&mut self) {
        let index = self.rng.usize(..self.clients.len());
        match self.rng.usize(..40) {
            0 => {
                self.server.crash();
                self.server.start(1 + self.rng.usize(..3) as u16);
            }
            1 | 2 => {
                let conns: Vec<ConnId> =
                    self.clients[index].links.values().map(|(conn, ..)| *conn).collect();
                conns.into_iter().for_each(|conn| self.server.cut(conn));
            }
            _ => {}
        }
    }

    /// Runs until every request has its reply.
    fn work(&mut self, steps: usize) {
        for step in 0.. {
            let busy = step < steps;
            let boot_id = self.server.boot_id;
            let unsettled =
                |client: &Client| client.parts.values().any(|part| part.boot_id != boot_id);
            let owing =
                self.clients.iter().any(|client| !client.owed.is_empty() || unsettled(client));
            if !busy && !owing {
                return;
            }
            assert!(step < steps + 100_000, "every request is answered some day");
            let index = self.rng.usize(..self.clients.len());
            let slot = 1 + self.rng.usize(..4) as u16;
            if busy && !self.clients[index].owed.contains_key(&slot) {
                self.invent(index, slot);
            }
            self.send(index);
            for _ in 0..self.rng.usize(..6) {
                if !self.server.step() {
                    self.server.pass_ms(1);
                }
            }
            if self.rng.usize(..2) == 0 {
                self.receive(index);
            }
            if busy {
                self.inject_fault();
            }
        }
    }

    /// Compares the server's state with the acknowledged changes; now and after a restart.
    fn verify(&mut self) {
        for restart in [false, true] {
            if restart {
                self.server.crash();
                self.server.start(1 + self.rng.usize(..3) as u16);
                self.work(0);
                self.server.run();
            }
            let mut expected: BTreeSet<String> = BTreeSet::from([String::from("log")]);
            let mut appended: Vec<&[u8]> = Vec::new();
            for client in &self.clients {
                expected.extend(client.files.values().flatten().cloned());
                expected.extend(client.folders.values().flatten().cloned());
                appended.extend(client.appended.iter().map(Vec::as_slice));
            }
            let listed = list(&mut self.server);
            assert_eq!(listed, expected);
            let bytes = read(&mut self.server, self.log);
            let text = String::from_utf8(bytes).unwrap();
            let mut found: Vec<&[u8]> = text.split_inclusive('>').map(str::as_bytes).collect();
            found.sort_unstable();
            appended.sort_unstable();
            assert_eq!(found, appended, "each append once, none lost");
        }
    }
}

/// Prints the seed of a failed run.
impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("the failing run: Run::new({})", self.seed);
        }
    }
}

/// A peer with a new uuid, at the lane of a shard.
fn visitor(server: &mut TestServer, shard: ShardId) -> Peer {
    let number = 100 + server.rng.usize(..100) as u8;
    let mut fields =
        HelloFields { server_lane: server.map.lane(shard), ..HelloFields::new(number) };
    fields.conn_epoch = 1 + server.boot_id as u32;
    fields.client_lane = LaneId(server.now.mono.0 as u16);
    let peer = Peer::new(server, &fields);
    server.run();
    peer
}

fn list(server: &mut TestServer) -> BTreeSet<String> {
    let mut peer = visitor(server, InodeNo::ROOT.shard());
    let mut names = BTreeSet::new();
    let mut cookie = 0;
    loop {
        let body = Readdir {
            caller: ROOT,
            inode: InodeNo::ROOT,
            cookie,
            listing_bytes_max: 4096,
            attrs: false,
            handle: None,
        };
        let got = peer.ask(server, Op::Readdir, 0, &body);
        assert_eq!(got.head.status, Status::Ok);
        let listing = Listing::decode_all(&got.body).unwrap();
        for Dirent { name, cookie: place, .. } in listing.entries.iter() {
            assert!(names.insert(String::from_utf8(name.bytes().to_vec()).unwrap()));
            cookie = place;
        }
        if listing.end {
            return names;
        }
    }
}

fn read(server: &mut TestServer, inode: InodeNo) -> Vec<u8> {
    let mut peer = visitor(server, server.map.data_shard(inode, 0));
    let body = Read { inode, file_offset: 0, read_bytes: 1 << 20, accesses: true };
    peer.ask_data(server, (Op::Read, 0, inode), &body, None).bulk
}

#[test]
fn each_request_takes_effect_once_under_random_faults() {
    let (mut from_slot_count, mut token_count, mut replayed_count) = (0, 0, 0);
    for seed in (0..150).chain(LOSSY..LOSSY + 50) {
        let mut run = Run::new(seed, None);
        let steps = 50 + run.rng.usize(..400);
        run.work(steps);
        run.server.run();
        run.verify();
        assert!(run.answered_count > 0, "seed {seed}");
        from_slot_count += run.from_slot_count;
        token_count += run.token_count;
        replayed_count += run.replayed_count;
    }
    assert!(from_slot_count > 100, "slots were needed {from_slot_count} times");
    assert!(token_count > 1000, "replies left early {token_count} times");
    assert!(replayed_count > 200, "replays were needed {replayed_count} times");
}

#[test]
fn each_request_takes_effect_once_with_almost_no_memory_for_names() {
    let mut read_count = 0;
    for seed in 0..60 {
        let mut run = Run::new(seed, Some(500));
        let steps = 50 + run.rng.usize(..400);
        run.work(steps);
        run.server.run();
        run.verify();
        assert!(run.answered_count > 0, "seed {seed}");
        read_count += run.server.row_read_count();
    }
    assert!(read_count > 300, "names were read back {read_count} times");
}

/// One request, the server crashed after every possible number of steps, with and without its
/// reply.
#[test]
fn a_kill_at_every_step_of_one_request() {
    for append in [false, true] {
        for killed_after in 0..40 {
            for seed in 0..4 {
                let mut run = Run::new(1000 + seed, None);
                let mut tries = 0;
                // Other requests precede the wanted kind.
                let wanted = |run: &Run| {
                    let doing = run.clients[0].owed.get(&1).map(|owed| &owed.doing);
                    doing.is_some_and(|doing| matches!(doing, Work::Append(_)) == append)
                };
                while !wanted(&run) {
                    run.clients[0].owed.clear();
                    run.invent(0, 1);
                    tries += 1;
                    assert!(tries < 1000);
                }
                for _ in 0..killed_after {
                    run.send(0);
                    run.server.step();
                    if run.clients[0].links.values().any(|link| !matches!(link.2, Stage::Open(_))) {
                        run.receive(0);
                    }
                }
                run.server.crash();
                run.server.start(2);
                run.clients[0].links.clear();
                run.work(0);
                run.server.run();
                run.verify();
            }
        }
    }
}

/// The bytes of a reply are the same for a resend, before and after a crash.
#[test]
fn a_resend_gets_the_same_bytes() {
    let mut server = TestServer::started(31, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 3);
    let ask = |server: &mut TestServer, peer: &Peer| {
        let head = Request { conn_epoch: peer.conn_epoch, ..head };
        peer.send(server, &head, &create("a").to_bytes(), None);
        server.run();
        peer.replies(server).remove(0)
    };
    let first = ask(&mut server, &peer);
    assert_eq!(first.head.flags, reply_flag::GATED);
    assert!(first.head.committed >= first.head.transno);
    for conn_epoch in 2..5 {
        if conn_epoch == 4 {
            server.crash();
            server.start(3);
        }
        let mut peer = Peer::new(&mut server, &HelloFields { conn_epoch, ..HelloFields::new(1) });
        if conn_epoch == 4 {
            peer.come_back(&mut server, InodeNo::ROOT.shard());
        }
        let again = ask(&mut server, &peer);
        assert_eq!(again.head.flags, reply_flag::FROM_SLOT);
        assert_eq!(again.body, first.body);
        assert_eq!((again.head.status, again.head.xid), (first.head.status, first.head.xid));
        assert_eq!(again.head.transno, first.head.transno);
        assert!(again.head.committed >= first.head.transno);
    }
}

/// A request that is running when its connection ends is answered on the connection of its resend.
#[test]
fn a_resend_of_a_running_request_moves_its_reply_to_the_new_connection() {
    let mut server = TestServer::started(32, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("a").to_bytes(), None);
    server.run_turns_only(0);
    assert!(server.lane(0).commit.is_in_flight());
    // The handshake, without letting the log end.
    let fields = HelloFields { conn_epoch: 2, ..HelloFields::new(1) };
    let conn = server.connect();
    server.send(conn, handshake(FrameKind::Hello, &fields.hello(&server.secret)), None);
    server.run_turns_only(0);
    let challenge = Challenge::decode_all(&handshake_frame(&server.take(conn)).1).unwrap();
    let proof = Proof { proof: proof_of(&server, &fields, &challenge) };
    server.send(conn, handshake(FrameKind::Proof, &proof.to_bytes()), None);
    server.run_turns_only(0);
    server.take(conn);
    assert!(server.is_closed(peer.conn), "replaced");
    let (flags, map_epoch) = (request_flag::RESENT, server.map.epoch());
    let head = Request { conn_epoch: 2, flags, map_epoch, ..head };
    for _ in 0..2 {
        server.send(conn, request(&head, &create("a").to_bytes(), None), None);
        server.run_turns_only(0);
    }
    assert!(server.take(conn).is_empty());
    server.run();
    let replies = server.take(conn);
    assert_eq!(replies.len(), 1, "one reply, however often it was sent");
    assert_eq!(got(replies[0].clone()).head.status, Status::Ok);
}

/// Late duplicates of acknowledged requests are neither executed nor answered.
#[test]
fn late_duplicates_are_dropped() {
    let mut server = TestServer::started(33, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let first = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &first, &create("a").to_bytes(), None);
    let second = peer.head(Op::Create, InodeNo::ROOT.shard(), 2);
    peer.send(&mut server, &second, &create("b").to_bytes(), None);
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 2);
    let mut third = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    third.ack_xid = Xid(first.xid.0 - 1);
    third.sack = 0b11;
    peer.send(&mut server, &third, &create("c").to_bytes(), None);
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1);
    peer.send(&mut server, &first, &create("a").to_bytes(), None);
    peer.send(&mut server, &second, &create("b").to_bytes(), None);
    server.run();
    assert!(peer.replies(&mut server).is_empty(), "one is older than its slot, one acknowledged");
    assert!(!server.is_closed(peer.conn));
    assert_eq!(server.counters(0).change_count, 3);
}
