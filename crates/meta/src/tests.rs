//! A shard with its log, called as a lane calls it.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod acl;
mod attrs;
mod behind;
mod bounded;
mod directory;
mod exports;
mod file_locks;
mod finding;
mod handles;
mod listing;
mod model;
mod names;
mod non_resident;
mod permission;
mod random;
mod redo;
mod rights;
mod several;
mod xattrs;

use crate::{Effect, MetaRequest, Shard};
use alloc::string::String;
use alloc::vec::Vec;
use disk::rows::Range;
use disk::{Origin, PreVersions, Record};
use several::{Other, about};
use test_runtime::RowStore;
use wire::{
    Attr, Bytes, Caller, ClientUuid, Create, Created, Entry, Getattr, Groups, Handle, HandleId,
    InodeNo, Lookup, Mkdir, Name, Op, Open, OpenFor, SetTime, Setattr, ShardId, Status, Term,
    Timestamp, Transno, Unlink, Wire,
};

pub(crate) const ROOT: InodeNo = InodeNo::ROOT;
pub(crate) const MADE: disk::Creation = disk::Creation {
    at_ns: 1_000_000_000,
    uid: 0,
    gid: 0,
    mode: 0o755,
    layout: wire::Layout::DEFAULT,
};
pub(crate) const ALICE: ClientUuid = ClientUuid([1; 16]);
pub(crate) const BOB: ClientUuid = ClientUuid([2; 16]);

pub(crate) fn root() -> Caller<'static> {
    Caller { uid: 0, gid: 0, groups: Groups::Unknown }
}

pub(crate) fn user(uid: u32, gid: u32) -> Caller<'static> {
    Caller { uid, gid, groups: Groups::Known(&[]) }
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn write_handle(id: u64) -> Handle {
    Handle { id: HandleId(id), open_for: OpenFor::ReadWrite }
}

pub(crate) fn read_handle(id: u64) -> Handle {
    Handle { id: HandleId(id), open_for: OpenFor::Read }
}

