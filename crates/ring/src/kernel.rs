//! The kernel's file system requests, over either transport.
//!
//! It passes requests to the core and replies to the kernel; their meaning is the core's.
//! Invariant: a slot that was passed to the core stays taken until the core replies, and its WRITE
//! data stay in place until then.

use crate::abi::IOC_CLONE;
use crate::driver::{DriverKind, Wait};
use crate::io_context::IoContext;
use crate::kernel_classic::Classic;
use crate::kernel_queue::Queues;
use crate::mailbox::Waker;
use crate::mount_table::MountsBelow;
use crate::notify::Notifier;
use interface::{Bulk, Event, KernelEvent, KernelNotify, KernelSlot, LogLevel, Mono, Span, Ticket};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Status;

/// Marks slots of io_uring queues; the others belong to `/dev/fuse`.
pub(crate) const QUEUE_SLOT: u32 = 1 << 31;

/// How requests are transported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// `/dev/fuse`, one cloned channel per lane.
    Classic,
    /// Queues per core over io_uring, Linux 6.14 and later.
    Uring,
}

impl Transport {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

    /// The better transport that this kernel and this driver support.
    #[must_use]
    pub fn best(driver: DriverKind) -> Self {
        let allowed = fs::read_to_string(Self::SWITCH).is_ok_and(|value| value.starts_with('Y'));
        if allowed && driver == DriverKind::IoUring { Self::Uring } else { Self::Classic }
    }
}

/// One lane's share of a mount.
#[derive(Debug)]
pub struct KernelChannel {
    pub(crate) device: OwnedFd,
    pub(crate) transport: Transport,
    /// Serves `/dev/fuse` with either transport: INIT, FORGET and INTERRUPT arrive there.
    pub(crate) is_first: bool,
    /// Cores whose queues this lane serves.
    pub(crate) cores: Vec<u16>,
    /// Entries per queue.
    pub(crate) queue_depth: u16,
    /// `MAJOR:MINOR` of the mount, if known.
    pub(crate) device_number: Option<String>,
}

impl KernelChannel {
    /// Default number of entries of a core's queue.
    pub const QUEUE_DEPTH: u16 = 8;

    /// Shares a mount's device among lanes; lane n is pinned to `lane_cores[n]`. Each possible core
    /// has a queue; the queues of cores without a lane are spread over the lanes.
    ///
    /// # Errors
    /// When `/dev/fuse` cannot be opened again, or the possible cores are unknown.
    pub fn share(
        device: OwnedFd,
        transport: Transport,
        lane_cores: &[u16],
        queue_depth: u16,
    ) -> io::Result<Vec<Self>> {
        assert!(!lane_cores.is_empty(), "a mount has a lane");
        assert!(queue_depth > 0, "a queue takes a request");
        let mut cores = spread(lane_cores, &crate::pin::possible_cores()?);
        let mut devices = Vec::with_capacity(lane_cores.len());
        for _ in 1..lane_cores.len() {
            devices.push(match transport {
                Transport::Classic => clone_device(&device)?,
                Transport::Uring => device.try_clone()?,
            });
        }
        devices.insert(0, device);
        Ok(devices
            .into_iter()
            .enumerate()
            .map(|(lane, device)| Self {
                device,
                transport,
                is_first: lane == 0,
                cores: std::mem::take(&mut cores[lane]),
                queue_depth,
                device_number: None,
            })
            .collect())
    }

    /// The mount's `MAJOR:MINOR`, by which mounts on its directories are found.
    pub fn set_device_number(&mut self, device_number: &str) {
        self.device_number = Some(device_number.to_owned());
    }

    /// Queues per core require the io_uring driver.
    pub(crate) fn check_driver(&self, driver: DriverKind) -> io::Result<()> {
        if self.transport == Transport::Uring && driver != DriverKind::IoUring {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "FUSE over io_uring needs the io_uring driver: take --fuse classic, or --driver io-uring",
            ));
        }
        Ok(())
    }
}

/// Opens another channel to the same mount.
fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let clone = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let number = device.as_raw_fd().unsigned_abs();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, a descriptor's number, and writes nothing.
    let result = unsafe { libc::ioctl(clone.as_raw_fd(), u64::from(IOC_CLONE), &raw const number) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(clone) }
}

/// The queues of each lane: that of its own core, and its share of those without a lane.
fn spread(lane_cores: &[u16], possible_cores: &[u16]) -> Vec<Vec<u16>> {
    let mut shares = vec![Vec::new(); lane_cores.len()];
    let mut next_lane = 0;
    for core in possible_cores {
        let owner = lane_cores.iter().position(|lane_core| lane_core == core);
        let lane = owner.unwrap_or_else(|| {
            next_lane = (next_lane + 1) % lane_cores.len();
            next_lane
        });
        shares[lane].push(*core);
    }
    shares
}

/// A lane's kernel channel.
pub(crate) struct Kernel {
    classic: Option<Classic>,
    queues: Option<Queues>,
    notifier: Notifier,
    /// Replies may not have been submitted yet.
    unsubmitted: bool,
    ended: bool,
    /// The reply to INIT was sent: peer lanes must register their queues.
    pub(crate) opened: bool,
}

impl Kernel {
    pub(crate) fn new(channel: KernelChannel, waker: Waker) -> io::Result<Self> {
        let KernelChannel { device, transport, is_first, cores, queue_depth, device_number } =
            channel;
        let below = MountsBelow::of(device_number)?;
        let notifier = Notifier::new(device.try_clone()?, waker, below);
        let queues = match transport {
            Transport::Classic => None,
            Transport::Uring => Some(Queues::new(device.try_clone()?, cores, queue_depth)),
        };
        let serves_device = is_first || transport == Transport::Classic;
        let classic = serves_device.then(|| Classic::new(device, queues.is_some()));
        Ok(Self { classic, queues, notifier, unsubmitted: false, ended: false, opened: false })
    }

