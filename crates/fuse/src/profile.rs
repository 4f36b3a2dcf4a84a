//! Requests by process, op code and inode, while a program asks for them (`lanefs profile`).
//!
//! Recording ends by itself at a time that each question sets anew, so that a program that was killed leaves
//! nothing behind. Invariant: the rows are bounded; what is too much is summed in one row.

use crate::abi::Opcode;
use crate::args::split;
use crate::control::SeenName;
use crate::counts::{OpCounts, name_of};
use crate::lane::MountLane;
use crate::names::Known;
use crate::pending::PendingRequest;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use hashbrown::HashMap;
use interface::{Mono, Seed};
use wire::InodeNo;
use wire::counters::{By, Label, OTHERS, Snapshot};

/// The most rows between two questions.
const ROW_COUNT_MAX: usize = 2_048;

/// Which requests are one row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    pid: u32,
    opcode: u32,
    inode: InodeNo,
}

/// A recording.
#[derive(Debug)]
pub(crate) struct Profile {
    until: Mono,
    rows: HashMap<Key, OpCounts, Seed>,
    others: OpCounts,
}

impl Profile {
    pub(crate) fn new(until: Mono) -> Self {
        Self { until, rows: HashMap::default(), others: OpCounts::default() }
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self, now: Mono) -> bool {
        self.until <= now
    }

    /// Counts a request that was just answered.
    pub(crate) fn of(&mut self, pending: &PendingRequest) -> &mut OpCounts {
        let header = split(&pending.request).map(|(header, _)| header);
        let (opcode, inode) =
            header.map_or((0, InodeNo(0)), |header| (header.opcode, header.inode));
        let key = Key { pid: pending.pid, opcode, inode };
        if self.rows.len() >= ROW_COUNT_MAX && !self.rows.contains_key(&key) {
            return &mut self.others;
        }
        self.rows.entry(key).or_default()
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let rows = &mut snapshot.section_mut(By::Call).rows;
        for (Key { pid, opcode, inode }, counts) in &self.rows {
            let opcode = Opcode::from_number(*opcode);
            let labels = [
                (Label::Op, name_of(opcode).to_string()),
                (Label::Pid, pid.to_string()),
                (Label::Inode, inode.0.to_string()),
            ];
            rows.push(counts.row(labels.into(), opcode));
        }
        if self.others != OpCounts::default() {
            let labels = [Label::Op, Label::Pid, Label::Inode];
            let labels = labels.map(|label| (label, String::from(OTHERS)));
            rows.push(self.others.row(labels.into(), None));
        }
        snapshot
    }
}

impl MountLane {
    /// Records until `record_ms` from now. Returns what was recorded since the last question.
    pub(crate) fn record(&mut self, now: Mono, record_ms: u32) -> Snapshot {
        let recorded = self.profile.take().map(|profile| profile.snapshot());
        if record_ms > 0 {
            self.profile = Some(Profile::new(now.after_ms(record_ms.into())));
        }
        recorded.unwrap_or_default()
    }

    /// What this lane knows of the names of inodes, and of the directories above them.
    pub(crate) fn names_of(&self, inodes: impl Iterator<Item = InodeNo>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (inode, Known { parent, name, at }) in self.names.above(inodes) {
            let name = SeenName { inode, parent: *parent, at: *at, name: name.to_vec() };
            name.encode(&mut bytes);
        }
        bytes
    }
}
