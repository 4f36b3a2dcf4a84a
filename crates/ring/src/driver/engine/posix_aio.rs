//! glibc's POSIX AIO: `aio_read` and `aio_write`, whose completions glibc notifies by a new thread
//! each (SIGEV_THREAD), as PVFS2 used it.
//!
//! glibc has a few threads for the process and gives the operations of one descriptor to one of
//! them, which performs them sequentially. Invariants: a control block and what it names stay valid
//! until `aio_error` reports the end, and the block itself until the notification too; a lost
//! notification (glibc reports nothing if it has no thread for it) costs time, not a completion,
//! because operations in flight are polled now and then.

use super::super::files;
use super::super::notices::Notices;
use super::super::pool::END;
use super::{Engine, Offloaded, Token, Wakeup, Work};
use crate::driver::Op;
use crate::number::{errno_from_raw, u32_of, u64_of, usize_of};
use crate::pin::{may_run_on, usable_cores};
use interface::Errno;
use slab::Slab;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::mem::offset_of;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Interval of polling operations in flight without a notification.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Operations of a lane that glibc has at a time; glibc's own queue has no limit.
const UNDER_WAY_COUNT_MAX: usize = 4096;
/// Stack of the notification threads.
const STACK_BYTES: usize = 64 * 1024;

/// `struct sigevent` with SIGEV_THREAD; libc does not name its last fields.
#[repr(C)]
struct ThreadEvent {
    value: libc::sigval,
    signal: libc::c_int,
    notify: libc::c_int,
    function: extern "C" fn(libc::sigval),
    attributes: *const libc::pthread_attr_t,
}

const _: () = {
    assert!(size_of::<ThreadEvent>() <= size_of::<libc::sigevent>(), "it lies within");
    assert!(align_of::<ThreadEvent>() <= align_of::<libc::sigevent>(), "and lies well");
    assert!(
        offset_of!(ThreadEvent, notify) == offset_of!(libc::sigevent, sigev_notify),
        "as libc has it"
    );
    assert!(
        offset_of!(ThreadEvent, function) == offset_of!(libc::sigevent, sigev_notify_thread_id),
        "the first field of the union"
    );
};

/// The lane to notify; dead once the lane has ended.
type LaneNotices = Weak<Notices<Arc<Block>>>;

/// An operation in glibc.
struct Block {
    /// Owned by glibc until `aio_error` reports the end, then by the lane.
    control: UnsafeCell<libc::aiocb>,
    token: Token,
    /// Its index in the lane's list.
    index: usize,
    lane: LaneNotices,
}

// SAFETY: the control block is touched by glibc, which locks it, and by the lane's thread; the
// memory that it names stays valid until the completion was reaped (`Driver::queue`). Other fields
// are only read.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// The notification of an operation, on a thread that glibc has started for it.
extern "C" fn on_ended(value: libc::sigval) {
    // SAFETY: `begin` passed this reference to this one call.
    let block = unsafe { Arc::from_raw(value.sival_ptr.cast_const().cast::<Block>()) };
    if let Some(notices) = block.lane.upgrade() {
        notices.push(block);
    }
}

/// Attributes of the notification threads: detached, with a small stack.
fn attributes() -> *const libc::pthread_attr_t {
    struct Attributes(libc::pthread_attr_t);
    // SAFETY: they are not changed after initialisation; pthread allows concurrent reads.
    unsafe impl Send for Attributes {}
    // SAFETY: as above.
    unsafe impl Sync for Attributes {}
    static MADE: OnceLock<Attributes> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        // SAFETY: zeros are valid for these plain bytes, which `init` overwrites before they are
        // used.
        let mut made: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
        let at = &raw mut made;
        // SAFETY: `at` is ours, here and below. The calls fail only for invalid values.
        unsafe { libc::pthread_attr_init(at) };
        // SAFETY: as above.
        unsafe { libc::pthread_attr_setdetachstate(at, libc::PTHREAD_CREATE_DETACHED) };
        // SAFETY: as above.
        unsafe { libc::pthread_attr_setstacksize(at, STACK_BYTES) };
        Attributes(made)
    });
    &raw const made.0
}

/// A lane's operations in glibc.
pub(super) struct PosixAio {
    notices: Arc<Notices<Arc<Block>>>,
    blocks: Slab<Arc<Block>>,
    waiting: VecDeque<Work>,
    /// Completed without glibc.
    ended: Vec<(Token, Result<u32, Errno>)>,
    spare: Vec<Arc<Block>>,
    /// Time of the last notification or poll.
    notified_at: Instant,
    /// Cores of glibc's threads; empty where they are those of the lane.
    cores: Vec<u16>,
    own_cores: Vec<u16>,
    is_away: bool,
    offloaded_count: u64,
    /// Notification threads so far.
    thread_count: u64,
    call_count: u64,
}

