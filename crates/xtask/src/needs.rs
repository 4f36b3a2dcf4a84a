//! The machine's requirements for the tests, checked before anything is built.
//!
//! Invariant: a missing one is named together with the command that installs it.

use crate::run::{cargo, find};
use anyhow::{Result, bail};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;
use std::process::{Command, Stdio};

/// The smallest kernel: FUSE_DIRECT_IO_ALLOW_MMAP came with 6.6.
pub(crate) const KERNEL_MIN: (u32, u32) = (6, 6);

/// Programs and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 32] = [
    ("cc", "gcc"),
    ("fusermount3", "fuse3"),
    ("mount.fuse3", "fuse3"),
    ("rsync", "rsync"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("tar", "tar"),
    ("diff", "diffutils"),
    ("setpriv", "util-linux"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mount", "mount"),
    ("fio", "fio"),
    ("stress-ng", "stress-ng"),
    ("timeout", "coreutils"),
    ("setfacl", "acl"),
    ("getfattr", "attr"),
    ("python3", "python3"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("dpkg-deb", "dpkg"),
    ("strip", "binutils"),
    ("adduser", "adduser"),
    ("man", "man-db"),
    ("systemd-analyze", "systemd"),
    ("gzip", "gzip"),
    ("tmux", "tmux"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
];

/// Files and the Debian packages that contain them.
const FILES: [(&str, &str); 2] =
    [("/usr/include/linux/fuse.h", "linux-libc-dev"), ("/usr/lib/postgresql", "postgresql")];

/// Commands of cargo, and what installs them.
const CARGO_COMMANDS: [(&str, &str); 3] = [
    ("fmt", "rustup component add rustfmt"),
    ("clippy", "rustup component add clippy"),
    ("nextest", "cargo install --locked cargo-nextest, or `.ci/run`, which has it in seconds"),
];

/// Where CPython's tests of file functions may be, and the package of Debian 12 that has them.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];
const PYTHON_TESTS: &str = "libpython3.11-testsuite";

/// The missing requirements that a Debian package has, with that package.
fn packaged() -> Vec<(String, &'static str)> {
    let programs = PROGRAMS.iter().filter(|(program, _)| find(program).is_none());
    let files = FILES.iter().filter(|(file, _)| !Path::new(file).exists());
    let programs = programs.map(|(program, package)| (format!("the program {program}"), *package));
    let files = files.map(|(file, package)| (format!("the file {file}"), *package));
    let python = (!has_python_tests()).then(|| ("Python's own tests".to_owned(), PYTHON_TESTS));
    programs.chain(files).chain(python).collect()
}

fn has_python_tests() -> bool {
    PYTHONS.iter().any(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import test.test_os"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Prints the missing Debian packages, for a script that installs them.
pub(crate) fn print_packages() {
    packaged().into_iter().for_each(|(_, package)| println!("{package}"));
}

/// Checks everything; an error names all that is missing.
pub(crate) fn check() -> Result<()> {
    let (mut missing, packages): (Vec<String>, Vec<&str>) = packaged().into_iter().unzip();
    if !packages.is_empty() {
        missing.push(format!("    get them: apt-get install {}", packages.join(" ")));
    }
    for (name, how) in CARGO_COMMANDS {
        if !has_cargo_command(name) {
            missing.push(format!("cargo {name}: {how}"));
        }
    }
    missing.extend(machine_lacks());
    if missing.is_empty() {
        return Ok(());
    }
    bail!("the tests need what this machine lacks:\n  {}", missing.join("\n  "));
}

fn has_cargo_command(name: &str) -> bool {
    let mut command = cargo([name, "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn machine_lacks() -> Vec<String> {
    let mut missing = Vec::new();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if kernel_version(&release).is_none_or(|version| version < KERNEL_MIN) {
        let (major, minor) = KERNEL_MIN;
        missing.push(format!("Linux {major}.{minor} or later; this is {release}"));
    }
    if let Err(error) = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        missing.push(format!(
            "/dev/fuse ({error}): modprobe fuse, or start the container with `--device /dev/fuse`"
        ));
    }
    if let Err(error) = open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        missing.push(format!(
            "/dev/loop-control ({error}): modprobe loop, or start the container with `--device \
             /dev/loop-control` and its loop devices"
        ));
    }
    let may =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if !may {
        missing
            .push("the right to mount: run it as root (container: `--cap-add SYS_ADMIN`)".into());
    }
    missing
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_release_is_read() {
        assert_eq!(kernel_version("6.18.44-fc-v445"), Some((6, 18)));
        assert_eq!(kernel_version("6.6"), Some((6, 6)));
        assert_eq!(kernel_version("six"), None);
    }
}
