//! `sync_server` beside a mount at work, which is killed behind it: everything that its programs had the
//! answer of when the sync began is there.

use crate::fixture::{Fixture, kill};
use crate::idle::connect;
use crate::leases::LEASES;
use crate::names_behind::deep;
use crate::seal::{Seen, pass_through, relay};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROUND_COUNT: u64 = 2;
const WRITER_COUNT: u64 = 4;
/// A writer goes on so long before the sync begins, in changes of all of them.
const CHANGE_COUNT: usize = 400;

/// What calls that have returned have written.
type Written = Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>;

/// Makes directories and files and appends to them, until the mount is killed.
fn write(top: &Path, written: &Written, seed: u64) -> io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut dir = top.to_path_buf();
    let mut open: Option<(PathBuf, File)> = None;
    for number in 0.. {
        let bytes = vec![rng.u8(..); rng.usize(1..6_000)];
        match rng.u8(..10) {
            0 => {
                dir = top.join(format!("d{seed}-{number}"));
                fs::create_dir(&dir)?;
            }
            1 | 2 => {
                let path = dir.join(format!("open{seed}-{number}"));
                open = Some((path.clone(), File::create_new(&path)?));
                written.lock().unwrap().insert(path, Vec::new());
            }
            3..=5 => {
                let Some((path, file)) = &mut open else { continue };
                file.write_all(&bytes)?;
                written.lock().unwrap().get_mut(path).unwrap().extend_from_slice(&bytes);
            }
            _ => {
                let path = dir.join(format!("f{seed}-{number}"));
                fs::write(&path, &bytes)?;
                written.lock().unwrap().insert(path, bytes);
            }
        }
    }
    Ok(())
}

/// The way to a server that is some milliseconds away, so that much waits in the mount.
fn pass_slowly(client: TcpStream, server: TcpStream, _: &Seen) {
    pass_through(client, server, |_| std::thread::sleep(Duration::from_millis(3)));
}

#[test]
fn what_programs_had_done_survives_their_mount() {
    let Some(fixture) = Fixture::new("synced_by_all") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "1s", "--leases", "on"]);
    let looker = fixture.mount(&server.address, "looker", &LEASES);
    for round in 0..ROUND_COUNT {
        let (address, _) = relay(&server, pass_slowly);
        let mount = fixture.mount(&address, &format!("mnt{round}"), &LEASES);
        let top = deep(&mount.dir).join(format!("round{round}"));
        fs::create_dir(&top).unwrap();
        let written = Written::default();
        let writers: Vec<_> = (0..WRITER_COUNT)
            .map(|number| {
                let (top, written) = (top.clone(), Arc::clone(&written));
                let seed = round * WRITER_COUNT + number;
                std::thread::spawn(move || write(&top, &written, seed))
            })
            .collect();
        while written.lock().unwrap().len() < CHANGE_COUNT {
            std::thread::yield_now();
        }
        let mut volume = connect(&fixture, &server.address);
        let before = written.lock().unwrap().clone();
        volume.sync_server().unwrap();
        kill(mount.process.pid());
        for writer in writers {
            let ended = writer.join().unwrap();
            assert!(ended.is_err(), "its mount was killed");
        }
        for (path, bytes) in before {
            let path = looker.dir.join(path.strip_prefix(&mount.dir).unwrap());
            let found = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(found.starts_with(&bytes), "{path:?}: {} of {}", found.len(), bytes.len());
        }
    }
    looker.stop();
    drop(server);
}
