//! Exports: a directory under a name, read-only or with squashed users. They are defined, changed and
//! removed while they are mounted.

use crate::fixture::{Fixture, Server, failure, mounted, must, program, run, texts, until};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The errno of what must fail.
#[track_caller]
fn refused<T>(result: std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("it is not refused"),
        Err(error) => error.raw_os_error().unwrap(),
    }
}

const ROFS: i32 = Errno::ROFS.raw_os_error();
const NOENT: i32 = Errno::NOENT.raw_os_error();
const STALE: i32 = Errno::STALE.raw_os_error();
const ACCESS: i32 = Errno::ACCESS.raw_os_error();

/// `lanefs export` must succeed; what it says.
#[track_caller]
fn export(fixture: &Fixture, arguments: &[&str]) -> String {
    must(&mut fixture.lanefs([&["export"], arguments].concat()))
}

/// The same, and it must fail: exit code and what it says.
#[track_caller]
fn export_fails(fixture: &Fixture, arguments: &[&str]) -> (i32, String) {
    let output = fixture.run([&["export"], arguments].concat());
    assert!(!output.status.success(), "export {arguments:?} is not refused");
    failure(&output)
}

/// Names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Starts the server of a store anew, where it listened before.
fn again(fixture: &Fixture, server: Server) -> Server {
    let Server { process, address } = server;
    process.signal(Signal::KILL);
    drop(process);
    fixture.serve_with(&address, &["--lanes", "3"])
}

#[test]
fn an_export_shows_its_directory_and_what_lies_below_also_after_a_kill() {
    let Some(fixture) = Fixture::new("export_shows") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "3"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    // Directories down to the second level lie on other shards than their parents.
    for dir in ["a/one/deep/deeper", "a/two", "b/one"] {
        fs::create_dir_all(all.dir.join(dir)).unwrap();
    }
    fs::write(all.dir.join("a/one/deep/deeper/file"), "inside").unwrap();
    fs::write(all.dir.join("b/one/file"), "outside").unwrap();
    let address = server.address.clone();
    export(&fixture, &["add", &address, "a", "/a", "--squash", "none"]);
    let mount = fixture.mount(&format!("{address}/a"), "mnt", &[]);
    assert_eq!(names(&mount.dir), ["one", "two"]);
    let deep = mount.dir.join("one/deep/deeper");
    assert_eq!(fs::read_to_string(deep.join("file")).unwrap(), "inside");
    let parent = must(program("ls").args(["-a"]).arg(mount.dir.join("one/..")));
    assert_eq!(parent.split_whitespace().collect::<Vec<_>>(), [".", "..", "one", "two"]);
    fs::write(mount.dir.join("two/new"), "made").unwrap();
    fs::rename(mount.dir.join("two/new"), deep.join("moved")).unwrap();
    fs::hard_link(deep.join("moved"), mount.dir.join("linked")).unwrap();
    assert_eq!(fs::read_to_string(all.dir.join("a/linked")).unwrap(), "made");
    let mut open = fs::File::options().read(true).write(true).open(deep.join("file")).unwrap();
    let nameless = deep.join("nameless");
    fs::write(&nameless, "nobody finds it").unwrap();
    let mut unlinked = fs::File::open(&nameless).unwrap();
    fs::remove_file(&nameless).unwrap();
    let server = again(&fixture, server);
    // What was open is open still, and a number that was known is known still.
    open.write_all(b"INSIDE").unwrap();
    open.rewind().unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "INSIDE");
    text.clear();
    unlinked.read_to_string(&mut text).unwrap();
    assert_eq!(text, "nobody finds it");
    assert_eq!(fs::read_to_string(mount.dir.join("linked")).unwrap(), "made");
    let listed = export(&fixture, &["list", &address]);
    assert!(listed.lines().any(|line| line.starts_with("a ") && line.ends_with("/a")), "{listed}");
    mount.stop();
    all.stop();
    drop(server);
}

