//! `mount.lanefs`, as mount(8) starts it: by type, by source, from fstab, and its exit codes.

use crate::fixture::{Fixture, Process, Up, binary, failure, run, texts, until};
use crate::mount_namespace::{Private, USER, User, done, prepare_for_user, secret_file, users_dir};
use std::fs;
use std::path::Path;
use std::process::Output;

/// `/usr/sbin` with all that is in it, and the two links beside that; the program where the path
/// of mount(8) finds it.
const LINKS: &str =
    "mkdir all; mount --bind /usr/sbin all; mount -t tmpfs -o mode=755 none /usr/sbin
    ln -s \"$PWD\"/all/* /usr/sbin/
    for name in mount.lanefs mount.fuse.lanefs; do ln -s \"$LANEFS\" /usr/sbin/$name; done
    mount -t tmpfs -o mode=755 none /usr/local/sbin; ln -s \"$LANEFS\" /usr/local/sbin/lanefs";

fn place(fixture: &Fixture, more: &str) -> Private {
    let binary = binary();
    Private::new(fixture, &format!("LANEFS={}\n{LINKS}\n{more}", binary.display()))
}

/// What `-o` of root says to use the server of `up`.
fn with_secret(fixture: &Fixture, options: &str) -> String {
    format!("{options},secret_file={}", secret_file(fixture).display())
}

/// Whether a process of the binary still serves a mount on `dir`.
fn is_served(dir: &Path) -> bool {
    let name = dir.to_str().unwrap().as_bytes();
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = lines.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    lines.any(|line| {
        line.starts_with(b"lanefs\0mount\0") && line.split(|byte| *byte == 0).any(|arg| arg == name)
    })
}

/// Works on a mount, ends it by umount(8), and waits for its process.
#[track_caller]
fn use_and_end(place: &Private, up: &Up, dir: &Path) {
    done(place.shell("echo here >\"$1/file\"", dir));
    assert_eq!(fs::read_to_string(up.dir.join("file")).unwrap(), "here\n");
    fs::remove_file(up.dir.join("file")).unwrap();
    done(place.shell("umount \"$1\"", dir));
    assert_eq!(place.mounted(dir), None);
    until("the mount's process ends", || !is_served(dir));
}

#[test]
fn mount_by_type_and_by_source() {
    let Some(fixture) = Fixture::new("by_type") else { return };
    let up = fixture.up(&[]);
    let place = place(&fixture, "");
    let dir = fixture.make_dir("m");
    let options = with_secret(&fixture, "noexec,_netdev");
    let address = &up.address;
    for how in [
        format!("mount -t lanefs -o {options} {address}/up \"$1\""),
        format!("mount -t lanefs -o {options},export=up lanefs://{address} \"$1\""),
        format!("mount -t fuse.lanefs -o {options} {address}/up \"$1\""),
        format!(
            "rm /usr/sbin/mount.fuse.lanefs; mount -t fuse.lanefs -o {options} {address}/up \"$1\""
        ),
        format!("mount -t fuse -o {options} lanefs#{address}/up \"$1\""),
        format!("mount -t fuse -o {options} mount.lanefs#{address}/up \"$1\""),
        format!("mount.lanefs {address}/up \"$1\" -n -o {options}"),
    ] {
        let said = done(place.shell(&how, &dir));
        assert_eq!(said, "", "{how}");
        let shown = place.mounted(&dir).unwrap();
        let has = |option| shown.split(',').any(|shown| shown == option);
        // mount.fuse3 adds `dev,suid`.
        let by_fuse3 = how.contains("-t fuse ") || how.contains("rm ");
        assert!(has("noexec"), "{how}: {shown}");
        assert_eq!([has("nosuid"), has("nodev")], [!by_fuse3; 2], "{how}: {shown}");
        use_and_end(&place, &up, &dir);
    }
    up.stop();
}

#[test]
fn a_line_of_fstab_is_mounted() {
    let Some(fixture) = Fixture::new("by_type_fstab") else { return };
    let up = fixture.up(&[]);
    let place = place(&fixture, "");
    let dir = fixture.make_dir("m");
    let options =
        with_secret(&fixture, "ro,nofail,_netdev,noauto,x-systemd.requires=network.target");
    let line = format!("{}/up {} lanefs {options} 0 0\n", up.address, dir.display());
    let fstab = fixture.path("fstab");
    fs::write(&fstab, line).unwrap();
    let mount = format!("mount -T {} \"$1\"", fstab.display());
    done(place.shell(&mount, &dir));
    assert!(place.mounted(&dir).unwrap().starts_with("ro,nosuid,nodev"));
    let (_, said) = failure(&run(&mut place.shell("LC_ALL=C touch \"$1/a\"", &dir)));
    assert!(said.contains("Read-only file system"), "{said}");
    done(place.shell("umount \"$1\"", &dir));
    until("the mount's process ends", || !is_served(&dir));
    fs::write(&fstab, fs::read_to_string(&fstab).unwrap().replace("ro,", "rw,")).unwrap();
    done(place.shell(&mount, &dir));
    use_and_end(&place, &up, &dir);
    let all = format!("mount -T {} -a; test -z \"$(ls \"$1\")\"", fstab.display());
    done(place.shell(&all, &dir));
    assert_eq!(place.mounted(&dir), None, "noauto");
    up.stop();
}