    /// Registers this lane's queues, after the kernel has agreed to them in INIT.
    pub(crate) fn register(&mut self, io: &mut IoContext) {
        if let Some(queues) = &mut self.queues {
            queues.register(io);
        }
    }

    /// Whether peer lanes have queues to register.
    pub(crate) const fn has_queues(&self) -> bool {
        self.queues.is_some()
    }

    /// Waits for requests on `/dev/fuse`.
    pub(crate) fn arm(&mut self, io: &mut IoContext) {
        if let Some(classic) = self.classic.as_mut().filter(|_| !self.ended) {
            classic.arm(io);
        }
    }

    /// The armed read of `/dev/fuse` has completed.
    pub(crate) fn on_read(&mut self, result: Result<u32, interface::Errno>) {
        if let Some(classic) = &mut self.classic {
            classic.on_read(result);
        }
    }

    /// A reply was given to `/dev/fuse`.
    pub(crate) fn on_replied(
        &mut self,
        index: u32,
        result: Result<u32, interface::Errno>,
        io: &mut IoContext,
    ) {
        if let Some(classic) = &mut self.classic
            && classic.on_replied(index, result) == Life::Over
        {
            self.end(io);
        }
    }

    /// Takes the request that was read, and reads a bounded number of further ones.
    pub(crate) fn read(&mut self, io: &mut IoContext) {
        if let Some(classic) = self.classic.as_mut().filter(|_| !self.ended)
            && classic.read(io) == Life::Over
        {
            self.end(io);
        }
    }

    /// Whether there is more to read without waiting.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ended && self.classic.as_ref().is_some_and(Classic::is_ready)
    }

    /// When the lane waits for requests on `/dev/fuse` again, if it does not now.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.classic.as_ref().filter(|_| !self.ended).and_then(Classic::rests_until)
    }

    /// The command of a queue entry has completed. Logs a failed registration.
    pub(crate) fn on_entry(
        &mut self,
        index: u32,
        result: Result<u32, interface::Errno>,
        io: &mut IoContext,
    ) -> Option<(LogLevel, String)> {
        let queues = self.queues.as_mut()?;
        let (life, line) = queues.on_entry(index, result, io);
        if life == Life::Over {
            self.end(io);
        }
        line.map(|line| (LogLevel::Alarm, line))
    }

    /// Replies to a request. Over both transports the kernel gets most replies when the driver is
    /// entered next: what must come after them enters it first.
    pub(crate) fn reply(&mut self, answer: Answer, io: &mut IoContext) {
        let KernelSlot(slot) = answer.slot;
        self.unsubmitted = true;
        if slot & QUEUE_SLOT != 0 {
            let Some(queues) = &mut self.queues else { panic!("slot {slot} is of no queue") };
            queues.reply(slot & !QUEUE_SLOT, answer, io);
            return;
        }
        let Some(classic) = &mut self.classic else { panic!("slot {slot} is of no device") };
        let replied = classic.reply(slot, answer, io);
        if replied.life == Life::Over {
            self.end(io);
        } else if replied.opened {
            self.opened = true;
        }
    }

    /// Whether a request waits for a buffer, or a reply until its entry's data are released.
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.classic.as_ref().is_some_and(Classic::is_starved)
            || self.queues.as_ref().is_some_and(Queues::is_late)
    }

    /// Begins a notify. The kernel gets the replies before it first.
    pub(crate) fn notify(&mut self, ticket: Ticket, notify: KernelNotify, io: &mut IoContext) {
        if std::mem::take(&mut self.unsubmitted) && io.driver.enter(Wait::No).is_err() {
            // The lane fails with the same error when it enters next.
            self.unsubmitted = true;
            return;
        }
        self.notifier.begin(ticket, notify, io);
    }

    /// Outcomes of notifies that threads have written.
    pub(crate) fn read_notified(&self, io: &mut IoContext) {
        self.notifier.read_outcomes(io);
    }

    /// Sends replies that waited until their entry's data were released.
    pub(crate) fn flush(&mut self, freed: bool, io: &mut IoContext) {
        if let Some(classic) = self.classic.as_mut().filter(|_| freed) {
            classic.feed();
        }
        if let Some(queues) = &mut self.queues {
            queues.flush(io);
        }
    }

    fn end(&mut self, io: &mut IoContext) {
        if !std::mem::replace(&mut self.ended, true) {
            io.events.push(Event::Kernel(KernelEvent::Unmounted));
        }
    }
}

/// Whether the mount still exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It is.
    On,
    /// It was unmounted or aborted.
    Over,
}

/// A reply to the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) slot: KernelSlot,
    pub(crate) status: Status,
    pub(crate) payload: Span,
    pub(crate) bulk: Option<Bulk>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_possible_core_has_one_lane() {
        assert_eq!(spread(&[0, 1], &[0, 1]), [vec![0], vec![1]]);
        assert_eq!(spread(&[1], &[0, 1, 2]), [vec![0, 1, 2]]);
        let shares = spread(&[2, 0], &[0, 1, 2, 3, 4, 5]);
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
        assert!(shares[0].contains(&2) && shares[1].contains(&0));
        assert_eq!(shares[0].len(), 3);
    }
}
