//! What a hostile client takes, it takes from its own share: others go on as if it were not there.

use crate::fixture::{Fixture, PATIENCE, Server, must, program, skip};
use crate::idle::secret;
use crate::raw_client::Raw;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::*;

/// An export of a directory, and the secret of it.
fn export(fixture: &Fixture, server: &Server, name: &str, more: &[&str]) -> Secret {
    let address = server.address.as_str();
    let path = format!("/{name}");
    let add = ["export", "add", address, name, &path, "--squash", "none"];
    must(&mut fixture.lanefs([&add[..], more].concat()));
    let text = must(&mut fixture.lanefs(["export", "secret", address, name]));
    library::secret::of_text(&text).unwrap()
}

/// A write of a MiB to a file.
fn write_to(raw: &mut Raw, inode: InodeNo, bulk: &[u8]) -> (Request, Write, Vec<u8>) {
    let request = raw.request(Op::Write, raw.map.data_shard(inode, 0));
    let write = Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::Nothing };
    let mut frame = Vec::new();
    let summed = (u32::try_from(bulk.len()).unwrap(), Some(crc32c(bulk)));
    Header::Request(request).encode(&mut frame, Some(summed), |to| write.encode(to));
    Header::put_sums(&mut frame, None);
    frame.extend_from_slice(bulk);
    (request, write, frame)
}

/// Reads and writes as an honest client does, in far less time than anybody holds anything.
fn work(dir: &Path) {
    let began = Instant::now();
    let bytes = vec![5; 4 << 20];
    for round in 0..3 {
        let path = dir.join(format!("meanwhile-{round}"));
        fs::write(&path, &bytes).unwrap();
        assert!(fs::read(&path).unwrap() == bytes);
        fs::remove_file(&path).unwrap();
    }
    println!("worked for {:?}", began.elapsed());
}

/// Three hundred connections, each a few bytes short of a MiB, of holders of a secret that may only read
/// and then of one that may write.
#[test]
fn half_sent_writes_of_a_client_do_not_block_others() {
    use std::io::Write as _;
    let Some(fixture) = Fixture::new("half_sent") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    for name in ["ro", "rw"] {
        fs::create_dir(all.dir.join(name)).unwrap();
        fs::write(all.dir.join(name).join("file"), "kept").unwrap();
    }
    let secrets = [
        ("ro", export(&fixture, &server, "ro", &["--read-only"])),
        ("rw", export(&fixture, &server, "rw", &[])),
    ];
    for (name, secret) in &secrets {
        let path = all.dir.join(name).join("file");
        let inode = InodeNo(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap()));
        let half = |_| {
            let client = ClientUuid(library::random().unwrap());
            let mut raw = Raw::new(&server.address, secret, (name, 0), client);
            let (_, _, frame) = write_to(&mut raw, inode, &vec![6; 1 << 20]);
            raw.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            // Where there is no buffer for it, the rest waits at our end.
            raw.stream.write_all(&frame[..frame.len() - 3]).ok();
            raw
        };
        // Of those that may write not all get as far.
        let count = if *name == "ro" { 300 } else { 150 };
        let held: Vec<Raw> = (0..count).map(half).collect();
        work(&all.dir);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        drop(held);
    }
    all.stop();
}

/// A read-only client that writes gets an error and stays connected.
#[test]
fn a_write_where_one_may_only_read_is_answered() {
    let Some(fixture) = Fixture::new("read_only_write") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir(all.dir.join("ro")).unwrap();
    let path = all.dir.join("ro/file");
    fs::write(&path, "kept").unwrap();
    let inode = InodeNo(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap()));
    let secret = export(&fixture, &server, "ro", &["--read-only"]);
    let mut raw = Raw::new(&server.address, &secret, ("ro", 0), ClientUuid([7; 16]));
    for bulk_bytes in [1, 4096, 100_000, 1 << 20] {
        let at = raw.map.data_shard(inode, 0);
        let write =
            Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::Nothing };
        let answer = raw.answer(Op::Write, at, &write, &vec![8; bulk_bytes]);
        assert_eq!(answer.reply.status, Status::ReadOnly, "{bulk_bytes} bytes");
        let read = Read { inode, file_offset: 0, read_bytes: 100, accesses: false };
        assert_eq!(raw.answer(Op::Read, at, &read, &[]).bulk, b"kept");
    }
    // The same connection, once its export may be written.
    let address = server.address.as_str();
    let add = ["export", "add", address, "ro", "/ro", "--squash", "none", "--replace"];
    must(&mut fixture.lanefs(add));
    let at = raw.map.data_shard(inode, 0);
    let write = Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::Nothing };
    let given_up = Instant::now() + PATIENCE;
    while raw.answer(Op::Write, at, &write, b"more").reply.status != Status::Ok {
        assert!(Instant::now() < given_up, "it may never write");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "more");
    all.stop();
}

