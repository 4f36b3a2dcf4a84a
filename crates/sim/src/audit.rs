//! The audit: a new client reads everything, and finds what the model computed.

use crate::due::Verdict;
use crate::model::{Node, Tree};
use crate::number::wide;
use crate::reply::{ReplyBytes, entries_of};
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, CallState, Tag, name_bytes, text_of, xattr_name};
use std::collections::{BTreeMap, VecDeque};
use wire::{Attr, ClientUuid, FileKind, InodeNo, Op, ShardId, Transno};

/// A read that is explained only if acknowledged changes of the file are lost.
#[derive(Clone, Debug)]
pub(crate) struct LossyRead {
    pub(crate) client: usize,
    pub(crate) inode: InodeNo,
    pub(crate) line: String,
}

/// What an audit has read so far.
#[derive(Default, Debug)]
pub(crate) struct Audit {
    client: usize,
    todo: VecDeque<CallSpec>,
    names: BTreeMap<(InodeNo, Vec<u8>), InodeNo>,
    attrs: BTreeMap<InodeNo, Attr>,
    sizes: BTreeMap<InodeNo, u64>,
    targets: BTreeMap<InodeNo, Vec<u8>>,
    xattrs: BTreeMap<InodeNo, BTreeMap<Vec<u8>, Vec<u8>>>,
}

const READ_BYTES: u32 = 1 << 20;
const DEPTH: usize = 8;

impl Simulation {
    /// Begins an audit by a new client, which may name a dead client as its predecessor.
    pub(crate) fn begin_audit(&mut self) {
        let mut dead = self.mounts.iter().filter(|mount| !mount.alive).map(|mount| mount.uuid);
        let dead = dead.next().filter(|_| self.prng.number().is_multiple_of(2));
        let client = self.mount(1, true, dead.unwrap_or(ClientUuid::NONE));
        let todo = VecDeque::from([CallSpec::Getattr { inode: InodeNo::ROOT }]);
        self.audit = Audit { client, todo, ..Audit::default() };
        self.continue_audit();
    }

    fn continue_audit(&mut self) {
        let client = self.audit.client;
        while self.mounts[client].lanes[0].outstanding.len() < DEPTH {
            let Some(spec) = self.audit.todo.pop_front() else { return };
            self.begin_call(client, 0, spec);
        }
    }

    pub(crate) fn audit_is_over(&self) -> bool {
        let sim_lane = &self.mounts[self.audit.client].lanes[0];
        self.audit.todo.is_empty() && sim_lane.outstanding.is_empty()
    }

    /// A call of the audit is answered.
    pub(crate) fn on_audit_reply(
        &mut self,
        _tag: Tag,
        call: &CallRecord,
        reply_bytes: &ReplyBytes,
    ) {
        let Some(result) = call.result() else {
            if self.lying_disk.is_any() {
                return self.continue_audit(); // The lying disk may have lost a part of the inode.
            }
            if let CallSpec::Read { inode, .. } = call.spec
                && self.flipped.keys().any(|object| object.inode == inode)
            {
                return self.continue_audit();
            }
            return self.violates(format!("the audit's {:?}: {:?}", call.spec, call.ended));
        };
        let audit = &mut self.audit;
        let bytes = reply_bytes.bytes.clone();
        match call.spec {
            CallSpec::Getattr { inode } => {
                let Some(attr) = result.attr else { return };
                audit.attrs.insert(inode, attr);
                audit.todo.extend(match attr.kind {
                    FileKind::Directory => Some(CallSpec::Readdir { inode, cookie: 0 }),
                    FileKind::Symlink => Some(CallSpec::Readlink { inode }),
                    FileKind::File => {
                        Some(CallSpec::Read { inode, file_offset: 0, read_bytes: READ_BYTES })
                    }
                    FileKind::Fifo
                    | FileKind::Socket
                    | FileKind::CharDevice
                    | FileKind::BlockDevice => None,
                });
                audit.todo.push_back(CallSpec::Listxattr { inode });
            }
            CallSpec::Readdir { inode, .. } => self.audit_listing(inode, &bytes),
            CallSpec::Readlink { inode } => drop(audit.targets.insert(inode, bytes)),
            CallSpec::Read { inode, .. } => drop(audit.sizes.insert(inode, wide(bytes.len()))),
            CallSpec::Listxattr { inode } => {
                let names: Vec<_> = bytes.split(|byte| *byte == 0).collect();
                for number in 0..2 {
                    if names.contains(&xattr_name(number)) {
                        audit.todo.push_back(CallSpec::Getxattr { inode, name: number });
                    }
                }
            }
            CallSpec::Getxattr { inode, name } => {
                let xattrs = audit.xattrs.entry(inode).or_default();
                xattrs.insert(xattr_name(name).to_vec(), bytes);
            }
            _ => {}
        }
        self.continue_audit();
    }

