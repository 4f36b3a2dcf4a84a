//! A process's supplementary groups, as `/proc` tells them.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Read at a time.
const PIECE_BYTES: usize = 4096;

/// The group ids of a process; `None` when there is no such process. Counts its system calls.
pub(crate) fn look_up(pid: u32, syscall_count: &mut u64) -> Option<Vec<u32>> {
    let path = format!("/proc/{pid}/status");
    *syscall_count += 1;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    *syscall_count += 1; // Its close.
    let mut status = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        *syscall_count += 1;
        match rustix::io::read(&file, &mut piece) {
            Ok(0) => return groups_of(&status),
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
    fn its_system_calls_are_counted() {
        let mut syscall_count = 0;
        assert!(look_up(std::process::id(), &mut syscall_count).is_some());
        assert!(syscall_count >= 4, "open, read, read nothing more, close");
        let mut absent_count = 0;
        assert_eq!(look_up(0x7fff_fff0, &mut absent_count), None);
        assert_eq!(absent_count, 1);
    }
}
