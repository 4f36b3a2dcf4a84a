//! A server's lane and the load in one thread, connected without a network: the cost of memory and
//! log.
//!
//! Invariant: a frame that one of them sends reaches the other in its next turn, so that a load
//! whose operations are answered at once does not keep a turn from ending.

use crate::generator::{Driven, Generator};
use crate::load::{Handshake, Load, Phase, Shape, Work};
use crate::new_files::create;
use crate::pace::Pace;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::fill;
use crate::server::Home;
use anyhow::{Context as _, Result};
use interface::{Action, CloseReason, ConnId, Core, Event, NetAction, NetEvent, StoreEvent, Turn};
use lane::{Config, Export, Lane, Limits, Restore};
use ring::{LogFile, Ring};
use rustix::process::{getegid, geteuid};
use std::fs::File;
use wire::{FsUuid, InodeNo, LaneId, Map, Secret, ServerId, ShardCounts, Term};

const CLIENT_COUNT: u32 = 64;
const SHARDS: ShardCounts = ShardCounts { meta: 1, data: 1 };

fn map() -> Map {
    Map::single_server(1, SHARDS, Term(1))
}

/// Measures creates in one directory.
pub(crate) fn run(home: &Home, bench: &'static str) -> Result<Row> {
    let work = create(&[InodeNo::ROOT]);
    let mut generator = generator(home, (CLIENT_COUNT, 1), work, Pace::Disk)?;
    let mut samples =
        alternate(1, home.options.round_count, |_, _| generator.measure(&home.options))?;
    let mut row = Row::new(bench, "memory+log");
    row.clients = Some(CLIENT_COUNT);
    row.depth = Some(1);
    fill(&mut row, &samples.pop().unwrap_or_default());
    row.note = Some("CPU of lane and load together".to_owned());
    Ok(row)
}

/// A lane and a load of so many clients, connected, in this thread.
///
/// # Errors
/// When they cannot be set up.
pub(crate) fn generator(
    home: &Home,
    (client_count, depth): (u32, u32),
    work: Work,
    pace: Pace,
) -> Result<Generator<Wired>> {
    let log = File::create(home.path().join("wired-log")).context("cannot make a log")?;
    let reserve_bytes = LogFile::RESERVE_BYTES;
    let log = LogFile { file: log.into(), start_offset: 0, reserve_bytes, feed: None };
    let mut config = ring::Config::new(LaneId(0));
    config.driver = ring::DriverChoice::Only(home.options.driver);
    config.log = Some(log);
    let ring = Ring::new(config).context("cannot set up a ring")?;
    let secret = Secret::new(library::random()?);
    let handshake = Handshake::Full { secret, export: String::new(), map: map() };
    let shape = Shape { client_count, depth, work, handshake, counted_lane_count: 1 };
    let wired = Wired {
        lane: new_lane(secret)?,
        load: Load::new(shape)?,
        to_load: Vec::new(),
        to_lane: Vec::new(),
        pace,
    };
    Generator::start(ring, wired, &home.options)
}

fn new_lane(secret: Secret) -> Result<Lane> {
    let made = disk::Creation {
        at_ns: 0,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        mode: 0o755,
        layout: wire::Layout::DEFAULT,
    };
    let config = Config {
        lane: LaneId(0),
        map: map(),
        server: ServerId::FIRST,
        fs: FsUuid([1; 16]),
        secrets: secret.into(),
        boot_id: 1,
        exports: vec![Export { name: String::new(), root_trusted: true }],
        seed: library::random()?,
        // All clients connect at once, and only they.
        limits: Limits { handshake_count_max: 4096, ..Limits::default() },
        fs_key: lane::FsKey::new([0; 32]),
        promised: lane::Limits::default().promised(),
        rules: wire::Rules::default(),
        affinity: lane::Affinity::Object,
    };
    let restored = Restore::new(SHARDS, made).into_lanes(1, 1).pop();
    Ok(Lane::new(config, restored.context("one lane is restored")?))
}

/// A frame or event on its way from one to the other.
enum Delivery {
    Frame { conn: ConnId, frame: Vec<u8> },
    Connected { ticket: interface::Ticket },
    Closed { conn: ConnId },
}

/// Both ends of a connection as one state machine.
pub(crate) struct Wired {
    lane: Lane,
    load: Load,
    to_load: Vec<Delivery>,
    to_lane: Vec<Delivery>,
    pub(crate) pace: Pace,
}

