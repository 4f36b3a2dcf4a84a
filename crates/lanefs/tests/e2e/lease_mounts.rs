//! What is mounted below a mount that caches stays mounted, whatever is recalled, and names around it
//! are as current as elsewhere.

use crate::fixture::{Fixture, Mount, Place, Process, Server, kill, must, program, run, wrap};
use crate::mount_namespace::Private;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const LEASES: [&str; 4] = ["--export", "up", "--leases", "on"];
const SERVER: [&str; 4] = ["--lease-term", "2s", "--recovery-soft", "2s"];

/// A server, a mount in a namespace of its own, and one that makes changes.
struct Below<'f> {
    fixture: &'f Fixture,
    server: Server,
    place: Private,
    mount: Mount,
    other: Mount,
}

impl<'f> Below<'f> {
    fn new(fixture: &'f Fixture, more: &[&str]) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &SERVER);
        let place = Private::new(fixture, "");
        let options = [&LEASES[..], more].concat();
        let mount = fixture.mount_in(&place, &server.address, "mount", &options);
        let other = fixture.mount(&server.address, "other", &["--export", "up"]);
        fs::create_dir_all(other.dir.join("dir/sub")).unwrap();
        fs::create_dir(fixture.make_dir("below").join("inside")).unwrap();
        Self { fixture, server, place, mount, other }
    }

    /// A script at the mount; `$1` is its directory, `$2` what is mounted below it.
    fn shell(&self, script: &str) -> Command {
        let mut command = self.place.shell(script, &self.mount.dir);
        command.arg(self.fixture.path("below"));
        command
    }

    /// All that makes the kernel forget names, with each state looked at.
    fn change_names(&mut self, mut check: impl FnMut(&Self, &str)) {
        let changes: [fn(&Path); 6] = [
            |dir| fs::write(dir.join("dir/new"), "new").unwrap(),
            |dir| fs::rename(dir.join("dir/new"), dir.join("dir/moved")).unwrap(),
            |dir| fs::create_dir(dir.join("beside")).unwrap(),
            |dir| fs::rename(dir.join("beside"), dir.join("dir/beside")).unwrap(),
            |dir| fs::remove_file(dir.join("dir/moved")).unwrap(),
            |dir| assert!(fs::remove_dir(dir.join("dir")).is_err(), "it has entries"),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            self.same_names();
            change(&self.other.dir);
            self.same_names();
            check(self, &format!("change {number} of the other mount"));
        }
        let own = ["echo x >own", "mv own dir/own", "rm dir/own", "mv dir dir2", "mv dir2 dir"];
        for change in own {
            must(&mut self.shell(&format!("cd \"$1\" && {change}")));
            if !change.starts_with("mv dir ") {
                self.same_names();
                check(self, change);
            }
        }
        kill(self.server.process.pid());
        self.server.process.end();
        let address = self.server.address.clone();
        self.server = self.fixture.serve_with(&address, &SERVER);
        self.same_names();
        check(self, "the death of the server");
    }

    /// Both mounts have the same names, also those that do not exist.
    #[track_caller]
    fn same_names(&self) {
        let script =
            "cd \"$1\" && for name in new moved beside dir dir/new dir/moved dir/beside; do
            test -e $name && echo $name; done; ls dir";
        let found = must(&mut self.shell(script));
        let mut other = program("sh");
        other.args(["-c", script, "sh"]).arg(&self.other.dir);
        assert_eq!(found, must(&mut other));
    }

    /// A directory bound at `dir/sub` in a mount namespace that copies the mount's.
    fn container(&self) -> Container {
        // Its processes are within execve most of the time, of a program that is on the mount.
        let script = "mount --bind \"$2\" \"$1/dir/sub\" && echo bound
            (while test -d \"$2\"; do \"$1/true\"; done) & runs=$!
            read -r line; kill $runs; wait $runs; umount \"$1/dir/sub\"";
        let mut command = program("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        command.arg(&self.mount.dir).arg(self.fixture.path("below"));
        let mut holder = Process::start(self.place.inside(command).stdin(Stdio::piped()));
        holder.line_with("bound");
        Container { holder }
    }

    fn stop(self) {
        self.other.stop();
        self.mount.stop();
    }
}

/// A mount namespace with a copy of a mount.
struct Container {
    holder: Process,
}

impl Place for Container {
    fn inside(&self, command: Command) -> Command {
        let mut enter = program("nsenter");
        enter.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.pid()));
        wrap(enter, command)
    }
}

impl Container {
    fn stop(mut self) {
        drop(self.holder.orders());
        self.holder.linger();
    }
}

#[test]
fn a_directory_that_is_bound_below_a_mount_stays_there() {
    let Some(fixture) = Fixture::new("lease_bound") else { return };
    let mut below = Below::new(&fixture, &[]);
    below.same_names();
    must(&mut below.shell("mount --bind \"$2\" \"$1/dir/sub\""));
    below.change_names(|below, what| {
        let there = run(&mut below.shell("test -d \"$1/dir/sub/inside\"")).status.success();
        assert!(there, "after {what}");
    });
    must(&mut below.shell("umount \"$1/dir/sub\""));
    below.stop();
}

#[test]
fn what_a_container_binds_below_a_mount_stays_there() {
    let Some(fixture) = Fixture::new("lease_container") else { return };
    let mut below = Below::new(&fixture, &[]);
    fs::copy("/bin/true", below.other.dir.join("true")).unwrap();
    below.same_names();
    let container = below.container();
    below.change_names(|below, what| {
        let mut there = program("test");
        there.arg("-d").arg(below.mount.dir.join("dir/sub/inside"));
        let there = run(&mut container.inside(there)).status.success();
        assert!(there, "after {what}");
    });
    container.stop();
    below.stop();
}
