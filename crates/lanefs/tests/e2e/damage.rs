//! Contents that are not any more as they were written: changed, cut and removed files of a store.

use crate::engines::connect;
use crate::fixture::{Fixture, Server, kill, skip};
use library::{OpenFor, Piece, Volume};
use rustix::fs::{Advice, OFlags, fadvise, fstatfs};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use wire::Status;

const BLOCK: usize = 64 * 1024;
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Nobody of before comes back.
const SHORT: [&str; 8] =
    ["--lanes", "2", "--recovery-soft", "1ms", "--recovery-hard", "1s", "--leases", "off"];

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
    read.map(Into::into)
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

/// The line about damaged contents that has this part; they come in no order.
fn damage_line(server: &mut Server, part: &str) -> String {
    let fits = |line: &&str| line.contains("contents are damaged") && line.contains(part);
    let said = server.process.said().lines().find(fits).map(str::to_owned);
    said.unwrap_or_else(|| server.process.line_with(part))
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Changes bytes on the disk, past the page cache, which has nothing of the file then; whether the file
/// system lets that be done.
fn flip_on_disk(path: &Path, places: &[u64]) -> bool {
    const PAGE: usize = 4096;
    File::open(path).unwrap().sync_all().unwrap();
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let Ok(file) = File::options().read(true).write(true).custom_flags(direct).open(path) else {
        return false;
    };
    let mut buffer = vec![0; 2 * PAGE];
    let start = buffer.as_ptr().align_offset(PAGE);
    let page = &mut buffer[start..start + PAGE];
    for place in places {
        let offset = place - place % PAGE as u64;
        file.read_exact_at(page, offset).unwrap();
        page[usize::try_from(place % PAGE as u64).unwrap()] ^= 1;
        file.write_all_at(page, offset).unwrap();
    }
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fstatfs(&file).unwrap().f_type != TMPFS_MAGIC
}

fn damage_count(volume: &mut Volume) -> u64 {
    volume.stats().unwrap().iter().map(|lane| lane.objects.damage_count).sum()
}

#[test]
fn changed_cut_and_removed_contents_give_eio_and_all_else_can_be_read() {
    let Some(fixture) = Fixture::new("damage") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&fixture, &server.address);
    let sizes = [("whole", 300_001), ("flipped", 300_002), ("cut", 300_003), ("removed", 300_004)];
    for (name, size) in sizes {
        make(&mut volume, &format!("/{name}"), &bytes_of(size));
    }
    volume.leave().unwrap();
    stop(server);

    let objects = fixture.path("store/objects");
    let [_, flipped, cut, removed] = sizes.map(|(_, size)| object_of(&objects, size));
    let file = File::options().write(true).open(&flipped).unwrap();
    file.write_all_at(&[bytes_of(300_002)[70_000] ^ 4], 70_000).unwrap();
    File::options().write(true).open(&cut).unwrap().set_len(100_000).unwrap();
    fs::remove_file(&removed).unwrap();

    let mut server = fixture.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&fixture, &server.address);
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
    for (object, path) in [(&flipped, "/flipped"), (&cut, "/cut"), (&removed, "/removed")] {
        let name = object.strip_prefix(fixture.path("store")).unwrap().to_str().unwrap();
        let line = damage_line(&mut server, name);
        assert!(line.contains(&format!("contents are damaged: {path}, inode ")), "{line}");
    }

    // A part of a damaged block cannot be written without making up the rest; all of it can.
    assert_eq!(write(&mut volume, "/flipped", 70_100, b"part"), Err(Some(Status::Io)));
    assert_eq!(block(&mut volume, "/flipped", 1), Err(Some(Status::Io)));
    assert_eq!(write(&mut volume, "/flipped", BLOCK, &expected(300_002, 1)), Ok(()));
    assert!(block(&mut volume, "/flipped", 1) == Ok(expected(300_002, 1)));
    kill(server.process.pid());
    server.process.end();
    drop(volume);
    let server = fixture.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&fixture, &server.address);
    for (name, size) in [("whole", 300_001), ("flipped", 300_002)] {
        for number in 0..5 {
            let read = block(&mut volume, &format!("/{name}"), number);
            assert!(read == Ok(expected(size, number)), "block {number} of {name}");
        }
    }
    assert_eq!(damage_count(&mut volume), 0);
}

