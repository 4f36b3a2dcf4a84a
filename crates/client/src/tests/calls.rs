//! Calls of several requests.

use super::harness::Harness;
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Create, Open, Resize};
use alloc::vec::Vec;
use interface::{Event, MountMessage, PeerEvent};
use wire::{
    Bytes, Close, Contents, Created, Entry, Getattr, Getxattr, Glimpse, Glimpsed, Groups, HandleId,
    LaneId, Name, Op, OpenFor, Status, Target, Timestamp, Truncate, Value, Wire, attr_flag,
};

const CONTENTS: Contents = Contents {
    size_bytes: 4711,
    allocated_bytes: 8192,
    write_time: Some(Timestamp { secs: 200, nanos: 5 }),
};

fn entry(flags: u32) -> Vec<u8> {
    Entry { attr: attr(FILE, flags) }.to_bytes()
}

fn glimpsed() -> Vec<u8> {
    Glimpsed { contents: CONTENTS }.to_bytes()
}

fn resize(open_for_write: bool) -> Call<'static> {
    Call::Resize(Resize { caller: CALLER, inode: FILE, size_bytes: 99, open_for_write })
}

fn open(harness: &mut Harness, write: bool) -> HandleId {
    let open_for = if write { OpenFor::ReadWrite } else { OpenFor::Read };
    let open = Open { caller: CALLER, inode: FILE, open_for, sizes: false };
    harness.call(1, Call::Open(open));
    let request = harness.take();
    harness.answer(&request, &entry(attr_flag::SIZE_AT_DATA));
    let Ok(Answer::Opened { handle, .. }) = harness.outcome() else { panic!("not opened") };
    handle
}

#[test]
fn a_size_at_the_data_shard_is_fetched() {
    let mut harness = Harness::new(4);
    harness.call(1, Call::Getattr(Getattr { inode: FILE }));
    let request = harness.take();
    harness.answer(&request, &entry(attr_flag::SIZE_AT_DATA));
    assert!(harness.answers().is_empty());
    let glimpse = harness.take();
    assert_eq!(glimpse.head.op, Op::Glimpse);
    assert_eq!(glimpse.head.shard, harness.shape.map.data_shard(FILE, 0));
    let wanted = Glimpse { inode: FILE };
    assert_eq!(Glimpse::decode_all(&glimpse.body), Ok(wanted), "a glimpse changes no size");
    harness.answer(&glimpse, &glimpsed());
    let Ok(Answer::Entry(found)) = harness.outcome() else { panic!("no entry") };
    assert_eq!((found.size_bytes, found.allocated_bytes), (4711, 8192));
    assert_eq!(Some(found.mtime), CONTENTS.write_time);
}

#[test]
fn times_set_after_the_last_write_win() {
    let mut inode = attr(FILE, attr_flag::SIZE_AT_DATA);
    inode.mtime = Timestamp { secs: 50, nanos: 0 };
    inode.mtime_set = Timestamp { secs: 300, nanos: 0 };
    inode.ctime = Timestamp { secs: 300, nanos: 0 };
    let found = inode.with_contents(CONTENTS);
    assert_eq!((found.mtime.secs, found.ctime.secs, found.size_bytes), (50, 300, 4711));
    inode.mtime_set = Timestamp { secs: 200, nanos: 4 };
    inode.ctime = Timestamp { secs: 100, nanos: 0 };
    let found = inode.with_contents(CONTENTS);
    assert_eq!((found.mtime, found.ctime), (CONTENTS.write_time.unwrap(), found.mtime));
    let found = inode.with_contents(Contents { write_time: None, ..CONTENTS });
    assert_eq!(found.mtime.secs, 50, "never written");
}

#[test]
fn making_a_file_is_one_exchange() {
    let mut harness = Harness::new(1);
    let create = Create {
        caller: CALLER,
        parent: FILE,
        name: Name::new(b"new").unwrap(),
        mode: 0o600,
        umask: 0o22,
        exclusive: false,
        open: Some(OpenFor::ReadWrite),
    };
    for made in [true, false] {
        harness.call(1, Call::Create(create));
        let request = harness.take();
        let sent = wire::Create::decode_all(&request.body).unwrap();
        assert!(sent.handle.unwrap().open_for == OpenFor::ReadWrite && !sent.exclusive);
        assert_eq!(sent.handle.unwrap().id.0 >> 48, 3, "the handle names its client lane");
        let attr = attr(FILE, attr_flag::SIZE_AT_DATA);
        harness.answer(&request, &Created { attr, made }.to_bytes());
        if !made {
            let glimpse = harness.take();
            assert_eq!(glimpse.head.op, Op::Glimpse, "an existing file has a size");
            harness.answer(&glimpse, &glimpsed());
        }
        let Ok(Answer::Created { made: answered, handle, .. }) = harness.outcome() else {
            panic!("not created")
        };
        assert_eq!((answered, handle), (made, sent.handle.map(|handle| handle.id)));
    }
}

