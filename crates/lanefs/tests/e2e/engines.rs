//! Who reads and writes a server's files: every engine, through the page cache and past it, over kills.

use crate::fixture::{Fixture, PATIENCE, failure, kill, program, run, skip};
use crate::idle::secret;
use library::{ConnectOptions, OpenFor, Piece, Volume};
use ring::{DriverKind, IoEngine};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Clients that work at the same time.
const CLIENT_COUNT: u8 = 4;
/// Bytes of a client's part of the file that all write.
const PART_BYTES: usize = 20 * 4096;
/// Whole pages, and something behind them.
const OWN_BYTES: usize = 300_001;

/// Nobody of before comes back.
const SHORT: [&str; 8] =
    ["--lanes", "2", "--recovery-soft", "1ms", "--recovery-hard", "1s", "--leases", "off"];

/// Every engine that is to be had here, with what says whether it goes past the page cache.
fn ways(fixture: &Fixture, test: &str) -> Vec<(IoEngine, &'static str)> {
    let mut directs = vec!["off"];
    match ring::check_direct(File::open(fixture.path("")).unwrap()) {
        Ok(()) => directs.push("on"),
        Err(error) => skip(&format!("{test}: --io-direct on"), &error.to_string()),
    }
    let engines =
        IoEngine::ALL.into_iter().filter(|engine| engine.check(fixture.drivers.server).is_ok());
    engines.flat_map(|engine| directs.clone().into_iter().map(move |on| (engine, on))).collect()
}

/// A client that is root, and waits for its server.
pub(crate) fn connect(fixture: &Fixture, address: &str) -> Volume {
    let options = ConnectOptions {
        connect_timeout: PATIENCE,
        export: "up".to_owned(),
        ..ConnectOptions::new(address.parse().unwrap(), secret(fixture))
    };
    Volume::connect(&options).unwrap()
}

/// What a client writes in a round.
fn bytes_of(round: usize, client: u8, count: usize) -> Vec<u8> {
    let seed = round * 31 + usize::from(client) * 7 + 1;
    (0..count).map(|index| (index * seed / 3).to_le_bytes()[0] ^ seed.to_le_bytes()[0]).collect()
}

fn own_path(round: usize, client: u8) -> PathBuf {
    PathBuf::from(format!("/own-{round}-{client}"))
}

fn shared_path(round: usize) -> PathBuf {
    PathBuf::from(format!("/shared-{round}"))
}

/// Writes bytes to a place, page by page and all at a time, and makes them durable.
fn write(volume: &mut Volume, path: &Path, file_offset: usize, bytes: &[u8]) {
    let file = volume.open(path, OpenFor::Write).unwrap();
    let pieces: Vec<(u64, &[u8])> = bytes
        .chunks(4096)
        .enumerate()
        .map(|(index, piece)| ((file_offset + index * 4096) as u64, piece))
        .collect();
    volume.write_pieces(&file, &pieces).unwrap();
    volume.sync_file(&file).unwrap();
    volume.close(file).unwrap();
}

fn read(volume: &mut Volume, path: &Path, piece_bytes: u32) -> Vec<u8> {
    let file = volume.open(path, OpenFor::Read).unwrap();
    let size = file.attr.size_bytes;
    let offsets = (0..size).step_by(piece_bytes as usize);
    let pieces: Vec<Piece> =
        offsets.map(|file_offset| Piece { file_offset, piece_bytes }).collect();
    let bytes = volume.read_pieces(&file, &pieces).unwrap().concat();
    volume.close(file).unwrap();
    bytes
}

fn check(volume: &mut Volume, round: usize) {
    for client in 0..CLIENT_COUNT {
        let found = read(volume, &own_path(round, client), 4096);
        assert!(found == bytes_of(round, client, OWN_BYTES), "client {client} of round {round}");
    }
    let shared = read(volume, &shared_path(round), 1 << 16);
    let expected = (0..CLIENT_COUNT).map(|client| bytes_of(round, client, PART_BYTES));
    assert!(shared == expected.collect::<Vec<_>>().concat(), "what all wrote in round {round}");
}

