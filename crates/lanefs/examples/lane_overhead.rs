//! What a lane costs over the bare operation: a getattr through a whole server lane, events in and
//! actions out, against the same work as plain calls; and what counting and tracing it costs. No
//! network, no runtime, one thread. Run by `cargo xtask bench lane-overhead`. With the arguments
//! `on|off REQUESTS_PER_TURN REPETITIONS` it only works, for a program that counts instructions.
//!
//! ```text
//! direct:  decode the frame ─▶ meta::Shard::execute ─▶ encode the reply
//! lane:    NetEvent::Frame ─▶ Lane::apply ─▶ Lane::settle ─▶ NetAction::Send
//! ```
//! The difference is routing, sessions, counters, arena, events and actions.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use interface::{Action, Arena, ConnId, Core as _, Event, Mono, NetAction, NetEvent, Now, Turn};
use lane::{Config, Export, Lane, Limits, Restore};
use meta::{MetaRequest, Shard};
use std::hint::black_box;
use std::time::Instant;
use wire::{
    Bytes, Challenge, ClientUuid, FrameKind, FsUuid, Getattr, Header, Hello, InodeNo, LaneId, Map,
    MapEpoch, Op, Proof, Reply, Request, Secret, ServerId, SessionId, ShardCounts, ShardId, Status,
    Term, Timestamp, Transno, Welcome, Wire, Xid,
};

const SHARDS: ShardCounts = ShardCounts { meta: 1, data: 1 };
const MADE_NS: u64 = 1_600_000_000_000_000_000;
const MADE: disk::Creation =
    disk::Creation { at_ns: MADE_NS, uid: 0, gid: 0, mode: 0o755, layout: wire::Layout::DEFAULT };
const CONN: ConnId = ConnId(1);
/// Many short ones: on a busy machine most are not interrupted.
const REPETITION_COUNT: usize = 301;
const REQUEST_COUNT: u64 = 20_000;