    fn audit_listing(&mut self, dir: InodeNo, bytes: &[u8]) {
        let Some((end, entries)) = entries_of(bytes) else {
            return self.violates(format!("the listing of {dir} does not decode"));
        };
        let audit = &mut self.audit;
        let last = entries.last().map(|(cookie, ..)| *cookie);
        for (_, inode, name) in entries {
            if audit.names.insert((dir, name), inode).is_some() {
                return self.violates(format!("directory {dir} lists a name twice"));
            }
            audit.todo.push_back(CallSpec::Getattr { inode });
        }
        if !end && let Some(cookie) = last {
            audit.todo.push_back(CallSpec::Readdir { inode: dir, cookie });
        }
    }

    /// All checks at the end of a run.
    pub(crate) fn judge(&self) -> Verdict {
        self.judge_calls()?;
        self.judge_order()?;
        self.judge_privileges()?;
        let tree = self.executed()?;
        self.judge_appends(&tree)?;
        self.judge_names(&tree)?;
        self.judge_lossy_reads(&tree)?;
        self.judge_missed(&tree)?;
        for (inode, attr) in &self.audit.attrs {
            let node = tree.nodes.get(inode);
            let node = node.ok_or_else(|| format!("I15: no call made inode {inode}"))?;
            self.judge_inode(*inode, attr, node)?;
        }
        Ok(())
    }

    /// I3, I5: an acknowledged call of a living client is in the log once.
    fn judge_calls(&self) -> Verdict {
        let mut places: BTreeMap<Tag, Vec<(ShardId, Transno)>> = BTreeMap::new();
        for ((shard, transno), txn) in &self.tap.durable {
            if let Some(tag) = txn.tag.filter(|_| txn.op != Op::Open) {
                places.entry(tag).or_default().push((*shard, *transno));
            }
        }
        for (tag, places) in &places {
            let effective = |at: &&(ShardId, Transno)| self.tap.durable[*at].effective;
            if places.iter().filter(effective).count() > 1 {
                return Err(format!("I3: call {tag} took effect at {places:?}"));
            }
        }
        for (index, call) in self.calls.iter().enumerate() {
            let tag = crate::number::narrow_u32(index + 1);
            if call.result().is_some() && call.spec.changes_tree() {
                self.judge_acknowledged(tag, call, places.contains_key(&tag))?;
            }
        }
        Ok(())
    }

