//! What was recorded, by process and path.

use crate::paths::Paths;
use crate::processes::Processes;
use library::counters::{Label, Metric, Row};
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests of one operation, process and inode.
pub(super) struct Call {
    /// The thread that made them; `None`: of several.
    pub(super) thread_id: Option<u32>,
    /// `None`: of several.
    pub(super) inode: Option<u64>,
    pub(super) row: Row,
}

/// What was recorded.
pub(super) struct Recorded {
    pub(super) calls: Vec<Call>,
    pub(super) processes: Processes,
    pub(super) paths: Paths,
    pub(super) elapsed: Duration,
}

/// What a process did below a path.
pub(super) struct Use {
    pub(super) pid: Option<u32>,
    pub(super) command: String,
    pub(super) path: String,
    /// All operations together.
    pub(super) all: Row,
    /// Each of them, by name.
    pub(super) ops: BTreeMap<String, Row>,
}

impl Call {
    /// Of a row of the mount.
    pub(super) fn of(row: &Row) -> Self {
        Self {
            thread_id: number(row, Label::Pid),
            inode: row.label(Label::Inode).and_then(|text| text.parse().ok()),
            row: row.clone(),
        }
    }
}

/// The number in a label.
pub(super) fn number(row: &Row, label: Label) -> Option<u32> {
    row.label(label)?.parse().ok()
}

impl Recorded {
    /// By process and path prefix of so many names; those that took most time first.
    pub(super) fn uses(&self, depth: usize) -> Vec<Use> {
        let mut uses: BTreeMap<(Option<u32>, String), Use> = BTreeMap::new();
        for Call { thread_id, inode, row } in &self.calls {
            let (pid, command) = self.processes.of(*thread_id);
            let path = inode
                .map_or_else(|| "(others)".to_owned(), |inode| self.paths.prefix(inode, depth));
            let used = uses.entry((pid, path.clone())).or_insert_with(|| {
                let (all, ops) = (Row::default(), BTreeMap::new());
                Use { pid, command, path, all, ops }
            });
            used.all.merge(row);
            let op = row.label(Label::Op).unwrap_or_default().to_owned();
            used.ops.entry(op).or_default().merge(row);
        }
        let mut uses: Vec<Use> = uses.into_values().collect();
        let weight = |it: &Use| {
            let [time, count] =
                [Metric::RequestTime, Metric::Requests].map(|metric| it.all.number(metric));
            std::cmp::Reverse((time, count))
        };
        uses.sort_by_key(weight);
        uses
    }

    /// Requests that the mount had no space to tell apart.
    pub(super) fn lumped_count(&self) -> u64 {
        let lumped = self.calls.iter().filter(|call| call.inode.is_none());
        lumped.filter_map(|call| call.row.number(Metric::Requests)).sum()
    }
}
