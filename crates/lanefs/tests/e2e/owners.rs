//! `lanefs chmod`, `chown`, `ln` and `sync`.

use crate::fixture::{Fixture, Process, failure, kill, must, program, texts, until};
use crate::idle::connect;
use crate::leases::LEASES;
use crate::names_behind::deep;
use crate::seal::{pass_on, relay};
use library::Volume;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn chmod_reads_modes_as_chmod_does() {
    let Some(fixture) = Fixture::new("chmod") else { return };
    let up = fixture.up(&[]);
    let (ours, theirs) = (up.dir.join("ours"), fixture.path("theirs"));
    for root in [&ours, &theirs] {
        fs::create_dir_all(root.join("dir")).unwrap();
        fs::write(root.join("file"), "").unwrap();
    }
    for start in [0o644, 0o6755, 0o2770, 0o1777, 0] {
        for mode in [
            "640",
            "0",
            "7777",
            "00755",
            "u+rw,go-w",
            "a=r",
            "g=u",
            "o=g",
            "u=o",
            "+x",
            "=",
            "+t",
            "-w",
            "u+s",
            "g+s,u-s",
            "ug=rwX,o=",
            "a+X",
            "u=rwx,g=rx,o=x",
            "g=u-w",
            "a-s",
            "o+t",
            "u+x-w",
        ] {
            for name in ["file", "dir"] {
                for root in [&ours, &theirs] {
                    fs::set_permissions(root.join(name), fs::Permissions::from_mode(start))
                        .unwrap();
                }
                must(program("chmod").arg("--").arg(mode).arg(theirs.join(name)));
                let url = up.url(&format!("/ours/{name}"));
                must(&mut fixture.lanefs(["chmod", "--export", "up", "--", mode, &url]));
                let (found, wanted) = (mode_of(&ours.join(name)), mode_of(&theirs.join(name)));
                assert_eq!(found, wanted, "{mode} of {name} from {start:o}: {found:o} {wanted:o}");
            }
        }
    }
    up.stop();
}

