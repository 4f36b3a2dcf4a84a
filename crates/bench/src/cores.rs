//! The CPUs of the server and of the load.
//!
//! With two CPUs or more they share none. Invariant: a child started here never runs on the
//! generator's CPU, unless there is only one.

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The CPUs of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cores {
    /// The server's, one per lane.
    pub(crate) server: Vec<u16>,
    /// The load generator's.
    pub(crate) generator: u16,
    /// The CPUs that this thread could use before.
    all: Vec<u16>,
    /// Server and load share all CPUs.
    together: bool,
}

impl Cores {
    /// Splits the cores this process may use: the last is the generator's, `lane_count` of the
    /// others are the server's.
    ///
    /// # Errors
    /// When the system does not tell the cores.
    pub(crate) fn split(lane_count: u16) -> Result<Self> {
        let mut usable = ring::usable_cores().context("cannot tell the usable cores")?;
        let all = usable.clone();
        let generator = usable.pop().context("no core may be used")?;
        usable.truncate(usize::from(lane_count).max(1));
        let server = if usable.is_empty() { vec![generator] } else { usable };
        Ok(Self { server, generator, all, together: false })
    }

    /// All CPUs for both.
    ///
    /// # Errors As [`Self::split`].
    pub(crate) fn together() -> Result<Self> {
        let Self { generator, all, .. } = Self::split(1)?;
        Ok(Self { server: all.clone(), generator, all, together: true })
    }

    /// Moves this thread, and the children that it starts from here on, to the server's CPUs.
    pub(crate) fn go_to_server(&self) -> Result<()> {
        go_to(&self.server)
    }

    /// Moves this thread to the generator's CPU.
    pub(crate) fn go_to_generator(&self) -> Result<()> {
        if self.together { self.go_back() } else { go_to(&[self.generator]) }
    }

    /// Gives this thread all CPUs that it had before.
    pub(crate) fn go_back(&self) -> Result<()> {
        go_to(&self.all)
    }
}

fn go_to(cores: &[u16]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(usize::from(*core)));
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on cores {cores:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn server_and_load_share_no_core_if_there_are_two() {
        let cores = Cores::split(1).unwrap();
        assert_eq!(cores.server.len(), 1);
        if ring::core_count() > 1 {
            assert!(!cores.server.contains(&cores.generator));
        }
        let all = Cores::split(u16::MAX).unwrap();
        assert_eq!(all.server.len(), (ring::core_count() - 1).max(1));
    }

    #[test]
    fn the_next_run_gets_the_same_cores() {
        let options = crate::plan::Options::tiny(1.0);
        let first = crate::server::Home::new(&options).unwrap().cores.clone();
        let second = crate::server::Home::new(&options).unwrap().cores.clone();
        assert_eq!(first, second);
    }
}
