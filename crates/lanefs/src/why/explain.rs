//! The cause of a request's time, in words.

use super::shown::{Shown, this_host, uuid};
use library::Status;
use library::traces::{Kept, Party, RequestTrace, Wait, WaitCause};
use std::time::Duration;
use wire::Op;

/// Causes that are named, at most.
const CAUSE_COUNT_MAX: usize = 3;
/// A cause is named if it took this part of the time, or more.
const PART_MIN: u64 = 10;

/// One sentence a cause, what took longest first.
pub(super) fn sentences(Shown { lane, trace }: &Shown) -> Vec<String> {
    let total_us = trace.total_us();
    let mut waits: Vec<&Wait> = trace.waits.iter().filter(|wait| wait.took_us > 0).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.took_us));
    let long = waits.into_iter().filter(|wait| wait.took_us >= total_us / PART_MIN);
    let mut sentences: Vec<String> =
        long.take(CAUSE_COUNT_MAX).map(|wait| sentence(trace, wait)).collect();
    if sentences.is_empty() {
        let ahead = match trace.ahead_count {
            0 => String::new(),
            1 => format!("; 1 request was ahead of it in lane {lane}"),
            count => format!("; {count} requests were ahead of it in lane {lane}"),
        };
        let line = match trace.kept {
            Kept::Waiting => "it has just begun to wait".to_owned(),
            Kept::Slow | Kept::Sample => {
                format!("answered in the turn in which it was executed{ahead}")
            }
        };
        sentences.push(line);
    }
    if let Some(status) = trace.status.filter(|status| *status != Status::Ok) {
        sentences.push(format!("it failed: {}", status.text()));
    }
    sentences
}

fn sentence(trace: &RequestTrace, wait: &Wait) -> String {
    let took = time(wait.took_us);
    let flush = trace.flush_us;
    let log_is_slow = flush > 0 && flush >= wait.took_us / 2;
    match (wait.cause, wait.is_now) {
        (WaitCause::Batch, true) if log_is_slow => {
            format!("the disk has been flushing the log for {}", time(flush))
        }
        (WaitCause::Batch, false) if log_is_slow => {
            format!("the disk took {} to flush the log", time(flush))
        }
        (WaitCause::Write, false) if log_is_slow => {
            format!("the disk took {} to flush the log", time(flush))
        }
        (WaitCause::Contents, is_now) => {
            let what = match trace.op {
                Some(Op::Read | Op::ReadList) => "read the contents",
                Some(Op::Write | Op::WriteList) => "write the contents",
                Some(_) | None => "change or look at the contents",
            };
            if is_now {
                format!("the disk has had {took} to {what}")
            } else {
                format!("the disk took {took} to {what}")
            }
        }
        (cause, is_now) => {
            let waited = if is_now { "waiting" } else { "waited" };
            format!("{waited} {took} {}", what_for(trace, (cause, is_now), &wait.whom))
        }
    }
}

fn what_for(trace: &RequestTrace, (cause, is_now): (WaitCause, bool), whom: &[Party]) -> String {
    match cause {
        WaitCause::Lease => {
            let its = if whom.len() > 1 { "their leases" } else { "its lease" };
            format!("for {} to give up {its} of {}", clients(whom), subject(trace))
        }
        WaitCause::FileLock => {
            let hold = match (is_now, whom.len() > 1) {
                (true, true) => "hold",
                (true, false) => "holds",
                (false, _) => "held",
            };
            format!("for a lock on {} that {} {hold}", subject(trace), processes(whom))
        }
        WaitCause::Lock if whom.is_empty() => {
            "for a change of other shards that has to end before".to_owned()
        }
        WaitCause::Lock => {
            format!("for a change over several shards that {} began", clients(whom))
        }
        WaitCause::Batch => "for changes that it depends on to be in the log".to_owned(),
        WaitCause::Write => "for written contents to be on the disk".to_owned(),
        WaitCause::Contents => "for contents".to_owned(),
        WaitCause::Rows => "for names that are not in memory to be read from the store".to_owned(),
        WaitCause::Containment => "for a check of what its export contains".to_owned(),
        WaitCause::Reopening => {
            "for clients to replay their changes after the server's start".to_owned()
        }
        WaitCause::Recovery => "for the recovery after the server's start to end".to_owned(),
        WaitCause::Freeze => {
            "for the end of a freeze, which a backup or an administrator began".to_owned()
        }
        WaitCause::Reply => {
            "for its client to read the reply, or for the network between them".to_owned()
        }
        WaitCause::Participants => "for other shards that take part in its change".to_owned(),
    }
}

fn clients(whom: &[Party]) -> String {
    match whom {
        [] => "another client".to_owned(),
        several => join(several.iter().map(|party| format!("client {}", client(party)))),
    }
}

/// A client by its host's name and its job.
pub(super) fn client(party: &Party) -> String {
    let uuid = uuid(party);
    let name = if party.host.is_empty() { &uuid[..8] } else { party.host.as_str() };
    let job = if party.job.is_empty() { String::new() } else { format!(" (job {})", party.job) };
    format!("{name}{job}").escape_debug().to_string()
}

fn processes(whom: &[Party]) -> String {
    if whom.is_empty() {
        return "another process".to_owned();
    }
    join(whom.iter().map(|party| {
        let command = command(party);
        let command = command.map(|command| format!(" ({command})")).unwrap_or_default();
        match party.pid {
            0 => format!("client {}", client(party)),
            pid => format!("process {pid}{command} of client {}", client(party)),
        }
    }))
}

