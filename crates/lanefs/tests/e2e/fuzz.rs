//! Sessions of clients that know the secret of an export and send random frames: the server lives, its
//! memory stays bounded, and a mount beside them reads what it has written.
//!
//! Without more it is a few hundred sessions; with `LANEFS_FUZZ_SECONDS` it goes on for so long
//! (`cargo xtask hostile`). `LANEFS_FUZZ_SEED` repeats what was said, though not how it fell together.

#![allow(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

use crate::fixture::{Fixture, must, program, resident_bytes};
use crate::hostile::Tmpfs;
use crate::raw_client::{Raw, hello, send_handshake};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use wire::*;

/// Sessions of each attacker, if no time is named.
const SESSION_COUNT: u64 = 150;
const ATTACKER_COUNT: u64 = 2;
/// With a time, attackers rest for the second of these out of both, and what the honest client does then is
/// what it can do alone.
const HOSTILE_SECONDS: u64 = 9;
const RESTING_SECONDS: u64 = 3;
/// Of the server, whatever it received: its buffers, its tables and what attackers may hold.
const RESIDENT_BYTES_MAX: u64 = 1 << 30;

struct Prng(fastrand::Rng);

impl Prng {
    fn throw(&mut self) -> u64 {
        self.0.u64(..)
    }

    fn below(&mut self, count: usize) -> usize {
        self.0.usize(..count.max(1))
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.throw().is_multiple_of(count)
    }

    /// A number that is mostly small, often at an edge, and now and then anything.
    fn number(&mut self) -> u64 {
        match self.throw() % 8 {
            0 => u64::MAX >> (self.throw() % 64),
            1 => 1 << (self.throw() % 64),
            2 => self.throw(),
            _ => self.throw() % 5,
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.throw().to_le_bytes()[0]).collect()
    }
}

/// What an attacker knows of the file system.
struct Knowledge {
    inodes: Vec<InodeNo>,
    map: Map,
}

/// A body for an op: as it should be, with any numbers, or with some of its bytes changed.
fn body(op: Op, known: &Knowledge, prng: &mut Prng) -> Vec<u8> {
    let inode = match prng.throw() % 8 {
        0 => InodeNo(prng.number()),
        _ => known.inodes[prng.below(known.inodes.len())],
    };
    let (uid, gid) = (prng.throw() as u32 % 3, prng.throw() as u32 % 3);
    let caller = Caller { uid, gid, groups: Groups::Known(&[]) };
    let text = format!("n{}", prng.throw() % 6);
    let name = Name::new(text.as_bytes()).unwrap();
    let open_for = OpenFor::ALL[prng.below(OpenFor::ALL.len())];
    let handle = Handle { id: HandleId(prng.throw() % 4), open_for };
    let file_offset = prng.number() % (1 << 44);
    let read_bytes = prng.number() as u32;
    let mut bytes = match op {
        Op::Lookup => Lookup { caller, parent: inode, name }.to_bytes(),
        Op::Getattr => Getattr { inode }.to_bytes(),
        Op::Create => {
            let handle = prng.one_in(2).then_some(handle);
            let (mode, umask) = (prng.number() as u32, 0);
            let (exclusive, parent) = (prng.one_in(2), inode);
            Create { caller, parent, name, mode, umask, exclusive, handle, behind: None }.to_bytes()
        }
        Op::Unlink => Unlink { caller, parent: inode, name, behind: None }.to_bytes(),
        Op::Rmdir => Rmdir { caller, parent: inode, name }.to_bytes(),
        Op::Readdir => {
            let (cookie, listing_bytes_max) = (prng.number(), prng.number() as u32);
            let (attrs, handle) = (prng.one_in(2), prng.one_in(2).then_some(handle.id));
            Readdir { caller, inode, cookie, listing_bytes_max, attrs, handle }.to_bytes()
        }
        Op::Open => Open { caller, inode, handle }.to_bytes(),
        Op::Reopen => Reopen { inode, handle }.to_bytes(),
        Op::Read => Read { inode, file_offset, read_bytes, accesses: true }.to_bytes(),
        Op::Truncate => Truncate { inode, size_bytes: file_offset }.to_bytes(),
        Op::Resume => {
            let known_committed = Transno(prng.number());
            Resume { known_committed, replay_count: read_bytes }.to_bytes()
        }
        Op::ReplayDone => ReplayDone { reopen_count: read_bytes }.to_bytes(),
        _ => {
            let count = prng.below(96);
            prng.bytes(count)
        }
    };
    match prng.throw() % 6 {
        0 => bytes.truncate(prng.below(bytes.len() + 1)),
        1 => bytes.extend(prng.bytes(9)),
        2 | 3 if !bytes.is_empty() => {
            let place = prng.below(bytes.len());
            bytes[place] ^= 1 << (prng.throw() % 8);
        }
        _ => {}
    }
    bytes
}

