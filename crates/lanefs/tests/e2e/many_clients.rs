//! Many, loud and deaf: what others notice of ten thousand idle clients, of strangers that come in
//! floods, and of clients that do not read what they asked for.

use crate::fixture::{Fixture, Up, must, resident_bytes, texts};
use crate::idle::secret;
use crate::raw_client::{Raw, hello, send_handshake};
use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use wire::{
    ClientUuid, Credential, FrameKind, Header, InodeNo, Op, Read, Reply, Secret, Status, Wire as _,
};

/// A client that is nobody else.
fn stranger(up: &Up, secret: &Secret, lane: u16) -> Raw {
    Raw::new(&up.address, secret, ("up", lane), ClientUuid(library::random().unwrap()))
}

/// Something that everybody must be able to do meanwhile.
fn work(up: &Up, round: usize) {
    let path = up.dir.join(format!("meanwhile-{round}"));
    fs::write(&path, format!("{round}")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{round}"));
    fs::remove_file(&path).unwrap();
}

#[test]
fn ten_thousand_idle_clients_are_held() {
    const COUNT: usize = 10_000;
    let Some(fixture) = Fixture::new("idle_crowd") else { return };
    ring::raise_fd_limit().unwrap();
    let up = fixture.up(&["--lanes", "2"]);
    let secret = secret(&fixture);
    let server = up.child("serve");
    let before = resident_bytes(server);
    let connect = |index: usize| {
        let lane = u16::try_from(index % 2).unwrap();
        stranger(&up, &secret, lane)
    };
    let mut crowd: Vec<Raw> = (0..COUNT).map(connect).collect();
    let held = resident_bytes(server).saturating_sub(before);
    assert!(held < 32 * 1024 * COUNT as u64, "{held} bytes for {COUNT} idle clients");
    for round in 0..10 {
        work(&up, round);
    }
    let listed = fixture.run(["ls", "--export", "up", &up.url("/")]);
    assert!(listed.status.success(), "{:?}", texts(&listed));
    // They are there: each is still answered.
    for raw in crowd.iter_mut().step_by(97) {
        let shard = raw.map.data_shard(InodeNo::ROOT, 0);
        raw.send(Op::Ping, shard, |_| {});
        let (answer, _) = raw.frame();
        assert!(matches!(answer, Header::Reply(Reply { status: Status::Ok, .. })), "{answer:?}");
    }
    drop(crowd);
    work(&up, 11);
    up.stop();
}

#[test]
fn floods_of_unproven_connections_do_not_block_clients() {
    let Some(fixture) = Fixture::new("flood") else { return };
    let up = fixture.up(&[]);
    let over = AtomicBool::new(false);
    let flood = |says_hello: bool| {
        let mut connections = Vec::new();
        let mut count = 0_u64;
        // However slow the machine, it is a flood.
        while !over.load(Ordering::Relaxed) || count <= 2000 {
            let mut stream = TcpStream::connect(&up.address).unwrap();
            if says_hello {
                // It may have been closed already, for a newer one.
                let client = ClientUuid(library::random().unwrap());
                let hello = hello(Credential::Store, ("up", 0), client);
                send_handshake(&mut stream, FrameKind::Hello, &hello).ok();
            }
            connections.push(stream);
            count += 1;
            if connections.len() > 4000 {
                connections.clear();
            }
        }
        count
    };
    let began = Instant::now();
    let counts = std::thread::scope(|scope| {
        let silent = scope.spawn(|| flood(false));
        let handshake = scope.spawn(|| flood(true));
        for round in 0..5 {
            let listed = must(&mut fixture.lanefs(["ls", "--export", "up", &up.url("/")]));
            assert_eq!(listed, "", "nothing is left of what came before");
            work(&up, round);
            let mount = fixture.mount(&up.address, &format!("late-{round}"), &["--export", "up"]);
            assert!(fs::read_dir(&mount.dir).unwrap().next().is_none());
            mount.stop();
        }
        over.store(true, Ordering::Relaxed);
        [silent.join().unwrap(), handshake.join().unwrap()]
    });
    println!("floods of {counts:?}");
    let said = up.stop();
    assert!(said.contains("a connection was closed that proved nothing, of 256 such"), "{said}");
    // A line a second and lane, of each limit that was met.
    let line_count_max = 100 + 20 * began.elapsed().as_secs();
    assert!(u64::try_from(said.lines().count()).unwrap() < line_count_max, "{said}");
}

/// Eight clients ask for all they may and read nothing: with checksums, so that it is in memory.
#[test]
fn a_client_that_reads_nothing_does_not_block_others() {
    let Some(fixture) = Fixture::new("deaf") else { return };
    let mut up = fixture.up(&["--checksum-reads", "--lanes", "1"]);
    let secret = secret(&fixture);
    let bytes = vec![3; 1 << 20];
    fs::write(up.dir.join("large"), &bytes).unwrap();
    let inode = library_inode(&fixture, &up, "large");
    let server = up.child("serve");
    let before = resident_bytes(server);
    let mut deaf: Vec<Raw> = (0..8).map(|_| stranger(&up, &secret, 0)).collect();
    for raw in &mut deaf {
        let shard = raw.map.data_shard(inode, 0);
        let read = Read { inode, file_offset: 0, read_bytes: 1 << 20, accesses: false };
        for _ in 0..raw.credits {
            raw.send(Op::Read, shard, |to| read.encode(to));
        }
    }
    for round in 0..20 {
        work(&up, round);
        assert!(fs::read(up.dir.join("large")).unwrap() == bytes);
    }
    let held = resident_bytes(server).saturating_sub(before);
    assert!(held < 512 << 20, "{held} bytes are held for those who read nothing");
    up.process.line_with("a client did not read what it asked for: its connection was closed");
    assert!(fs::read(up.dir.join("large")).unwrap() == bytes);
    up.stop();
}

/// The number that the server knows a file by.
fn library_inode(fixture: &Fixture, up: &Up, name: &str) -> InodeNo {
    let mut volume = crate::idle::connect(fixture, &up.address);
    volume.stat(format!("/{name}").as_ref()).unwrap().inode
}
