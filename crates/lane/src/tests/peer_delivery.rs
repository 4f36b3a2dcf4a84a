//! What messages between the lanes bring about when some of them get lost, repeated and reordered:
//! sizes, access times, privileged bits, deadlocks. And a channel whose peer lane does not answer.

use super::file_locks::{WRITE, ask as lock_of, file, waits};
use super::peer::{HelloFields, Peer, ROOT, ReceivedReply, create};
use crate::Share;
use crate::test_server::{Delivery, Kind, TestServer};
use alloc::vec::Vec;
use interface::Errno;
use wire::{
    ClearPrivileges, Close, Entry, Getattr, Handle, HandleId, InodeNo, LaneId, Op, Open, OpenFor,
    Read, SetTime, Setattr, Status, Wire as _, Write,
};

const LOSSY: u64 = Delivery::LOSSY_SEED_MIN;
const SEED_COUNT: u64 = 20;
/// The value of [`crate::Limits::default`].
const SYNC_MS: u64 = 50;
const HANDLE: Handle = Handle { id: HandleId(7), open_for: OpenFor::ReadWrite };

/// A file whose metadata shard is at lane 0 and whose contents are at lane 1, and a client.
struct Harness {
    server: TestServer,
    meta: Peer,
    data: Peer,
    inode: InodeNo,
}

impl Harness {
    fn new(seed: u64) -> Self {
        let mut server = TestServer::new(seed);
        server.limits.share = Share::Strict;
        server.start(2);
        let [mut meta, mut data] = [0, 1].map(|lane| {
            let server_lane = LaneId(lane);
            Peer::new(&mut server, &HelloFields { server_lane, ..HelloFields::new(1) })
        });
        data.xid += 1 << 32;
        let inodes = ["a", "b", "c", "d", "e", "f"].map(|name| meta.create(&mut server, name));
        let away = |inode: &InodeNo| server.map.lane(server.map.data_shard(*inode, 0)).0 == 1;
        let inode = inodes.into_iter().find(away).expect("one whose contents are elsewhere");
        // A session's first change waits for its record.
        let mut harness = Self { server, meta, data, inode };
        harness.open();
        assert_eq!(harness.write(0), Status::Ok);
        harness.close();
        harness
    }

    fn open(&mut self) {
        let open = Open { caller: ROOT, inode: self.inode, handle: HANDLE };
        assert_eq!(self.meta.ask(&mut self.server, Op::Open, 1, &open).head.status, Status::Ok);
    }

    fn close(&mut self) {
        let close = Close { inode: self.inode, handle: HANDLE.id };
        assert_eq!(self.meta.ask(&mut self.server, Op::Close, 1, &close).head.status, Status::Ok);
    }

    /// Five bytes.
    fn write(&mut self, file_offset: u64) -> Status {
        let (inode, clears) = (self.inode, ClearPrivileges::All);
        let body = Write { inode, file_offset, append: false, clears };
        let target = (Op::Write, 2, inode);
        self.data.ask_data(&mut self.server, target, &body, Some(b"12345")).head.status
    }

    fn read(&mut self) {
        let read = Read { inode: self.inode, file_offset: 0, read_bytes: 9, accesses: true };
        let target = (Op::Read, 0, self.inode);
        let got = self.data.ask_data(&mut self.server, target, &read, None);
        assert_eq!(got.head.status, Status::Ok);
    }

    /// Sends a change of the mode, and waits only for its reply.
    fn chmod(&mut self, mode: u32) -> ReceivedReply {
        let set = Setattr {
            caller: ROOT,
            inode: self.inode,
            mode: Some(mode),
            uid: None,
            gid: None,
            atime: SetTime::Keep,
            mtime: SetTime::Keep,
            clears: ClearPrivileges::Nothing,
        };
        let head = self.meta.head(Op::Setattr, self.inode.shard(), 3);
        self.meta.send(&mut self.server, &head, &set.to_bytes(), None);
        loop {
            if let Some(reply) = self.meta.replies(&mut self.server).pop() {
                assert_eq!(reply.head.status, Status::Ok);
                return reply;
            }
            if !self.server.step() {
                self.server.pass_ms(10);
            }
        }
    }