    fn judge_acknowledged(&self, tag: Tag, call: &CallRecord, there: bool) -> Verdict {
        let answers = self.tap.answers.get(&tag).map_or(&[][..], Vec::as_slice);
        let changed = answers.iter().any(|(_, transno, _)| transno.0 > 0);
        let synced = answers.iter().any(|(shard, ..)| self.is_synced(call, *shard));
        // What was answered early may be refused, or die with its client before it is executed.
        if there || !(self.is_certain(call) || synced) || self.may_lack_early(tag) {
            return Ok(());
        }
        if changed {
            return Err(format!("I5: call {tag} {:?} was acknowledged and is lost", call.spec));
        }
        // Two names of one file, bits that were cleared, or a file that existed.
        let idle = match call.spec {
            CallSpec::Rename { .. } | CallSpec::ClearBits { .. } => true,
            CallSpec::Create { .. } => call.result().is_some_and(|result| !result.made),
            _ => false,
        };
        if idle {
            Ok(())
        } else {
            Err(format!("call {tag} {:?} is done, and nothing changed", call.spec))
        }
    }

    /// A file without a name is removed when the client that has it open is evicted. The client may
    /// use it before all its lanes have learned of that.
    fn is_removed_with(&self, client: usize, inode: InodeNo, tree: &Tree) -> bool {
        let has_name = tree.nodes.get(&inode).is_some_and(|node| node.nlink > 0);
        self.mounts[client].evicted_ns.is_some() && !has_name
    }

    /// Each acknowledged append of a living client has a place of its own, unless the file became
    /// shorter, or was removed.
    fn judge_appends(&self, tree: &Tree) -> Verdict {
        let mut appended: BTreeMap<InodeNo, Vec<(u64, u64)>> = BTreeMap::new();
        let mut shortest: BTreeMap<InodeNo, u64> = BTreeMap::new();
        for call in &self.calls {
            match call.spec {
                CallSpec::Write { inode, append: true, .. }
                    if self.is_certain(call) && !self.is_removed_with(call.client, inode, tree) =>
                {
                    let result = call.result();
                    let place = result.and_then(|it| it.file_offset.zip(it.written_bytes));
                    let place = place.map(|(from, bytes)| (from, from + u64::from(bytes)));
                    appended.entry(inode).or_default().extend(place);
                }
                CallSpec::Resize { inode, size_bytes, .. } => {
                    let known = shortest.entry(inode).or_insert(size_bytes);
                    *known = size_bytes.min(*known);
                }
                _ => {}
            }
        }
        for (inode, mut places) in appended {
            places.sort_unstable();
            let shortest = shortest.get(&inode).copied().unwrap_or(u64::MAX);
            let overlap = places.windows(2).find(|pair| pair[0].1.min(shortest) > pair[1].0);
            if let Some(pair) = overlap {
                return Err(format!("two appends to inode {inode} lie on each other: {pair:?}"));
            }
        }
        Ok(())
    }

    /// A call that began after the reply to another comes after it in the order of transactions.
    fn judge_order(&self) -> Verdict {
        let mut latest_sent: BTreeMap<ShardId, (u64, Transno)> = BTreeMap::new();
        for ((shard, transno), txn) in &self.tap.durable {
            let Some(tag) = txn.tag else { continue };
            let sent_ns = self.tap.sent_ns(*shard, txn);
            let answers = self.tap.answers.get(&tag).map_or(&[][..], Vec::as_slice);
            let answered = answers.iter().find(|answer| (answer.0, answer.1) == (*shard, *transno));
            let latest = latest_sent.entry(*shard).or_insert((0, Transno(0)));
            if let Some((.., answered_ns)) = answered
                && *answered_ns < latest.0
            {
                let before = latest.1;
                return Err(format!(
                    "{shard}: T {transno} was answered before T {before} was sent"
                ));
            }
            if sent_ns > latest.0 {
                *latest = (sent_ns, *transno);
            }
        }
        Ok(())
    }

    fn judge_lossy_reads(&self, tree: &Tree) -> Verdict {
        let is_explained = |read: &&LossyRead| self.is_removed_with(read.client, read.inode, tree);
        match self.lossy_reads.iter().find(|read| !is_explained(read)) {
            Some(read) => Err(read.line.clone()),
            None => Ok(()),
        }
    }

