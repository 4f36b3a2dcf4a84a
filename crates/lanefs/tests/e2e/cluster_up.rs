//! `lanefs up --servers N`: a cluster on one machine from one command.

use crate::fixture::{
    Fixture, Up, failure, has_etcd, is_alive, is_mounted, kill, must, run, until,
};
use procfs::process::all_processes;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// `None`, said aloud, where etcd is not installed, or nothing can be mounted.
fn fixture(test: &str) -> Option<Fixture> {
    let fixture = Fixture::new(test)?;
    has_etcd(test).then_some(fixture)
}

/// The processes below `up` whose command line has this word.
fn children(up: &Up, word: &OsStr) -> Vec<u32> {
    let parent = i32::try_from(up.process.pid()).unwrap();
    let all = all_processes().unwrap().flatten();
    let found = all.filter(|process| {
        process.stat().is_ok_and(|stat| stat.ppid == parent && stat.state != 'Z')
            && process
                .cmdline()
                .is_ok_and(|line| line.iter().any(|found| OsStr::new(found) == word))
    });
    found.map(|process| process.pid().unsigned_abs()).collect()
}

#[track_caller]
fn child(up: &Up, word: impl AsRef<OsStr>) -> u32 {
    let found = children(up, word.as_ref());
    assert_eq!(found.len(), 1, "{:?}", word.as_ref());
    found[0]
}

/// Directories with a file each, durable; how many servers have some of them.
fn fill(dir: &Path) -> usize {
    const SHARD_COUNT: u16 = 64;
    let mut servers: Vec<u16> = Vec::new();
    for number in 0..48 {
        let path = dir.join(format!("dir{number}"));
        fs::create_dir(&path).unwrap();
        let file = path.join("file");
        fs::write(&file, number.to_string()).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        let inode = wire::InodeNo(fs::metadata(&path).unwrap().ino());
        servers.push(inode.shard().index() / SHARD_COUNT);
    }
    servers.sort_unstable();
    servers.dedup();
    servers.len()
}

#[track_caller]
fn check(dir: &Path) {
    for number in 0..48 {
        let file = dir.join(format!("dir{number}/file"));
        assert_eq!(fs::read_to_string(file).unwrap(), number.to_string());
    }
}

#[test]
fn three_servers_come_from_one_command_and_leave_nothing_behind() {
    let Some(fixture) = fixture("cluster_up") else { return };
    let store = fixture.path("mnt.lanefs");
    // What one server had stays where it is.
    let alone = fixture.up(&["--lanes", "1"]);
    fs::write(alone.dir.join("before"), "before").unwrap();
    alone.stop();
    let mut up = fixture.up(&["--lanes", "2", "--servers", "3"]);
    let dir = up.dir.clone();
    assert_eq!(fs::read_to_string(dir.join("before")).unwrap(), "before");
    assert_eq!(fill(&dir), 3, "directories are on all servers");
    for place in [&store, &dir] {
        let servers = must(fixture.lanefs(["servers"]).arg(place));
        assert_eq!(servers.lines().filter(|line| line.contains(" up ")).count(), 3, "{servers}");
    }
    // Two die at once. Programs that need them wait.
    let second = fixture.path("mnt.lanefs-2");
    for store in [&store, &second] {
        kill(child(&up, store));
    }
    up.process.line_with("running again");
    up.process.line_with("running again");
    check(&dir);
    let said = up.process.said();
    for name in ["server 1", "server 2"] {
        assert!(
            said.contains(&format!("{name} was killed by signal 9; starting it again")),
            "{said}"
        );
    }
    // So does etcd; files are served meanwhile.
    kill(child(&up, "etcd"));
    check(&dir);
    up.process.line_with("etcd has ended; starting it again");
    until("etcd answers", || {
        fixture.run([OsStr::new("servers"), store.as_os_str()]).status.success()
    });
    let etcd = child(&up, "etcd");
    let servers = children(&up, OsStr::new("serve"));
    assert_eq!(servers.len(), 3);
    up.stop();
    assert!(!is_alive(etcd) && !servers.iter().any(|pid| is_alive(*pid)));
    // As many as before, on their data.
    let up = fixture.up(&["--lanes", "1"]);
    check(&dir);
    assert_eq!(children(&up, OsStr::new("serve")).len(), 3);
    up.stop();
    let refused = run(fixture.lanefs(["up", "--servers", "2"]).arg(&dir));
    let (code, said) = failure(&refused);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("has 3 servers already"), "{said}");
}

#[test]
fn down_and_the_death_of_up_end_servers_and_etcd() {
    let Some(fixture) = fixture("cluster_up_down") else { return };
    let up = fixture.up(&["--lanes", "1", "--servers", "2"]);
    let dir = up.dir.clone();
    fs::write(dir.join("file"), "contents").unwrap();
    fs::File::open(dir.join("file")).unwrap().sync_all().unwrap();
    let all = |up: &Up| {
        let words = ["serve", "mount", "etcd"].map(OsStr::new);
        words.into_iter().flat_map(|word| children(up, word)).collect::<Vec<u32>>()
    };
    let processes = all(&up);
    assert_eq!(processes.len(), 4, "{processes:?}");
    must(fixture.lanefs(["down"]).arg(&dir));
    assert!(!processes.iter().any(|pid| is_alive(*pid)), "{processes:?}");
    assert!(!is_mounted(&dir));
    drop(up);
    let mut up = fixture.up(&["--lanes", "1", "--servers", "2"]);
    let processes = all(&up);
    kill(up.process.pid());
    up.process.end();
    until("all have ended", || !processes.iter().any(|pid| is_alive(*pid)));
    // The servers wait until etcd has forgotten their last start, some seconds.
    let up = fixture.up(&["--lanes", "1"]);
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "contents");
    up.stop();
}

#[test]
fn without_etcd_it_says_what_to_install() {
    let Some(fixture) = Fixture::new("cluster_up_no_etcd") else { return };
    let empty = fixture.make_dir("empty");
    let mut command = fixture.lanefs(["up", "--servers", "2", "--listen", "127.0.0.1:0"]);
    let (code, said) = failure(&run(command.arg(fixture.path("mnt")).env("PATH", empty)));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("apt install etcd-server"), "{said}");
    let mut command = fixture.lanefs(["up", "--servers", "2", "--listen", "0.0.0.0:0"]);
    let (code, said) = failure(&run(command.arg(fixture.path("mnt"))));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("name one address"), "{said}");
}