    fn attr(&mut self) -> wire::Attr {
        let getattr = Getattr { inode: self.inode };
        let got = self.meta.ask(&mut self.server, Op::Getattr, 0, &getattr);
        Entry::decode_all(&got.body).unwrap().attr
    }

    /// Time passes, and all messages arrive.
    fn rest(&mut self) {
        self.server.pass_ms(SYNC_MS);
        self.server.run();
    }
}

#[test]
fn a_size_is_settled_once_over_a_lossy_channel() {
    let mut lost_count = 0;
    for seed in LOSSY..LOSSY + SEED_COUNT {
        let mut harness = Harness::new(seed);
        for round in 1..=3 {
            harness.open();
            assert_eq!(harness.write(5 * round), Status::Ok);
            harness.close();
            harness.rest();
            let attr = harness.attr();
            assert_eq!((attr.is_size_at_data(), attr.size_bytes), (false, 5 * round + 5), "{seed}");
        }
        lost_count += harness.server.delivery.lost_count;
    }
    assert!(lost_count > 0);
}

#[test]
fn the_first_read_after_a_change_counts_over_a_lossy_channel() {
    let mut lost_count = 0;
    for seed in LOSSY..LOSSY + SEED_COUNT {
        let mut harness = Harness::new(seed);
        for mode in [0o600, 0o640, 0o644] {
            harness.server.pass_ms(1);
            harness.chmod(mode);
            harness.rest();
            harness.read();
            harness.rest();
            let read = harness.attr();
            assert!(read.atime > read.ctime, "seed {seed}: {read:?}");
            harness.read();
            harness.rest();
            assert_eq!(harness.attr().atime, read.atime, "seed {seed}: the second one does not");
        }
        lost_count += harness.server.delivery.lost_count;
    }
    assert!(lost_count > 0);
}

/// A reply that shows the bits does not overtake them: a write that follows from it is refused.
#[test]
fn privileged_bits_precede_the_reply_over_a_lossy_channel() {
    let mut lost_count = 0;
    for seed in LOSSY..LOSSY + SEED_COUNT {
        let mut harness = Harness::new(seed);
        harness.open();
        for round in 0..3 {
            harness.chmod(0o4755);
            let refused = harness.write(0);
            assert_eq!(refused, Status::NeedClearPrivileges, "seed {seed}, round {round}");
            harness.chmod(0o755);
            assert_eq!(harness.write(0), Status::Ok, "seed {seed}, round {round}");
        }
        lost_count += harness.server.delivery.lost_count;
    }
    assert!(lost_count > 0);
}

/// Two owners wait for each other at two lanes, and the message that would show it is lost.
#[test]
fn a_lost_deadlock_search_is_repeated() {
    for loses_one_in in [0, 1] {
        let mut server = TestServer::started(3, 2);
        let mut clients = [1, 2].map(|number| super::file_locks::Client::new(&mut server, number));
        for (client, shard) in clients.iter_mut().zip([0, 1]) {
            assert_eq!(client.set(&mut server, lock_of(file(shard), 1, WRITE)), Ok(true));
        }
        server.delivery.empties_searches = loses_one_in > 0;
        for (client, shard) in clients.iter_mut().zip([1, 0]) {
            let wait = waits(9, lock_of(file(shard), 1, WRITE));
            assert_eq!(client.set(&mut server, wait), Ok(false));
        }
        server.run();
        server.delivery.empties_searches = false;
        let refused = [(9, Status::Deadlock)];
        let at_once = if loses_one_in == 0 { &refused[..] } else { &[] };
        assert_eq!(clients[1].grants(&mut server), at_once);
        server.pass_ms(900);
        server.run();
        assert_eq!(clients[1].grants(&mut server), []);
        server.pass_ms(200);
        server.run();
        assert_eq!(clients[1].grants(&mut server), refused[at_once.len()..]);
        assert!(clients[0].grants(&mut server).is_empty());
        // The search of a wait that has ended is not repeated.
        clients[1].set(&mut server, lock_of(file(1), 1, None)).unwrap();
        assert_eq!(clients[0].grants(&mut server), [(9, Status::Ok)]);
        server.pass_ms(3000);
        server.run();
        let wake_count = server.wake_count;
        server.pass_ms(10_000);
        server.run();
        assert_eq!(server.wake_count, wake_count, "no timer is left");
    }
}

/// The value of `UNACKNOWLEDGED_COUNT_MAX`.
const FULL_COUNT: usize = 8192;

