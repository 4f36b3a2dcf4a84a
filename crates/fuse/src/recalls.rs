//! Recalls: the kernel drops what another client is about to change, and then the server hears of
//! it.
//!
//! ```text
//! recall ─▶ notifies ─▶ outcomes ─▶ acknowledge        connection lost ─▶ notifies ─▶ dropped
//! ```
//! A notify about a name waits for requests of this mount in that directory, and such a request may
//! wait for this very recall: then the kernel forgets all names instead, which waits for nothing.
//! What cannot be dropped has ended when all validity has expired that was given before.
//!
//! Invariant: a recall is acknowledged when nothing that it names can be answered from a cache.

use crate::abi::Opcode;
use crate::args::split;
use crate::early::Created;
use crate::lane::MountLane;
use crate::leases::APPLY_MS_MAX;
use crate::node::Node;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use client::{RecallId, RecalledKey};
use interface::{Action, Errno, KernelAction, KernelNotify, LogLevel, Mono, Span, Ticket, Turn};
use wire::InodeNo;

/// How long a notify about a name may take before the kernel forgets all names.
const NAME_MS_MAX: u64 = 2;
/// How long the kernel may take to drop pages after a connection was lost: a page that is being read
/// is dropped only when it was read, over a new connection.
const DROP_MS_MAX: u64 = 100;
/// Files whose pages the kernel drops in a millisecond, besides.
const DROPS_PER_MS: u64 = 20;
/// A notify that takes longer is logged.
const STUCK_MS_MIN: u64 = 2_000;
/// The most notifies about names under way; beyond, the kernel forgets all names.
const NAME_COUNT_MAX: usize = 1_024;

/// Pages stay until they are dropped: a mapping asks for no validity.
const NEVER: Mono = Mono(u64::MAX);

/// A name below a node.
type NodeName = (u64, Vec<u8>);
/// Both names of a rename.
type RenamedNames = [NodeName; 2];

const ABSENT: Errno = Errno(2);
const BUSY: Errno = Errno(16);
/// Of a notify whose outcome is not needed.
const UNHEARD: Ticket = Ticket(0);

#[derive(Clone, Copy, Debug)]
enum Cause {
    Recall(RecallId),
    /// All leases are lost.
    Drop,
    /// A create was answered early, and has not got the leases of the name and the attributes.
    Created,
}

/// A recall under way.
#[derive(Debug)]
struct Work {
    cause: Cause,
    wait_count: usize,
    /// It is done at the latest then.
    until: Mono,
}

/// A notify under way.
#[derive(Debug)]
enum Notice {
    Attributes {
        node: Node,
        again: bool,
    },
    Name,
    /// A name that a directory may have.
    DirectoryName(NodeName),
    AllNames,
    Contents,
    /// The names of a rename that the kernel may have cached without a lease.
    Renamed(RenamedNames),
}

#[derive(Debug)]
struct Waiting {
    /// The work that waits.
    work_no: Option<u64>,
    since: Mono,
    logged: bool,
    notice: Notice,
}

/// The recalls of a lane.
#[derive(Debug, Default)]
pub(crate) struct Recalls {
    works: BTreeMap<u64, Work>,
    waiting: BTreeMap<u64, Waiting>,
    /// Attributes that are dropped again, and when.
    again: Vec<(Mono, u64, Node)>,
    /// Names that expire again, when, and the work that waits for it.
    expire_again: Vec<(Mono, Option<u64>, NodeName)>,
    /// Files and directories that are changed behind no more, when the server hears of it, and the work
    /// that waits for it.
    ended: Vec<(Mono, InodeNo, Option<u64>)>,
    number_last: u64,
}

impl Recalls {
    fn number(&mut self) -> u64 {
        self.number_last += 1;
        self.number_last
    }

