//! Several shards: requests are routed, and transactions over several shards are planned, prepared
//! and applied as lanes do it, without concurrency.

use super::{Harness, MADE};
use crate::{DirectoryPlacement, Effect, MetaRequest, Plan, Requirement, Shard, View};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use disk::{Change, TxnChange, TxnId};
use wire::{
    Access, Close, Create, Created, Entry, Find, Getattr, Getxattr, InodeNo, Link, Listxattr,
    Lookup, Mkdir, Mknod, Op, Open, Readdir, Readlink, Removexattr, Rename, Reopen, Rmdir, Setattr,
    Setxattr, ShardId, Status, Symlink, Tmpfile, Transno, Unlink, Wire, Writer, attr_flag,
};

/// A shard besides the first, and its records.
pub(crate) struct Other {
    pub(crate) shard: Shard,
    pub(crate) log: Vec<(Transno, Vec<u8>)>,
}

/// The inode that a request is about.
pub(super) fn about(op: Op, body: &[u8]) -> InodeNo {
    macro_rules! field {
        ($args:ident, $field:ident) => {
            $args::decode_all(body).map_or(InodeNo::ROOT, |args| args.$field)
        };
    }
    match op {
        Op::Lookup => field!(Lookup, parent),
        Op::Create => field!(Create, parent),
        Op::Mkdir => field!(Mkdir, parent),
        Op::Symlink => field!(Symlink, parent),
        Op::Tmpfile => field!(Tmpfile, parent),
        Op::Mknod => field!(Mknod, parent),
        Op::Link => field!(Link, parent),
        Op::Unlink => field!(Unlink, parent),
        Op::Rmdir => field!(Rmdir, parent),
        Op::Rename => field!(Rename, parent),
        Op::Getattr => field!(Getattr, inode),
        Op::Setattr => field!(Setattr, inode),
        Op::Readlink => field!(Readlink, inode),
        Op::Readdir => field!(Readdir, inode),
        Op::Find => field!(Find, inode),
        Op::Open => field!(Open, inode),
        Op::Close => field!(Close, inode),
        Op::Reopen => field!(Reopen, inode),
        Op::Access => field!(Access, inode),
        Op::Getxattr => field!(Getxattr, inode),
        Op::Setxattr => field!(Setxattr, inode),
        Op::Listxattr => field!(Listxattr, inode),
        Op::Removexattr => field!(Removexattr, inode),
        _ => InodeNo::ROOT,
    }
}

impl Harness {
    /// This number of shards.
    pub(crate) fn of_shards(count: u16) -> Self {
        let other =
            |index| Other { shard: Shard::new(ShardId::meta(index), MADE), log: Vec::new() };
        Self { others: (1..count).map(other).collect(), ..Self::new() }
    }

    pub(crate) fn at(&mut self, shard: ShardId) -> (&mut Shard, &mut Vec<(Transno, Vec<u8>)>) {
        let index = usize::from(shard.index()).checked_sub(1);
        match index.and_then(|index| self.others.get_mut(index)) {
            None => (&mut self.shard, &mut self.log),
            Some(other) => (&mut other.shard, &mut other.log),
        }
    }

    /// Number of operations over several shards, also failed ones.
    pub(crate) const fn txn_count(&self) -> u64 {
        self.txn_count
    }

    fn shard_count(&self) -> u16 {
        u16::try_from(self.others.len() + 1).unwrap()
    }

    /// Sets the placement of the next directory.
    pub(super) fn roll_placement(&mut self, at: ShardId) {
        let shard = ShardId::meta(u16::try_from(self.now.secs).unwrap_or(0) % self.shard_count());
        self.at(at).0.set_placement(Some(DirectoryPlacement { shard, depth_max: 2 }));
    }

    /// Executes a transaction over several shards.
    pub(super) fn multi_shard(&mut self, at: ShardId, request: &MetaRequest<'_>) -> Effect {
        self.txn_count += 1;
        let txn = TxnId { coordinator: at, number: self.txn_count };
        let (mut view, mut plan) = (View::default(), Plan::default());
        let mut touched = BTreeSet::new();
        let status = loop {
            let before = plan.requirements.clone();
            let status = self.at(at).0.plan(request, txn, &view, &mut plan).unwrap();
            if status == Status::Busy && self.fetch_missing(at) {
                continue;
            }
            if status != Status::CrossDevice {
                break status;
            }
            assert!(
                !plan.requirements.is_empty() && plan.requirements != before,
                "it gets further"
            );
            for want in &plan.requirements {
                if want.shard().index() >= self.shard_count() {
                    self.release_all(txn);
                    return Effect::unchanged(Status::Stale);
                }
                touched.insert(want.shard());
                self.lock_and_read(txn, want, &mut view);
            }
        };
        let mut effect = Effect::unchanged(status);
        if status == Status::Ok {
            self.reply.extend_from_slice(&plan.reply);
            self.apply_parts(txn, &plan, &mut effect);
        } else {
            assert!(plan.parts.is_empty(), "what fails changes nothing");
        }
        self.release_all(txn);
        self.let_go();
        effect
    }

