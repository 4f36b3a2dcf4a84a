//! A mount namespace of one's own, and an ordinary user in it: what is changed there (`/dev/fuse`,
//! `/etc/fstab`, programs) is changed for nobody else, and what is mounted there ends with it.

use crate::fixture::{Fixture, Place, Process, must, program, wrap};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `nobody`.
pub(crate) const USER: u32 = 65534;

/// The namespace; it lives as long as this.
pub(crate) struct Private {
    holder: Process,
}

impl Private {
    /// A namespace in which `setup`, a shell script, was run in a folder of its own in memory.
    /// `/dev/fuse` is open to all in it, as udev makes it.
    pub(crate) fn new(fixture: &Fixture, setup: &str) -> Self {
        let folder = fixture.make_dir("private");
        // A copy of another test's mount would keep that alive, and a failed test leaves its own.
        // One whose directory is removed meanwhile goes by itself.
        let clear = "grep ' fuse.lanefs ' /proc/self/mounts | while read -r _ point _; do
            umount -i -c -l \"$point\" || ! grep -qF \" $point \" /proc/self/mounts; done";
        let script = format!(
            "set -e; {clear}; mount -t tmpfs -o mode=755 tmpfs \"$1\"; cd \"$1\"
             mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
             {setup}
             cd /; echo prepared; read -r line || true; {clear}"
        );
        let mut command = program("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
        // It ends when we do.
        command.arg(folder).stdin(Stdio::piped());
        let mut holder = Process::start(&mut command);
        holder.line_with("prepared");
        Self { holder }
    }

    /// The options of what is mounted exactly there, of the mount and of the file system.
    pub(crate) fn mounted(&self, dir: &Path) -> Option<String> {
        let table = ring::mount_table(Some(self.holder.pid())).unwrap();
        let found = table.into_iter().rfind(|mounted| mounted.point == dir);
        found.map(|mounted| mounted.options)
    }

    /// A shell script run there, as root; `$1` is `dir`.
    pub(crate) fn shell(&self, script: &str, dir: &Path) -> Command {
        self.inside(shell(script, dir))
    }

    /// The same as the user.
    pub(crate) fn shell_as_user(&self, script: &str, dir: &Path) -> Command {
        User(self).inside(shell(script, dir))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        drop(self.holder.orders());
        self.holder.linger();
    }
}

fn shell(script: &str, dir: &Path) -> Command {
    let mut command = program("sh");
    command.args(["-c", script, "sh"]).arg(dir);
    command
}

impl Place for Private {
    fn inside(&self, command: Command) -> Command {
        let mut enter = program("nsenter");
        enter.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.pid()));
        wrap(enter, command)
    }
}

/// An ordinary user there.
pub(crate) struct User<'p>(pub(crate) &'p Private);

impl Place for User<'_> {
    fn inside(&self, command: Command) -> Command {
        let mut setpriv = program("setpriv");
        let ids = [format!("--reuid={USER}"), format!("--regid={USER}")];
        setpriv.args(ids).arg("--clear-groups");
        self.0.inside(wrap(setpriv, command))
    }
}

/// A folder that belongs to the user.
pub(crate) fn users_dir(fixture: &Fixture, name: &str) -> PathBuf {
    let dir = fixture.make_dir(name);
    chown(&dir, Some(USER), Some(USER)).unwrap();
    dir
}

/// The fixture for the user: the secret's folder is his, and so is the store's.
pub(crate) fn prepare_for_user(fixture: &Fixture) {
    users_dir(fixture, "config");
    users_dir(fixture, "mnt");
    users_dir(fixture, "mnt.lanefs");
}

/// The secret that `up` made, for a mount of another user.
pub(crate) fn secret_file(fixture: &Fixture) -> PathBuf {
    fixture.path("config").join("lanefs").join("secret")
}

/// Runs a command that must succeed, there.
#[track_caller]
pub(crate) fn done(mut command: Command) -> String {
    must(&mut command)
}
