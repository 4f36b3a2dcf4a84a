//! The resources that a server's process used: the difference of two readings.

use anyhow::Result;
use procfs::FromRead as _;
use procfs::process::{Process, Status};
use rustix::time::{ClockId, clock_gettime};
use wire::Stats;

/// Totals since the process started; [`Usage::since`] makes an interval of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time of all its threads, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Context switches of all its threads.
    pub(crate) switch_count: u64,
    /// The lanes' counters; `None` for a server without lanes.
    pub(crate) lanes: Option<LaneUsage>,
    /// By threads' names; `None` where they cannot be seen.
    pub(crate) threads: Option<ThreadUsage>,
}

/// CPU time of threads, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ThreadUsage {
    /// Of the lanes.
    pub(crate) lane_ns: u64,
    /// Of the thread that applies logs to rows.
    pub(crate) applier_ns: u64,
    /// Threads there were at the end.
    pub(crate) thread_count: u64,
}

impl ThreadUsage {
    fn add(&mut self, name: &str, cpu_ns: u64) {
        self.thread_count += 1;
        if name.starts_with("lane ") {
            self.lane_ns += cpu_ns;
        } else if name == "applier" {
            self.applier_ns += cpu_ns;
        }
    }

    const fn since(&self, earlier: &Self) -> Self {
        Self {
            lane_ns: self.lane_ns.saturating_sub(earlier.lane_ns),
            applier_ns: self.applier_ns.saturating_sub(earlier.applier_ns),
            thread_count: self.thread_count,
        }
    }
}

/// What the lanes of a server counted, summed over them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LaneUsage {
    /// CPU time of the process, nanoseconds; every lane reports the same.
    pub(crate) cpu_ns: u64,
    /// Context switches of the process; every lane reports the same.
    pub(crate) switch_count: u64,
    /// Requests answered.
    pub(crate) request_count: u64,
    /// Of them, those that changed something.
    pub(crate) change_count: u64,
    /// Log batches made durable.
    pub(crate) batch_count: u64,
    /// Deferred replies.
    pub(crate) deferred_count: u64,
    /// Deferred replies that were checked when a batch had become durable.
    pub(crate) touched_count: u64,
    /// Turns.
    pub(crate) turn_count: u64,
    /// System calls.
    pub(crate) syscall_count: u64,
    /// Clock readings.
    pub(crate) clock_read_count: u64,
    /// Messages to peer lanes.
    pub(crate) message_count: u64,
    /// The longest turn since the start.
    pub(crate) turn_ns_max: u64,
    /// Reads and writes of files' contents that were passed to worker threads.
    pub(crate) handed_count: u64,
    /// Threads that were started for it.
    pub(crate) started_count: u64,
    /// The most of them under way at a time since the start, and of one file.
    pub(crate) under_way_max: u64,
    pub(crate) under_way_one_max: u64,
}

impl Usage {
    /// Of a process that reports its own counters.
    pub(crate) const fn of_lanes(lanes: &LaneUsage) -> Self {
        let LaneUsage { cpu_ns, switch_count, .. } = *lanes;
        Self { cpu_ns, switch_count, lanes: Some(*lanes), threads: None }
    }

    /// The totals of a process, from `/proc`. Threads that have ended are not in them.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn of_process(pid: u32) -> Result<Self> {
        let (mut usage, mut threads) = (Self::default(), ThreadUsage::default());
        let process = Process::new(i32::try_from(pid)?)?;
        for task in process.tasks()?.flatten() {
            // A thread may end between the listing and the reading.
            let (Ok(status), Ok(times)) = (task.status(), task.schedstat()) else { continue };
            usage.cpu_ns += times.sum_exec_runtime;
            usage.switch_count += switches(&status);
            threads.add(&status.name, times.sum_exec_runtime);
        }
        usage.threads = Some(threads);
        Ok(usage)
    }

    /// The totals of the calling thread.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub(crate) fn of_thread() -> Result<Self> {
        let status = Status::from_file("/proc/thread-self/status")?;
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let (secs, nanos) = (u64::try_from(time.tv_sec)?, u64::try_from(time.tv_nsec)?);
        let cpu_ns = secs * 1_000_000_000 + nanos;
        Ok(Self { cpu_ns, switch_count: switches(&status), lanes: None, threads: None })
    }

    /// The sum of two threads or processes.
    pub(crate) const fn plus(&self, other: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            switch_count: self.switch_count + other.switch_count,
            lanes: None,
            threads: None,
        }
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let lanes = match (self.lanes, earlier.lanes) {
            (Some(now), Some(then)) => Some(now.since(&then)),
            (None, _) | (_, None) => None,
        };
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            switch_count: self.switch_count.saturating_sub(earlier.switch_count),
            lanes,
            threads: self.threads.zip(earlier.threads).map(|(now, then)| now.since(&then)),
        }
    }
}