    /// An inode that an answered call has made, and that has a name in the end, was there all the
    /// time in between, unless a removal of it was lost with a server. Numbers are never used again.
    fn judge_missed(&self, tree: &Tree) -> Verdict {
        let removes = |call: &&CallRecord| {
            matches!(
                call.spec,
                CallSpec::Rmdir { .. } | CallSpec::Unlink { .. } | CallSpec::Rename { .. }
            )
        };
        let mut removals = self.calls.iter().filter(removes);
        if removals.any(|call| call.may_have_happened() && !self.is_certain(call)) {
            return Ok(());
        }
        let mut made: BTreeMap<InodeNo, u64> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| self.is_certain(call)) {
            let makes = matches!(call.spec, CallSpec::Mkdir { .. } | CallSpec::Symlink { .. });
            let result = call.result().filter(|result| result.made || makes);
            let Some((result, ended_ns)) = result.zip(call.ended_ns) else { continue };
            made.extend(result.inode.map(|inode| (inode, ended_ns)));
        }
        for call in &self.calls {
            let CallSpec::Getattr { inode } = call.spec else { continue };
            let missed = call.ended == CallState::Failed(wire::Status::Stale);
            let is_left = tree.nodes.get(&inode).is_some_and(|node| node.nlink > 0);
            let was_made = made.get(&inode).is_some_and(|ended_ns| *ended_ns < call.began_ns);
            let evicted = self.mounts[call.client].evicted_ns.is_some();
            if missed && is_left && was_made && !evicted {
                return Err(format!("I15: inode {inode} was missing for {:?}", call.spec));
            }
        }
        Ok(())
    }

    fn judge_names(&self, tree: &Tree) -> Verdict {
        let mut wanted = BTreeMap::new();
        for (dir, node) in tree.nodes.iter().filter(|(_, node)| node.nlink > 0) {
            for (name, inode) in &node.entries {
                wanted.insert((*dir, name_bytes(*name).to_vec()), *inode);
            }
        }
        for (at, inode) in &wanted {
            let found = self.audit.names.get(at);
            if found != Some(inode) {
                let name = String::from_utf8_lossy(&at.1);
                return Err(format!("I15: {}/{name} is {inode}, found {found:?}", at.0));
            }
        }
        for (at, inode) in &self.audit.names {
            if !wanted.contains_key(at) {
                let name = String::from_utf8_lossy(&at.1);
                return Err(format!("I15: {}/{name} is {inode}, and should not be", at.0));
            }
        }
        Ok(())
    }

    fn judge_inode(&self, inode: InodeNo, attr: &Attr, node: &Node) -> Verdict {
        let differs = |what: &str| Err(format!("I15: inode {inode}: {what}: {attr:?}, {node:?}"));
        if attr.kind != node.kind {
            return differs("kind");
        }
        if node.mode.is_some_and(|mode| mode != attr.mode) {
            return differs("mode");
        }
        if attr.nlink != node.nlink {
            return differs("links");
        }
        let target = self.audit.targets.get(&inode).map(Vec::as_slice);
        if target != node.target.map(text_of).as_ref().map(<[u8; 4]>::as_slice) {
            return differs("target");
        }
        let found = self.audit.xattrs.get(&inode).cloned().unwrap_or_default();
        let wanted = node.xattrs.iter();
        let wanted: BTreeMap<Vec<u8>, Vec<u8>> = wanted
            .map(|(name, tag)| (xattr_name(*name).to_vec(), text_of(*tag).to_vec()))
            .collect();
        if found != wanted {
            return differs("extended attributes");
        }
        let size_bytes = self.audit.sizes.get(&inode).copied();
        let flipped = self.flipped.keys().any(|object| object.inode == inode);
        let unread = flipped && size_bytes.is_none();
        if node.kind == FileKind::File && size_bytes != Some(attr.size_bytes) && !unread {
            return differs(&format!("{size_bytes:?} bytes can be read"));
        }
        Ok(())
    }
}
