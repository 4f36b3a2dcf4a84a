//! Whether this machine and user can mount at all, found out before anything is tried.

use rustix::fs::{Access, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;

const DEVICE: &str = "/dev/fuse";

/// Why mounting is not possible: one sentence with its remedy.
pub(crate) fn obstacle() -> Option<String> {
    let opened = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    match opened {
        Ok(_) => {}
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            return Some(format!(
                "no {DEVICE}: load the kernel module with `modprobe fuse` (container: start it \
                 with `--device {DEVICE} --cap-add SYS_ADMIN`)"
            ));
        }
        Err(error) => return Some(format!("cannot open {DEVICE}: {error}; run it as root")),
    }
    let sets = capabilities(None);
    let may_mount = sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let root = rustix::process::geteuid().is_root();
    if !may_mount && root {
        // fusermount3 would have no more rights than we have.
        let line = "no right to mount: start the container with `--cap-add SYS_ADMIN`";
        return Some(line.to_owned());
    }
    if !may_mount && !has_tool() {
        let line = "no right to mount: install Debian's package fuse3, or run it as root";
        return Some(line.to_owned());
    }
    None
}

/// Whether the tool that mounts for those who may not is there.
fn has_tool() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("fusermount3").is_file())
}

/// Whether the kernel's module parameter allows FUSE requests over io_uring.
pub(crate) fn uring_enabled() -> bool {
    let parameter = Path::new("/sys/module/fuse/parameters/enable_uring");
    let text = std::fs::read_to_string(parameter).unwrap_or_default();
    matches!(text.trim_end(), "Y" | "1") && rustix::fs::access(DEVICE, Access::READ_OK).is_ok()
}

/// What to do when io_uring was asked for and is not allowed.
pub(crate) const NO_URING: &str = "the kernel does not allow FUSE over io_uring: it needs Linux \
    6.14 and `echo Y > /sys/module/fuse/parameters/enable_uring` (or use --fuse classic)";
