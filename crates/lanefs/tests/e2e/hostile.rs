//! Bad input: garbage on the port, names that are too long, a disk that is full.

use crate::fixture::{Fixture, PATIENCE, must, program};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

#[test]
fn garbage_on_the_port_disturbs_no_client() {
    let Some(fixture) = Fixture::new("garbage") else { return };
    let up = fixture.up(&[]);
    let original = fixture.make_dir("original");
    for number in 0..300 {
        let text = format!("{number}\n").repeat(100 * (number % 7));
        fs::write(original.join(format!("file{number}")), text).unwrap();
    }
    let mut copy = program("cp");
    let mut copy = copy.arg("-r").arg(&original).arg(up.dir.join("copy")).spawn().unwrap();
    let mut prng = fastrand::Rng::with_seed(1);
    let mut closed_count = 0;
    for round in 0..200 {
        let mut stream = TcpStream::connect(&up.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes: Vec<u8> = Vec::new();
        if round % 3 == 1 {
            // The right beginning, nonsense behind it.
            bytes.extend(b"LNFS\x01\x01\0\0");
        }
        let random_count = prng.usize(96..3096);
        bytes.extend((0..random_count).map(|_| prng.u8(..)));
        // The server may close before it has read everything.
        let written = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let closed = written.is_err() || stream.read_to_end(&mut answer).is_ok_and(|_| true);
        closed_count += usize::from(closed || answer.is_empty());
    }
    assert_eq!(closed_count, 200, "every such connection is closed");
    assert!(copy.wait().unwrap().success());
    must(program("diff").arg("-r").arg(&original).arg(up.dir.join("copy")));
    up.stop();
}

#[test]
fn a_name_that_is_too_long_is_refused_and_nothing_else() {
    let Some(fixture) = Fixture::new("long_names") else { return };
    let up = fixture.up(&[]);
    let longest = "n".repeat(255);
    fs::write(up.dir.join(&longest), "fits").unwrap();
    let errno = |error: std::io::Error| error.raw_os_error().unwrap();
    let too_long = "n".repeat(256);
    assert_eq!(errno(fs::write(up.dir.join(&too_long), "").unwrap_err()), 36);
    assert_eq!(errno(fs::create_dir(up.dir.join(&too_long)).unwrap_err()), 36);
    assert_eq!(errno(fs::rename(up.dir.join(&longest), up.dir.join(&too_long)).unwrap_err()), 36);
    let target = "t".repeat(4095);
    std::os::unix::fs::symlink(&target, up.dir.join("link")).unwrap();
    assert_eq!(fs::read_link(up.dir.join("link")).unwrap().as_os_str().len(), 4095);
    assert_eq!(fs::read_to_string(up.dir.join(&longest)).unwrap(), "fits");
    let output = fixture.run(["cat", "--export", "up", &up.url(&format!("/{too_long}"))]);
    assert_eq!(output.status.code(), Some(1));
    up.stop();
}

#[test]
fn a_full_disk_is_enospc_and_removing_helps() {
    let Some(fixture) = Fixture::new("full_disk") else { return };
    let disk = fixture.make_dir("disk");
    must(program("mount").args(["-t", "tmpfs", "-o", "size=96m", "lanefs-test"]).arg(&disk));
    let mounted = Tmpfs(disk.clone());
    let store = disk.join("store");
    let up = fixture.up(&["--store", store.to_str().unwrap()]);
    fs::write(up.dir.join("small"), "kept").unwrap();
    let piece = vec![7_u8; 1 << 20];
    let mut whole_count = 0;
    let mut full = None;
    let mut file = fs::File::create(up.dir.join("large")).unwrap();
    for _ in 0..200 {
        match file.write_all(&piece) {
            Ok(()) => whole_count += 1,
            Err(error) => {
                full = error.raw_os_error();
                break;
            }
        }
    }
    drop(file);
    assert_eq!(full, Some(28), "ENOSPC");
    assert!(whole_count > 10, "{whole_count} MiB fitted");
    assert_eq!(fs::read_to_string(up.dir.join("small")).unwrap(), "kept");
    fs::remove_file(up.dir.join("large")).unwrap();
    crate::fixture::until("there is space again", || {
        fs::write(up.dir.join("after"), vec![1; 1 << 20]).is_ok()
    });
    up.stop();
    let up = fixture.up(&["--store", store.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(up.dir.join("small")).unwrap(), "kept");
    assert_eq!(fs::metadata(up.dir.join("after")).unwrap().len(), 1 << 20);
    up.stop();
    drop(mounted);
}

/// A mounted tmpfs, while it is held.
pub(crate) struct Tmpfs(pub(crate) std::path::PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let lazily = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.0, lazily).ok();
    }
}
