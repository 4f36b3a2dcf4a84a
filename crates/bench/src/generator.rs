//! A load at work: a ring on the generator's CPU, turned until a run is over.

use crate::load::{Handshake, Load, Phase, Shape, Work};
use crate::plan::Options;
use crate::samples::Sample;
use crate::server::Server;
use crate::usage::Usage;
use anyhow::{Context as _, Result, bail};
use interface::{Core, Turn};
use ring::{Config, Ring};
use std::time::Duration;
use wire::LaneId;

/// The warm-up before a run, as a part of the measured time.
pub(crate) const WARM_PART: f64 = 0.25;

/// A lane core with a load in it.
pub(crate) trait Driven: Core {
    /// The load.
    fn load(&mut self) -> &mut Load;

    /// Lets the load act between turns.
    fn talk(&mut self, turn: &mut Turn<'_>, talk: impl FnOnce(&mut Load, &mut Turn<'_>));
}

impl Driven for Load {
    fn load(&mut self) -> &mut Load {
        self
    }

    fn talk(&mut self, turn: &mut Turn<'_>, talk: impl FnOnce(&mut Load, &mut Turn<'_>)) {
        talk(self, turn);
    }
}

/// Connected clients and their work.
pub(crate) struct Generator<B = Load> {
    ring: Ring,
    core: B,
    pid: Option<u32>,
}

impl Generator {
    /// Connects so many clients to a server; `work` says what they do, and may register bytes to
    /// send with the ring.
    ///
    /// # Errors When one is refused.
    pub(crate) fn connect(
        server: &Server,
        (client_count, depth): (u32, u32),
        options: &Options,
        work: impl FnOnce(&mut Ring) -> Result<Work>,
    ) -> Result<Self> {
        let handshake = handshake_of(server)?;
        let mut config = Config::new(LaneId(0));
        config.server = Some(server.address);
        config.sealing = server.sealing;
        // A load that copied the bytes of reads would be slower than the server.
        config.discards_bulk = true;
        // The load itself reports what happens to connections.
        config.say = Box::new(|_, _| {});
        let mut ring = Ring::new(config).context("cannot set up a ring for the load")?;
        let work = work(&mut ring)?;
        let counted_lane_count =
            handshake.map().map_or(server.counted_lane_count, |map| map.first_server().lane_count);
        let shape = Shape { client_count, depth, work, handshake, counted_lane_count };
        let mut generator = Self::start(ring, Load::new(shape)?, options)?;
        generator.pid = server.pid();
        Ok(generator)
    }
}

impl<B: Driven> Generator<B> {
    /// Connects all clients.
    ///
    /// # Errors When one is refused.
    pub(crate) fn start(ring: Ring, core: B, options: &Options) -> Result<Self> {
        let mut generator = Self { ring, core, pid: None };
        let core = &mut generator.core;
        generator.ring.with(|turn| core.talk(turn, |load, turn| load.connect(turn)));
        generator.turn_until(options, |phase| phase == Phase::Idle)?;
        Ok(generator)
    }

    /// The state machine of the load.
    pub(crate) const fn core(&mut self) -> &mut B {
        &mut self.core
    }

    /// Runs one repetition.
    ///
    /// # Errors When an operation fails, the server ends, or the user interrupts.
    pub(crate) fn measure(&mut self, options: &Options) -> Result<Sample> {
        let measured = Duration::from_secs_f64(options.seconds);
        let warm = Duration::from_secs_f64(options.seconds * WARM_PART);
        let (warm_ns, measured_ns) = (ns_of(warm), ns_of(measured));
        let core = &mut self.core;
        core.load().prepare()?;
        self.ring.with(|turn| {
            core.talk(turn, |load, turn| load.begin(turn, (warm_ns, measured_ns)));
        });
        self.turn_until(options, |phase| matches!(phase, Phase::Measuring { .. }))?;
        let before = self.usage()?;
        self.turn_until(options, |phase| !matches!(phase, Phase::Measuring { .. }))?;
        let after = self.usage()?;
        self.turn_until(options, |phase| phase == Phase::Idle)?;
        let (tally, lanes) = self.core.load().results();
        let process = before.1.zip(after.1).map(|(then, now)| now.since(&then));
        let usage = match lanes {
            Some((then, now)) => {
                let usage = Usage::of_lanes(&now).since(&Usage::of_lanes(&then));
                Some(Usage { threads: process.and_then(|process| process.threads), ..usage })
            }
            None => process,
        };
        let busy_ns = after.0.saturating_sub(before.0);
        let busy = Duration::from_nanos(busy_ns).as_secs_f64()
            / Duration::from_nanos(tally.measured_ns).as_secs_f64();
        Ok(Sample { tally: tally.clone(), usage, busy })
    }

    /// Sends all requests that may be under way, and receives no replies.
    ///
    /// # Errors When it cannot send.
    pub(crate) fn ask_and_stop_receiving(&mut self, options: &Options) -> Result<()> {
        let core = &mut self.core;
        core.load().prepare()?;
        self.ring.with(|turn| core.talk(turn, |load, turn| load.begin(turn, (u64::MAX / 4, 0))));
        options.interrupt.check()?;
        // The requests leave with the next turn, which replies end.
        self.ring.turn(&mut self.core).context("the load's ring failed").map(drop)
    }

    fn turn_until(&mut self, options: &Options, reached: impl Fn(Phase) -> bool) -> Result<()> {
        while !reached(self.core.load().phase()) {
            options.interrupt.check()?;
            if !self.ring.turn(&mut self.core).context("the load's ring failed")? {
                bail!("the load ended by itself");
            }
            // An interrupt of this process interrupts the server as well, perhaps earlier.
            self.core
                .load()
                .check()
                .map_err(|error| options.interrupt.check().err().unwrap_or(error))?;
        }
        Ok(())
    }

    /// The CPU time of this thread, and what a server without counters has used.
    fn usage(&self) -> Result<(u64, Option<Usage>)> {
        let usage = self.pid.map(Usage::of_process).transpose()?;
        Ok((Usage::of_thread()?.cpu_ns, usage))
    }
}

fn handshake_of(server: &Server) -> Result<Handshake> {
    let Some(access) = &server.access else {
        let lane = server.counted_lane_count > 0;
        return Ok(if lane { Handshake::Ping } else { Handshake::None });
    };
    let map = server.volume()?.map().context("the server has no map")?;
    Ok(Handshake::Full { secret: access.secret, export: access.export.clone(), map })
}

fn ns_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
