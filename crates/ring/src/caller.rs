//! What `/proc` tells of a process that calls: its supplementary groups, and whether it is to end.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Read at a time.
const PIECE_BYTES: usize = 4096;

/// SIGKILL, which also stands for every signal that a process does not handle and dies of; and what
/// people send to have a program stop: SIGINT, SIGQUIT, SIGTERM.
const ENDING: u64 = 1 << 8 | 1 << 1 | 1 << 2 | 1 << 14;

/// The group ids of a process; `None` when there is no such process. Counts its system calls.
pub(crate) fn groups(pid: u32, syscall_count: &mut u64) -> Option<Vec<u32>> {
    groups_of(&status(pid, syscall_count)?)
}

/// Whether a thread is being killed, is asked to end, or is gone. Counts its system calls.
pub(crate) fn ends(pid: u32, syscall_count: &mut u64) -> bool {
    status(pid, syscall_count).and_then(|status| ends_of(&status)).unwrap_or(true)
}

fn status(pid: u32, syscall_count: &mut u64) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/status");
    *syscall_count += 1;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    *syscall_count += 1; // Its close.
    let mut status = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        *syscall_count += 1;
        match rustix::io::read(&file, &mut piece) {
            Ok(0) => return Some(status),
            Ok(read_bytes) => status.extend_from_slice(&piece[..read_bytes]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// The group ids of `/proc/<pid>/status`.
fn groups_of(status: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_ascii_whitespace().map(|gid| gid.parse().ok()).collect()
}

/// Whether one of the ending signals of `/proc/<pid>/status` is pending and not blocked.
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
    use super::*;

    #[test]
    fn groups_are_the_numbers_of_one_line() {
        let status = b"Name:\tx\nGid:\t1\t1\t1\t1\nGroups:\t4 20 1000 \nPid:\t7\n";
        assert_eq!(groups_of(status), Some(vec![4, 20, 1000]));
        assert_eq!(groups_of(b"Groups:\t\n"), Some(vec![]));
        assert_eq!(groups_of(b"Groups:\t4 x\n"), None);
        assert_eq!(groups_of(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_process_ends_by_some_signals_that_it_does_not_block() {
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
        assert!(super::ends(0x7fff_fff0, &mut syscall_count), "nobody is there");
        assert!(super::ends(0, &mut syscall_count), "the kernel cannot say who");
    }

    #[test]
    fn its_system_calls_are_counted() {
        let mut syscall_count = 0;
        assert!(groups(std::process::id(), &mut syscall_count).is_some());
        assert!(syscall_count >= 4, "open, read, read nothing more, close");
        let mut absent_count = 0;
        assert_eq!(groups(0x7fff_fff0, &mut absent_count), None);
        assert_eq!(absent_count, 1);
    }
}
