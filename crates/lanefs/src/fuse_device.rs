//! Whether this machine and user can mount at all, found out before anything is tried.

use crate::args::Transport;
use anyhow::{Result, bail};
use ring::DriverKind;
use rustix::fs::{Access, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;

const DEVICE: &str = "/dev/fuse";

/// Why mounting is not possible: one sentence with its remedy.
pub(crate) fn obstacle() -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    match open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {}
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            return Some(format!(
                "no {DEVICE}: load the kernel module with `modprobe fuse` (container: start it \
                 with `--device {DEVICE} --cap-add SYS_ADMIN`)"
            ));
        }
        // fusermount3 opens it with our rights, too.
        Err(error) if !root => {
            return Some(format!(
                "cannot open {DEVICE}: {error}: `chmod 666 {DEVICE}` as root (the usual mode: who \
                 may mount where, fusermount3 decides), or run it as root"
            ));
        }
        Err(error) => return Some(format!("cannot open {DEVICE}: {error}")),
    }
    if root && !may_mount() {
        // fusermount3 would have no more rights than we have.
        let line = "no right to mount: start the container with `--cap-add SYS_ADMIN`";
        return Some(line.to_owned());
    }
    if may_mount() { None } else { ring::mount_tool_obstacle() }
}

fn may_mount() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Whether the kernel's module parameter allows FUSE requests over io_uring.
pub(crate) fn uring_enabled() -> bool {
    let parameter = Path::new("/sys/module/fuse/parameters/enable_uring");
    let text = std::fs::read_to_string(parameter).unwrap_or_default();
    matches!(text.trim_end(), "Y" | "1") && rustix::fs::access(DEVICE, Access::READ_OK).is_ok()
}

/// How the kernel's requests travel to lanes on this driver.
///
/// # Errors
/// When the requested device is not possible.
pub(crate) fn transport(asked: Transport, driver: DriverKind) -> Result<ring::Transport> {
    Ok(match asked {
        Transport::Auto => ring::Transport::best(driver),
        Transport::Classic => ring::Transport::Classic,
        Transport::Uring if driver == DriverKind::Epoll => bail!("{NO_DRIVER}"),
        Transport::Uring if uring_enabled() => ring::Transport::Uring,
        Transport::Uring => bail!("{NO_URING}"),
    })
}

const NO_DRIVER: &str = "FUSE over io_uring needs lanes on io_uring: take --fuse classic, or \
    --driver io-uring (of up: --mount-driver io-uring)";

/// Advice when io_uring was requested and is not permitted.
pub(crate) const NO_URING: &str = "the kernel does not allow FUSE over io_uring: it needs Linux \
    6.14 and `echo Y > /sys/module/fuse/parameters/enable_uring` (or use --fuse classic)";
