//! The library as a program uses it: its examples, its errors as they are documented, and many
//! futures at once, also over the death of the server.

use crate::fixture::{Fixture, PATIENCE, Process, Up, binary, must};
use crate::idle::secret;
use futures::executor::block_on;
use futures::future::{FutureExt as _, join_all, try_join_all};
use library::nonblocking::Volume as Futures;
use library::{
    ConnectOptions, Error, FileKind, Identity, OpenFor, Piece, SearchOptions, SetAttr, Special,
    Status, Volume,
};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn options(fixture: &Fixture, up: &Up) -> ConnectOptions {
    ConnectOptions {
        connect_timeout: PATIENCE,
        export: "up".to_owned(),
        ..ConnectOptions::new(up.address.parse().unwrap(), secret(fixture))
    }
}

/// An example's program. `cargo test` of the workspace has built it; of this package alone it has not,
/// and what is there may be older than the server.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let profile_dir = here.ancestors().nth(2).unwrap();
    let program = profile_dir.join("examples").join(name);
    let made_at = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    if made_at(&program) < made_at(Path::new(&binary())) {
        let profile = profile_dir.file_name().and_then(OsStr::to_str).unwrap();
        let profile = if profile == "debug" { "dev" } else { profile };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "lanefs-library", "--examples", "--profile", profile]);
        must(&mut build);
    }
    program
}

fn run_example(fixture: &Fixture, up: &Up, name: &str, path: &str) -> Command {
    let mut command = Command::new(example(name));
    command.arg(&up.address).arg(path).stdin(Stdio::null());
    command.env("LANEFS_SECRET_FILE", fixture.path("config/lanefs/secret"));
    command
}

#[test]
fn the_example_that_reads_strides_adds_up_a_column() {
    let Some(fixture) = Fixture::new("example_strided_read") else { return };
    let up = fixture.up(&[]);
    // Rows of 16 numbers; the column is the fourth of each.
    let numbers = (0..1000_u64).flat_map(|row| (0..16).map(move |column| row * (column + 1)));
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    fs::write(up.dir.join("matrix"), bytes).unwrap();
    let mut command = run_example(&fixture, &up, "strided_read", "/matrix");
    let output = must(command.args(["16", "3"]));
    assert_eq!(output, format!("1000 rows, the sum of column 3 is {}\n", 999 * 1000 / 2 * 4));
    up.stop();
}

#[test]
fn the_example_that_walks_sees_what_the_mount_has() {
    let Some(fixture) = Fixture::new("example_walk") else { return };
    let up = fixture.up(&[]);
    fs::create_dir_all(up.dir.join("top/deep/er")).unwrap();
    fs::write(up.dir.join("top/one"), [1; 1000]).unwrap();
    fs::write(up.dir.join("top/deep/er/two"), [2; 234]).unwrap();
    for index in 0..300 {
        fs::write(up.dir.join(format!("top/deep/file-{index}")), "x").unwrap();
    }
    let output = must(&mut run_example(&fixture, &up, "walk", "/top"));
    let mut lines: Vec<&str> =
        output.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!(output.lines().last(), Some("302 files, 1534 bytes"), "{output}");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 302 + 2 + 1, "every name once, and the sum");
    assert!(
        output.contains("        1000 /top/one\n") && output.contains("/top/deep/er/two\n"),
        "{output}"
    );
    up.stop();
}

#[test]
fn the_example_that_reads_in_parallel_reads_what_was_written() {
    let Some(fixture) = Fixture::new("example_parallel_read") else { return };
    let up = fixture.up(&[]);
    let bytes: Vec<u8> = (0..=255).cycle().take(20_000_001).collect();
    fs::write(up.dir.join("large"), &bytes).unwrap();
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    let output = must(&mut run_example(&fixture, &up, "parallel_read", "/large"));
    assert_eq!(output, format!("20000001 bytes, CRC-32C {sum:08x}\n"));
    up.stop();
}

