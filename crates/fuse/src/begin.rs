//! Decoding the kernel's requests to calls: one function per op code, and the switchboard. It has
//! no side effects; `finish` handles the answers.

use crate::abi::{
    GETATTR_HANDLE, LK_FLOCK, OPEN_KILL_SET_ID, Opcode, READ_LOCK_OWNER, TRANSFER_BYTES_MAX,
    WRITE_CACHE, WRITE_KILL_SET_ID, lock_type, open_flag, setattr_flag,
};
use crate::args::{Args, Header};
use crate::handle::FileHandle;
use crate::listing::{END_POSITION, cookie_before};
use crate::node::Node;
use crate::pending::Continuation;
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

/// A decoded request.
pub(crate) enum Decoded<'a> {
    /// Make this call; the continuation handles its answer.
    Call(Call<'a>, Continuation),
    /// No call is needed: reply at once.
    Done,
    /// Reply at once; then close the handle and release the locks taken through it.
    Release(InodeNo, HandleId),
    /// Reply with the negotiated protocol parameters.
    Init,
    /// No reply.
    Silent,
    /// Interrupts the request with this id.
    Interrupt(u64),
}

/// The arguments of GETLK, SETLK and SETLKW.
struct LockIn {
    handle: HandleId,
    owner: u64,
    range: ByteRange,
    lock: Option<LockType>,
    pid: u32,
    kind: LockKind,
}

/// Decodes one request.
#[derive(Clone, Copy)]
pub(crate) struct RequestDecoder<'a> {
    pub(crate) header: Header,
    pub(crate) args: Args<'a>,
    pub(crate) groups: Groups<'a>,
    /// The data of a WRITE.
    pub(crate) bulk: Option<Bulk>,
}

impl<'a> RequestDecoder<'a> {
    pub(crate) fn decode(self, opcode: Opcode) -> Result<Decoded<'a>, Status> {
        let inode = self.header.inode;
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::Forget | Opcode::BatchForget => Ok(Decoded::Silent),
            Opcode::Getattr => Ok(self.getattr(self.attr_continuation())),
            Opcode::Statx => Ok(self.getattr(Continuation::Statx)),
            Opcode::Setattr => self.setattr(),
            Opcode::Readlink => {
                Ok(Decoded::Call(Call::Readlink(wire::Readlink { inode }), Continuation::Target))
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
            Opcode::Syncfs => Ok(Decoded::Call(Call::SyncShards, Continuation::Done)),
            Opcode::Statfs => Ok(Decoded::Call(Call::Statfs, Continuation::Space)),
            Opcode::Release | Opcode::Releasedir => self.release(),
            Opcode::Fsync => self.fsync(true),
            Opcode::Fsyncdir => self.fsync(false),
            Opcode::Destroy => Ok(Decoded::Done),
            Opcode::Flush => self.flush(),
            Opcode::Getlk => self.getlk(),
            Opcode::Setlk => self.setlk(false),
            Opcode::Setlkw => self.setlk(true),
            Opcode::Setxattr => self.setxattr(),
            Opcode::Getxattr => self.getxattr(),
            Opcode::Listxattr => self.listxattr(),
            Opcode::Removexattr => self.removexattr(),
            Opcode::Init => Ok(Decoded::Init),
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

    fn lookup(mut self) -> Result<Decoded<'a>, Status> {
        let name = self.args.name()?;
        let request = wire::Lookup { caller: self.caller(), parent: self.header.inode, name };
        Ok(Decoded::Call(Call::Lookup(request), Continuation::Entry))
    }

    /// `fuse_getattr_in`. A read through the page cache asks first, and names the open file.
    fn attr_continuation(self) -> Continuation {
        let mut args = self.args;
        let handle = args.u32().ok().filter(|flags| flags & GETATTR_HANDLE != 0);
        let handle = handle.and_then(|_| args.u32().and_then(|_| args.u64()).ok());
        let cached = handle.map(FileHandle).filter(|handle| handle.is_cached());
        cached.map_or(Continuation::Attr, |through| Continuation::CachedAttr { through })
    }

