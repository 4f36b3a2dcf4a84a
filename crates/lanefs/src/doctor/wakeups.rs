//! How long it takes until a sleeping thread runs that is woken on another core: what each message to a
//! lane that sleeps costs. In a virtual machine the host takes part in it.

use super::finding::Finding;
use super::text::time_text;
use anyhow::{Context as _, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Of the kernel's module haltpoll, for virtual machines.
const HALT_POLL_NS: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
const COUNT_MAX: usize = 300;
const MEASURING_MAX: Duration = Duration::from_secs(1);
/// So long a core is left alone, so that it halts.
const PAUSE: Duration = Duration::from_millis(1);
/// A median of more than this is more than a request over loopback takes otherwise.
const SLOW: Duration = Duration::from_micros(50);
/// No idle core takes so long.
const LATE: Duration = Duration::from_millis(2);

/// How long they took, ascending; at least one.
struct Wakeups(Vec<Duration>);

impl Wakeups {
    fn at(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

/// Measures it on this machine.
pub(super) fn look() -> Finding {
    match measure() {
        Ok(wakeups) => judge(&wakeups, halt_poll()),
        Err(error) => Finding::note("wake-up", format!("cannot be measured: {error:#}")),
    }
}

/// How long an idle core of this virtual machine looks for work before it halts, in nanoseconds; `None`: not by
/// the kernel's haltpoll.
fn halt_poll() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let driver = read("/sys/devices/system/cpu/cpuidle/current_driver")?;
    (driver.trim() == "haltpoll").then(|| read(HALT_POLL_NS)?.trim().parse().ok())?
}

fn judge(wakeups: &Wakeups, halt_poll_ns: Option<u64>) -> Finding {
    let (median, p99) = (wakeups.at(50), wakeups.at(99));
    let found = format!(
        "a sleeping thread runs {} after it is woken (median of {}), 1 in 100 after {} or more",
        time_text(median),
        wakeups.0.len(),
        time_text(p99)
    );
    let finding = if median > SLOW && halt_poll_ns == Some(0) {
        let remedy = format!(
            "idle cores of this virtual machine halt at once: `echo 200000 > {HALT_POLL_NS}`, as root, lets them \
             look for work for up to 200 us, after recent work only"
        );
        Finding::note("wake-up", found).remedy(remedy)
    } else if median > SLOW {
        let remedy = "where cores are free, `--spin 50us` avoids wake-ups; in a virtual machine the host's \
                      kvm.halt_poll_ns or the guest's module haltpoll makes them faster";
        Finding::note("wake-up", found).remedy(remedy)
    } else if p99 > LATE {
        let remedy =
            "other programs or other guests of the host use the cores: give lanefs some of its own";
        Finding::note("wake-up", found).remedy(remedy)
    } else {
        Finding::ok("wake-up", found)
    };
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    finding.value("median_us", us(median)).value("p99_us", us(p99))
}

/// One thread sleeps on the last core, another one wakes it from the first.
fn measure() -> Result<Wakeups> {
    let cores = ring::usable_cores().context("cannot find out the usable cores")?;
    let event = eventfd(0, EventfdFlags::CLOEXEC).context("cannot make an eventfd")?;
    let (to_waker, woken): (Sender<Instant>, Receiver<Instant>) = channel();
    let pin = |core: Option<&u16>| core.map_or(Ok(()), |core| ring::pin_to_core(*core));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| -> Result<()> {
            // The channel belongs to this thread: its end is seen by the other one.
            let to_waker = to_waker;
            pin(cores.last())?;
            let mut count = [0; 8];
            loop {
                read(&event, &mut count).context("cannot sleep")?;
                // Nobody waits any more.
                if to_waker.send(Instant::now()).is_err() {
                    return Ok(());
                }
            }
        });
        let waker = scope.spawn(|| -> Result<Vec<Duration>> {
            let woken = woken;
            pin(cores.first())?;
            let begin = Instant::now();
            let mut took = Vec::with_capacity(COUNT_MAX);
            while took.len() < COUNT_MAX && (took.is_empty() || begin.elapsed() < MEASURING_MAX) {
                thread::sleep(PAUSE);
                let asked = Instant::now();
                write(&event, &1_u64.to_ne_bytes()).context("cannot wake")?;
                took.push(woken.recv().context("the sleeping thread has ended")? - asked);
            }
            Ok(took)
        });
        let ended = |_| anyhow::anyhow!("a thread has ended early");
        let took = waker.join().map_err(ended);
        // However that ended, nobody waits for the sleeper now.
        write(&event, &1_u64.to_ne_bytes()).context("cannot wake")?;
        sleeper.join().map_err(ended)??;
        let mut took = took??;
        took.sort_unstable();
        Ok(Wakeups(took))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn slow_wake_ups_have_a_remedy() {
        let wakeups = |us: &[u64]| Wakeups(us.iter().copied().map(Duration::from_micros).collect());
        let of = |us: &[u64]| judge(&wakeups(us), None);
        let usual = of(&[5, 6, 900]);
        assert_eq!(usual.severity, Severity::Ok);
        assert!(
            usual.found.contains("runs 6 us after") && usual.found.contains("after 6 us or more")
        );
        let slow = of(&[80, 90, 100]);
        assert!(slow.severity == Severity::Note && slow.found.contains("90 us"), "{slow}");
        let halting = judge(&wakeups(&[80, 90, 100]), Some(0));
        assert!(halting.remedy.is_some_and(|remedy| remedy.contains(HALT_POLL_NS)));
        let late = of(&[5, 3000, 3000]);
        assert!(late.remedy.is_some_and(|remedy| remedy.contains("--spin")));
        let late = of(&[[5; 199].as_slice(), &[3000; 5]].concat());
        assert!(late.remedy.is_some_and(|remedy| remedy.contains("other programs")));
    }

    #[test]
    fn this_machine_wakes_a_thread() {
        let wakeups = measure().unwrap();
        assert!(!wakeups.0.is_empty() && wakeups.at(50) <= wakeups.at(99));
    }
}
