//! Chooses a lane's driver: io_uring where available, otherwise epoll.
//!
//! Invariant: what the kernel allows is tried, not guessed, and an explicit choice of io_uring
//! fails with the reason instead of falling back.

use super::uring::Uring;
use std::io;
use std::sync::OnceLock;

const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// A kind of driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DriverKind {
    /// An io_uring of the lane's own.
    IoUring,
    /// epoll, with worker threads for operations that block.
    Epoll,
}

impl DriverKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::IoUring, Self::Epoll];

    /// Its name on the command line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::IoUring => "io-uring",
            Self::Epoll => "epoll",
        }
    }

    /// Its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// The configured driver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DriverChoice {
    /// io_uring if this process may use it, else epoll.
    #[default]
    Auto,
    /// Only this one.
    Only(DriverKind),
}

/// The driver to use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverFound {
    /// Its kind.
    pub kind: DriverKind,
    /// Why it is not io_uring, although io_uring was not ruled out.
    pub why: Option<String>,
}

impl DriverChoice {
    /// Determines the driver here and now. io_uring is tried until one attempt has succeeded.
    ///
    /// # Errors
    /// When io_uring is required and not available; the text says why, and what to do.
    pub fn find(self) -> io::Result<DriverFound> {
        static TRIED: OnceLock<()> = OnceLock::new();
        if self == Self::Only(DriverKind::Epoll) {
            return Ok(DriverFound { kind: DriverKind::Epoll, why: None });
        }
        let tried = if TRIED.get().is_some() { Ok(()) } else { Uring::try_out() };
        match tried {
            Ok(()) => {
                TRIED.get_or_init(|| ());
                Ok(DriverFound { kind: DriverKind::IoUring, why: None })
            }
            Err(error) if self == Self::Auto => {
                Ok(DriverFound { kind: DriverKind::Epoll, why: Some(why_not(&error)) })
            }
            Err(error) => Err(refused(&error)),
        }
    }
}

/// The error if io_uring is required and not available.
pub(super) fn refused(error: &io::Error) -> io::Error {
    let why = why_not(error);
    let line = format!("the io_uring driver cannot be used here: {why}; or take --driver epoll");
    io::Error::new(error.kind(), line)
}

/// Why io_uring is not available, and what would change that.
fn why_not(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => forbidden(),
        Some(libc::ENOSYS) => {
            "this kernel has no io_uring, or a container forbids it: Linux 6.1 or later is needed, and \
             a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(libc::EINVAL) => "this kernel's io_uring is too old: Linux 6.1 or later is needed",
        Some(libc::ENOMEM) => "not enough memory that may be locked: raise `ulimit -l`",
        _ => return error.to_string(),
    };
    format!("{why} ({error})")
}

/// The sysctl or a seccomp filter may forbid it; the sysctl can be read.
fn forbidden() -> &'static str {
    match std::fs::read_to_string(DISABLED).as_deref().map(str::trim_end) {
        Ok("1") => {
            "kernel.io_uring_disabled is 1, which leaves it to the members of one group: `sysctl \
             kernel.io_uring_disabled=0` allows it to all"
        }
        Ok("2") => "kernel.io_uring_disabled is 2: `sysctl kernel.io_uring_disabled=0` allows it",
        _ => {
            "io_uring is forbidden, as by a container's seccomp profile, which must allow \
             io_uring_setup, io_uring_enter and io_uring_register"
        }
    }
}
