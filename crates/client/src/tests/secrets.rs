//! The secret is changed: a client tries the earlier one of two and has its file read again before it stops, and
//! again when it is called after that.

use super::FILE;
use super::eviction::open_file;
use super::locks::{file, lock, set};
use super::replays::entry;
use super::rig::{Rig, SECRET, config};
use crate::{Call, Client, Config, Refused, Report};
use wire::{Getattr, LockType, Op, RefusalReason, Secret, Secrets, Status, welcome_flag};

const OTHER: [u8; 32] = [8; 32];
const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });

fn secrets(current: [u8; 32], earlier: Option<[u8; 32]>) -> Secrets {
    Secrets { current: Secret::new(current), earlier: earlier.map(Secret::new) }
}

/// Lets pauses pass.
fn pass(rig: &mut Rig) {
    for _ in 0..4 {
        rig.wait_ms(1_000);
    }
}

#[test]
fn the_earlier_of_two_is_tried_when_the_current_one_is_refused() {
    let mut rig = Rig::new(2);
    rig.client = Client::new(Config { secrets: secrets(OTHER, Some(SECRET)), ..config() });
    rig.call(1, GETATTR);
    pass(&mut rig);
    assert_eq!((rig.asked.len(), rig.wanted_count), (1, 0));
    assert_eq!(rig.client.refusal(), None);
    // The next connection begins with the one that was taken.
    let hello_count = rig.hellos.len();
    rig.hang_up();
    pass(&mut rig);
    assert_eq!(rig.hellos.len(), hello_count + 1);
}

#[test]
fn a_new_secret_in_the_file_is_taken_and_nothing_is_lost() {
    for refuses in [false, true] {
        let mut rig = Rig::new(2);
        open_file(&mut rig);
        // The refusal comes from the server, or from the client's own check of the server's proof.
        rig.secrets = Some(secrets(OTHER, None));
        if refuses {
            rig.shape.refuse = Some(RefusalReason::WrongSecret);
        } else {
            rig.shape.secret = OTHER;
        }
        rig.hang_up();
        rig.call(2, GETATTR);
        (rig.shape.refuse, rig.shape.secret) = (None, OTHER);
        pass(&mut rig);
        let asked = rig.take();
        assert!(rig.answers().is_empty(), "the call has waited");
        rig.answer(&asked, &entry());
        assert!(rig.outcome().is_ok());
        assert_eq!(rig.client.refusal(), None);
        assert_eq!(rig.client.open_count(), 1);
        assert_eq!(rig.client.take_reports(), []);
        assert_eq!(rig.wanted_count, 1);
        assert!(rig.uuids.iter().all(|uuid| *uuid == rig.uuids[0]), "it is the same client");
    }
}

#[test]
fn a_client_without_another_secret_is_refused_and_asks_again_when_it_is_called() {
    let mut rig = Rig::new(1);
    rig.shape.secret = OTHER;
    rig.secrets = Some(secrets(SECRET, None));
    rig.call(1, GETATTR);
    assert_eq!(rig.outcome(), Err(Status::Access));
    assert_eq!((rig.client.refusal(), rig.wanted_count), (Some(Refused::WrongSecret), 1));
    // Not for each call.
    rig.call(2, GETATTR);
    assert_eq!((rig.outcome(), rig.wanted_count), (Err(Status::Access), 1));
    rig.wait_ms(1_000);
    assert_eq!(rig.wanted_count, 1, "nor without one");
    rig.call(3, GETATTR);
    assert_eq!((rig.outcome(), rig.wanted_count), (Err(Status::Access), 2));
    assert_eq!(rig.hellos.len(), 1, "the server hears nothing of that");
    rig.wait_ms(1_000);
    rig.secrets = Some(secrets(OTHER, None));
    rig.call(4, GETATTR);
    assert_eq!((rig.asked.len(), rig.wanted_count), (1, 3), "this call is the first to be served");
    assert_eq!(rig.client.refusal(), None);
}

#[test]
fn a_refused_client_comes_back_under_a_new_uuid_and_reports_its_locks_as_lost() {
    let mut rig = Rig::new(1);
    open_file(&mut rig);
    let inode = file(&rig);
    let write = set(&rig, 1, Some(LockType::Write), (0, 10));
    lock(&mut rig, 2, write);
    rig.shape.secret = OTHER;
    rig.hang_up();
    pass(&mut rig);
    assert_eq!(rig.client.refusal(), Some(Refused::WrongSecret));
    assert_eq!(rig.client.take_reports(), [Report::LockLost { inode }]);
    let old = rig.uuids[0];
    rig.secrets = Some(secrets(OTHER, None));
    rig.shape.flags = welcome_flag::HANDLES_UNKNOWN;
    rig.call(3, GETATTR);
    pass(&mut rig);
    // Its file is reopened under the new uuid before other requests.
    let (hello, reopen) = (rig.last_hello.unwrap(), rig.take());
    assert_eq!((hello.0 == old, hello.1), (false, old), "the earlier one's locks end");
    assert_eq!(reopen.head.op, Op::Reopen);
    rig.answer(&reopen, &[]);
    let getattr = rig.take();
    rig.answer(&getattr, &entry());
    assert!(rig.outcome().is_ok());
    assert_eq!(rig.client.open_count(), 1);
}

#[test]
fn a_file_that_cannot_be_read_is_no_new_secret() {
    let mut rig = Rig::new(1);
    rig.shape.secret = OTHER;
    rig.call(1, GETATTR);
    assert_eq!((rig.outcome(), rig.wanted_count), (Err(Status::Access), 1));
    rig.wait_ms(1_000);
    // Other refusals are not about the secret.
    (rig.shape.secret, rig.shape.refuse) = (SECRET, Some(RefusalReason::NoSuchExport));
    rig.client.try_again();
    rig.call(2, GETATTR);
    assert_eq!(rig.client.refusal(), Some(Refused::NoSuchExport));
    rig.wait_ms(1_000);
    rig.call(3, GETATTR);
    assert_eq!(rig.wanted_count, 1);
}
