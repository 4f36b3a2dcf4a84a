//! What the calls that take several requests do.

use super::rig::Rig;
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Create, Open, Resize};
use alloc::vec::Vec;
use interface::{Event, LaneMessage, PeerEvent};
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

fn open(rig: &mut Rig, write: bool) -> HandleId {
    let open_for = if write { OpenFor::ReadWrite } else { OpenFor::Read };
    let open = Open { caller: CALLER, inode: FILE, open_for, sizes: false };
    rig.call(1, Call::Open(open));
    let asked = rig.take();
    rig.answer(&asked, &entry(attr_flag::SIZE_AT_DATA));
    let Ok(Answer::Opened { handle, .. }) = rig.outcome() else { panic!("not opened") };
    handle
}

#[test]
fn a_size_that_is_elsewhere_is_asked_for() {
    let mut rig = Rig::new(4);
    rig.call(1, Call::Getattr(Getattr { inode: FILE }));
    let asked = rig.take();
    rig.answer(&asked, &entry(attr_flag::SIZE_AT_DATA));
    assert!(rig.answers().is_empty());
    let glimpse = rig.take();
    assert_eq!(glimpse.head.op, Op::Glimpse);
    assert_eq!(glimpse.head.shard, rig.shape.map.data_shard(FILE, 0));
    let wanted = Glimpse { inode: FILE };
    assert_eq!(Glimpse::decode_all(&glimpse.body), Ok(wanted), "nobody waits to see a size");
    rig.answer(&glimpse, &glimpsed());
    let Ok(Answer::Entry(found)) = rig.outcome() else { panic!("no entry") };
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
    let mut rig = Rig::new(1);
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
        rig.call(1, Call::Create(create));
        let asked = rig.take();
        let sent = wire::Create::decode_all(&asked.body).unwrap();
        assert!(sent.handle.unwrap().open_for == OpenFor::ReadWrite && !sent.exclusive);
        assert_eq!(sent.handle.unwrap().id.0 >> 48, 3, "the handle names its client lane");
        let attr = attr(FILE, attr_flag::SIZE_AT_DATA);
        rig.answer(&asked, &Created { attr, made }.to_bytes());
        if !made {
            let glimpse = rig.take();
            assert_eq!(glimpse.head.op, Op::Glimpse, "an existing file has a size");
            rig.answer(&glimpse, &glimpsed());
        }
        let Ok(Answer::Created { made: answered, handle, .. }) = rig.outcome() else {
            panic!("not created")
        };
        assert_eq!((answered, handle), (made, sent.handle.map(|handle| handle.id)));
    }
}

#[test]
fn a_failed_open_leaves_no_handle() {
    let mut rig = Rig::new(1);
    let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::Read, sizes: false };
    rig.call(1, Call::Open(open));
    let asked = rig.take();
    rig.fail(&asked, Status::Access);
    assert_eq!(rig.outcome(), Err(Status::Access));
    assert_eq!(rig.client.open_count(), 0);
}

#[test]
fn more_open_files_than_there_may_be_are_refused_and_reported_once() {
    let mut rig = Rig::new(1);
    let handles: Vec<HandleId> = (0..100).map(|_| open(&mut rig, false)).collect();
    assert_eq!(rig.client.take_reports(), []);
    for _ in 0..3 {
        let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::Read, sizes: false };
        rig.call(1, Call::Open(open));
        assert_eq!(rig.outcome(), Err(Status::TooManyFiles));
        assert_eq!(Status::TooManyFiles.number(), 23, "ENFILE");
    }
    assert_eq!(rig.client.take_reports(), [crate::Report::TooManyFiles { count_max: 100 }]);
    rig.call(2, Call::Close(handles[0]));
    let close = rig.take();
    rig.answer(&close, &[]);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    open(&mut rig, false);
}

#[test]
fn a_close_is_one_exchange() {
    for write in [false, true] {
        let mut rig = Rig::new(1);
        let handle = open(&mut rig, write);
        rig.call(2, Call::Close(handle));
        let close = rig.take();
        let wanted = Close { inode: FILE, handle };
        assert_eq!(Close::decode_all(&close.body), Ok(wanted));
        rig.call(3, Call::Close(handle));
        assert_eq!(rig.outcome(), Err(Status::BadHandle), "it is being closed");
        rig.answer(&close, &[]);
        assert_eq!(rig.outcome(), Ok(Answer::Done));
        assert_eq!((rig.client.open_count(), rig.client.busy_count()), (0, 0));
    }
}

#[test]
fn a_sisters_handle_is_closed_by_the_sister() {
    let mut rig = Rig::new(1);
    let foreign = HandleId((9 << 48) | 1);
    rig.call(1, Call::Close(foreign));
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    assert_eq!(rig.mails, [(LaneId(9), LaneMessage::Release { handle: foreign })]);
    assert!(rig.asked.is_empty());
    let handle = open(&mut rig, false);
    rig.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: LaneMessage::Release { handle },
    }));
    let close = rig.take();
    assert_eq!(close.head.op, Op::Close);
    rig.answer(&close, &[]);
    assert!(rig.answers().is_empty(), "nobody asked");
    assert_eq!(rig.client.open_count(), 0);
}