#[test]
fn mounting_all_again_mounts_nothing() {
    let Some(fixture) = Fixture::new("by_type_all") else { return };
    let up = fixture.up(&[]);
    let place = place(&fixture, "");
    let (dir, url) = (fixture.make_dir("m"), fixture.make_dir("u"));
    let options = with_secret(&fixture, "defaults,_netdev,nofail,x-systemd.automount");
    let address = &up.address;
    let lines = format!(
        "{address}/up {} lanefs {options} 0 0\nlanefs://{address} {} fuse.lanefs {options},export=up 0 0\n",
        dir.display(),
        url.display()
    );
    let fstab = fixture.path("fstab");
    fs::write(&fstab, lines).unwrap();
    let all = format!("mount -T {} -a -v", fstab.display());
    let count = "grep -c \" $1 \" /proc/self/mounts";
    done(place.shell(&all, &dir));
    let said = done(place.shell(&format!("{all}; {count}"), &dir));
    assert_eq!(said.matches("already mounted").count(), 2, "{said}");
    assert!(said.ends_with("\n1\n"), "{said}");
    let shown = done(place.shell("findmnt -n -o SOURCE,FSTYPE \"$1\"", &dir));
    let shown: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(shown, [&format!("{address}/up"), "fuse.lanefs"]);
    use_and_end(&place, &up, &url);
    use_and_end(&place, &up, &dir);
    up.stop();
}

#[test]
fn mount_8_remounts_with_and_without_a_line_of_fstab() {
    let Some(fixture) = Fixture::new("by_type_remount") else { return };
    let up = fixture.up(&[]);
    let fstab = fixture.path("fstab");
    fs::write(&fstab, "").unwrap();
    let place = place(&fixture, &format!("mount --bind {} /etc/fstab", fstab.display()));
    let dir = fixture.make_dir("m");
    let options = with_secret(&fixture, "noexec,_netdev,nofail");
    let address = &up.address;
    let line = format!("{address}/up {} lanefs {options},ro 0 0\n", dir.display());
    let has = |option: &str| place.mounted(&dir).unwrap().split(',').any(|shown| shown == option);
    for (line, mount) in [
        (line.as_str(), "mount \"$1\"".to_owned()),
        ("", format!("mount -t lanefs -o {options},ro {address}/up \"$1\"")),
    ] {
        // Over the file that is bound, not in its place.
        fs::write(&fstab, line).unwrap();
        done(place.shell(&mount, &dir));
        assert!(has("ro") && has("noexec"));
        for (how, wanted) in [("remount,rw", "rw"), ("remount,ro", "ro"), ("rw,remount", "rw")] {
            done(place.shell(&format!("mount -o {how} \"$1\""), &dir));
            assert!(
                has(wanted) && has("noexec") && has("nosuid"),
                "{how}: {:?}",
                place.mounted(&dir)
            );
        }
        use_and_end(&place, &up, &dir);
    }
    up.stop();
}

/// `/etc` with changes of one's own; root's home is `home`, which `$HOME` does not say.
const ETC: &str = "mkdir upper work; mount -t overlay -o lowerdir=/etc,upperdir=upper,workdir=work none /etc
    sed -i \"s,^\\(root:[^:]*:0:0:[^:]*\\):[^:]*,\\1:$MADE_HOME,\" /etc/passwd; rm -rf /etc/lanefs; mkdir /etc/lanefs";

#[test]
fn without_home_the_secret_is_found_by_the_password_database_or_in_etc() {
    let Some(fixture) = Fixture::new("by_type_home") else { return };
    let up = fixture.up(&[]);
    let home = fixture.make_dir("home");
    let more = format!("MADE_HOME={}\n{ETC}", home.display());
    let place = place(&fixture, &more);
    let dir = fixture.make_dir("m");
    let bare = "env -u HOME -u XDG_CONFIG_HOME -u LANEFS_SECRET_FILE";
    let mount = format!("{bare} mount -t lanefs {}/up \"$1\"", up.address);
    let of_home = home.join(".config/lanefs/secret");
    let list = format!("{bare} lanefs ls lanefs://{}/", up.address);
    for command in [&mount, &list] {
        let (_, said) = failure(&run(&mut place.shell(command, &dir)));
        let looked_at = format!("no secret at {}, nor at /etc/lanefs/secret: ", of_home.display());
        assert!(said.contains(&looked_at), "{command}: {said}");
    }
    let secret = secret_file(&fixture);
    fs::create_dir_all(of_home.parent().unwrap()).unwrap();
    let copy = |to: &str| done(place.shell(&format!("cp \"$1\" {to}"), &secret));
    for place_of_secret in [of_home.to_str().unwrap(), "/etc/lanefs/secret"] {
        copy(place_of_secret);
        done(place.shell(&list, &dir));
        done(place.shell(&mount, &dir));
        use_and_end(&place, &up, &dir);
        done(place.shell("rm \"$1\"", Path::new(place_of_secret)));
    }
    // What belongs to root is not looked at by others.
    copy("/etc/lanefs/secret");
    let (_, said) = failure(&run(&mut place.shell_as_user(&list, &dir)));
    assert!(said.contains("/etc/lanefs/secret (which this user cannot read)"), "{said}");
    up.stop();
}