/// The name of a process of this machine.
fn command(party: &Party) -> Option<String> {
    if party.pid == 0 || party.host != this_host() {
        return None;
    }
    let name = std::fs::read_to_string(format!("/proc/{}/comm", party.pid)).ok()?;
    Some(name.trim_end().escape_debug().to_string())
}

fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    match parts.as_slice() {
        [first, .., last] => {
            let middle = parts[1..parts.len() - 1].iter().map(|part| format!(", {part}"));
            format!("{first}{} and {last}", middle.collect::<String>())
        }
        [one] => one.clone(),
        [] => String::new(),
    }
}

/// What a request is about.
pub(super) fn subject(trace: &RequestTrace) -> String {
    let name = String::from_utf8_lossy(&trace.name).escape_debug().to_string();
    match (trace.inode, name.is_empty()) {
        (Some(dir), false) => format!("\"{name}\" in inode {}", dir.0),
        (Some(inode), true) => format!("inode {}", inode.0),
        (None, _) => "what it changes".to_owned(),
    }
}

/// What a request is, and what it is about.
pub(super) fn request(trace: &RequestTrace) -> String {
    let op = match trace.op {
        Some(op) => op.row().name,
        None if trace.reply_us > 0 => "replies",
        None => "?",
    };
    if trace.inode.is_none() { op.to_owned() } else { format!("{op} {}", subject(trace)) }
}

/// When it was.
pub(super) fn when(kept: Kept, ago_us: u64) -> String {
    match kept {
        Kept::Waiting => "now".to_owned(),
        Kept::Slow | Kept::Sample => format!("{} ago", time(ago_us)),
    }
}

/// A time in a few digits.
pub(super) fn time(us: u64) -> String {
    let time = Duration::from_micros(us);
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{}.{} ms", us / 1_000, us / 100 % 10),
        10_000..1_000_000 => format!("{} ms", time.as_millis()),
        1_000_000..10_000_000 => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
        10_000_000..600_000_000 => format!("{} s", time.as_secs()),
        _ => format!("{} min", time.as_secs() / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use library::InodeNo;

    fn party(host: &str, job: &str, pid: u32) -> Party {
        Party { host: host.to_owned(), job: job.to_owned(), pid, ..Party::default() }
    }

    fn said(trace: RequestTrace) -> Vec<String> {
        sentences(&Shown { lane: 0, trace })
    }

    fn waited(cause: WaitCause, took_us: u64, is_now: bool, whom: &[Party]) -> RequestTrace {
        let wait = Wait { cause, begun_us: 0, took_us, is_now, whom: whom.to_vec() };
        let name = b"b".to_vec();
        RequestTrace {
            op: Some(Op::Create),
            inode: Some(InodeNo(7)),
            name,
            queue_us: took_us,
            waits: vec![wait],
            ..RequestTrace::default()
        }
    }

    #[test]
    fn each_cause_is_named_with_those_who_are_waited_for() {
        let build = party("10.0.0.3", "build", 0);
        let lease = waited(WaitCause::Lease, 1_800_000, false, std::slice::from_ref(&build));
        assert_eq!(
            said(lease),
            [
                "waited 1.8 s for client 10.0.0.3 (job build) to give up its lease of \"b\" in inode 7"
            ]
        );
        let two = waited(WaitCause::Lease, 1_800_000, true, &[build, party("other", "", 0)]);
        assert_eq!(
            said(two),
            [
                "waiting 1.8 s for client 10.0.0.3 (job build) and client other to give up their leases of \"b\" in inode 7"
            ]
        );
        let lock = RequestTrace {
            name: Vec::new(),
            ..waited(WaitCause::FileLock, 12_000_000, true, &[party("nowhere", "", 4711)])
        };
        assert_eq!(
            said(lock),
            ["waiting 12 s for a lock on inode 7 that process 4711 of client nowhere holds"]
        );
    }

    #[test]
    fn a_slow_disk_is_told_from_a_wait_for_the_log() {
        let slow =
            RequestTrace { flush_us: 340_000, ..waited(WaitCause::Batch, 350_000, false, &[]) };
        assert_eq!(said(slow.clone()), ["the disk took 340 ms to flush the log"]);
        let quick = RequestTrace { flush_us: 2_000, ..slow };
        assert_eq!(said(quick), ["waited 350 ms for changes that it depends on to be in the log"]);
        let stuck =
            RequestTrace { flush_us: 3_000_000, ..waited(WaitCause::Batch, 3_000_000, true, &[]) };
        assert_eq!(said(stuck), ["the disk has been flushing the log for 3.0 s"]);
        let read =
            RequestTrace { op: Some(Op::Read), ..waited(WaitCause::Contents, 60_000, false, &[]) };
        assert_eq!(said(read), ["the disk took 60 ms to read the contents"]);
    }

    #[test]
    fn what_took_little_is_not_named_and_an_error_is() {
        let mut trace = waited(WaitCause::Rows, 1_000_000, false, &[]);
        let short = Wait { cause: WaitCause::Containment, took_us: 10, ..Wait::default() };
        trace.waits.push(short);
        trace.status = Some(Status::Io);
        assert_eq!(
            said(trace),
            [
                "waited 1.0 s for names that are not in memory to be read from the store",
                "it failed: input/output error",
            ]
        );
        let new = RequestTrace::default();
        assert_eq!(
            (new.kept, said(new)),
            (Kept::Waiting, vec!["it has just begun to wait".to_owned()])
        );
        let fast = RequestTrace { kept: Kept::Sample, ahead_count: 48, ..RequestTrace::default() };
        assert_eq!(
            said(fast),
            [
                "answered in the turn in which it was executed; 48 requests were ahead of it in lane 0"
            ]
        );
    }
}
