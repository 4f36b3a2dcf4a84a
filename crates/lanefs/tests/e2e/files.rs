//! The file commands, without a mount in the way; what they did is looked at through one.

use crate::fixture::{Fixture, binary, failure, must, program, texts};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

#[test]
fn a_tree_goes_in_and_comes_out_unchanged() {
    let Some(fixture) = Fixture::new("cp_tree") else { return };
    let up = fixture.up(&[]);
    let original = fixture.make_dir("original");
    fs::create_dir_all(original.join("deep/er")).unwrap();
    fs::write(original.join("small"), "x").unwrap();
    fs::write(original.join("empty"), "").unwrap();
    fs::write(original.join("deep/large"), vec![3; (9 << 20) + 17]).unwrap();
    fs::write(original.join("deep/er").join(OsStr::from_bytes(b"not \xff utf8")), "y").unwrap();
    std::os::unix::fs::symlink("../small", original.join("deep/link")).unwrap();
    fs::set_permissions(original.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
    let sparse = fs::File::create(original.join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    must(program("touch").args(["-d", "2001-02-03 04:05:06.789"]).arg(original.join("small")));
    let url = up.url("/copy");
    must(fixture.lanefs(["cp", "-rp", "--export", "up"]).arg(&original).arg(&url));
    let mut rsync = program("rsync");
    rsync.args(["-aHn", "--delete", "--itemize-changes"]).arg(original.join(""));
    assert_eq!(must(rsync.arg(up.dir.join("copy").join(""))), "");
    let sparse = fs::metadata(up.dir.join("copy/sparse")).unwrap();
    assert_eq!(sparse.len(), 100 << 20);
    assert!(sparse.blocks() * 512 < 10 << 20, "a hole stays a hole: {}", sparse.blocks());
    let back = fixture.path("back");
    must(fixture.lanefs(["cp", "-rp", "--export", "up", &url]).arg(&back));
    let mut rsync = program("rsync");
    rsync.args(["-aHn", "--delete", "--itemize-changes"]).arg(original.join(""));
    assert_eq!(must(rsync.arg(back.join(""))), "");
    must(&mut fixture.lanefs(["cp", "-r", "--export", "up", &url, &up.url("/twice")]));
    must(program("diff").args(["-r", "--no-dereference"]).arg(&original).arg(up.dir.join("twice")));
    up.stop();
}

#[test]
fn large_files_read_the_same_with_and_without_checksums() {
    let Some(fixture) = Fixture::new("checksum_reads") else { return };
    let bytes: Vec<u8> =
        (0..(9_u32 << 20) + 17).map(|at| (at.wrapping_mul(at) >> 11).to_le_bytes()[0]).collect();
    let up = fixture.up(&[]);
    fs::write(up.dir.join("large"), &bytes).unwrap();
    up.stop();
    // A new mount each time, whose kernel has nothing of the file yet.
    for options in [&[][..], &["--checksum-reads"], &[]] {
        let up = fixture.up(options);
        assert!(fs::read(up.dir.join("large")).unwrap() == bytes, "mounted, {options:?}");
        let read = fixture.run(["cat", "--export", "up", &up.url("/large")]);
        assert!(read.status.success() && read.stdout == bytes, "by the library, {options:?}");
        up.stop();
    }
}

#[test]
fn commands_do_what_their_namesakes_do() {
    let Some(fixture) = Fixture::new("commands") else { return };
    let up = fixture.up(&[]);
    let with = |arguments: &[&str]| {
        let mut all = vec![arguments[0], "--export", "up"];
        all.extend(&arguments[1..]);
        fixture.run(all)
    };
    let url = |path: &str| up.url(path);
    assert!(with(&["mkdir", &url("/a")]).status.success());
    let (code, stderr) = failure(&with(&["mkdir", &url("/a")]));
    assert_eq!((code, stderr.contains("file exists")), (1, true), "{stderr}");
    assert!(with(&["mkdir", "-p", &url("/a"), &url("/a/b/c")]).status.success());
    let local = fixture.path("local");
    fs::write(&local, "one\n").unwrap();
    let local = local.to_str().unwrap();
    assert!(with(&["cp", local, &url("/a/one")]).status.success());
    assert!(with(&["cp", local, &url("/a")]).status.success(), "into a directory");
    assert_eq!(texts(&with(&["cat", &url("/a/one"), &url("/a/local")])).0, "one\none\n");
    assert_eq!(texts(&with(&["ls", &url("/a")])).0, "b\nlocal\none\n");
    let long = texts(&with(&["ls", "-la", &url("/a")])).0;
    assert!(long.starts_with("total ") && long.contains(" .\n"), "{long}");
    assert!(long.contains("-rw-r--r-- 1 root root 4 "), "{long}");
    let open = fs::File::create(up.dir.join("a/open")).unwrap();
    std::io::Write::write_all(&mut &open, b"12345").unwrap();
    let long = texts(&with(&["ls", "-l", &url("/a")])).0;
    assert!(long.contains(" 1 root root 5 "), "what is being written has a size: {long}");
    drop(open);
    assert!(with(&["mv", &url("/a/one"), &url("/a/two")]).status.success());
    assert!(with(&["mv", &url("/a/two"), &url("/a/b")]).status.success(), "into a directory");
    assert_eq!(fs::read_to_string(up.dir.join("a/b/two")).unwrap(), "one\n");
    let stat = texts(&with(&["stat", &url("/a/b/two")])).0;
    assert!(stat.contains("Size: 4 ") && stat.contains("(0644/-rw-r--r--)"), "{stat}");
    let (code, stderr) = failure(&with(&["rm", &url("/a")]));
    assert_eq!((code, stderr.contains("is a directory")), (1, true), "{stderr}");
    let (code, stderr) = failure(&with(&["rm", &url("/none")]));
    assert_eq!((code, stderr.contains("no such file")), (1, true), "{stderr}");
    assert!(with(&["rm", "-f", &url("/none")]).status.success());
    assert!(with(&["rm", "-r", &url("/a")]).status.success());
    assert_eq!(fs::read_dir(&up.dir).unwrap().count(), 0);
    let (code, stderr) = failure(&with(&["cat", &url("/none"), &url("/")]));
    assert_eq!(code, 1);
    assert_eq!(stderr.lines().count(), 2, "it goes on after a failure: {stderr}");
    let df = texts(&with(&["df", "-h", &url("/")])).0;
    assert!(df.lines().count() == 2 && df.contains('%'), "{df}");
    up.stop();
}

#[test]
fn links_are_followed_and_loops_end() {
    let Some(fixture) = Fixture::new("links") else { return };
    let up = fixture.up(&[]);
    fs::create_dir(up.dir.join("d")).unwrap();
    fs::write(up.dir.join("d/file"), "found").unwrap();
    std::os::unix::fs::symlink("d", up.dir.join("relative")).unwrap();
    std::os::unix::fs::symlink("/relative/file", up.dir.join("d/absolute")).unwrap();
    std::os::unix::fs::symlink("loop", up.dir.join("loop")).unwrap();
    let cat = |path: &str| fixture.run(["cat", "--export", "up", &up.url(path)]);
    assert_eq!(texts(&cat("/relative/file")).0, "found");
    assert_eq!(texts(&cat("/d/absolute")).0, "found", "absolute links begin at the volume's root");
    assert_eq!(texts(&cat("/d/../relative/./file")).0, "found");
    let (code, stderr) = failure(&cat("/loop"));
    assert_eq!((code, stderr.contains("symbolic links")), (1, true), "{stderr}");
    up.stop();
}

#[test]
fn a_closed_pipe_ends_cat_quietly() {
    let Some(fixture) = Fixture::new("pipe") else { return };
    let up = fixture.up(&[]);
    fs::write(up.dir.join("large"), vec![b'x'; 8 << 20]).unwrap();
    let mut command = program("sh");
    command.args(["-c", "\"$0\" cat --export up \"$1\" | head -c 10"]);
    command.arg(binary()).arg(up.url("/large"));
    command.env("XDG_CONFIG_HOME", fixture.path("config")).env_remove("LANEFS_SECRET_FILE");
    let output = crate::fixture::run(&mut command);
    assert_eq!(texts(&output), ("xxxxxxxxxx".to_owned(), String::new()));
    up.stop();
}