#[test]
fn files_moved_out_of_the_directory_are_stale_unless_open() {
    let Some(fixture) = Fixture::new("export_leaves") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "3"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    for dir in ["a/dir/below", "b"] {
        fs::create_dir_all(all.dir.join(dir)).unwrap();
    }
    for file in ["a/file", "a/dir/below/file", "b/other"] {
        fs::write(all.dir.join(file), file).unwrap();
    }
    export(&fixture, &["add", &server.address, "a", "/a", "--squash", "none"]);
    let mount = fixture.mount(&format!("{}/a", server.address), "mnt", &[]);
    let mut open = fs::File::open(mount.dir.join("file")).unwrap();
    let below = fs::File::open(mount.dir.join("dir/below")).unwrap();
    let inside = fs::File::open(mount.dir.join("dir/below/file")).unwrap();
    drop(inside);
    // A name from outside, of a file that has another name there.
    fs::hard_link(all.dir.join("b/other"), all.dir.join("a/other")).unwrap();
    assert_eq!(fs::read_to_string(mount.dir.join("other")).unwrap(), "b/other");
    fs::rename(all.dir.join("a/file"), all.dir.join("b/file")).unwrap();
    fs::rename(all.dir.join("a/dir"), all.dir.join("b/dir")).unwrap();
    fs::remove_file(all.dir.join("a/other")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "a/file", "it is open");
    // Its number is all that the process has of it.
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&below));
    // A mount that caches may still know these names, or their absence. The server refuses then, but for what
    // is cached whole: the file was open, and its contents are as they were.
    let is_refusal = |errno| errno == NOENT || fixture.caches() && errno == STALE;
    match fs::read_to_string(format!("{through}/file")) {
        Ok(text) => assert!(fixture.caches() && text == "a/dir/below/file", "{text}"),
        read => assert!(is_refusal(refused(read))),
    }
    assert!(is_refusal(refused(fs::write(format!("{through}/new"), ""))));
    assert_eq!(refused(rustix::fs::fchmod(&below, 0o700.into()).map_err(Into::into)), STALE);
    assert!(names(&mount.dir).is_empty());
    fs::rename(all.dir.join("b/dir"), all.dir.join("a/dir")).unwrap();
    assert_eq!(fs::read_to_string(format!("{through}/file")).unwrap(), "a/dir/below/file");
    drop(open);
    mount.stop();
    all.stop();
}

/// Makes changes until one is refused. Returns how many were accepted before.
fn accepted_until_read_only(change_no: &AtomicU64, mut change: impl FnMut(u64) -> Accepted) -> u64 {
    loop {
        let number = change_no.load(Ordering::Relaxed);
        if let Err(error) = change(number) {
            assert_eq!(error.raw_os_error(), Some(ROFS), "{error}");
            return number;
        }
        change_no.store(number + 1, Ordering::Relaxed);
    }
}

type Accepted = std::io::Result<()>;

#[test]
fn what_was_accepted_before_an_export_became_read_only_is_there() {
    let Some(fixture) = Fixture::new("export_accepted") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir(all.dir.join("a")).unwrap();
    fs::write(all.dir.join("a/file"), "").unwrap();
    let address = server.address.as_str();
    let add = ["add", address, "a", "/a", "--squash", "none"];
    export(&fixture, &add);
    let writer = fixture.mount(&format!("{address}/a"), "writer", &[]);
    // The mount has made the directory, so it changes names there early, if it does at all.
    let dir = writer.dir.join("dir");
    fs::create_dir(&dir).unwrap();
    let mut file = fs::File::options().append(true).open(writer.dir.join("file")).unwrap();
    let [appends, creates] = [const { AtomicU64::new(0) }; 2];
    let (appended_count, created_count) = std::thread::scope(|scope| {
        let appended = scope.spawn(|| {
            accepted_until_read_only(&appends, |number| {
                file.write_all(format!("{number}\n").as_bytes())
            })
        });
        let created = scope.spawn(|| {
            accepted_until_read_only(&creates, |number| {
                let mut made = fs::File::create(dir.join(number.to_string()))?;
                made.write_all(b"whole")
            })
        });
        until("both have begun", || {
            [&appends, &creates].iter().all(|it| it.load(Ordering::Relaxed) > 9)
        });
        export(&fixture, &[&add[..], &["--read-only", "--replace"]].concat());
        (appended.join().unwrap(), created.join().unwrap())
    });
    let lines: String = (0..appended_count).map(|number| format!("{number}\n")).collect();
    assert_eq!(fs::read_to_string(all.dir.join("a/file")).unwrap(), lines);
    for number in 0..created_count {
        let path = all.dir.join("a/dir").join(number.to_string());
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole", "{number} of {created_count}");
    }
    drop(file);
    writer.stop();
    all.stop();
}

