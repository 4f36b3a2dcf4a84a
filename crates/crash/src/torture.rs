//! Random torture: clients at work, kills at random moments, and at the end everything is held
//! against what the clients were told.

use crate::crew::{Crew, Size, Victim};
use crate::dice::Dice;
use crate::disk::{LostBytes, Rig, Tear};
use crate::server::Server;
use crate::stage::Setup;
use crate::work::Findings;
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};

/// A moment is rolled within so many milliseconds.
const MOMENT_MS_MAX: u64 = 120;
/// A flush takes so long at most on a disk whose power is cut.
const FLUSH_MS_MAX: u64 = 30;
/// And so much longer when it is about to be cut.
const PILING_MS_MAX: u64 = 150;
/// A cut waits until a flush has at least so many bytes to make durable, or twice as many, and so on.
const BYTES_MIN: usize = 4096;
const BYTES_DOUBLED_MAX: u64 = 6;
/// New clients that a round may need.
const CLIENTS_PER_ROUND: u64 = 3;

/// What ends a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hazard {
    /// kill -9: what was written stays.
    Kill,
    /// The power goes: what was not synced may go with it.
    Power,
}

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Torture {
    pub(crate) hazard: Hazard,
    pub(crate) round_count: u64,
    pub(crate) size: Size,
    /// Everything answered is durable, also what killed clients were told.
    pub(crate) all_durable: bool,
}

/// What came of it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Outcome {
    /// Processes killed, or power cuts.
    pub(crate) kill_count: u64,
    pub(crate) findings: Findings,
    /// Power cuts.
    cut_count: u64,
    /// What they took away.
    lost_bytes: LostBytes,
}

/// Runs it.
pub(crate) fn run(setup: &Setup, torture: &Torture, arguments: &[&str]) -> Result<Outcome> {
    let rig = match torture.hazard {
        Hazard::Kill => None,
        Hazard::Power => Some(Rig::new(&setup.folder)?),
    };
    let store_place = rig.as_ref().map_or(setup.folder.clone(), |rig| rig.dir.clone());
    let mut server = Server::start(setup, store_place.join("store"), arguments)?;
    let size = torture.size;
    let member_count = (size.library_count + 2 * size.mount_count) as u64;
    let client_count_max = member_count + CLIENTS_PER_ROUND * torture.round_count;
    let mut crew = Crew::new(setup, &mut server, client_count_max)?;
    crew.start(size)?;
    let dice = Dice::new(setup.seed);
    let mut outcome = Outcome::default();
    let mut rounds = Rounds { dice, server, crew, rig };
    for round_no in 0..torture.round_count {
        let round = rounds.round(torture, &mut outcome);
        round.with_context(|| format!("round {round_no}"))?;
    }
    rounds.crew.progress()?;
    rounds.crew.end()?;
    rounds.end_server(&mut outcome)?;
    rounds.server.restart()?;
    if torture.all_durable {
        rounds.crew.forgive_nothing();
    }
    outcome.findings = rounds.crew.check(&rounds.server)?;
    rounds.server.stop()?;
    rounds.server.check_store()?;
    Ok(outcome)
}

struct Rounds {
    dice: Dice,
    server: Server,
    crew: Crew,
    // Behind the server: it is taken down after it.
    rig: Option<Rig>,
}

impl Rounds {
    fn round(&mut self, torture: &Torture, outcome: &mut Outcome) -> Result<()> {
        self.pause();
        if self.server.running()?.has_ended()? {
            bail!("the server ended by itself:\n{}", self.server.running()?.said());
        }
        match self.dice.below(100) {
            0..65 => self.server_dies(outcome)?,
            65..85 => self.client_dies(outcome)?,
            _ => {
                self.end_server(outcome)?;
                self.client_dies(outcome)?;
                self.server.restart()?;
            }
        }
        self.crew.replace(torture.size)?;
        // Now and then the next one comes before anybody has recovered.
        if self.dice.percent(70) {
            self.crew.progress()?;
        }
        Ok(())
    }

    /// A random moment.
    fn pause(&mut self) {
        let moment_ms = self.dice.below(MOMENT_MS_MAX);
        std::thread::sleep(Duration::from_millis(moment_ms));
    }

    fn server_dies(&mut self, outcome: &mut Outcome) -> Result<()> {
        self.end_server(outcome)?;
        while self.dice.percent(15) {
            self.server.launch(&[])?;
            self.pause();
            self.end_server(outcome)?;
        }
        self.server.restart()
    }

    /// Kills the server, or cuts its power.
    fn end_server(&mut self, outcome: &mut Outcome) -> Result<()> {
        outcome.kill_count += 1;
        let Some(rig) = &mut self.rig else { return self.server.kill() };
        let tear = match self.dice.below(5) {
            0 => Tear::DropAll,
            1 => Tear::Prefix,
            2 => Tear::Sectors(4096),
            _ => Tear::Sectors(512),
        };
        let bytes_min = BYTES_MIN << self.dice.below(BYTES_DOUBLED_MAX);
        // While a flush takes its time, log, objects and rows have more for the next one.
        rig.slow(FLUSH_MS_MAX + self.dice.below(PILING_MS_MAX))?;
        let victim = self.server.running()?.pid();
        rig.cut_busy(tear, self.dice.roll(), (bytes_min, victim))?;
        self.server.kill()?;
        rig.slow(0)?;
        rig.reboot()?;
        rig.slow(self.dice.below(FLUSH_MS_MAX))?;
        outcome.cut_count += 1;
        outcome.lost_bytes += rig.lost(self.server.store())?;
        Ok(())
    }

    fn client_dies(&mut self, outcome: &mut Outcome) -> Result<()> {
        let index = self.dice.index(self.crew.member_count());
        let victim = if self.dice.percent(30) { Victim::Program } else { Victim::Client };
        outcome.kill_count += 1;
        self.crew.kill(index, victim)
    }
}

/// Runs it and says what came of it; anything wrong is an error.
pub(crate) fn run_and_tell(setup: &Setup, torture: &Torture, arguments: &[&str]) -> Result<String> {
    let start = Instant::now();
    let outcome = run(setup, torture, arguments)?;
    let what = match torture.hazard {
        Hazard::Kill => format!("{} kills", outcome.kill_count),
        Hazard::Power => {
            let Outcome { kill_count, cut_count, lost_bytes, .. } = &outcome;
            format!("{kill_count} cuts and kills, {cut_count} of them cuts; {lost_bytes}")
        }
    };
    let text = outcome.findings.details();
    if !outcome.findings.is_clean() {
        bail!("{what}: {text}");
    }
    if outcome.findings.done_count == 0 {
        bail!("nothing was acknowledged, so nothing was shown");
    }
    Ok(format!("{what}, {text}, {:.0} s", start.elapsed().as_secs_f64()))
}