#[test]
fn resizing_a_closed_file_opens_and_closes_it() {
    let mut rig = Rig::new(1);
    rig.call(1, resize(false));
    let asked = rig.take();
    let sent = wire::Open::decode_all(&asked.body).unwrap();
    assert_eq!(sent.handle.open_for, OpenFor::Write);
    rig.answer(&asked, &entry(attr_flag::SIZE_AT_DATA));
    let truncate = rig.take();
    let wanted = Truncate { inode: FILE, size_bytes: 99 };
    assert_eq!(Truncate::decode_all(&truncate.body), Ok(wanted));
    rig.answer(&truncate, &[]);
    let close = rig.take();
    let wanted = Close { inode: FILE, handle: sent.handle.id };
    assert_eq!(Close::decode_all(&close.body), Ok(wanted));
    rig.answer(&close, &[]);
    let getattr = rig.take();
    assert_eq!(getattr.head.op, Op::Getattr);
    rig.answer(&getattr, &entry(0));
    assert_eq!(rig.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
    assert_eq!(rig.client.open_count(), 0);
}

#[test]
fn a_resize_that_fails_closes_what_it_opened() {
    let mut rig = Rig::new(1);
    rig.call(1, resize(false));
    let asked = rig.take();
    rig.answer(&asked, &entry(attr_flag::SIZE_AT_DATA));
    let truncate = rig.take();
    rig.fail(&truncate, Status::NoSpace);
    let close = rig.take();
    assert_eq!(close.head.op, Op::Close);
    rig.answer(&close, &[]);
    assert_eq!(rig.outcome(), Err(Status::NoSpace));
    assert_eq!(rig.client.open_count(), 0);
}

#[test]
fn resizing_an_open_file_goes_to_its_bytes() {
    let mut rig = Rig::new(1);
    rig.call(1, resize(true));
    let truncate = rig.take();
    assert_eq!(truncate.head.op, Op::Truncate);
    rig.answer(&truncate, &[]);
    let getattr = rig.take();
    rig.answer(&getattr, &entry(attr_flag::SIZE_AT_DATA));
    let glimpse = rig.take();
    rig.answer(&glimpse, &glimpsed());
    assert!(matches!(rig.outcome(), Ok(Answer::Entry(found)) if found.size_bytes == 4711));
}

#[test]
fn byte_strings_come_as_spans() {
    let mut rig = Rig::new(1);
    rig.call(1, Call::Readlink(wire::Readlink { inode: FILE }));
    let asked = rig.take();
    rig.answer(&asked, &Target { target: Bytes(b"../there") }.to_bytes());
    assert_eq!(rig.answers()[0].bytes, b"../there");
    let ask = Getxattr { caller: CALLER, inode: FILE, name: Bytes(b"user.a") };
    rig.call(2, Call::Getxattr(ask));
    let asked = rig.take();
    rig.answer(&asked, &Value { value: Bytes(b"") }.to_bytes());
    assert_eq!(rig.answers()[0].bytes, b"");
}

#[test]
fn groups_are_asked_for_by_the_face() {
    let mut rig = Rig::new(1);
    rig.call(1, Call::Access(wire::Access { caller: CALLER, inode: FILE, mask: 4 }));
    let asked = rig.take();
    rig.fail(&asked, Status::NeedGroups);
    assert_eq!(rig.outcome(), Err(Status::NeedGroups));
}

#[test]
fn a_request_too_long_for_a_frame_is_refused_here() {
    let mut rig = Rig::new(1);
    let ids = alloc::vec![0; 4 * (Groups::COUNT_MAX + 20_000)];
    let caller = wire::Caller { groups: Groups::Known(&ids), ..CALLER };
    let open = Open { caller, inode: FILE, open_for: OpenFor::Read, sizes: false };
    rig.call(1, Call::Open(open));
    assert_eq!(rig.outcome(), Err(Status::Overflow));
    assert_eq!((rig.client.open_count(), rig.client.busy_count()), (0, 0));
}

#[test]
fn too_many_calls_are_refused() {
    let mut rig = Rig::new(1);
    for id in 0..100 {
        rig.call(id, Call::Ping(LaneId(0)));
    }
    assert!(rig.answers().is_empty());
    rig.call(100, Call::Ping(LaneId(0)));
    assert_eq!(rig.outcome(), Err(Status::Again));
}

#[test]
fn closes_that_nobody_waits_for_refuse_no_call() {
    let mut rig = Rig::new(1);
    let handles: alloc::vec::Vec<_> = (0..100).map(|_| open(&mut rig, false)).collect();
    for handle in handles {
        rig.client.close_unasked(handle);
    }
    assert_eq!(rig.client.busy_count(), 100, "as many as there may be calls");
    rig.call(1, Call::Ping(LaneId(0)));
    assert!(rig.answers().is_empty(), "it is under way, not refused");
}

#[test]
fn what_the_server_would_take_for_a_protocol_error_does_not_leave() {
    let mut rig = Rig::new(1);
    let read_bytes = wire::BULK_BYTES_MAX + 1;
    rig.call(1, Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes, accesses: true }));
    assert_eq!(rig.outcome(), Err(Status::Invalid));
    let bulk = Some(super::rig::bulk(1, read_bytes));
    let write = crate::Write {
        inode: FILE,
        file_offset: 0,
        append: false,
        bulk,
        sync: false,
        takes: wire::ClearPrivileges::Nothing,
    };
    rig.call(2, Call::Write(write));
    assert_eq!(rig.outcome(), Err(Status::Invalid));
    let setattr = wire::Setattr {
        caller: CALLER,
        inode: FILE,
        mode: None,
        uid: None,
        gid: None,
        atime: wire::SetTime::Keep,
        mtime: wire::SetTime::At(Timestamp { secs: 0, nanos: 1_000_000_000 }),
        revoke: wire::ClearPrivileges::Nothing,
    };
    rig.call(3, Call::Setattr(setattr));
    assert_eq!(rig.outcome(), Err(Status::Invalid));
    assert!(rig.asked.is_empty());
}
