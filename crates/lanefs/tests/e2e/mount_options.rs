//! `-o` of `lanefs mount`: each option does what it says, and what is not known is refused.

use crate::fixture::{Fixture, Mount, failure, mounted, must, program, run, until};
use crate::mount_namespace::{Private, User, done, prepare_for_user, users_dir};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The options that mountinfo shows, of the mount and of the file system.
fn shown(dir: &Path) -> Vec<String> {
    mounted(dir).unwrap().options.split(',').map(str::to_owned).collect()
}

fn shows(mount: &Mount, option: &str) -> bool {
    shown(&mount.dir).iter().any(|shown| shown == option)
}

#[test]
fn a_mount_that_is_ro_changes_nothing() {
    let Some(fixture) = Fixture::new("option_ro") else { return };
    let up = fixture.up(&[]);
    fs::write(up.dir.join("a"), "x").unwrap();
    let mount = fixture.mount(&up.address, "ro", &["--export", "up", "-o", "ro"]);
    assert!(shows(&mount, "ro") && !shows(&mount, "rw"), "{:?}", shown(&mount.dir));
    let path = mount.dir.join("a");
    assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    let refusals = [
        fs::write(&path, "y").unwrap_err(),
        fs::write(mount.dir.join("b"), "y").unwrap_err(),
        fs::remove_file(&path).unwrap_err(),
        fs::create_dir(mount.dir.join("d")).unwrap_err(),
        fs::rename(&path, mount.dir.join("c")).unwrap_err(),
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap_err(),
    ];
    for error in refusals {
        assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()), "{error}");
    }
    mount.stop();
    let mount = fixture.mount(&up.address, "rw", &["--export", "up", "-o", "ro,rw"]);
    assert!(shows(&mount, "rw"));
    fs::write(mount.dir.join("a"), "y").unwrap();
    mount.stop();
    up.stop();
}

#[test]
fn what_a_mount_lets_programs_do() {
    let Some(fixture) = Fixture::new("option_flags") else { return };
    let up = fixture.up(&[]);
    let on = |options: &str| fixture.mount(&up.address, "m", &["--export", "up", "-o", options]);
    fs::copy("/usr/bin/id", up.dir.join("id")).unwrap();
    fs::set_permissions(up.dir.join("id"), fs::Permissions::from_mode(0o4755)).unwrap();
    must(program("mknod").arg(up.dir.join("null")).args(["-m", "666", "c", "1", "3"]));
    let ids = ["--reuid=5001", "--regid=5001", "--clear-groups"];
    for (options, user, device) in [
        ("nosuid,nodev", "5001", false),
        ("suid", "0", false),
        ("dev", "5001", true),
        ("suid,dev,relatime", "0", true),
        ("suid,nosuid,dev,nodev,noexec,exec,defaults", "5001", false),
    ] {
        let mount = on(options);
        let said = must(program("setpriv").args(ids).arg(mount.dir.join("id")).arg("-u"));
        assert_eq!(said.trim(), user, "{options}");
        assert_eq!(fs::File::open(mount.dir.join("null")).is_ok(), device, "{options}");
        mount.stop();
    }
    let mount = on("noexec,noatime,nodiratime");
    for option in ["noexec", "noatime", "nodiratime"] {
        assert!(shows(&mount, option), "{:?}", shown(&mount.dir));
    }
    let error = program(mount.dir.join("id").to_str().unwrap()).spawn().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    mount.stop();
    let mount = on("relatime,allow_other,_netdev,nofail,x-systemd.automount");
    assert!(shows(&mount, "relatime") && shows(&mount, "allow_other"), "{:?}", shown(&mount.dir));
    mount.stop();
    up.stop();
}

#[test]
fn export_secret_lanes_and_log_are_named_by_options() {
    let Some(fixture) = Fixture::new("option_values") else { return };
    let up = fixture.up(&[]);
    fs::write(up.dir.join("roots"), "x").unwrap();
    fs::set_permissions(up.dir.join("roots"), fs::Permissions::from_mode(0o600)).unwrap();
    let moved = fixture.path("moved-secret");
    fs::rename(fixture.path("config").join("lanefs").join("secret"), &moved).unwrap();
    let dir = fixture.make_dir("m");
    let output = run(fixture.lanefs(["mount", &up.address]).arg(&dir));
    assert!(failure(&output).1.contains("no secret"), "{:?}", failure(&output));
    let options = format!("export=up,lanes=3,secret_file={}", moved.display());
    let mut mount = fixture.mount(&up.address, "m", &["-o", &options]);
    assert_eq!(fs::read_to_string(mount.dir.join("roots")).unwrap(), "x");
    mount.process.signal(rustix::process::Signal::TERM);
    mount.process.end();
    assert!(mount.process.said().contains(", 3 lanes"), "{}", mount.process.said());
    let log = fixture.path("a-log");
    let lanes = "lanes=1,driver=epoll,fuse=classic,pin=off,spin=20us";
    let options = format!("secret_file={},log={},{lanes}", moved.display(), log.display());
    let source = format!("lanefs://{}/up", up.address);
    must(fixture.lanefs(["mount", "-d", &source]).arg(&dir).args(["-o", &options]));
    assert_eq!(fs::read_to_string(dir.join("roots")).unwrap(), "x");
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("over /dev/fuse, driver epoll, 1 lane\n"), "{said}");
    must(fixture.lanefs(["umount"]).arg(&dir));
    up.stop();
}