#[test]
fn what_the_example_has_made_durable_survives_everybody() {
    let Some(fixture) = Fixture::new("example_write_and_fsync") else { return };
    let mut up = fixture.up(&[]);
    let bytes = vec![7; 9_000_000];
    // The default export takes our root for nobody.
    let run = up.dir.join("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = run_example(&fixture, &up, "write_and_fsync", "/run/checkpoint");
    let mut writing = Process::start(command.stdin(Stdio::piped()));
    writing.orders().write_all(&bytes).unwrap();
    writing.line_with("9000000 bytes are on disk");
    up.kill_server();
    assert!(fs::read(run.join("checkpoint")).unwrap() == bytes);
    assert!(!run.join("checkpoint.draft").exists());
    up.stop();
}

/// What each call says when it must refuse, as its documentation has it.
#[test]
fn calls_fail_as_documented() {
    let Some(fixture) = Fixture::new("library_errors") else { return };
    let up = fixture.up(&[]);
    let identity = Identity::new(0, 0, &[]);
    let mut root = Volume::connect(&ConnectOptions { identity, ..options(&fixture, &up) }).unwrap();
    let identity = Identity::new(4321, 4321, &[]);
    let mut other =
        Volume::connect(&ConnectOptions { identity, ..options(&fixture, &up) }).unwrap();
    let path = Path::new;
    root.mkdir(path("/dir"), 0o755).unwrap();
    root.mkdir(path("/dir/sub"), 0o755).unwrap();
    root.mkdir(path("/closed"), 0o700).unwrap();
    root.mkdir(path("/sticky"), 0o1777).unwrap();
    for name in ["/file", "/sticky/file", "/closed/file"] {
        let file = root.create(path(name), 0o600, true).unwrap();
        root.close(file).unwrap();
    }
    root.symlink(OsStr::new("loop"), path("/loop")).unwrap();
    let file = root.stat(path("/file")).unwrap().inode;
    let dir = root.stat(path("/dir")).unwrap().inode;
    let long = format!("/{}", "n".repeat(256));
    let fifo = Special { kind: FileKind::Fifo, mode: 0o644, rdev: 0 };
    let device = Special { kind: FileKind::CharDevice, rdev: 0x103, ..fifo };
    let chmod = SetAttr { mode: Some(0o777), ..SetAttr::default() };

    use Status as S;
    let cases = [
        ("stat", root.stat(path("/none")).err(), S::NotFound),
        ("stat", root.stat(path("/file/x")).err(), S::NotDirectory),
        ("stat", root.stat(path("/file/")).err(), S::NotDirectory),
        ("stat", root.stat(path("/loop")).err(), S::Loop),
        ("stat", root.stat(path(&long)).err(), S::NameTooLong),
        ("stat", other.stat(path("/closed/file")).err(), S::Access),
        ("read_dir", root.read_dir(path("/file")).err(), S::NotDirectory),
        ("open", root.open(path("/dir"), OpenFor::Read).err(), S::IsDirectory),
        ("open", other.open(path("/file"), OpenFor::Read).err(), S::Access),
        ("create", root.create(path("/file"), 0o600, true).err(), S::Exists),
        ("create", other.create(path("/dir/new"), 0o600, false).err(), S::Access),
        ("mkdir", root.mkdir(path("/dir"), 0o755).err(), S::Exists),
        ("mkdir", other.mkdir(path("/dir/new"), 0o755).err(), S::Access),
        ("unlink", root.unlink(path("/dir")).err(), S::IsDirectory),
        ("unlink", other.unlink(path("/sticky/file")).err(), S::NotPermitted),
        ("rmdir", root.rmdir(path("/file")).err(), S::NotDirectory),
        ("rmdir", root.rmdir(path("/dir")).err(), S::NotEmpty),
        ("rename", root.rename(path("/dir"), path("/dir/sub/x")).err(), S::Invalid),
        ("rename", root.rename(path("/dir"), path("/file")).err(), S::NotDirectory),
        ("rename", root.rename(path("/file"), path("/dir")).err(), S::IsDirectory),
        ("rename", root.rename(path("/closed"), path("/dir")).err(), S::NotEmpty),
        ("symlink", root.symlink(OsStr::new("to"), path("/file")).err(), S::Exists),
        ("symlink", root.symlink(OsStr::new(&"t".repeat(4096)), path("/t")).err(), S::NameTooLong),
        ("mknod", root.mknod(path("/file"), &fifo).err(), S::Exists),
        ("mknod", other.mknod(path("/sticky/null"), &device).err(), S::NotPermitted),
        (
            "mknod",
            root.mknod(path("/l"), &Special { kind: FileKind::Symlink, ..fifo }).err(),
            S::Invalid,
        ),
        ("readlink", root.readlink(path("/file")).err(), S::Invalid),
        ("set_attr", other.set_attr(file, path("/file"), &chmod).err(), S::NotPermitted),
        ("link", root.link(file, path("/dir")).err(), S::Exists),
        ("link", root.link(dir, path("/other")).err(), S::NotPermitted),
    ];
    for (index, (call, error, status)) in cases.into_iter().enumerate() {
        let got = error.as_ref().and_then(Error::status);
        assert_eq!(got, Some(status), "case {index}, {call}: {error:?}");
    }

    let open = root.create(path("/large"), 0o600, true).unwrap();
    let past_end = u64::try_from(i64::MAX).unwrap();
    let refused = root.write_at(&open, past_end, b"xx").unwrap_err();
    assert_eq!(refused.status(), Some(S::TooLarge), "{refused}");
    let refused = root.truncate(&open, past_end + 1).unwrap_err();
    assert_eq!(refused.status(), Some(S::TooLarge), "{refused}");
    root.close(open).unwrap();
    root.unlink(path("/large")).unwrap();
    let removed = root.stat(path("/dir/sub")).unwrap().inode;
    root.rmdir(path("/dir/sub")).unwrap();
    let refused = root.set_attr(removed, path("/dir/sub"), &chmod).unwrap_err();
    assert_eq!(refused.status(), Some(S::Stale), "{refused}");
    root.leave().unwrap();
    other.leave().unwrap();

    let mut wrong = options(&fixture, &up);
    wrong.secret = library::Secret::new([9; 32]);
    assert!(matches!(Volume::connect(&wrong), Err(Error::Refused { .. })));
    wrong = options(&fixture, &up);
    wrong.export = "none such".to_owned();
    assert!(matches!(Volume::connect(&wrong), Err(Error::Refused { .. })));
    up.stop();
    wrong.connect_timeout = Duration::from_millis(10);
    assert!(matches!(Volume::connect(&wrong), Err(Error::Unreachable { .. })));
}

/// More operations than a volume has on their way at a time, of two threads, on clones of one volume.
#[test]
fn many_futures_run_side_by_side() {
    let Some(fixture) = Fixture::new("library_futures") else { return };
    let up = fixture.up(&[]);
    let volume = block_on(Futures::connect(&options(&fixture, &up))).unwrap();
    assert!(block_on(volume.is_root_trusted()).unwrap());
    let work = |name: &'static str, volume: Futures| async move {
        volume.mkdir(format!("/{name}"), 0o755).await?;
        let one = async |index: u32| {
            let path = format!("/{name}/{index}");
            let file = volume.create(&path, 0o644, true).await?;
            let bytes = vec![u8::try_from(index % 256).unwrap(); 5000];
            volume.write_at(&file, 0, bytes.clone()).await?;
            let piece = Piece { file_offset: 0, piece_bytes: 8192 };
            assert_eq!(volume.read_at(&file, piece).await?, bytes);
            volume.close(file).await
        };
        try_join_all((0..300).map(one)).await?;
        volume.sync().await
    };
    let (here, there) = (volume.clone(), volume.clone());
    let thread = std::thread::spawn(move || block_on(work("there", there)));
    block_on(work("here", here)).unwrap();
    thread.join().unwrap().unwrap();
    assert_eq!(fs::read_dir(up.dir.join("here")).unwrap().count(), 300);
    assert_eq!(fs::read(up.dir.join("there/299")).unwrap(), [43; 5000]);

    block_on(async {
        let mut dir = volume.read_dir("/here").await.unwrap();
        let mut names = 0;
        loop {
            let entries = volume.next_entries(&mut dir).await.unwrap();
            if entries.is_empty() {
                break;
            }
            assert!(entries.iter().all(|entry| entry.attr.size_bytes == 5000), "sizes are listed");
            names += entries.len();
        }
        assert_eq!(names, 300);
        let pattern = library::Pattern::new(b"29?").unwrap();
        let predicate = library::Predicate { name: Some(pattern), ..library::Predicate::ANY };
        let wanted = SearchOptions { predicate, attrs: true, directories: false };
        let inode = volume.stat("/here").await.unwrap().inode;
        let mut search = library::Search::new(inode, Path::new("/here"));
        let mut found = Vec::new();
        while let Some(more) = volume.search(&mut search, &wanted).await.unwrap() {
            found.extend(more);
        }
        assert_eq!(found.len(), 10);
        let missing = volume.stat("/missing").await.unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
        volume.clone().leave().await.unwrap();
        assert!(matches!(volume.stat("/here").await, Err(Error::Left)));
    });
    up.stop();
}