#[test]
fn a_full_channel_refuses_changes_until_it_drains() {
    let mut harness = Harness::new(5);
    harness.server.run();
    let inode = harness.inode;
    harness.server.delivery = Delivery { loses_one_in: 1, ..Delivery::default() };
    let sent_before = harness.server.counters(0).peers.sent_count;
    // No lost message is sent again meanwhile.
    let ask = |harness: &mut Harness, (op, slot): (Op, u16), body: &[u8]| {
        let head = harness.meta.head(op, InodeNo::ROOT.shard(), slot);
        harness.meta.send(&mut harness.server, &head, body, None);
        while harness.server.step() {}
        harness.meta.replies(&mut harness.server).pop().unwrap().head.status
    };
    let try_create =
        |harness: &mut Harness, text: &str| ask(harness, (Op::Create, 1), &create(text).to_bytes());
    let send = |harness: &mut Harness, count: usize| {
        for _ in 0..count {
            harness.server.send_message(0, inode);
        }
    };
    send(&mut harness, FULL_COUNT);
    assert_eq!(try_create(&mut harness, "last"), Status::Ok);
    send(&mut harness, 1);
    assert_eq!(try_create(&mut harness, "refused"), Status::RetryLater);
    let getattr = Getattr { inode }.to_bytes();
    assert_eq!(ask(&mut harness, (Op::Getattr, 0), &getattr), Status::Ok, "reads go on");
    // The peer lane answers again.
    harness.server.delivery = Delivery::default();
    for _ in 0..1000 {
        harness.server.pass_ms(100);
        while harness.server.step() {}
    }
    assert!(!harness.server.lane(0).peers.is_waiting());
    assert_eq!(try_create(&mut harness, "refused"), Status::Ok);
    let counts = harness.server.counters(0).peers;
    assert!(counts.sent_count - sent_before > FULL_COUNT as u64, "{counts:?}");
}

/// Creates files with contents at lane 1, and closes them.
fn new_files(server: &mut TestServer, meta: &mut Peer) -> Vec<InodeNo> {
    let mut inodes = Vec::new();
    for text in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let args = wire::Create { handle: Some(HANDLE), ..create(text) };
        let made = meta.ask(server, Op::Create, 1, &args);
        let inode = wire::Created::decode_all(&made.body).unwrap().attr.inode;
        let close = Close { inode, handle: HANDLE.id };
        assert_eq!(meta.ask(server, Op::Close, 1, &close).head.status, Status::Ok);
        let away = server.map.lane(server.map.data_shard(inode, 0)).0 == 1;
        inodes.extend(away.then_some(inode));
    }
    assert!(inodes.len() > 1, "a seed that places several elsewhere");
    inodes
}

#[test]
fn sizes_of_many_files_are_settled_together_and_new_ones_without_a_look() {
    const GATHER_MS: u64 = 10;
    let mut server = TestServer::new(7);
    server.limits.message_ms = GATHER_MS;
    server.start(2);
    let mut meta = Peer::new(&mut server, &HelloFields::new(1));
    // A look at a file of the store would fail.
    server.failing.push((Kind::Stat, Errno(5)));
    let inodes = new_files(&mut server, &mut meta);
    let settled_count = |server: &mut TestServer, meta: &mut Peer| {
        server.run();
        let is_settled = |inode: &&InodeNo| {
            let got = meta.ask(server, Op::Getattr, 0, &Getattr { inode: **inode });
            !Entry::decode_all(&got.body).unwrap().attr.is_size_at_data()
        };
        inodes.iter().filter(is_settled).count()
    };
    server.pass_ms(GATHER_MS - 1);
    assert_eq!(settled_count(&mut server, &mut meta), 0);
    assert!(server.lane(0).is_waiting(), "something goes on when time passes");
    server.pass_ms(1);
    assert_eq!(settled_count(&mut server, &mut meta), 0, "the answers gather, too");
    server.pass_ms(GATHER_MS);
    assert_eq!(settled_count(&mut server, &mut meta), inodes.len());
    server.pass_ms(GATHER_MS);
    server.run();
    assert!((0..2).all(|lane| !server.lane(lane).is_waiting()), "all is acknowledged");
    assert_eq!(server.failing.len(), 1, "no file was looked at");
}
