//! Fifos, sockets and devices through the mount: names and numbers are the server's, what opens
//! is the kernel's. And files that a program closes by becoming another.

use crate::fixture::{Fixture, failure, must, program, run, texts};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const KINDS: [FileType; 4] =
    [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice];

/// One of each kind, named by its symbol in `ls -l`.
fn furnish(dir: &Path) {
    for (kind, name) in KINDS.into_iter().zip(["p", "s", "c", "b"]) {
        let device = if name == "c" { makedev(0xfff, 0xf_ffff) } else { makedev(7, 300) };
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    }
}

/// All that a name shows of itself, apart from its inode's number and its time of last change.
fn shown(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let metadata = entry.metadata().unwrap();
        assert_eq!(metadata.file_type(), kind, "d_type is what stat says");
        let (mode, links, rdev) = (metadata.mode(), metadata.nlink(), metadata.rdev());
        let name = entry.file_name().into_string().unwrap();
        lines.push(format!("{name} {mode:o} {links} {rdev:x} {} {kind:?}", metadata.len()));
    }
    lines.sort();
    lines
}

#[test]
fn special_files_are_what_they_are_on_a_local_file_system() {
    let Some(fixture) = Fixture::new("special") else { return };
    let local = fixture.make_dir("local");
    furnish(&local);
    let mut up = fixture.up(&[]);
    let dir = up.dir.join("dir");
    fs::create_dir(&dir).unwrap();
    furnish(&dir);
    assert_eq!(shown(&dir), shown(&local));
    for work in [&dir, &local] {
        fs::hard_link(work.join("p"), work.join("q")).unwrap();
        fs::rename(work.join("c"), work.join("b")).unwrap();
        fs::set_permissions(work.join("s"), fs::Permissions::from_mode(0o4777)).unwrap();
        let fifo = fs::OpenOptions::new().read(true).write(true).open(work.join("p")).unwrap();
        let refused = rustix::fs::ftruncate(&fifo, 0).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::INVAL);
        let again = mknodat(CWD, work.join("p"), FileType::Fifo, Mode::RUSR, 0).unwrap_err();
        assert_eq!(again, rustix::io::Errno::EXIST);
    }
    assert_eq!(shown(&dir), shown(&local));
    up.kill_server();
    assert_eq!(shown(&dir), shown(&local), "after a crash of the server");
    up.stop();
    let up = fixture.up(&["--meta-memory", "0"]);
    assert_eq!(shown(&dir), shown(&local), "from the rows, one by one");
    for work in [&dir, &local] {
        fs::remove_file(work.join("p")).unwrap();
        fs::remove_file(work.join("b")).unwrap();
    }
    assert_eq!(shown(&dir), shown(&local));
    must(program("rm").arg("-r").arg(&dir));
    up.stop();
}

#[test]
fn a_fifo_and_a_socket_join_two_programs() {
    let Some(fixture) = Fixture::new("fifo") else { return };
    let up = fixture.up(&[]);
    let fifo = up.dir.join("fifo");
    must(program("mkfifo").arg(&fifo));
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    fs::write(&fifo, "through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), b"through the pipe");
    let held = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    fs::remove_file(&fifo).unwrap();
    (&held).write_all(b"nameless").unwrap();
    let mut bytes = [0; 8];
    (&held).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"nameless");

    let socket = up.dir.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    let caller = std::thread::spawn({
        let socket = socket.clone();
        move || UnixStream::connect(socket).unwrap().write_all(b"hello").unwrap()
    });
    let mut said = String::new();
    listener.accept().unwrap().0.read_to_string(&mut said).unwrap();
    caller.join().unwrap();
    assert_eq!(said, "hello");
    let refused = fs::File::open(&socket).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NXIO.raw_os_error()));
    up.stop();
}

