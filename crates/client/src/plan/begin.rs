//! The first request of every call: which op, where to, which plan waits for its reply. A
//! switchboard; what follows is in the file of the plan.

use super::{Close, Create, Open, Plan, Resize, Statfs};
use crate::Call;
use crate::handles::Handles;
use alloc::vec::Vec;
use interface::Bulk;
use wire::{
    BULK_BYTES_MAX, Handle, InodeNo, LaneId, Op, OpenFor, SetTime, ShardId, Status, Timestamp,
    Wire, Writer,
};

/// What decides where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Inode(InodeNo),
    /// The metadata shard of an inode, whatever the op's route says.
    MetaShard(InodeNo),
    /// The data shard of a file.
    DataShard(InodeNo),
    Shard(ShardId),
    Lane(LaneId),
}

/// A call's first request; its body was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) plan: Plan,
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) bulk: Option<Bulk>,
    /// Answer when it is durable.
    pub(crate) sync: bool,
}

struct Beginning<'v> {
    handles: &'v mut Handles,
    body: &'v mut Vec<u8>,
}

/// Begins `call`: writes the body of its first request to `body`.
pub(crate) fn begin(
    call: Call<'_>,
    handles: &mut Handles,
    body: &mut Vec<u8>,
) -> Result<Begun, Status> {
    let mut to = Beginning { handles, body };
    match call {
        Call::Lookup(ask) => Ok(to.entry(Op::Lookup, ask.parent, &ask)),
        Call::Getattr(ask) => Ok(to.entry(Op::Getattr, ask.inode, &ask)),
        Call::Setattr(ask) => {
            check_time(ask.atime)?;
            check_time(ask.mtime)?;
            Ok(to.entry(Op::Setattr, ask.inode, &ask))
        }
        Call::Resize(ask) => to.resize(&ask),
        Call::Create(ask) => to.create(&ask),
        Call::Tmpfile(ask) => to.tmpfile(&ask),
        Call::Mkdir(ask) => Ok(to.entry(Op::Mkdir, ask.parent, &ask)),
        Call::Symlink(ask) => Ok(to.entry(Op::Symlink, ask.parent, &ask)),
        Call::Mknod(ask) => Ok(to.entry(Op::Mknod, ask.parent, &ask)),
        Call::Link(ask) => Ok(to.entry(Op::Link, ask.parent, &ask)),
        Call::Unlink(ask) => Ok(to.direct(Op::Unlink, ask.parent, &ask)),
        Call::Rmdir(ask) => Ok(to.direct(Op::Rmdir, ask.parent, &ask)),
        Call::Rename(ask) => Ok(to.direct(Op::Rename, ask.parent, &ask)),
        Call::Readlink(ask) => Ok(to.direct(Op::Readlink, ask.inode, &ask)),
        Call::Readdir(ask) => Ok(to.direct(Op::Readdir, ask.inode, &ask)),
        Call::Find(ask) => Ok(to.direct(Op::Find, ask.inode, &ask)),
        Call::Open(ask) => to.open(&ask),
        Call::Close(handle) => {
            let file = to.handles.close(handle).ok_or(Status::BadHandle)?;
            let (plan, ask) = Close::begin(handle, file);
            ask.encode(&[], &mut Writer::new(to.body));
            Ok(Begun::new(Plan::Close(plan), ask.op(), Target::Inode(ask.inode())))
        }
        Call::Access(ask) => Ok(to.direct(Op::Access, ask.inode, &ask)),
        Call::Getxattr(ask) => Ok(to.direct(Op::Getxattr, ask.inode, &ask)),
        Call::Setxattr(ask) => Ok(to.direct(Op::Setxattr, ask.inode, &ask)),
        Call::Listxattr(ask) => Ok(to.direct(Op::Listxattr, ask.inode, &ask)),
        Call::Removexattr(ask) => Ok(to.direct(Op::Removexattr, ask.inode, &ask)),
        Call::Statfs => {
            let (plan, ask) = Statfs::begin();
            to.put(&ask);
            Ok(Begun::new(Plan::Statfs(plan), Op::Statfs, Target::Inode(ask.inode)))
        }
        Call::Read(ask) => {
            check_bulk(ask.read_bytes)?;
            Ok(to.direct(Op::Read, ask.inode, &ask))
        }
        Call::Write(write) => {
            check_bulk(write.bulk.map_or(0, |bulk| bulk.bulk_bytes))?;
            Ok(to.write(&write))
        }
        Call::ReadList(ask) => Ok(to.read_list(&ask)),
        Call::WriteList(write) => to.write_list(&write),
        Call::Allocate(ask) => Ok(to.direct(Op::Allocate, ask.inode, &ask)),
        Call::Seek(ask) => Ok(to.direct(Op::Seek, ask.inode, &ask)),
        Call::Stats(lane) => Ok(Begun::new(Plan::Direct, Op::Stats, Target::Lane(lane))),
        // These are several requests; see `sync`.
        Call::Sync(_) | Call::SyncAll | Call::SyncShards | Call::Goodbye => Err(Status::Invalid),
        // Its keeper's; see `locks`.
        Call::SetLock(_) | Call::Flush { .. } => Err(Status::Invalid),
        Call::GetLock(ask) => Ok(to.direct(Op::GetLock, ask.inode, &ask)),
        Call::SetExport(ask) => {
            to.put(&ask);
            let target = Target::Shard(ShardId::meta(0));
            Ok(Begun::new(Plan::Direct, Op::SetExport, target))
        }
        Call::Exports => Ok(Begun::new(Plan::Direct, Op::Exports, Target::Lane(LaneId(0)))),
        Call::Freeze(lane, ask) => {
            to.put(&ask);
            Ok(Begun::new(Plan::Direct, Op::Freeze, Target::Lane(lane)))
        }
        Call::Inspect(ask) => {
            to.put(&ask);
            Ok(Begun::new(Plan::Direct, Op::Inspect, Target::Lane(LaneId(0))))
        }
        Call::Ping(lane) => Ok(Begun::new(Plan::Direct, Op::Ping, Target::Lane(lane))),
    }
}