/// A lane and the turn it is driven with.
struct Harness {
    lane: Lane,
    arena: Arena,
    actions: Vec<Action>,
    session: SessionId,
    boot_id: u64,
    now_ns: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [observes, per_turn, repetition_count] = arguments.as_slice() {
        let mut harness = Harness::new(observes == "on");
        let per_turn = per_turn.parse().unwrap();
        for _ in 0..repetition_count.parse().unwrap() {
            black_box(harness.through_ns(per_turn));
        }
        return;
    }
    let [mut observed, mut unobserved] = [true, false].map(Harness::new);
    let mut shard = Shard::new(ShardId::meta(0), MADE);
    shard.start_term(Term(1));
    shard.end_grace();
    println!("getattr, ns a request: median (least ..= most) of {REPETITION_COUNT} repetitions");
    for per_turn in [1, 16] {
        let mut direct = Vec::new();
        let (mut through, mut without, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..REPETITION_COUNT {
            direct.push(direct_ns(&mut shard, observed.session, observed.boot_id));
            let [on, off] = [&mut observed, &mut unobserved].map(|it| it.through_ns(per_turn));
            through.push(on);
            without.push(off);
            costs.push(on - off);
        }
        let (direct_ns, through_ns) = (median(&mut direct), median(&mut through));
        let overhead_ns = through_ns - direct_ns;
        println!("{per_turn} request(s) a turn");
        println!("  direct: decode, execute, encode  {}", text(&direct));
        println!("  through the lane                 {}", text(&through));
        println!(
            "  the lane's overhead: {overhead_ns:.0} ns, {:.0} % of it",
            100.0 * overhead_ns / through_ns
        );
        median(&mut without);
        let cost_ns = median(&mut costs);
        println!("  without counters and traces      {}", text(&without));
        println!("  counters and traces, pair by pair {}: {cost_ns:.1} ns", text(&costs));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn text(sorted: &[f64]) -> String {
    let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
    format!("{:6.0} ({least:.0} ..= {most:.0})", sorted[sorted.len() / 2])
}

fn request(session: SessionId, xid: u64) -> Header {
    Header::Request(Request {
        op: Op::Getattr,
        lane_hint: LaneId(0),
        shard: ShardId::meta(0),
        slot: 0,
        flags: 0,
        session,
        xid: Xid(xid),
        ack_xid: Xid(xid - 1),
        sack: 0,
        conn_epoch: 1,
        layout: None,
        transno: Transno(0),
        trace_id: 0,
        map_epoch: MapEpoch(1),
    })
}

fn request_frame(session: SessionId, xid: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    let body = Getattr { inode: InodeNo::ROOT };
    request(session, xid).encode(&mut frame, None, |to| to.write(&body));
    frame
}

/// The work that any server does, as plain calls.
fn direct_ns(shard: &mut Shard, session: SessionId, boot_id: u64) -> f64 {
    let frame = request_frame(session, 7);
    let (mut body_out, mut changes, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    for _ in 0..REQUEST_COUNT {
        let (head, body) = Header::decode(black_box(&frame)).unwrap();
        let Header::Request(request) = head else { panic!("a request is one") };
        body_out.clear();
        out.clear();
        let ask = MetaRequest {
            op: request.op,
            body,
            client: ClientUuid([9; 16]),
            squash: wire::Squash::NONE,
            export_root: None,
            now: Timestamp::from_ns(MADE_NS),
            records_reads: false,
            changed_behind: None,
        };
        let effect = shard.execute(&ask, &mut body_out, &mut changes).unwrap();
        let reply = Header::Reply(Reply {
            op: request.op,
            lane_hint: request.lane_hint,
            shard: request.shard,
            slot: 0,
            flags: 0,
            session: request.session,
            xid: request.xid,
            transno: effect.transno,
            committed: Transno(0),
            status: effect.status,
            credits: 64,
            retry_after_ms: 0,
            boot_id,
            trace_id: 0,
            op_time_ns: MADE_NS,
        });
        reply.encode(&mut out, None, |to| to.put(&body_out));
        black_box(&out);
    }
    start.elapsed().as_nanos() as f64 / REQUEST_COUNT as f64
}

impl Harness {
    fn new(observes: bool) -> Self {
        let secret = Secret::new([3; 32]);
        let config = Config {
            lane: LaneId(0),
            map: Map::single_server(1, SHARDS, Term(1)),
            server: ServerId::FIRST,
            fs: FsUuid([7; 16]),
            secrets: secret.into(),
            boot_id: 1,
            exports: vec![Export { name: String::new(), root_trusted: true }],
            seed: [5; 32],
            limits: Limits { observes, ..Limits::default() },
            fs_key: lane::FsKey::new([4; 32]),
            promised: lane::Limits::default().promised(),
            rules: wire::Rules::default(),
            affinity: lane::Affinity::Object,
        };
        let restored = Restore::new(SHARDS, MADE).into_lanes(1, 1).pop().unwrap();
        let mut harness = Self {
            lane: Lane::new(config, restored),
            arena: Arena::new(),
            actions: Vec::new(),
            session: SessionId(0),
            boot_id: 0,
            now_ns: 1,
        };
        harness.handshake(&secret);
        harness
    }

    /// Hello, Challenge, Proof, Welcome.
    fn handshake(&mut self, secret: &Secret) {
        let hello = Hello {
            server_lane: LaneId(0),
            client: ClientUuid([9; 16]),
            client_lane: LaneId(0),
            conn_epoch: 1,
            nonce: [1; 32],
            host_id: [0; 16],
            host_boot_id: [0; 16],
            predecessor: ClientUuid::NONE,
            boot_id_last: 0,
            export: Bytes(b""),
            credential: wire::Credential::Store,
            purpose: wire::Purpose::Use,
            key_id: secret.key_id(&[1; 32]),
            host_name: Bytes(b""),
            job: Bytes(b""),
        };
        let challenge = self.exchange(FrameKind::Hello, &hello);
        let nonce = Challenge::decode_all(&challenge).unwrap().nonce;
        let hello = hello.to_bytes();
        let proven = wire::Proven { hello: &hello, nonce: &nonce, channel: &wire::PLAIN };
        let proof = Proof { proof: secret.client_proof(proven) };
        let welcome = self.exchange(FrameKind::Proof, &proof);
        let welcome = Welcome::decode_all(&welcome).unwrap();
        self.session = welcome.session;
        self.boot_id = welcome.boot_id;
    }

    fn exchange<'a>(&mut self, kind: FrameKind, message: &impl Wire<'a>) -> Vec<u8> {
        let mut frame = Vec::new();
        Header::Handshake(kind).encode(&mut frame, None, |to| message.encode(to));
        self.turn(std::slice::from_ref(&frame));
        let sent = self.sent().next().unwrap();
        Header::decode(&sent).unwrap().1.to_vec()
    }

    /// One turn with these frames.
    fn turn(&mut self, frames: &[Vec<u8>]) {
        self.arena.reset();
        self.actions.clear();
        self.now_ns += 1000;
        let now = Now { mono: Mono(self.now_ns), wall_ns: MADE_NS + self.now_ns };
        let mut turn = Turn { now, arena: &mut self.arena, actions: &mut self.actions };
        for frame in frames {
            let frame = turn.arena.put(frame);
            self.lane
                .apply(&mut turn, Event::Net(NetEvent::Frame { conn: CONN, frame, bulk: None }));
        }
        self.lane.settle(&mut turn);
    }

    fn sent(&self) -> impl Iterator<Item = Vec<u8>> {
        self.actions.iter().filter_map(|action| {
            let Action::Net(NetAction::Send { frame, .. }) = action else { return None };
            Some(self.arena.get(*frame).to_vec())
        })
    }

    fn through_ns(&mut self, per_turn: u64) -> f64 {
        let frames: Vec<Vec<u8>> =
            (1..=per_turn).map(|xid| request_frame(self.session, xid)).collect();
        self.turn(&frames);
        let replies: Vec<Vec<u8>> = self.sent().collect();
        assert_eq!(replies.len() as u64, per_turn, "every request is answered in its turn");
        for reply in &replies {
            let Header::Reply(reply) = Header::decode(reply).unwrap().0 else { panic!("no reply") };
            assert_eq!(reply.status, Status::Ok);
        }
        let turn_count = REQUEST_COUNT / per_turn;
        let start = Instant::now();
        for _ in 0..turn_count {
            self.turn(black_box(&frames));
            black_box(&self.actions);
        }
        start.elapsed().as_nanos() as f64 / (turn_count * per_turn) as f64
    }
}
