//! What is mounted below one mount in other mount namespaces, as containers have them.
//!
//! ```text
//! /proc/self/ns/mnt ── NS_MNT_GET_NEXT, _PREV ──▶ a namespace ── listmount ──▶ its mounts
//!                                                  a mount ── statmount ──▶ its file system
//! ```
//! No process is looked at: one within `execve` may hold locks while it waits for this mount. The
//! kernel allows this to root of the host, Linux 6.12 and later; others see no other namespaces.
//!
//! Invariant: the caller closes no namespace. What closes one last unmounts all that is mounted in
//! it, which may wait for this very mount.

use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// The most walks whose namespaces are not closed yet.
const CLOSING_COUNT_MAX: usize = 64;
/// How many mounts are listed by one call.
const LIST_COUNT: usize = 512;

const IOC_READ: u32 = 2 << 30;
/// `NS_MNT_GET_NEXT` and `NS_MNT_GET_PREV`.
const GET_NEXT: u32 = IOC_READ | ADJOINING_BYTES << 16 | 0xb7 << 8 | 11;
const GET_PREVIOUS: u32 = GET_NEXT + 1;
const ADJOINING_BYTES: u32 = 16;
/// The same on all architectures.
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
/// `LSMT_ROOT`: all mounts of a namespace.
const ALL_MOUNTS: u64 = u64::MAX;
/// `STATMOUNT_SB_BASIC`.
const FILE_SYSTEM: u64 = 1;

/// `struct mnt_ns_info`.
#[repr(C)]
#[derive(Default)]
struct Adjoining {
    size: u32,
    mount_count: u32,
    namespace_id: u64,
}

const _: () =
    assert!(size_of::<Adjoining>() == ADJOINING_BYTES as usize, "the number has the size");

/// `struct mnt_id_req`, second version.
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    mount_id: u64,
    /// What to state, or behind which mount the list begins.
    param: u64,
    namespace_id: u64,
}

impl Request {
    const BYTES: u32 = 32;

    const fn new(namespace_id: u64, mount_id: u64, param: u64) -> Self {
        Self { size: Self::BYTES, spare: 0, mount_id, param, namespace_id }
    }
}

const _: () = assert!(size_of::<Request>() == Request::BYTES as usize, "it states its size");

/// `struct statmount`, as far as it is read, and space for the rest of its fixed part.
#[repr(C)]
struct Stated {
    size: u32,
    options: u32,
    mask: u64,
    device_major: u32,
    device_minor: u32,
    rest: [u64; 61],
}

const _: () = assert!(size_of::<Stated>() == 512, "as the kernel has it");

/// Major and minor number.
type Device = (u32, u32);

/// The mount namespaces of others.
pub(crate) struct OtherNamespaces {
    own: File,
    device: Device,
    /// Whether a mount is of the device; of those that the last walk has seen. The numbers of mounts
    /// are never used again.
    mounts: HashMap<u64, bool>,
    /// Closes what was opened.
    closer: Option<Sender<Batch>>,
    /// One more for each batch that is not closed.
    open: Arc<()>,
    /// The kernel does not let this process see them.
    is_refused: bool,
}

/// The namespaces of a walk.
struct Batch {
    namespaces: Vec<OwnedFd>,
    _open: Arc<()>,
}

impl OtherNamespaces {
    /// Those beside this process's, and in them the mounts with this `MAJOR:MINOR`.
    pub(crate) fn of(device_number: &str) -> io::Result<Self> {
        let device = device_number
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let device = device.ok_or_else(|| io::Error::other("not a device's number"))?;
        Ok(Self {
            own: File::open("/proc/self/ns/mnt")?,
            device,
            mounts: HashMap::new(),
            closer: None,
            open: Arc::new(()),
            is_refused: false,
        })
    }

    /// Whether something is mounted on a directory of the device in any of them, as far as the
    /// kernel lets this process see.
    pub(crate) fn have_mounts_below(&mut self) -> io::Result<bool> {
        if self.is_refused {
            return Ok(false);
        }
        if Arc::strong_count(&self.open) > CLOSING_COUNT_MAX {
            return Err(io::Error::other("the namespaces of earlier walks are not closed"));
        }
        let closer = match &self.closer {
            Some(closer) => closer.clone(),
            None => self.closer.insert(start_closer()?).clone(),
        };
        let mut namespaces = Vec::new();
        let found = self.walk(&mut namespaces);
        let batch = Batch { namespaces, _open: Arc::clone(&self.open) };
        if let Err(unsent) = closer.send(batch) {
            // The thread cannot have ended. If it has, they stay open.
            std::mem::forget(unsent);
        }
        found
    }

