//! What a mount remembers of slow requests, and says of those that wait.

use super::harness::Harness;
use super::locks::{WRITE, file_of, granted, lk_in};
use super::{DIRECTORY, FILE, attr};
use crate::abi::Opcode;
use alloc::vec::Vec;
use wire::traces::{CallTrace, CallTraces, Exchange, Kept, StepCause, is_sample};
use wire::{Entry, FileKind, Op, Question, Status, Wire as _};

impl Harness {
    fn calls(&mut self) -> Vec<CallTrace> {
        let answer = self.asked(Question::Traces.encode());
        CallTraces::decode(&answer).unwrap().calls
    }

    fn only_call(&mut self) -> CallTrace {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.remove(0)
    }
}

fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, FileKind::File) }.to_bytes()
}

/// Cause, beginning and time of each step, in milliseconds.
fn steps(call: &CallTrace) -> Vec<(StepCause, u64, u64)> {
    let ms = |us: u64| us / 1000;
    call.steps.iter().map(|step| (step.cause, ms(step.begun_us), ms(step.took_us))).collect()
}

#[test]
fn a_slow_reply_of_the_server_is_named_with_what_joins_it_with_the_servers_trace() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"name\0");
    let received = harness.take();
    harness.now_ms += 30;
    let waiting = harness.only_call();
    assert_eq!((waiting.kept, waiting.status), (Kept::Waiting, None));
    assert_eq!((waiting.steps.len(), waiting.steps[0].is_now), (1, true));
    assert_eq!(steps(&waiting), [(StepCause::Reply, 0, 30)]);
    harness.now_ms += 10;
    harness.answer(&received, &entry());
    assert_eq!(harness.reply().status, Status::Ok);
    harness.now_ms += 60;
    let slow = harness.only_call();
    assert_eq!((slow.kept, slow.status), (Kept::Slow, Some(Status::Ok)));
    assert_eq!((&slow.op[..], slow.pid, slow.inode), ("lookup", 4242, Some(DIRECTORY)));
    assert_eq!((&slow.name[..], slow.age_us, slow.total_us), (&b"name"[..], 100_000, 40_000));
    assert_eq!(steps(&slow), [(StepCause::Reply, 0, 40)]);
    let head = received.head;
    let exchange = Exchange {
        op: Some(Op::Lookup),
        lane: head.lane_hint.0,
        session: head.session,
        xid: head.xid,
        trace_id: head.trace_id,
    };
    assert_eq!((slow.steps[0].exchange, slow.steps[0].is_now), (Some(exchange), false));
}

#[test]
fn waits_for_groups_and_for_a_connection_are_steps_of_their_own() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"name\0");
    let received = harness.take();
    harness.now_ms += 5;
    harness.fail(&received, Status::NeedGroups);
    harness.now_ms += 50;
    assert_eq!(steps(&harness.only_call())[0], (StepCause::Groups, 5, 50));
    harness.groups(Some(&[5]));
    harness.take();
    harness.now_ms += 5;
    harness.shape.listening = false;
    harness.hang_up();
    assert_eq!(harness.only_call().steps.last().unwrap().cause, StepCause::Connection);
    harness.shape.listening = true;
    harness.wait_ms(100);
    let again = harness.take();
    harness.now_ms += 20;
    harness.answer(&again, &entry());
    assert_eq!(harness.reply().status, Status::Ok);
    let found = steps(&harness.only_call());
    let expected = [
        (StepCause::Groups, 5, 50),
        (StepCause::Reply, 0, 5),
        (StepCause::Connection, 60, 100),
        // From its first sending on.
        (StepCause::Reply, 55, 125),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_server_that_wants_a_request_later_is_one_step() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"name\0");
    for _ in 0..5 {
        let received = harness.take();
        let reply = wire::Reply {
            status: Status::RetryLater,
            retry_after_ms: 20,
            ..harness.reply_to(&received)
        };
        harness.put_reply(received.conn, reply, &[], None);
        harness.run();
        harness.wait_ms(20);
    }
    let received = harness.take();
    harness.answer(&received, &entry());
    assert_eq!(harness.reply().status, Status::Ok);
    assert_eq!(steps(&harness.only_call()), [(StepCause::Retry, 0, 100)]);
}

#[test]
fn a_wait_for_a_lock_is_named_though_the_server_has_answered() {
    let mut harness = Harness::new();
    let file = file_of(&harness, true);
    harness.kernel_request(Opcode::Setlkw, 3, file, &lk_in((0, 5), WRITE, 0));
    let received = harness.take();
    harness.answer(&received, &granted(false));
    harness.now_ms += 300;
    let call = harness.only_call();
    assert_eq!((&call.op[..], call.inode), ("setlkw", Some(file)));
    assert_eq!(steps(&call), [(StepCause::FileLock, 0, 300)]);
}

#[test]
fn fast_requests_leave_samples_only_and_what_is_kept_is_bounded() {
    let mut harness = Harness::new();
    let mut sampled_count = 0;
    for number in 0..200 {
        harness.kernel_request(Opcode::Getattr, number, FILE, &[]);
        let received = harness.take();
        sampled_count += usize::from(is_sample(received.head.trace_id));
        harness.answer(&received, &entry());
        harness.reply();
    }
    let calls = harness.calls();
    assert_eq!(calls.len(), sampled_count);
    assert!(calls.len() >= 3 && calls.iter().all(|call| call.kept == Kept::Sample), "{calls:?}");
    for number in 0..300 {
        harness.kernel_request(Opcode::Getattr, number, FILE, &[]);
        let received = harness.take();
        harness.now_ms += 20;
        harness.answer(&received, &entry());
        harness.reply();
    }
    let slow = harness.calls().into_iter().filter(|call| call.kept == Kept::Slow);
    assert_eq!(slow.count(), 256);
}
