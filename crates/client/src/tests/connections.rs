//! Handshake, routing, loss of connections, changes of the server's map.

use super::harness::Harness;
use super::{FILE, attr};
use crate::{Answer, Call, Refused, Report};
use alloc::vec;
use alloc::vec::Vec;
use interface::{BadCertificate, CertificateFlaw, CloseReason, Errno};
use wire::{Entry, Getattr, InodeNo, LaneId, Op, RefusalReason, Status, Wire, request_flag};

const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });

#[test]
fn the_first_call_connects_to_lane_0_and_then_to_the_owner() {
    let mut harness = Harness::new(4);
    assert!(!harness.client.is_connected());
    harness.call(1, GETATTR);
    assert_eq!(harness.hellos, [(LaneId(0), 1), (LaneId(2), 2)]);
    assert!(harness.client.is_connected());
    let request = harness.take();
    assert_eq!(harness.lane_of(request.conn), Some(LaneId(2)));
    assert_eq!(request.head.op, Op::Getattr);
    assert_eq!(request.head.lane_hint, LaneId(2));
    assert_eq!(request.head.shard, FILE.shard());
    assert_eq!(request.head.session, super::harness::SESSION);
    assert_eq!((request.head.slot, request.head.flags, request.head.conn_epoch), (0, 0, 2));
    assert_eq!(request.head.ack_xid.0, request.head.xid.0 - 1);
    assert_eq!(request.body, Getattr { inode: FILE }.to_bytes());
    harness.answer(&request, &Entry { attr: attr(FILE, 0) }.to_bytes());
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn data_goes_to_the_lane_of_its_shard() {
    let mut harness = Harness::new(8);
    for count in 1..20 {
        let inode = InodeNo((3 << 48) | count);
        let read = wire::Read { inode, file_offset: 0, read_bytes: 10, accesses: true };
        harness.call(count, Call::Read(read));
        let request = harness.take();
        let shard = harness.shape.map.data_shard(inode, 0);
        assert_eq!(request.head.shard, shard);
        assert_eq!(harness.lane_of(request.conn), Some(harness.shape.map.lane(shard)));
        harness.answer(&request, &[]);
        assert_eq!(harness.outcome(), Ok(Answer::Bytes(None)));
    }
}

#[test]
fn a_server_that_does_not_know_the_secret_is_refused() {
    let mut harness = Harness::new(1);
    harness.shape.secret = [8; 32];
    harness.call(1, GETATTR);
    assert_eq!(harness.outcome(), Err(Status::Access));
    assert_eq!(harness.client.refusal(), Some(Refused::WrongSecret));
    assert_eq!(harness.closed.len(), 1);
    harness.call(2, GETATTR);
    assert_eq!(harness.outcome(), Err(Status::Access), "it stays refused");
    assert_eq!(harness.hellos.len(), 1);
    harness.shape.secret = super::harness::SECRET;
    harness.client.try_again();
    harness.call(3, GETATTR);
    assert_eq!(harness.requests.len(), 1, "it continues after try_again");
}

#[test]
fn the_proofs_are_about_the_channel() {
    let mut harness = Harness::new(2);
    harness.shape.channels = ([3; 32], [3; 32]);
    harness.call(1, GETATTR);
    assert_eq!(harness.requests.len(), 1, "both ends see one channel");
    // A man in the middle has two connections.
    let mut harness = Harness::new(1);
    harness.shape.channels = ([3; 32], [4; 32]);
    harness.call(1, GETATTR);
    assert_eq!(harness.outcome(), Err(Status::Access));
    assert_eq!(harness.client.refusal(), Some(Refused::WrongSecret));
}

#[test]
fn a_server_without_tls_is_refused_and_an_unreachable_one_is_retried() {
    let flaw = CertificateFlaw::Expired;
    let bad = |ours| CloseReason::Certificate(BadCertificate { ours, flaw });
    for (reason, refused) in [
        (CloseReason::Failed(Errno::MUST_NOT_SEAL), Some(Refused::MustNotSeal)),
        (bad(false), Some(Refused::ServerCertificate(flaw))),
        (bad(true), Some(Refused::OwnCertificate(flaw))),
        (CloseReason::Failed(Errno::SEAL), None),
        (CloseReason::Failed(Errno(111)), None),
    ] {
        let mut harness = Harness::new(1);
        harness.shape.listening = false;
        harness.shape.connect_error = reason;
        harness.call(1, GETATTR);
        assert_eq!(harness.client.refusal(), refused, "{reason:?}");
    }
    let mut harness = Harness::new(1);
    harness.shape.refuse = Some(RefusalReason::MustSeal);
    harness.call(1, GETATTR);
    assert_eq!(harness.client.refusal(), Some(Refused::MustSeal));
}

#[test]
fn a_client_welcomed_before_waits_until_certificates_are_renewed() {
    let refused = Refused::ServerCertificate(CertificateFlaw::Expired);
    let bad = BadCertificate { ours: false, flaw: CertificateFlaw::Expired };
    let mut harness = Harness::new(1);
    harness.call(1, GETATTR);
    harness.shape.listening = false;
    harness.shape.connect_error = CloseReason::Certificate(bad);
    harness.hang_up();
    for _ in 0..20 {
        harness.wait_ms(1_000);
    }
    assert_eq!(
        harness.client.take_reports(),
        [Report::NotConnected { refused }],
        "it is reported once"
    );
    assert_eq!((harness.client.refusal(), harness.answers().len()), (None, 0));
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    assert_eq!(harness.requests.len(), 1, "the waiting request is sent again");
}

#[test]
fn a_refusal_answers_waiting_calls() {
    let mut harness = Harness::new(1);
    harness.shape.refuse = Some(RefusalReason::NoSuchExport);
    harness.call(1, GETATTR);
    assert_eq!(harness.outcome(), Err(Status::Stale));
    assert_eq!(harness.client.refusal(), Some(Refused::NoSuchExport));
}

#[test]
fn a_busy_server_is_retried_after_a_pause() {
    let mut harness = Harness::new(1);
    harness.shape.refuse = Some(RefusalReason::Busy);
    harness.call(1, GETATTR);
    assert_eq!(harness.hellos.len(), 1);
    assert!(harness.state.wake_at.is_some());
    harness.shape.refuse = None;
    harness.wait_ms(60);
    assert_eq!(harness.hellos, [(LaneId(0), 1), (LaneId(0), 2)]);
    assert_eq!(harness.requests.len(), 1);
}

#[test]
fn calls_wait_while_the_server_is_away() {
    let mut harness = Harness::new(1);
    harness.shape.listening = false;
    harness.call(1, GETATTR);
    for _ in 0..20 {
        harness.wait_ms(1_000);
    }
    assert!(harness.answers().is_empty());
    assert!(harness.client.waiting_since().is_some());
    let pause_ns = harness.state.wake_at.unwrap().0 - harness.now_ms * 1_000_000;
    assert!((750_000_000..=1_000_000_000).contains(&pause_ns), "{pause_ns} ns of pause");
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    let request = harness.take();
    harness.answer(&request, &Entry { attr: attr(FILE, 0) }.to_bytes());
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
    assert_eq!(harness.client.waiting_since(), None);
}

#[test]
fn another_file_system_at_the_same_address_is_refused() {
    let mut harness = Harness::new(1);
    harness.call(1, GETATTR);
    harness.shape.fs = wire::FsUuid([10; 16]);
    harness.restart();
    assert_eq!(harness.outcome(), Err(Status::Stale));
    assert_eq!(harness.client.refusal(), Some(Refused::OtherFileSystem));
}

#[test]
fn a_restart_with_other_lanes_reroutes_everything_by_the_new_map() {
    let mut harness = Harness::new(4);
    for id in 1..=3 {
        harness.call(id, GETATTR);
    }
    assert_eq!(harness.requests.len(), 3);
    let before: Vec<_> = harness.requests.iter().map(|request| request.head.xid).collect();
    harness.shape.set_lane_count(2);
    harness.restart();
    assert_eq!(harness.client.map(), Some(&harness.shape.map));
    let after: Vec<_> = harness.requests.iter().map(|request| request.head.xid).collect();
    assert_eq!(after, before, "the same numbers in the same order");
    for request in harness.requests.clone() {
        assert_eq!(
            harness.lane_of(request.conn),
            Some(LaneId(0)),
            "shard 2 of 2 lanes is lane 0's"
        );
        assert_eq!(request.head.flags, request_flag::RESENT);
        harness.answer(&request, &Entry { attr: attr(FILE, 0) }.to_bytes());
    }
    assert_eq!(harness.answers().len(), 3);
}

#[test]
fn a_broken_frame_closes_the_connection_and_the_request_is_resent() {
    let mut harness = Harness::new(1);
    harness.call(1, GETATTR);
    let first = harness.take();
    harness.frame(first.conn, vec![0xee; 120], None);
    assert_eq!(harness.closed, [first.conn]);
    assert_eq!(harness.client.counters().protocol_error_count, 1);
    harness.wait_ms(100);
    let again = harness.take();
    assert_eq!((again.head.xid, again.head.flags), (first.head.xid, request_flag::RESENT));
    // A valid frame with an invalid body.
    harness.answer(&again, &[1, 2, 3]);
    assert_eq!(harness.client.counters().protocol_error_count, 2);
    assert!(harness.answers().is_empty());
    harness.wait_ms(1_000);
    let third = harness.take();
    harness.answer(&third, &Entry { attr: attr(FILE, 0) }.to_bytes());
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
}

/// The runtime checks checksums and TLS: the client must accept any bytes as a frame.
#[test]
fn mutated_frames_never_panic_and_a_call_ends_at_most_once() {
    let mut rng = fastrand::Rng::with_seed(0x1234_5678_9abc_def1);
    for _ in 0..400 {
        let mut harness = Harness::new(1);
        harness.call(1, GETATTR);
        let request = harness.take();
        let mut frame = Vec::new();
        let reply = harness.reply(&request);
        let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
        wire::Header::Reply(reply).encode(&mut frame, None, |to| to.put(&entry));
        let at = usize::try_from(rng.u64(..frame.len() as u64)).unwrap();
        let bit = 1 << rng.u64(..8);
        frame[at] ^= bit;
        if rng.u64(..4) == 0 {
            frame.truncate(at);
        }
        harness.frame(request.conn, frame, None);
        harness.wait_ms(1_000);
        let answers = harness.answers();
        assert!(answers.len() < 2, "byte {at}: {answers:?}");
    }
}

#[test]
fn impossible_inode_numbers_are_stale() {
    let mut harness = Harness::new(1);
    for (id, inode) in [(1, 0), (2, 8 << 48 | 1), (3, 2 << 48), (4, u64::MAX)] {
        let inode = InodeNo(inode);
        harness.call(id, Call::Getattr(Getattr { inode }));
        assert_eq!(harness.outcome(), Err(Status::Stale));
        harness.call(
            id,
            Call::Read(wire::Read { inode, file_offset: 0, read_bytes: 1, accesses: true }),
        );
        assert_eq!(harness.outcome(), Err(Status::Stale));
    }
    assert!(harness.requests.is_empty());
    assert_eq!(harness.client.busy_count(), 0);
}