impl LaneUsage {
    /// The counters that a lane reports of itself and its process.
    pub(crate) const fn of(stats: &Stats) -> Self {
        Self {
            cpu_ns: stats.cpu_ns,
            switch_count: stats.voluntary_switch_count + stats.involuntary_switch_count,
            request_count: stats.request_count,
            change_count: stats.change_count,
            batch_count: stats.batch_count,
            deferred_count: stats.deferred_count,
            touched_count: stats.reply_gating.released_count,
            turn_count: stats.turn_count,
            syscall_count: stats.syscall_count,
            clock_read_count: stats.clock_read_count,
            message_count: stats.message_out_count,
            turn_ns_max: stats.turn_ns_max,
            handed_count: stats.objects.handed_count,
            started_count: stats.objects.thread_count,
            under_way_max: stats.objects.under_way_max,
            under_way_one_max: stats.objects.under_way_one_max,
        }
    }

    /// Joins two lanes of a process.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.max(other.cpu_ns),
            switch_count: self.switch_count.max(other.switch_count),
            turn_ns_max: self.turn_ns_max.max(other.turn_ns_max),
            under_way_max: self.under_way_max.max(other.under_way_max),
            under_way_one_max: self.under_way_one_max.max(other.under_way_one_max),
            ..self.each(other, u64::saturating_add)
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            turn_ns_max: self.turn_ns_max,
            under_way_max: self.under_way_max,
            under_way_one_max: self.under_way_one_max,
            ..self.each(earlier, u64::saturating_sub)
        }
    }

    fn each(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        Self {
            cpu_ns: join(self.cpu_ns, other.cpu_ns),
            switch_count: join(self.switch_count, other.switch_count),
            request_count: join(self.request_count, other.request_count),
            change_count: join(self.change_count, other.change_count),
            batch_count: join(self.batch_count, other.batch_count),
            deferred_count: join(self.deferred_count, other.deferred_count),
            touched_count: join(self.touched_count, other.touched_count),
            turn_count: join(self.turn_count, other.turn_count),
            syscall_count: join(self.syscall_count, other.syscall_count),
            clock_read_count: join(self.clock_read_count, other.clock_read_count),
            message_count: join(self.message_count, other.message_count),
            turn_ns_max: join(self.turn_ns_max, other.turn_ns_max),
            handed_count: join(self.handed_count, other.handed_count),
            started_count: join(self.started_count, other.started_count),
            under_way_max: join(self.under_way_max, other.under_way_max),
            under_way_one_max: join(self.under_way_one_max, other.under_way_one_max),
        }
    }
}

fn switches(status: &Status) -> u64 {
    let Status { voluntary_ctxt_switches, nonvoluntary_ctxt_switches, .. } = status;
    voluntary_ctxt_switches.unwrap_or(0) + nonvoluntary_ctxt_switches.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_that_works_uses_cpu_time() {
        let before = Usage::of_process(std::process::id()).unwrap();
        let mut number = 1_u64;
        // Threads of other tests end meanwhile, and their totals disappear.
        let own = Usage::of_thread().unwrap();
        while Usage::of_process(std::process::id()).unwrap().since(&before).cpu_ns == 0 {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(Usage::of_thread().unwrap().since(&own).cpu_ns > 0);
    }
}
