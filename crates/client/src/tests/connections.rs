//! Handshake, routing, loss of connections, changes of the server's shape.

use super::rig::Rig;
use super::{Dice, FILE, attr};
use crate::{Answer, Call, Refused, Report};
use alloc::vec;
use alloc::vec::Vec;
use interface::{BadCertificate, CertificateFlaw, CloseReason, Errno};
use wire::{Entry, Getattr, InodeNo, LaneId, Map, Op, RefusalReason, Status, Wire, request_flag};

const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });

#[test]
fn the_first_call_connects_to_lane_0_and_then_to_the_owner() {
    let mut rig = Rig::new(4);
    assert!(!rig.client.is_connected());
    rig.call(1, GETATTR);
    assert_eq!(rig.hellos, [(LaneId(0), 1), (LaneId(2), 2)]);
    assert!(rig.client.is_connected());
    let asked = rig.take();
    assert_eq!(rig.lane_of(asked.conn), Some(LaneId(2)));
    assert_eq!(asked.head.op, Op::Getattr);
    assert_eq!(asked.head.lane_hint, LaneId(2));
    assert_eq!(asked.head.shard, FILE.shard());
    assert_eq!(asked.head.session, super::rig::SESSION);
    assert_eq!((asked.head.slot, asked.head.flags, asked.head.conn_epoch), (0, 0, 2));
    assert_eq!(asked.head.ack_xid.0, asked.head.xid.0 - 1);
    assert_eq!(asked.body, Getattr { inode: FILE }.to_bytes());
    rig.answer(&asked, &Entry { attr: attr(FILE, 0) }.to_bytes());
    assert_eq!(rig.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn data_goes_to_the_lane_of_its_shard() {
    let mut rig = Rig::new(8);
    for count in 1..20 {
        let inode = InodeNo((3 << 48) | count);
        let read = wire::Read { inode, file_offset: 0, read_bytes: 10, accesses: true };
        rig.call(count, Call::Read(read));
        let asked = rig.take();
        let shard = rig.shape.map.data_shard(inode, 0);
        assert_eq!(asked.head.shard, shard);
        assert_eq!(rig.lane_of(asked.conn), Some(rig.shape.map.lane(shard)));
        rig.answer(&asked, &[]);
        assert_eq!(rig.outcome(), Ok(Answer::Bytes(None)));
    }
}

#[test]
fn a_server_that_does_not_know_the_secret_is_refused() {
    let mut rig = Rig::new(1);
    rig.shape.secret = [8; 32];
    rig.call(1, GETATTR);
    assert_eq!(rig.outcome(), Err(Status::Access));
    assert_eq!(rig.client.refusal(), Some(Refused::WrongSecret));
    assert_eq!(rig.closed.len(), 1);
    rig.call(2, GETATTR);
    assert_eq!(rig.outcome(), Err(Status::Access), "it stays refused");
    assert_eq!(rig.hellos.len(), 1);
    rig.shape.secret = super::rig::SECRET;
    rig.client.try_again();
    rig.call(3, GETATTR);
    assert_eq!(rig.asked.len(), 1, "it goes on when told so");
}

#[test]
fn the_proofs_are_about_the_channel() {
    let mut rig = Rig::new(2);
    rig.shape.channels = ([3; 32], [3; 32]);
    rig.call(1, GETATTR);
    assert_eq!(rig.asked.len(), 1, "both lanes have one channel with it");
    // Somebody in between has two connections.
    let mut rig = Rig::new(1);
    rig.shape.channels = ([3; 32], [4; 32]);
    rig.call(1, GETATTR);
    assert_eq!(rig.outcome(), Err(Status::Access));
    assert_eq!(rig.client.refusal(), Some(Refused::WrongSecret));
}

#[test]
fn a_server_that_speaks_another_language_is_refused_and_an_unreachable_one_is_not() {
    let flaw = CertificateFlaw::Expired;
    let bad = |ours| CloseReason::Certificate(BadCertificate { ours, flaw });
    for (reason, refused) in [
        (CloseReason::Failed(Errno::MUST_NOT_SEAL), Some(Refused::MustNotSeal)),
        (bad(false), Some(Refused::ServerCertificate(flaw))),
        (bad(true), Some(Refused::OwnCertificate(flaw))),
        (CloseReason::Failed(Errno::SEAL), None),
        (CloseReason::Failed(Errno(111)), None),
    ] {
        let mut rig = Rig::new(1);
        rig.shape.listening = false;
        rig.shape.unheard = reason;
        rig.call(1, GETATTR);
        assert_eq!(rig.client.refusal(), refused, "{reason:?}");
    }
    let mut rig = Rig::new(1);
    rig.shape.refuse = Some(RefusalReason::MustSeal);
    rig.call(1, GETATTR);
    assert_eq!(rig.client.refusal(), Some(Refused::MustSeal));
}

#[test]
fn who_was_welcomed_waits_until_certificates_are_renewed() {
    let refused = Refused::ServerCertificate(CertificateFlaw::Expired);
    let bad = BadCertificate { ours: false, flaw: CertificateFlaw::Expired };
    let mut rig = Rig::new(1);
    rig.call(1, GETATTR);
    rig.shape.listening = false;
    rig.shape.unheard = CloseReason::Certificate(bad);
    rig.hang_up();
    for _ in 0..20 {
        rig.wait_ms(1_000);
    }
    assert_eq!(rig.client.take_reports(), [Report::Waits { refused }], "it is said once");
    assert_eq!((rig.client.refusal(), rig.answers().len()), (None, 0));
    rig.shape.listening = true;
    rig.wait_ms(1_000);
    assert_eq!(rig.asked.len(), 1, "what waited is asked again");
}

#[test]
fn a_refusal_answers_what_waits() {
    let mut rig = Rig::new(1);
    rig.shape.refuse = Some(RefusalReason::NoSuchExport);
    rig.call(1, GETATTR);
    assert_eq!(rig.outcome(), Err(Status::Stale));
    assert_eq!(rig.client.refusal(), Some(Refused::NoSuchExport));
}

#[test]
fn a_busy_server_is_asked_again_after_a_pause() {
    let mut rig = Rig::new(1);
    rig.shape.refuse = Some(RefusalReason::Busy);
    rig.call(1, GETATTR);
    assert_eq!(rig.hellos.len(), 1);
    assert!(rig.wake_at.is_some());
    rig.shape.refuse = None;
    rig.wait_ms(60);
    assert_eq!(rig.hellos, [(LaneId(0), 1), (LaneId(0), 2)]);
    assert_eq!(rig.asked.len(), 1);
}

#[test]
fn calls_wait_while_the_server_is_away() {
    let mut rig = Rig::new(1);
    rig.shape.listening = false;
    rig.call(1, GETATTR);
    for _ in 0..20 {
        rig.wait_ms(1_000);
    }
    assert!(rig.answers().is_empty());
    assert!(rig.client.waiting_since().is_some());
    let pause_ns = rig.wake_at.unwrap().0 - rig.now_ms * 1_000_000;
    assert!((750_000_000..=1_000_000_000).contains(&pause_ns), "{pause_ns} ns of pause");
    rig.shape.listening = true;
    rig.wait_ms(1_000);
    let asked = rig.take();
    rig.answer(&asked, &Entry { attr: attr(FILE, 0) }.to_bytes());
    assert_eq!(rig.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
    assert_eq!(rig.client.waiting_since(), None);
}

#[test]
fn another_file_system_at_the_same_address_is_refused() {
    let mut rig = Rig::new(1);
    rig.call(1, GETATTR);
    rig.shape.fs = wire::FsUuid([10; 16]);
    rig.restart();
    assert_eq!(rig.outcome(), Err(Status::Stale));
    assert_eq!(rig.client.refusal(), Some(Refused::OtherFileSystem));
}

#[test]
fn a_restart_with_other_lanes_sends_everything_by_the_new_map() {
    let mut rig = Rig::new(4);
    for id in 1..=3 {
        rig.call(id, GETATTR);
    }
    assert_eq!(rig.asked.len(), 3);
    let before: Vec<_> = rig.asked.iter().map(|asked| asked.head.xid).collect();
    rig.shape.map = Map { lane_count: 2, ..rig.shape.map };
    rig.restart();
    assert_eq!(rig.client.map(), Some(rig.shape.map));
    let after: Vec<_> = rig.asked.iter().map(|asked| asked.head.xid).collect();
    assert_eq!(after, before, "the same numbers in the same order");
    for asked in rig.asked.clone() {
        assert_eq!(rig.lane_of(asked.conn), Some(LaneId(0)), "shard 2 of 2 lanes is lane 0's");
        assert_eq!(asked.head.flags, request_flag::RESENT);
        rig.answer(&asked, &Entry { attr: attr(FILE, 0) }.to_bytes());
    }
    assert_eq!(rig.answers().len(), 3);
}

#[test]
fn a_broken_frame_closes_the_connection_and_the_request_goes_again() {
    let mut rig = Rig::new(1);
    rig.call(1, GETATTR);
    let first = rig.take();
    rig.frame(first.conn, vec![0xee; 120], None);
    assert_eq!(rig.closed, [first.conn]);
    assert_eq!(rig.client.counters().protocol_error_count, 1);
    rig.wait_ms(100);
    let again = rig.take();
    assert_eq!((again.head.xid, again.head.flags), (first.head.xid, request_flag::RESENT));
    // Right frame, wrong body.
    rig.answer(&again, &[1, 2, 3]);
    assert_eq!(rig.client.counters().protocol_error_count, 2);
    assert!(rig.answers().is_empty());
    rig.wait_ms(1_000);
    let third = rig.take();
    rig.answer(&third, &Entry { attr: attr(FILE, 0) }.to_bytes());
    assert_eq!(rig.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
}

/// Checksums and TLS are the world's matter: what gets here may be anything that a server says.
#[test]
fn changed_frames_never_panic_and_a_call_ends_once_or_goes_on() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    for _ in 0..400 {
        let mut rig = Rig::new(1);
        rig.call(1, GETATTR);
        let asked = rig.take();
        let mut frame = Vec::new();
        let reply = rig.reply(&asked);
        let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
        wire::Header::Reply(reply).encode(&mut frame, None, |to| to.put(&entry));
        let at = usize::try_from(dice.roll(frame.len() as u64)).unwrap();
        let bit = 1 << dice.roll(8);
        frame[at] ^= bit;
        if dice.roll(4) == 0 {
            frame.truncate(at);
        }
        rig.frame(asked.conn, frame, None);
        rig.wait_ms(1_000);
        let answers = rig.answers();
        assert!(answers.len() < 2, "byte {at}: {answers:?}");
    }
}

#[test]
fn inode_numbers_that_nobody_made_are_stale() {
    let mut rig = Rig::new(1);
    for (id, inode) in [(1, 0), (2, 8 << 48 | 1), (3, 2 << 48), (4, u64::MAX)] {
        let inode = InodeNo(inode);
        rig.call(id, Call::Getattr(Getattr { inode }));
        assert_eq!(rig.outcome(), Err(Status::Stale));
        rig.call(
            id,
            Call::Read(wire::Read { inode, file_offset: 0, read_bytes: 1, accesses: true }),
        );
        assert_eq!(rig.outcome(), Err(Status::Stale));
    }
    assert!(rig.asked.is_empty());
    assert_eq!(rig.client.busy_count(), 0);
}