impl PosixAio {
    /// Without cores, glibc's threads run where the lane does.
    pub(super) fn new(cores: &[u16]) -> io::Result<Self> {
        Ok(Self {
            notices: Arc::new(Notices::new()?),
            blocks: Slab::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            spare: Vec::new(),
            notified_at: Instant::now(),
            cores: cores.to_vec(),
            own_cores: usable_cores()?,
            is_away: false,
            offloaded_count: 0,
            thread_count: 0,
            call_count: 0,
        })
    }

    fn under_way_count(&self) -> usize {
        self.blocks.len()
    }

    fn start_waiting(&mut self) {
        while self.under_way_count() < UNDER_WAY_COUNT_MAX {
            let Some(work) = self.waiting.pop_front() else { return };
            match self.submit(work) {
                Ok(()) => self.offloaded_count += 1,
                // It has no memory or no thread for it now.
                Err(_) if self.under_way_count() > 0 => {
                    self.waiting.push_front(work);
                    return;
                }
                Err(_) => {
                    // Nothing in flight would retry it: the lane's thread does it.
                    self.call_count += 1;
                    // SAFETY: the caller of `queue` vouches until the completion, which comes
                    // later.
                    let result = unsafe { files::perform(work.op) };
                    self.ended.push((work.token, result));
                }
            }
        }
    }

    /// Passes an operation to glibc, whose threads inherit the cores of the calling thread.
    fn submit(&mut self, work: Work) -> Result<(), Errno> {
        if !self.cores.is_empty() && !self.is_away {
            self.is_away = true;
            self.call_count += 1;
            // Refused where a container allows fewer cores than the process was given.
            may_run_on(&self.cores).ok();
        }
        if self.under_way_count() == 0 {
            self.notified_at = Instant::now();
        }
        let slot = self.blocks.vacant_entry();
        let block = Arc::new(Block {
            control: UnsafeCell::new(control_of(work.op)),
            token: work.token,
            index: slot.key(),
            lane: Arc::downgrade(&self.notices),
        });
        let control = block.control.get();
        let glibc_reference = Arc::into_raw(Arc::clone(&block));
        let event = ThreadEvent {
            value: libc::sigval { sival_ptr: glibc_reference.cast_mut().cast() },
            signal: 0,
            notify: libc::SIGEV_THREAD,
            function: on_ended,
            attributes: attributes(),
        };
        let space = control.wrapping_byte_add(offset_of!(libc::aiocb, aio_sigevent));
        // SAFETY: the block is not glibc's yet, and its event has space for this form of it.
        unsafe { space.cast::<ThreadEvent>().write(event) };
        let submitted = if matches!(work.op, Op::Read { .. }) {
            // SAFETY: the block stays until it has ended and was notified; the caller of `begin`
            // vouches for the memory that it names until then.
            unsafe { libc::aio_read(control) }
        } else {
            // SAFETY: as above.
            unsafe { libc::aio_write(control) }
        };
        if submitted == 0 {
            slot.insert(block);
            return Ok(());
        }
        // SAFETY: glibc refused the operation, so there will be no notification.
        drop(unsafe { Arc::from_raw(glibc_reference) });
        Err(files::last_errno())
    }

    /// Takes the result of a block, if it has ended and was not taken before.
    fn settle(
        &mut self,
        block: &Arc<Block>,
        taken: &mut dyn FnMut(Token, Result<u32, Errno>),
    ) -> bool {
        let index = block.index;
        let ours = self.blocks.get(index);
        if !ours.is_some_and(|ours| Arc::ptr_eq(ours, block)) {
            return false;
        }
        let control = block.control.get();
        // SAFETY: the block was submitted to glibc and still exists.
        let result = match unsafe { libc::aio_error(control) } {
            libc::EINPROGRESS => return false,
            // SAFETY: the operation has ended, and its result is read once.
            0 => Ok(u32_of(usize_of(
                u64::try_from(unsafe { libc::aio_return(control) }).unwrap_or(0),
            ))),
            errno => Err(errno_from_raw(errno)),
        };
        self.blocks.remove(index);
        taken(block.token, result);
        true
    }

    /// Checks all operations in flight.
    fn poll_all(&mut self, taken: &mut dyn FnMut(Token, Result<u32, Errno>)) {
        let blocks: Vec<_> = self.blocks.iter().map(|(_, block)| Arc::clone(block)).collect();
        for block in blocks {
            self.settle(&block, taken);
        }
        self.notified_at = Instant::now();
    }
}

impl Engine for PosixAio {
    unsafe fn begin(&mut self, work: Work) {
        self.waiting.push_back(work);
        self.start_waiting();
    }

    fn begun(&mut self) {
        if std::mem::take(&mut self.is_away) {
            self.call_count += 1;
            // Returning to the lane's former cores is always allowed.
            may_run_on(&self.own_cores).ok();
        }
    }

