//! Small writes that are durable when they are answered: the log has their bytes, and their files are
//! synced later.

use crate::engines::connect;
use crate::fixture::{Fixture, kill};
use library::{OpenFor, Piece, Volume};
use std::fs;
use std::path::{Path, PathBuf};

/// Every sync of an object fails, and the rows lag behind the log.
const ONLY_THE_LOG: [&str; 7] =
    ["--lanes", "1", "--sync", "--collect", "1h", "--fault", "fail-object-sync:1"];
const SHORT: [&str; 6] = ["--lanes", "2", "--recovery-soft", "1ms", "--recovery-hard", "1s"];
const WRITER_COUNT: u8 = 8;
const WRITE_COUNT: u8 = 25;
const WRITE_BYTES: usize = 4096;

fn batch_count(volume: &mut Volume) -> u64 {
    volume.stats().unwrap().iter().map(|lane| lane.batch_count).sum()
}

fn path_of(writer: u8) -> PathBuf {
    PathBuf::from(format!("/file{writer}"))
}

fn piece_of(writer: u8, number: u8) -> Vec<u8> {
    vec![writer * 16 + number; WRITE_BYTES]
}

/// Appends to a file of its own; each piece is durable.
fn write_pieces(mut volume: Volume, writer: u8) {
    let file = volume.open(&path_of(writer), OpenFor::Write).unwrap();
    for number in 0..WRITE_COUNT {
        let at = u64::from(number) * WRITE_BYTES as u64;
        volume.write_at(&file, at, &piece_of(writer, number)).unwrap();
        volume.sync_file(&file).unwrap();
    }
    volume.close(file).unwrap();
}

fn remove_files(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.metadata().unwrap().is_dir() {
            remove_files(&entry.path());
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn they_cost_one_flush_of_the_log_at_most_and_survive_the_loss_of_their_files() {
    let Some(fixture) = Fixture::new("synced-writes") else { return };
    let mut server = fixture.serve_with("127.0.0.1:0", &ONLY_THE_LOG);
    let mut volume = connect(&fixture, &server.address);
    for writer in 0..WRITER_COUNT {
        let file = volume.create(&path_of(writer), 0o644, true).unwrap();
        volume.close(file).unwrap();
    }
    let before = batch_count(&mut volume);
    std::thread::scope(|scope| {
        for writer in 0..WRITER_COUNT {
            let (fixture, address) = (&fixture, &server.address);
            scope.spawn(move || write_pieces(connect(fixture, address), writer));
        }
    });
    let flush_count = batch_count(&mut volume) - before;
    let write_count = u64::from(WRITER_COUNT) * u64::from(WRITE_COUNT);
    // Opening and closing a file, and a new session, are records as well.
    let other_count = 6 * u64::from(WRITER_COUNT);
    assert!(flush_count <= write_count + other_count, "{flush_count} for {write_count} writes");
    println!("{flush_count} flushes of the log for {write_count} writes, none of a file");

    kill(server.process.pid());
    server.process.end();
    remove_files(&fixture.path("store/objects"));
    let server = fixture.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&fixture, &server.address);
    for writer in 0..WRITER_COUNT {
        let file = volume.open(&path_of(writer), OpenFor::Read).unwrap();
        for number in 0..WRITE_COUNT {
            let file_offset = u64::from(number) * WRITE_BYTES as u64;
            let piece = Piece { file_offset, piece_bytes: 4096 };
            let found = volume.read_at(&file, piece).unwrap();
            assert!(found == piece_of(writer, number), "piece {number} of writer {writer}");
        }
        volume.close(file).unwrap();
    }
    drop(server);
}
