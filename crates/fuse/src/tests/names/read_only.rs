//! A file that was made early while its export became read-only.

use super::*;

/// The next request at the server, and whether it is sent as one that is made behind.
fn take(harness: &mut Harness) -> (ReceivedRequest, Op, bool) {
    let received = harness.take();
    let (op, flags) = (received.head.op, received.head.flags);
    (received, op, flags & request_flag::BEHIND != 0)
}

#[test]
fn what_followed_a_create_is_sent_again_as_made_behind_when_the_export_is_read_only() {
    for written_before in [true, false] {
        let mut harness = mount();
        let inode = harness.creates_early(b"a");
        harness.write_at(inode, 0);
        assert_eq!(harness.reply().status, Status::Ok);
        harness.kernel_request(Opcode::Setattr, 8, inode, &setattr_args(NOW, 0, 0));
        assert_eq!(harness.reply().status, Status::Ok);
        let create = harness.take_create(inode);
        harness.grant_leases(&create, Ok(&created(inode)), (2, BOTH));
        let written = Written { file_offset: 0, written_bytes: 100 }.to_bytes();
        let (mut write, op, is_behind) = take(&mut harness);
        assert_eq!((op, is_behind), (Op::Write, false));
        if !written_before {
            harness.fail(&write, Status::ReadOnly);
            let (again, op, is_behind) = take(&mut harness);
            assert_eq!((op, is_behind), (Op::Write, true));
            assert!(wire::Write::decode_all(&again.body).unwrap().append);
            write = again;
        }
        harness.answer(&write, &written);
        let (mut set, op, is_behind) = take(&mut harness);
        assert_eq!((op, is_behind), (Op::Setattr, !written_before));
        if written_before {
            harness.fail(&set, Status::ReadOnly);
            let (again, op, is_behind) = take(&mut harness);
            assert_eq!((op, is_behind), (Op::Setattr, true));
            set = again;
        }
        harness.answer(&set, &Entry { attr: file(inode) }.to_bytes());
        assert!(harness.logged.is_empty(), "nothing is lost");
        assert!(harness.requests.is_empty());
    }
}

#[test]
fn what_is_refused_as_made_behind_is_lost() {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.write_at(inode, 0);
    assert_eq!(harness.reply().status, Status::Ok);
    let create = harness.take_create(inode);
    harness.grant_leases(&create, Ok(&created(inode)), (2, BOTH));
    for is_behind in [false, true] {
        let (write, _, was_behind) = take(&mut harness);
        assert_eq!(was_behind, is_behind);
        harness.fail(&write, Status::ReadOnly);
    }
    assert!(harness.requests.is_empty());
    assert_eq!(harness.logged.len(), 1);
}
