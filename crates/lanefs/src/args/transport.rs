//! How the kernel's requests reach a mount.

use clap::ValueEnum;

/// How the kernel's requests reach the mount.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// io_uring queues where the kernel allows them, else /dev/fuse
    Auto,
    /// Per-core io_uring queues (kernel 6.14 or later, module parameter enable_uring=Y)
    Uring,
    /// /dev/fuse, one channel per lane
    Classic,
}

impl Transport {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Classic => "classic",
        }
    }
}