/// Thousands of claims that a disk has lost what it had.
#[test]
fn claims_of_a_client_are_no_alarms() {
    let Some(fixture) = Fixture::new("claims") else { return };
    let up = fixture.up(&["--lanes", "1"]);
    let client = ClientUuid(library::random().unwrap());
    let mut raw = Raw::new(&up.address, &secret(&fixture), ("up", 0), client);
    let claim = Resume { known_committed: Transno(u64::MAX), replay_count: 0 };
    for _ in 0..3000 {
        assert_eq!(raw.ask(Op::Resume, InodeNo::ROOT.shard(), &claim), Status::Ok);
    }
    let said = up.stop();
    assert!(!said.contains("lost data that it had reported"), "{said}");
    assert!(said.lines().count() < 200, "{said}");
}

/// A file system of its own, in a file.
struct Disk {
    at: PathBuf,
}

impl Disk {
    /// None where no file can be mounted.
    fn new(fixture: &Fixture, bytes: u64) -> Option<Self> {
        let (image, at) = (fixture.path("image"), fixture.make_dir("disk"));
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        must(program("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image));
        let mut mount = program("mount");
        let mounted = mount.args(["-o", "loop"]).arg(&image).arg(&at).output().unwrap();
        mounted.status.success().then_some(Self { at })
    }

    fn available_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.at).unwrap();
        found.f_bavail * found.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let lazily = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.at, lazily).ok();
    }
}

/// Space that cannot be had is refused, and costs none.
#[test]
fn a_refused_allocation_leaves_no_space_taken() {
    let Some(fixture) = Fixture::new("allocate_all") else { return };
    let Some(disk) = Disk::new(&fixture, 256 << 20) else {
        return skip("a_refused_allocation_leaves_no_space_taken", "no file can be mounted here");
    };
    let store = disk.at.join("store");
    let up = fixture.up(&["--lanes", "1", "--store", store.to_str().unwrap()]);
    let path = up.dir.join("file");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let inode = InodeNo(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap()));
    let mut raw = Raw::new(&up.address, &secret(&fixture), ("up", 0), ClientUuid([7; 16]));
    let at = raw.map.data_shard(inode, 0);
    let before = disk.available_bytes();
    for range_bytes in [before, before + (64 << 20), 1 << 41, 1 << 45, (1 << 62) + 5] {
        for (allocation, keep_size) in
            [(Allocation::Reserve, false), (Allocation::Reserve, true), (Allocation::Zero, true)]
        {
            let clears = ClearPrivileges::Nothing;
            let file_offset = 1 << 20;
            let allocate =
                Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
            let status = raw.ask(Op::Allocate, at, &allocate);
            // Where the end must stay and is in another file, there is nowhere to be.
            assert!(
                matches!(status, Status::NoSpace | Status::NotSupported),
                "{range_bytes} bytes: {status:?}"
            );
            let left = disk.available_bytes();
            assert!(left + (8 << 20) > before, "{range_bytes} bytes: {left} of {before} are left");
        }
    }
    assert!(fs::read(&path).unwrap() == vec![7; 1 << 20]);
    // What there is can still be had.
    let file = fs::File::options().write(true).open(&path).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 32 << 20).unwrap();
    fs::write(up.dir.join("after"), vec![1; 8 << 20]).unwrap();
    drop(file);
    up.stop();
}