#[test]
fn a_failed_open_leaves_no_handle() {
    let mut harness = Harness::new(1);
    let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::Read, sizes: false };
    harness.call(1, Call::Open(open));
    let request = harness.take();
    harness.fail(&request, Status::Access);
    assert_eq!(harness.outcome(), Err(Status::Access));
    assert_eq!(harness.client.open_count(), 0);
}

#[test]
fn opens_beyond_the_limit_are_refused_and_reported_once() {
    let mut harness = Harness::new(1);
    let handles: Vec<HandleId> = (0..100).map(|_| open(&mut harness, false)).collect();
    assert_eq!(harness.client.take_reports(), []);
    for _ in 0..3 {
        let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::Read, sizes: false };
        harness.call(1, Call::Open(open));
        assert_eq!(harness.outcome(), Err(Status::TooManyFiles));
        assert_eq!(Status::TooManyFiles.number(), 23, "ENFILE");
    }
    assert_eq!(harness.client.take_reports(), [crate::Report::TooManyFiles { count_max: 100 }]);
    harness.call(2, Call::Close(handles[0]));
    let close = harness.take();
    harness.answer(&close, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    open(&mut harness, false);
}

#[test]
fn a_close_is_one_exchange() {
    for write in [false, true] {
        let mut harness = Harness::new(1);
        let handle = open(&mut harness, write);
        harness.call(2, Call::Close(handle));
        let close = harness.take();
        let wanted = Close { inode: FILE, handle };
        assert_eq!(Close::decode_all(&close.body), Ok(wanted));
        harness.call(3, Call::Close(handle));
        assert_eq!(harness.outcome(), Err(Status::BadHandle), "it is being closed");
        harness.answer(&close, &[]);
        assert_eq!(harness.outcome(), Ok(Answer::Done));
        assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
    }
}

#[test]
fn a_peer_lanes_handle_is_closed_by_the_peer_lane() {
    let mut harness = Harness::new(1);
    let foreign = HandleId((9 << 48) | 1);
    harness.call(1, Call::Close(foreign));
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    assert_eq!(harness.peer_messages, [(LaneId(9), MountMessage::Release { handle: foreign })]);
    assert!(harness.requests.is_empty());
    let handle = open(&mut harness, false);
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: MountMessage::Release { handle },
    }));
    let close = harness.take();
    assert_eq!(close.head.op, Op::Close);
    harness.answer(&close, &[]);
    assert!(harness.answers().is_empty(), "the close has no caller");
    assert_eq!(harness.client.open_count(), 0);
}

#[test]
fn resizing_a_closed_file_opens_and_closes_it() {
    let mut harness = Harness::new(1);
    harness.call(1, resize(false));
    let request = harness.take();
    let sent = wire::Open::decode_all(&request.body).unwrap();
    assert_eq!(sent.handle.open_for, OpenFor::Write);
    harness.answer(&request, &entry(attr_flag::SIZE_AT_DATA));
    let truncate = harness.take();
    let wanted = Truncate { inode: FILE, size_bytes: 99 };
    assert_eq!(Truncate::decode_all(&truncate.body), Ok(wanted));
    harness.answer(&truncate, &[]);
    let (close, getattr, glimpse) = (harness.take(), harness.take(), harness.take());
    let wanted = Close { inode: FILE, handle: sent.handle.id };
    assert_eq!(Close::decode_all(&close.body), Ok(wanted));
    assert_eq!((getattr.head.op, glimpse.head.op), (Op::Getattr, Op::Glimpse));
    harness.answer(&getattr, &entry(0));
    harness.answer(&glimpse, &glimpsed());
    assert!(harness.answers().is_empty(), "the file is not closed yet");
    harness.answer(&close, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(FILE, 0))), "its size is settled");
    assert_eq!(harness.client.open_count(), 0);
}