    /// Opens one after the other, newer ones and then older ones, until something is found.
    fn walk(&mut self, namespaces: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let mut mounts = HashMap::with_capacity(self.mounts.len());
        for step in [GET_NEXT, GET_PREVIOUS] {
            let mut at = self.own.as_raw_fd();
            loop {
                let (namespace, id) = match adjoining(at, step) {
                    Ok(found) => found,
                    Err(Errno::NOENT) => break,
                    Err(Errno::NOTTY | Errno::INVAL | Errno::PERM) => {
                        self.is_refused = true;
                        return Ok(false);
                    }
                    Err(errno) => return Err(errno.into()),
                };
                at = namespace.as_raw_fd();
                namespaces.push(namespace);
                if self.has_mounts_below(id, &mut mounts)? {
                    return Ok(true);
                }
            }
        }
        self.mounts = mounts;
        Ok(false)
    }

    /// Whether one of them has.
    fn has_mounts_below(
        &self,
        namespace_id: u64,
        mounts: &mut HashMap<u64, bool>,
    ) -> io::Result<bool> {
        let mut ids = [0; LIST_COUNT];
        let mut last = 0;
        loop {
            let count = list(&Request::new(namespace_id, ALL_MOUNTS, last), &mut ids)?;
            for id in &ids[..count] {
                let is_ours = match self.mounts.get(id) {
                    Some(is_ours) => *is_ours,
                    None => device_of(namespace_id, *id)? == Some(self.device),
                };
                mounts.insert(*id, is_ours);
                if is_ours && list(&Request::new(namespace_id, *id, 0), &mut [0])? > 0 {
                    return Ok(true);
                }
            }
            if count < LIST_COUNT {
                return Ok(false);
            }
            last = ids[count - 1];
        }
    }
}

fn start_closer() -> io::Result<Sender<Batch>> {
    let (sender, batches) = channel::<Batch>();
    let thread = std::thread::Builder::new().name("close namespaces".to_owned());
    thread.spawn(move || {
        for Batch { namespaces, _open } in batches {
            drop(namespaces);
        }
    })?;
    Ok(sender)
}

/// The next newer or older namespace, and its number.
fn adjoining(namespace: RawFd, step: u32) -> Result<(OwnedFd, u64), Errno> {
    let mut found = Adjoining { size: ADJOINING_BYTES, ..Adjoining::default() };
    // SAFETY: the request writes one `mnt_ns_info`, which `found` is, and keeps no reference to it.
    let opened = unsafe { libc::ioctl(namespace, u64::from(step), &raw mut found) };
    if opened < 0 {
        return Err(last_errno());
    }
    // SAFETY: the request returns a descriptor that it has opened for the caller.
    let namespace = unsafe { OwnedFd::from_raw_fd(opened) };
    Ok((namespace, found.namespace_id))
}

/// Mounts of a namespace, or below one of its mounts; none if it does not exist any more.
fn list(request: &Request, ids: &mut [u64]) -> io::Result<usize> {
    let (at, id_count) = (ids.as_mut_ptr(), ids.len());
    let request: *const Request = request;
    // SAFETY: the kernel reads one request of the size that it states, and writes at most
    // `id_count` numbers to `ids`. It keeps no reference to either.
    let count = unsafe { libc::syscall(SYS_LISTMOUNT, request, at, id_count, 0_u32) };
    match usize::try_from(count) {
        Ok(count) => Ok(count.min(id_count)),
        Err(_) => match last_errno() {
            Errno::NOENT => Ok(0),
            errno => Err(errno.into()),
        },
    }
}

/// The device of a mount's file system; `None` if the mount does not exist any more.
fn device_of(namespace_id: u64, mount_id: u64) -> io::Result<Option<Device>> {
    let request = Request::new(namespace_id, mount_id, FILE_SYSTEM);
    let mut stated =
        Stated { size: 0, options: 0, mask: 0, device_major: 0, device_minor: 0, rest: [0; 61] };
    let bytes = size_of::<Stated>();
    // SAFETY: the kernel reads one request of the size that it states, and writes at most `bytes`
    // bytes to `stated`, for which all values are valid. It keeps no reference to either.
    let result =
        unsafe { libc::syscall(SYS_STATMOUNT, &raw const request, &raw mut stated, bytes, 0_u32) };
    if result < 0 {
        return match last_errno() {
            Errno::NOENT => Ok(None),
            errno => Err(errno.into()),
        };
    }
    if stated.mask & FILE_SYSTEM == 0 {
        return Err(io::Error::other("the kernel does not state a mount's file system"));
    }
    Ok(Some((stated.device_major, stated.device_minor)))
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_device_that_is_mounted_nowhere_has_nothing_below_it() {
        let mut others = OtherNamespaces::of("4095:1048575").unwrap();
        for _ in 0..3 {
            assert!(!others.have_mounts_below().unwrap());
        }
        assert!(others.mounts.values().all(|is_ours| !is_ours));
        assert!(OtherNamespaces::of("4095").is_err());
    }

    #[test]
    fn namespaces_that_are_not_closed_are_limited() {
        let mut others = OtherNamespaces::of("4095:1048575").unwrap();
        let open = vec![Arc::clone(&others.open); CLOSING_COUNT_MAX];
        assert!(others.have_mounts_below().is_err());
        drop(open);
        assert!(!others.have_mounts_below().unwrap());
    }
}