    const fn getattr(self, continuation: Continuation) -> Decoded<'a> {
        Decoded::Call(Call::Getattr(wire::Getattr { inode: self.header.inode }), continuation)
    }

    /// `fuse_setattr_in`. The data shard sets a new size first; the other attributes follow.
    fn setattr(self) -> Result<Decoded<'a>, Status> {
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
            // ftruncate and O_TRUNC: the kernel sends these only for handles open for writing.
            open_for_write: valid & setattr_flag::FH != 0,
        };
        let rest = setattr_flag::MODE
            | setattr_flag::UID
            | setattr_flag::GID
            | setattr_flag::ATIME
            | setattr_flag::MTIME;
        let keeps_set_id = valid & setattr_flag::KILL_SET_ID == 0;
        let continuation = Continuation::Resized { keeps_set_id, rest: valid & rest != 0 };
        Ok(Decoded::Call(Call::Resize(resize), continuation))
    }

    /// A SETATTR without its size, with the privileges that the new size clears.
    pub(crate) fn set_rest(mut self, clears: ClearPrivileges) -> Result<Decoded<'a>, Status> {
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
        let request = wire::Setattr {
            caller: self.caller(),
            inode: self.header.inode,
            mode: chosen(setattr_flag::MODE, mode & MODE_BITS),
            uid: chosen(setattr_flag::UID, uid),
            gid: chosen(setattr_flag::GID, gid),
            atime: time(setattr_flag::ATIME, setattr_flag::ATIME_NOW, atime, atime_nanos)?,
            mtime: time(setattr_flag::MTIME, setattr_flag::MTIME_NOW, mtime, mtime_nanos)?,
            clears,
        };
        let nothing = request.mode.is_none()
            && request.uid.is_none()
            && request.gid.is_none()
            && request.atime == SetTime::Keep
            && request.mtime == SetTime::Keep
            && clears == ClearPrivileges::Nothing;
        if nothing {
            return Ok(self.getattr(Continuation::Attr));
        }
        Ok(Decoded::Call(Call::Setattr(request), Continuation::Attr))
    }

    fn symlink(mut self) -> Result<Decoded<'a>, Status> {
        let name = self.args.name()?;
        let target = Bytes(self.args.text()?);
        let request =
            wire::Symlink { caller: self.caller(), parent: self.header.inode, name, target };
        Ok(Decoded::Call(Call::Symlink(request), Continuation::Entry))
    }

    /// `fuse_mknod_in` and a name.
    fn mknod(mut self) -> Result<Decoded<'a>, Status> {
        let mode = self.args.u32()?;
        let rdev = self.args.u32()?;
        let umask = self.args.u32()? & MODE_BITS;
        self.args.skip(4)?; // padding
        let name = self.args.name()?;
        let kind = FileKind::from_mode(mode).ok_or(Status::Invalid)?;
        if kind != FileKind::File {
            let (caller, parent, mode) = (self.caller(), self.header.inode, mode & MODE_BITS);
            let request = wire::Mknod { caller, parent, name, kind, mode, umask, rdev };
            return Ok(Decoded::Call(Call::Mknod(request), Continuation::Entry));
        }
        let request = Create {
            caller: self.caller(),
            parent: self.header.inode,
            name,
            mode: mode & MODE_BITS,
            umask,
            exclusive: true,
            open: None,
        };
        Ok(Decoded::Call(Call::Create(request), Continuation::Entry))
    }

    /// `fuse_mkdir_in` and a name.
    fn mkdir(mut self) -> Result<Decoded<'a>, Status> {
        let mode = self.args.u32()? & MODE_BITS;
        let umask = self.args.u32()? & MODE_BITS;
        let (name, parent) = (self.args.name()?, self.header.inode);
        let request = wire::Mkdir { caller: self.caller(), parent, name, mode, umask };
        Ok(Decoded::Call(Call::Mkdir(request), Continuation::Entry))
    }

    fn unlink(mut self) -> Result<Decoded<'a>, Status> {
        let name = self.args.name()?;
        let request =
            wire::Unlink { caller: self.caller(), parent: self.header.inode, name, behind: None };
        Ok(Decoded::Call(Call::Unlink(request), Continuation::Done))
    }

    fn rmdir(mut self) -> Result<Decoded<'a>, Status> {
        let name = self.args.name()?;
        let request = wire::Rmdir { caller: self.caller(), parent: self.header.inode, name };
        Ok(Decoded::Call(Call::Rmdir(request), Continuation::Done))
    }

    fn rename(mut self) -> Result<Decoded<'a>, Status> {
        let new_parent = Node(self.args.u64()?);
        self.rename_to(new_parent, RenameHow::Replace)
    }

    /// `fuse_rename2_in`.
    fn rename2(mut self) -> Result<Decoded<'a>, Status> {
        let new_parent = Node(self.args.u64()?);
        let flags = self.args.u32()?;
        self.args.skip(4)?; // padding
        self.rename_to(new_parent, RenameHow::from_flags(flags)?)
    }

    fn rename_to(mut self, to: Node, how: RenameHow) -> Result<Decoded<'a>, Status> {
        let name = self.args.name()?;
        let new_name = self.args.name()?;
        let caller = self.caller();
        let (parent, new_parent) = (self.header.inode, to.inode());
        let request = wire::Rename { caller, parent, name, new_parent, new_name, how };
        let from = self.header.node;
        Ok(Decoded::Call(Call::Rename(request), Continuation::Renamed { from, to }))
    }

    /// The header names the directory of the new name, the argument the file.
    fn link(mut self) -> Result<Decoded<'a>, Status> {
        let inode = InodeNo(self.args.u64()?);
        let name = self.args.name()?;
        let request = wire::Link { caller: self.caller(), inode, parent: self.header.inode, name };
        Ok(Decoded::Call(Call::Link(request), Continuation::Entry))
    }

    /// `fuse_open_in`. The kernel sends O_TRUNC as a separate SETATTR.
    fn open(mut self) -> Result<Decoded<'a>, Status> {
        let open_for = open_for(self.args.u32()?);
        let request =
            Open { caller: self.caller(), inode: self.header.inode, open_for, sizes: false };
        Ok(Decoded::Call(Call::Open(request), Continuation::Open))
    }

    /// `fuse_create_in` and a name.
    fn create(mut self) -> Result<Decoded<'a>, Status> {
        let flags = self.args.u32()?;
        let mode = self.args.u32()? & MODE_BITS;
        let umask = self.args.u32()? & MODE_BITS;
        let keeps_set_id = self.args.u32()? & OPEN_KILL_SET_ID == 0;
        let name = self.args.name()?;
        let request = Create {
            caller: self.caller(),
            parent: self.header.inode,
            name,
            mode,
            umask,
            exclusive: flags & open_flag::EXCLUSIVE != 0,
            open: Some(open_for(flags)),
        };
        let truncate = flags & open_flag::TRUNCATE != 0;
        Ok(Decoded::Call(Call::Create(request), Continuation::Create { truncate, keeps_set_id }))
    }

    /// `fuse_create_in` and a name, which is ignored.
    fn tmpfile(mut self) -> Result<Decoded<'a>, Status> {
        let flags = self.args.u32()?;
        let mode = self.args.u32()? & MODE_BITS;
        let umask = self.args.u32()? & MODE_BITS;
        let request = Tmpfile {
            caller: self.caller(),
            parent: self.header.inode,
            mode,
            umask,
            linkable: flags & open_flag::EXCLUSIVE == 0,
            open_for: open_for(flags),
        };
        let continuation = Continuation::Create { truncate: false, keeps_set_id: true };
        Ok(Decoded::Call(Call::Tmpfile(request), continuation))
    }

    /// `fuse_read_in`. A read that goes past the page cache names its lock owner; that of a fault, and
    /// others that fill pages, do not.
    fn read(mut self) -> Result<Decoded<'a>, Status> {
        self.args.skip(8)?; // fh
        let file_offset = self.args.u64()?;
        let read_bytes = self.args.u32()?.min(TRANSFER_BYTES_MAX);
        if i64::try_from(file_offset).is_err() {
            return Err(Status::Invalid);
        }
        let fills_pages = self.args.u32()? & READ_LOCK_OWNER == 0;
        self.args.skip(8)?; // lock_owner
        let accesses = self.args.u32()? & open_flag::NO_ACCESS_TIME == 0;
        let request = wire::Read { inode: self.header.inode, file_offset, read_bytes, accesses };
        Ok(if fills_pages {
            Decoded::Call(Call::ReadPages(request), Continuation::Pages)
        } else {
            Decoded::Call(Call::Read(request), Continuation::Bytes)
        })
    }

    /// `fuse_write_in`. Privileges are cleared before the bytes are written.
    fn write(self) -> Result<Decoded<'a>, Status> {
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
            return self.write_bytes(cleared_by_write(keeps_set_id));
        }
        let request = clear_privileges(self.caller(), self.header.inode, clears);
        Ok(Decoded::Call(Call::Setattr(request), Continuation::Cleared))
    }

    /// The write itself; the data is the bulk.
    pub(crate) fn write_bytes(mut self, clears: ClearPrivileges) -> Result<Decoded<'a>, Status> {
        self.args.skip(8)?; // fh
        let file_offset = self.args.u64()?;
        let write_bytes = self.args.u32()?;
        let write_flags = self.args.u32()?;
        self.args.skip(8)?; // lock_owner
        let flags = self.args.u32()?;
        if self.bulk.map_or(0, |bulk| bulk.bulk_bytes) != write_bytes {
            return Err(Status::Io);
        }
        // A page of a mapping has its position, whatever the open file's flags.
        let mapped = write_flags & WRITE_CACHE != 0;
        let append = flags & open_flag::APPEND != 0 && !mapped;
        if !append && i64::try_from(file_offset).is_err() {
            return Err(Status::TooLarge);
        }
        let sync = flags & open_flag::DATA_SYNC != 0 && !mapped;
        let inode = self.header.inode;
        let request =
            Write { inode, file_offset, append, bulk: self.bulk, sync, clears, behind: false };
        let call = if mapped { Call::WriteBack(request) } else { Call::Write(request) };
        Ok(Decoded::Call(call, Continuation::Written))
    }

    fn release(mut self) -> Result<Decoded<'a>, Status> {
        let inode = self.header.inode;
        self.args.u64().map(|handle| Decoded::Release(inode, FileHandle(handle).id()))
    }

    /// `fuse_flush_in`. Close does not wait for durability (fsync does), but for the release of the
    /// process's locks.
    fn flush(mut self) -> Result<Decoded<'a>, Status> {
        self.args.skip(16)?; // fh, unused, padding
        let owner = self.args.u64()?;
        Ok(Decoded::Call(Call::Flush { inode: self.header.inode, owner }, Continuation::Done))
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

    fn getlk(mut self) -> Result<Decoded<'a>, Status> {
        let LockIn { owner, range, lock, kind, .. } = self.lock()?;
        let lock = lock.ok_or(Status::Invalid)?;
        let request = wire::GetLock { inode: self.header.inode, kind, owner, lock, range };
        Ok(Decoded::Call(Call::GetLock(request), Continuation::LockFound))
    }

    fn setlk(mut self, wait: bool) -> Result<Decoded<'a>, Status> {
        let LockIn { handle, owner, range, lock, pid, kind } = self.lock()?;
        let wait = wait && lock.is_some();
        let inode = self.header.inode;
        let request = SetLock { inode, kind, owner, lock, range, pid, wait, handle };
        let continuation = if wait { Continuation::LockWait } else { Continuation::Done };
        Ok(Decoded::Call(Call::SetLock(request), continuation))
    }

    /// `fuse_fsync_in`. fdatasync waits for the attributes too, because the size is among them.
    fn fsync(mut self, contents: bool) -> Result<Decoded<'a>, Status> {
        let handle = self.args.u64()?;
        // A directory is synced without a handle.
        let handle = contents.then_some(FileHandle(handle).id());
        let sync = Sync { inode: self.header.inode, contents, handle };
        Ok(Decoded::Call(Call::Sync(sync), Continuation::Done))
    }

    /// `fuse_setxattr_in` in its short form (the long one is not negotiated), name, value.
    fn setxattr(mut self) -> Result<Decoded<'a>, Status> {
        let value_bytes = usize::try_from(self.args.u32()?).map_err(|_| Status::Invalid)?;
        let flags = self.args.u32()?;
        let name = Bytes(self.args.text()?);
        let value = Bytes(self.args.bytes(value_bytes)?);
        let caller = self.caller();
        let request = wire::Setxattr { caller, inode: self.header.inode, name, value, flags };
        Ok(Decoded::Call(Call::Setxattr(request), Continuation::Done))
    }

    fn getxattr(mut self) -> Result<Decoded<'a>, Status> {
        let buffer_bytes = self.args.u32()?;
        self.args.skip(4)?; // padding
        let name = Bytes(self.args.text()?);
        let request = wire::Getxattr { caller: self.caller(), inode: self.header.inode, name };
        let continuation = if name.0 == b"security.selinux" {
            Continuation::Label { buffer_bytes }
        } else {
            Continuation::Value { buffer_bytes }
        };
        Ok(Decoded::Call(Call::Getxattr(request), continuation))
    }

    fn listxattr(mut self) -> Result<Decoded<'a>, Status> {
        let buffer_bytes = self.args.u32()?;
        let request = wire::Listxattr { caller: self.caller(), inode: self.header.inode };
        Ok(Decoded::Call(Call::Listxattr(request), Continuation::Value { buffer_bytes }))
    }

    fn removexattr(mut self) -> Result<Decoded<'a>, Status> {
        let name = Bytes(self.args.text()?);
        let request = wire::Removexattr { caller: self.caller(), inode: self.header.inode, name };
        Ok(Decoded::Call(Call::Removexattr(request), Continuation::Done))
    }

    /// The handle retains a directory that is removed until it is closed.
    const fn opendir(self) -> Decoded<'a> {
        let (caller, inode) = (self.caller(), self.header.inode);
        let request = Open { caller, inode, open_for: OpenFor::Read, sizes: false };
        Decoded::Call(Call::Open(request), Continuation::Opendir)
    }

    /// `fuse_read_in` of a directory; the offset is a position, see `listing`.
    fn readdir(mut self, plus: bool) -> Result<Decoded<'a>, Status> {
        let handle = HandleId(self.args.u64()?);
        let position = self.args.u64()?;
        if position == END_POSITION {
            return Ok(Decoded::Done);
        }
        let buffer_bytes = self.args.u32()?;
        let request = wire::Readdir {
            caller: self.caller(),
            inode: self.header.inode,
            cookie: cookie_before(position),
            // An entry is larger in the kernel's format than in ours.
            listing_bytes_max: buffer_bytes.clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX),
            attrs: plus,
            handle: Some(handle),
        };
        Ok(Decoded::Call(
            Call::Readdir(request),
            Continuation::Listing { position, buffer_bytes, plus },
        ))
    }

    fn access(mut self) -> Result<Decoded<'a>, Status> {
        let mask = self.args.u32()?;
        if mask & !ACCESS_BITS != 0 {
            return Err(Status::Invalid);
        }
        let request = wire::Access { caller: self.caller(), inode: self.header.inode, mask };
        Ok(Decoded::Call(Call::Access(request), Continuation::Done))
    }

    fn interrupt(mut self) -> Result<Decoded<'a>, Status> {
        self.args.u64().map(Decoded::Interrupt)
    }
}

/// The privileges that a change of a file's contents clears.
pub(crate) const fn cleared_by_write(keeps_set_id: bool) -> ClearPrivileges {
    if keeps_set_id { ClearPrivileges::Capability } else { ClearPrivileges::All }
}

/// A setattr that only clears privileges.
pub(crate) const fn clear_privileges(
    caller: Caller<'_>,
    inode: InodeNo,
    clears: ClearPrivileges,
) -> wire::Setattr<'_> {
    let (mode, uid, gid) = (None, None, None);
    let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
    wire::Setattr { caller, inode, mode, uid, gid, atime, mtime, clears }
}

/// What the kernel opens a file for. Access mode 3 allows neither reads nor writes, and needs the
/// permission for both.
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
