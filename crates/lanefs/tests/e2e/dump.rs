//! `lanefs dump` and `lanefs restore`: a store goes into lines and comes back as it was.

use crate::fixture::{Fixture, failure, must, program, run};
use rustix::process::Signal;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

fn dump(fixture: &Fixture, store: &Path) -> String {
    must(fixture.lanefs(["dump"]).arg(store))
}

/// The metadata of a tree; times are left out where reading changes them.
fn tree(dir: &Path) -> String {
    let format = "%P %y %m %U %G %n %s %T@ %l\\n";
    let mut find = program("find");
    let listed = must(find.arg(dir).args(["-printf", format]));
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn a_store_comes_back_with_contents_and_all_attributes() {
    let Some(fixture) = Fixture::new("dump_restores") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let dir = &mount.dir;
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/file"), vec![3; 70_000]).unwrap();
    fs::write(dir.join("long"), vec![4; 70 * 65_536]).unwrap();
    fs::hard_link(dir.join("a/file"), dir.join("a/b/other")).unwrap();
    fs::write(dir.join(std::ffi::OsStr::from_bytes(b"a/no\xfftext")), b"x").unwrap();
    std::os::unix::fs::symlink("../nowhere", dir.join("a/link")).unwrap();
    fs::set_permissions(dir.join("a/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(dir.join("a/b"), Some(1234), Some(5678)).unwrap();
    must(program("setfattr").args(["-n", "user.colour", "-v", "blue"]).arg(dir.join("a/file")));
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"far", 900 << 20).unwrap();
    drop(sparse);
    must(
        fixture
            .lanefs(["export", "add", &server.address, "part", "/a", "--read-only"])
            .args([] as [&str; 0]),
    );
    let before = tree(dir);
    mount.stop();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0));

    let lines = dump(&fixture, &fixture.path("store"));
    assert!(lines.starts_with("{\"type\":\"dump\",\"version\":4,"), "{lines}");
    assert!(lines.contains("\"name_hex\":\"6e6fff74657874\""), "a name that is no text");
    let sums = lines.lines().find(|line| line.starts_with("{\"type\":\"sums\",\"first_block\":64"));
    assert_eq!(sums.unwrap().matches("00000100").count(), 6, "whole blocks: {sums:?}");
    let file = fixture.path("store.jsonl");
    fs::write(&file, &lines).unwrap();
    fs::rename(fixture.path("store"), fixture.path("old")).unwrap();
    let mut restore = fixture.lanefs(["restore"]);
    must(
        restore
            .arg(&file)
            .arg(fixture.path("store"))
            .arg("--contents")
            .arg(fixture.path("old/objects")),
    );
    must(fixture.lanefs(["check"]).arg(fixture.path("store")));
    // The same, checksums too, but for who the store is and which sessions there were.
    let retained = |lines: &str| {
        let left_out =
            ["dump", "session", "slot", "store", "recovered", "end", "evicted", "evicted_last"];
        let is_retained = |line: &&str| {
            !left_out.iter().any(|kind| line.starts_with(&format!("{{\"type\":\"{kind}\"")))
        };
        // Terms begin anew.
        let anew = |line: &str| line.replace("\"term\":1,", "\"term\":0,");
        lines.lines().filter(is_retained).map(anew).collect::<Vec<_>>()
    };
    assert_eq!(retained(&dump(&fixture, &fixture.path("store"))), retained(&lines));

    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "again", &["--export", "up"]);
    assert_eq!(tree(&mount.dir), before);
    assert_eq!(fs::read(mount.dir.join("a/b/other")).unwrap(), vec![3; 70_000]);
    let far = must(
        program("getfattr")
            .args(["--only-values", "-n", "user.colour"])
            .arg(mount.dir.join("a/file")),
    );
    assert_eq!(far, "blue");
    assert!(fs::metadata(mount.dir.join("sparse")).unwrap().blocks() < 10_000, "holes stay holes");
    let exports = must(&mut fixture.lanefs(["export", "list", &server.address]));
    assert!(exports.contains("part"), "{exports}");
    fs::write(mount.dir.join("a/new"), b"goes on").unwrap();
    mount.stop();
}

#[test]
fn without_contents_files_have_their_sizes() {
    let Some(fixture) = Fixture::new("dump_zeros") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    fs::write(mount.dir.join("file"), vec![3; 70_000]).unwrap();
    mount.stop();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0));
    let file = fixture.path("store.jsonl");
    fs::write(&file, dump(&fixture, &fixture.path("store"))).unwrap();
    fs::rename(fixture.path("store"), fixture.path("old")).unwrap();
    must(fixture.lanefs(["restore"]).arg(&file).arg(fixture.path("store")).arg("--zeros"));
    must(fixture.lanefs(["check"]).arg(fixture.path("store")));
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "again", &["--export", "up"]);
    assert_eq!(fs::read(mount.dir.join("file")).unwrap(), vec![0; 70_000]);
    mount.stop();
}

#[test]
fn what_is_no_whole_dump_makes_no_store() {
    let Some(fixture) = Fixture::new("dump_broken") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0));
    let lines = dump(&fixture, &fixture.path("store"));
    let cut: String = lines.split_inclusive('\n').take(2).collect();
    let other = lines.replace("\"version\":4,", "\"version\":99,");
    let removed = lines.replacen("{\"type\":\"shard\"", "\n{\"type\":\"shard\"", 1);
    let removed: Vec<&str> = removed.split("\n\n").collect();
    let (_, rest) = removed[1].split_once('\n').unwrap();
    let changed = lines.replacen("\"uid\":0,", "\"uid\":1,", 1);
    assert_ne!(changed, lines);
    let cases = [
        (cut, "ends before its last line"),
        (other, "version 99"),
        (format!("{}\n{rest}", removed[0]), "lines before this one"),
        (changed, "the dump was changed"),
        (format!("{lines}{{}}\n"), "goes on behind its last line"),
        (lines.replace("\"inode\":1,", "\"inode\":\"one\","), "line 2"),
    ];
    for (lines, why) in cases {
        let file = fixture.path("dump.jsonl");
        fs::write(&file, lines).unwrap();
        let new = fixture.path("new");
        drop(fs::remove_dir_all(fixture.path("new.unfinished")));
        let output = run(fixture.lanefs(["restore", "--zeros"]).arg(&file).arg(&new));
        let (code, said) = failure(&output);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!new.exists(), "there is no store");
    }
}
