//! A process in which io_uring is forbidden, as in many containers: by a seccomp filter.
//!
//! Only tests use it. Invariant: nothing else is forbidden, and set-id programs keep their rights
//! where whoever asks may leave them so.

use std::io;

/// What the calling thread, and all that it starts from here on, finds in the environment of a
/// process whose starter forbade io_uring, so that a test can be sure of it.
pub const FORBIDDEN: &str = "LANEFS_IO_URING_IS_FORBIDDEN";

/// Where a system call's number is, for a filter.
const NUMBER_OFFSET: u32 = 0;
/// The same on every architecture: setup, enter, register.
const FIRST: u32 = 425;
const LAST: u32 = 427;

const _: () = assert!(libc::SYS_io_uring_setup == FIRST as i64, "the numbers are those of Linux");
const _: () = assert!(libc::SYS_io_uring_register == LAST as i64, "the numbers are those of Linux");

/// An instruction of a filter: what, where to go if so and if not, with what.
const fn step(code: u32, (so, not): (u8, u8), operand: u32) -> libc::sock_filter {
    #[expect(clippy::cast_possible_truncation, reason = "codes have eight bits")]
    let code = code as u16;
    libc::sock_filter { code, jt: so, jf: not, k: operand }
}

/// Forbids io_uring to the calling thread and to all that it starts: its calls fail with EPERM from here
/// on, and nothing takes that back.
///
/// # Errors
/// When the kernel knows no filters.
pub fn forbid_io_uring() -> io::Result<()> {
    use libc::{BPF_ABS, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut steps = [
        step(BPF_LD | BPF_W | BPF_ABS, (0, 0), NUMBER_OFFSET),
        step(BPF_JMP | BPF_JGE | BPF_K, (0, 2), FIRST),
        step(BPF_JMP | BPF_JGT | BPF_K, (1, 0), LAST),
        step(BPF_RET | BPF_K, (0, 0), refused),
        step(BPF_RET | BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let step_count = u16::try_from(steps.len()).unwrap_or(0);
    let filter = libc::sock_fprog { len: step_count, filter: steps.as_mut_ptr() };
    match install(&filter) {
        // Whoever may not watch over others' rights has to give up those of set-id programs.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            install(&filter)
        }
        installed => installed,
    }
}

fn install(filter: &libc::sock_fprog) -> io::Result<()> {
    let at: *const libc::sock_fprog = filter;
    // SAFETY: the kernel copies the filter and its steps, which live until the call returns.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, at) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Config, DriverChoice, DriverKind, Ring};
    use wire::LaneId;

    /// Of its own thread only: other tests go on.
    #[test]
    fn a_lane_that_may_not_have_a_ring_is_on_epoll_unless_it_must_not() {
        let tried = std::thread::spawn(|| {
            forbid_io_uring().unwrap();
            let direct = io_uring::IoUring::new(8).map(drop).unwrap_err();
            let mut config = Config::new(LaneId(0));
            let driver = Ring::new(config).unwrap().driver();
            config = Config::new(LaneId(0));
            config.driver = DriverChoice::Only(DriverKind::IoUring);
            (direct.raw_os_error(), driver, Ring::new(config).map(drop).unwrap_err().to_string())
        });
        let (direct, driver, refused) = tried.join().unwrap();
        assert_eq!(direct, Some(libc::EPERM));
        assert_eq!(driver, DriverKind::Epoll);
        for part in ["forbidden", "seccomp", "--driver epoll"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