#[test]
fn a_resize_that_fails_closes_what_it_opened() {
    let mut harness = Harness::new(1);
    harness.call(1, resize(false));
    let request = harness.take();
    harness.answer(&request, &entry(attr_flag::SIZE_AT_DATA));
    let truncate = harness.take();
    harness.fail(&truncate, Status::NoSpace);
    let close = harness.take();
    assert_eq!(close.head.op, Op::Close);
    harness.answer(&close, &[]);
    assert_eq!(harness.outcome(), Err(Status::NoSpace));
    assert_eq!(harness.client.open_count(), 0);
}

#[test]
fn resizing_an_open_file_goes_to_its_bytes() {
    let mut harness = Harness::new(1);
    harness.call(1, resize(true));
    let truncate = harness.take();
    assert_eq!(truncate.head.op, Op::Truncate);
    harness.answer(&truncate, &[]);
    let getattr = harness.take();
    harness.answer(&getattr, &entry(attr_flag::SIZE_AT_DATA));
    let glimpse = harness.take();
    harness.answer(&glimpse, &glimpsed());
    assert!(matches!(harness.outcome(), Ok(Answer::Entry(found)) if found.size_bytes == 4711));
}

#[test]
fn byte_strings_come_as_spans() {
    let mut harness = Harness::new(1);
    harness.call(1, Call::Readlink(wire::Readlink { inode: FILE }));
    let request = harness.take();
    harness.answer(&request, &Target { target: Bytes(b"../there") }.to_bytes());
    assert_eq!(harness.answers()[0].bytes, b"../there");
    let args = Getxattr { caller: CALLER, inode: FILE, name: Bytes(b"user.a") };
    harness.call(2, Call::Getxattr(args));
    let request = harness.take();
    harness.answer(&request, &Value { value: Bytes(b"") }.to_bytes());
    assert_eq!(harness.answers()[0].bytes, b"");
}

#[test]
fn the_frontend_decides_whether_groups_are_sent() {
    let mut harness = Harness::new(1);
    harness.call(1, Call::Access(wire::Access { caller: CALLER, inode: FILE, mask: 4 }));
    let request = harness.take();
    harness.fail(&request, Status::NeedGroups);
    assert_eq!(harness.outcome(), Err(Status::NeedGroups));
}

#[test]
fn a_request_too_long_for_a_frame_is_refused_by_the_client() {
    let mut harness = Harness::new(1);
    let ids = alloc::vec![0; 4 * (Groups::COUNT_MAX + 30_000)];
    let caller = wire::Caller { groups: Groups::Known(&ids), ..CALLER };
    let open = Open { caller, inode: FILE, open_for: OpenFor::Read, sizes: false };
    harness.call(1, Call::Open(open));
    assert_eq!(harness.outcome(), Err(Status::Overflow));
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

#[test]
fn too_many_calls_are_refused() {
    let mut harness = Harness::new(1);
    for id in 0..100 {
        harness.call(id, Call::Ping(LaneId(0)));
    }
    assert!(harness.answers().is_empty());
    harness.call(100, Call::Ping(LaneId(0)));
    assert_eq!(harness.outcome(), Err(Status::Again));
}

#[test]
fn closes_without_a_caller_do_not_count_as_calls() {
    let mut harness = Harness::new(1);
    let handles: alloc::vec::Vec<_> = (0..100).map(|_| open(&mut harness, false)).collect();
    for handle in handles {
        harness.client.close_without_caller(handle);
    }
    assert_eq!(harness.client.busy_count(), 100, "as many as there may be calls");
    harness.call(1, Call::Ping(LaneId(0)));
    assert!(harness.answers().is_empty(), "it is under way, not refused");
}

#[test]
fn requests_that_would_be_protocol_errors_are_not_sent() {
    let mut harness = Harness::new(1);
    let read_bytes = wire::BULK_BYTES_MAX + 1;
    harness.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes, accesses: true }),
    );
    assert_eq!(harness.outcome(), Err(Status::Invalid));
    let bulk = Some(super::harness::bulk(1, read_bytes));
    let write = crate::Write {
        inode: FILE,
        file_offset: 0,
        append: false,
        bulk,
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
        behind: false,
    };
    harness.call(2, Call::Write(write));
    assert_eq!(harness.outcome(), Err(Status::Invalid));
    let setattr = wire::Setattr {
        caller: CALLER,
        inode: FILE,
        mode: None,
        uid: None,
        gid: None,
        atime: wire::SetTime::Keep,
        mtime: wire::SetTime::At(Timestamp { secs: 0, nanos: 1_000_000_000 }),
        clears: wire::ClearPrivileges::Nothing,
    };
    harness.call(3, Call::Setattr(setattr));
    assert_eq!(harness.outcome(), Err(Status::Invalid));
    assert!(harness.requests.is_empty());
}
