//! `Damage`: what is wrong with a table's file, inside an [`io::Error`].

use std::io;

/// Bytes of the file differ from those written.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("{what} at byte {offset}")]
pub struct Damage {
    /// A description.
    pub what: &'static str,
    /// Byte offset in the file; 0 when it is about the whole file or a row.
    pub offset: u64,
    /// The first byte of the key of a row with a wrong checksum.
    pub table: Option<u8>,
    /// The expected number, if any.
    pub expected: u64,
    /// The number in the file.
    pub found: u64,
}

impl Damage {
    pub(crate) const fn file(what: &'static str, offset: u64) -> Self {
        Self { what, offset, table: None, expected: 0, found: 0 }
    }

    pub(crate) const fn page(what: &'static str, page_no: u64) -> Self {
        Self::file(what, page_no.saturating_mul(4096))
    }

    pub(crate) const fn row(table: u8, expected: u32, found: u32) -> Self {
        let what = "the checksum of a row does not fit";
        Self { what, offset: 0, table: Some(table), expected: expected as u64, found: found as u64 }
    }

    pub(crate) const fn numbers(mut self, expected: u64, found: u64) -> Self {
        self.expected = expected;
        self.found = found;
        self
    }

    /// The damage in an error, if any.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Damage> for io::Error {
    fn from(damage: Damage) -> Self {
        Self::new(io::ErrorKind::InvalidData, damage)
    }
}
