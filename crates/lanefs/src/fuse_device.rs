//! Whether this machine and user can mount at all, found out before anything is tried.

use rustix::fs::{Access, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;

const DEVICE: &str = "/dev/fuse";

/// Why mounting is not possible: one sentence with its remedy.
pub(crate) fn obstacle() -> Option<String> {
    let opened = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    if let Err(error) = opened {
        return Some(match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => format!(
                "no {DEVICE}: load the kernel module with `modprobe fuse` (container: start it \
                 with `--device {DEVICE} --cap-add SYS_ADMIN`)"
            ),
            Errno::ACCESS | Errno::PERM => {
                format!("no right to open {DEVICE}: run it as root, for now the only way to mount")
            }
            error => format!("cannot open {DEVICE}: {error}"),
        });
    }
    let may_mount = capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if !may_mount {
        return Some(
            "no right to mount: run it as root (container: with `--cap-add SYS_ADMIN`)".to_owned(),
        );
    }
    None
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
