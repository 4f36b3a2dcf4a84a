//! Copies into directories with symbolic links: nothing is written through the links.

use crate::fixture::{Fixture, failure, must, texts};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// What links lead to, and must stay as it is.
fn set_bait(dir: &Path) {
    fs::create_dir(dir.join("bait")).unwrap();
    fs::write(dir.join("bait/file"), "bait").unwrap();
    fs::set_permissions(dir.join("bait/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(dir.join("bait"), fs::Permissions::from_mode(0o711)).unwrap();
}

fn check_bait(dir: &Path, what: &str) {
    let mode = |path: &str| fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(fs::read_dir(dir.join("bait")).unwrap().count(), 1, "{what}");
    assert_eq!(fs::read_to_string(dir.join("bait/file")).unwrap(), "bait", "{what}");
    assert_eq!((mode("bait"), mode("bait/file")), (0o711, 0o600), "{what}");
}

/// A place to copy into: `to/tree` has links at names that the copy has as well.
fn make_links(dir: &Path) {
    fs::create_dir_all(dir.join("to/tree/sub")).unwrap();
    for (name, to) in [
        ("to/tree/file", "../../bait/file"),
        ("to/tree/dangling", "../../bait/made"),
        ("to/tree/dir", "../../bait"),
        ("to/tree/link", "../../bait/file"),
        ("to/tree/sub/dir", "../../../bait"),
        ("to/alone", "../bait/file"),
        ("to/nothing", "../bait/made"),
    ] {
        symlink(to, dir.join(name)).unwrap();
    }
}

fn make_original(dir: &Path) {
    for path in ["tree/dir", "tree/sub/dir"] {
        fs::create_dir_all(dir.join(path)).unwrap();
    }
    for path in ["tree/file", "tree/dangling", "tree/dir/file", "tree/sub/dir/file", "alone"] {
        fs::write(dir.join(path), "copied").unwrap();
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o644)).unwrap();
    }
    symlink("file", dir.join("tree/link")).unwrap();
}

#[test]
fn a_copy_writes_through_no_link_that_lies_at_its_target() {
    let Some(fixture) = Fixture::new("cp_links") else { return };
    let up = fixture.up(&[]);
    let host = fixture.make_dir("host");
    let here = fixture.make_dir("from");
    make_original(&here);
    must(fixture.lanefs(["cp", "-r", "--export", "up"]).arg(&here).arg(up.url("/from")));
    for dir in [&host, &up.dir] {
        set_bait(dir);
        make_links(dir);
    }
    let path = |dir: &Path, name: &str| dir.join(name).to_str().unwrap().to_owned();
    for options in ["-r", "-rp"] {
        for (from, to, dir) in [
            (path(&here, "tree"), up.url("/to"), &up.dir),
            (up.url("/from/tree"), path(&host, "to"), &host),
            (up.url("/from/tree"), up.url("/to"), &up.dir),
        ] {
            let what = format!("{options} {from} {to}");
            let copied = fixture.run(["cp", options, "--export", "up", &from, &to]);
            let (code, stderr) = (copied.status.code(), texts(&copied).1);
            for part in ["/tree/file': remove it", "/tree/dangling': remove it", "non-directory"] {
                assert!(code == Some(1) && stderr.contains(part), "{what}: {stderr}");
            }
            check_bait(dir, &what);
            let link = fs::read_link(dir.join("to/tree/link")).unwrap();
            assert_eq!(link, Path::new("file"), "{what}: a link is replaced by a link");
        }
    }
    for name in ["alone", "nothing"] {
        for (from, to, dir) in [
            (path(&here, "alone"), up.url(&format!("/to/{name}")), &up.dir),
            (up.url("/from/alone"), path(&host, &format!("to/{name}")), &host),
        ] {
            let copied = fixture.run(["cp", "--export", "up", &from, &to]);
            let (code, stderr) = failure(&copied);
            assert_eq!(code, 1, "{to}: {stderr}");
            assert!(stderr.contains("not writing through symbolic link"), "{to}: {stderr}");
            check_bait(dir, &to);
        }
    }
    // What people name as DEST is followed, as long as it is a directory.
    symlink("to", host.join("named")).unwrap();
    let named = path(&host, "named");
    fs::remove_file(host.join("to/alone")).unwrap();
    must(&mut fixture.lanefs(["cp", "--export", "up", &up.url("/from/alone"), &named]));
    assert_eq!(fs::read_to_string(host.join("to/alone")).unwrap(), "copied");
    up.stop();
}
