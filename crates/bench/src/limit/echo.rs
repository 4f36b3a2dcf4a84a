//! A lane without a file system: it replies to every request with a getattr's reply.

use crate::frames;
use anyhow::{Context as _, Result};
use hashbrown::HashSet;
use interface::{Action, ConnId, Core, Event, NetAction, NetEvent, Span, Ticket, Turn, Usage};
use ring::{Config, DriverChoice, DriverKind, Ring};
use std::net::TcpListener;
use wire::{Header, LaneId, Op, Stats, Wire as _};

/// Where a frame's op is.
const OP_OFFSET: usize = 6;

pub(super) fn run(listener: TcpListener, driver: DriverKind) -> Result<()> {
    let mut config = Config::new(LaneId(0));
    config.driver = DriverChoice::Only(driver);
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).context("cannot set up the lane's ring")?;
    let mut echo = Echo::new();
    while ring.turn(&mut echo).context("the lane failed")? {}
    Ok(())
}

pub(super) struct Echo {
    reply: Vec<u8>,
    admitted: HashSet<ConnId>,
    request_count: u64,
    /// Connections that wait for counters.
    asking: Vec<ConnId>,
}

impl Echo {
    pub(super) fn new() -> Self {
        let reply = frames::getattr_reply();
        Self { reply, admitted: HashSet::new(), request_count: 0, asking: Vec::new() }
    }

    /// Handles a request for counters; false for any other frame.
    pub(super) fn counts(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span) -> bool {
        if self.admitted.insert(conn) {
            turn.act(NetAction::admit(conn));
        }
        let op = turn.arena.get(frame).get(OP_OFFSET..).and_then(<[u8]>::first_chunk);
        if op.is_some_and(|op| u16::from_le_bytes(*op) == Op::Stats.number()) {
            self.asking.push(conn);
            turn.act(Action::Usage { ticket: Ticket(0) });
            return false;
        }
        self.request_count += 1;
        true
    }

    fn on_frame(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span) {
        if self.counts(turn, conn, frame) {
            let frame = turn.arena.put(&self.reply);
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }

    fn on_usage(&mut self, turn: &mut Turn<'_>, usage: &Usage) {
        let stats = Stats {
            request_count: self.request_count,
            change_count: 0,
            batch_count: 0,
            deferred_count: 0,
            from_slot_count: 0,
            turn_count: usage.turn_count,
            read_bytes: 0,
            written_bytes: 0,
            conn_count: 0,
            protocol_error_count: 0,
            inode_count: 0,
            cpu_ns: usage.cpu_ns,
            voluntary_switch_count: usage.voluntary_switch_count,
            involuntary_switch_count: usage.involuntary_switch_count,
            syscall_count: usage.syscall_count,
            clock_read_count: usage.clock_read_count,
            message_out_count: usage.message_out_count,
            send_count: usage.send_count,
            spin_count: usage.spin_count,
            turn_ns_max: usage.turn_ns_max,
            spin_hit_count: usage.spin_hit_count,
            reply_gating: wire::ReplyGatingCounts::default(),
            recovery: wire::RecoveryCounts::default(),
            objects: wire::ObjectCounts::default(),
            peers: wire::PeerCounts::default(),
            leases: wire::LeaseCounts::default(),
        };
        for conn in self.asking.drain(..) {
            let head = Header::Reply(frames::reply_head(Op::Stats));
            let frame = turn.arena.write(|out| head.encode(out, None, |to| stats.encode(to)));
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }
}

impl Core for Echo {
    #[expect(clippy::wildcard_enum_match_arm, reason = "it does nothing else on purpose")]
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => self.on_frame(turn, conn, frame),
            Event::Usage { usage, .. } => self.on_usage(turn, &usage),
            Event::Net(NetEvent::Closed { conn, .. }) => {
                self.admitted.remove(&conn);
            }
            _ => {}
        }
    }

    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}
