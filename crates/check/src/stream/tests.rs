//! Frames and what becomes of them: every frame comes back as it was, what is no frame is refused, and a folder is whole
//! only when its stream was.
#![allow(clippy::unwrap_used)]

use super::{Folder, Frame, Malformed, ObjectHead, PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX, Source};
use crate::backup::Backup;
use crate::backup_error::BackupError;
use crate::line::Line;
use crate::lines::LineWriter;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use store::ObjectName;
use wire::InodeNo;

const NAME: ObjectName =
    ObjectName { shard_index: 0x0102, inode: InodeNo(0x0304_0506_0708), stripe_index: 9 };
const OBJECT: ObjectHead =
    ObjectHead { name: NAME, mtime_secs: -2, mtime_nanos: 5, object_bytes: 10 };

fn all() -> Vec<(&'static str, Frame<'static>)> {
    vec![
        ("output", Frame::Output(b"out")),
        ("line", Frame::Line("line")),
        ("pass", Frame::Pass("names")),
        ("looked", Frame::Looked(0x0102_0304)),
        ("freeze", Frame::Freeze),
        ("thaw", Frame::Thaw),
        ("round", Frame::Round),
        ("same", Frame::Same(NAME)),
        ("object", Frame::Object(OBJECT)),
        ("data", Frame::Data { object_offset: 1 << 40, bytes: b"bytes" }),
        ("whole", Frame::Whole),
        ("removed", Frame::Removed),
        ("metadata", Frame::Metadata(b"{}")),
        ("end", Frame::End { code: 8, line: "why" }),
        ("unread", Frame::Unread(NAME)),
    ]
}

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

#[test]
fn frames_are_as_they_were() {
    // A line that differs is another stream: docs/formats.md changes with it.
    let golden = include_str!("golden.txt");
    let mut found = String::new();
    for (name, frame) in all() {
        let bytes = bytes_of(&frame);
        found.push_str(&format!("{name} {}\n", hex::encode(&bytes)));
        assert_eq!(Frame::decode(&bytes), Ok(Some((frame, bytes.len()))));
        for length in 0..bytes.len() {
            assert_eq!(Frame::decode(&bytes[..length]), Ok(None), "{name} is not all there");
        }
    }
    assert_eq!(found, golden);
}

#[test]
fn what_is_no_frame_is_refused() {
    for bytes in [
        vec![0, 0, 0, 0, 0],
        vec![17, 0, 0, 0, 0],
        vec![16, 1, 0, 0, 0, 0],
        vec![5, 1, 0, 0, 0, 0],
        vec![8, 1, 0, 0, 0, 0],
        vec![2, 1, 0, 0, 0, 0xff],
        vec![15, 0, 0, 0, 0],
        vec![10, 0, 0, 0, 0],
        [&[1_u8][..], &u32::try_from(PAYLOAD_BYTES_MAX + 1).unwrap().to_le_bytes()].concat(),
    ] {
        assert_eq!(Frame::decode(&bytes), Err(Malformed), "{bytes:?}");
    }
}

#[test]
fn random_bytes_are_decoded_without_harm() {
    let mut state = 7_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let fixture = tempfile::tempdir().unwrap();
    let mut folder = Folder::begin(&fixture.path().join("backup")).unwrap();
    for _ in 0..3000 {
        let mut bytes = bytes_of(&all()[usize::try_from(next() % 15).unwrap()].1);
        for _ in 0..next() % 3 {
            let at = usize::try_from(next()).unwrap_or(0) % bytes.len();
            bytes[at] = next().to_le_bytes()[0];
        }
        // What is long stays within the length that its file was given.
        if let Ok(Some((frame, taken))) = Frame::decode(&bytes) {
            assert!(taken <= bytes.len());
            drop(folder.take(&frame));
        }
    }
    let inside = fs::read_dir(fixture.path()).unwrap().count();
    assert_eq!(inside, 1, "nothing is written beside the folder");
}

#[test]
fn a_long_line_is_cut_where_a_character_ends() {
    let line = "é".repeat(PIECE_BYTES_MAX);
    let bytes = bytes_of(&Frame::Line(&line));
    let (frame, _) = Frame::decode(&bytes).unwrap().unwrap();
    assert_eq!(frame, Frame::Line(&line[..PIECE_BYTES_MAX]));
}

