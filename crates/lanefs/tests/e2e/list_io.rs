//! Lists of pieces through the library: held against a model, counted in exchanges, and over the
//! death of the server.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of tests")]

use crate::engines::connect;
use crate::fixture::{Fixture, kill};
use fastrand::Rng;
use library::{Error, File, OpenFor, Piece, SetAttr, Status, Stride, Volume};
use std::path::Path;

fn piece(file_offset: u64, piece_bytes: u32) -> Piece {
    Piece { file_offset, piece_bytes }
}

/// A file and what must be in it.
struct Model {
    volume: Volume,
    file: File,
    bytes: Vec<u8>,
}

impl Model {
    fn new(mut volume: Volume, path: &str) -> Self {
        let file = volume.create(path.as_ref(), 0o644, true).unwrap();
        Self { volume, file, bytes: Vec::new() }
    }

    fn write(&mut self, pieces: &[Piece], bytes: &[u8]) {
        self.volume.write_list(&self.file, pieces, bytes).unwrap();
        let mut rest = bytes;
        for piece in pieces {
            let (now, behind) = rest.split_at(piece.piece_bytes as usize);
            rest = behind;
            let (from, end) = (piece.file_offset as usize, piece.end() as usize);
            if self.bytes.len() < end && !now.is_empty() {
                self.bytes.resize(end, 0);
            }
            if !now.is_empty() {
                self.bytes[from..end].copy_from_slice(now);
            }
        }
    }

    /// What the file has of each piece, and so how many bytes each gets.
    fn check(&mut self, pieces: &[Piece]) {
        let read = self.volume.read_list(&self.file, pieces).unwrap();
        assert_eq!(read.pieces().len(), pieces.len());
        for (piece, got) in pieces.iter().zip(read.pieces()) {
            let size = self.bytes.len();
            let from = (piece.file_offset as usize).min(size);
            let wanted = &self.bytes[from..(piece.end() as usize).min(size)];
            assert!(got == wanted, "{piece:?}: {} bytes, wanted {}", got.len(), wanted.len());
        }
    }

    fn truncate(&mut self, size: usize) {
        self.volume.truncate(&self.file, size as u64).unwrap();
        self.bytes.resize(size, 0);
    }
}

/// So many pieces that share no byte, in any order, and bytes for them.
fn some_pieces(rng: &mut Rng, count: u64, most_bytes: u64) -> (Vec<Piece>, Vec<u8>) {
    let mut at = rng.u64(..5000);
    let mut pieces = Vec::new();
    for _ in 0..count {
        at += [0, 0, 1, 4096, 70_000][rng.usize(..5)];
        let piece_bytes = u32::try_from(rng.u64(1..=most_bytes)).unwrap();
        pieces.push(piece(at, piece_bytes));
        at += u64::from(piece_bytes);
    }
    rng.shuffle(&mut pieces);
    let all: usize = pieces.iter().map(|piece| piece.piece_bytes as usize).sum();
    (pieces, (0..all).map(|_| rng.u8(1..)).collect())
}

#[test]
fn lists_match_a_model() {
    let Some(fixture) = Fixture::new("lists_model") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut model = Model::new(connect(&fixture, &server.address), "/f");
    let mut rng = Rng::with_seed(5);
    for round in 0..60 {
        let count = [1, 3, 40, 256, 700][round % 5];
        let most_bytes = if round % 7 == 0 { 60_000 } else { 900 };
        let (pieces, bytes) =
            some_pieces(&mut rng, count.min(100_000_000 / most_bytes), most_bytes);
        model.write(&pieces, &bytes);
        model.check(&pieces);
        // Anywhere: over each other, over holes, over the end.
        let size = model.bytes.len() as u64;
        let anywhere: Vec<Piece> =
            (0..count).map(|_| piece(rng.u64(..size + 9000), rng.u32(..5000))).collect();
        model.check(&anywhere);
        if round % 9 == 4 {
            model.truncate(rng.usize(..=model.bytes.len()));
        }
        if round % 20 == 19 {
            model.check(&[piece(0, 3 << 20), piece(size / 2, 5 << 20)]);
        }
    }
    model.check(&[piece(1 << 40, 7), piece(0, 0)]);
    let Model { mut volume, file, .. } = model;
    volume.close(file).unwrap();
    volume.leave().unwrap();
}

