//! The secret is changed: a client tries the earlier one of two and has its file read again before
//! it stops, and again at later calls.

use super::FILE;
use super::eviction::open_file;
use super::harness::{Harness, SECRET, config};
use super::locks::{file, lock, set};
use super::replays::entry;
use crate::{Call, Client, Config, Refused, Report};
use wire::{Getattr, LockType, Op, RefusalReason, Secret, Secrets, Status, welcome_flag};

const OTHER: [u8; 32] = [8; 32];
const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });

fn secrets(current: [u8; 32], earlier: Option<[u8; 32]>) -> Secrets {
    Secrets { current: Secret::new(current), earlier: earlier.map(Secret::new) }
}

/// Lets pauses pass.
fn pass(harness: &mut Harness) {
    for _ in 0..4 {
        harness.wait_ms(1_000);
    }
}

#[test]
fn the_earlier_of_two_is_tried_when_the_current_one_is_refused() {
    let mut harness = Harness::new(2);
    harness.client = Client::new(Config { secrets: secrets(OTHER, Some(SECRET)), ..config() });
    harness.call(1, GETATTR);
    pass(&mut harness);
    assert_eq!((harness.requests.len(), harness.read_count), (1, 0));
    assert_eq!(harness.client.refusal(), None);
    // The next connection begins with the accepted one.
    let hello_count = harness.hellos.len();
    harness.hang_up();
    pass(&mut harness);
    assert_eq!(harness.hellos.len(), hello_count + 1);
}

#[test]
fn a_new_secret_in_the_file_is_used_and_nothing_is_lost() {
    for refuses in [false, true] {
        let mut harness = Harness::new(2);
        open_file(&mut harness);
        // The refusal comes from the server, or from the client's check of the server's proof.
        harness.secrets = Some(secrets(OTHER, None));
        if refuses {
            harness.shape.refuse = Some(RefusalReason::WrongSecret);
        } else {
            harness.shape.secret = OTHER;
        }
        harness.hang_up();
        harness.call(2, GETATTR);
        (harness.shape.refuse, harness.shape.secret) = (None, OTHER);
        pass(&mut harness);
        let request = harness.take();
        assert!(harness.answers().is_empty(), "the call has waited");
        harness.answer(&request, &entry());
        assert!(harness.outcome().is_ok());
        assert_eq!(harness.client.refusal(), None);
        assert_eq!(harness.client.open_count(), 1);
        assert_eq!(harness.client.take_reports(), []);
        assert_eq!(harness.read_count, 1);
        assert!(
            harness.uuids.iter().all(|uuid| *uuid == harness.uuids[0]),
            "it is the same client"
        );
    }
}

#[test]
fn a_client_without_another_secret_is_refused_and_rereads_the_file_at_a_call() {
    let mut harness = Harness::new(1);
    harness.shape.secret = OTHER;
    harness.secrets = Some(secrets(SECRET, None));
    harness.call(1, GETATTR);
    assert_eq!(harness.outcome(), Err(Status::Access));
    assert_eq!((harness.client.refusal(), harness.read_count), (Some(Refused::WrongSecret), 1));
    // Not at each call.
    harness.call(2, GETATTR);
    assert_eq!((harness.outcome(), harness.read_count), (Err(Status::Access), 1));
    harness.wait_ms(1_000);
    assert_eq!(harness.read_count, 1, "nor without one");
    harness.call(3, GETATTR);
    assert_eq!((harness.outcome(), harness.read_count), (Err(Status::Access), 2));
    assert_eq!(harness.hellos.len(), 1, "no connection is made for that");
    harness.wait_ms(1_000);
    harness.secrets = Some(secrets(OTHER, None));
    harness.call(4, GETATTR);
    assert_eq!(
        (harness.requests.len(), harness.read_count),
        (1, 3),
        "this call is the first to be served"
    );
    assert_eq!(harness.client.refusal(), None);
}

#[test]
fn a_refused_client_comes_back_under_a_new_uuid_and_reports_its_locks_as_lost() {
    let mut harness = Harness::new(1);
    open_file(&mut harness);
    let inode = file(&harness);
    let write = set(&harness, 1, Some(LockType::Write), (0, 10));
    lock(&mut harness, 2, write);
    harness.shape.secret = OTHER;
    harness.hang_up();
    pass(&mut harness);
    assert_eq!(harness.client.refusal(), Some(Refused::WrongSecret));
    assert_eq!(harness.client.take_reports(), [Report::LockLost { inode }]);
    let old = harness.uuids[0];
    harness.secrets = Some(secrets(OTHER, None));
    harness.shape.flags = welcome_flag::HANDLES_UNKNOWN;
    harness.call(3, GETATTR);
    pass(&mut harness);
    // Its file is reopened under the new uuid before other requests.
    let (hello, reopen) = (harness.last_hello.unwrap(), harness.take());
    assert_eq!((hello.0 == old, hello.1), (false, old), "the locks of the earlier uuid end");
    assert_eq!(reopen.head.op, Op::Reopen);
    harness.answer(&reopen, &[]);
    let getattr = harness.take();
    harness.answer(&getattr, &entry());
    assert!(harness.outcome().is_ok());
    assert_eq!(harness.client.open_count(), 1);
}

#[test]
fn an_unreadable_file_is_no_new_secret() {
    let mut harness = Harness::new(1);
    harness.shape.secret = OTHER;
    harness.call(1, GETATTR);
    assert_eq!((harness.outcome(), harness.read_count), (Err(Status::Access), 1));
    harness.wait_ms(1_000);
    // Other refusals are not about the secret.
    (harness.shape.secret, harness.shape.refuse) = (SECRET, Some(RefusalReason::NoSuchExport));
    harness.client.try_again();
    harness.call(2, GETATTR);
    assert_eq!(harness.client.refusal(), Some(Refused::NoSuchExport));
    harness.wait_ms(1_000);
    harness.call(3, GETATTR);
    assert_eq!(harness.read_count, 1);
}
