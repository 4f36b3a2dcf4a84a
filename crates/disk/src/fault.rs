//! `Fault`: wrong bytes on the medium, with their location, so that no debugger is needed.

use alloc::string::String;
use core::fmt;

/// Bytes on the medium are not what was written. The reaction is to fence and to repair, never to
/// continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// A description.
    pub what: &'static str,
    /// The file or device; empty until a caller that knows it sets it ([`Fault::on`]).
    pub device: String,
    /// Byte offset in it.
    pub offset: u64,
    /// The expected number, where there is one.
    pub expected: u64,
    /// The number found.
    pub found: u64,
}

impl Fault {
    /// A fault at a byte offset.
    #[must_use]
    pub const fn new(what: &'static str, offset: u64) -> Self {
        Self { what, device: String::new(), offset, expected: 0, found: 0 }
    }

    /// Sets both numbers.
    #[must_use]
    pub fn numbers(mut self, expected: impl Into<u64>, found: impl Into<u64>) -> Self {
        self.expected = expected.into();
        self.found = found.into();
        self
    }

    /// Sets the file or device.
    #[must_use]
    pub fn on(mut self, device: &str) -> Self {
        self.device = String::from(device);
        self
    }

    /// Converts a fault in a piece of a file that begins at `start` of it, unless it already names
    /// another file.
    #[must_use]
    pub fn in_file(self, device: &str, start: u64) -> Self {
        if self.device.is_empty() { self.behind(start).on(device) } else { self }
    }

    /// Shifts the offset of a fault in a piece that begins at `start`.
    #[must_use]
    pub const fn behind(mut self, start: u64) -> Self {
        self.offset = self.offset.saturating_add(start);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.device.is_empty() {
            write!(f, "{}: ", self.device)?;
        }
        write!(f, "{} at byte {}", self.what, self.offset)?;
        if self.expected != self.found {
            write!(f, " (expected {}, found {})", self.expected, self.found)?;
        }
        Ok(())
    }
}

impl core::error::Error for Fault {}
