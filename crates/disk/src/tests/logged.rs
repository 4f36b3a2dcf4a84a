//! What is redone of the bytes that the log has.
use crate::{Change, ContentsChange, LoggedContents, LoggedRange, Origin, PreVersions, Record};
use alloc::vec::Vec;
use wire::{InodeNo, Pieces, Rules, ShardId, Term, Transno, Wire, Writer};

const SHARD: ShardId = ShardId::data(1);
const FILE: InodeNo = InodeNo(7);

fn logged(ranges: &[(u64, &[u8])]) -> ContentsChange {
    let range = |(object_offset, bytes): &(u64, &[u8])| LoggedRange {
        object_offset: *object_offset,
        bytes: bytes.to_vec(),
    };
    ContentsChange::Logged { inode: FILE, ranges: ranges.iter().map(range).collect() }
}

fn write() -> ContentsChange {
    let (object_offset, write_bytes, crc32c, write_time_ns) = (0, 1, 2, 3);
    ContentsChange::Write { inode: FILE, object_offset, write_bytes, crc32c, write_time_ns }
}

fn truncate(size_bytes: u64) -> ContentsChange {
    ContentsChange::Truncate { inode: FILE, size_bytes, write_time_ns: 3 }
}

/// What is kept behind these records, each with these changes.
fn kept(records: &[&[ContentsChange]]) -> Vec<(u64, Vec<u8>)> {
    let mut contents = LoggedContents::new(Rules::default());
    for (changes, lsn) in records.iter().zip(1..) {
        let mut encoded = Vec::new();
        for change in *changes {
            Change::Contents(change.clone()).encode(&mut Writer::new(&mut encoded));
        }
        let (transno, term, pre_versions) = (Transno(lsn), Term(1), PreVersions::new());
        let (origin, changes) = (Origin::Internal, &encoded[..]);
        let record = Record { shard: SHARD, lsn, term, transno, pre_versions, origin, changes };
        let has_bytes = encoded.windows(2).any(|pair| pair == b"xx");
        assert_eq!(crate::has_logged(&record), Ok(has_bytes));
        contents.visit(&record).unwrap();
    }
    let kept = contents.ranges(SHARD, FILE).map(|(at, bytes)| (at, bytes.to_vec()));
    let kept: Vec<_> = kept.collect();
    assert_eq!(contents.is_empty(), kept.is_empty());
    kept
}

#[test]
fn later_bytes_replace_what_they_overlap() {
    let found = kept(&[
        &[logged(&[(10, b"xx345678"), (30, b"xx")]), write()],
        &[logged(&[(12, b"xx")]), write()],
        &[logged(&[(16, b"xxab")]), write()],
    ]);
    let expected: [(u64, &[u8]); 5] =
        [(10, b"xx"), (12, b"xx"), (14, b"56"), (16, b"xxab"), (30, b"xx")];
    assert_eq!(found, expected.map(|(at, bytes)| (at, bytes.to_vec())));
}

#[test]
fn writes_whose_bytes_an_earlier_record_has_keep_them() {
    let first: &[ContentsChange] = &[logged(&[(0, b"xx")]), write()];
    assert_eq!(kept(&[first, &[logged(&[]), write()]]), [(0, b"xx".to_vec())]);
}

#[test]
fn a_change_behind_a_sync_says_that_the_object_has_all_bytes() {
    let first: &[ContentsChange] = &[logged(&[(0, b"xx")]), write()];
    let list = ContentsChange::WriteList {
        inode: FILE,
        pieces: Pieces::decode_all(&[1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).unwrap(),
        crc32c: 1,
        write_time_ns: 2,
    };
    let allocate = ContentsChange::Allocate {
        inode: FILE,
        object_offset: 0,
        range_bytes: 9,
        allocation: wire::Allocation::Punch,
        size_bytes: 10,
        write_time_ns: 2,
    };
    for change in [write(), list, allocate, ContentsChange::ObjectRemoved { inode: FILE }] {
        assert_eq!(kept(&[first, &[change]]), []);
    }
    let removed = ContentsChange::SumsRemoved { inode: FILE, from_block: 0, until_block: 9 };
    assert_eq!(kept(&[first, &[removed]]), [(0, b"xx".to_vec())]);
    let again = kept(&[first, &[write()], &[logged(&[(5, b"xx")]), write()]]);
    assert_eq!(again, [(5, b"xx".to_vec())]);
}

#[test]
fn a_truncation_cuts_what_is_behind_it() {
    let first: &[ContentsChange] = &[logged(&[(10, b"xx34"), (20, b"xx")]), write()];
    assert_eq!(kept(&[first, &[truncate(13)]]), [(10, b"xx3".to_vec())]);
    assert_eq!(kept(&[first, &[truncate(10)]]), []);
    assert_eq!(kept(&[first, &[truncate(14)], &[truncate(99)]]), [(10, b"xx34".to_vec())]);
}

#[test]
fn ranges_that_overlap_or_are_empty_do_not_decode() {
    for ranges in [&[(0, &b"xx"[..]), (1, b"y")][..], &[(0, b"")], &[(u64::MAX, b"xx")]] {
        let mut encoded = Vec::new();
        Change::Contents(logged(ranges)).encode(&mut Writer::new(&mut encoded));
        assert!(Change::decode_all(&encoded).is_err(), "{ranges:?}");
    }
}
