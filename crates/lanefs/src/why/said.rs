//! The story of a request in words: one sentence a step, in their order.

use super::explain::{self, time};
use super::shown::Shown;
use super::story::{Call, Story};
use library::Status;
use library::traces::{Kept, Step, StepCause};

/// Shorter parts are left out: this part of the whole.
const PART_MIN: u64 = 20;

/// The sentences about a request; those of a server are indented.
pub(super) fn sentences(story: &Story) -> Vec<String> {
    let Some(call) = &story.call else {
        return story.shown.iter().flat_map(explain::sentences).collect();
    };
    let trace = &call.trace;
    let mut sentences = Vec::new();
    let mut steps: Vec<&Step> = trace.steps.iter().collect();
    steps.sort_by_key(|step| step.begun_us);
    let part_us = trace.total_us / PART_MIN;
    let mut until_us = 0;
    for step in steps {
        let gap_us = step.begun_us.saturating_sub(until_us);
        if gap_us > 1000.max(part_us) {
            sentences.push(format!("the mount worked on it for {}, or had no turn", time(gap_us)));
        }
        until_us = until_us.max(step.begun_us + step.took_us);
        if step.took_us < part_us {
            continue;
        }
        sentences.push(sentence(step));
        match story.at_server(step) {
            shown if step.cause == StepCause::Reply => at_server(&mut sentences, step, shown),
            Some(shown) if step.cause == StepCause::FileLock => {
                let lines = explain::sentences(shown).into_iter();
                sentences.extend(lines.map(|line| format!("  {line}")));
            }
            Some(_) | None => {}
        }
    }
    let rest_us = trace.total_us.saturating_sub(until_us);
    if trace.steps.is_empty() {
        let line = if trace.kept == Kept::Waiting {
            "the mount works on it, or waits for a turn"
        } else {
            "the mount answered it alone, or after steps of less than 1 ms"
        };
        sentences.push(line.to_owned());
    } else if rest_us > 1000.max(part_us) {
        sentences.push(format!("the mount took {} more until its reply", time(rest_us)));
    }
    if let Some(status) = trace.status.filter(|status| *status != Status::Ok) {
        sentences.push(format!("it failed: {}", status.text()));
    }
    sentences
}

fn at_server(sentences: &mut Vec<String>, step: &Step, shown: Option<&Shown>) {
    let Some(shown) = shown else {
        let line = if step.is_now {
            "  the server does not have it: it is on its way, or just answered"
        } else {
            "  the server does not remember it: it was quick there, and slow on its way, or it was long ago"
        };
        sentences.push(line.to_owned());
        return;
    };
    let server_us = shown.trace.total_us();
    sentences.push(format!("  the server had it for {}:", time(server_us)));
    sentences.extend(explain::sentences(shown).into_iter().map(|line| format!("    {line}")));
    if shown.trace.kept != Kept::Waiting && !step.is_now {
        let way_us = step.took_us.saturating_sub(server_us);
        sentences.push(format!("  the network and waiting for turns took {}", time(way_us)));
    }
}

fn sentence(step: &Step) -> String {
    let took = time(step.took_us);
    let waits = if step.is_now { "waiting" } else { "waited" };
    let op = step.exchange.and_then(|exchange| exchange.op).map_or("?", |op| op.row().name);
    let lane = step.exchange.map_or(0, |exchange| exchange.lane);
    match step.cause {
        StepCause::Reply if step.is_now => {
            format!("lane {lane} of the server has not replied to {op} for {took}")
        }
        StepCause::Reply => format!("lane {lane} of the server replied to {op} after {took}"),
        StepCause::Connection => {
            let now = if step.is_now { ", which cannot be reached" } else { "" };
            format!("{waits} {took} for a connection to lane {lane} of the server{now}")
        }
        StepCause::Reopens => {
            format!(
                "{waits} {took} for open files to be opened again at the server, which has started anew"
            )
        }
        StepCause::Recall => {
            format!("{waits} {took} for the kernel to forget what a lost lease covered")
        }
        StepCause::Credits => format!(
            "{waits} {took} for a credit: the server takes no more requests of this client at a time"
        ),
        StepCause::Slot => format!(
            "{waits} {took} for a slot: the server takes no more changes of this client at a time"
        ),
        StepCause::ReplaySpace => format!(
            "{waits} {took} for memory: too many changes of this client are not durable at the server"
        ),
        StepCause::Retry => format!(
            "{waits} {took} because the server's log is full and wants the request later: its disk is slow, \
             or its store has no space"
        ),
        StepCause::Layout => format!("{waits} {took} for the layout of the file"),
        StepCause::FileLock => format!("{waits} {took} for a lock on the file that others hold"),
        StepCause::Groups => {
            format!(
                "{waits} {took} for the groups of its process, which the kernel did not send along"
            )
        }
    }
}

