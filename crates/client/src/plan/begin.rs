//! The first request of every call: its op, its target, and the plan that gets its reply. A
//! switchboard; the rest is in the plan's file.

use super::{Close, Create, NewRequest, Open, Plan, Read, Resize, Sized, Target};
use crate::Call;
use crate::handles::Handles;
use alloc::vec::Vec;
use wire::{
    BULK_BYTES_MAX, Handle, InodeNo, LaneId, Op, OpenFor, SetTime, ShardId, Status, Timestamp,
    Wire, Writer, request_flag,
};

struct Encoder<'v> {
    handles: &'v mut Handles,
    body: &'v mut Vec<u8>,
    caches: bool,
}

/// Begins `call` of a client that caches, or not: encodes its first request to `body`.
pub(crate) fn begin(
    call: Call<'_>,
    handles: &mut Handles,
    (body, caches): (&mut Vec<u8>, bool),
) -> Result<NewRequest, Status> {
    let mut to = Encoder { handles, body, caches };
    match call {
        Call::Lookup(args) => Ok(to.entry(Op::Lookup, args.parent, &args)),
        Call::Resolve(args) => Ok(to.direct(Op::Lookup, args.parent, &args)),
        Call::Getattr(args) => Ok(to.getattr(args)),
        Call::Setattr(args) => {
            check_times(&args)?;
            Ok(to.entry(Op::Setattr, args.inode, &args))
        }
        // Nobody waits for the size.
        Call::SetattrBehind(args) => {
            check_times(&args)?;
            let request = to.direct(Op::Setattr, args.inode, &args);
            Ok(NewRequest { flags: request_flag::BEHIND, ..request })
        }
        Call::Resize(args) => to.resize(&args),
        Call::Create(args) => to.create(&args),
        Call::CreateBehind(args) => Ok(to.create_behind(&args)),
        Call::Tmpfile(args) => to.tmpfile(&args),
        Call::Mkdir(args) => Ok(to.entry(Op::Mkdir, args.parent, &args)),
        Call::Symlink(args) => Ok(to.entry(Op::Symlink, args.parent, &args)),
        Call::Mknod(args) => Ok(to.entry(Op::Mknod, args.parent, &args)),
        Call::Link(args) => Ok(to.entry(Op::Link, args.parent, &args)),
        Call::Unlink(args) => Ok(to.direct(Op::Unlink, args.parent, &args)),
        Call::UnlinkBehind(args) => {
            let request = to.direct(Op::Unlink, args.parent, &args);
            Ok(NewRequest { flags: request_flag::BEHIND, ..request })
        }
        Call::Rmdir(args) => Ok(to.direct(Op::Rmdir, args.parent, &args)),
        Call::Rename(args) => Ok(to.direct(Op::Rename, args.parent, &args)),
        Call::Readlink(args) => Ok(to.direct(Op::Readlink, args.inode, &args)),
        Call::Readdir(args) => Ok(to.direct(Op::Readdir, args.inode, &args)),
        Call::Find(args) => Ok(to.direct(Op::Find, args.inode, &args)),
        Call::Open(args) => to.open(&args),
        Call::Close(handle) => {
            let file = to.handles.close(handle).ok_or(Status::BadHandle)?;
            let (plan, args) = Close::begin(handle, file);
            args.encode(&[], &mut Writer::new(to.body));
            Ok(NewRequest::new(Plan::Close(plan), args.op(), args.target()))
        }
        Call::Access(args) => Ok(to.direct(Op::Access, args.inode, &args)),
        Call::Getxattr(args) => Ok(to.direct(Op::Getxattr, args.inode, &args)),
        Call::Setxattr(args) => Ok(to.direct(Op::Setxattr, args.inode, &args)),
        Call::Listxattr(args) => Ok(to.direct(Op::Listxattr, args.inode, &args)),
        Call::Removexattr(args) => Ok(to.direct(Op::Removexattr, args.inode, &args)),
        Call::Read(args) => {
            check_bulk(args.read_bytes)?;
            Ok(to.read(Op::Read, (args.inode, args.file_offset), &args))
        }
        Call::ReadPages(args) => {
            check_bulk(args.read_bytes)?;
            let request = to.read(Op::Read, (args.inode, args.file_offset), &args);
            Ok(NewRequest { flags: request_flag::LEASES, ..request })
        }
        Call::Write(write) => {
            check_bulk(write.bulk.map_or(0, |bulk| bulk.bulk_bytes))?;
            Ok(to.write(&write))
        }
        Call::WriteBack(write) => {
            check_bulk(write.bulk.map_or(0, |bulk| bulk.bulk_bytes))?;
            Ok(NewRequest { flags: request_flag::WRITE_BACK, ..to.write(&write) })
        }
        Call::ReadList(args) => Ok(to.read_list(&args)),
        Call::WriteList(write) => to.write_list(&write),
        Call::Allocate(args) => {
            Ok(to.contents(Op::Allocate, (args.inode, args.file_offset), &args))
        }
        Call::Seek(args) => Ok(to.contents(Op::Seek, (args.inode, args.file_offset), &args)),
        Call::Stats(lane) => Ok(NewRequest::new(Plan::Direct, Op::Stats, Target::Lane(lane))),
        Call::Counters(lane) => Ok(NewRequest::new(Plan::Direct, Op::Counters, Target::Lane(lane))),
        Call::Traces(lane) => Ok(NewRequest::new(Plan::Direct, Op::Traces, Target::Lane(lane))),
        // These are several requests; see `sync`.
        Call::Statfs
        | Call::ServerStatfs
        | Call::Sync(_)
        | Call::SyncAhead(_)
        | Call::SyncAll
        | Call::SyncShards
        | Call::Recall
        | Call::Goodbye => Err(Status::Invalid),
        // The keeper sends these; see `locks`.
        Call::SetLock(_) | Call::Flush { .. } => Err(Status::Invalid),
        Call::GetLock(args) => Ok(to.direct(Op::GetLock, args.inode, &args)),
        Call::SetExport(args) => {
            to.put(&args);
            let target = Target::Shard(ShardId::meta(0));
            Ok(NewRequest::new(Plan::Direct, Op::SetExport, target))
        }
        Call::Exports => Ok(NewRequest::new(Plan::Direct, Op::Exports, Target::Lane(LaneId(0)))),
        Call::Freeze(lane, args) => {
            to.put(&args);
            Ok(NewRequest::new(Plan::Direct, Op::Freeze, Target::Lane(lane)))
        }
        Call::Inspect(args) => {
            to.put(&args);
            Ok(NewRequest::new(Plan::Direct, Op::Inspect, Target::Lane(LaneId(0))))
        }
        Call::Ping(lane) => Ok(NewRequest::new(Plan::Direct, Op::Ping, Target::Lane(lane))),
    }
}