    fn lock_and_read(&mut self, txn: TxnId, want: &Requirement, view: &mut View) {
        let mut seen = Vec::new();
        loop {
            let (shard, _) = self.at(want.shard());
            let looked = shard.lock_and_read(txn, &want.to_bytes(), &mut seen).unwrap();
            if looked.is_ok() || !self.fetch_missing(want.shard()) {
                assert_eq!(looked, Ok(()), "nobody else is there");
                break;
            }
        }
        self.let_go();
        view.add(&seen).unwrap();
    }

    /// Prepares everywhere, decides, and applies every part.
    fn apply_parts(&mut self, txn: TxnId, plan: &Plan, effect: &mut Effect) {
        let mut prepared = Vec::new();
        let others = plan.parts.iter().filter(|(shard, _)| **shard != txn.coordinator);
        for (id, part) in others {
            let (mut stamped, mut changes) = (Vec::new(), Vec::new());
            let (shard, log) = self.at(*id);
            let by = shard.prepare(txn, part, &mut stamped, &mut changes).unwrap().transno;
            log.push((by, changes));
            prepared.push((*id, by, stamped));
        }
        if let Some(part) = plan.parts.get(&txn.coordinator) {
            let mut changes = Vec::new();
            let (shard, log) = self.at(txn.coordinator);
            *effect = shard.decide(part, None, &mut changes).unwrap();
            log.push((effect.transno, changes));
        }
        for (id, by, part) in prepared {
            let mut changes = Vec::new();
            let (shard, log) = self.at(id);
            let made = shard
                .apply_part((by, &part), &Change::Txn(TxnChange::Done { txn }), &mut changes)
                .unwrap();
            log.push((made.transno, changes));
            effect.orphan = effect.orphan.or(made.orphan);
        }
    }

    fn release_all(&mut self, txn: TxnId) {
        for index in 0..self.shard_count() {
            let (shard, _) = self.at(ShardId::meta(index));
            shard.release(txn);
            assert!(shard.is_unlocked());
        }
    }

    /// Queries another shard for attributes that an entry lacks, as a client does.
    pub(super) fn complete(&mut self, op: Op, body: &[u8], effect: Effect) -> Effect {
        if effect.status != Status::Ok || self.others.is_empty() {
            return effect;
        }
        let here = about(op, body).shard();
        let (attr, create) = match op {
            Op::Lookup => (Entry::decode_all(&self.reply).unwrap().attr, None),
            Op::Create => {
                let created = Created::decode_all(&self.reply).unwrap();
                (created.attr, Some(Create::decode_all(body).unwrap()))
            }
            _ => return effect,
        };
        assert_eq!(attr.flags & attr_flag::ELSEWHERE != 0, attr.inode.shard() != here);
        if attr.inode.shard() == here {
            return effect;
        }
        self.now.secs -= 1; // It is one call.
        let inode = attr.inode;
        let Some((create, handle)) = create.and_then(|create| Some((create, create.handle?)))
        else {
            let found = self.execute(Op::Getattr, &Getattr { inode });
            return self.as_created(op, found);
        };
        let opened = self.execute(Op::Open, &Open { caller: create.caller, inode, handle });
        self.as_created(op, opened)
    }

    fn as_created(&mut self, op: Op, effect: Effect) -> Effect {
        if op == Op::Create && effect.status == Status::Ok {
            let attr = Entry::decode_all(&self.reply).unwrap().attr;
            self.reply.clear();
            Writer::new(&mut self.reply).write(&Created { attr, made: false });
        }
        effect
    }

    pub(crate) fn orphans(&self) -> BTreeSet<InodeNo> {
        let shards = self.others.iter().map(|other| &other.shard).chain([&self.shard]);
        shards.flat_map(Shard::orphans).collect()
    }

    pub(crate) fn inode_count(&self) -> u64 {
        let others = self.others.iter().map(|other| other.shard.inode_count());
        others.sum::<u64>() + self.shard.inode_count()
    }
}