#[test]
fn strides_are_columns() {
    let Some(fixture) = Fixture::new("lists_strides") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut volume = connect(&fixture, &server.address);
    let file = volume.create("/matrix".as_ref(), 0o644, true).unwrap();
    let column = |number: u64, count| Stride {
        file_offset: number * 8,
        piece_bytes: 8,
        step_bytes: 80,
        count,
    };
    for number in 0..10 {
        let bytes: Vec<u8> =
            (0..300).flat_map(|row: u64| (row * 100 + number).to_le_bytes()).collect();
        volume.write_stride(&file, column(number, 300), &bytes).unwrap();
    }
    let whole = volume.read_at(&file, piece(0, 30_000)).unwrap();
    let numbers: Vec<u64> =
        whole.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
    let wanted: Vec<u64> =
        (0..300).flat_map(|row| (0..10).map(move |column| row * 100 + column)).collect();
    assert_eq!(numbers, wanted);
    let read = volume.read_stride(&file, column(7, 302)).unwrap();
    assert_eq!(read.piece_bytes[299..], [8, 0, 0], "two rows more than there are");
    let sevens: Vec<u64> =
        read.pieces().take(300).map(|got| u64::from_le_bytes(got.try_into().unwrap())).collect();
    assert_eq!(sevens, (0..300).map(|row| row * 100 + 7).collect::<Vec<_>>());
    // Windows that overlap are for reading.
    let windows = Stride { file_offset: 0, piece_bytes: 16, step_bytes: 8, count: 4 };
    let read = volume.read_stride(&file, windows).unwrap();
    assert!(read.pieces().zip(whole.windows(16).step_by(8)).all(|(got, wanted)| got == wanted));
    let refused = volume.write_stride(&file, windows, &[0; 64]).unwrap_err();
    assert!(matches!(refused, Error::Op { status: Status::Invalid, .. }), "{refused}");
    volume.close(file).unwrap();
    volume.leave().unwrap();
}

#[test]
fn what_is_no_list_is_refused_and_changes_nothing() {
    let Some(fixture) = Fixture::new("lists_refused") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut model = Model::new(connect(&fixture, &server.address), "/f");
    model.write(&[piece(0, 4), piece(8, 4)], b"abcdefgh");
    let end = i64::MAX.unsigned_abs();
    for (pieces, bytes, status) in [
        (vec![piece(0, 2), piece(1, 2)], 4, Status::Invalid),
        (vec![piece(0, 2), piece(4, 2)], 5, Status::Invalid),
        (vec![piece(0, 2), piece(4, 2)], 3, Status::Invalid),
        (vec![piece(0, 2), piece(end - 1, 2)], 4, Status::TooLarge),
        (vec![piece(u64::MAX, 2)], 2, Status::TooLarge),
    ] {
        let bytes = vec![b'x'; bytes];
        let refused = model.volume.write_list(&model.file, &pieces, &bytes).unwrap_err();
        let Error::Op { status: found, .. } = refused else { panic!("{refused}") };
        assert_eq!(found, status, "{pieces:?}");
    }
    let refused = model.volume.read_list(&model.file, &[piece(end, 1)]).unwrap_err();
    assert!(matches!(refused, Error::Op { status: Status::TooLarge, .. }), "{refused}");
    model.volume.write_list(&model.file, &[], &[]).unwrap();
    assert!(model.volume.read_list(&model.file, &[]).unwrap().bytes.is_empty());
    model.check(&[piece(0, 100)]);
}

