//! Server and mount are killed together in the middle of writes that nobody synced: an aligned page has
//! the bytes of one of them, an append is whole or absent. `cargo xtask crash --scenario torn` cuts the
//! power as well.

use crate::fixture::{Fixture, kill, until};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;
/// Less than the kernel puts into one request.
const WRITE_BYTES: usize = (1 << 20) - PAGE_BYTES;
const RECORD_BYTES: usize = 100_000;

#[test]
fn a_kill_of_server_and_mount_mixes_no_page_and_tears_no_append() {
    let Some(fixture) = Fixture::new("torn") else { return };
    // Nobody comes back, so nobody is waited for.
    let more = ["--recovery-soft", "1ms", "--leases", "off"];
    let mut server = fixture.serve_with("127.0.0.1:0", &more);
    let listen = server.address.clone();
    for round in 0..3 {
        let mount = fixture.mount(&listen, &format!("mnt{round}"), &["--export", "up"]);
        let paths = ["a", "b", "log"].map(|name| mount.dir.join(format!("{name}{round}")));
        for path in &paths[..2] {
            fs::write(path, vec![0; WRITE_BYTES]).unwrap();
            File::open(path).unwrap().sync_all().unwrap();
        }
        let begun = [(); 3].map(|()| AtomicU64::new(0));
        std::thread::scope(|scope| {
            for (index, (path, begun)) in paths.iter().zip(&begun).enumerate() {
                let appends = index == 2;
                let open = File::options().write(true).append(appends).create(appends).open(path);
                let mut file = open.unwrap();
                scope.spawn(move || {
                    loop {
                        let number = begun.fetch_add(1, Ordering::Relaxed) + 1;
                        let written = if appends {
                            file.write(&number.to_le_bytes().repeat(RECORD_BYTES / 8)).map(drop)
                        } else {
                            file.write_all_at(&number.to_le_bytes().repeat(WRITE_BYTES / 8), 0)
                        };
                        if written.is_err() {
                            // The mount is dead.
                            break;
                        }
                    }
                });
            }
            until("all have written", || begun.iter().all(|it| it.load(Ordering::Relaxed) > 5));
            let pids = [server.process.pid(), mount.process.pid()];
            pids.into_iter().for_each(kill);
            server.process.end();
            // Takes the dead mount away.
            drop(mount);
        });
        server = fixture.serve_with(&listen, &more);
        let mount = fixture.mount(&listen, &format!("look{round}"), &["--export", "up"]);
        let read = |name: &str| fs::read(mount.dir.join(format!("{name}{round}"))).unwrap();
        for name in ["a", "b"] {
            let bytes = read(name);
            assert_eq!(bytes.len(), WRITE_BYTES);
            for (page_no, page) in bytes.chunks(PAGE_BYTES).enumerate() {
                let mut words = page.chunks(8);
                let first = words.next().unwrap();
                assert!(words.all(|word| word == first), "page {page_no} of {name}{round}");
            }
        }
        let records = read("log");
        assert!(records.len().is_multiple_of(RECORD_BYTES), "{} bytes", records.len());
        for (number, record) in (1_u64..).zip(records.chunks(RECORD_BYTES)) {
            assert!(record.chunks(8).all(|word| word == number.to_le_bytes()), "record {number}");
        }
        mount.stop();
    }
    server.process.signal(rustix::process::Signal::TERM);
    assert!(server.process.end().success());
}