/// A shard, its records, and a clock that advances by a second with every request.
pub(crate) struct Harness {
    pub(crate) shard: Shard,
    boot_id: u64,
    pub(crate) log: Vec<(Transno, Vec<u8>)>,
    pub(crate) now: Timestamp,
    pub(crate) client: ClientUuid,
    pub(crate) squash: wire::Squash,
    pub(crate) export_root: Option<InodeNo>,
    pub(crate) reply: Vec<u8>,
    /// Shards besides the first.
    others: Vec<Other>,
    /// Transactions over several shards so far.
    txn_count: u64,
    /// The row store of shards with a memory limit.
    pub(crate) row_store: Option<non_resident::RowStore>,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self {
            shard: Shard::new(ShardId::meta(0), MADE),
            boot_id: 0,
            log: Vec::new(),
            now: Timestamp { secs: 100, nanos: 0 },
            client: ALICE,
            squash: wire::Squash::NONE,
            export_root: None,
            reply: Vec::new(),
            others: Vec::new(),
            txn_count: 0,
            row_store: None,
        }
    }

    /// Executes, records, and checks what holds for every op.
    pub(crate) fn execute<'a>(&mut self, op: Op, args: &impl Wire<'a>) -> Effect {
        let effect = self.execute_bytes(op, &args.to_bytes());
        effect.expect("a well-formed body is no protocol error")
    }

    pub(crate) fn execute_bytes(
        &mut self,
        op: Op,
        body: &[u8],
    ) -> Result<Effect, wire::ProtocolError> {
        self.now.secs += 1;
        let (client, squash, export_root, now) =
            (self.client, self.squash, self.export_root, self.now);
        let mut changes = Vec::new();
        self.reply.clear();
        let at = about(op, body).shard();
        if !self.others.is_empty() {
            self.roll_placement(at);
        }
        let request = MetaRequest {
            op,
            body,
            client,
            squash,
            export_root,
            now,
            records_reads: false,
            changed_behind: None,
        };
        let mut reply = core::mem::take(&mut self.reply);
        let last = self.at(at).0.transno_last();
        let effect = loop {
            let effect = self.at(at).0.execute(&request, &mut reply, &mut changes);
            if !effect.is_ok_and(|effect| effect.status == Status::Busy) || !self.fetch_missing(at)
            {
                break effect;
            }
        };
        self.let_go();
        self.reply = reply;
        let effect = effect?;
        assert_eq!(effect.transno == Transno(0), changes.is_empty());
        if effect.status != Status::Ok {
            assert!(changes.is_empty() && self.reply.is_empty());
        }
        let (shard, log) = self.at(at);
        if effect.transno == Transno(0) {
            assert_eq!(shard.transno_last(), last);
        } else {
            assert!(effect.transno > last);
            assert_eq!(shard.transno_last(), effect.transno);
            log.push((effect.transno, changes));
        }
        if effect.status == Status::CrossDevice && !self.others.is_empty() {
            return Ok(self.multi_shard(at, &request));
        }
        Ok(self.complete(op, body, effect))
    }

    pub(crate) fn status<'a>(&mut self, op: Op, args: &impl Wire<'a>) -> Status {
        self.execute(op, args).status
    }

    /// Executes a request that must succeed and decodes its reply.
    pub(crate) fn answer<'a, 's, R: Wire<'s>>(&'s mut self, op: Op, args: &impl Wire<'a>) -> R {
        assert_eq!(self.status(op, args), Status::Ok, "{op:?}");
        R::decode_all(&self.reply).unwrap()
    }

    pub(crate) fn mkdir(&mut self, parent: InodeNo, text: &str, mode: u32) -> InodeNo {
        let args = Mkdir { caller: root(), parent, name: name(text), mode, umask: 0 };
        self.answer::<Entry>(Op::Mkdir, &args).attr.inode
    }

    pub(crate) fn file(&mut self, parent: InodeNo, text: &str, mode: u32) -> InodeNo {
        self.create(root(), parent, text, mode).unwrap().attr.inode
    }

    pub(crate) fn create(
        &mut self,
        caller: Caller<'_>,
        parent: InodeNo,
        text: &str,
        mode: u32,
    ) -> Result<Created, Status> {
        let (umask, exclusive, handle) = (0, true, None);
        let name = name(text);
        let args = Create { caller, parent, name, mode, umask, exclusive, handle, behind: None };
        match self.status(Op::Create, &args) {
            Status::Ok => Ok(Created::decode_all(&self.reply).unwrap()),
            status => Err(status),
        }
    }

    pub(crate) fn symlink(&mut self, parent: InodeNo, text: &str, target: &[u8]) -> InodeNo {
        let target = Bytes(target);
        let args = wire::Symlink { caller: root(), parent, name: name(text), target };
        self.answer::<Entry>(Op::Symlink, &args).attr.inode
    }

    pub(crate) fn unlink(&mut self, parent: InodeNo, text: &str) -> Effect {
        self.execute(Op::Unlink, &Unlink { caller: root(), parent, name: name(text), behind: None })
    }

    pub(crate) fn open(&mut self, inode: InodeNo, handle: Handle) -> Status {
        self.status(Op::Open, &Open { caller: root(), inode, handle })
    }

    pub(crate) fn attr(&mut self, inode: InodeNo) -> Attr {
        self.answer::<Entry>(Op::Getattr, &Getattr { inode }).attr
    }

    pub(crate) fn lookup(&mut self, parent: InodeNo, text: &str) -> Option<InodeNo> {
        let args = Lookup { caller: root(), parent, name: name(text) };
        match self.status(Op::Lookup, &args) {
            Status::Ok => Some(Entry::decode_all(&self.reply).unwrap().attr.inode),
            status => {
                assert_eq!(status, Status::NotFound);
                None
            }
        }
    }

    /// Sets mode and owner as root.
    pub(crate) fn set(&mut self, inode: InodeNo, mode: u32, uid: u32, gid: u32) {
        let owner = Setattr { uid: Some(uid), gid: Some(gid), ..setattr(inode) };
        assert_eq!(self.status(Op::Setattr, &owner), Status::Ok);
        let args = Setattr { mode: Some(mode), ..setattr(inode) };
        assert_eq!(self.status(Op::Setattr, &args), Status::Ok);
    }

    pub(crate) fn dump(&self) -> Vec<String> {
        self.shard.state.dump()
    }

    /// A shard redone from the log.
    pub(crate) fn redone(&self) -> Shard {
        redone(ShardId::meta(0), &self.log)
    }

    /// Checks that the log alone gives this state.
    pub(crate) fn check_redo(&self) {
        let redone_first = self.redone();
        assert_eq!(self.dump(), redone_first.state.dump(), "redone");
        if self.boot_id == 0 && self.others.is_empty() {
            assert_eq!(self.shard.state.numbers(), redone_first.state.numbers());
        }
        check_rows(&redone_first, &self.log);
        for Other { shard, log } in &self.others {
            let other = redone(shard.id(), log);
            assert_eq!(shard.state.dump(), other.state.dump(), "redone");
            check_rows(&other, log);
        }
    }

    /// Stops and starts again from the log.
    pub(crate) fn restart(&mut self) {
        self.boot_id += 1;
        self.shard = self.redone();
        self.shard.start_term(Term::of_boot(self.boot_id));
    }
}

/// A shard redone from its log.
fn redone(shard: ShardId, log: &[(Transno, Vec<u8>)]) -> Shard {
    let mut shard = Shard::new(shard, MADE);
    for (transno, changes) in log {
        shard.replay(*transno, changes).unwrap();
    }
    shard
}

/// The records of a shard's log.
fn records(shard: ShardId, log: &[(Transno, Vec<u8>)]) -> impl Iterator<Item = Record<'_>> {
    (1..).zip(log).map(move |(lsn, (transno, changes))| Record {
        shard,
        lsn,
        term: Term(1),
        transno: *transno,
        pre_versions: PreVersions::new(),
        origin: Origin::Internal,
        changes,
    })
}

/// Checks that applying the log to rows and loading them gives the same state as redo.
fn check_rows(redone: &Shard, log: &[(Transno, Vec<u8>)]) {
    let mut rows = RowStore::default();
    if redone.id() == ShardId::meta(0) {
        rows.begin(MADE).unwrap();
    }
    rows.apply(records(redone.id(), log)).unwrap();
    let mut loaded = Shard::new(redone.id(), MADE);
    rows.each(&Range::all(), |row| loaded.load(row)).unwrap();
    assert_eq!(loaded.state.dump(), redone.state.dump());
    assert_eq!(loaded.state.numbers(), redone.state.numbers());
    assert_eq!(rows.shard(redone.id()).unwrap().inode_count, redone.inode_count());
    let entry_count = rows.rows.keys().filter(|key| key[0] == 2).count();
    assert_eq!(entry_count, rows.rows.keys().filter(|key| key[0] == 3).count(), "both tables");
}

/// A setattr by root without attributes.
pub(crate) fn setattr(inode: InodeNo) -> Setattr<'static> {
    Setattr {
        caller: root(),
        inode,
        mode: None,
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    }
}