#[test]
fn a_block_that_changes_on_the_disk_after_it_was_read_gives_eio() {
    let Some(fixture) = Fixture::new("damage-evicted") else { return };
    let mut server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mut volume = connect(&fixture, &server.address);
    let bytes = bytes_of(6 * BLOCK);
    make(&mut volume, "/rots", &bytes);
    let expected = |number: usize| Ok(bytes[number * BLOCK..(number + 1) * BLOCK].to_vec());
    for _ in 0..2 {
        for number in 0..6 {
            assert!(block(&mut volume, "/rots", number) == expected(number), "block {number}");
        }
    }
    let object = object_of(&fixture.path("store/objects"), 6 * BLOCK);
    // In the fourth block not where it is read.
    if !flip_on_disk(&object, &[BLOCK as u64 + 70, 3 * BLOCK as u64 + 5]) {
        return skip("damage-evicted", "the store lies where nothing leaves the page cache");
    }
    let file = volume.open(Path::new("/rots"), OpenFor::Read).unwrap();
    let small =
        |block: usize| Piece { file_offset: (block * BLOCK + 60_000) as u64, piece_bytes: 100 };
    let read = volume.read_at(&file, small(3)).map_err(|error| error.status());
    assert_eq!(read, Err(Some(Status::Io)), "a part of a block that was changed elsewhere");
    let list = volume.read_list(&file, &[small(0), small(1)]).map_err(|error| error.status());
    assert_eq!(list.map(|_| ()), Err(Some(Status::Io)));
    assert!(volume.read_at(&file, small(2)).unwrap() == bytes[2 * BLOCK + 60_000..][..100]);
    volume.close(file).unwrap();
    for number in 0..6 {
        let read = block(&mut volume, "/rots", number);
        if [1, 3].contains(&number) {
            assert_eq!(read, Err(Some(Status::Io)), "block {number}");
        } else {
            assert!(read == expected(number), "block {number}");
        }
    }
    assert!(damage_count(&mut volume) >= 4);
    for at in [BLOCK, 3 * BLOCK] {
        damage_line(&mut server, &format!("the block at byte {at} was changed"));
    }
}

#[test]
fn the_line_about_damaged_contents_has_the_files_path() {
    let Some(fixture) = Fixture::new("damage-path") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mut volume = connect(&fixture, &server.address);
    for dir in ["/a", "/a/b", "/a/b/\u{e9} \n"] {
        volume.mkdir(Path::new(dir), 0o755).unwrap();
    }
    // More entries than are read at once.
    for number in 0..1_500 {
        let file = volume.create(Path::new(&format!("/a/{number}")), 0o644, true).unwrap();
        volume.close(file).unwrap();
    }
    let made = ["/a/b/\u{e9} \n/nested", "/first", "/before", "/nameless"];
    let sizes = [100_001, 100_002, 100_003, 100_004];
    for (name, size) in made.iter().zip(sizes) {
        make(&mut volume, name, &bytes_of(size));
    }
    let inode = volume.stat(Path::new("/first")).unwrap().inode;
    volume.link(inode, Path::new("/a/second")).unwrap();
    volume.rename(Path::new("/before"), Path::new("/a/zz after")).unwrap();
    let nameless = volume.open(Path::new("/nameless"), OpenFor::Read).unwrap();
    volume.unlink(Path::new("/nameless")).unwrap();
    volume.sync().unwrap();
    let address = server.address.clone();
    stop(server);
    for size in sizes {
        flip(&object_of(&fixture.path("store/objects"), size), 77);
    }

    // The client comes back, and has the file without a name open as before.
    let mut server = fixture.serve_with(&address, &["--lanes", "2"]);
    for name in [made[0], "/first", "/a/zz after"] {
        assert_eq!(block(&mut volume, name, 0), Err(Some(Status::Io)), "{name}");
    }
    let piece = Piece { file_offset: 0, piece_bytes: 10 };
    let read = volume.read_at(&nameless, piece).map_err(|error| error.status());
    assert_eq!(read, Err(Some(Status::Io)));
    damage_line(&mut server, "contents are damaged: /a/b/\u{e9} \\n/nested, inode ");
    damage_line(&mut server, "contents are damaged: /a/zz after, inode ");
    let line = damage_line(&mut server, &format!("inode {} (objects/", inode.0));
    let either = ["/first, ", "/a/second, "].map(|name| line.contains(name));
    assert!(either.contains(&true), "{line}");
    damage_line(&mut server, "a file without a name");
}
