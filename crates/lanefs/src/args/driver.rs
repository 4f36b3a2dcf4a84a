//! The option for the driver of `serve`, `mount` and `up`.

use clap::{Args, ValueEnum};

/// The driver of the lanes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Driver {
    /// io_uring if the kernel permits it, else epoll
    Auto,
    /// io_uring; fails if the kernel does not permit it
    IoUring,
    /// epoll, with worker threads for files
    Epoll,
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DriverArg {
    /// The kernel interface of the lanes
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Driver::Auto, env = "LANEFS_DRIVER")]
    pub(crate) driver: Driver,
}

/// The same for the mount of `up`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MountDriverArg {
    /// The kernel interface of the mount's lanes [default: as --driver]
    #[arg(long, value_name = "WHICH", value_enum, env = "LANEFS_MOUNT_DRIVER")]
    pub(crate) mount_driver: Option<Driver>,
}
