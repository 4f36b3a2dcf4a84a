//! The option for leases, of `mount`.

use clap::{Args, ValueEnum};

/// Whether a mount caches.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leases {
    /// The kernel caches names, attributes and contents as long as the server's leases cover them
    On,
    /// The kernel caches nothing; the server is asked every time
    Off,
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LeasesArg {
    /// Whether the kernel caches what it reads; nothing is stale either way
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Leases::On, env = "LANEFS_LEASES")]
    pub(crate) leases: Leases,
}