#[test]
fn a_read_only_export_refuses_changes_of_every_user() {
    let Some(fixture) = Fixture::new("export_read_only") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir(all.dir.join("a")).unwrap();
    fs::write(all.dir.join("a/file"), "kept").unwrap();
    let before = fs::metadata(all.dir.join("a/file")).unwrap();
    let address = server.address.as_str();
    let add = ["add", address, "a", "/a", "--squash", "none"];
    export(&fixture, &add);
    let writer = fixture.mount(&format!("{address}/a"), "writer", &[]);
    let mut file = fs::File::options().append(true).open(writer.dir.join("file")).unwrap();
    file.write_all(b", it was accepted").unwrap();
    export(&fixture, &[&add[..], &["--read-only", "--replace"]].concat());
    assert_eq!(refused(file.write_all(b"more")), ROFS, "from the next request on");
    let refusals = [
        refused(fs::write(writer.dir.join("new"), "")),
        refused(fs::create_dir(writer.dir.join("dir"))),
        refused(fs::remove_file(writer.dir.join("file"))),
        refused(fs::rename(writer.dir.join("file"), writer.dir.join("other"))),
        refused(fs::set_permissions(writer.dir.join("file"), fs::Permissions::from_mode(0o400))),
        refused(std::os::unix::fs::symlink("file", writer.dir.join("link"))),
        refused(fs::File::options().write(true).open(writer.dir.join("file"))),
    ];
    assert_eq!(refusals, [ROFS; 7]);
    let text = "kept, it was accepted";
    assert_eq!(fs::read_to_string(writer.dir.join("file")).unwrap(), text);
    let reader = fixture.mount(&format!("{address}/a"), "reader", &[]);
    let options = mounted(&reader.dir).unwrap().options;
    assert!(options.starts_with("ro,"), "the kernel knows: {options}");
    assert_eq!(fs::read_to_string(reader.dir.join("file")).unwrap(), text);
    let after = fs::metadata(all.dir.join("a/file")).unwrap();
    assert_eq!((after.atime(), after.atime_nsec()), (before.atime(), before.atime_nsec()));
    let said = fixture.run(["rm", "--export", "a", &format!("lanefs://{address}/file")]);
    assert!(failure(&said).1.contains("read-only"), "{said:?}");
    drop(file);
    reader.stop();
    writer.stop();
    all.stop();
}

/// Runs a program as a user without groups.
fn as_user(uid: &str) -> std::process::Command {
    let mut command = program("setpriv");
    command.args(["--reuid", uid, "--regid", uid, "--clear-groups"]);
    command
}