#[test]
fn with_any_io_engine_a_kill_loses_nothing_acknowledged() {
    let Some(fixture) = Fixture::new("engines_kill") else { return };
    let ways = ways(&fixture, "engines_kill");
    for (round, (engine, direct)) in ways.iter().enumerate() {
        let io = ["--io-engine", engine.text(), "--io-direct", direct];
        let mut server = fixture.serve_with("127.0.0.1:0", &[&SHORT[..], &io].concat());
        let mut volume = connect(&fixture, &server.address);
        (0..round).for_each(|earlier| check(&mut volume, earlier));
        let shared = volume.create(&shared_path(round), 0o644, true).unwrap();
        volume.close(shared).unwrap();
        std::thread::scope(|scope| {
            for client in 0..CLIENT_COUNT {
                let (fixture, address) = (&fixture, &server.address);
                scope.spawn(move || {
                    let mut volume = connect(fixture, address);
                    let path = own_path(round, client);
                    let own = volume.create(&path, 0o644, true).unwrap();
                    volume.close(own).unwrap();
                    write(&mut volume, &path, 0, &bytes_of(round, client, OWN_BYTES));
                    let part = bytes_of(round, client, PART_BYTES);
                    write(
                        &mut volume,
                        &shared_path(round),
                        usize::from(client) * PART_BYTES,
                        &part,
                    );
                });
            }
        });
        check(&mut volume, round);
        let lanes = volume.stats().unwrap();
        let handed_count: u64 = lanes.iter().map(|lane| lane.objects.handed_count).sum();
        let under_way_max = lanes.iter().map(|lane| lane.objects.under_way_max).max().unwrap();
        let one_max = lanes.iter().map(|lane| lane.objects.under_way_one_max).max().unwrap();
        assert!(one_max >= 1 && one_max <= under_way_max, "{one_max} of {under_way_max}");
        let hands = match engine {
            IoEngine::PosixAio | IoEngine::ThreadPerOp | IoEngine::Pool => true,
            IoEngine::Auto => {
                fixture.drivers.server == DriverKind::Epoll && (*direct == "on" || handed_count > 0)
            }
            IoEngine::Uring | IoEngine::Inline => false,
        };
        assert_eq!(handed_count > 0, hands, "{}, {direct}", engine.text());
        kill(server.process.pid());
        server.process.end();
    }
    let server = fixture.serve_with("127.0.0.1:0", &SHORT);
    let mut volume = connect(&fixture, &server.address);
    (0..ways.len()).for_each(|round| check(&mut volume, round));
}

/// A mount that goes with the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

#[test]
fn a_file_system_that_has_no_way_past_the_page_cache_is_named_at_the_start() {
    let Some(fixture) = Fixture::new("engines_ramfs") else { return };
    let dir = fixture.make_dir("ramfs");
    let mut mount = program("mount");
    let mounted = run(mount.args(["-t", "ramfs", "none"]).arg(&dir));
    if !mounted.status.success() {
        return skip("engines_ramfs", "no ramfs can be mounted here");
    }
    let mounted = Mounted(dir);
    let mut command = fixture.lanefs(["serve", "--listen", "127.0.0.1:0", "--io-direct", "on"]);
    let (code, said) = failure(&run(command.arg("--store").arg(mounted.0.join("store"))));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("takes no O_DIRECT") && said.contains("--io-direct"), "{said}");
}

#[test]
fn an_engine_that_cannot_be_had_or_does_not_exist_is_refused() {
    let Some(fixture) = Fixture::new("engines_refused") else { return };
    let store = fixture.path("store");
    let store = store.to_str().unwrap();
    let serve = |more: &[&str]| {
        let command = ["serve", "--store", store, "--listen", "127.0.0.1:0"];
        failure(&run(&mut fixture.lanefs([&command[..], more].concat())))
    };
    let (code, said) = serve(&["--io-engine", "uring", "--driver", "epoll"]);
    assert_eq!(code, 1, "{said}");
    for part in ["uring needs lanes on io_uring", "--io-engine auto", "--driver io-uring"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for more in [["--io-engine", "threads"], ["--io-direct", "maybe"]] {
        let (code, said) = serve(&more);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(more[1]), "{said}");
    }
    let mut command = fixture.lanefs(["serve", "--store", store, "--listen", "127.0.0.1:0"]);
    let (code, said) = failure(&run(command.env("LANEFS_IO_ENGINE", "none")));
    assert_eq!(code, 2, "{said}");
    assert!(!Path::new(store).exists(), "nothing was made");
}
