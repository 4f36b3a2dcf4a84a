//! Mounting and unmounting by `fusermount3`, for unprivileged users: it is set-user-id root, checks
//! what a user may mount where, and passes the device back over a socket.
//!
//! Its refusals are reported in its own words, with the remedy.

use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::abi::KERNEL_DATA_BYTES_MAX;
use crate::mount_options::MountOptions;

const NAME: &str = "fusermount3";
/// Where it is searched for without a `$PATH`: mount(8) clears an ordinary user's.
const FOLDERS: &str = "/usr/bin:/bin";
const SET_USER_ID: u32 = 0o4000;

/// Its names of mount flags.
const FLAGS: [(MountFlags, &str); 6] = [
    (MountFlags::RDONLY, "ro"),
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::NOATIME, "noatime"),
    (MountFlags::NODIRATIME, "nodiratime"),
];

/// Why `fusermount3` cannot mount for this process: one sentence with the remedy.
#[must_use]
pub fn mount_tool_obstacle() -> Option<String> {
    match find() {
        None => Some(format!(
            "no right to mount, and no {NAME}: install Debian's package fuse3, or run it as root"
        )),
        Some(path) => powerless(&path),
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| FOLDERS.into());
    std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|program| program.is_file())
}

/// Why the tool has no more privileges than this process.
fn powerless(path: &Path) -> Option<String> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.uid() != 0 || metadata.mode() & SET_USER_ID == 0 {
        return Some(format!(
            "no right to mount, and {shown} is not set-user-id root: `chmod u+s {shown}` as root \
             (or reinstall Debian's package fuse3), or run it as root"
        ));
    }
    // If this is unknown, the tool itself reports what it lacks.
    if rustix::thread::no_new_privs().unwrap_or(false) {
        return Some(format!(
            "no right to mount, and {shown} gains none here: this process was started with \
             no_new_privs (systemd: NoNewPrivileges=, containers: no-new-privileges); start it \
             without"
        ));
    }
    None
}

pub(crate) fn mount_by_tool(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut command = tool()?;
    command.args(["-o", &settings(options), "--"]).arg(dir);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let output = command.output();
    drop(theirs);
    let output = output.map_err(|error| explain(&error, "cannot be started"))?;
    if !output.status.success() {
        let text = format!("cannot mount on {}: {}", dir.display(), refusal(&words(&output)));
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let device = receive_device(&ours).inspect_err(|_| {
        // The mount will never be served; the error that led here matters more than this one.
        unmount_by_tool(dir, true).ok();
    })?;
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    Ok(device)
}

fn settings(options: &MountOptions) -> String {
    // Commas and backslashes in the source are escaped.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut settings = format!("fsname={source},subtype=lanefs,max_read={KERNEL_DATA_BYTES_MAX}");
    for (flag, name) in FLAGS {
        if options.flags.contains(flag) {
            settings.push(',');
            settings.push_str(name);
        }
    }
    if options.allow_other {
        settings.push_str(",allow_other");
    }
    if options.default_permissions {
        settings.push_str(",default_permissions");
    }
    settings
}

pub(crate) fn unmount_by_tool(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut command = tool()?;
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(dir).output();
    let output = output.map_err(|error| explain(&error, "cannot be started"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = words(&output);
    let busy = text.ends_with("resource busy");
    let kind = if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, unmount_refusal(text)))
}

/// The tool's message when it did not unmount, with the remedy.
fn unmount_refusal(words: String) -> String {
    const TABLE: &str = "/etc/mtab";
    if words.contains(TABLE) && words.contains("No such file") {
        // A system without systemd, made by debootstrap, lacks it.
        return format!("{words}: make it with `ln -s /proc/self/mounts {TABLE}` as root");
    }
    words
}

/// The tool without input, with messages in English.
fn tool() -> io::Result<Command> {
    let found = find().ok_or_else(|| {
        let text = mount_tool_obstacle().unwrap_or_else(|| format!("no {NAME}"));
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    })?;
    let mut command = Command::new(found);
    // A process group of its own: Ctrl-C must not interrupt the tool in the middle of its work.
    command.process_group(0).stdin(Stdio::null()).env("LC_ALL", "C");
    Ok(command)
}

/// The tool's message.
fn words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    if text.is_empty() { format!("{NAME}: {}", output.status) } else { text.replace('\n', "; ") }
}

/// The tool's message when it did not mount, with the remedy.
fn refusal(words: &str) -> String {
    if words.contains("user_allow_other") {
        return format!(
            "{words}: have root add the line `user_allow_other` to /etc/fuse.conf, or mount \
             without allow_other"
        );
    }
    match find().as_deref().and_then(powerless) {
        Some(why) => format!("{why} ({words})"),
        None => words.to_owned(),
    }
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
    Err(io::Error::other(format!("{NAME} gave no device")))
}

fn explain(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{NAME} {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_formatted_for_the_tool() {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
        let source = r"lanefs://a,b\c".to_owned();
        let settings =
            settings(&MountOptions { source, allow_other: true, default_permissions: true, flags });
        let wanted = r"fsname=lanefs://a\,b\\c,subtype=lanefs,max_read=1048576,ro,nosuid,noexec,allow_other,default_permissions";
        assert_eq!(settings, wanted);
    }

    #[test]
    fn a_missing_mtab_has_a_remedy() {
        let words = "fusermount3: failed to open /etc/mtab: No such file or directory";
        let text = unmount_refusal(words.to_owned());
        assert!(text.ends_with("`ln -s /proc/self/mounts /etc/mtab` as root"), "{text}");
        let words = "fusermount3: entry for /mnt not found in /etc/mtab";
        assert_eq!(unmount_refusal(words.to_owned()), words);
    }

    #[test]
    fn a_refusal_of_allow_other_names_the_file_and_the_line() {
        let words = "fusermount3: option allow_other only allowed if 'user_allow_other' is set";
        let text = refusal(words);
        assert!(text.starts_with(words), "{text}");
        assert!(text.contains("/etc/fuse.conf"), "{text}");
    }
}
