//! Resource usage of the process, as the kernel counts it.

use crate::counters::Counters;
use interface::{LaneTime, Mono, Usage};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::Read as _;
use std::mem::MaybeUninit;

/// System calls of [`now`]: getrusage, and open, read and close of a file.
pub(crate) const CALL_COUNT: u64 = 4;

/// The usage of the process so far, all threads together (with io_uring workers and ended threads),
/// and this lane's counters.
pub(crate) fn now(lane: &Counters) -> Usage {
    let mut process = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to where there is space for one.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, process.as_mut_ptr()) };
    assert!(result == 0, "a process may ask for its own usage");
    // SAFETY: all fields are integers, for which zeros are valid, and they were zeroed.
    let process = unsafe { process.assume_init() };
    Usage {
        cpu_ns: ns_of(process.ru_utime) + ns_of(process.ru_stime),
        voluntary_switch_count: count_of(process.ru_nvcsw),
        involuntary_switch_count: count_of(process.ru_nivcsw),
        turn_count: lane.turn_count,
        syscall_count: lane.enter_count + lane.syscall_count,
        clock_read_count: lane.clock_read_count,
        message_out_count: lane.message_out_count,
        send_count: lane.send_count,
        spin_count: lane.spin_count,
        spin_hit_count: lane.spin_hit_count,
        turn_ns_max: lane.turn_ns_max,
        object_offloaded_count: lane.object_handed_count,
        object_thread_count: u32::try_from(lane.object_thread_count).unwrap_or(u32::MAX),
        resident_kib: resident_kib(),
        object_in_flight_max: lane.object_under_way_max,
        object_in_flight_one_max: lane.object_under_way_one_max,
    }
}

/// How the calling lane has spent its time since it began. One system call.
pub(crate) fn lane_time(lane: &Counters, (began, now): (Mono, Mono)) -> LaneTime {
    let thread = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_ns = count_of(thread.tv_sec) * 1_000_000_000 + count_of(thread.tv_nsec);
    let up_ms = now.since_ns(began) / 1_000_000;
    let Counters { backlog_ns, send_times, .. } = *lane;
    LaneTime { now, cpu_ns, backlog_ns, up_ms, send_times }
}

/// What the process has in memory; 0 where there is no /proc.
fn resident_kib() -> u32 {
    let mut statm = [0; 128];
    let read = File::open("/proc/self/statm").and_then(|mut file| file.read(&mut statm));
    let text = str::from_utf8(&statm[..read.unwrap_or(0)]).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    let kib = pages.unwrap_or(0).saturating_mul(rustix::param::page_size() / 1024);
    u32::try_from(kib).unwrap_or(u32::MAX)
}

fn ns_of(time: libc::timeval) -> u64 {
    count_of(time.tv_sec) * 1_000_000_000 + count_of(time.tv_usec) * 1000
}

/// The counts are never negative.
fn count_of(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_and_switches_are_counted() {
        let counters = Counters { enter_count: 3, syscall_count: 4, ..Counters::default() };
        let before = now(&counters);
        assert_eq!(before.syscall_count, 7);
        assert!((100..1 << 30).contains(&before.resident_kib), "{}", before.resident_kib);
        // The test would hang if a clock or count of the kernel never changed.
        while now(&counters).cpu_ns == before.cpu_ns {}
        let begun = lane_time(&counters, (Mono(0), Mono(2_000_000)));
        assert_eq!(begun.up_ms, 2);
        while lane_time(&counters, (Mono(0), Mono(0))).cpu_ns == begun.cpu_ns {}
        let (sender, receiver) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || receiver.recv());
        while now(&counters).voluntary_switch_count == before.voluntary_switch_count {
            std::thread::yield_now();
        }
        assert!(sender.send(()).is_ok() && sleeper.join().is_ok());
    }
}