    fn take(&mut self, taken: &mut dyn FnMut(Token, Result<u32, Errno>)) {
        self.ended.drain(..).for_each(|(token, result)| taken(token, result));
        if self.under_way_count() == 0 && !self.notices.wakeup().has_notices() {
            return;
        }
        let mut spare = std::mem::take(&mut self.spare);
        self.notices.take(&mut spare);
        if !spare.is_empty() {
            self.notified_at = Instant::now();
            self.thread_count += u64_of(spare.len());
            for block in spare.drain(..) {
                self.settle(&block, taken);
            }
        } else if self.notified_at.elapsed() >= POLL_INTERVAL {
            self.poll_all(taken);
        }
        self.spare = spare;
        if !self.waiting.is_empty() {
            self.start_waiting();
            self.begun();
            self.ended.drain(..).for_each(|(token, result)| taken(token, result));
        }
    }

    fn wakeup(&self) -> Option<&Wakeup> {
        Some(self.notices.wakeup())
    }

    fn sleep_ns_max(&self) -> Option<u64> {
        let look_ns = u64::try_from(POLL_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        (self.under_way_count() > 0).then_some(look_ns)
    }

    fn end(&mut self) -> bool {
        self.waiting.clear();
        self.ended.clear();
        let deadline = Instant::now() + END;
        for (_, block) in &self.blocks {
            let control = block.control.get();
            // SAFETY: the block was submitted to glibc, which does not change its descriptor.
            let file = unsafe { (*control).aio_fildes };
            // SAFETY: as above. Operations that have begun continue, and are waited for below.
            unsafe { libc::aio_cancel(file, control) };
        }
        loop {
            self.poll_all(&mut |_, _| {});
            let Some((_, block)) = self.blocks.iter().next() else { return true };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = libc::timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(1),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let list = [block.control.get().cast_const()];
            // SAFETY: one block, which stays valid while this waits, and a timeout of our own. The
            // reason of the return is checked above.
            unsafe { libc::aio_suspend(list.as_ptr(), 1, &raw const timeout) };
        }
    }

    fn offloaded(&self) -> Offloaded {
        Offloaded { offloaded_count: self.offloaded_count, thread_count: self.thread_count }
    }

    /// The system calls of glibc for an operation are unknown.
    fn call_count(&self) -> u64 {
        self.call_count
    }
}

impl Drop for PosixAio {
    fn drop(&mut self) {
        self.end();
    }
}

/// A control block without its event.
fn control_of(op: Op) -> libc::aiocb {
    let (file, at, piece_bytes, offset) = if let Op::Read { file, at, read_bytes, offset, .. } = op
    {
        (file, at, read_bytes, offset)
    } else if let Op::Write { file, at, write_bytes, offset, .. } = op {
        (file, at.cast_mut(), write_bytes, offset)
    } else {
        panic!("{op:?} neither reads nor writes")
    };
    // SAFETY: all of it is numbers and pointers, for which zeros are valid.
    let mut control: libc::aiocb = unsafe { std::mem::zeroed() };
    control.aio_fildes = file;
    control.aio_buf = at.cast();
    control.aio_nbytes = piece_bytes as usize;
    // The kernel reports an offset that is too large.
    control.aio_offset = i64::try_from(offset).unwrap_or(-1);
    control
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::driver::Kind;
    use std::os::fd::AsRawFd as _;

    /// Takes all results.
    fn taken(aio: &mut PosixAio) -> Vec<Result<u32, Errno>> {
        let mut results = Vec::new();
        aio.take(&mut |_, result| results.push(result));
        results
    }

    #[test]
    fn a_lost_notification_is_found_by_polling_and_a_late_one_counts_once() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut space = [0; 64];
        let (at, file) = (space.as_mut_ptr(), file.as_raw_fd());
        let op = Op::Read { file, at, read_bytes: 64, offset: 0, direct: false, cached: false };
        let mut aio = PosixAio::new(&[]).unwrap();
        // SAFETY: memory and file live until the end of this test, which takes the result.
        unsafe { aio.begin(Work { token: Token::new(Kind::Job, 1), op }) };
        aio.begun();
        while !aio.notices.wakeup().has_notices() {
            std::thread::yield_now();
        }
        let mut lost = Vec::new();
        aio.notices.take(&mut lost);
        assert_eq!((lost.len(), aio.sleep_ns_max()), (1, Some(100_000_000)));
        // As if notified just now, however long this test has waited.
        aio.notified_at = Instant::now() + Duration::from_secs(3600);
        assert_eq!(taken(&mut aio), [], "operations are not polled all the time");
        aio.notified_at = Instant::now().checked_sub(POLL_INTERVAL).unwrap();
        assert_eq!(taken(&mut aio), [Ok(64)]);
        assert_eq!(&space[1..4], b"ELF");
        assert_eq!(aio.sleep_ns_max(), None, "nothing is under way");
        for block in lost {
            aio.notices.push(block);
        }
        assert_eq!(taken(&mut aio), []);
        assert!(aio.end());
    }
}