/// A dump of these lines.
fn dump_of(lines: &[Line]) -> Vec<u8> {
    let mut written = LineWriter::new(Vec::new());
    lines.iter().for_each(|line| written.put(line).unwrap());
    written.end().unwrap().1
}

/// Objects: one with a hole and the first of the same file.
fn objects(dir: &Path) -> ObjectName {
    let other = ObjectName { stripe_index: 0, ..NAME };
    for name in [NAME, other] {
        fs::create_dir_all(dir.join(name.path()).parent().unwrap()).unwrap();
    }
    let file = File::create(dir.join(NAME.path())).unwrap();
    file.write_all_at(&[7; 200_000], 1 << 30).unwrap();
    file.set_len((1 << 30) + 300_000).unwrap();
    fs::write(dir.join(other.path()), b"first").unwrap();
    other
}

fn send(source: &mut Source, folder: &mut Folder) -> crate::Round {
    let mut failed = None;
    let mut take = |frame: &Frame<'_>| {
        let bytes = bytes_of(frame);
        let (frame, _) = Frame::decode(&bytes).unwrap().unwrap();
        failed = failed.take().or(folder.take(&frame).err());
        Ok(())
    };
    let round = source.round(&mut take, || false).unwrap();
    assert!(failed.is_none(), "{failed:?}");
    round
}

#[test]
fn objects_are_received_as_they_are_and_removed_ones_are_removed() {
    let fixture = tempfile::tempdir().unwrap();
    let (from, to) = (fixture.path().join("objects"), fixture.path().join("backup"));
    let other = objects(&from);
    let (mut source, mut folder) = (Source::new(from.clone()), Folder::begin(&to).unwrap());
    let round = send(&mut source, &mut folder);
    assert_eq!(round.copied_count, 2);
    // A hole ends where a block does.
    assert!((200_005..1 << 20).contains(&round.copied_bytes), "{}", round.copied_bytes);
    let copies = to.join("objects");
    let meta = |dir: &Path, name: ObjectName| fs::metadata(dir.join(name.path())).unwrap();
    use std::os::unix::fs::MetadataExt as _;
    let (here, there) = (meta(&from, NAME), meta(&copies, NAME));
    assert_eq!(here.len(), there.len());
    assert_eq!((here.mtime(), here.mtime_nsec()), (there.mtime(), there.mtime_nsec()));
    assert!(there.blocks() * 512 < 1 << 20, "a hole stays one");
    let mut piece = [0; 200_001];
    File::open(copies.join(NAME.path())).unwrap().read_exact_at(&mut piece, 1 << 30).unwrap();
    assert!(piece[..200_000].iter().all(|byte| *byte == 7) && piece[200_000] == 0);
    // The second one becomes another, the first one goes.
    fs::remove_file(from.join(NAME.path())).unwrap();
    fs::write(from.join(other.path()), b"later").unwrap();
    send(&mut source, &mut folder);
    let dump = dump_of(&[Line::Nameless { inode: 7 }]);
    folder.take(&Frame::Metadata(&dump)).unwrap();
    assert!(matches!(Backup::parts(&to), Err(BackupError::Unfinished(_))));
    let finished = folder.finish().unwrap();
    assert_eq!((finished.line_count, finished.damages.count()), (1, 0));
    assert!(!copies.join(NAME.path()).exists());
    assert_eq!(fs::read(copies.join(other.path())).unwrap(), b"later");
    let (metadata, _) = Backup::parts(&to).unwrap();
    assert_eq!(fs::read(metadata).unwrap(), dump);
    let left = fs::read_dir(&to).unwrap().count();
    assert_eq!(left, 2, "nothing but the metadata and the objects");
}

