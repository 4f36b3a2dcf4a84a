//! Random torture as scenarios, and its control.

use super::Length;
use crate::crew::{Crew, Size};
use crate::disk::{Rig, Tear};
use crate::server::Server;
use crate::stage::Setup;
use crate::torture::{Hazard, Torture, run_and_tell};
use anyhow::{Result, bail};

const SIZE: Size = Size { library_count: 2, mount_count: 2 };

/// Kills.
pub(super) fn kills(setup: &Setup, length: Length) -> Result<String> {
    tortured(setup, Hazard::Kill, length.round_count, &[])
}

/// Kills of a server that answers only what is durable.
pub(super) fn kills_sync(setup: &Setup, length: Length) -> Result<String> {
    tortured(setup, Hazard::Kill, length.round_count / 2, &["--sync"])
}

/// Kills of a server that shows only what is durable.
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
    run_and_tell(setup, &Torture { hazard, round_count, size, all_durable }, arguments)
}

/// The same on a disk that answers flushes without doing them, and then loses its power: if nothing
/// is found missing, the torture finds nothing at all.
pub(super) fn lying_disk(setup: &Setup, _: Length) -> Result<String> {
    let mut rig = Rig::new(&setup.folder)?;
    let mut server = Server::start(setup, rig.dir.join("store"), &["--sync"])?;
    let mut crew = Crew::new(setup, &mut server, 8)?;
    server.stop()?;
    rig.lie()?;
    server.restart()?;
    crew.start(SIZE)?;
    crew.progress()?;
    crew.kill_all()?;
    rig.cut(Tear::DropAll, setup.seed)?;
    server.kill()?;
    rig.reboot()?;
    server.restart()?;
    // Whatever they were told was durable, so they need not live for it.
    crew.forgive_nothing();
    let findings = crew.check(&server)?;
    server.kill()?;
    if findings.lost.is_empty() {
        bail!("a lying disk went unnoticed: {}", findings.summary());
    }
    Ok(format!("noticed: {}", findings.summary()))
}