/// What a server would take for a protocol error must not leave: the connection would be
/// closed, and the request sent again for ever.
const fn check_bulk(bulk_bytes: u32) -> Result<(), Status> {
    if bulk_bytes <= BULK_BYTES_MAX { Ok(()) } else { Err(Status::Invalid) }
}

const fn check_time(time: SetTime) -> Result<(), Status> {
    match time {
        SetTime::At(Timestamp { nanos: 1_000_000_000.., .. }) => Err(Status::Invalid),
        SetTime::At(_) | SetTime::Now | SetTime::Keep => Ok(()),
    }
}

impl Begun {
    const fn new(plan: Plan, op: Op, target: Target) -> Self {
        Self { plan, op, target, bulk: None, sync: false }
    }
}

impl Beginning<'_> {
    fn put<'m>(&mut self, message: &impl Wire<'m>) {
        message.encode(&mut Writer::new(self.body));
    }

    fn direct<'m>(&mut self, op: Op, inode: InodeNo, message: &impl Wire<'m>) -> Begun {
        self.put(message);
        Begun::new(Plan::Direct, op, Target::Inode(inode))
    }

    fn entry<'m>(&mut self, op: Op, inode: InodeNo, message: &impl Wire<'m>) -> Begun {
        self.put(message);
        Begun::new(Plan::Entry, op, Target::Inode(inode))
    }

    fn handle(&mut self, inode: InodeNo, open_for: OpenFor) -> Result<Handle, Status> {
        self.handles.begin(inode, open_for).ok_or(Status::TooManyFiles)
    }

    fn create(&mut self, ask: &crate::Create<'_>) -> Result<Begun, Status> {
        let handle = match ask.open {
            Some(open_for) => Some(self.handle(InodeNo(0), open_for)?),
            None => None,
        };
        self.put(&wire::Create {
            caller: ask.caller,
            parent: ask.parent,
            name: ask.name,
            mode: ask.mode,
            umask: ask.umask,
            exclusive: ask.exclusive,
            handle,
        });
        let plan = Plan::Create(Create::new(handle));
        Ok(Begun::new(plan, Op::Create, Target::Inode(ask.parent)))
    }

    fn tmpfile(&mut self, ask: &crate::Tmpfile<'_>) -> Result<Begun, Status> {
        let crate::Tmpfile { caller, parent, mode, umask, linkable, open_for } = *ask;
        let handle = self.handle(InodeNo(0), open_for)?;
        self.put(&wire::Tmpfile { caller, parent, mode, umask, linkable, handle });
        let plan = Plan::Create(Create::nameless(handle));
        Ok(Begun::new(plan, Op::Tmpfile, Target::Inode(parent)))
    }

    fn open(&mut self, ask: &crate::Open<'_>) -> Result<Begun, Status> {
        let handle = self.handle(ask.inode, ask.open_for)?;
        self.put(&wire::Open { caller: ask.caller, inode: ask.inode, handle });
        let plan = Plan::Open(Open::new(handle, ask.sizes));
        Ok(Begun::new(plan, Op::Open, Target::Inode(ask.inode)))
    }

    fn resize(&mut self, ask: &crate::Resize<'_>) -> Result<Begun, Status> {
        if i64::try_from(ask.size_bytes).is_err() {
            return Err(Status::TooLarge);
        }
        let target = Target::Inode(ask.inode);
        if ask.open_for_write {
            let (plan, truncate) = Resize::of_open_file(ask.inode, ask.size_bytes);
            self.put(&truncate);
            return Ok(Begun::new(Plan::Resize(plan), Op::Truncate, target));
        }
        let handle = self.handle(ask.inode, OpenFor::Write)?;
        self.put(&wire::Open { caller: ask.caller, inode: ask.inode, handle });
        let plan = Resize::with_open(ask.inode, ask.size_bytes, handle);
        Ok(Begun::new(Plan::Resize(plan), Op::Open, target))
    }

    fn write(&mut self, write: &crate::Write) -> Begun {
        self.put(&wire::Write {
            inode: write.inode,
            file_offset: write.file_offset,
            append: write.append,
            clears: write.clears,
        });
        let begun = Begun::new(Plan::Direct, Op::Write, Target::Inode(write.inode));
        Begun { bulk: write.bulk, sync: write.sync, ..begun }
    }

    fn read_list(&mut self, ask: &crate::ReadList<'_>) -> Begun {
        let crate::ReadList { inode, pieces, accesses } = *ask;
        let pieces = pieces.clone();
        self.direct(Op::ReadList, inode, &wire::ReadList { inode, pieces, accesses })
    }

    fn write_list(&mut self, write: &crate::WriteList<'_>) -> Result<Begun, Status> {
        let crate::WriteList { inode, pieces, bulk, sync, clears } = *write;
        if bulk.map_or(0, |bulk| bulk.bulk_bytes) != pieces.total_bytes() || pieces.overlap() {
            return Err(Status::Invalid);
        }
        self.put(&wire::WriteList { inode, pieces: pieces.clone(), clears });
        let begun = Begun::new(Plan::Direct, Op::WriteList, Target::Inode(inode));
        Ok(Begun { bulk, sync, ..begun })
    }
}
