//! Files of several stripe objects: a store whose layout has small stripes is served, copied and checked.

use crate::check::{check, edit_rows};
use crate::fixture::{Fixture, Mount, Server, must, program};
use disk::InodeRow;
use disk::rows::Key;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use wire::{InodeNo, Layout};

const UNIT_BYTES: usize = 64 * 1024;

/// Serves a store whose new files have stripes of 64 KiB, and mounts it.
fn striped(fixture: &Fixture) -> (Server, Mount) {
    let layout = Layout { stripe_unit_bytes: UNIT_BYTES as u64, ..Layout::DEFAULT };
    let shape = store::Shape { layout, ..store::Shape::default() };
    store::create(&fixture.path("store"), &shape).unwrap();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    (server, mount)
}

fn stop(mut server: Server) {
    server.process.signal(Signal::TERM);
    assert!(server.process.end().success(), "{}", server.process.said());
}

/// Bytes that differ from stripe to stripe.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from((at / 1000 + at / UNIT_BYTES * 37) % 251).unwrap()).collect()
}

/// The number of a file's objects.
fn objects_of(fixture: &Fixture, file: &Path) -> usize {
    let prefix = format!("{:016x}.", fs::metadata(file).unwrap().ino());
    let mut find = program("find");
    let found =
        must(find.arg(fixture.path("store/objects")).args(["-name", &format!("{prefix}*")]));
    found.lines().count()
}

#[test]
fn striped_files_come_back_from_a_backup() {
    let Some(fixture) = Fixture::new("stripes_backup") else { return };
    let (server, mount) = striped(&fixture);
    let (plain, striped) = (fixture.make_dir("plain"), mount.dir.join("tree"));
    fs::create_dir(&striped).unwrap();
    for dir in [&plain, &striped] {
        fs::write(dir.join("one"), bytes(1000)).unwrap();
        fs::write(dir.join("five"), bytes(4 * UNIT_BYTES + 1000)).unwrap();
        let mut appended =
            OpenOptions::new().append(true).create(true).open(dir.join("appended")).unwrap();
        for part in bytes(3 * UNIT_BYTES + 17).chunks(50_000) {
            appended.write_all(part).unwrap();
        }
        let cut = File::create(dir.join("cut")).unwrap();
        cut.write_all_at(&bytes(6 * UNIT_BYTES), 0).unwrap();
        cut.set_len(2 * UNIT_BYTES as u64 + 5).unwrap();
        cut.set_len(5 * UNIT_BYTES as u64).unwrap();
        let sparse = File::create(dir.join("sparse")).unwrap();
        sparse.write_all_at(b"far", 9 * UNIT_BYTES as u64 - 1).unwrap();
    }
    must(program("diff").arg("-r").arg(&plain).arg(&striped));
    let objects = ["one", "five", "appended"].map(|name| objects_of(&fixture, &striped.join(name)));
    assert_eq!(objects, [1, 5, 4]);

    let (copy, again) = (fixture.path("copy"), fixture.path("again"));
    must(fixture.lanefs(["backup", &server.address]).arg(&copy));
    mount.stop();
    stop(server);
    assert_eq!(check(&fixture, &fixture.path("store"), &[]), (0, Vec::new()));
    must(fixture.lanefs(["restore"]).arg(&copy).arg(&again));
    assert_eq!(check(&fixture, &again, &[]), (0, Vec::new()));
    fs::rename(fixture.path("store"), fixture.path("before")).unwrap();
    fs::rename(&again, fixture.path("store")).unwrap();
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt2", &["--export", "up"]);
    let restored = mount.dir.join("tree");
    must(program("diff").arg("-r").arg(&plain).arg(&restored));
    assert_eq!(objects_of(&fixture, &restored.join("five")), 5);
    // What is restored has its layout, and so has what is new.
    let mut five = OpenOptions::new().append(true).open(restored.join("five")).unwrap();
    five.write_all(&bytes(UNIT_BYTES)).unwrap();
    drop(five);
    fs::write(restored.join("new"), bytes(UNIT_BYTES + 1)).unwrap();
    let objects = ["five", "new"].map(|name| objects_of(&fixture, &restored.join(name)));
    assert_eq!(objects, [6, 2]);
    mount.stop();
    stop(server);
    assert_eq!(check(&fixture, &fixture.path("store"), &[]), (0, Vec::new()));
}

#[test]
fn a_stripe_that_is_not_recorded_is_found_and_recorded() {
    let Some(fixture) = Fixture::new("stripes_check") else { return };
    let (server, mount) = striped(&fixture);
    let file = mount.dir.join("file");
    fs::write(&file, bytes(3 * UNIT_BYTES + 10)).unwrap();
    let inode = InodeNo(fs::metadata(&file).unwrap().ino());
    mount.stop();
    stop(server);
    let store = fixture.path("store");
    assert_eq!(check(&fixture, &store, &[]), (0, Vec::new()));
    let shard = store::open(&store).unwrap().superblock().shard_counts().data_shard(inode, 0);
    edit_rows(&store, |edits| edits.delete(Key::stripe(shard, inode, 2).bytes()));
    let (code, found) = check(&fixture, &store, &[]);
    assert!(code > 0, "{found:?}");
    assert_eq!(found, [("stripe-not-recorded".to_owned(), "/file".to_owned())]);
    check(&fixture, &store, &["--repair"]);
    assert_eq!(check(&fixture, &store, &[]), (0, Vec::new()));
    // An inode with another layout than its objects.
    edit_rows(&store, |edits| {
        edits.change("file", |row: &mut InodeRow| row.layout = Some(Layout::DEFAULT));
    });
    let (code, found) = check(&fixture, &store, &[]);
    assert!(code > 0, "{found:?}");
    assert_eq!(found, [("layout-wrong".to_owned(), "/file".to_owned())]);
    check(&fixture, &store, &["--repair"]);
    assert_eq!(check(&fixture, &store, &[]), (0, Vec::new()));

    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt2", &["--export", "up"]);
    assert_eq!(fs::read(mount.dir.join("file")).unwrap(), bytes(3 * UNIT_BYTES + 10));
    mount.stop();
    stop(server);
}
