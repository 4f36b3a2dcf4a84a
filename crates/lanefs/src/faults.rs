//! `serve --fault NAME:COUNT`: fault injection for crash tests.
//!
//! ```text
//! kill-POINT:3     the process kills itself with -9 when it reaches the point the third time
//! fail-POINT:3     the operation fails with EIO from the third time on
//! freeze-log:3     batches are reported durable and not written, from the third on
//! slow-log:3       batches are written 0.3 s later, from the third on
//! stall-log:3      batches are neither written nor completed, from the third on
//! ```
//! Points: [`ring::FaultPoint::ALL`]. All lanes of the process count together. Log points count after the
//! recovery of all lanes, so that the length of the recovery has no influence.

use crate::log;
use interface::Errno;
use ring::{Fault, FaultPoint};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

const IO: Errno = Errno(5);

/// One injected fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Planned {
    point: FaultPoint,
    count: u64,
    kills: bool,
}

impl Planned {
    /// From a command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, count) = text.split_once(':').ok_or("NAME:COUNT is wanted")?;
        let count = count.parse().ok().filter(|count| *count > 0).ok_or("COUNT is from 1 on")?;
        let (verb, place) = name.split_once('-').ok_or("kill-, fail-, freeze-, slow- or stall-")?;
        let found = FaultPoint::ALL.iter().find(|(known, _)| *known == place);
        let point = match (verb, place, found) {
            ("freeze", "log", _) => FaultPoint::LogFreeze,
            ("slow", "log", _) => FaultPoint::LogSlow,
            ("stall", "log", _) => FaultPoint::LogStall,
            ("kill" | "fail", _, Some((_, point))) => *point,
            _ => {
                let known: Vec<&str> = FaultPoint::ALL.iter().map(|(known, _)| *known).collect();
                return Err(format!("no such fault; points are {}", known.join(" ")));
            }
        };
        Ok(Self { point, count, kills: verb == "kill" })
    }
}

/// The fault function of the rings. `recovering`: lanes whose recovery is not over.
pub(crate) fn faults(planned: &[Planned], recovering: Arc<AtomicU16>) -> Option<Fault> {
    if planned.is_empty() {
        return None;
    }
    let planned: Vec<(Planned, AtomicU64)> =
        planned.iter().map(|fault| (*fault, AtomicU64::new(0))).collect();
    Some(Arc::new(move |point| {
        if is_of_log(point) && recovering.load(Ordering::Acquire) > 0 {
            return None;
        }
        let mut errno = None;
        for (fault, met) in planned.iter().filter(|(fault, _)| fault.point == point) {
            let met_count = met.fetch_add(1, Ordering::Relaxed) + 1;
            if fault.kills && met_count == fault.count {
                // It cannot fail: the process is our own.
                kill_process(getpid(), Signal::KILL).ok();
            }
            if !fault.kills && met_count >= fault.count {
                if met_count == fault.count {
                    log::report("a planned fault has begun");
                }
                errno = Some(IO);
            }
        }
        errno
    }))
}

const fn is_of_log(point: FaultPoint) -> bool {
    use FaultPoint::{LogFreeze, LogSlow, LogStall, LogWrite, LogWritten};
    matches!(point, LogWrite | LogWritten | LogFreeze | LogSlow | LogStall)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_fault_happens_from_its_count_on() {
        let planned = [Planned::parse("fail-object-sync:2").unwrap()];
        let fault = faults(&planned, Arc::default()).unwrap();
        assert_eq!(fault(FaultPoint::ObjectSync), None);
        assert_eq!(fault(FaultPoint::LogWrite), None);
        assert_eq!(fault(FaultPoint::ObjectSync), Some(IO));
        assert_eq!(fault(FaultPoint::ObjectSync), Some(IO));
    }

    #[test]
    fn what_a_recovery_writes_does_not_count() {
        let planned = [Planned::parse("fail-log-write:1").unwrap()];
        let recovering = Arc::new(AtomicU16::new(1));
        let fault = faults(&planned, recovering.clone()).unwrap();
        assert_eq!(fault(FaultPoint::LogWrite), None);
        recovering.store(0, Ordering::Release);
        assert_eq!(fault(FaultPoint::LogWrite), Some(IO));
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        for text in ["kill-log-write", "kill-log-write:0", "kill-nothing:1", "melt-log:1", "x:1"] {
            assert!(Planned::parse(text).is_err(), "{text}");
        }
        for (name, _) in FaultPoint::ALL {
            Planned::parse(&format!("kill-{name}:7")).unwrap();
        }
    }
}
