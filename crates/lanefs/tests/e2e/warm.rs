//! `lanefs warm`: what it reads ahead costs no request later, what it leaves alone, and how it ends.

use crate::fixture::{Fixture, Mount, Process, failure, must, program, run, until, wrap};
use crate::idle::connect;
use crate::leases::{Counting, LEASES};
use crate::top::Pane;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

const DIR_COUNT: usize = 10;
const FILE_COUNT: usize = 10;
const FILE_BYTES: usize = 10_000;
/// One or two requests of a listing were seen after the first `warm`, of unknown cause; a tree that is
/// not known takes more than a hundred.
const SPARE_COUNT: u64 = DIR_COUNT as u64 + 1;

/// One lane: with more, one that is asked for what another has a lease of may ask for its own.
fn mount(fixture: &Fixture, address: &str, name: &str) -> Mount {
    fixture.mount(address, name, &[&LEASES[..], &["--lanes", "1"]].concat())
}

/// A mount that has made a tree.
fn maker(fixture: &Fixture, address: &str) -> Mount {
    let maker = mount(fixture, address, "maker");
    for dir in 0..DIR_COUNT {
        let dir = maker.dir.join(format!("tree/d{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..FILE_COUNT {
            fs::write(dir.join(format!("f{file}")), vec![7; FILE_BYTES]).unwrap();
        }
        symlink("f0", dir.join("link")).unwrap();
    }
    fs::create_dir(maker.dir.join("probe")).unwrap();
    maker
}

/// Waits until the server grants leases to a mount.
fn granted(mount: &Mount, counting: &mut Counting) {
    until("the server grants leases", || {
        let before = counting.now().0;
        fs::metadata(mount.dir.join("probe")).unwrap();
        counting.now().0 == before
    });
}

fn list(tree: &Path) {
    let listed = must(program("ls").arg("-lR").arg(tree));
    assert_eq!(listed.matches("-rw").count(), DIR_COUNT * FILE_COUNT);
}

fn read(tree: &Path) {
    for dir in 0..DIR_COUNT {
        for file in 0..FILE_COUNT {
            let path = tree.join(format!("d{dir}/f{file}"));
            assert_eq!(fs::read(path).unwrap().len(), FILE_BYTES);
        }
    }
}

#[test]
fn what_is_warm_costs_no_request() {
    let Some(fixture) = Fixture::new("warm_counts") else { return };
    // Each lane grants once it has recorded a session of the mount, and the probe is of one.
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s", "--lanes", "1"]);
    let maker = maker(&fixture, &server.address);
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    // The attributes of a file get a lease once its size has moved to the metadata shard, which no
    // request waits for.
    until("all sizes have moved", || {
        let before = counting.now().0;
        list(&maker.dir.join("tree"));
        counting.now().0 == before
    });
    maker.stop();
    // It knows nothing of the tree.
    let mount = mount(&fixture, &server.address, "mnt");
    granted(&mount, &mut counting);
    let tree = mount.dir.join("tree");
    let shown = tree.to_str().unwrap();
    let said = must(&mut fixture.lanefs(["warm", "--names-only", shown]));
    let sums = "11 directories, 100 files, 10 others, ";
    assert!(said.starts_with(&format!("{shown}: {sums}0 B read in ")), "{said}");
    let (before, read_before) = counting.now();
    list(&tree);
    let (after, read_after) = counting.now();
    assert!(after - before <= SPARE_COUNT, "{} requests of a listing", after - before);
    assert_eq!(read_after, read_before);
    let said = must(&mut fixture.lanefs(["warm", shown]));
    assert!(said.contains(sums) && said.contains("976.56 KiB read"), "{said}");
    assert!(said.ends_with("0 failures\n"), "{said}");
    let (before, read_before) = counting.now();
    // A file may be read ahead while it is being read.
    let (all_bytes, read_bytes) =
        ((DIR_COUNT * FILE_COUNT * FILE_BYTES) as u64, read_before - read_after);
    assert!((all_bytes..all_bytes / 10 * 11).contains(&read_bytes), "{read_bytes} bytes");
    list(&tree);
    read(&tree);
    let (after, read_after) = counting.now();
    assert!(after - before <= SPARE_COUNT, "{} requests of reading again", after - before);
    assert_eq!(read_after, read_before, "no byte is read again");
    until("nothing is asked for", || {
        must(&mut fixture.lanefs(["warm", shown]));
        let before = counting.now();
        list(&tree);
        read(&tree);
        counting.now() == before
    });
    drop(counting);
    mount.stop();
}

#[test]
fn links_and_other_file_systems_are_left_alone() {
    let Some(fixture) = Fixture::new("warm_bounds") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &LEASES);
    let outside = fixture.make_dir("outside");
    fs::write(outside.join("f"), "outside").unwrap();
    let dir = mount.dir.join("dir");
    fs::create_dir_all(dir.join("below")).unwrap();
    symlink(&outside, dir.join("link")).unwrap();
    symlink("..", dir.join("circle")).unwrap();
    fs::write(dir.join("f"), "four").unwrap();
    must(program("mount").arg("--bind").arg(&outside).arg(dir.join("below")));
    let said = must(fixture.lanefs(["warm"]).arg(&dir));
    must(program("umount").arg(dir.join("below")));
    let sums = "1 directories, 1 files, 2 others, 4 B read in ";
    assert!(said.contains(sums), "{said}");
    assert!(said.contains(", 1 on other file systems left alone, 0 failures"), "{said}");
    // A file by itself, and several paths.
    let said = must(fixture.lanefs(["warm"]).args([&dir.join("f"), &dir.join("below")]));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("0 directories, 1 files, 0 others, 4 B"), "{said}");
    assert!(lines[1].contains("1 directories, 0 files, 0 others, 0 B"), "{said}");
    // What is no mount of lanefs is refused, what does not exist as well; the rest is done.
    let refused = |paths: &[&PathBuf], says: &str| {
        let output = run(fixture.lanefs(["warm"]).args(paths).arg(dir.join("f")));
        let (code, line) = failure(&output);
        assert!(code == 1 && line.contains(says), "{code} {line}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    };
    refused(&[&outside], "does not lie on a mount of lanefs");
    refused(&[&dir.join("none")], "none: No such file");
    mount.stop();
    let mount = fixture.mount(&server.address, "off", &["--export", "up", "--leases", "off"]);
    let (code, line) = failure(&run(fixture.lanefs(["warm"]).arg(&mount.dir)));
    assert!(code == 1 && line.contains("--leases off"), "{code} {line}");
    mount.stop();
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_read() {
    let Some(fixture) = Fixture::new("warm_failures") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &LEASES);
    let dir = mount.dir.join("dir");
    fs::create_dir_all(dir.join("closed")).unwrap();
    fs::write(dir.join("f"), "four").unwrap();
    fs::write(dir.join("g"), "four").unwrap();
    must(program("chmod").arg("711").arg(dir.join("closed")));
    must(program("chmod").arg("600").arg(dir.join("g")));
    let mut as_nobody = program("setpriv");
    as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let mut warm = fixture.lanefs(["warm"]);
    warm.arg(&dir);
    let output = run(&mut wrap(as_nobody, warm));
    let (code, line) = failure(&output);
    assert_eq!(code, 1, "{line}");
    for name in ["closed", "g"] {
        let path = dir.join(name);
        assert!(line.contains(&format!("{}: Permission denied", path.display())), "{line}");
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("2 directories, 2 files, 0 others, 4 B read"), "{said}");
    assert!(said.ends_with("2 failures\n"), "{said}");
    mount.stop();
}

#[test]
fn progress_is_shown_on_a_terminal() {
    let Some(fixture) = Fixture::new("warm_progress") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s", "--lanes", "1"]);
    maker(&fixture, &server.address).stop();
    let mount = mount(&fixture, &server.address, "mnt");
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    granted(&mount, &mut counting);
    let tree = mount.dir.join("tree");
    until("the tree itself is known", || {
        let before = counting.now().0;
        fs::metadata(&tree).unwrap();
        counting.now().0 == before
    });
    drop(counting);
    server.process.signal(Signal::STOP);
    let pane = Pane::running(&fixture, (160, 30), &["warm", tree.to_str().unwrap()]);
    // What is in the tree the server has to say.
    pane.wait("how far it has come", |screen| screen.contains(" directories, 0 files"));
    server.process.signal(Signal::CONT);
    let screen = pane.wait("the counts", |screen| screen.contains(" read in "));
    assert!(screen.contains("11 directories, 100 files, 10 others, 976.56 KiB"), "{screen}");
    pane.ended();
    mount.stop();
}

#[test]
fn it_ends_at_once_while_the_server_says_nothing() {
    let Some(fixture) = Fixture::new("warm_interrupted") else { return };
    let server = fixture.serve("127.0.0.1:0");
    maker(&fixture, &server.address).stop();
    let mount = mount(&fixture, &server.address, "mnt");
    server.process.signal(Signal::STOP);
    let tree = mount.dir.join("tree");
    let mut warm = Process::start(fixture.lanefs(["warm"]).arg(&tree));
    // Its threads, of which one catches signals.
    until("it has begun", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", warm.pid())).unwrap();
        tasks.count() >= 3
    });
    warm.signal(Signal::INT);
    let status = warm.end();
    server.process.signal(Signal::CONT);
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{}", warm.said());
    assert!(warm.said().contains("interrupted"), "{}", warm.said());
    read(&tree);
    mount.stop();
}
