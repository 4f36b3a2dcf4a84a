//! Random torture as scenarios, and its control run.

use super::length::Length;
use crate::client_group::{ClientGroup, Size};
use crate::disk::{LossyFs, Tear};
use crate::run_folder::Setup;
use crate::server::Server;
use crate::torture::{Hazard, Torture, run_and_report};
use anyhow::{Result, bail};

const SIZE: Size = Size { library_count: 2, mount_count: 2 };

/// Kills.
pub(super) fn kills(setup: &Setup, length: Length) -> Result<String> {
    tortured(setup, Hazard::Kill, length.round_count, &[])
}

/// Kills of a server that replies only when the change is durable.
pub(super) fn kills_sync(setup: &Setup, length: Length) -> Result<String> {
    tortured(setup, Hazard::Kill, length.round_count / 2, &["--sync"])
}

/// Kills of a server that shows only durable changes.
pub(super) fn kills_strict(setup: &Setup, length: Length) -> Result<String> {
    tortured(setup, Hazard::Kill, length.round_count / 2, &["--share", "strict"])
}

/// Power cuts.
pub(super) fn power(setup: &Setup, length: Length) -> Result<String> {
    tortured(setup, Hazard::Power, length.cut_count, &[])
}

/// More clients, so that more is under way.
const POWER_SIZE: Size = Size { library_count: 4, mount_count: 2 };

fn tortured(setup: &Setup, hazard: Hazard, round_count: u64, arguments: &[&str]) -> Result<String> {
    let all_durable = arguments.contains(&"--sync");
    let size = if hazard == Hazard::Power { POWER_SIZE } else { SIZE };
    run_and_report(setup, &Torture { hazard, round_count, size, all_durable }, arguments)
}

/// The same on a disk that ignores flushes and then loses its power. If nothing is found missing,
/// the torture finds nothing at all.
pub(super) fn lying_disk(setup: &Setup, _: Length) -> Result<String> {
    let mut lossy_fs = LossyFs::new(&setup.folder)?;
    let mut server = Server::start(setup, lossy_fs.dir.join("store"), &["--sync"])?;
    let mut clients = ClientGroup::new(setup, &mut server, 8)?;
    server.stop()?;
    lossy_fs.ignore_flushes()?;
    server.restart()?;
    clients.start(SIZE)?;
    clients.progress()?;
    clients.kill_all()?;
    lossy_fs.cut(Tear::DropAll, setup.seed)?;
    server.kill()?;
    lossy_fs.reboot()?;
    server.restart()?;
    // Every acknowledged operation was reported durable, whether its client lives or not.
    clients.require_all_acknowledged();
    let findings = clients.check(&server)?;
    server.kill()?;
    if findings.lost.is_empty() {
        bail!("a lying disk went unnoticed: {}", findings.summary());
    }
    Ok(format!("noticed: {}", findings.summary()))
}
