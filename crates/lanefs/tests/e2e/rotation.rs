//! The secret is changed while server and mounts run: two are valid in between, clients with the new one go on, and
//! clients with only the retired one are cut off.

use crate::fixture::{Fixture, Mount, PATIENCE, Process, Server, failure, kill, must, until, wrap};
use crate::raw_client::{Raw, hello, refused};
use library::{ConnectOptions, Refused, Volume};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::*;

/// The server's secret file.
fn server_secret(fixture: &Fixture) -> PathBuf {
    fixture.path("config/lanefs/secret")
}

/// Puts a client's copy of it where its secret file is, or will be.
fn copy_secret(fixture: &Fixture, name: &str) -> PathBuf {
    let path = fixture.path(name);
    fs::copy(server_secret(fixture), &path).unwrap();
    path
}

/// `lanefs secret` must succeed, and shows no secret.
#[track_caller]
fn change(fixture: &Fixture, what: &str) -> String {
    let before = fs::read_to_string(server_secret(fixture)).unwrap();
    let said = must(&mut fixture.lanefs(["secret", what]));
    let after = fs::read_to_string(server_secret(fixture)).unwrap();
    assert!(before.lines().chain(after.lines()).all(|secret| !said.contains(secret)));
    said
}

/// The same, with a server that takes it up.
#[track_caller]
fn change_served(fixture: &Fixture, what: &str) {
    let said = change(fixture, what);
    assert!(said.contains("the server has taken it up"), "{said}");
}

/// It must fail; what it says.
#[track_caller]
fn change_fails(fixture: &Fixture, what: &str) -> String {
    let before = fs::read(server_secret(fixture)).unwrap();
    let (code, line) = failure(&fixture.run(["secret", what]));
    assert_eq!(code, 1, "{line}");
    assert_eq!(before, fs::read(server_secret(fixture)).unwrap(), "nothing is changed");
    line
}

fn mount_with(fixture: &Fixture, server: &Server, name: &str, secret: &Path) -> Mount {
    let secret = secret.to_str().unwrap();
    fixture.mount(&server.address, name, &["--export", "up", "--secret-file", secret])
}

fn locked(dir: &Path, name: &str) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(dir.join(name));
    let file = file.unwrap();
    file.try_lock().unwrap();
    file
}

fn is_locked(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn is_cut_off(dir: &Path) -> bool {
    fs::metadata(dir.join("nothing"))
        .is_err_and(|error| error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()))
}

#[test]
fn mounts_with_the_new_secret_lose_nothing_and_others_are_cut_off() {
    let Some(fixture) = Fixture::new("rotation") else { return };
    let mut server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let (copied, forgotten) = (copy_secret(&fixture, "copied"), copy_secret(&fixture, "forgotten"));
    let mut first = mount_with(&fixture, &server, "first", &copied);
    let second = mount_with(&fixture, &server, "second", &forgotten);
    let mut open = locked(&first.dir, "f");
    let lost = locked(&second.dir, "g");
    change_served(&fixture, "rotate");
    for (mount, name) in [(&first, "a"), (&second, "b")] {
        fs::write(mount.dir.join(name), "with the earlier secret").unwrap();
    }
    assert!(change_fails(&fixture, "rotate").contains("two secrets are valid already"));
    let third = mount_with(&fixture, &server, "third", &server_secret(&fixture));
    assert_eq!(fs::read_dir(&third.dir).unwrap().count(), 4);
    let theirs = ["f", "g"].map(|name| File::open(third.dir.join(name)).unwrap());
    assert!(theirs.iter().all(is_locked));
    copy_secret(&fixture, "copied");
    open.write_all(b"before").unwrap();
    change_served(&fixture, "retire");
    open.write_all(b" and after").unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read_to_string(third.dir.join("f")).unwrap(), "before and after");
    until("the second mount is cut off", || is_cut_off(&second.dir));
    until("its lock is free", || !is_locked(&theirs[1]));
    assert!(is_locked(&theirs[0]), "the first one's is not");
    server.process.line_with("because their secret was retired");
    // It goes on without a new mount, and fsync reports the lost lock.
    copy_secret(&fixture, "forgotten");
    until("the second mount is back", || second.dir.join("a").exists());
    lost.set_len(5).unwrap();
    assert_eq!(lost.sync_all().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    lost.sync_all().unwrap();
    assert_eq!(fs::metadata(third.dir.join("g")).unwrap().len(), 5);
    drop((open, lost));
    for mount in [second, third] {
        mount.stop();
    }
    first.process.signal(Signal::TERM);
    first.process.end();
    let said = first.process.said();
    assert!(!said.contains("ALARM") && !said.contains("lost"), "{said}");
}

