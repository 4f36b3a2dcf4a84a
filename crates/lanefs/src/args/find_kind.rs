//! The kinds of files that `lanefs find` knows.

use clap::ValueEnum;

/// The values of `find --type`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FindKind {
    /// Regular file
    F,
    /// Directory
    D,
    /// Symbolic link
    L,
    /// Fifo
    P,
    /// Socket
    S,
    /// Character device
    C,
    /// Block device
    B,
}
