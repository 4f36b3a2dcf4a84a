//! Mounting and unmounting.
//!
//! Root mounts by itself; other users through `fusermount3` ([`crate::mount_tool`]). Nothing is
//! served here: the first request waits in the device until a ring reads it.

use crate::abi::KERNEL_DATA_BYTES_MAX;
use crate::mount_options::{FS_TYPE, MountOptions};
use crate::mount_tool::{mount_by_tool, unmount_by_tool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts on `dir` and returns the device, non-blocking.
///
/// # Errors
/// When there is no `/dev/fuse`, or no permission to mount; the text says what to do.
pub fn mount(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = match rustix::fs::open("/dev/fuse", flags, Mode::empty()) {
        Ok(device) => device,
        Err(errno @ (Errno::NOENT | Errno::NODEV)) => {
            let remedy = "load the module (modprobe fuse), or pass the device into the container";
            return Err(explain(errno.into(), &format!("there is no /dev/fuse: {remedy}")));
        }
        Err(errno) => return Err(explain(errno.into(), "/dev/fuse cannot be opened")),
    };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},max_read={KERNEL_DATA_BYTES_MAX}{}{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if options.allow_other { ",allow_other" } else { "" },
        if options.default_permissions { ",default_permissions" } else { "" },
    );
    let data = CString::new(data)?;
    let (source, flags) = (options.source.as_str(), options.flags);
    match rustix::mount::mount(source, dir, FS_TYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => mount_by_tool(dir, options),
        Err(errno) => {
            Err(explain(errno.into(), &format!("{} cannot be mounted on", dir.display())))
        }
    }
}

/// Replaces all flags of the mount on `dir`.
///
/// # Errors
/// `EBUSY` when it becomes read-only while files are open for writing; others are the system's.
pub fn remount(dir: &Path, flags: MountFlags) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(dir, flags, c"")?)
}

/// Whether this device's mount still exists, visible or not.
///
/// # Errors
/// The system's.
pub fn is_connected(device: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&device, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(!polled[0].revents().contains(PollFlags::ERR))
}

/// Unmounts. `lazy`: detached at once, ended when its last user closes it.
///
/// # Errors
/// `EBUSY` when it is in use and `lazy` is not set; others are the system's.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_by_tool(dir, lazy),
        Err(errno) => Err(errno.into()),
    }
}

fn explain(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what} ({error})"))
}
