//! Mounting without being root, through fusermount3.

use crate::fixture::{
    Fixture, Place, Process, binary, failure, is_alive, kill, no_fuse_over_io_uring, program, run,
    until, wrap,
};
use crate::mount_namespace::{Private, USER, User, done, prepare_for_user, users_dir};
use rustix::process::{Pid, Signal, kill_process_group};
use std::process::Command;

const LOCAL: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// `lanefs` as the user.
fn lanefs(fixture: &Fixture, place: &Private, arguments: &[&str]) -> Command {
    User(place).inside(fixture.lanefs(arguments))
}

#[test]
fn an_ordinary_user_runs_up_and_sees_it_alone() {
    let Some(fixture) = Fixture::new("user_up") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &LOCAL);
    let options = place.mounted(&up.dir).unwrap();
    let has = |name: &str| options.split(',').any(|option| option == name);
    assert!(has("nosuid") && has("nodev") && has(&format!("user_id={USER}")), "{options}");
    assert!(!has("allow_other"), "{options}");
    let work = "cd \"$1\" && echo text >a && mkdir d && mv a d/b && cat d/b && stat -c '%u %g' d";
    let said = done(place.shell_as_user(work, &up.dir));
    assert_eq!(said, format!("text\n{USER} {USER}\n"));
    let (_, said) = failure(&run(&mut place.shell("ls \"$1\"", &up.dir)));
    assert!(said.contains("Permission denied"), "root is another user: {said}");
    let dir = up.dir.clone();
    let said = up.stop();
    assert!(said.contains("over /dev/fuse") || said.contains("over io_uring"), "{said}");
    assert_eq!(place.mounted(&dir), None, "{said}");
}