    fn is_idle(&self) -> bool {
        self.works.is_empty()
            && self.waiting.is_empty()
            && self.expire_again.is_empty()
            && self.ended.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = (&u64, &Waiting)> {
        let waiting = self.waiting.iter();
        waiting.filter(|(_, it)| matches!(it.notice, Notice::Name | Notice::DirectoryName(_)))
    }
}

impl MountLane {
    /// Begins the recalls that have arrived, and the drop of everything. True if there were any.
    pub(crate) fn take_recalls(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut any = false;
        self.end_lost_writing(turn.now.mono);
        if self.client.take_drop() {
            any = true;
            self.forget_known();
            let held_count = u64::try_from(self.leases.held_count()).unwrap_or(u64::MAX);
            let drop_ms = DROP_MS_MAX.saturating_add(held_count / DROPS_PER_MS);
            let until = turn.now.mono.after_ms(drop_ms);
            let work_no = self.begin_work(Cause::Drop, until);
            self.drop_all(turn, work_no);
            self.end_if_done(work_no);
        }
        self.end_term(turn);
        while let Some((id, keys)) = self.client.next_recall() {
            any = true;
            let drops_pages = keys.iter().any(|key| match key {
                RecalledKey::Contents(_)
                | RecalledKey::Pages(_)
                | RecalledKey::Writing(_)
                | RecalledKey::All => true,
                RecalledKey::Attributes(_) | RecalledKey::Name(..) => false,
            });
            let until = if drops_pages { NEVER } else { self.leases.until() };
            let work_no = self.begin_work(Cause::Recall(id), until);
            for key in keys {
                let of_directory = self.recall_known(turn.now.mono, &key);
                self.drop_key(turn, work_no, key, of_directory);
            }
            self.end_if_done(work_no);
        }
        any
    }

    fn begin_work(&mut self, cause: Cause, until: Mono) -> u64 {
        let work_no = self.recalls.number();
        self.recalls.works.insert(work_no, Work { cause, wait_count: 0, until });
        work_no
    }

    fn end_if_done(&mut self, work_no: u64) {
        if self.recalls.works.get(&work_no).is_some_and(|work| work.wait_count == 0) {
            self.end_work(work_no);
        }
    }

    fn end_work(&mut self, work_no: u64) {
        match self.recalls.works.remove(&work_no).map(|work| work.cause) {
            Some(Cause::Recall(id)) => self.client.acknowledge(id),
            Some(Cause::Drop) => self.client.dropped(),
            Some(Cause::Created) => {
                self.behind.dropped.extend(self.behind.dropping.remove(&work_no));
            }
            None => {}
        }
    }

    /// Begins a notify for which a work waits, if one is named.
    fn notify(
        &mut self,
        turn: &mut Turn<'_>,
        work_no: Option<u64>,
        notice: Notice,
        notify: KernelNotify,
    ) {
        let number = self.recalls.number();
        let since = turn.now.mono;
        self.recalls.waiting.insert(number, Waiting { work_no, since, logged: false, notice });
        if let Some(work) = work_no.and_then(|work_no| self.recalls.works.get_mut(&work_no)) {
            work.wait_count += 1;
        }
        turn.act(KernelAction::Notify { ticket: Ticket(number), notify });
    }

    fn drop_key(
        &mut self,
        turn: &mut Turn<'_>,
        work_no: u64,
        key: RecalledKey,
        of_directory: bool,
    ) {
        match key {
            RecalledKey::Attributes(inode) => {
                self.register_recalled(turn, work_no, inode);
                let mut nodes = self.leases.nodes(turn.now.mono, inode);
                if nodes.is_empty() {
                    nodes.push(Node::plain(inode));
                }
                for node in nodes {
                    self.drop_attributes(turn, work_no, node, false);
                }
            }
            RecalledKey::Name(directory, name) => {
                self.drop_name(turn, work_no, (directory, &name), of_directory);
            }
            RecalledKey::Contents(inode) => self.drop_pages(turn, Some(work_no), inode),
            RecalledKey::Pages(inode) => {
                self.ahead.remove(turn, inode);
                self.leases.release_pages(inode);
                self.drop_pages(turn, Some(work_no), inode);
            }
            RecalledKey::Writing(inode) => self.recall_writing(turn.now.mono, work_no, inode),
            RecalledKey::All => {
                self.register_all(turn, work_no);
                self.drop_all(turn, work_no);
            }
        }
    }

    /// The kernel drops a name and attributes that it was given without leases, and then the create is
    /// over.
    pub(crate) fn drop_early_entry(&mut self, turn: &mut Turn<'_>, name: &[u8], created: Created) {
        let work_no = self.begin_work(Cause::Created, NEVER);
        self.behind.dropping.insert(work_no, created);
        self.drop_name(turn, work_no, (created.directory, name), false);
        self.drop_attributes(turn, work_no, Node::plain(created.inode), false);
    }

