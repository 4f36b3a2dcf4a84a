//! Cores and descriptors of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Pins the calling thread to a core.
///
/// # Errors
/// When there is no such core or the process may not use it.
pub fn pin_to_core(core: u16) -> io::Result<()> {
    let mut set = CpuSet::new();
    if usize::from(core) >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("there is no core {core}")));
    }
    set.set(usize::from(core));
    sched_setaffinity(None, &set)?;
    Ok(())
}

/// Lets the calling thread run on these cores.
pub(crate) fn may_run_on(cores: &[u16]) -> io::Result<()> {
    let mut set = CpuSet::new();
    let known = cores.iter().map(|core| usize::from(*core)).filter(|core| *core < CpuSet::MAX_CPU);
    known.for_each(|core| set.set(core));
    sched_setaffinity(None, &set)?;
    Ok(())
}

/// The cores that this process may use, ascending.
///
/// # Errors
/// When the system does not report them.
pub fn usable_cores() -> io::Result<Vec<u16>> {
    let set = sched_getaffinity(None)?;
    let all = 0..u16::try_from(CpuSet::MAX_CPU).unwrap_or(u16::MAX);
    Ok(all.filter(|core| set.is_set(usize::from(*core))).collect())
}

/// How many cores this process may use; 1 if the system does not report it.
#[must_use]
pub fn core_count() -> usize {
    usable_cores().map_or(1, |cores| cores.len().max(1))
}

/// The cores that may ever be present; the kernel has a FUSE queue for each.
pub(crate) fn possible_cores() -> io::Result<Vec<u16>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    parse_cores(text.trim())
        .ok_or_else(|| io::Error::other(format!("the list of possible cores is {text:?}")))
}

/// `0-3,8,10-11`.
fn parse_cores(text: &str) -> Option<Vec<u16>> {
    let mut cores = Vec::new();
    for piece in text.split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Raises the process's descriptor limit to the hard limit; returns it.
///
/// # Errors
/// When the system refuses.
pub fn raise_fd_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn core_lists_are_parsed() {
        assert_eq!(parse_cores("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cores("0"), Some(vec![0]));
        assert_eq!(parse_cores("a-b"), None);
    }

    #[test]
    fn a_pinned_thread_has_one_core() {
        std::thread::spawn(|| {
            let core = usable_cores().unwrap()[0];
            pin_to_core(core).unwrap();
            assert_eq!(usable_cores().unwrap(), [core]);
        })
        .join()
        .unwrap();
        assert!(core_count() >= 1);
    }

    #[test]
    fn the_descriptor_limit_rises_to_the_hard_one() {
        let raised = raise_fd_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), raised);
    }
}