#[test]
fn an_object_that_the_disk_does_not_give_is_marked_and_has_no_copy() {
    let fixture = tempfile::tempdir().unwrap();
    let (from, to) = (fixture.path().join("objects"), fixture.path().join("backup"));
    let other = objects(&from);
    let (mut source, mut folder) = (Source::new(from), Folder::begin(&to).unwrap());
    send(&mut source, &mut folder);
    // In the next round one fails after its first bytes, and one before.
    let head = ObjectHead { name: other, ..OBJECT };
    let piece = Frame::Data { object_offset: 0, bytes: b"bytes" };
    let round = [Frame::Round, Frame::Object(head), piece];
    for frame in round.iter().chain(&[Frame::Unread(other), Frame::Unread(NAME)]) {
        folder.take(frame).unwrap();
    }
    let sums_hex = hex::encode([1, 0, 0, 0, 1, 0, 0, 0]);
    let object = |name: ObjectName| {
        let ObjectName { shard_index, inode, stripe_index: _ } = name;
        let shard = wire::ShardId::data(shard_index).0;
        let (inode, sums_hex, damaged_blocks) = (inode.0, sums_hex.clone(), Vec::new());
        let (size_bytes, write_time_ns, stripes) = (1, 0, None);
        Line::Object { shard, inode, size_bytes, write_time_ns, stripes, sums_hex, damaged_blocks }
    };
    folder.take(&Frame::Metadata(&dump_of(&[object(other)]))).unwrap();
    let finished = folder.finish().unwrap();
    let [found] = finished.damages.findings.as_slice() else { panic!("{finished:?}") };
    assert!(found.what.contains("Input/output error"), "{found:?}");
    for name in [NAME, other] {
        let copy = to.join("objects").join(name.path());
        for path in [copy.clone(), copy.with_added_extension("tmp")] {
            assert!(!path.exists(), "{}", path.display());
        }
    }
    let (metadata, _) = Backup::parts(&to).unwrap();
    let lines = fs::read_to_string(metadata).unwrap();
    assert!(lines.contains("\"damaged_blocks\":[0]"), "{lines}");
}

#[test]
fn a_folder_whose_metadata_were_cut_is_not_whole() {
    let fixture = tempfile::tempdir().unwrap();
    let dump = dump_of(&[Line::Nameless { inode: 7 }, Line::Nameless { inode: 8 }]);
    let first = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for (no, dump) in [&dump[..0], &dump[..first], &dump[first..], &dump[..dump.len() - 5]]
        .into_iter()
        .enumerate()
    {
        let to = fixture.path().join(format!("{no}"));
        let mut folder = Folder::begin(&to).unwrap();
        folder.take(&Frame::Round).unwrap();
        folder.take(&Frame::Metadata(dump)).unwrap();
        assert!(matches!(folder.finish(), Err(BackupError::Line(_))), "{no}");
        assert!(matches!(Backup::parts(&to), Err(BackupError::Unfinished(_))), "{no}");
    }
}

#[test]
fn a_stream_out_of_order_is_refused() {
    let fixture = tempfile::tempdir().unwrap();
    let data = |object_offset| Frame::Data { object_offset, bytes: b"bytes" };
    for (no, frames) in [
        vec![Frame::Whole],
        vec![Frame::Removed],
        vec![data(0)],
        vec![Frame::Freeze],
        vec![Frame::Object(OBJECT), Frame::Object(OBJECT)],
        vec![Frame::Object(OBJECT), Frame::Unread(ObjectName { stripe_index: 0, ..NAME })],
        vec![Frame::Object(OBJECT), data(6)],
        vec![Frame::Object(OBJECT), data(u64::MAX)],
    ]
    .into_iter()
    .enumerate()
    {
        let mut folder = Folder::begin(&fixture.path().join(format!("{no}"))).unwrap();
        let (last, before) = frames.split_last().unwrap();
        before.iter().for_each(|frame| folder.take(frame).unwrap());
        assert!(matches!(folder.take(last), Err(BackupError::Stream)), "{last:?}");
    }
}

#[test]
fn a_folder_whose_object_has_not_wholly_come_is_not_whole() {
    let fixture = tempfile::tempdir().unwrap();
    let to = fixture.path().join("backup");
    let mut folder = Folder::begin(&to).unwrap();
    for frame in [Frame::Round, Frame::Object(OBJECT)] {
        folder.take(&frame).unwrap();
    }
    assert!(matches!(folder.finish(), Err(BackupError::Stream)));
    assert!(matches!(Backup::parts(&to), Err(BackupError::Unfinished(_))));
    // The next one begins anew there.
    let mut folder = Folder::begin(&to).unwrap();
    folder.take(&Frame::Round).unwrap();
    folder.take(&Frame::Metadata(&dump_of(&[]))).unwrap();
    folder.finish().unwrap();
    assert!(Backup::parts(&to).is_ok());
    assert!(matches!(Folder::begin(&to), Err(BackupError::Exists(_))));
}