    fn drop_attributes(&mut self, turn: &mut Turn<'_>, work_no: u64, node: Node, again: bool) {
        let notify = KernelNotify::Attributes { node: node.0 };
        self.notify(turn, Some(work_no), Notice::Attributes { node, again }, notify);
    }

    fn drop_name(
        &mut self,
        turn: &mut Turn<'_>,
        work_no: u64,
        (directory, name): (InodeNo, &[u8]),
        of_directory: bool,
    ) {
        if !self.leases.forgets_names {
            return; // It caches none.
        }
        let nodes = self.leases.nodes(turn.now.mono, directory);
        let many = self.recalls.names().count() >= NAME_COUNT_MAX;
        for node in nodes.iter().filter(|_| !many) {
            let notice = if of_directory {
                Notice::DirectoryName((node.0, name.to_vec()))
            } else {
                Notice::Name
            };
            let name = turn.arena.put(name);
            let notify = KernelNotify::Name { parent: node.0, name, of_directory };
            self.notify(turn, Some(work_no), notice, notify);
        }
        if many || (!nodes.is_empty() && self.is_changing(directory)) {
            self.forget_names(turn, Some(work_no));
        }
    }

    /// Whether a request is unanswered that changes this directory.
    fn is_changing(&self, directory: InodeNo) -> bool {
        self.pendings.all().into_iter().any(|pending_id| {
            let pending = self.pendings.get(pending_id);
            let header = pending.and_then(|pending| split(&pending.request).ok());
            header.is_some_and(|(header, _)| {
                let opcode = Opcode::from_number(header.opcode);
                // A lookup is answered whatever is recalled.
                let opcode = opcode.filter(|opcode| *opcode != Opcode::Lookup);
                let changes = opcode.is_some_and(Opcode::is_of_names);
                changes && (header.inode == directory || is_rename(header.opcode))
            })
        })
    }

    /// The kernel forgets all names, at once.
    fn forget_names(&mut self, turn: &mut Turn<'_>, work_no: Option<u64>) {
        self.notify(turn, work_no, Notice::AllNames, KernelNotify::AllNames);
    }

    fn drop_all(&mut self, turn: &mut Turn<'_>, work_no: u64) {
        if self.leases.forgets_names {
            self.forget_names(turn, Some(work_no));
        }
        self.ahead.clear(turn);
        let mut with_pages = self.leases.take_held();
        for given in self.leases.take_given(turn.now.mono) {
            if given.contents {
                with_pages.insert(given.node.inode());
            } else {
                let notify = KernelNotify::Attributes { node: given.node.0 };
                turn.act(KernelAction::Notify { ticket: UNHEARD, notify });
            }
        }
        for inode in with_pages {
            self.drop_pages(turn, Some(work_no), inode);
        }
    }

    /// The kernel drops its pages of a file, those in mappings too.
    fn drop_pages(&mut self, turn: &mut Turn<'_>, work_no: Option<u64>, inode: InodeNo) {
        let notify = KernelNotify::Contents { node: Node::plain(inode).0 };
        self.notify(turn, work_no, Notice::Contents, notify);
    }

    /// The kernel gets pages of a file with the reply that was just given to it. Without a lease it
    /// drops them again, because nothing would tell it when they are outdated.
    pub(crate) fn hold_pages(&mut self, turn: &mut Turn<'_>, inode: InodeNo, lease: Option<Mono>) {
        if !self.leases.on || !self.client.was_granted_any() {
            return;
        }
        let dropped = match lease {
            Some(_) => self.leases.hold_pages(inode),
            None => Some(inode),
        };
        if let Some(inode) = dropped {
            self.drop_pages(turn, None, inode);
        }
    }

    /// A term is over: the kernel drops the pages that it has under its leases, and files that are open
    /// under them without the server are registered. Other caches are asked again.
    fn end_term(&mut self, turn: &mut Turn<'_>) {
        let term_no = self.client.term().no;
        let Some(held) = self.leases.take_held_before(term_no) else { return };
        self.ahead.clear(turn);
        held.into_iter().for_each(|inode| self.drop_pages(turn, None, inode));
        self.register_behind_term(turn);
    }

    /// A request has changed attributes of a file that the kernel does not ask for after it.
    pub(crate) fn forget_attributes(&self, turn: &mut Turn<'_>, inode: InodeNo) {
        if self.leases.on {
            let notify = KernelNotify::Attributes { node: Node::plain(inode).0 };
            turn.act(KernelAction::Notify { ticket: UNHEARD, notify });
        }
    }