impl Wired {
    /// Performs the load's actions: frames go to the lane, all other actions to the ring.
    #[expect(clippy::wildcard_enum_match_arm, reason = "everything else is passed on")]
    fn perform_load(&mut self, turn: &mut Turn<'_>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Net(NetAction::Send { conn, frame, .. }) => {
                    let frame = turn.arena.get(frame).to_vec();
                    self.to_lane.push(Delivery::Frame { conn, frame });
                }
                Action::Net(NetAction::Connect { ticket, .. }) => {
                    self.to_load.push(Delivery::Connected { ticket })
                }
                Action::Net(NetAction::Admit { .. }) => {}
                other => turn.act(other),
            }
        }
    }

    /// Performs the lane's actions: frames go to the load, all other actions to the ring.
    #[expect(clippy::wildcard_enum_match_arm, reason = "everything else is passed on")]
    fn perform_lane(&mut self, turn: &mut Turn<'_>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Net(NetAction::Send { conn, frame, .. }) => {
                    let frame = turn.arena.get(frame).to_vec();
                    self.to_load.push(Delivery::Frame { conn, frame });
                }
                Action::Net(NetAction::Close { conn }) => {
                    self.to_load.push(Delivery::Closed { conn })
                }
                Action::Net(NetAction::Admit { .. }) => {}
                other => turn.act(other),
            }
        }
    }

    /// Runs a state machine and returns its actions.
    fn step<B: Core>(
        core: &mut B,
        turn: &mut Turn<'_>,
        step: impl FnOnce(&mut B, &mut Turn<'_>),
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        step(core, &mut Turn { now: turn.now, arena: turn.arena, actions: &mut actions });
        actions
    }

    fn tell_load(&mut self, turn: &mut Turn<'_>, parcel: Delivery) {
        let event = match parcel {
            Delivery::Frame { conn, frame } => {
                Event::Net(NetEvent::Frame { conn, frame: turn.arena.put(&frame), bulk: None })
            }
            Delivery::Connected { ticket } => {
                Event::Net(NetEvent::Connected { ticket, conn: ConnId(ticket.0 + 1) })
            }
            Delivery::Closed { conn } => {
                Event::Net(NetEvent::Closed { conn, reason: CloseReason::Ended })
            }
        };
        let actions = Self::step(&mut self.load, turn, |load, turn| load.apply(turn, event));
        self.perform_load(turn, actions);
    }

    fn tell_lane(&mut self, turn: &mut Turn<'_>, event: Event) {
        let actions = Self::step(&mut self.lane, turn, |lane, turn| lane.apply(turn, event));
        self.perform_lane(turn, actions);
    }

    /// The exchange of a turn.
    fn exchange(&mut self, turn: &mut Turn<'_>) {
        for parcel in std::mem::take(&mut self.to_load) {
            self.tell_load(turn, parcel);
        }
        let actions = Self::step(&mut self.load, turn, Load::settle);
        self.perform_load(turn, actions);
        self.pace.begin_turn();
        for parcel in std::mem::take(&mut self.to_lane) {
            if let Delivery::Frame { conn, frame } = parcel {
                self.pace.on_operation();
                let frame = turn.arena.put(&frame);
                self.tell_lane(turn, Event::Net(NetEvent::Frame { conn, frame, bulk: None }));
            }
        }
        let counts = matches!(self.load.phase(), Phase::Measuring { .. });
        if let Some(logged) = self.pace.due(counts) {
            self.tell_lane(turn, logged);
        }
        let actions = Self::step(&mut self.lane, turn, Lane::settle);
        let actions = self.pace.take_appends(actions);
        self.pace.end_turn();
        self.perform_lane(turn, actions);
        let silent = self.to_load.is_empty() && self.to_lane.is_empty();
        self.pace.set_stalled(silent);
        if !silent || self.pace.is_due() {
            turn.act(Action::WakeAt { at: turn.now.mono });
        }
    }
}

impl Driven for Wired {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }

    fn talk(&mut self, turn: &mut Turn<'_>, talk: impl FnOnce(&mut Load, &mut Turn<'_>)) {
        let actions = Self::step(&mut self.load, turn, talk);
        self.perform_load(turn, actions);
        turn.act(Action::WakeAt { at: turn.now.mono });
    }
}

impl Core for Wired {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        // A log that is not written to never fills.
        let is_log_space = matches!(event, Event::Store(StoreEvent::LogSpace(_)))
            && !matches!(self.pace, Pace::Disk);
        if event != Event::Tick && !is_log_space {
            self.tell_lane(turn, event);
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.exchange(turn);
    }
}
