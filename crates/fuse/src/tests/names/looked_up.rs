//! Removals of names that are not known.

use super::super::harness::Harness;
use super::{ALL, BOTH, DIR, file, mount};
use wire::{Entry, InodeNo, LeaseKey, Name, Op, Status, Unlink, Wire as _};

/// A file was made whose name was recalled, and is removed now.
fn removed_unknown() -> (Harness, InodeNo) {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    let received = harness.take_create(inode);
    harness.grant_leases(&received, Ok(&super::created(inode)), (2, ALL));
    harness.recall(&received, 2, &[LeaseKey::Name(DIR, Name::new(b"a").unwrap())]);
    harness.all_notified();
    harness.unlink(b"a");
    (harness, inode)
}

#[test]
fn a_name_that_is_not_known_is_looked_up_before_it_is_removed() {
    let (mut harness, inode) = removed_unknown();
    let looks = harness.take();
    assert_eq!(looks.head.op, Op::Lookup);
    assert!(harness.replies.is_empty());
    harness.grant_leases(&looks, Ok(&Entry { attr: file(inode) }.to_bytes()), (105, BOTH));
    assert_eq!(harness.status(), Status::Ok, "at once, as it is known now");
    let removes = harness.take();
    assert!(Unlink::decode_all(&removes.body).unwrap().behind.is_some());
}

#[test]
fn a_name_that_cannot_be_looked_up_is_removed_by_the_server() {
    let (mut harness, _) = removed_unknown();
    let looks = harness.take();
    harness.fail(&looks, Status::Io);
    let removes = harness.take();
    assert_eq!(Unlink::decode_all(&removes.body).unwrap().behind, None);
    harness.fail(&removes, Status::NotFound);
    assert_eq!(harness.status(), Status::NotFound);
}
