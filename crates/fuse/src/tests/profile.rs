//! Recording which process asks for what, and the names of inodes.

use super::harness::{Harness, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::Opcode;
use crate::control::SeenName;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use wire::counters::{By, Label, Metric, OTHERS, Row, Snapshot};
use wire::{Entry, FileKind, InodeNo, Question, Renamed, Status, Wire as _};

impl Harness {
    fn recorded(&mut self, record_ms: u32) -> Vec<Row> {
        let answer = self.asked(Question::Record { record_ms }.encode());
        Snapshot::decode(&answer).unwrap().rows(By::Call).to_vec()
    }

    fn names_of(&mut self, inodes: &[InodeNo]) -> Vec<(InodeNo, InodeNo, Vec<u8>)> {
        let answer = self.asked(Question::Names { inodes: inodes.to_vec() }.encode());
        let names = SeenName::decode_all(&answer).unwrap().into_iter();
        names.map(|seen| (seen.inode, seen.parent, seen.name)).collect()
    }

    /// A request with this answer.
    fn answered(&mut self, opcode: Opcode, node: InodeNo, args: &[u8], answer: &[u8]) {
        self.kernel_request(opcode, 7, node, args);
        let received = self.take();
        self.now_ms += 2;
        self.answer(&received, answer);
        assert_eq!(self.reply().status, Status::Ok);
    }
}

fn entry(inode: InodeNo, kind: FileKind) -> Vec<u8> {
    Entry { attr: attr(inode, kind) }.to_bytes()
}

#[test]
fn requests_are_recorded_by_process_and_inode_while_that_is_wanted() {
    let mut harness = Harness::new();
    let file = entry(FILE, FileKind::File);
    harness.answered(Opcode::Getattr, FILE, &[], &file);
    assert!(harness.recorded(1_000).is_empty(), "nobody has asked before");
    harness.answered(Opcode::Getattr, FILE, &[], &file);
    harness.answered(Opcode::Getattr, FILE, &[], &file);
    let rows = harness.recorded(1_000);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let labels = [Label::Op, Label::Pid, Label::Inode].map(|label| row.label(label).unwrap());
    assert_eq!(labels, ["getattr", "4242", &FILE.0.to_string()]);
    let numbers = [Metric::Requests, Metric::RequestTime].map(|metric| row.number(metric));
    assert_eq!(numbers, [Some(2), Some(4_000)]);
    assert_eq!(row.histogram(Metric::ReplyTime).unwrap().count(), 2);
    // What was answered is not answered again, and the last question ends it.
    assert!(harness.recorded(0).is_empty());
    harness.answered(Opcode::Getattr, FILE, &[], &file);
    assert!(harness.recorded(1_000).is_empty());
    // A program that was killed asks no more.
    harness.now_ms += 1_000;
    harness.answered(Opcode::Getattr, FILE, &[], &file);
    assert!(harness.lane.profile.is_none());
}

#[test]
fn what_is_too_much_is_recorded_as_one() {
    let mut harness = Harness::new();
    assert!(harness.recorded(60_000).is_empty());
    for unique in 1..=3_000_u32 {
        // Of an op code that there is not: answered at once.
        let bytes = request(4_000, unique.into(), InodeNo(unique.into()), &[]);
        harness.kernel_bytes(Some(unique), bytes, None);
    }
    let rows = harness.recorded(0);
    assert!(rows.len() < 3_000, "{}", rows.len());
    let count = |row: &Row| row.number(Metric::Requests).unwrap();
    assert_eq!(rows.iter().map(count).sum::<u64>(), 3_000);
    let others = rows.iter().find(|row| row.label(Label::Inode) == Some(OTHERS)).unwrap();
    assert_eq!(usize::try_from(count(others)).unwrap(), 3_000 - (rows.len() - 1));
}

#[test]
fn names_are_those_of_lookups_creations_and_renames() {
    let mut harness = Harness::new();
    let other = InodeNo((1 << 48) | 9);
    let directory = entry(DIRECTORY, FileKind::Directory);
    harness.answered(Opcode::Lookup, InodeNo::ROOT, b"d\0", &directory);
    let mkdir = [u32s(&[0o755, 0o022]), b"e\0".to_vec()].concat();
    let made = entry(other, FileKind::Directory);
    harness.answered(Opcode::Mkdir, DIRECTORY, &mkdir, &made);
    harness.answered(Opcode::Lookup, other, b"f\0", &entry(FILE, FileKind::File));
    let named = |inode, parent, name: &[u8]| (inode, parent, name.to_vec());
    let mut expected = [
        named(DIRECTORY, InodeNo::ROOT, b"d"),
        named(other, DIRECTORY, b"e"),
        named(FILE, other, b"f"),
    ];
    assert_eq!(harness.names_of(&[FILE]), expected);
    let rename = [u64s(&[InodeNo::ROOT.0]), b"e\0new\0".to_vec()].concat();
    let renamed = Renamed { moved: Some(other), exchanged: None }.to_bytes();
    harness.answered(Opcode::Rename, DIRECTORY, &rename, &renamed);
    expected = [
        named(DIRECTORY, InodeNo::ROOT, b"d"),
        named(other, InodeNo::ROOT, b"new"),
        named(FILE, other, b"f"),
    ];
    assert_eq!(harness.names_of(&[FILE, DIRECTORY, InodeNo(77)]), expected);
    assert_eq!(harness.names_of(&[]), []);
}
