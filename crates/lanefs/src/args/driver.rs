//! The choice of a driver, on the command line of whatever has lanes for long.

use clap::{Args, ValueEnum};

/// What lanes reach the kernel through.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Driver {
    /// io_uring where this process may use it, else epoll
    Auto,
    /// io_uring, or nothing
    IoUring,
    /// epoll, and a few threads for files
    Epoll,
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DriverArg {
    /// What lanes reach the kernel through
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Driver::Auto, env = "LANEFS_DRIVER")]
    pub(crate) driver: Driver,
}

/// The same for the mount of `up`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MountDriverArg {
    /// What lanes of the mount reach the kernel through [default: as --driver]
    #[arg(long, value_name = "WHICH", value_enum, env = "LANEFS_MOUNT_DRIVER")]
    pub(crate) mount_driver: Option<Driver>,
}