#[test]
fn an_ordinary_user_mounts_a_line_of_fstab_that_allows_it() {
    let Some(fixture) = Fixture::new("by_type_users") else { return };
    prepare_for_user(&fixture);
    let dir = users_dir(&fixture, "m");
    let fstab = fixture.path("fstab");
    fs::write(&fstab, "").unwrap();
    let more = format!("mount --bind {} /etc/fstab", fstab.display());
    let place = place(&fixture, &more);
    let up = fixture.up_in(&User(&place), "mnt", &["--listen", "127.0.0.1:0"]);
    let log = users_dir(&fixture, "logs").join("m.log");
    let options = with_secret(&fixture, &format!("users,noauto,log={}", log.display()));
    // Over the file that is bound, not in its place.
    let line = format!("{}/up {} lanefs {options} 0 0\n", up.address, dir.display());
    fs::write(&fstab, line).unwrap();
    done(place.shell_as_user("mount \"$1\"", &dir));
    let shown = place.mounted(&dir).unwrap();
    assert!(shown.contains(&format!("user_id={USER}")) && shown.contains("noexec"), "{shown}");
    done(place.shell_as_user("echo x >\"$1/a\" && umount \"$1\"", &dir));
    until("the mount's process ends", || !is_served(&dir));
    assert_eq!(place.mounted(&dir), None);
    up.stop();
}

#[test]
fn errors_have_the_codes_of_mount() {
    let Some(fixture) = Fixture::new("by_type_errors") else { return };
    let up = fixture.up(&[]);
    let place = place(&fixture, "");
    let dir = fixture.make_dir("m");
    let good = with_secret(&fixture, "rw");
    let address = format!("{}/up", up.address);
    let fails = |script: &str, code: i32, part: &str| {
        let output: Output = run(&mut place.shell(script, &dir));
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{script}: {stderr}");
        assert!(stderr.contains(part), "{script}: {stderr}");
        assert_eq!(stdout, "", "{script}");
        assert_eq!(place.mounted(&dir), None, "{script}");
    };
    for by in ["mount.lanefs", "mount -t lanefs"] {
        fails(&format!("{by} -o {good},frob {address} \"$1\""), 1, "\"frob\"");
        fails(&format!("{by} -o {good},export=b {address} \"$1\""), 1, "two exports");
        fails(&format!("{by} -o {good} {}/none \"$1\"", up.address), 32, "export");
        fails(&format!("{by} -o secret_file=/none {address} \"$1\""), 32, "no secret at /none");
        fails(&format!("{by} -o {good},log=/none/log {address} \"$1\""), 2, "/none/log");
    }
    fails(&format!("mount -t lanefs -o {good} 127.0.0.1:1 \"$1\""), 32, "127.0.0.1:1");
    fails("mount.lanefs", 1, "Usage");
    fails(&format!("mount.lanefs -x {address} \"$1\""), 1, "-x");
    fails(&format!("mount.lanefs -o {good} {address} /none/none/none"), 32, "/none/none");
    fails(&format!("mount.lanefs -o {good} {address} \"$1/none\""), 32, "cannot mount on");
    let fake = format!("mount.lanefs -f -o {good} {address} \"$1\"");
    assert_eq!(done(place.shell(&fake, &dir)), "");
    assert_eq!(place.mounted(&dir), None);
    let sloppy = format!("mount -s -v -t lanefs -o {good},frob {address} \"$1\"");
    done(place.shell(&sloppy, &dir));
    let (_, said) =
        failure(&run(&mut place
            .shell(&format!("mount.lanefs -o {good} {address} \"$1\"; test $? = 32"), &dir)));
    assert!(said.contains("mounted there already"), "{said}");
    use_and_end(&place, &up, &dir);
    up.stop();
}

#[test]
fn a_mount_in_the_background_lets_go_of_the_terminal_and_the_folder() {
    let Some(fixture) = Fixture::new("by_type_background") else { return };
    let up = fixture.up(&[]);
    let place = place(&fixture, "");
    let dir = fixture.make_dir("m");
    let options = with_secret(&fixture, "lanes=1");
    // A reader of its output sees end of file.
    let script =
        format!("cd \"$1/..\"; mount -t lanefs -o {options} {}/up m; echo back", up.address);
    let mut process = Process::start(&mut place.shell(&script, &dir));
    assert_eq!(process.line_with("back"), "back");
    assert_eq!(process.end().code(), Some(0));
    // If the lanes are not on io_uring, the mount prints the reason.
    let said = process.said();
    assert!(
        said.lines().all(|line| line == "back" || line.starts_with("driver epoll: ")),
        "{said}"
    );
    use_and_end(&place, &up, &dir);
    up.stop();
}
