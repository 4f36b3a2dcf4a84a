//! Contents that are not any more as they were written: changed, cut and removed files of a store.

use crate::engines::connect;
use crate::stage::{Server, Stage, kill};
use library::{OpenFor, Piece, Volume};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use wire::Status;

const BLOCK: usize = 64 * 1024;
/// Nobody of before comes back.
const SHORT: [&str; 6] = ["--lanes", "2", "--recovery-soft", "1ms", "--recovery-hard", "1s"];

pub(crate) fn bytes_of(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 / 3).to_le_bytes()[0] ^ 0x5A).collect()
}

fn make(volume: &mut Volume, name: &str, bytes: &[u8]) {
    let file = volume.create(Path::new(name), 0o644, true).unwrap();
    let pieces: Vec<(u64, &[u8])> = (0..).step_by(1 << 18).zip(bytes.chunks(1 << 18)).collect();
    volume.write_pieces(&file, &pieces).unwrap();
    volume.sync_file(&file).unwrap();
    volume.close(file).unwrap();
}

/// A block of a file.
fn block(volume: &mut Volume, name: &str, block: usize) -> Result<Vec<u8>, Option<Status>> {
    let file = volume.open(Path::new(name), OpenFor::Read).unwrap();
    let piece = Piece { file_offset: (block * BLOCK) as u64, piece_bytes: 64 * 1024 };
    let read = volume.read_at(&file, piece).map_err(|error| error.status());
    volume.close(file).unwrap();
    read
}

fn write(volume: &mut Volume, name: &str, at: usize, bytes: &[u8]) -> Result<(), Option<Status>> {
    let file = volume.open(Path::new(name), OpenFor::Write).unwrap();
    let written = volume.write_at(&file, at as u64, bytes).map_err(|error| error.status());
    volume.close(file).unwrap();
    written
}

/// The file in the store that has the bytes of a file.
pub(crate) fn object_of(dir: &Path, size_bytes: usize) -> PathBuf {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                dirs.push(entry.path());
            } else if metadata.len() == size_bytes as u64 {
                found.push(entry.path());
            }
        }
    }
    assert_eq!(found.len(), 1, "{size_bytes} bytes: {found:?}");
    found.remove(0)
}

fn stop(mut server: Server) {
    server.process.signal(Signal::TERM);
    assert!(server.process.end().success());
}

fn damage_count(volume: &mut Volume) -> u64 {
    volume.stats().unwrap().iter().map(|lane| lane.objects.damage_count).sum()
}

#[test]
fn what_is_changed_cut_or_gone_gives_eio_and_all_else_can_be_read() {
    let Some(stage) = Stage::new("damage") else { return };
    let server = stage.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&stage, &server.address);
    let sizes = [("whole", 300_001), ("flipped", 300_002), ("cut", 300_003), ("gone", 300_004)];
    for (name, size) in sizes {
        make(&mut volume, &format!("/{name}"), &bytes_of(size));
    }
    volume.leave().unwrap();
    stop(server);

    let objects = stage.path("store/objects");
    let [_, flipped, cut, gone] = sizes.map(|(_, size)| object_of(&objects, size));
    let file = File::options().write(true).open(&flipped).unwrap();
    file.write_all_at(&[bytes_of(300_002)[70_000] ^ 4], 70_000).unwrap();
    File::options().write(true).open(&cut).unwrap().set_len(100_000).unwrap();
    fs::remove_file(&gone).unwrap();

    let mut server = stage.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&stage, &server.address);
    let expected = |size: usize, block: usize| {
        let bytes = bytes_of(size);
        bytes[block * BLOCK..bytes.len().min((block + 1) * BLOCK)].to_vec()
    };
    for (name, size) in sizes {
        let attr = volume.stat(Path::new(&format!("/{name}"))).unwrap();
        assert_eq!(attr.size_bytes, size as u64, "{name}");
        for number in 0..5 {
            let is_there = match name {
                "whole" => true,
                "flipped" => number != 1,
                "cut" => number == 0,
                _ => false,
            };
            let read = block(&mut volume, &format!("/{name}"), number);
            if is_there {
                assert!(read == Ok(expected(size, number)), "block {number} of {name}");
            } else {
                assert_eq!(read, Err(Some(Status::Io)), "block {number} of {name}");
            }
        }
    }
    assert!(damage_count(&mut volume) >= 9, "{}", damage_count(&mut volume));
    for object in [&flipped, &cut, &gone] {
        let name = object.strip_prefix(stage.path("store")).unwrap().to_str().unwrap();
        let line = server.process.line_with(name);
        assert!(line.contains("contents are damaged"), "{line}");
    }

    // A part of a damaged block cannot be written without making up the rest; all of it can.
    assert_eq!(write(&mut volume, "/flipped", 70_100, b"part"), Err(Some(Status::Io)));
    assert_eq!(block(&mut volume, "/flipped", 1), Err(Some(Status::Io)));
    assert_eq!(write(&mut volume, "/flipped", BLOCK, &expected(300_002, 1)), Ok(()));
    assert!(block(&mut volume, "/flipped", 1) == Ok(expected(300_002, 1)));
    kill(server.process.pid());
    server.process.end();
    drop(volume);
    let server = stage.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&stage, &server.address);
    for (name, size) in [("whole", 300_001), ("flipped", 300_002)] {
        for number in 0..5 {
            let read = block(&mut volume, &format!("/{name}"), number);
            assert!(read == Ok(expected(size, number)), "block {number} of {name}");
        }
    }
    assert_eq!(damage_count(&mut volume), 0);
}
