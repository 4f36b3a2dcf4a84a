//! Which driver a lane gets: io_uring where it is to be had, epoll where it is forbidden or missing.
//!
//! Invariant: what the kernel allows is tried, not guessed, and whoever asked for io_uring by name is
//! told what is in the way and never given something else.

use super::uring::Uring;
use std::io;
use std::sync::OnceLock;

const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// What a lane reaches the kernel through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DriverKind {
    /// An io_uring of the lane's own.
    IoUring,
    /// epoll, and a few threads for what would block.
    Epoll,
}

impl DriverKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::IoUring, Self::Epoll];

    /// As it is written on a command line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::IoUring => "io-uring",
            Self::Epoll => "epoll",
        }
    }

    /// As people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// Which driver is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DriverChoice {
    /// io_uring if this process may use it, else epoll.
    #[default]
    Auto,
    /// This one and no other.
    Only(DriverKind),
}

/// Which driver it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverFound {
    /// This.
    pub kind: DriverKind,
    /// Why it is not io_uring, although that was not ruled out by whoever chose.
    pub why: Option<String>,
}

impl DriverChoice {
    /// Finds out which driver it is, here and now. io_uring is tried out until that went well once.
    ///
    /// # Errors
    /// When io_uring is wanted and not to be had; the text says why, and what to do.
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

/// What to tell whoever wants io_uring and no other.
pub(super) fn refused(error: &io::Error) -> io::Error {
    let why = why_not(error);
    let line = format!("the io_uring driver cannot be used here: {why}; or take --driver epoll");
    io::Error::new(error.kind(), line)
}

/// Why there is no io_uring, and what would change that.
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

/// Two may forbid it, and one of them tells.
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