#[test]
fn several_lanes_carry_an_ordinary_user_s_work() {
    let Some(fixture) = Fixture::new("user_lanes") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &[&LOCAL[..], &["--lanes", "3"]].concat());
    let work = "cd \"$1\"; for i in 1 2 3 4 5 6 7 8; do
        (mkdir $i; for j in $(seq 20); do head -c ${j}0000 /dev/zero >$i/$j; done) & done; wait
        find . -type f | wc -l; cat */* | wc -c";
    assert_eq!(done(place.shell_as_user(work, &up.dir)), "160\n16800000\n");
    up.stop();
}

#[test]
fn a_killed_mount_of_an_ordinary_user_is_restarted_and_a_killed_up_leaves_none() {
    let Some(fixture) = Fixture::new("user_killed") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let mut up = fixture.up_in(&User(&place), "mnt", &LOCAL);
    done(place.shell_as_user("echo kept >\"$1/a\"", &up.dir));
    kill(up.child("mount"));
    up.process.line_with("mount running again");
    assert_eq!(done(place.shell_as_user("cat \"$1/a\"", &up.dir)), "kept\n");
    let (server, mount) = (up.child("serve"), up.child("mount"));
    kill(up.process.pid());
    up.process.end();
    until("server and mount have ended", || !is_alive(server) && !is_alive(mount));
    assert_eq!(place.mounted(&up.dir), None);
}

#[test]
fn an_ordinary_user_ends_his_mount_by_signals_and_by_umount() {
    let Some(fixture) = Fixture::new("user_umount") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &LOCAL);
    let dir = users_dir(&fixture, "other");
    for signal in [Signal::INT, Signal::TERM] {
        let mut mount = fixture.mount_in(&User(&place), &up.address, "other", &["--export", "up"]);
        assert!(place.mounted(&dir).is_some());
        mount.process.signal(signal);
        assert_eq!(mount.process.end().code(), Some(0), "{}", mount.process.said());
        assert_eq!(place.mounted(&dir), None);
    }
    for by in ["lanefs umount", "umount", "fusermount3 -u"] {
        let mut mount = fixture.mount_in(&User(&place), &up.address, "other", &["--export", "up"]);
        let script = match by {
            "lanefs umount" => format!("{} umount \"$1\"", binary().display()),
            other => format!("{other} \"$1\""),
        };
        done(place.shell_as_user(&script, &dir));
        assert_eq!(mount.process.end().code(), Some(0), "{}", mount.process.said());
        assert_eq!(place.mounted(&dir), None, "{by}");
    }
    let mut mount = fixture.mount_in(&User(&place), &up.address, "other", &["--export", "up"]);
    let mut holder = place.shell_as_user("cd \"$1\"; echo inside; read -r line", &dir);
    let mut holder = Process::start(holder.stdin(std::process::Stdio::piped()));
    holder.line_with("inside");
    let mut umount = lanefs(&fixture, &place, &["umount"]);
    let (code, said) = failure(&run(umount.arg(&dir)));
    assert!(code == 1 && said.contains("is in use") && said.contains("sh"), "{code} {said}");
    mount.process.signal(Signal::TERM);
    mount.process.line_with("detached");
    assert_eq!(mount.process.end().code(), Some(0), "{}", mount.process.said());
    assert_eq!(place.mounted(&dir), None);
    up.stop();
}

/// Everything in a group of its own, as a shell starts it.
struct Job<'p>(&'p Private);

impl Place for Job<'_> {
    fn inside(&self, command: Command) -> Command {
        wrap(program("setsid"), User(self.0).inside(command))
    }
}

#[test]
fn ctrl_c_of_an_ordinary_user_leaves_no_mount() {
    let Some(fixture) = Fixture::new("user_ctrl_c") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    // A terminal signals the whole group: the mount, and all that it started.
    let ctrl_c = |process: &mut Process| {
        let group = Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        assert_eq!(process.end().code(), Some(0), "{}", process.said());
    };
    let mut up = fixture.up_in(&Job(&place), "mnt", &LOCAL);
    let dir = users_dir(&fixture, "other");
    let mut mount = fixture.mount_in(&Job(&place), &up.address, "other", &["--export", "up"]);
    ctrl_c(&mut mount.process);
    assert_eq!(place.mounted(&dir), None);
    ctrl_c(&mut up.process);
    assert_eq!(place.mounted(&up.dir), None);
}

#[test]
fn allow_other_needs_a_line_in_fuse_conf() {
    let Some(fixture) = Fixture::new("user_allow_other") else { return };
    prepare_for_user(&fixture);
    let without = Private::new(&fixture, ": >none; mount --bind none /etc/fuse.conf");
    let up = fixture.up_in(&User(&without), "mnt", &LOCAL);
    let dir = users_dir(&fixture, "other");
    let arguments = ["mount", &format!("{}/up", up.address), "-o", "allow_other"];
    let (code, said) = failure(&run(lanefs(&fixture, &without, &arguments).arg(&dir)));
    assert_eq!(code, 5, "{said}");
    for part in ["allow_other", "user_allow_other", "/etc/fuse.conf"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let setup = "echo user_allow_other >conf; mount --bind conf /etc/fuse.conf";
    let with = Private::new(&fixture, setup);
    let address = format!("{}/up", up.address);
    let mount = fixture.mount_in(&User(&with), &address, "other", &["-o", "allow_other"]);
    assert!(with.mounted(&dir).unwrap().contains("allow_other"));
    done(with.shell("ls \"$1\"", &dir));
    mount.stop();
    up.stop();
}

/// What a mount says that cannot be.
fn refused(fixture: &Fixture, place: &Private, before: &[&str], more: &[&str]) -> String {
    let inner = fixture.lanefs(["mount", "127.0.0.1:1"]);
    let mut command = Command::new(before.first().copied().unwrap_or("env"));
    command.args(before.iter().skip(1)).arg(inner.get_program()).args(inner.get_args());
    let mut command = User(place).inside(command);
    let output = run(command.arg(users_dir(fixture, "mnt")).args(more));
    let (code, said) = failure(&output);
    assert_eq!(code, 5, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn an_obstacle_to_an_ordinary_users_mount_is_printed_with_its_remedy() {
    let Some(fixture) = Fixture::new("user_obstacles") else { return };
    let place = Private::new(&fixture, "");
    let said = refused(&fixture, &place, &["env", "PATH=/nowhere"], &[]);
    assert!(said.contains("no fusermount3") && said.contains("package fuse3"), "{said}");
    let said = refused(&fixture, &place, &["setpriv", "--no-new-privs"], &[]);
    assert!(said.contains("no_new_privs"), "{said}");
    for power in ["suid", "dev"] {
        let said = refused(&fixture, &place, &[], &["-o", power]);
        assert!(said.contains(power) && said.contains("root alone"), "{said}");
    }
    let setup = "cp /usr/bin/fusermount3 f; chmod 755 f; mount --bind f /usr/bin/fusermount3";
    let powerless = Private::new(&fixture, setup);
    let said = refused(&fixture, &powerless, &[], &[]);
    assert!(said.contains("not set-user-id") && said.contains("chmod u+s"), "{said}");
    let closed = Private::new(&fixture, "chmod 600 fuse");
    let said = refused(&fixture, &closed, &[], &[]);
    assert!(said.contains("/dev/fuse") && said.contains("chmod 666"), "{said}");
}

#[test]
fn a_mount_point_of_another_user_is_refused_with_the_text_of_fusermount3() {
    let Some(fixture) = Fixture::new("user_point") else { return };
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &LOCAL);
    let dir = fixture.make_dir("of-root");
    let address = format!("{}/up", up.address);
    let (code, said) = failure(&run(lanefs(&fixture, &place, &["mount", &address]).arg(&dir)));
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("cannot mount on") && said.contains("no write access"), "{said}");
    assert_eq!(place.mounted(&dir), None);
    up.stop();
}

#[test]
fn an_ordinary_user_mounts_over_io_uring_where_the_kernel_allows_it() {
    let Some(fixture) = Fixture::new("user_uring").map(Fixture::mounting_on_io_uring) else {
        return;
    };
    let allowed = no_fuse_over_io_uring(fixture.drivers.mount).is_none();
    prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &LOCAL);
    let work = "cd \"$1\"; seq 100000 >a; cp a b; cmp a b; wc -l <b";
    assert_eq!(done(place.shell_as_user(work, &up.dir)), "100000\n");
    let said = up.stop();
    let shown = if allowed { "over io_uring" } else { "over /dev/fuse" };
    assert_eq!(said.matches(shown).count(), 1, "{said}");
}
