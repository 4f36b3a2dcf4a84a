//! `clock`: the cost of reading a clock, in several ways.

use crate::number::number;
use crate::plan::Options;
use crate::report::Progress;
use crate::rounds::{alternate, median, spread};
use crate::row::Row;
use crate::server::Home;
use anyhow::{Context as _, Result};
use ring::probe::{TurnClock, gettimeofday_us, monotonic_by_syscall_ns, tick_counter};
use rustix::time::{ClockId, clock_getres, clock_gettime};
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "clock";
/// Readings between two checks of the time.
const BLOCK_COUNT: u32 = 1000;
/// A reading takes nanoseconds: longer measurements show nothing more.
const SECONDS_MAX: f64 = 0.1;

/// A way to read a clock.
struct Source {
    name: &'static str,
    /// Reads so many times within one call, so that the call itself costs nothing.
    read: Box<dyn FnMut(u32)>,
    note: Option<String>,
}

impl Source {
    fn new<T>(name: &'static str, mut read: impl FnMut() -> T + 'static) -> Self {
        let read = move |count| {
            for _ in 0..count {
                black_box(read());
            }
        };
        Self { name, read: Box::new(read), note: None }
    }

    fn of(name: &'static str, clock: ClockId) -> Self {
        Self::new(name, move || clock_gettime(black_box(clock)))
    }

    fn with_note(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    measure_all(&home.options)
}

fn measure_all(options: &Options) -> Result<Vec<Row>> {
    let mut sources = sources()?;
    let progress = Progress::new(NAME);
    progress.begin(sources.len() * options.round_count);
    let samples = alternate(sources.len(), options.round_count, |index, _| {
        options.interrupt.check()?;
        let source = &mut sources[index];
        progress.step(source.name);
        Ok(reading_us(source, Duration::from_secs_f64(options.seconds.min(SECONDS_MAX))))
    })?;
    progress.end();
    let rows = sources.into_iter().zip(samples).map(|(source, samples)| {
        let mut row = Row::new(NAME, source.name);
        row.mean_us = median(&samples);
        row.ops_per_s = row.mean_us.map(|us| 1e6 / us);
        row.spread = spread(&samples);
        row.note = source.note;
        row
    });
    Ok(rows.collect())
}

/// Microseconds of one reading.
fn reading_us(source: &mut Source, seconds: Duration) -> f64 {
    // Warms up.
    (source.read)(BLOCK_COUNT);
    let start = Instant::now();
    let mut count = 0_u64;
    // Once at least.
    while count == 0 || start.elapsed() < seconds {
        (source.read)(BLOCK_COUNT);
        count += u64::from(BLOCK_COUNT);
    }
    start.elapsed().as_secs_f64() * 1e6 / number(count)
}

fn sources() -> Result<Vec<Source>> {
    // A failing call is an error here, not a fast clock.
    gettimeofday_us().context("gettimeofday")?;
    monotonic_by_syscall_ns().context("clock_gettime by system call")?;
    let mut turn_clock = TurnClock::new();
    let mut sources = vec![
        Source::new("lane's turn", move || turn_clock.read()),
        Source::of("monotonic", ClockId::Monotonic).with_note(kernel_clock()),
        Source::new("std Instant", Instant::now),
        Source::of("monotonic-coarse", ClockId::MonotonicCoarse)
            .with_note(resolution(ClockId::MonotonicCoarse)),
        Source::of("monotonic-raw", ClockId::MonotonicRaw),
        Source::of("boottime", ClockId::Boottime),
        Source::of("realtime", ClockId::Realtime),
        Source::new("gettimeofday", gettimeofday_us),
        Source::new("monotonic by syscall", monotonic_by_syscall_ns),
        Source::of("thread-cputime", ClockId::ThreadCPUTime),
    ];
    if tick_counter().is_some() {
        let note = "ticks, not nanoseconds; may be read before what stands before it".to_owned();
        sources.push(Source::new("rdtsc", tick_counter).with_note(note));
    }
    Ok(sources)
}

/// The kernel's clock source.
fn kernel_clock() -> String {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let name = fs::read_to_string(file).unwrap_or_default();
    let name = if name.trim().is_empty() { "unknown" } else { name.trim() };
    format!("clock source {name}")
}

fn resolution(clock: ClockId) -> String {
    let found = clock_getres(clock);
    let nanos = u32::try_from(found.tv_nsec).unwrap_or(u32::MAX);
    format!("moves every {} ms", f64::from(nanos) / 1e6)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_source_costs_something() {
        let rows = measure_all(&Options::tiny(0.01)).unwrap();
        assert_eq!(rows.len(), sources().unwrap().len());
        for row in &rows {
            assert!(row.mean_us.unwrap() > 0.0 && row.ops_per_s.unwrap() > 0.0, "{row:?}");
        }
        let us = |name: &str| rows.iter().find(|row| row.row == name).unwrap().mean_us.unwrap();
        for name in ["monotonic by syscall", "monotonic-coarse"] {
            println!("{name}: {} us", us(name));
        }
    }

    #[test]
    fn an_interrupt_is_noticed() {
        let options = Options::tiny(10.0);
        options.interrupt.set();
        assert!(measure_all(&options).is_err());
    }
}