/// A request to a server of this shape, with bulk for those that carry some.
fn request(raw: &mut Raw, known: &Knowledge, prng: &mut Prng) -> Vec<u8> {
    let op = loop {
        let op = Op::ALL[prng.below(Op::ALL.len())];
        // Space is what everybody shares, and these take as much as they say.
        if op != Op::Allocate {
            break op;
        }
    };
    let data = prng.one_in(8) != (op.row().route == Route::Data);
    let count = if data { known.map.shard_counts().data } else { known.map.shard_counts().meta };
    let index = prng.throw() as u16 % count.max(1);
    let shard = if data { ShardId::data(index) } else { ShardId::meta(index) };
    let mut asked = raw.request(op, shard);
    match prng.throw() % 12 {
        0 => asked.slot = prng.number() as u16,
        1 => asked.xid = Xid(prng.number()),
        2 => asked.session = SessionId(prng.number()),
        3 => asked.flags = prng.number() as u16 & !reply_flag::BULK_UNCHECKED,
        4 => asked.shard = ShardId(prng.number() as u16),
        5 => asked.conn_epoch = prng.number() as u32,
        6 => asked.transno = Transno(prng.number()),
        7 => (asked.ack_xid, asked.sack) = (Xid(prng.number()), prng.throw()),
        _ => {}
    }
    let bulk = if prng.one_in(4) || matches!(op, Op::Write | Op::WriteList) {
        let count = 1 + prng.below(512);
        prng.bytes(count)
    } else {
        Vec::new()
    };
    let body = body(op, known, prng);
    let mut frame = Vec::new();
    let sum = crc32c(&bulk) ^ u32::from(prng.one_in(16));
    let summed = (!bulk.is_empty()).then_some((bulk.len() as u32, Some(sum)));
    Header::Request(asked).encode(&mut frame, summed, |to| to.put(&body));
    Header::put_sums(&mut frame, None);
    frame.extend(bulk);
    if prng.one_in(32) {
        let place = prng.below(frame.len());
        frame[place] ^= 1 << (prng.throw() % 8);
    }
    frame
}

/// A session of random requests, by a client that knows the secret.
fn session(
    address: &str,
    (secret, export): (&Secret, &str),
    known: &mut Knowledge,
    prng: &mut Prng,
) {
    let client = ClientUuid([prng.throw().to_le_bytes()[0]; 16]);
    let lane = prng.throw() as u16 % 4;
    let mut said = hello(secret.credential(), (export, lane), client);
    said.conn_epoch = prng.number() as u32 | 1;
    said.client_lane = LaneId(prng.throw() as u16 % 3);
    said.predecessor = ClientUuid([prng.throw().to_le_bytes()[0]; 16]);
    said.boot_id_last = prng.number();
    said.key_id = secret.key_id(&said.nonce);
    if prng.one_in(8) {
        return fumble(address, &said, prng);
    }
    let Ok(mut raw) = Raw::of(address, secret, &said) else { return };
    known.map = raw.map.clone();
    raw.stream.set_nonblocking(true).unwrap();
    for _ in 0..1 + prng.below(60) {
        let frame = request(&mut raw, known, prng);
        let whole = if prng.one_in(64) { prng.below(frame.len()) } else { frame.len() };
        if !put(&mut raw.stream, &frame[..whole]) || whole < frame.len() {
            return;
        }
        take(&mut raw.stream);
    }
    // What is left is heard, or not.
    if prng.one_in(2) {
        take(&mut raw.stream);
    }
}

/// A handshake that goes wrong somewhere.
fn fumble(address: &str, said: &Hello<'_>, prng: &mut Prng) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut frame = Vec::new();
    let kind = if prng.one_in(4) { FrameKind::Proof } else { FrameKind::Hello };
    Header::Handshake(kind).encode(&mut frame, None, |to| to.write(said));
    Header::put_sums(&mut frame, None);
    let place = prng.below(frame.len());
    frame[place] ^= 1 << (prng.throw() % 8);
    stream.write_all(&frame).ok();
    if prng.one_in(2) {
        send_handshake(&mut stream, FrameKind::Proof, &Proof { proof: [7; 32] }).ok();
    }
}

/// Whether all of it went out, or could: one that is full takes no more.
fn put(stream: &mut TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return false,
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => take(stream),
            Err(_) => return false,
        }
    }
    true
}