#[test]
fn squashed_users_act_as_the_anonymous_user_at_the_server() {
    let Some(fixture) = Fixture::new("export_squash") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    for dir in ["root", "all"] {
        fs::create_dir(all.dir.join(dir)).unwrap();
        fs::set_permissions(all.dir.join(dir), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(all.dir.join(dir).join("roots"), "secret").unwrap();
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(all.dir.join(dir).join("roots"), private).unwrap();
        fs::write(all.dir.join(dir).join("theirs"), "theirs").unwrap();
        must(program("chown").arg("5001:5001").arg(all.dir.join(dir).join("theirs")));
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(all.dir.join(dir).join("theirs"), private).unwrap();
    }
    let address = server.address.as_str();
    let ids = ["--anon-uid", "7001", "--anon-gid", "7002"];
    export(&fixture, &[&["add", address, "root", "/root", "--squash", "root"], &ids[..]].concat());
    export(&fixture, &[&["add", address, "all", "/all", "--squash", "all"], &ids[..]].concat());
    for (name, of_root, of_user, reads) in
        [("root", (7001, 7002), (5001, 5001), true), ("all", (7001, 7002), (7001, 7002), false)]
    {
        let mount = fixture.mount(&format!("{address}/{name}"), &format!("mnt_{name}"), &[]);
        let owner = |file: &str| {
            let found = fs::symlink_metadata(all.dir.join(name).join(file)).unwrap();
            (found.uid(), found.gid())
        };
        fs::write(mount.dir.join("by_root"), "").unwrap();
        fs::create_dir(mount.dir.join("dir_by_root")).unwrap();
        must(as_user("5001").arg("touch").arg(mount.dir.join("by_user")));
        must(as_user("5001").args(["ln", "-s", "x"]).arg(mount.dir.join("link_by_user")));
        assert_eq!([owner("by_root"), owner("dir_by_root")], [of_root; 2], "{name}");
        assert_eq!([owner("by_user"), owner("link_by_user")], [of_user; 2], "{name}");
        assert_eq!(refused(fs::read(mount.dir.join("roots"))), ACCESS, "{name}");
        let given = program("chown").arg("5001").arg(mount.dir.join("by_root")).status();
        assert!(!given.unwrap().success(), "{name}: nobody gives files away");
        let read = run(as_user("5001").arg("cat").arg(mount.dir.join("theirs")));
        assert_eq!(read.status.success(), reads, "{name}: {:?}", texts(&read));
        mount.stop();
    }
    all.stop();
}

#[test]
fn a_removed_export_is_stale_from_the_next_request_on() {
    let Some(fixture) = Fixture::new("export_removed") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    for dir in ["a", "b"] {
        fs::create_dir(all.dir.join(dir)).unwrap();
        fs::write(all.dir.join(dir).join("file"), dir).unwrap();
    }
    let address = server.address.clone();
    export(&fixture, &["add", &address, "a", "/a", "--squash", "none"]);
    export(&fixture, &["add", &address, "b", "/b", "--squash", "none"]);
    let mut a = fixture.mount(&format!("{address}/a"), "mnt_a", &[]);
    let b = fixture.mount(&format!("{address}/b"), "mnt_b", &[]);
    let mut open = fs::File::open(a.dir.join("file")).unwrap();
    export(&fixture, &["remove", &address, "a"]);
    assert_eq!(refused(open.read(&mut [0; 9])), STALE);
    assert_eq!(refused(fs::write(a.dir.join("new"), "")), STALE);
    // The mount's first lane speaks for all, when a request on its core was refused.
    let write_on = |cpu| {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
        refused(fs::write(a.dir.join("new"), ""))
    };
    let cpus = sched_getaffinity(None).unwrap();
    until("the mount says why", || {
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)) {
            let status = std::thread::scope(|scope| scope.spawn(|| write_on(cpu)).join().unwrap());
            assert_eq!(status, STALE);
        }
        let mut lines = std::iter::from_fn(|| a.process.next_line());
        lines.any(|line| line.contains("the server has no such export"))
    });
    assert_eq!(fs::read_to_string(b.dir.join("file")).unwrap(), "b");
    drop(open);
    let again_it_is = fixture.run(["mount", &format!("{address}/a"), a.dir.to_str().unwrap()]);
    assert_ne!(again_it_is.status.code(), Some(0));
    let server = again(&fixture, server);
    assert_eq!(fs::read_to_string(b.dir.join("file")).unwrap(), "b");
    let (code, line) = export_fails(&fixture, &["remove", &address, "a"]);
    assert!(code == 1 && line.contains("there is no export a"), "{line}");
    // Another one of that name is another one.
    export(&fixture, &["add", &address, "a", "/b", "--squash", "none"]);
    assert_eq!(refused(fs::read(a.dir.join("file"))), STALE);
    a.process.signal(Signal::TERM);
    a.process.end();
    b.stop();
    all.stop();
    drop(server);
}

#[test]
fn the_secret_of_an_export_opens_that_and_nothing_else() {
    let Some(fixture) = Fixture::new("export_secret") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir(all.dir.join("a")).unwrap();
    fs::write(all.dir.join("a/file"), "a").unwrap();
    let address = server.address.clone();
    for name in ["a", "b"] {
        export(&fixture, &["add", &address, name, "/a", "--squash", "none"]);
    }
    let file = fixture.path("a.secret");
    fs::write(&file, export(&fixture, &["secret", &address, "a"])).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let secret = ["--secret-file", file.to_str().unwrap()];
    let mount = fixture.mount(&format!("{address}/a"), "mnt", &secret);
    assert_eq!(fs::read_to_string(mount.dir.join("file")).unwrap(), "a");
    let url = format!("lanefs://{address}/file");
    let cat =
        |export: &str| fixture.run([&["cat", "--export", export, &url], &secret[..]].concat());
    assert_eq!(texts(&cat("a")).0, "a");
    for other in ["b", "up", "default", "none"] {
        assert_ne!(cat(other).status.code(), Some(0), "{other}");
    }
    for arguments in [vec!["list", &address], vec!["add", &address, "c", "/"]] {
        let (code, line) = export_fails(&fixture, &[&arguments[..], &secret[..]].concat());
        assert!(code == 4 && line.contains("the secret of an export"), "{line}");
    }
    // A server that is another one does not know it either.
    export(&fixture, &["remove", &address, "a"]);
    export(&fixture, &["add", &address, "a", "/a", "--squash", "none"]);
    assert_eq!(cat("a").status.code(), Some(4), "it was for the one before");
    mount.stop();
    all.stop();
}