/// Who asks for what, of a request of a mount.
pub(super) fn head(call: &Call) -> String {
    let pid = call.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    let command = call.command.escape_debug();
    format!("process {pid} ({command}) in {}: {} {}", call.mount, call.trace.op, call.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use library::SessionId;
    use library::traces::{CallTrace, Exchange, RequestTrace, Wait, WaitCause};
    use wire::{ClientUuid, Op};

    fn story(steps: Vec<Step>, shown: Vec<Shown>) -> Story {
        let trace =
            CallTrace { kept: Kept::Slow, total_us: 2_000_000, steps, ..CallTrace::default() };
        let (mount, command, path) = ("/mnt".to_owned(), "cat".to_owned(), "/f".to_owned());
        Story {
            call: Some(Call {
                mount,
                client: ClientUuid::NONE,
                trace,
                pid: Some(7),
                command,
                path,
            }),
            shown,
        }
    }

    fn step(cause: StepCause, begun_us: u64, took_us: u64) -> Step {
        let (op, session) = (Some(Op::Read), SessionId(3));
        let exchange = Some(Exchange { op, session, trace_id: 5, ..Exchange::default() });
        Step { cause, begun_us, took_us, is_now: false, exchange }
    }

    #[test]
    fn a_story_goes_from_the_mount_to_the_server_and_back() {
        let wait = Wait { cause: WaitCause::Contents, took_us: 900_000, ..Wait::default() };
        let trace = RequestTrace {
            kept: Kept::Slow,
            op: Some(Op::Read),
            session: SessionId(3),
            trace_id: 5,
            execution_us: 900_000,
            waits: vec![wait],
            ..RequestTrace::default()
        };
        let steps = vec![
            step(StepCause::Connection, 0, 500_000),
            step(StepCause::Reply, 500_000, 1_000_000),
        ];
        let told = sentences(&story(steps, vec![Shown { lane: 0, trace }]));
        assert_eq!(
            told,
            [
                "waited 500 ms for a connection to lane 0 of the server",
                "lane 0 of the server replied to read after 1.0 s",
                "  the server had it for 900 ms:",
                "    the disk took 900 ms to read the contents",
                "  the network and waiting for turns took 100 ms",
                "the mount took 500 ms more until its reply",
            ]
        );
    }

    #[test]
    fn what_only_the_mount_knows_is_told() {
        for (cause, part) in [
            (StepCause::Credits, "for a credit: "),
            (StepCause::Retry, "because the server's log is full"),
            (StepCause::FileLock, "for a lock on the file that others hold"),
            (StepCause::Groups, "for the groups of its process"),
            (StepCause::Slot, "for a slot"),
            (StepCause::ReplaySpace, "for memory"),
            (StepCause::Recall, "for the kernel to forget"),
            (StepCause::Reopens, "for open files to be opened again"),
            (StepCause::Layout, "for the layout"),
        ] {
            let told = sentences(&story(vec![step(cause, 0, 2_000_000)], Vec::new()));
            assert!(told.len() == 1 && told[0].contains(part), "{told:?}");
            assert!(told[0].starts_with("waited 2.0 s "), "{told:?}");
        }
        let reply = Step { is_now: true, ..step(StepCause::Reply, 0, 2_000_000) };
        let told = sentences(&story(vec![reply], Vec::new()));
        assert!(
            told[0].ends_with("has not replied to read for 2.0 s") && told.len() == 2,
            "{told:?}"
        );
        let told = sentences(&story(Vec::new(), Vec::new()));
        assert_eq!(told, ["the mount answered it alone, or after steps of less than 1 ms"]);
    }
}