/// Greets with a secret that is not valid, and sends a proof all the same; the reason of the refusal.
fn refusal(address: &str, export: &str, secret: &Secret) -> RefusalReason {
    let client = ClientUuid(library::random().unwrap());
    let refused = refused(address, secret, &hello(secret.credential(), (export, 0), client));
    assert!(!refused.server_proven, "the server does not know it");
    refused.reason
}

#[test]
fn a_retired_secret_and_an_exports_that_follows_from_it_are_refused() {
    let Some(fixture) = Fixture::new("rotation_refused") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let address = &server.address;
    must(&mut fixture.lanefs(["export", "add", address, "guests", "/", "--squash", "none"]));
    let of_export = || must(&mut fixture.lanefs(["export", "secret", address, "guests"]));
    let of_store = || library::secret::read(&server_secret(&fixture)).unwrap();
    let of = |text: &str| library::secret::of_text(text).unwrap();
    let (old, old_export) = (of_store(), of_export());
    let file = fixture.path("guest");
    fs::write(&file, &old_export).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let guests = format!("{address}/guests");
    let guest = fixture.mount(&guests, "guest-mnt", &["--secret-file", file.to_str().unwrap()]);
    let mut open = locked(&guest.dir, "f");
    change_served(&fixture, "rotate");
    let (new, new_export) = (of_store(), of_export());
    assert!(old != new && old_export != new_export);
    let came = |secret: &Secret, export| {
        let client = ClientUuid(library::random().unwrap());
        Raw::new(address, secret, (export, 0), client)
    };
    let mut olds = [came(&old, "up"), came(&of(&old_export), "guests")];
    let mut news = [came(&new, "up"), came(&of(&new_export), "guests")];
    fs::write(&file, &new_export).unwrap();
    change_served(&fixture, "retire");
    for raw in &mut olds {
        assert!(raw.take().is_err(), "its connection has ended");
    }
    for raw in &mut news {
        let getattr = Getattr { inode: raw.root };
        assert_eq!(
            raw.answer(Op::Getattr, ShardId::meta(0), &getattr, &[]).reply.status,
            Status::Ok
        );
    }
    assert_eq!(refusal(address, "up", &old), RefusalReason::WrongSecret);
    assert_eq!(refusal(address, "guests", &of(&old_export)), RefusalReason::WrongSecret);
    open.write_all(b"a guest goes on").unwrap();
    assert_eq!(fs::read_to_string(guest.dir.join("f")).unwrap(), "a guest goes on");
    assert!(is_locked(&File::open(guest.dir.join("f")).unwrap()));
    drop(open);
    guest.stop();
}

#[test]
fn a_server_killed_during_a_rotation_continues_it() {
    let Some(fixture) = Fixture::new("rotation_kill") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let again = |server: &mut Server| {
        kill(server.process.pid());
        server.process.end();
    };
    let copied = copy_secret(&fixture, "copied");
    let mount = mount_with(&fixture, &server, "mnt", &copied);
    let mut open = locked(&mount.dir, "f");
    open.write_all(b"one").unwrap();
    change_served(&fixture, "rotate");
    again(&mut server);
    let mut server = fixture.serve(&server.address);
    open.write_all(b", two").unwrap();
    copy_secret(&fixture, "copied");
    again(&mut server);
    assert!(change(&fixture, "retire").contains("no server of this machine"));
    let mut server = fixture.serve(&server.address);
    open.write_all(b", three").unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read_to_string(mount.dir.join("f")).unwrap(), "one, two, three");
    assert!(is_locked(&File::open(mount.dir.join("f")).unwrap()));
    // Recovery does not wait longer for a client that has only the retired secret.
    change_served(&fixture, "rotate");
    again(&mut server);
    change(&fixture, "retire");
    let server = fixture.serve(&server.address);
    until("the mount is cut off", || is_cut_off(&mount.dir));
    let other = mount_with(&fixture, &server, "other", &server_secret(&fixture));
    let free = File::open(other.dir.join("f")).unwrap();
    until("its lock is free", || !is_locked(&free));
    drop((open, free));
    other.stop();
    mount.stop();
}

