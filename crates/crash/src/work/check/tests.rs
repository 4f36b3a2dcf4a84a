//! Each kind of wrong tree is found, and a right tree has no findings.
#![allow(clippy::unwrap_used)]

use super::*;

fn state(version: u64, names: &[&str]) -> State {
    let mut state = State::new(Kind::File, 0o644);
    state.version = version;
    state.size_bytes = if version > 0 { 200 } else { 0 };
    state.names.extend(names.iter().map(|name| (*name).to_owned()));
    state
}

fn entry(op_no: u64, touch: Touch, outcome: Outcome) -> Entry {
    Entry { op_no, text: format!("op {op_no}"), touches: vec![touch], outcome }
}

/// Create, write, sync, rename, write; the last two may be lost with their client.
fn life() -> Journal {
    let item = |state| Touch::Item("c1i1".to_owned(), state);
    let entries = vec![
        entry(1, item(state(0, &["c1/a"])), Outcome::Done),
        entry(2, item(state(2, &["c1/a"])), Outcome::Done),
        entry(3, Touch::Sync("c1i1".to_owned()), Outcome::Done),
        entry(4, item(state(4, &["c1/a"])), Outcome::Done),
        entry(5, item(state(4, &["c1/b"])), Outcome::Done),
        entry(6, item(state(4, &["c1/c"])), Outcome::Unknown),
    ];
    Journal { entries, ended: false }
}

fn found(version: u64) -> Found {
    let size_bytes = if version > 0 { 200 } else { 0 };
    let contents = contents("c1i1", version, size_bytes);
    Found { kind: Kind::File, inode_no: 9, mode: 0o644, link_count: 1, contents }
}

fn judge(tree: &[(&str, Found)], loss: Loss) -> (usize, usize) {
    let tree = tree.iter().map(|(name, found)| ((*name).to_owned(), found.clone())).collect();
    let findings = check(&tree, &[(1, life(), loss)], 1);
    (findings.lost.len(), findings.doubled.len())
}

#[test]
fn the_last_acknowledged_or_requested_state_is_correct() {
    assert_eq!(judge(&[("c1/b", found(4))], Loss::None), (0, 0));
    assert_eq!(judge(&[("c1/c", found(4))], Loss::None), (0, 0));
}

#[test]
fn a_lost_acknowledged_operation_of_a_living_client_is_found() {
    assert_eq!(judge(&[("c1/a", found(4))], Loss::None), (1, 0), "the rename");
    assert_eq!(judge(&[("c1/b", found(2))], Loss::None), (1, 0), "the write");
    assert_eq!(judge(&[], Loss::None), (1, 0), "the file");
}

#[test]
fn a_killed_client_may_lose_unsynced_operations() {
    assert_eq!(judge(&[("c1/a", found(4))], Loss::Killed), (0, 0));
    assert_eq!(judge(&[("c1/a", found(2))], Loss::Killed), (0, 0));
    assert_eq!(judge(&[("c1/a", found(0))], Loss::Killed), (1, 0), "the synced contents");
    assert_eq!(judge(&[], Loss::Killed), (1, 0), "the synced name");
}

#[test]
fn a_double_name_an_unrequested_name_and_foreign_bytes_are_found() {
    assert_eq!(judge(&[("c1/a", found(4)), ("c1/b", found(4))], Loss::None), (0, 1), "half");
    let stray = [("c1/b", found(4)), ("c1/x", found(4))];
    assert_eq!(judge(&stray, Loss::None), (0, 1), "a name nobody gave");
    let mut torn = found(4);
    torn.contents[70] = b'?';
    assert_eq!(judge(&[("c1/b", torn)], Loss::None), (1, 0));
    let mut linked = found(4);
    linked.link_count = 2;
    assert_eq!(judge(&[("c1/b", linked)], Loss::None), (0, 1), "one link too many");
}

fn log_judged(text: &str) -> (usize, usize) {
    let append = |op_no: u64, outcome| {
        entry(op_no, Touch::Append("s1/log".to_owned(), format!("c1 {op_no}")), outcome)
    };
    let entries =
        vec![append(1, Outcome::Done), append(2, Outcome::Done), append(3, Outcome::Unknown)];
    let contents = text.as_bytes().to_vec();
    let log = Found { kind: Kind::File, inode_no: 3, mode: 0o644, link_count: 1, contents };
    let tree = BTreeMap::from([("s1/log".to_owned(), log)]);
    let findings = check(&tree, &[(1, Journal { entries, ended: true }, Loss::None)], 1);
    (findings.lost.len(), findings.doubled.len())
}

#[test]
fn appended_records_are_counted() {
    assert_eq!(log_judged("c1 1\nc1 2\n"), (0, 0));
    assert_eq!(log_judged("c1 1\nc1 2\nc1 3\n"), (0, 0));
    assert_eq!(log_judged("c1 2\n"), (1, 0), "one is lost");
    assert_eq!(log_judged("c1 1\nc1 2\nc1 2\n"), (0, 1), "one is there twice");
    assert_eq!(log_judged("c1 2\nc1 1\n"), (0, 1), "out of order");
    assert_eq!(log_judged("c1 1\nc1 2\nc1"), (0, 2), "torn");
}
