//! The files of the clients: one for all, or one for each.

use crate::load::Pieces;
use crate::server::Home;

pub(super) const PIECE_BYTES: u32 = 4096;
/// A client's part of the one file, or all of its own.
const REGION_BYTES: u64 = 4 << 20;

pub(super) fn region(home: &Home) -> Pieces {
    Pieces { file_bytes: home.options.file_bytes(REGION_BYTES), piece_bytes: PIECE_BYTES }
}

/// The files of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Files {
    Separate,
    Shared,
}

impl Files {
    pub(super) const BOTH: [Self; 2] = [Self::Separate, Self::Shared];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::Shared => "shared",
        }
    }
}