// A request that the server would answer with a protocol error is refused here: the connection
// would be closed, and the request sent again for ever.
const fn check_bulk(bulk_bytes: u32) -> Result<(), Status> {
    if bulk_bytes <= BULK_BYTES_MAX { Ok(()) } else { Err(Status::Invalid) }
}

fn check_times(args: &wire::Setattr<'_>) -> Result<(), Status> {
    check_time(args.atime)?;
    check_time(args.mtime)
}

const fn check_time(time: SetTime) -> Result<(), Status> {
    match time {
        SetTime::At(Timestamp { nanos: 1_000_000_000.., .. }) => Err(Status::Invalid),
        SetTime::At(_) | SetTime::Now | SetTime::Keep => Ok(()),
    }
}

impl Encoder<'_> {
    fn put<'m>(&mut self, message: &impl Wire<'m>) {
        message.encode(&mut Writer::new(self.body));
    }

    fn direct<'m>(&mut self, op: Op, inode: InodeNo, message: &impl Wire<'m>) -> NewRequest {
        self.put(message);
        NewRequest::new(Plan::Direct, op, Target::Inode(inode))
    }

    fn read<'m>(
        &mut self,
        op: Op,
        (inode, file_offset): (InodeNo, u64),
        message: &impl Wire<'m>,
    ) -> NewRequest {
        let plan = Plan::Read(Read::new(inode));
        NewRequest { plan, ..self.contents(op, (inode, file_offset), message) }
    }

    /// A request about a file's bytes from an offset on.
    fn contents<'m>(
        &mut self,
        op: Op,
        (inode, file_offset): (InodeNo, u64),
        message: &impl Wire<'m>,
    ) -> NewRequest {
        self.put(message);
        NewRequest::new(Plan::Direct, op, Target::Contents(inode, file_offset))
    }

    fn entry<'m>(&mut self, op: Op, inode: InodeNo, message: &impl Wire<'m>) -> NewRequest {
        self.put(message);
        NewRequest::new(Plan::Entry, op, Target::Inode(inode))
    }

    /// A file that this client lane writes has its size at the data shard: both requests are sent in parallel.
    /// Of a client that caches they follow each other: what is cached may show no size of before the grant.
    fn getattr(&mut self, args: wire::Getattr) -> NewRequest {
        if self.caches || !self.handles.is_written(args.inode) {
            return self.entry(Op::Getattr, args.inode, &args);
        }
        self.put(&args);
        let (plan, glimpse) = Sized::beside_getattr(args.inode);
        let request = NewRequest::new(Plan::Sized(plan), Op::Getattr, Target::Inode(args.inode));
        NewRequest { beside: Some(glimpse), ..request }
    }

    fn handle(&mut self, inode: InodeNo, open_for: OpenFor) -> Result<Handle, Status> {
        self.handles.begin(inode, open_for).ok_or(Status::TooManyFiles)
    }

    fn create(&mut self, args: &crate::Create<'_>) -> Result<NewRequest, Status> {
        let handle = match args.open {
            Some(open_for) => Some(self.handle(InodeNo(0), open_for)?),
            None => None,
        };
        self.put(&wire::Create {
            caller: args.caller,
            parent: args.parent,
            name: args.name,
            mode: args.mode,
            umask: args.umask,
            exclusive: args.exclusive,
            handle,
            behind: None,
        });
        let plan = Plan::Create(Create::new(handle));
        Ok(NewRequest::new(plan, Op::Create, Target::Inode(args.parent)))
    }

    fn create_behind(&mut self, args: &crate::MakeBehind<'_>) -> NewRequest {
        let crate::MakeBehind { caller, parent, name, mode, umask, handle, behind } = *args;
        let (exclusive, opened) = (true, Some(handle));
        let behind = Some(behind);
        self.put(&wire::Create {
            caller,
            parent,
            name,
            mode,
            umask,
            exclusive,
            handle: opened,
            behind,
        });
        let plan = Plan::Create(Create::behind(handle, args.behind.inode));
        let request = NewRequest::new(plan, Op::Create, Target::Inode(parent));
        NewRequest { flags: request_flag::BEHIND, ..request }
    }

    fn tmpfile(&mut self, args: &crate::Tmpfile<'_>) -> Result<NewRequest, Status> {
        let crate::Tmpfile { caller, parent, mode, umask, linkable, open_for } = *args;
        let handle = self.handle(InodeNo(0), open_for)?;
        self.put(&wire::Tmpfile { caller, parent, mode, umask, linkable, handle });
        let plan = Plan::Create(Create::nameless(handle));
        Ok(NewRequest::new(plan, Op::Tmpfile, Target::Inode(parent)))
    }

    fn open(&mut self, args: &crate::Open<'_>) -> Result<NewRequest, Status> {
        let handle = self.handle(args.inode, args.open_for)?;
        let ids = (args.caller.uid, args.caller.gid);
        self.handles.set_opened_by(handle.id, |by| by.ids = ids);
        self.put(&wire::Open { caller: args.caller, inode: args.inode, handle });
        let (plan, beside) = Open::begin(args.inode, handle, args.sizes);
        let request = NewRequest::new(Plan::Open(plan), Op::Open, Target::Inode(args.inode));
        let flags = if args.open_for.writes() { request_flag::BEHIND } else { 0 };
        Ok(NewRequest { beside, flags, ..request })
    }

    fn resize(&mut self, args: &crate::Resize<'_>) -> Result<NewRequest, Status> {
        if i64::try_from(args.size_bytes).is_err() {
            return Err(Status::TooLarge);
        }
        if args.open_for_write {
            let (plan, truncate) = Resize::of_open_file(args.inode, args.size_bytes);
            let plan = Plan::Resize(plan);
            let request = self.contents(Op::Truncate, (args.inode, 0), &truncate);
            return Ok(NewRequest { plan, ..request });
        }
        let handle = self.handle(args.inode, OpenFor::Write)?;
        self.put(&wire::Open { caller: args.caller, inode: args.inode, handle });
        let plan = Resize::with_open(args.inode, args.size_bytes, handle);
        Ok(NewRequest::new(Plan::Resize(plan), Op::Open, Target::Inode(args.inode)))
    }

    fn write(&mut self, write: &crate::Write) -> NewRequest {
        let crate::Write { inode, file_offset, append, clears, behind, .. } = *write;
        let first_byte = if append { 0 } else { file_offset };
        let message = wire::Write { inode, file_offset, append, clears };
        let request = self.contents(Op::Write, (inode, first_byte), &message);
        let flags = if behind { request_flag::BEHIND } else { 0 };
        NewRequest { bulk: write.bulk, sync: write.sync, flags, ..request }
    }

    fn read_list(&mut self, args: &crate::ReadList<'_>) -> NewRequest {
        let crate::ReadList { inode, pieces, accesses } = *args;
        let (first_byte, pieces) = (pieces.first_offset(), pieces.clone());
        let message = wire::ReadList { inode, pieces, accesses };
        self.read(Op::ReadList, (inode, first_byte), &message)
    }

    fn write_list(&mut self, write: &crate::WriteList<'_>) -> Result<NewRequest, Status> {
        let crate::WriteList { inode, pieces, bulk, sync, clears } = *write;
        if bulk.map_or(0, |bulk| bulk.bulk_bytes) != pieces.total_bytes() || pieces.overlap() {
            return Err(Status::Invalid);
        }
        let message = wire::WriteList { inode, pieces: pieces.clone(), clears };
        let request = self.contents(Op::WriteList, (inode, pieces.first_offset()), &message);
        Ok(NewRequest { bulk, sync, ..request })
    }
}
