//! Log and memory without a network: a server's lane and the load in one thread, frames handed over
//! as they are, the lane's log on the disk as always.

use crate::create::{NAME, create};
use crate::generator::{Driven, Generator};
use crate::load::{Greeting, Load, Shape};
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::fill;
use crate::server::Home;
use anyhow::{Context as _, Result};
use door::{Action, Brain, CloseReason, ConnId, Event, Turn};
use lane::{Config, Export, Lane, Limits, Restore};
use ring::{LogFile, Ring};
use rustix::process::{getegid, geteuid};
use std::fs::File;
use wire::{FsUuid, InodeNo, LaneId, Map, Secret};

const CLIENT_COUNT: u32 = 64;
const MAP: Map = Map { lane_count: 1, meta_shard_count: 1, data_shard_count: 1 };

/// Measures creates in one directory.
pub(crate) fn run(home: &Home) -> Result<Row> {
    let log = File::create(home.path().join("wired-log")).context("cannot make a log")?;
    let log = LogFile { file: log.into(), start_offset: 0, reserve_bytes: LogFile::RESERVE_BYTES };
    let mut config = ring::Config::new(LaneId(0));
    config.log = Some(log);
    let ring = Ring::new(config).context("cannot set up a ring")?;
    let secret = Secret::new(library::random()?);
    let greeting = Greeting::Full { secret: secret.clone(), export: String::new(), map: MAP };
    let work = create(&[InodeNo::ROOT]);
    let shape =
        Shape { client_count: CLIENT_COUNT, depth: 1, work, greeting, counted_lane_count: 1 };
    let wired = Wired { lane: new_lane(secret)?, load: Load::new(shape)?, said: Vec::new() };
    let mut generator = Generator::start(ring, wired, &home.options)?;
    let mut samples =
        alternate(1, home.options.round_count, |_, _| generator.measure(&home.options))?;
    let mut row = Row::new(NAME, "memory+log");
    row.clients = Some(CLIENT_COUNT);
    row.depth = Some(1);
    fill(&mut row, &samples.pop().unwrap_or_default());
    row.note = Some("CPU of lane and load together".to_owned());
    Ok(row)
}

fn new_lane(secret: Secret) -> Result<Lane> {
    let made = disk::Made { at_ns: 0, uid: geteuid().as_raw(), gid: getegid().as_raw() };
    let config = Config {
        lane: LaneId(0),
        map: MAP,
        fs: FsUuid([1; 16]),
        secret,
        boot_id: 1,
        exports: vec![Export { name: String::new(), root_trusted: true }],
        seed: library::random()?,
        limits: Limits::default(),
        redo_key: lane::RedoKey::new([0; 32]),
        share_before: lane::Share::default(),
        rules: lane::Rules::default(),
    };
    let restored = Restore::new(MAP, made).into_lanes(1, 1).pop();
    Ok(Lane::new(config, restored.context("one lane is restored")?))
}

/// Both ends of a connection as one brain.
struct Wired {
    lane: Lane,
    load: Load,
    /// Scratch: what one of them asked for.
    said: Vec<Action>,
}

impl Wired {
    /// Lets the load act, and delivers what it says; and so on until both are silent.
    fn exchange(&mut self, turn: &mut Turn<'_>, act: impl FnOnce(&mut Load, &mut Turn<'_>)) {
        let mut said = std::mem::take(&mut self.said);
        let (now, arena) = (turn.now, &mut *turn.arena);
        act(&mut self.load, &mut Turn { now, arena, actions: &mut said });
        let mut asked = Vec::new();
        while !said.is_empty() {
            for action in said.drain(..) {
                let turn = &mut Turn { now, arena: turn.arena, actions: &mut asked };
                self.load_says(turn, action);
            }
            for action in asked.drain(..) {
                let mut replies = Turn { now, arena: turn.arena, actions: &mut said };
                if let Some(action) = self.lane_says(&mut replies, action) {
                    turn.actions.push(action);
                }
            }
        }
        self.said = said;
    }

    /// What the load says reaches the lane.
    #[expect(clippy::wildcard_enum_match_arm, reason = "everything else is passed on")]
    fn load_says(&mut self, to_lane: &mut Turn<'_>, action: Action) {
        match action {
            Action::Send { conn, frame, bulk } => {
                self.lane.apply(to_lane, Event::Frame { conn, frame, bulk });
            }
            other => to_lane.act(other),
        }
    }

    /// What the lane says reaches the load; what is neither's is the world's.
    #[expect(clippy::wildcard_enum_match_arm, reason = "everything else is passed on")]
    fn lane_says(&mut self, to_load: &mut Turn<'_>, action: Action) -> Option<Action> {
        match action {
            Action::Send { conn, frame, bulk } => {
                self.load.apply(to_load, Event::Frame { conn, frame, bulk });
            }
            Action::Connect { ticket } => {
                let conn = ConnId(ticket.0 + 1);
                self.load.apply(to_load, Event::Connected { ticket, conn });
            }
            Action::Close { conn } => {
                self.load.apply(to_load, Event::Closed { conn, reason: CloseReason::Ended });
            }
            Action::Admit { .. } => {}
            other => return Some(other),
        }
        None
    }
}

impl Driven for Wired {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }

    fn talk(&mut self, turn: &mut Turn<'_>, talk: impl FnOnce(&mut Load, &mut Turn<'_>)) {
        self.exchange(turn, talk);
        self.lane.settle(turn);
    }
}

impl Brain for Wired {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        let mut said = Vec::new();
        let (now, arena) = (turn.now, &mut *turn.arena);
        self.lane.apply(&mut Turn { now, arena, actions: &mut said }, event);
        for action in said {
            let mut replied = Vec::new();
            let mut replies = Turn { now, arena: turn.arena, actions: &mut replied };
            if let Some(action) = self.lane_says(&mut replies, action) {
                turn.actions.push(action);
            }
            // The next requests, which the replies made room for.
            self.exchange(turn, |_, turn| turn.actions.append(&mut replied));
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.exchange(turn, |load, turn| load.settle(turn));
        self.lane.settle(turn);
    }
}
