//! Forbids io_uring to a process with a seccomp filter, as many containers do.
//!
//! Only tests use it. Invariant: nothing else is forbidden, and set-id programs keep their
//! privileges if the caller may install a filter without `no_new_privs`.

use std::io;

/// Environment variable that a test finds if its starter forbade io_uring.
pub const FORBIDDEN: &str = "LANEFS_IO_URING_IS_FORBIDDEN";

/// Offset of the system call number in a filter's input.
const NUMBER_OFFSET: u32 = 0;
/// The numbers are the same on all architectures: setup, enter, register.
const FIRST: u32 = 425;
const LAST: u32 = 427;

const _: () = assert!(libc::SYS_io_uring_setup == FIRST as i64, "the numbers are those of Linux");
const _: () = assert!(libc::SYS_io_uring_register == LAST as i64, "the numbers are those of Linux");

/// A filter instruction: code, the two jump offsets, operand.
const fn step(code: u32, (so, not): (u8, u8), operand: u32) -> libc::sock_filter {
    #[expect(clippy::cast_possible_truncation, reason = "codes have eight bits")]
    let code = code as u16;
    libc::sock_filter { code, jt: so, jf: not, k: operand }
}

/// Forbids io_uring to the calling thread and all threads and processes that it starts: the calls
/// fail with EPERM. This cannot be undone.
///
/// # Errors
/// When the kernel has no seccomp filters.
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
        // Without CAP_SYS_ADMIN, a filter requires `no_new_privs`.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            install(&filter)
        }
        installed => installed,
    }
}

fn install(filter: &libc::sock_fprog) -> io::Result<()> {
    let at: *const libc::sock_fprog = filter;
    // SAFETY: the kernel copies the filter and its instructions, which live until the call returns.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, at) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Config, DriverChoice, DriverKind, Ring};
    use wire::LaneId;

    /// Forbids it to its own thread only; other tests are not affected.
    #[test]
    fn without_io_uring_a_lane_uses_epoll_unless_io_uring_is_required() {
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
