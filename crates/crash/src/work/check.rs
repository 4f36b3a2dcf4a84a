//! Checks a tree against the clients' journals.
//!
//! ```text
//! of one item:   state 0 ── op ─▶ state 1 ── op ─▶ state 2 ── op ─▶ state 3
//!                (absent)                  ▲ the last one that must be there     ▲ the last one requested
//! ```
//! The state that must be there is the last acknowledged one if the client lives, and the last
//! synced one if it was killed. Names and contents belong to two shards and are judged separately;
//! each must be one of the states from there on, whole. Anything else is a double or partial
//! effect.

use super::SHARED_DIRS;
use super::item::{Kind, State, contents, target};
use super::journal::{Entry, Journal, Outcome, Touch};
use super::walk::{Found, Tree};
use super::{SHARED_LOG, own_dir};
use std::collections::{BTreeMap, BTreeSet};

/// The fate of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// It lived: all its acknowledged operations must be there.
    None,
    /// It was killed: its synced operations must be there.
    Killed,
}

/// The findings, and how much was checked.
#[derive(Clone, Default, Debug)]
pub(crate) struct Findings {
    /// Operations requested.
    pub(crate) op_count: usize,
    /// Operations that succeeded.
    pub(crate) done_count: usize,
    /// Acknowledged and lost.
    pub(crate) lost: Vec<String>,
    /// Done twice or in part, or without a request.
    pub(crate) doubled: Vec<String>,
    /// Refused, although each operation is chosen so that it succeeds.
    pub(crate) refused: Vec<String>,
}

impl Findings {
    /// Whether nothing is wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.refused.is_empty()
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} operations, {} acknowledged: {} lost, {} double or half, {} refused",
            self.op_count,
            self.done_count,
            self.lost.len(),
            self.doubled.len(),
            self.refused.len()
        )
    }

    /// All findings as text.
    pub(crate) fn details(&self) -> String {
        let lists = [("LOST", &self.lost), ("DOUBLE", &self.doubled), ("REFUSED", &self.refused)];
        let mut text = self.summary();
        for (word, list) in lists {
            for line in list.iter().take(20) {
                text += &format!("\n  {word} {line}");
            }
        }
        text
    }
}

/// The states of an item.
struct ItemHistory {
    /// The first is its absence.
    states: Vec<(String, State)>,
    /// Index of the last state that must be there.
    must_index: usize,
    /// Index of the last acknowledged state.
    done_index: usize,
}

/// A requested append.
struct Record {
    must: bool,
    order: (u64, u64),
}

#[derive(Default)]
struct Expected {
    lives: BTreeMap<String, ItemHistory>,
    logs: BTreeMap<String, BTreeMap<String, Record>>,
    /// Names that more than one item had.
    shared_names: BTreeSet<String>,
    /// Names that no operation made.
    preexisting: BTreeSet<String>,
}

/// Checks the tree against the journals, each with its client's number and fate. The tree was
/// prepared for `client_count_max` clients.
pub(crate) fn check(
    tree: &Tree,
    journals: &[(u64, Journal, Loss)],
    client_count_max: u64,
) -> Findings {
    let mut findings = Findings::default();
    let mut expected = Expected::default();
    expected.preexisting.extend(SHARED_DIRS.iter().map(|dir| (*dir).to_owned()));
    expected.preexisting.insert(SHARED_LOG.to_owned());
    expected.preexisting.extend((1..=client_count_max).map(own_dir));
    for (client, journal, loss) in journals {
        findings.op_count += journal.entries.len();
        findings.done_count += journal.done_count();
        for entry in &journal.entries {
            if let Outcome::Refused(error) = &entry.outcome {
                let line = format!("client {client}, {} {}: {error}", entry.op_no, entry.text);
                findings.refused.push(line);
            }
            expected.take(*client, entry, *loss);
        }
    }
    expected.find_shared_names();
    let mut explained = expected.preexisting.clone();
    for (item, life) in &expected.lives {
        life.check(item, (tree, &expected.shared_names), &mut explained, &mut findings);
    }
    for (path, records) in &expected.logs {
        explained.insert(path.clone());
        check_log(path, tree.get(path), records, &mut findings);
    }
    for path in tree.keys().filter(|path| !explained.contains(*path)) {
        findings.doubled.push(format!("{path} is there, and should not be"));
    }
    findings
}