    /// A rename was executed without leases on both names: what the kernel knows of the old name
    /// must not go on under the new one. To be called before the reply.
    pub(crate) fn forget_renamed(&mut self, turn: &mut Turn<'_>, names: [(u64, Vec<u8>); 2]) {
        if self.leases.on && self.leases.forgets_names {
            self.notify(turn, None, Notice::Renamed(names), KernelNotify::AllNames);
        }
    }

    /// A notify has ended.
    pub(crate) fn on_notified(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<(), Errno>,
    ) {
        let Some(waiting) = self.recalls.waiting.remove(&ticket.0) else { return };
        let Waiting { work_no, since, notice, .. } = waiting;
        match notice {
            Notice::Attributes { node, again: false }
                if result == Err(ABSENT) && self.is_being_made(since, node) =>
            {
                turn.act(KernelAction::Notify { ticket: UNHEARD, notify: KernelNotify::AllNames });
                let at = turn.now.mono.after_ms(APPLY_MS_MAX);
                self.recalls.again.extend(work_no.map(|work_no| (at, work_no, node)));
                return;
            }
            Notice::AllNames if result == Err(BUSY) => {
                // The names expire, and until then the work waits.
                self.leases.set_mounts_below(turn.now.mono);
                let until = self.leases.until();
                if let Some(work) = work_no.and_then(|work| self.recalls.works.get_mut(&work)) {
                    work.until = until;
                    return;
                }
            }
            Notice::AllNames => self.end_names_before(ticket.0),
            Notice::Renamed(names) if result == Err(BUSY) => {
                self.leases.set_mounts_below(turn.now.mono);
                names.into_iter().for_each(|name| self.expire_twice(turn, None, name));
            }
            Notice::DirectoryName(name) if result == Err(BUSY) => {
                self.leases.set_mounts_below(turn.now.mono);
                self.expire_twice(turn, work_no, name);
                return;
            }
            Notice::Attributes { .. }
            | Notice::Name
            | Notice::DirectoryName(_)
            | Notice::Contents
            | Notice::Renamed(_) => {}
        }
        self.end_wait(work_no);
    }

    /// A name expires now, and again for a work that waits: a lookup may have been answered that
    /// has not been applied.
    fn expire_twice(&mut self, turn: &mut Turn<'_>, work_no: Option<u64>, name: NodeName) {
        self.expire(turn, None, &name);
        let at = turn.now.mono.after_ms(APPLY_MS_MAX);
        self.recalls.expire_again.push((at, work_no, name));
    }

    /// The kernel looks a name up before it uses it again. What is mounted below a directory with
    /// this name stays there: `KernelNotify::Name` would detach it.
    fn expire(&mut self, turn: &mut Turn<'_>, work_no: Option<u64>, (parent, name): &NodeName) {
        let notify = KernelNotify::ExpiredName { parent: *parent, name: turn.arena.put(name) };
        match work_no {
            Some(_) => self.notify(turn, work_no, Notice::Name, notify),
            None => turn.act(KernelAction::Notify { ticket: UNHEARD, notify }),
        }
    }

    /// Whether the kernel may be about to make a node that it did not know.
    fn is_being_made(&self, since: Mono, node: Node) -> bool {
        let at = Mono(since.0.saturating_sub(APPLY_MS_MAX * 1_000_000));
        self.leases.is_given_since(at, node)
    }

    /// A work waits for something else than a notify.
    pub(crate) fn add_wait(&mut self, work_no: u64) {
        if let Some(work) = self.recalls.works.get_mut(&work_no) {
            work.wait_count += 1;
        }
    }

    /// The same, however long that takes.
    pub(crate) fn hold_work(&mut self, work_no: u64) {
        if let Some(work) = self.recalls.works.get_mut(&work_no) {
            work.until = NEVER;
        }
        self.add_wait(work_no);
    }

    /// The server hears later that nothing of a file or directory is under way.
    pub(crate) fn end_writing_at(&mut self, at: Mono, inode: InodeNo, work_no: Option<u64>) {
        self.recalls.ended.push((at, inode, work_no));
    }

    pub(crate) fn end_wait(&mut self, work_no: Option<u64>) {
        let Some(work_no) = work_no else { return };
        if let Some(work) = self.recalls.works.get_mut(&work_no) {
            work.wait_count -= 1;
        }
        self.end_if_done(work_no);
    }

