//! Random torture: clients work, servers and clients are killed at random moments, and at the end
//! the tree is checked against the clients' journals.

use crate::client_group::{ClientGroup, Size, Victim};
use crate::disk::{LossyFs, LostBytes, Tear};
use crate::run_folder::Setup;
use crate::server::Server;
use crate::work::Findings;
use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use std::time::{Duration, Instant};

/// The longest random pause in milliseconds.
const MOMENT_MS_MAX: u64 = 120;
/// The longest flush of a disk whose power is cut.
const FLUSH_MS_MAX: u64 = 30;
/// The additional duration of a flush shortly before the cut.
const PILING_MS_MAX: u64 = 150;
/// A cut waits for a flush with at least so many bytes to make durable, or a multiple.
const BYTES_MIN: usize = 4096;
const BYTES_DOUBLED_MAX: u64 = 6;
/// New clients that a round may start.
const CLIENTS_PER_ROUND: u64 = 3;

/// What ends a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hazard {
    /// kill -9: written data stays.
    Kill,
    /// A power cut: unsynced data may be lost.
    Power,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Torture {
    pub(crate) hazard: Hazard,
    pub(crate) round_count: u64,
    pub(crate) size: Size,
    /// Every acknowledged operation is durable, also those of killed clients.
    pub(crate) all_durable: bool,
}

/// The result.
#[derive(Clone, Default, Debug)]
pub(crate) struct Outcome {
    /// Processes killed, or power cuts.
    pub(crate) kill_count: u64,
    pub(crate) findings: Findings,
    /// Power cuts.
    cut_count: u64,
    /// The bytes they took.
    lost_bytes: LostBytes,
}

/// Runs it.
pub(crate) fn run(setup: &Setup, torture: &Torture, arguments: &[&str]) -> Result<Outcome> {
    let lossy_fs = match torture.hazard {
        Hazard::Kill => None,
        Hazard::Power => Some(LossyFs::new(&setup.folder)?),
    };
    let store_place =
        lossy_fs.as_ref().map_or(setup.folder.clone(), |lossy_fs| lossy_fs.dir.clone());
    let mut server = Server::start(setup, store_place.join("store"), arguments)?;
    let size = torture.size;
    let member_count = (size.library_count + 2 * size.mount_count) as u64;
    let client_count_max = member_count + CLIENTS_PER_ROUND * torture.round_count;
    let mut clients = ClientGroup::new(setup, &mut server, client_count_max)?;
    clients.start(size)?;
    let rng = Rng::with_seed(setup.seed);
    let mut outcome = Outcome::default();
    let mut rounds = Rounds { rng, server, clients, lossy_fs };
    for round_no in 0..torture.round_count {
        let round = rounds.round(torture, &mut outcome);
        round.with_context(|| format!("round {round_no}"))?;
    }
    rounds.clients.progress()?;
    rounds.clients.end()?;
    rounds.end_server(&mut outcome)?;
    rounds.server.restart()?;
    if torture.all_durable {
        rounds.clients.require_all_acknowledged();
    }
    outcome.findings = rounds.clients.check(&rounds.server)?;
    rounds.server.stop()?;
    rounds.server.check_store()?;
    Ok(outcome)
}

struct Rounds {
    rng: Rng,
    server: Server,
    clients: ClientGroup,
    // Declared after the server, so that it is dropped after it.
    lossy_fs: Option<LossyFs>,
}

impl Rounds {
    fn round(&mut self, torture: &Torture, outcome: &mut Outcome) -> Result<()> {
        self.pause();
        if self.server.running()?.has_ended()? {
            bail!("the server ended by itself:\n{}", self.server.running()?.output());
        }
        match self.rng.u64(..100) {
            0..65 => self.server_dies(outcome)?,
            65..85 => self.client_dies(outcome)?,
            _ => {
                self.end_server(outcome)?;
                self.client_dies(outcome)?;
                self.server.restart()?;
            }
        }
        self.clients.replace(torture.size)?;
        // In some rounds the next kill comes before recovery is complete.
        if self.rng.u64(..100) < 70 {
            self.clients.progress()?;
        }
        Ok(())
    }

    /// Pauses for a random time.
    fn pause(&mut self) {
        let moment_ms = self.rng.u64(..MOMENT_MS_MAX);
        std::thread::sleep(Duration::from_millis(moment_ms));
    }

    fn server_dies(&mut self, outcome: &mut Outcome) -> Result<()> {
        self.end_server(outcome)?;
        while self.rng.u64(..100) < 15 {
            self.server.launch(&[])?;
            self.pause();
            self.end_server(outcome)?;
        }
        self.server.restart()
    }

    /// Kills the server, or cuts its power.
    fn end_server(&mut self, outcome: &mut Outcome) -> Result<()> {
        outcome.kill_count += 1;
        let Some(lossy_fs) = &mut self.lossy_fs else { return self.server.kill() };
        let tear = match self.rng.u64(..5) {
            0 => Tear::DropAll,
            1 => Tear::Prefix,
            2 => Tear::Sectors(4096),
            _ => Tear::Sectors(512),
        };
        let bytes_min = BYTES_MIN << self.rng.u64(..BYTES_DOUBLED_MAX);
        // While a slow flush runs, log, objects and rows gather more for the next one.
        lossy_fs.slow(FLUSH_MS_MAX + self.rng.u64(..PILING_MS_MAX))?;
        let victim = self.server.running()?.pid();
        lossy_fs.cut_busy(tear, self.rng.u64(..), (bytes_min, victim))?;
        self.server.kill()?;
        lossy_fs.slow(0)?;
        lossy_fs.reboot()?;
        lossy_fs.slow(self.rng.u64(..FLUSH_MS_MAX))?;
        outcome.cut_count += 1;
        outcome.lost_bytes += lossy_fs.lost(self.server.store())?;
        Ok(())
    }

    fn client_dies(&mut self, outcome: &mut Outcome) -> Result<()> {
        let index = self.rng.usize(..self.clients.member_count());
        let victim = if self.rng.u64(..100) < 30 { Victim::Program } else { Victim::Client };
        outcome.kill_count += 1;
        self.clients.kill(index, victim)
    }
}

/// Runs it and returns a summary; any finding is an error.
pub(crate) fn run_and_report(
    setup: &Setup,
    torture: &Torture,
    arguments: &[&str],
) -> Result<String> {
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
