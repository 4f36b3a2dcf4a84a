//! A calling process according to `/proc`: its supplementary groups, and whether it is being
//! killed.
//!
//! A process id may have been reused when it is looked up. Invariant: groups are returned only for
//! a process that has the ids of the request and was started before the request came.

use interface::Process;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Bytes per read.
const PIECE_BYTES: usize = 4096;

/// SIGKILL, which also stands for any unhandled fatal signal, and the signals that users send to
/// stop a program: SIGINT, SIGQUIT, SIGTERM.
const ENDING: u64 = 1 << 8 | 1 << 1 | 1 << 2 | 1 << 14;

/// Inaccuracy of start times: `/proc` truncates to 1/100 s, and our clock was read a moment ago.
const START_NS_MAX: u64 = 20_000_000;

/// The supplementary groups of a process that is at least this old: empty if the process id was
/// reused, `None` if there is no such process. Counts its system calls.
pub(crate) fn groups(
    process: &Process,
    lived_ns: u64,
    syscall_count: &mut u64,
) -> Option<Vec<u32>> {
    let path = format!("/proc/{}", process.pid);
    // Files read below this descriptor belong to one process: once it has ended, reading fails.
    let dir = open(CWD, &path, OFlags::PATH | OFlags::DIRECTORY, syscall_count)?;
    let status = read(&dir, "status", syscall_count)?;
    let stat = read(&dir, "stat", syscall_count)?;
    let age_ns = boot_ns().saturating_sub(start_ns_of(&stat)?);
    let lived = age_ns.saturating_add(START_NS_MAX) >= lived_ns;
    // access(2) checks with the real uid.
    let is_caller = lived
        && [0, 3].into_iter().any(|of| ids_of(&status, of) == Some((process.uid, process.gid)));
    if is_caller { groups_of(&status) } else { Some(Vec::new()) }
}

/// Whether a thread is being killed, was asked to end, or has ended. Counts its system calls.
pub(crate) fn ends(pid: u32, syscall_count: &mut u64) -> bool {
    let status = read(CWD, &format!("/proc/{pid}/status"), syscall_count);
    status.and_then(|status| ends_of(&status)).unwrap_or(true)
}