/// Takes in what has come, unseen.
fn take(stream: &mut TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

/// How long attackers rest from now on, if they do.
fn rest_of(started: Instant) -> Option<Duration> {
    let both = Duration::from_secs(HOSTILE_SECONDS + RESTING_SECONDS);
    let within = Duration::from_nanos((started.elapsed().as_nanos() % both.as_nanos()) as u64);
    (within >= Duration::from_secs(HOSTILE_SECONDS)).then(|| both - within)
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn random_frames_leave_the_server_running_and_serving_others() {
    let Some(fixture) = Fixture::new("fuzz_sessions") else { return };
    // What attackers write is nobody else's space.
    let disk = fixture.make_dir("disk");
    must(program("mount").args(["-t", "tmpfs", "-o", "size=512m", "lanefs-test"]).arg(&disk));
    let mounted = Tmpfs(disk.clone());
    let up = fixture.up(&["--lanes", "2", "--store", disk.join("store").to_str().unwrap()]);
    let inode = |path: &str| {
        use std::os::unix::fs::MetadataExt as _;
        InodeNo(fs::metadata(up.dir.join(path)).unwrap().ino())
    };
    for dir in ["guests", "guests/inner", "mine"] {
        fs::create_dir(up.dir.join(dir)).unwrap();
        must(program("chmod").arg("0777").arg(up.dir.join(dir)));
    }
    fs::write(up.dir.join("guests/file"), "of guests").unwrap();
    fs::write(up.dir.join("mine/file"), "mine").unwrap();
    let paths = ["", "guests", "guests/inner", "guests/file", "mine", "mine/file"];
    let inodes: Vec<InodeNo> = paths.iter().map(|path| inode(path)).collect();
    let of_export = |name: &str, more: &[&str]| {
        must(fixture.lanefs(["export", "add", &up.address, name, "/guests"]).args(more));
        let shown = must(&mut fixture.lanefs(["export", "secret", &up.address, name]));
        library::secret::of_text(&shown).unwrap()
    };
    let secrets = [
        (of_export("guests", &["--squash", "root"]), "guests"),
        (of_export("readers", &["--squash", "all", "--read-only"]), "readers"),
    ];
    let seed = number_of("LANEFS_FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let until = number_of("LANEFS_FUZZ_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (over, session_count) = (AtomicBool::new(false), AtomicU64::new(0));
    let (started, server) = (Instant::now(), up.child("serve"));
    let mut file_counts = [0_u64; 2];
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..ATTACKER_COUNT)
            .map(|attacker| {
                let (secrets, inodes, session_count) = (&secrets, &inodes, &session_count);
                let address = up.address.as_str();
                scope.spawn(move || {
                    let mut prng = Prng(fastrand::Rng::with_seed(seed * ATTACKER_COUNT + attacker));
                    let shards = ShardCounts { meta: 1, data: 1 };
                    let map = Map::single_server(2, shards, Term(1));
                    let mut known = Knowledge { inodes: inodes.clone(), map };
                    // What they take shall be the server's time, not the cores of others.
                    setpriority_process(Some(gettid()), 19).unwrap();
                    for index in 0.. {
                        let goes_on = match until {
                            Some(until) => Instant::now() < until,
                            None => index < SESSION_COUNT,
                        };
                        if !goes_on {
                            return;
                        }
                        if let (Some(_), Some(rest)) = (until, rest_of(started)) {
                            thread::sleep(rest);
                        }
                        let (secret, export) = &secrets[prng.below(secrets.len())];
                        session(address, (secret, export), &mut known, &mut prng);
                        session_count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let (dir, over) = (up.dir.join("mine"), &over);
        let honest = scope.spawn(move || {
            let mut counts = [0_u64; 2];
            while !over.load(Ordering::Relaxed) {
                let path = dir.join(format!("{}", counts[0] % 7));
                let text = format!("{counts:?}");
                fs::write(&path, &text).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                let alone = until.is_some() && rest_of(started).is_some();
                counts[usize::from(alone)] += 1;
            }
            counts
        });
        // Also when one of them failed, the honest one ends.
        let ended: Vec<_> = attackers.into_iter().map(ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
        file_counts = honest.join().unwrap();
    });
    let resident = resident_bytes(server);
    let [beside, alone] = file_counts;
    println!(
        "seed {seed}: {} sessions; {beside} files written and read beside them; the server has {} \
         MiB",
        session_count.into_inner(),
        resident >> 20
    );
    if alone > 0 {
        let ratio = (beside * RESTING_SECONDS) as f64 / (alone * HOSTILE_SECONDS) as f64;
        println!("beside them {ratio:.2} of the files that are written and read when they rest");
    }
    assert_eq!(up.child("serve"), server, "the server never ended");
    assert!(resident < RESIDENT_BYTES_MAX, "{resident} bytes");
    assert!(beside > 0);
    assert_eq!(fs::read_to_string(up.dir.join("mine/file")).unwrap(), "mine");
    let said = up.stop();
    assert!(!said.contains("panicked"), "{said}");
    drop(mounted);
}