impl Expected {
    fn take(&mut self, client: u64, entry: &Entry, loss: Loss) {
        let done = entry.outcome == Outcome::Done;
        for touch in &entry.touches {
            match touch {
                Touch::Item(item, state) => {
                    let life = self.lives.entry(item.clone()).or_insert_with(|| ItemHistory {
                        states: vec![(String::new(), State::new(state.kind, state.mode))],
                        must_index: 0,
                        done_index: 0,
                    });
                    life.states.push((format!("{} {}", entry.op_no, entry.text), state.clone()));
                    if done {
                        life.done_index = life.states.len() - 1;
                    }
                    if done && loss == Loss::None {
                        life.must_index = life.done_index;
                    }
                }
                Touch::Sync(item) if done => {
                    if let Some(life) = self.lives.get_mut(item) {
                        life.must_index = life.done_index;
                    }
                }
                Touch::Append(path, record) => {
                    let must = done && loss == Loss::None;
                    let record_of = Record { must, order: (client, entry.op_no) };
                    self.logs.entry(path.clone()).or_default().insert(record.clone(), record_of);
                }
                Touch::SyncLog(path) if done => {
                    let records = self.logs.entry(path.clone()).or_default();
                    let own = records.values_mut().filter(|record| record.order.0 == client);
                    own.for_each(|record| record.must = true);
                }
                Touch::Sync(_) | Touch::SyncLog(_) => {}
            }
        }
    }

    fn find_shared_names(&mut self) {
        let mut owner: BTreeMap<&str, &str> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for (item, life) in &self.lives {
            for name in life.all_names() {
                if owner.insert(name, item).is_some_and(|other| other != item) {
                    shared.insert(name.to_owned());
                }
            }
        }
        self.shared_names = shared;
    }
}

impl ItemHistory {
    fn all_names(&self) -> BTreeSet<&str> {
        self.states.iter().flat_map(|(_, state)| state.names.iter().map(String::as_str)).collect()
    }

    fn check(
        &self,
        item: &str,
        (tree, shared_names): (&Tree, &BTreeSet<String>),
        explained: &mut BTreeSet<String>,
        findings: &mut Findings,
    ) {
        let fits = |(_, state): &(String, State), strictly: bool| {
            self.all_names().into_iter().all(|name| {
                let has = state.names.contains(name);
                match tree.get(name).map(|found| owner_of(found, state.kind, item)) {
                    None | Some(Owner::Other) => !has,
                    Some(Owner::This) => has,
                    Some(Owner::Unknown) => has || (!strictly && shared_names.contains(name)),
                }
            })
        };
        let from = self.must_index;
        let last = |strictly| self.states[from..].iter().rposition(|state| fits(state, strictly));
        // An ambiguous file is this item's, if that explains it.
        let fitting = last(true).or_else(|| last(false)).map(|index| from + index);
        let Some(index) = fitting else {
            let (text, state) = &self.states[self.done_index];
            let line = format!("{item}: not as after `{text}` ({state}), nor as later");
            let earlier = self.states[..from].iter().any(|state| fits(state, false));
            if earlier { &mut findings.lost } else { &mut findings.doubled }.push(line);
            // A finding is reported once.
            explained.extend(self.all_names().into_iter().map(ToOwned::to_owned));
            return;
        };
        let names = &self.states[index].1.names;
        explained.extend(names.iter().cloned());
        let founds: Vec<&Found> = names.iter().filter_map(|name| tree.get(name)).collect();
        let Some(first) = founds.first() else { return };
        let one_inode = founds.iter().all(|found| found.inode_no == first.inode_no);
        let counted = first.link_count as usize == founds.len() || first.kind == Kind::Dir;
        if !one_inode || !counted {
            findings.doubled.push(format!("{item}: {names:?} are not {} links", founds.len()));
        }
        self.check_contents(item, first, findings);
    }

