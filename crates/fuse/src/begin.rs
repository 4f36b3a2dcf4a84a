//! From the kernel's request to a call: one function per op code, and the switchboard. It changes
//! nothing; what comes of the call is in `finish`.

use crate::abi::{
    LK_FLOCK, OPEN_KILL_SET_ID, Opcode, TRANSFER_BYTES_MAX, WRITE_CACHE, WRITE_KILL_SET_ID,
    lock_type, open_flag, setattr_flag,
};
use crate::args::{Args, Header};
use crate::handle::FileHandle;
use crate::listing::{END_POSITION, cookie_before};
use crate::node::Node;
use crate::pending::Then;
use client::{Call, Create, Open, Resize, SetLock, Sync, Tmpfile, Write};
use interface::Bulk;
use wire::{
    ByteRange, Bytes, Caller, ClearPrivileges, FileKind, Groups, HandleId, InodeNo, LockKind,
    LockType, OpenFor, RenameHow, SetTime, Status, Timestamp,
};

const MODE_BITS: u32 = 0o7777;
const ACCESS_BITS: u32 = 7;
const LISTING_BYTES_MIN: u32 = 512;
const LISTING_BYTES_MAX: u32 = 131_072;

/// What is to be done about a request.
pub(crate) enum Begin<'a> {
    /// Ask the client; the answer is for `Then`.
    Call(Call<'a>, Then),
    /// Nothing to ask: done.
    Done,
    /// Done; close this behind it, and give up what was locked through it.
    Release(InodeNo, HandleId),
    /// Answer with our side of the negotiation.
    Init,
    /// The kernel wants no answer.
    Silent,
    /// It gives up on another request.
    Interrupt(u64),
}

/// What GETLK, SETLK and SETLKW ask for.
struct LockIn {
    handle: HandleId,
    owner: u64,
    range: ByteRange,
    lock: Option<LockType>,
    pid: u32,
    kind: LockKind,
}

/// A request about to become a call.
#[derive(Clone, Copy)]
pub(crate) struct Beginning<'a> {
    pub(crate) header: Header,
    pub(crate) args: Args<'a>,
    pub(crate) groups: Groups<'a>,
    /// The data of a WRITE.
    pub(crate) bulk: Option<Bulk>,
}