#[test]
fn options_that_every_file_system_has_are_taken() {
    let Some(fixture) = Fixture::new("option_common") else { return };
    let up = fixture.up(&[]);
    let on = |options: &str| fixture.mount(&up.address, "m", &["--export", "up", "-o", options]);
    let passed_over = "defaults,auto,noauto,nofail,_netdev,user,nouser,users,owner,group,silent,loud,\
        iversion,noiversion,nomand,async,x-a.b=c,X-mount.mkdir,comment=text,user=me";
    on(passed_over).stop();
    let mount = on("strictatime,lazytime,nodiratime,nosymfollow");
    for option in ["lazytime", "nodiratime", "nosymfollow"] {
        assert!(shows(&mount, option), "{option}: {:?}", shown(&mount.dir));
    }
    assert!(!shows(&mount, "relatime"), "{:?}", shown(&mount.dir));
    std::os::unix::fs::symlink("a", up.dir.join("link")).unwrap();
    let error = fs::read(mount.dir.join("link")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()), "nosymfollow");
    mount.stop();
    let mount =
        on("strictatime,nostrictatime,lazytime,nolazytime,nosymfollow,symfollow,norelatime");
    assert!(shows(&mount, "relatime") && !shows(&mount, "lazytime"), "{:?}", shown(&mount.dir));
    mount.stop();
    up.stop();
}

#[test]
fn a_remount_changes_the_flags_that_it_names() {
    let Some(fixture) = Fixture::new("option_remount") else { return };
    let up = fixture.up(&[]);
    let mount = fixture.mount(&up.address, "m", &["--export", "up", "-o", "noexec"]);
    let address = up.address.as_str();
    let remount =
        |options: &str, dir: &Path| run(fixture.lanefs(["mount", address, "-o", options]).arg(dir));
    let path = mount.dir.join("a");
    let file = fs::File::create(&path).unwrap();
    let (code, said) = failure(&remount("remount,ro", &mount.dir));
    assert!(code == 1 && said.contains("open for writing"), "{code}: {said}");
    drop(file);
    // The kernel closes it a moment after the program has.
    until("it is remounted", || remount("remount,ro", &mount.dir).status.success());
    assert!(shows(&mount, "ro") && shows(&mount, "noexec"), "{:?}", shown(&mount.dir));
    let error = fs::write(&path, "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    let remounted = remount("remount,rw,exec", &mount.dir);
    assert!(remounted.status.success(), "{:?}", failure(&remounted));
    assert!(!shows(&mount, "noexec") && !shows(&mount, "ro"), "{:?}", shown(&mount.dir));
    assert!(shows(&mount, "nosuid") && shows(&mount, "nodev"), "{:?}", shown(&mount.dir));
    fs::write(&path, "x").unwrap();
    let dir = mount.dir.clone();
    // It still knows its mount.
    mount.stop();
    let (code, said) = failure(&remount("remount,ro", &dir));
    assert!(code == 1 && said.contains("nothing is mounted there"), "{code}: {said}");
    up.stop();
}

#[test]
fn options_that_make_no_sense_are_named() {
    let Some(fixture) = Fixture::new("option_unknown") else { return };
    let dir = fixture.make_dir("m");
    for (options, part) in [
        ("ro,frob,rw", "\"frob\""),
        ("frob=1", "\"frob=1\""),
        ("sync", "`lanefs serve --sync`"),
        ("rw,bind", "mount(8) does that by itself"),
        ("context=a", "SELinux"),
        ("user_id=0", "\"user_id=0\""),
        ("lanes=0", "\"lanes=0\""),
        ("secret_file=", "\"secret_file=\""),
        ("export=a,export=b", "two exports"),
    ] {
        let mut command = fixture.lanefs(["mount", "127.0.0.1:1", "-o", options]);
        let (code, said) = failure(&run(command.arg(&dir)));
        assert_eq!(code, 2, "{options}: {said}");
        assert!(said.contains(part), "{options}: {said}");
    }
}

#[test]
fn an_ordinary_user_s_options_reach_the_kernel_through_fusermount3() {
    let Some(fixture) = Fixture::new("option_user") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &["--listen", "127.0.0.1:0"]);
    done(place.shell_as_user("cp /usr/bin/true \"$1\"", &up.dir));
    let dir = users_dir(&fixture, "m");
    let options = "ro,noexec,noatime,relatime,noatime,nofail";
    let address = format!("{}/up", up.address);
    let mount = fixture.mount_in(&User(&place), &address, "m", &["-o", options]);
    let shown = place.mounted(&dir).unwrap();
    for option in ["ro", "noexec", "noatime", "nosuid", "nodev"] {
        assert!(shown.split(',').any(|shown| shown == option), "{option}: {shown}");
    }
    let work = "LC_ALL=C; export LC_ALL; touch \"$1/true\"; \"$1/true\"; echo $?";
    let output = run(&mut place.shell_as_user(work, &dir));
    let (said, errors) = crate::fixture::texts(&output);
    assert!(errors.contains("Read-only file system"), "{errors}");
    assert_eq!(said, "126\n", "{errors}");
    mount.stop();
    up.stop();
}

#[test]
fn of_several_addresses_the_first_that_answers_is_mounted() {
    let Some(fixture) = Fixture::new("addresses") else { return };
    let up = fixture.up(&[]);
    fs::write(up.dir.join("file"), "x").unwrap();
    // Nobody listens at the discard port.
    let source = format!("127.0.0.1:9,{},127.0.0.1:9/up", up.address);
    let mut mount = fixture.mount(&source, "m", &[]);
    assert_eq!(fs::read_to_string(mount.dir.join("file")).unwrap(), "x");
    mount.process.signal(rustix::process::Signal::TERM);
    mount.process.end();
    let output = run(fixture.lanefs(["mount", "127.0.0.1:9,127.0.0.1:9"]).arg(&mount.dir));
    let (code, line) = failure(&output);
    assert!(
        code == 3 && line.contains("no server answers: cannot connect to 127.0.0.1:9"),
        "{line}"
    );
    up.stop();
}