/// What is under way when the server dies ends well when it is back; what nobody waits for is done.
#[test]
fn futures_outlive_the_server() {
    let Some(fixture) = Fixture::new("library_outlives") else { return };
    let mut up = fixture.up(&[]);
    let volume = block_on(Futures::connect(&options(&fixture, &up))).unwrap();
    block_on(async {
        volume.mkdir("/before", 0o755).await.unwrap();
        let server = up.child("serve");
        let pid = rustix::process::Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let begun = (0..100).map(|index| volume.mkdir(format!("/before/{index}"), 0o755));
        let begun: Vec<_> = begun.map(Box::pin).collect();
        // Given up once they have begun; so a later one is done behind them.
        let mut begun = join_all(begun);
        assert!((&mut begun).now_or_never().is_none(), "the server is stopped");
        drop(begun);
        let last = volume.stat("/before");
        let mut last = Box::pin(last);
        assert!((&mut last).now_or_never().is_none(), "the server is stopped");
        up.kill_server();
        last.await.unwrap();
        volume.clone().leave().await.unwrap();
    });
    assert_eq!(fs::read_dir(up.dir.join("before")).unwrap().count(), 100);
    up.stop();
}

#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_the_one_before_or_behind() {
    let Some(fixture) = Fixture::new("library_replaced") else { return };
    let up = fixture.up(&[]);
    let (file, next) = (up.dir.join("file"), up.dir.join("next"));
    fs::write(&file, "0").unwrap();
    let mut volume = Volume::connect(&options(&fixture, &up)).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..1_000 {
                fs::write(&next, number.to_string()).unwrap();
                fs::rename(&next, &file).unwrap();
            }
            ended.store(true, Ordering::SeqCst);
        });
        while !ended.load(Ordering::SeqCst) {
            let opened = volume.open(Path::new("/file"), OpenFor::Read).unwrap();
            volume.close(opened).unwrap();
        }
    });
    volume.leave().unwrap();
    up.stop();
}

/// Futures of a volume can be given to executors with many threads.
#[test]
fn futures_go_from_thread_to_thread() {
    fn goes<T: Send>(_: T) {}
    let check = |volume: &Futures, file: &library::File| {
        goes(volume.stat("/"));
        goes(volume.create("/", 0, false));
        goes(volume.write_at(file, 0, "bytes"));
        goes(volume.sync_file(file));
        goes(volume.clone().leave());
    };
    goes(check);
    goes::<Option<Futures>>(None);
    let nowhere = ConnectOptions {
        connect_timeout: Duration::from_millis(1),
        ..ConnectOptions::new(([127, 0, 0, 1], 1).into(), library::Secret::new([0; 32]))
    };
    assert!(matches!(block_on(Futures::connect(&nowhere)), Err(Error::Unreachable { .. })));
}