impl<'a> Beginning<'a> {
    pub(crate) fn begin(self, opcode: Opcode) -> Result<Begin<'a>, Status> {
        let inode = self.header.inode;
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::Forget | Opcode::BatchForget => Ok(Begin::Silent),
            Opcode::Getattr => Ok(self.getattr(Then::Attr)),
            Opcode::Statx => Ok(self.getattr(Then::Statx)),
            Opcode::Setattr => self.setattr(),
            Opcode::Readlink => {
                Ok(Begin::Call(Call::Readlink(wire::Readlink { inode }), Then::Target))
            }
            Opcode::Symlink => self.symlink(),
            Opcode::Mknod => self.mknod(),
            Opcode::Mkdir => self.mkdir(),
            Opcode::Unlink => self.unlink(),
            Opcode::Rmdir => self.rmdir(),
            Opcode::Rename => self.rename(),
            Opcode::Rename2 => self.rename2(),
            Opcode::Link => self.link(),
            Opcode::Open => self.open(),
            Opcode::Create => self.create(),
            Opcode::Tmpfile => self.tmpfile(),
            Opcode::Read => self.read(),
            Opcode::Write => self.write(),
            Opcode::Fallocate => self.fallocate(),
            Opcode::Lseek => self.lseek(),
            Opcode::CopyFileRange => self.copy_file_range(),
            Opcode::Syncfs => Ok(Begin::Call(Call::SyncShards, Then::Done)),
            Opcode::Statfs => Ok(Begin::Call(Call::Statfs, Then::Space)),
            Opcode::Release | Opcode::Releasedir => self.release(),
            Opcode::Fsync => self.fsync(true),
            Opcode::Fsyncdir => self.fsync(false),
            Opcode::Destroy => Ok(Begin::Done),
            Opcode::Flush => self.flush(),
            Opcode::Getlk => self.getlk(),
            Opcode::Setlk => self.setlk(false),
            Opcode::Setlkw => self.setlk(true),
            Opcode::Setxattr => self.setxattr(),
            Opcode::Getxattr => self.getxattr(),
            Opcode::Listxattr => self.listxattr(),
            Opcode::Removexattr => self.removexattr(),
            Opcode::Init => Ok(Begin::Init),
            Opcode::Opendir => Ok(self.opendir()),
            Opcode::Readdir => self.readdir(false),
            Opcode::Readdirplus => self.readdir(true),
            Opcode::Access => self.access(),
            Opcode::Interrupt => self.interrupt(),
        }
    }

    pub(crate) const fn caller(&self) -> Caller<'a> {
        Caller { uid: self.header.uid, gid: self.header.gid, groups: self.groups }
    }

    fn lookup(mut self) -> Result<Begin<'a>, Status> {
        let name = self.args.name()?;
        let ask = wire::Lookup { caller: self.caller(), parent: self.header.inode, name };
        Ok(Begin::Call(Call::Lookup(ask), Then::Entry))
    }

    const fn getattr(self, then: Then) -> Begin<'a> {
        Begin::Call(Call::Getattr(wire::Getattr { inode: self.header.inode }), then)
    }

    /// `fuse_setattr_in`. A size goes first, by the data shard; the rest after it.
    fn setattr(self) -> Result<Begin<'a>, Status> {
        let mut args = self.args;
        let valid = args.u32()?;
        if valid & setattr_flag::SIZE == 0 {
            return self.set_rest(ClearPrivileges::Nothing);
        }
        args.skip(12)?; // padding, fh
        let size_bytes = args.u64()?;
        let resize = Resize {
            caller: self.caller(),
            inode: self.header.inode,
            size_bytes,
            // ftruncate and O_TRUNC: only a handle open for writing gets here.
            open_for_write: valid & setattr_flag::FH != 0,
        };
        let rest = setattr_flag::MODE
            | setattr_flag::UID
            | setattr_flag::GID
            | setattr_flag::ATIME
            | setattr_flag::MTIME;
        let keeps_set_id = valid & setattr_flag::KILL_SET_ID == 0;
        let then = Then::Resized { keeps_set_id, rest: valid & rest != 0 };
        Ok(Begin::Call(Call::Resize(resize), then))
    }

    /// A SETATTR without its size, and what the new size takes away.
    pub(crate) fn set_rest(mut self, clears: ClearPrivileges) -> Result<Begin<'a>, Status> {
        let args = &mut self.args;
        let valid = args.u32()?;
        args.skip(28)?; // padding, fh, size, lock_owner
        let times = [args.u64()?, args.u64()?, args.u64()?];
        let nanos = [args.u32()?, args.u32()?, args.u32()?];
        let mode = args.u32()?;
        args.skip(4)?;
        let (uid, gid) = (args.u32()?, args.u32()?);
        let [atime, mtime, _] = times;
        let [atime_nanos, mtime_nanos, _] = nanos;
        let chosen = |flag: u32, number: u32| (valid & flag != 0).then_some(number);
        let time = |flag: u32, now: u32, secs: u64, nanos: u32| {
            if valid & flag == 0 {
                Ok(SetTime::Keep)
            } else if valid & now != 0 {
                Ok(SetTime::Now)
            } else if nanos >= 1_000_000_000 {
                Err(Status::Invalid)
            } else {
                Ok(SetTime::At(Timestamp { secs: secs.cast_signed(), nanos }))
            }
        };
        let ask = wire::Setattr {
            caller: self.caller(),
            inode: self.header.inode,
            mode: chosen(setattr_flag::MODE, mode & MODE_BITS),
            uid: chosen(setattr_flag::UID, uid),
            gid: chosen(setattr_flag::GID, gid),
            atime: time(setattr_flag::ATIME, setattr_flag::ATIME_NOW, atime, atime_nanos)?,
            mtime: time(setattr_flag::MTIME, setattr_flag::MTIME_NOW, mtime, mtime_nanos)?,
            clears,
        };
        let nothing = ask.mode.is_none()
            && ask.uid.is_none()
            && ask.gid.is_none()
            && ask.atime == SetTime::Keep
            && ask.mtime == SetTime::Keep
            && clears == ClearPrivileges::Nothing;
        if nothing {
            return Ok(self.getattr(Then::Attr));
        }
        Ok(Begin::Call(Call::Setattr(ask), Then::Attr))
    }

    fn symlink(mut self) -> Result<Begin<'a>, Status> {
        let name = self.args.name()?;
        let target = Bytes(self.args.text()?);
        let ask = wire::Symlink { caller: self.caller(), parent: self.header.inode, name, target };
        Ok(Begin::Call(Call::Symlink(ask), Then::Entry))
    }

    /// `fuse_mknod_in` and a name.
    fn mknod(mut self) -> Result<Begin<'a>, Status> {
        let mode = self.args.u32()?;
        let rdev = self.args.u32()?;
        let umask = self.args.u32()? & MODE_BITS;
        self.args.skip(4)?; // padding
        let name = self.args.name()?;
        let kind = FileKind::from_mode(mode).ok_or(Status::Invalid)?;
        if kind != FileKind::File {
            let (caller, parent, mode) = (self.caller(), self.header.inode, mode & MODE_BITS);
            let ask = wire::Mknod { caller, parent, name, kind, mode, umask, rdev };
            return Ok(Begin::Call(Call::Mknod(ask), Then::Entry));
        }
        let ask = Create {
            caller: self.caller(),
            parent: self.header.inode,
            name,
            mode: mode & MODE_BITS,
            umask,
            exclusive: true,
            open: None,
        };
        Ok(Begin::Call(Call::Create(ask), Then::Entry))
    }

    /// `fuse_mkdir_in` and a name.
    fn mkdir(mut self) -> Result<Begin<'a>, Status> {
        let mode = self.args.u32()? & MODE_BITS;
        let umask = self.args.u32()? & MODE_BITS;
        let (name, parent) = (self.args.name()?, self.header.inode);
        let ask = wire::Mkdir { caller: self.caller(), parent, name, mode, umask };
        Ok(Begin::Call(Call::Mkdir(ask), Then::Entry))
    }

    fn unlink(mut self) -> Result<Begin<'a>, Status> {
        let name = self.args.name()?;
        let ask = wire::Unlink { caller: self.caller(), parent: self.header.inode, name };
        Ok(Begin::Call(Call::Unlink(ask), Then::Done))
    }

    fn rmdir(mut self) -> Result<Begin<'a>, Status> {
        let name = self.args.name()?;
        let ask = wire::Rmdir { caller: self.caller(), parent: self.header.inode, name };
        Ok(Begin::Call(Call::Rmdir(ask), Then::Done))
    }

    fn rename(mut self) -> Result<Begin<'a>, Status> {
        let new_parent = Node(self.args.u64()?);
        self.rename_to(new_parent, RenameHow::Replace)
    }

    /// `fuse_rename2_in`.
    fn rename2(mut self) -> Result<Begin<'a>, Status> {
        let new_parent = Node(self.args.u64()?);
        let flags = self.args.u32()?;
        self.args.skip(4)?; // padding
        self.rename_to(new_parent, RenameHow::from_flags(flags)?)
    }

    fn rename_to(mut self, to: Node, how: RenameHow) -> Result<Begin<'a>, Status> {
        let name = self.args.name()?;
        let new_name = self.args.name()?;
        let caller = self.caller();
        let (parent, new_parent) = (self.header.inode, to.inode());
        let ask = wire::Rename { caller, parent, name, new_parent, new_name, how };
        let from = self.header.node;
        Ok(Begin::Call(Call::Rename(ask), Then::Renamed { from, to }))
    }

    /// The node is the directory of the new name, the argument the file.
    fn link(mut self) -> Result<Begin<'a>, Status> {
        let inode = InodeNo(self.args.u64()?);
        let name = self.args.name()?;
        let ask = wire::Link { caller: self.caller(), inode, parent: self.header.inode, name };
        Ok(Begin::Call(Call::Link(ask), Then::Entry))
    }

    /// `fuse_open_in`. Truncation comes as a SETATTR of its own.
    fn open(mut self) -> Result<Begin<'a>, Status> {
        let open_for = open_for(self.args.u32()?);
        let ask = Open { caller: self.caller(), inode: self.header.inode, open_for, sizes: false };
        Ok(Begin::Call(Call::Open(ask), Then::Open))
    }

    /// `fuse_create_in` and a name.
    fn create(mut self) -> Result<Begin<'a>, Status> {
        let flags = self.args.u32()?;
        let mode = self.args.u32()? & MODE_BITS;
        let umask = self.args.u32()? & MODE_BITS;
        let keeps_set_id = self.args.u32()? & OPEN_KILL_SET_ID == 0;
        let name = self.args.name()?;
        let ask = Create {
            caller: self.caller(),
            parent: self.header.inode,
            name,
            mode,
            umask,
            exclusive: flags & open_flag::EXCLUSIVE != 0,
            open: Some(open_for(flags)),
        };
        let truncate = flags & open_flag::TRUNCATE != 0;
        Ok(Begin::Call(Call::Create(ask), Then::Create { truncate, keeps_set_id }))
    }

    /// `fuse_create_in` and a name, which it does not get.
    fn tmpfile(mut self) -> Result<Begin<'a>, Status> {
        let flags = self.args.u32()?;
        let mode = self.args.u32()? & MODE_BITS;
        let umask = self.args.u32()? & MODE_BITS;
        let ask = Tmpfile {
            caller: self.caller(),
            parent: self.header.inode,
            mode,
            umask,
            linkable: flags & open_flag::EXCLUSIVE == 0,
            open_for: open_for(flags),
        };
        let then = Then::Create { truncate: false, keeps_set_id: true };
        Ok(Begin::Call(Call::Tmpfile(ask), then))
    }

    /// `fuse_read_in`.
    fn read(mut self) -> Result<Begin<'a>, Status> {
        self.args.skip(8)?; // fh
        let file_offset = self.args.u64()?;
        let read_bytes = self.args.u32()?.min(TRANSFER_BYTES_MAX);
        if i64::try_from(file_offset).is_err() {
            return Err(Status::Invalid);
        }
        self.args.skip(12)?; // read_flags, lock_owner
        let accesses = self.args.u32()? & open_flag::NO_ACCESS_TIME == 0;
        let ask = wire::Read { inode: self.header.inode, file_offset, read_bytes, accesses };
        Ok(Begin::Call(Call::Read(ask), Then::Bytes))
    }

    /// `fuse_write_in`. What the file must lose goes before the bytes come.
    fn write(self) -> Result<Begin<'a>, Status> {
        let mut args = self.args;
        let handle = FileHandle(args.u64()?);
        args.skip(12)?; // offset, size
        let write_flags = args.u32()?;
        let keeps_set_id = write_flags & WRITE_KILL_SET_ID == 0;
        if write_flags & WRITE_CACHE != 0 {
            return self.write_bytes(ClearPrivileges::Nothing);
        }
        let clears = handle.cleared_by_write(keeps_set_id);
        if clears == ClearPrivileges::Nothing {
            return self.write_bytes(taken_by(keeps_set_id));
        }
        let ask = revoking(self.caller(), self.header.inode, clears);
        Ok(Begin::Call(Call::Setattr(ask), Then::Revoked))
    }

    /// The write itself; the data is the bulk.
    pub(crate) fn write_bytes(mut self, clears: ClearPrivileges) -> Result<Begin<'a>, Status> {
        self.args.skip(8)?; // fh
        let file_offset = self.args.u64()?;
        let write_bytes = self.args.u32()?;
        let write_flags = self.args.u32()?;
        self.args.skip(8)?; // lock_owner
        let flags = self.args.u32()?;
        if self.bulk.map_or(0, |bulk| bulk.bulk_bytes) != write_bytes {
            return Err(Status::Io);
        }
        // A page of a mapping has its place, whatever file wrote it.
        let mapped = write_flags & WRITE_CACHE != 0;
        let append = flags & open_flag::APPEND != 0 && !mapped;
        if !append && i64::try_from(file_offset).is_err() {
            return Err(Status::TooLarge);
        }
        let sync = flags & open_flag::DATA_SYNC != 0 && !mapped;
        let inode = self.header.inode;
        let ask = Write { inode, file_offset, append, bulk: self.bulk, sync, clears };
        Ok(Begin::Call(Call::Write(ask), Then::Written))
    }

    fn release(mut self) -> Result<Begin<'a>, Status> {
        let inode = self.header.inode;
        self.args.u64().map(|handle| Begin::Release(inode, FileHandle(handle).id()))
    }

    /// `fuse_flush_in`. Closing a file waits for no bytes (who wants to be sure says fsync), but for
    /// the locks that the process loses with it.
    fn flush(mut self) -> Result<Begin<'a>, Status> {
        self.args.skip(16)?; // fh, unused, padding
        let owner = self.args.u64()?;
        Ok(Begin::Call(Call::Flush { inode: self.header.inode, owner }, Then::Done))
    }

    /// `fuse_lk_in`.
    fn lock(&mut self) -> Result<LockIn, Status> {
        let args = &mut self.args;
        let (handle, owner) = (FileHandle(args.u64()?).id(), args.u64()?);
        let (start, end) = (args.u64()?, args.u64()?);
        let (lock_type, pid, flags) = (args.u32()?, args.u32()?, args.u32()?);
        let lock = match lock_type {
            lock_type::READ => Some(LockType::Read),
            lock_type::WRITE => Some(LockType::Write),
            lock_type::UNLOCK => None,
            _ => return Err(Status::Invalid),
        };
        let flocks = flags & LK_FLOCK != 0;
        let kind = if flocks { LockKind::Flock } else { LockKind::Posix };
        let range = ByteRange::new(start, end).ok_or(Status::Invalid)?;
        let range = if flocks { ByteRange::ALL } else { range };
        Ok(LockIn { handle, owner, range, lock, pid, kind })
    }

    fn getlk(mut self) -> Result<Begin<'a>, Status> {
        let LockIn { owner, range, lock, kind, .. } = self.lock()?;
        let lock = lock.ok_or(Status::Invalid)?;
        let ask = wire::GetLock { inode: self.header.inode, kind, owner, lock, range };
        Ok(Begin::Call(Call::GetLock(ask), Then::LockFound))
    }

    fn setlk(mut self, wait: bool) -> Result<Begin<'a>, Status> {
        let LockIn { handle, owner, range, lock, pid, kind } = self.lock()?;
        let wait = wait && lock.is_some();
        let inode = self.header.inode;
        let ask = SetLock { inode, kind, owner, lock, range, pid, wait, handle };
        let then = if wait { Then::LockWait } else { Then::Done };
        Ok(Begin::Call(Call::SetLock(ask), then))
    }

    /// `fuse_fsync_in`: fdatasync waits for as much, since the size is among the attributes.
    fn fsync(mut self, contents: bool) -> Result<Begin<'a>, Status> {
        let handle = self.args.u64()?;
        // A directory needs no handle, so it has none.
        let handle = contents.then_some(FileHandle(handle).id());
        let sync = Sync { inode: self.header.inode, contents, handle };
        Ok(Begin::Call(Call::Sync(sync), Then::Done))
    }

    /// `fuse_setxattr_in` in its short form (the long one was not asked for), name, value.
    fn setxattr(mut self) -> Result<Begin<'a>, Status> {
        let value_bytes = usize::try_from(self.args.u32()?).map_err(|_| Status::Invalid)?;
        let flags = self.args.u32()?;
        let name = Bytes(self.args.text()?);
        let value = Bytes(self.args.bytes(value_bytes)?);
        let caller = self.caller();
        let ask = wire::Setxattr { caller, inode: self.header.inode, name, value, flags };
        Ok(Begin::Call(Call::Setxattr(ask), Then::Done))
    }

    fn getxattr(mut self) -> Result<Begin<'a>, Status> {
        let buffer_bytes = self.args.u32()?;
        self.args.skip(4)?; // padding
        let name = Bytes(self.args.text()?);
        let ask = wire::Getxattr { caller: self.caller(), inode: self.header.inode, name };
        Ok(Begin::Call(Call::Getxattr(ask), Then::Value { buffer_bytes }))
    }

    fn listxattr(mut self) -> Result<Begin<'a>, Status> {
        let buffer_bytes = self.args.u32()?;
        let ask = wire::Listxattr { caller: self.caller(), inode: self.header.inode };
        Ok(Begin::Call(Call::Listxattr(ask), Then::Value { buffer_bytes }))
    }

    fn removexattr(mut self) -> Result<Begin<'a>, Status> {
        let name = Bytes(self.args.text()?);
        let ask = wire::Removexattr { caller: self.caller(), inode: self.header.inode, name };
        Ok(Begin::Call(Call::Removexattr(ask), Then::Done))
    }

    /// The handle keeps a directory that is removed until it is closed.
    const fn opendir(self) -> Begin<'a> {
        let (caller, inode) = (self.caller(), self.header.inode);
        let ask = Open { caller, inode, open_for: OpenFor::Read, sizes: false };
        Begin::Call(Call::Open(ask), Then::Opendir)
    }

    /// `fuse_read_in` of a directory; the offset is a position, see `listing`.
    fn readdir(mut self, plus: bool) -> Result<Begin<'a>, Status> {
        let handle = HandleId(self.args.u64()?);
        let position = self.args.u64()?;
        if position == END_POSITION {
            return Ok(Begin::Done);
        }
        let buffer_bytes = self.args.u32()?;
        let ask = wire::Readdir {
            caller: self.caller(),
            inode: self.header.inode,
            cookie: cookie_before(position),
            // An entry takes more room in the kernel's format than in ours.
            listing_bytes_max: buffer_bytes.clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX),
            attrs: plus,
            handle: Some(handle),
        };
        Ok(Begin::Call(Call::Readdir(ask), Then::Listing { position, buffer_bytes, plus }))
    }

    fn access(mut self) -> Result<Begin<'a>, Status> {
        let mask = self.args.u32()?;
        if mask & !ACCESS_BITS != 0 {
            return Err(Status::Invalid);
        }
        let ask = wire::Access { caller: self.caller(), inode: self.header.inode, mask };
        Ok(Begin::Call(Call::Access(ask), Then::Done))
    }

    fn interrupt(mut self) -> Result<Begin<'a>, Status> {
        self.args.u64().map(Begin::Interrupt)
    }
}

/// What somebody who changes a file's contents takes away of what running it gives.
pub(crate) const fn taken_by(keeps_set_id: bool) -> ClearPrivileges {
    if keeps_set_id { ClearPrivileges::Capability } else { ClearPrivileges::All }
}

/// Takes away what running a file gives, and nothing else.
pub(crate) const fn revoking(
    caller: Caller<'_>,
    inode: InodeNo,
    clears: ClearPrivileges,
) -> wire::Setattr<'_> {
    let (mode, uid, gid) = (None, None, None);
    let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
    wire::Setattr { caller, inode, mode, uid, gid, atime, mtime, clears }
}

/// What the kernel opens a file for. Access mode 3 reads and writes nothing, and asks for the permission
/// to do both.
const fn open_for(flags: u32) -> OpenFor {
    if flags & open_flag::EXECUTE != 0 {
        return OpenFor::Execute;
    }
    match flags & open_flag::ACCESS_MODE {
        open_flag::READ_ONLY => OpenFor::Read,
        open_flag::WRITE_ONLY => OpenFor::Write,
        _ => OpenFor::ReadWrite,
    }
}