    /// Mode and bytes must each match one of the allowed states.
    fn check_contents(&self, item: &str, found: &Found, findings: &mut Findings) {
        let (text, must) = &self.states[self.must_index];
        let window = &self.states[self.must_index..];
        if !window.iter().any(|(_, state)| state.mode == found.mode) {
            let line = format!("{item}: mode {:o}, not as after `{text}` ({must})", found.mode);
            findings.lost.push(line);
        }
        if found.kind == Kind::File && !is_mixture(item, window, &found.contents) {
            let bytes = found.contents.len();
            findings.lost.push(format!("{item}: {bytes} bytes, not as after `{text}` ({must})"));
        }
    }
}

/// Whether each byte is of one of these states. A byte behind the end of the first may be zero.
fn is_mixture(item: &str, window: &[(String, State)], bytes: &[u8]) -> bool {
    let mut versions: Vec<Vec<u8>> = Vec::new();
    let (mut version_last, mut bytes_min, mut bytes_max) = (None, usize::MAX, 0);
    for (_, state) in window {
        bytes_min = bytes_min.min(state.size_bytes);
        bytes_max = bytes_max.max(state.size_bytes);
        if version_last != Some(state.version) {
            versions.push(contents(item, state.version, state.size_bytes));
            version_last = Some(state.version);
        }
    }
    let sized = bytes.len() >= bytes_min && bytes.len() <= bytes_max;
    sized
        && bytes.iter().enumerate().all(|(index, byte)| {
            (*byte == 0 && index >= bytes_min)
                || versions.iter().any(|version| version.get(index) == Some(byte))
        })
}

/// The owner of contents.
enum Owner {
    This,
    Other,
    Unknown,
}

fn owner_of(found: &Found, kind: Kind, item: &str) -> Owner {
    if found.kind != kind {
        return Owner::Other;
    }
    let says = |own: String| {
        if found.contents.starts_with(own.as_bytes()) { Owner::This } else { Owner::Other }
    };
    match kind {
        Kind::Symlink => says(target(item)),
        Kind::File if found.contents.iter().any(|byte| *byte != 0) => {
            // Zeros in front: an unanswered write left a hole.
            if found.contents[0] == 0 { Owner::Unknown } else { says(format!("{item} ")) }
        }
        Kind::File => Owner::Unknown,
        Kind::Dir => Owner::Unknown,
    }
}

/// Every record that must be there is there once; none is torn; a client's records are in order.
fn check_log(
    path: &str,
    found: Option<&Found>,
    records: &BTreeMap<String, Record>,
    findings: &mut Findings,
) {
    let text = found.map(|found| String::from_utf8_lossy(&found.contents).into_owned());
    let text = text.unwrap_or_default();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    if !text.is_empty() && !text.ends_with('\n') {
        findings.doubled.push(format!("{path}: the last record is torn"));
    }
    for line in text.lines() {
        let Some(record) = records.get(line) else {
            findings.doubled.push(format!("{path}: nobody appended {line:?}"));
            continue;
        };
        *seen.entry(line).or_default() += 1;
        let (client, op_no) = record.order;
        if last.insert(client, op_no).is_some_and(|before| before > op_no) {
            findings.doubled.push(format!("{path}: {line:?} stands behind a later one"));
        }
    }
    for (record, seen_count) in seen.iter().filter(|(_, seen_count)| **seen_count > 1) {
        findings.doubled.push(format!("{path}: {record:?} is there {seen_count} times"));
    }
    for (record, _) in records.iter().filter(|(_, record)| record.must) {
        if !seen.contains_key(record.as_str()) {
            findings.lost.push(format!("{path}: {record:?} is missing"));
        }
    }
}

#[cfg(test)]
mod tests;
