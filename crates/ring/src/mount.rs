//! Mounting and unmounting.
//!
//! Root mounts by itself; others through `fusermount3`, which hands the device back over a socket.
//! Nothing is served here: the first request waits in the device until a ring reads it.

use crate::abi::KERNEL_DATA_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a mount is like.
#[derive(Clone, Default, Debug)]
pub struct MountOptions {
    /// Shown as the device, such as `lanefs://127.0.0.1:7411`.
    pub source: String,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// Set-id bits and capabilities of programs have their effect. Root alone may say so.
    pub set_id: bool,
    /// Device files can be opened. Root alone may say so.
    pub devices: bool,
}

/// The file system's type.
const FS_TYPE: &str = "fuse.lanefs";

/// Mounts on `dir` and gives the device, non-blocking.
///
/// # Errors
/// When there is no `/dev/fuse`, or no right to mount; the text says what to do.
pub fn mount(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = match rustix::fs::open("/dev/fuse", flags, Mode::empty()) {
        Ok(device) => device,
        Err(errno @ (Errno::NOENT | Errno::NODEV)) => {
            let remedy = "load the module (modprobe fuse), or pass the device into the container";
            return Err(explain(errno.into(), &format!("there is no /dev/fuse: {remedy}")));
        }
        Err(Errno::ACCESS | Errno::PERM) => return mount_by_tool(dir, options),
        Err(errno) => return Err(explain(errno.into(), "/dev/fuse cannot be opened")),
    };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},max_read={KERNEL_DATA_BYTES_MAX}{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if options.allow_other { ",allow_other" } else { "" },
    );
    let data = CString::new(data)?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !options.set_id);
    flags.set(MountFlags::NODEV, !options.devices);
    match rustix::mount::mount(options.source.as_str(), dir, FS_TYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => mount_by_tool(dir, options),
        Err(errno) => {
            Err(explain(errno.into(), &format!("{} cannot be mounted on", dir.display())))
        }
    }
}

/// Whether the mount of this device still exists, in sight or not.
///
/// # Errors
/// As the system says.
pub fn is_connected(device: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&device, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(!polled[0].revents().contains(PollFlags::ERR))
}

/// Unmounts. `lazy`: away from sight at once, ended when its last user ends.
///
/// # Errors
/// `EBUSY` when somebody uses it and it is not lazy; others as the system says.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_by_tool(dir, lazy),
        Err(errno) => Err(errno.into()),
    }
}

fn unmount_by_tool(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(dir).stdin(Stdio::null()).output();
    let output = output.map_err(no_tool)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let busy = text.contains("busy");
    let kind = if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, text.trim().to_owned()))
}

fn mount_by_tool(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let other = if options.allow_other { ",allow_other" } else { "" };
    let source = options.source.replace(',', "\\,");
    let settings = format!(
        "nosuid,nodev,max_read={KERNEL_DATA_BYTES_MAX},fsname={source},subtype=lanefs{other}"
    );
    let output = Command::new("fusermount3")
        .args(["-o", &settings, "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(no_tool)?;
    drop(theirs);
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text.trim().to_owned()));
    }
    let device = receive_device(&ours)?;
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    rustix::io::fcntl_setfd(&device, FdFlags::CLOEXEC)?;
    Ok(device)
}

fn receive_device(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    let mut pieces = [io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message
            && let Some(device) = files.next()
        {
            return Ok(device);
        }
    }
    Err(io::Error::other("fusermount3 gave no device"))
}

fn no_tool(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        let text = "mounting needs root or fusermount3 (Debian's package fuse3)";
        return io::Error::new(io::ErrorKind::PermissionDenied, text);
    }
    error
}

fn explain(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what} ({error})"))
}