#[test]
fn only_root_makes_devices_and_no_one_opens_them() {
    let Some(fixture) = Fixture::new("devices") else { return };
    let up = fixture.up(&[]);
    let null = up.dir.join("null");
    must(program("mknod").arg("-m").arg("666").arg(&null).args(["c", "1", "3"]));
    let refused = fs::write(&null, "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "mounted nodev");
    let open = up.dir.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let as_other = |arguments: &[&str]| {
        let mut command = program("setpriv");
        command.args(["--reuid=12345", "--regid=12345", "--clear-groups"]).args(arguments);
        run(command.current_dir(&open))
    };
    let refused = as_other(&["mknod", "device", "b", "7", "0"]);
    assert_eq!(failure(&refused).0, 1, "{:?}", texts(&refused));
    assert!(as_other(&["mkfifo", "fifo"]).status.success(), "a fifo is anybody's");
    assert!(fixture.run(["export", "add", &up.address, "default", "/"]).status.success());
    let squashed = fixture.mount(&up.address, "squashed", &[]);
    let refused = mknodat(
        CWD,
        squashed.dir.join("open/device"),
        FileType::BlockDevice,
        Mode::RUSR,
        makedev(7, 0),
    );
    assert_eq!(refused, Err(rustix::io::Errno::PERM), "root of an export that squashes");
    squashed.stop();
    up.stop();
}

#[test]
fn the_file_commands_know_special_files() {
    let Some(fixture) = Fixture::new("special_cp") else { return };
    let up = fixture.up(&[]);
    let local = fixture.make_dir("local");
    furnish(&local);
    let with = |arguments: &[&str]| {
        let mut all = vec![arguments[0], "--export", "up"];
        all.extend(&arguments[1..]);
        fixture.run(all)
    };
    let local_text = local.to_str().unwrap();
    let copied = with(&["cp", "-rp", local_text, &up.url("/there")]);
    assert!(copied.status.success(), "{:?}", texts(&copied));
    assert_eq!(shown(&up.dir.join("there")), shown(&local));
    let back = fixture.path("back");
    let copied = with(&["cp", "-rp", &up.url("/there"), back.to_str().unwrap()]);
    assert!(copied.status.success(), "{:?}", texts(&copied));
    assert_eq!(shown(&back), shown(&local));
    let (code, stderr) = failure(&with(&["cp", &up.url("/there/p"), &up.url("/p")]));
    assert_eq!((code, stderr.contains("fifo")), (1, true), "{stderr}");
    let (code, stderr) = failure(&with(&["cat", &up.url("/there/p")]));
    assert_eq!((code, stderr.contains("no such device")), (1, true), "{stderr}");
    let long = texts(&with(&["ls", "-l", &up.url("/there")])).0;
    assert!(long.contains("crw-r----- 1 root root 4095, 1048575 "), "{long}");
    assert!(long.contains("prw-r----- 1 root root"), "{long}");
    let stat = texts(&with(&["stat", &up.url("/there/b")])).0;
    assert!(stat.contains("block special file") && stat.contains("7,300"), "{stat}");
    assert!(with(&["rm", "-r", &up.url("/there")]).status.success());
    up.stop();
}

#[test]
fn root_may_mount_with_device_files_and_set_id_programs() {
    let Some(fixture) = Fixture::new("powers") else { return };
    for more in [&[][..], &["--dev"], &["--suid"]] {
        let up = fixture.up(more);
        let (null, id) = (up.dir.join("null"), up.dir.join("id"));
        if !null.exists() {
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, &null, FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
            fs::copy("/usr/bin/id", &id).unwrap();
            fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
        }
        assert_eq!(fs::File::open(&null).is_ok(), more == ["--dev"]);
        let ids = ["--reuid=5001", "--regid=5001", "--clear-groups"];
        let user = must(program("setpriv").args(ids).arg(&id).arg("-u"));
        assert_eq!(user.trim(), if more == ["--suid"] { "0" } else { "5001" });
        up.stop();
    }
}

/// While execve(2) closes inherited descriptors, the kernel holds a lock of the process and awaits
/// the mount's answers: a mount that looked at the process would wait for it for ever.
#[test]
fn execve_closes_files_of_the_mount() {
    let Some(fixture) = Fixture::new("exec_close") else { return };
    let up = fixture.up(&[]);
    let open = |number: u32| fs::File::create(up.dir.join(number.to_string())).unwrap();
    let files: Vec<_> = (0..20).map(open).collect();
    for _ in 0..100 {
        must(&mut program("true"));
    }
    assert_eq!(fs::read_dir(&up.dir).unwrap().count(), files.len());
    up.stop();
}
