//! Clock readings through the C library or an instruction, to measure the cost of each.
//!
//! Only benchmarks use them. Invariant: each does exactly the one reading that it is named for.

use crate::clock::Clock;
use interface::Now;
use std::io;

/// CLOCK_MONOTONIC by a system call, past the kernel's shared page, in nanoseconds.
///
/// # Errors
/// When the kernel refuses.
pub fn monotonic_by_syscall_ns() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, which `time` is, and keeps no reference to it.
    let result =
        unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(joined(time.tv_sec, time.tv_nsec, 1_000_000_000))
}

/// The wall clock by `gettimeofday`, in microseconds.
///
/// # Errors
/// When the kernel refuses.
pub fn gettimeofday_us() -> io::Result<u64> {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: gettimeofday writes one timeval, which `time` is; the time zone may be null.
    let result = unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(joined(time.tv_sec, time.tv_usec, 1_000_000))
}

fn joined(whole: i64, part: i64, parts_a_whole: u64) -> u64 {
    let [whole, part] = [whole, part].map(|number| u64::try_from(number).unwrap_or(0));
    whole * parts_a_whole + part
}

/// The processor's time stamp counter; `None` where programs cannot read one.
#[must_use]
pub fn tick_counter() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 has the instruction, and it writes nothing but its result.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The clock of a ring, read once a turn.
pub struct TurnClock(Clock);

impl TurnClock {
    /// The clock of the lane that refreshes the wall clock's offset.
    #[must_use]
    pub fn new() -> Self {
        Self(Clock::new(true))
    }

    /// Reads it.
    pub fn read(&mut self) -> Now {
        self.0.read()
    }
}

impl Default for TurnClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_readings_of_a_clock_agree() {
        let mut clock = TurnClock::new();
        let first = clock.read();
        let called = monotonic_by_syscall_ns().unwrap();
        let second = clock.read();
        assert!(first.mono.0 <= called && called <= second.mono.0);
        let day_us = gettimeofday_us().unwrap();
        assert!(day_us.abs_diff(first.wall_ns / 1000) < 3_600_000_000, "the same hour");
    }

    #[test]
    fn the_time_stamp_counter_rises() {
        let readings: Vec<_> = (0..1000).map(|_| tick_counter()).collect();
        assert!(readings.is_sorted());
        assert_eq!(readings[0].is_some(), cfg!(target_arch = "x86_64"));
    }
}
