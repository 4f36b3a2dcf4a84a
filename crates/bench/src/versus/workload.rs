//! A row: what it is called, what it needs, what it does, and what a round of it came to.

use super::place::Place;
use anyhow::Result;
use std::time::Duration;

/// The benchmark's name.
pub(super) const NAME: &str = "versus";

/// A row of the table.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Programs that it starts.
    pub(super) programs: &'static [&'static str],
    /// It needs a second mount of the file system.
    pub(super) with_peer: bool,
    /// One round, by its number.
    pub(super) run: fn(&Place<'_>, usize) -> Result<Sample>,
}

impl Workload {
    /// Without programs and peer.
    pub(super) const fn calls(
        name: &'static str,
        run: fn(&Place<'_>, usize) -> Result<Sample>,
    ) -> Self {
        Self { name, programs: &[], with_peer: false, run }
    }

    /// Of programs.
    pub(super) const fn programs(
        name: &'static str,
        programs: &'static [&'static str],
        run: fn(&Place<'_>, usize) -> Result<Sample>,
    ) -> Self {
        Self { name, programs, with_peer: false, run }
    }

    /// At two mounts.
    pub(super) const fn shared(
        name: &'static str,
        run: fn(&Place<'_>, usize) -> Result<Sample>,
    ) -> Self {
        Self { name, programs: &[], with_peer: true, run }
    }
}

/// A round of a row, verified.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) elapsed: Duration,
    pub(super) op_count: u64,
    /// What an operation is, in the plural.
    pub(super) unit: &'static str,
    /// Names that were made, removed or listed.
    pub(super) name_count: Option<u64>,
    /// Bytes of contents that were moved and compared.
    pub(super) byte_count: Option<u64>,
    /// What must not happen, and how often it did.
    pub(super) anomalies: Vec<(&'static str, u64)>,
    pub(super) note: Option<&'static str>,
}

impl Sample {
    pub(super) const fn new(elapsed: Duration, op_count: u64, unit: &'static str) -> Self {
        let (name_count, byte_count, note) = (None, None, None);
        Self { elapsed, op_count, unit, name_count, byte_count, anomalies: Vec::new(), note }
    }

    pub(super) const fn names(mut self, count: u64) -> Self {
        self.name_count = Some(count);
        self
    }

    pub(super) const fn bytes(mut self, count: u64) -> Self {
        self.byte_count = Some(count);
        self
    }

    pub(super) const fn note(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}