#[test]
fn a_file_that_is_no_secret_changes_nothing_and_is_logged() {
    let Some(fixture) = Fixture::new("rotation_bad") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let good = copy_secret(&fixture, "good");
    let export = fixture.path("export");
    let of_store = library::secret::read(&good).unwrap();
    fs::write(&export, library::secret::text_of(&of_store.of_export(b"up", 0))).unwrap();
    let bad = |text: &[u8], mode, said: &str, server: &mut Server| {
        fs::write(server_secret(&fixture), text).unwrap();
        fs::set_permissions(server_secret(&fixture), fs::Permissions::from_mode(mode)).unwrap();
        let line = server.process.line_with(said);
        assert!(line.contains("the earlier secrets stay valid"), "{line}");
        let mount = mount_with(&fixture, server, &format!("mnt{mode}{}", text.len()), &good);
        mount.stop();
    };
    bad(b"hunter2", 0o600, "64 hexadecimal digits", &mut server);
    bad(&fs::read(&export).unwrap(), 0o600, "not the store's", &mut server);
    bad(&fs::read(&good).unwrap().repeat(3), 0o600, "64 hexadecimal digits", &mut server);
    bad(&fs::read(&good).unwrap(), 0o644, "open to others", &mut server);
    fs::remove_file(server_secret(&fixture)).unwrap();
    fs::copy(&export, server_secret(&fixture)).unwrap();
    fs::set_permissions(server_secret(&fixture), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(change_fails(&fixture, "rotate").contains("is the secret of an export"));
    fs::copy(&good, server_secret(&fixture)).unwrap();
    assert!(change_fails(&fixture, "retire").contains("there is no earlier one"));
    change_served(&fixture, "rotate");
}

#[test]
fn the_file_keeps_its_mode_owner_and_place() {
    let Some(fixture) = Fixture::new("rotation_modes") else { return };
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode();
    for umask in ["0000", "0277"] {
        drop(fixture.serve("127.0.0.1:0"));
        // A symbolic link to a file of another user.
        let real = fixture.make_dir(&format!("real{umask}")).join("secret");
        fs::rename(server_secret(&fixture), &real).unwrap();
        symlink(&real, server_secret(&fixture)).unwrap();
        chown(&real, Some(4711), Some(4712)).unwrap();
        for what in ["rotate", "retire"] {
            let script = format!("umask {umask}; exec \"$0\" \"$@\"");
            let mut sh = Command::new("sh");
            sh.arg("-c").arg(script);
            must(&mut wrap(sh, fixture.lanefs(["secret", what])));
            let found = fs::metadata(&real).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (4711, 4712, 0o600));
            assert_eq!(
                mode(&server_secret(&fixture)) & 0o170_000,
                0o120_000,
                "still a symbolic link"
            );
            let names = fs::read_dir(real.parent().unwrap()).unwrap();
            assert_eq!(names.count(), 1, "no draft is left");
        }
        let said = change(&fixture, "show");
        assert!(said.contains("one secret") && !said.contains("uses it"), "{said}");
        let folder = File::open(real.parent().unwrap()).unwrap();
        flock(&folder, FlockOperation::LockExclusive).unwrap();
        assert!(change_fails(&fixture, "rotate").contains("another `lanefs secret`"));
        drop(folder);
        fs::remove_file(server_secret(&fixture)).unwrap();
    }
}

/// Where no change of a file is seen, a signal has it read.
#[test]
fn a_signal_has_the_secret_read_again() {
    let Some(fixture) = Fixture::new("rotation_signal") else { return };
    let mut setsid = Command::new("setsid");
    setsid.stdin(Stdio::null());
    let mut up = fixture.lanefs(["up", "--listen", "127.0.0.1:0"]);
    up.arg(fixture.path("mnt"));
    let mut up = Process::start(&mut wrap(setsid, up));
    up.line_with("stop ");
    up.signal(Signal::HUP);
    up.line_with("read the secret again: one is valid");
    change_served(&fixture, "rotate");
    up.line_with("read the secret again: two are valid");
    fs::write(fixture.path("mnt/f"), "x").unwrap();
    change_served(&fixture, "retire");
    fs::write(fixture.path("mnt/f"), "its own mount reads the same file").unwrap();
    up.signal(Signal::TERM);
    assert!(up.end().success(), "{}", up.said());
}

#[test]
fn a_volume_reads_its_file_again_if_it_has_one() {
    let Some(fixture) = Fixture::new("rotation_volume") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let copied = copy_secret(&fixture, "copied");
    let address = server.address.parse().unwrap();
    let options = ConnectOptions {
        export: "up".to_owned(),
        connect_timeout: PATIENCE,
        ..ConnectOptions::new(address, library::secret::read(&copied).unwrap())
    };
    let mut with_value = Volume::connect(&options).unwrap();
    let of_file = ConnectOptions { secret_file: Some(copied), ..options };
    let mut with_file = Volume::connect(&of_file).unwrap();
    let file = with_file.create("/f".as_ref(), 0o644, false).unwrap();
    change_served(&fixture, "rotate");
    with_file.write_at(&file, 0, b"before").unwrap();
    copy_secret(&fixture, "copied");
    change_served(&fixture, "retire");
    with_file.write_at(&file, 6, b" and after").unwrap();
    with_file.close(file).unwrap();
    with_file.leave().unwrap();
    let refused = with_value.stat("/f".as_ref()).unwrap_err();
    let library::Error::Refused { reason, .. } = refused else { panic!("{refused}") };
    assert_eq!(reason, Refused::WrongSecret);
    let found =
        must(&mut fixture.lanefs(["cat", "--export", "up", &format!("lanefs://{address}/f")]));
    assert_eq!(found, "before and after");
}