fn open(dir: impl AsFd, path: &str, flags: OFlags, syscall_count: &mut u64) -> Option<OwnedFd> {
    *syscall_count += 1;
    let file = rustix::fs::openat(dir, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
    *syscall_count += 1; // Its close.
    Some(file)
}

fn read(dir: impl AsFd, path: &str, syscall_count: &mut u64) -> Option<Vec<u8>> {
    let file = open(dir, path, OFlags::RDONLY, syscall_count)?;
    let mut bytes = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        *syscall_count += 1;
        match rustix::io::read(&file, &mut piece) {
            Ok(0) => return Some(bytes),
            Ok(read_bytes) => bytes.extend_from_slice(&piece[..read_bytes]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Time since boot, as `/proc` counts it.
fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    secs * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The start time in `/proc/<pid>/stat`.
fn start_ns_of(stat: &[u8]) -> Option<u64> {
    // The name before it may contain any character.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    // proc(5) counts fields from 1; this is the 22nd, and the remaining text begins with the third.
    let ticks: u64 = text.split_ascii_whitespace().nth(22 - 3)?.parse().ok()?;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    ticks.checked_mul(tick_ns)
}

/// The uid and gid of `/proc/<pid>/status` in this column: real, effective, saved, file system.
fn ids_of(status: &[u8], place: usize) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(status).ok()?;
    let id = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(place)?.parse().ok()
    };
    Some((id("Uid:")?, id("Gid:")?))
}

/// The group ids of `/proc/<pid>/status`.
fn groups_of(status: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_ascii_whitespace().map(|gid| gid.parse().ok()).collect()
}

/// Whether one of the ending signals is pending and not blocked, from `/proc/<pid>/status`.
fn ends_of(status: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(status).ok()?;
    let mask = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let pending = mask("SigPnd:")? | mask("ShdPnd:")?;
    Some(pending & !mask("SigBlk:")? & ENDING != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn groups_are_parsed_from_one_line() {
        let status = b"Name:\tx\nGid:\t1\t1\t1\t1\nGroups:\t4 20 1000 \nPid:\t7\n";
        assert_eq!(groups_of(status), Some(vec![4, 20, 1000]));
        assert_eq!(groups_of(b"Groups:\t\n"), Some(vec![]));
        assert_eq!(groups_of(b"Groups:\t4 x\n"), None);
        assert_eq!(groups_of(b"Name:\tx\n"), None);
    }

    #[test]
    fn an_unblocked_fatal_signal_means_that_a_process_ends() {
        let ends = |own: u64, shared: u64, blocked: u64| {
            let status = format!(
                "Name:\tx\nSigQ:\t0/3\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
                 SigBlk:\t{blocked:016x}\n"
            );
            ends_of(status.as_bytes())
        };
        let (kill, int, alarm) = (1 << 8, 1 << 1, 1 << 13);
        assert_eq!(ends(kill, 0, 0), Some(true));
        assert_eq!(ends(0, int, 0), Some(true));
        assert_eq!(ends(0, int, int), Some(false));
        assert_eq!(ends(alarm, alarm, 0), Some(false));
        assert_eq!(ends_of(b"Name:\tx\n"), None);
        let mut syscall_count = 0;
        assert!(!super::ends(std::process::id(), &mut syscall_count));
        assert!(super::ends(0x7fff_fff0, &mut syscall_count), "no such process");
        assert!(super::ends(0, &mut syscall_count), "the process is unknown");
    }

    #[test]
    fn its_system_calls_are_counted() {
        let mut syscall_count = 0;
        assert!(groups(&this(), 0, &mut syscall_count).is_some());
        assert!(syscall_count >= 10, "a folder, and two times: open, read, read no more, close");
        let mut absent_count = 0;
        assert_eq!(groups(&Process { pid: 0x7fff_fff0, ..this() }, 0, &mut absent_count), None);
        assert_eq!(absent_count, 1);
    }

    /// This thread, as the kernel would identify it.
    fn this() -> Process {
        let status = std::fs::read("/proc/self/status").unwrap();
        let (uid, gid) = ids_of(&status, 3).unwrap();
        Process { pid: std::process::id(), uid, gid, since: interface::Mono(0) }
    }

    #[test]
    fn a_process_with_other_ids_yields_no_groups() {
        let mut count = 0;
        for another in
            [Process { uid: this().uid + 1, ..this() }, Process { gid: this().gid + 1, ..this() }]
        {
            assert_eq!(groups(&another, 0, &mut count), Some(vec![]));
        }
    }

    #[test]
    fn a_process_younger_than_the_request_yields_no_groups() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process { pid: child.id(), ..this() };
        let mut count = 0;
        let hour_ns = 3_600_000_000_000;
        let young = groups(&process, hour_ns, &mut count);
        let at_once = groups(&process, 0, &mut count);
        child.kill().unwrap();
        child.wait().unwrap();
        let own = groups_of(&std::fs::read("/proc/self/status").unwrap());
        assert_eq!((young, at_once), (Some(vec![]), own));
    }

    #[test]
    fn a_process_name_may_contain_parentheses() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        for name in ["sh", "a) S 1 2", ") "] {
            let stat = format!("77 ({name}) {rest}");
            assert_eq!(start_ns_of(stat.as_bytes()), Some(4711 * 10_000_000), "{name}");
        }
        assert_eq!(start_ns_of(b"77 (sh) S 1 2"), None);
    }

    #[test]
    fn the_file_system_ids_are_used() {
        let status = b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9\n";
        assert_eq!((ids_of(status, 0), ids_of(status, 3)), (Some((1, 5)), Some((4, 8))));
        assert_eq!(ids_of(b"Uid:\t1\t1\t1\t1\n", 0), None, "not half of them");
    }
}