#[test]
fn a_list_is_one_exchange() {
    let Some(fixture) = Fixture::new("lists_exchanges") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let mut volume = connect(&fixture, &server.address);
    let mut counter = connect(&fixture, &server.address);
    let file = volume.create("/f".as_ref(), 0o644, true).unwrap();
    // The question for the counters is one as well.
    let mut count = || counter.stats().unwrap()[0].request_count;
    let mut last = count();
    let mut took = |what: &str, wanted: u64| {
        let now = count();
        let exchanges = now - std::mem::replace(&mut last, now) - 1;
        assert_eq!(exchanges, wanted, "{what}");
    };
    let list = |count| Stride { file_offset: 3, piece_bytes: 100, step_bytes: 5000, count };
    volume.write_stride(&file, list(256), &vec![7; 25_600]).unwrap();
    took("a write of 256 pieces", 1);
    let read = volume.read_stride(&file, list(256)).unwrap();
    took("a read of 256 pieces", 1);
    assert_eq!(read.bytes, vec![7; 25_600]);
    volume.write_stride(&file, list(257), &vec![8; 25_700]).unwrap();
    took("a write of one piece more", 2);
    volume.read_list(&file, &[piece(0, 1 << 20), piece(0, 1)]).unwrap();
    took("a read of one byte more than a MiB", 2);
    let pieces: Vec<Piece> = list(64).pieces().collect();
    volume.read_pieces(&file, &pieces).unwrap();
    took("as many single reads", 64);
    volume.close(file).unwrap();
    volume.leave().unwrap();
}

/// Lists that were answered come back over a kill; those that were synced need no client for it.
#[test]
fn lists_outlive_kills_of_the_server() {
    let Some(fixture) = Fixture::new("lists_kill") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let address = server.address.clone();
    let mut model = Model::new(connect(&fixture, &address), "/f");
    let mut rng = Rng::with_seed(11);
    for round in 0..6 {
        for _ in 0..8 {
            let (pieces, bytes) = some_pieces(&mut rng, 30, 700);
            model.write(&pieces, &bytes);
        }
        if round == 4 {
            model.volume.sync().unwrap();
        }
        if round == 5 {
            break;
        }
        kill(server.process.pid());
        server.process.end();
        server = fixture.serve(&address);
        model.check(&[piece(0, 8 << 20)]);
    }
    // All of the last round may be lost with its client, nothing of what was synced before.
    model.volume.sync_file(&model.file).unwrap();
    let bytes = std::mem::take(&mut model.bytes);
    kill(server.process.pid());
    server.process.end();
    let mut short = model.volume;
    drop(short.take_reports());
    std::mem::forget(short); // A client that dies says nothing.
    let server = fixture.serve(&address);
    let mut volume = connect(&fixture, &server.address);
    let file = volume.open(Path::new("/f"), OpenFor::Read).unwrap();
    let read = volume.read_list(&file, &[piece(0, 8 << 20)]).unwrap();
    assert!(read.bytes == bytes, "{} bytes, wanted {}", read.bytes.len(), bytes.len());
    volume.close(file).unwrap();
    volume.leave().unwrap();
}

/// Who may only read a file does not get it open for writing, and so writes no list either; and what
/// is read of a list is an access.
#[test]
fn a_list_needs_what_a_read_and_a_write_need() {
    let Some(fixture) = Fixture::new("lists_rights") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut volume = connect(&fixture, &server.address);
    let file = volume.create("/f".as_ref(), 0o644, true).unwrap();
    volume.write_list(&file, &[piece(0, 3)], b"abc").unwrap();
    volume.close(file).unwrap();
    let inode = volume.stat("/f".as_ref()).unwrap().inode;
    let old = library::SetTime::At(library::Timestamp { secs: 1000, nanos: 0 });
    let set = SetAttr { atime: old, mtime: old, ..SetAttr::default() };
    volume.set_attr(inode, "/f".as_ref(), &set).unwrap();
    let file = volume.open("/f".as_ref(), OpenFor::Read).unwrap();
    volume.read_list(&file, &[piece(0, 3)]).unwrap();
    volume.sync().unwrap();
    assert!(volume.stat("/f".as_ref()).unwrap().atime.secs > 1000, "an access");
    volume.close(file).unwrap();
    volume.leave().unwrap();
}