    /// All names were forgotten: single ones, asked for before, need not be waited for.
    fn end_names_before(&mut self, number: u64) {
        let names = self.recalls.names().map(|(name_no, _)| *name_no);
        let names: Vec<u64> = names.filter(|name_no| *name_no < number).collect();
        for name_no in names {
            let waiting = self.recalls.waiting.remove(&name_no);
            self.end_wait(waiting.and_then(|waiting| waiting.work_no));
        }
    }

    /// Applies the time limits of notifies and recalls.
    pub(crate) fn check_recalls(&mut self, turn: &mut Turn<'_>) {
        if self.recalls.is_idle() {
            return;
        }
        let now = turn.now.mono;
        let due = self.recalls.again.iter().filter(|(at, ..)| *at <= now);
        let due: Vec<(u64, Node)> = due.map(|(_, work_no, node)| (*work_no, *node)).collect();
        self.recalls.again.retain(|(at, ..)| *at > now);
        for (work_no, node) in due {
            self.drop_attributes(turn, work_no, node, true);
            self.end_wait(Some(work_no));
        }
        let due = self.recalls.expire_again.extract_if(.., |(at, ..)| *at <= now);
        for (_, work_no, name) in due.collect::<Vec<_>>() {
            self.expire(turn, work_no, &name);
            self.end_wait(work_no);
        }
        let due = self.recalls.ended.extract_if(.., |(at, ..)| *at <= now);
        for (_, inode, work_no) in due.collect::<Vec<_>>() {
            self.client.end_writing(inode);
            self.end_wait(work_no);
        }
        let ended = self.recalls.works.iter().filter(|(_, work)| work.until <= now);
        for work_no in ended.map(|(work_no, _)| *work_no).collect::<Vec<_>>() {
            self.end_work(work_no);
        }
        self.check_names(turn);
        self.log_stuck(turn);
    }

    /// Sets the timer for the next of these limits.
    pub(crate) fn wake_for_recalls(&self, turn: &mut Turn<'_>) {
        if self.recalls.is_idle() {
            return;
        }
        let now = turn.now.mono;
        let again = self.recalls.again.iter().map(|(at, ..)| *at);
        let again = again.chain(self.recalls.expire_again.iter().map(|(at, ..)| *at));
        let again = again.chain(self.recalls.ended.iter().map(|(at, ..)| *at));
        let works = self.recalls.works.values().map(|work| work.until);
        let works = works.filter(|until| *until < NEVER);
        let names = self.recalls.names().map(|(_, waiting)| waiting.since.after_ms(NAME_MS_MAX));
        let stuck = self.recalls.waiting.values().filter(|waiting| !waiting.logged);
        let stuck = stuck.map(|waiting| waiting.since.after_ms(STUCK_MS_MIN));
        let times = again.chain(works).chain(names).chain(stuck);
        if let Some(at) = times.filter(|at| *at > now).min() {
            turn.act(Action::WakeAt { at });
        }
    }

    /// Names that take too long: the kernel forgets all, once for all that wait now.
    fn check_names(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let waiting = &self.recalls.waiting;
        let forgets = waiting.values().any(|waiting| matches!(waiting.notice, Notice::AllNames));
        let is_late = |name: &Waiting| name.since.after_ms(NAME_MS_MAX) <= now;
        let late = self.recalls.names().any(|(_, name)| is_late(name));
        if late && !forgets && !self.leases.has_mounts_below(now) {
            self.forget_names(turn, None);
        }
    }

    fn log_stuck(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let waiting = self.recalls.waiting.values_mut();
        let stuck = waiting.filter(|it| !it.logged && it.since.after_ms(STUCK_MS_MIN) <= now);
        let mut count = 0;
        for waiting in stuck {
            waiting.logged = true;
            count += 1;
        }
        if count > 0 {
            let line = format!(
                "the kernel has not dropped {count} cached objects within {STUCK_MS_MIN} ms; \
                 another client waits for at most the lease term"
            );
            let line: Span = turn.arena.put(line.as_bytes());
            turn.act(Action::Log { level: LogLevel::Warning, line });
        }
    }
}

/// A rename changes a second directory, which its header does not name.
const fn is_rename(opcode: u32) -> bool {
    opcode == Opcode::Rename as u32 || opcode == Opcode::Rename2 as u32
}
