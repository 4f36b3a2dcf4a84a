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

/// Whether programs wait for their writes to new files.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteBehind {
    /// A write to the end of a new file is answered when it is sent; other mounts see the file when
    /// it is written
    On,
    /// Each write is answered when the server has it
    Off,
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WriteBehindArg {
    /// Whether programs go on before the server has what they write to new files; a mount that is
    /// killed may lose what is under way. Needs leases
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t = WriteBehind::On,
        env = "LANEFS_WRITE_BEHIND"
    )]
    pub(crate) write_behind: WriteBehind,
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LeasesArg {
    /// Whether the kernel caches what it reads; nothing is stale either way
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Leases::On, env = "LANEFS_LEASES")]
    pub(crate) leases: Leases,
}