#[test]
fn exports_are_listed_and_mistakes_are_named() {
    let Some(fixture) = Fixture::new("export_list") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir_all(all.dir.join("a/inner")).unwrap();
    fs::write(all.dir.join("a/file"), "").unwrap();
    let address = server.address.clone();
    let store = fixture.path("store");
    let store = store.to_str().unwrap();
    export(
        &fixture,
        &["add", store, "a", "/a", "--read-only", "--squash", "all", "--anon-uid", "7"],
    );
    // One may lie in another.
    export(&fixture, &["add", &format!("lanefs://{address}"), "inner", "/a/inner"]);
    let listed = export(&fixture, &["list", "--json", &address]);
    let row = |name: &str| {
        let start = format!("{{\"name\":\"{name}\",");
        listed.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{listed}"))
    };
    let rest = row("a").replace(char::is_numeric, "#");
    assert!(rest.contains("\"path\":\"/a\"") && rest.contains("\"read_only\":true"), "{rest}");
    assert!(
        row("a").contains("\"squash\":\"all\",\"anon_uid\":7,\"anon_gid\":65534,\"stored\":true")
    );
    assert!(row("default").contains("\"inode\":1,\"read_only\":false,\"squash\":\"root\""));
    assert!(row("up").contains("\"squash\":\"none\"") && row("up").contains("\"stored\":false"));
    assert!(row("inner").contains("\"path\":\"/a/inner\""));
    let inner = fixture.run(["ls", "--export", "inner", &format!("lanefs://{address}/")]);
    assert_eq!(inner.status.code(), Some(0), "{:?}", texts(&inner));
    for (arguments, code, part) in [
        (vec!["add", &address, "a", "/"], 1, "there is an export a already"),
        (vec!["add", &address, "up", "/"], 1, "was started with --export up"),
        (vec!["remove", &address, "up"], 1, "was started with --export up"),
        (vec!["add", &address, "x", "/none"], 1, "no such file"),
        (vec!["add", &address, "x", "/a/file"], 1, "not a directory"),
        (vec!["add", &address, "x", "a"], 2, "begins with /"),
        (vec!["add", &address, "-x", "/a"], 2, "unexpected argument"),
        (vec!["add", &address, "x/y", "/a"], 2, "cannot be an export's name"),
        (vec!["secret", &address, "x"], 1, "there is no export x"),
        (vec!["list", "127.0.0.1:1", "--connect-timeout", "0"], 3, "127.0.0.1:1"),
    ] {
        let found = export_fails(&fixture, &arguments);
        assert!(found.0 == code && found.1.contains(part), "{arguments:?}: {found:?}");
    }
    let mount =
        fixture.run(["mount", &format!("{address}/x"), fixture.make_dir("x").to_str().unwrap()]);
    assert!(failure(&mount).1.contains("no such export"), "{mount:?}");
    all.stop();
    let mut process = server.process;
    process.signal(Signal::TERM);
    process.end();
    let (code, line) = export_fails(&fixture, &["list", store]);
    assert!(code == 3 && line.contains("a store that nobody serves"), "{code} {line}");
    let clash =
        fixture.run(["serve", "--store", store, "--listen", "127.0.0.1:0", "--export", "a"]);
    assert!(failure(&clash).1.contains("the store has an export of that name"), "{clash:?}");
}

#[test]
fn the_default_export_can_be_another_one_or_none() {
    let Some(fixture) = Fixture::new("export_default") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir(all.dir.join("a")).unwrap();
    fs::write(all.dir.join("a/file"), "").unwrap();
    let address = server.address.clone();
    let ls = || {
        let output = fixture.run(["ls", &format!("lanefs://{address}/")]);
        (output.status.code().unwrap(), texts(&output).0)
    };
    assert_eq!(ls(), (0, "a\n".to_owned()));
    export(&fixture, &["add", &address, "default", "/a"]);
    assert_eq!(ls(), (0, "file\n".to_owned()));
    export(&fixture, &["remove", &address, "default"]);
    assert_eq!(ls().0, 1);
    let server = again(&fixture, server);
    assert_eq!(ls().0, 1, "it stays away");
    assert!(!export(&fixture, &["list", &address]).contains("default"));
    export(&fixture, &["add", &address, "default", "/"]);
    assert_eq!(ls(), (0, "a\n".to_owned()));
    all.stop();
    drop(server);
}