#[test]
fn chmod_and_chown_go_through_trees_and_leave_what_links_point_to() {
    let Some(fixture) = Fixture::new("recursive") else { return };
    let up = fixture.up(&[]);
    let with = |arguments: &[&str]| {
        let mut all = vec![arguments[0], "--export", "up"];
        all.extend(&arguments[1..]);
        fixture.run(all)
    };
    fs::create_dir_all(up.dir.join("tree/below")).unwrap();
    fs::write(up.dir.join("tree/below/file"), "").unwrap();
    fs::write(up.dir.join("outside"), "").unwrap();
    std::os::unix::fs::symlink("../outside", up.dir.join("tree/link")).unwrap();
    std::os::unix::fs::symlink("none", up.dir.join("dangling")).unwrap();
    assert!(with(&["chmod", "-R", "u=rwX,go=", &up.url("/tree")]).status.success());
    assert_eq!(mode_of(&up.dir.join("tree/below")), 0o700);
    assert_eq!(mode_of(&up.dir.join("tree/below/file")), 0o600);
    assert_eq!(mode_of(&up.dir.join("outside")), 0o644);
    assert!(with(&["chmod", "604", &up.url("/tree/link")]).status.success(), "what it points to");
    assert_eq!(mode_of(&up.dir.join("outside")), 0o604);
    let ids = |name: &str| {
        let found = fs::symlink_metadata(up.dir.join(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert!(with(&["chown", "-R", "12:34", &up.url("/tree")]).status.success());
    let all = ["tree", "tree/below", "tree/below/file", "tree/link"];
    assert_eq!(all.map(ids), [(12, 34); 4]);
    assert_eq!(ids("outside"), (0, 0));
    assert!(with(&["chown", "nobody", &up.url("/tree/link")]).status.success());
    assert_eq!((ids("outside"), ids("tree/link")), ((65_534, 0), (12, 34)));
    assert!(with(&["chown", "-h", ":root", &up.url("/tree/link")]).status.success());
    assert_eq!(ids("tree/link"), (12, 0));
    let (code, stderr) =
        failure(&with(&["chmod", "644", &up.url("/dangling"), &up.url("/outside")]));
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert_eq!(mode_of(&up.dir.join("outside")), 0o644, "it goes on after a failure");
    assert_eq!(failure(&with(&["chmod", "u+q", &up.url("/outside")])).0, 2);
    assert_eq!(failure(&with(&["chown", "no one", &up.url("/outside")])).0, 2);
    // Root is nobody on an export that was defined without --squash none, and may not chown.
    assert!(fixture.run(["export", "add", &up.address, "default", "/"]).status.success());
    let refused = fixture.run(["chown", "1", &up.url("/tree/below/file")]);
    let (code, stderr) = failure(&refused);
    assert_eq!((code, stderr.contains("ermi")), (1, true), "{stderr}");
    up.stop();
}

#[test]
fn ln_makes_names_and_links() {
    let Some(fixture) = Fixture::new("ln") else { return };
    let up = fixture.up(&[]);
    let ln = |arguments: &[&str]| fixture.run(["ln", "--export", "up"].iter().chain(arguments));
    fs::create_dir(up.dir.join("dir")).unwrap();
    fs::write(up.dir.join("file"), "1").unwrap();
    fs::write(up.dir.join("other"), "2").unwrap();
    assert!(ln(&[&up.url("/file"), &up.url("/dir/name")]).status.success());
    assert!(ln(&[&up.url("/file"), &up.url("/dir")]).status.success(), "into a directory");
    let links = |name: &str| fs::metadata(up.dir.join(name)).unwrap().nlink();
    assert_eq!((links("file"), links("dir/name"), links("dir/file")), (3, 3, 3));
    let (code, stderr) = failure(&ln(&[&up.url("/other"), &up.url("/dir/name")]));
    assert_eq!((code, stderr.contains("file exists")), (1, true), "{stderr}");
    assert!(ln(&["-f", &up.url("/other"), &up.url("/dir/name")]).status.success());
    assert_eq!(fs::read_to_string(up.dir.join("dir/name")).unwrap(), "2");
    assert!(ln(&["-f", &up.url("/other"), &up.url("/dir/name")]).status.success(), "its own name");
    assert_eq!(links("other"), 2);
    assert!(ln(&["-s", "../file", &up.url("/dir/link")]).status.success());
    assert_eq!(fs::read_to_string(up.dir.join("dir/link")).unwrap(), "1");
    let (code, stderr) = failure(&ln(&[&up.url("/dir"), &up.url("/loop")]));
    assert_eq!((code, stderr.contains("not permitted")), (1, true), "{stderr}");
    for (target, says) in [
        ("lanefs://127.0.0.1:1/x", "a hard link is on the server of its file"),
        ("x", "-s would take it"),
    ] {
        let (code, stderr) = failure(&ln(&[target, &up.url("/x")]));
        assert_eq!((code, stderr.contains(says)), (2, true), "{stderr}");
    }
    let (code, stderr) = failure(&ln(&["-s", &up.url("/file"), &up.url("/x")]));
    assert_eq!((code, stderr.contains("a path, not a URL")), (2, true), "{stderr}");
    up.stop();
}

#[test]
fn what_was_synced_survives_everybody() {
    let Some(fixture) = Fixture::new("sync") else { return };
    let options = ["--lease-term", "20s", "--leases", "on", "--lanes", "1"];
    let server = fixture.serve_with("127.0.0.1:0", &options);
    let (address, held) = relay(&server, pass_on);
    let mount = fixture.mount(&address, "mnt", &[&LEASES[..], &["--lanes", "1"]].concat());
    let top = deep(&mount.dir);
    let dir = top.join("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..200 {
        fs::write(dir.join(number.to_string()), number.to_string()).unwrap();
    }
    let mut opened = fs::File::create_new(top.join("opened")).unwrap();
    // What the mount answers now does not leave it.
    let nothing_passes = held.lock().unwrap();
    opened.write_all(b"answered").unwrap();
    fs::write(dir.join("made"), "as well").unwrap();
    let mut volume = connect(&fixture, &server.address);
    let waits = |volume: &mut Volume| -> u64 {
        volume.stats().unwrap().iter().map(|lane| lane.leases.wait_count).sum()
    };
    let before = waits(&mut volume);
    let url = format!("lanefs://{}", server.address);
    let mut sync = Process::start(&mut fixture.lanefs(["sync", &url]));
    until("the sync waits for the mount", || waits(&mut volume) > before);
    assert!(!sync.has_ended());
    drop(nothing_passes);
    assert_eq!(sync.end().code(), Some(0));
    kill(mount.process.pid());
    kill(server.process.pid());
    drop((opened, volume, mount, server));
    let server =
        fixture.serve_with("127.0.0.1:0", &["--recovery-soft", "100ms", "--leases", "off"]);
    let url = |name: &str| format!("lanefs://{}/1/2/3/{name}", server.address);
    let names = must(&mut fixture.lanefs(["ls", "--export", "up", &url("dir")]));
    assert_eq!(names.lines().count(), 201);
    let numbers = (0..200).map(|number| url(&format!("dir/{number}")));
    let all = numbers.chain(["dir/made", "opened"].map(url));
    let output = fixture.run(["cat", "--export", "up"].map(String::from).into_iter().chain(all));
    let wanted: String = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(texts(&output), (wanted + "as wellanswered", String::new()));
}
