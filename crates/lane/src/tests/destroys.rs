//! Removed files when the server dies: the object goes with the inode, whenever that is.

use super::peer::{HelloFields, Peer, ROOT, ReceivedReply, name};
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::{
    Bytes, ClearPrivileges, InodeNo, LaneId, Op, Replay, Request, ShardId, Status, Unlink, Wire,
    Write, Xid, request_flag,
};

/// One client with a connection to every lane, and two files with objects at one data shard.
struct Harness {
    server: TestServer,
    peers: Vec<Peer>,
    shard: ShardId,
    inode_count: u64,
    /// Replies that may be lost, with what was sent: the client keeps them.
    retained: Vec<(Request, &'static [u8], Option<ReceivedReply>)>,
}

const LOSSY: u64 = crate::test_server::Delivery::LOSSY_SEED_MIN;
const WARM: &[u8] = b"warm";
const LAST: &[u8] = b"last";

fn connect(server: &mut TestServer, conn_epoch: u32) -> Vec<Peer> {
    let fields = |lane| HelloFields {
        server_lane: lane,
        client_lane: lane,
        conn_epoch,
        ..HelloFields::new(1)
    };
    let lanes = (0..server.lane_count()).map(LaneId);
    lanes.map(|lane| Peer::new(server, &fields(lane))).collect()
}

fn write_body(inode: InodeNo) -> Vec<u8> {
    let clears = ClearPrivileges::Nothing;
    Write { inode, file_offset: 0, append: false, clears }.to_bytes()
}

impl Harness {
    fn new(seed: u64, lane_count: u16) -> Self {
        let mut server = TestServer::started(seed, lane_count);
        server.log_slowness = 4;
        let mut peers = connect(&mut server, 1);
        // The object is at the last lane, the inode at the first.
        let texts = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let made: Vec<(&str, InodeNo)> =
            texts.iter().map(|text| (*text, peers[0].create(&mut server, text))).collect();
        let at = |inode: InodeNo| server.map.data_shard(inode, 0);
        let last: Vec<_> =
            made.iter().filter(|file| server.map.lane(at(file.1)).0 + 1 == lane_count).collect();
        let pairs =
            last.iter().flat_map(|first| last.iter().map(move |second| (**first, **second)));
        let mut pairs =
            pairs.filter(|(first, second)| first.1 != second.1 && at(first.1) == at(second.1));
        let (first, second) = pairs.next().unwrap();
        let shard = at(first.1);
        let files = [first.1, second.1];
        let inode_count =
            (0..usize::from(lane_count)).map(|lane| server.lane(lane).inode_count()).sum();
        let mut harness = Self { server, peers, shard, inode_count, retained: Vec::new() };
        for inode in files {
            harness.send(Op::Write, shard, &write_body(inode), Some(WARM));
            harness.server.run();
            harness.listen();
            assert_eq!(harness.retained.pop().unwrap().2.unwrap().head.status, Status::Ok);
        }
        harness.server.pass_ms(1_000);
        harness.server.run();
        for inode in files {
            harness.send(Op::Write, shard, &write_body(inode), Some(LAST));
        }
        let unlink =
            Unlink { caller: ROOT, parent: InodeNo::ROOT, name: name(first.0), behind: None };
        harness.send(Op::Unlink, InodeNo::ROOT.shard(), &unlink.to_bytes(), None);
        harness
    }

    fn peer(&mut self, shard: ShardId) -> &mut Peer {
        &mut self.peers[usize::from(self.server.map.lane(shard).0)]
    }

    fn send(&mut self, op: Op, shard: ShardId, body: &[u8], bulk: Option<&'static [u8]>) {
        let slot = 1 + self.retained.len() as u16;
        let peer = self.peer(shard);
        let mut head = peer.head(op, shard, slot);
        head.ack_xid = Xid(head.xid.0 - 1);
        let lane = usize::from(self.server.map.lane(shard).0);
        self.peers[lane].send(&mut self.server, &head, body, bulk);
        self.retained.push((head, bulk.unwrap_or_default(), None));
    }

    /// Takes in the replies that came.
    fn listen(&mut self) {
        let Self { server, peers, retained, .. } = self;
        for got in peers.iter().flat_map(|peer| peer.replies(server)) {
            let of = retained
                .iter_mut()
                .find(|(head, ..)| (head.shard, head.xid) == (got.head.shard, got.head.xid));
            of.unwrap().2 = Some(got);
        }
    }

    /// So many actions end and turns are taken; `false`: there is nothing left to do.
    fn steps(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if !self.server.step() {
                self.server.pass_ms(100);
                if !self.server.step() {
                    return false;
                }
            }
            self.listen();
        }
        true
    }

    /// The server dies, and the client brings everything back that may be lost.
    fn die_and_recover(&mut self) {
        let lane_count = self.server.lane_count();
        self.server.crash();
        self.server.start(lane_count);
        self.server.run();
        self.peers = connect(&mut self.server, 2);
        for peer in &mut self.peers {
            peer.xid += 1000;
        }
        // One lane's recovery may be over long before the other's.
        let mut shards = [InodeNo::ROOT.shard(), self.shard];
        if self.server.rng.usize(..2) == 0 {
            shards.reverse();
        }
        for shard in shards {
            self.replay(shard);
            self.server.run();
        }
        self.server.pass_ms(10_000);
        self.server.run();
    }

    /// Brings back what a shard may have lost.
    fn replay(&mut self, shard: ShardId) {
        let lane = usize::from(self.server.map.lane(shard).0);
        for (head, bulk, got) in self.retained.iter().filter(|(head, ..)| head.shard == shard) {
            let Some(got) = got.as_ref().filter(|got| !got.token.is_empty()) else { continue };
            let (flags, transno) = (request_flag::REPLAY, got.head.transno);
            let head = Request { flags, transno, conn_epoch: 2, ..*head };
            let body = Replay { reply: Bytes(&got.body), token: Bytes(&got.token) }.to_bytes();
            let bulk = Some(*bulk).filter(|bulk| !bulk.is_empty());
            self.peers[lane].send(&mut self.server, &head, &body, bulk);
        }
        let head = self.peers[lane].head(Op::ReplayDone, shard, 0);
        let done = wire::ReplayDone { reopen_count: 0 }.to_bytes();
        self.peers[lane].send(&mut self.server, &head, &done, None);
    }

    fn inode_count(&self) -> u64 {
        (0..usize::from(self.server.lane_count()))
            .map(|lane| self.server.lane(lane).inode_count())
            .sum()
    }
}

/// The server dies after each step of a removal, and the client brings back what it wrote last.
#[test]
fn no_crash_leaves_an_object_without_its_inode() {
    let (mut gone_count, mut kept_count) = (0, 0);
    for lane_count in 1..=2 {
        for seed in [0, 1, 2, 3, 4, LOSSY, LOSSY + 1] {
            for count in 0.. {
                let mut harness = Harness::new(seed, lane_count);
                let goes_on = harness.steps(count);
                harness.die_and_recover();
                let has_inode = harness.inode_count() == harness.inode_count;
                let at = alloc::format!("{lane_count} lanes, seed {seed}, {count} steps");
                assert_eq!(harness.server.object_count(), 1 + usize::from(has_inode), "{at}");
                (gone_count, kept_count) =
                    (gone_count + usize::from(!has_inode), kept_count + usize::from(has_inode));
                if !goes_on {
                    break;
                }
            }
        }
    }
    assert!(gone_count > 0 && kept_count > 0);
}
