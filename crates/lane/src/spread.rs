//! Files over several data shards: what concerns all of a file, driven by its home shard
//! (docs/protocol.md §13.2).
//!
//! ```text
//! Glimpse, settle ─▶ LookAtPart ─▶ other parts: ─▶ PartContents ─▶ all: the home part, merged
//! Truncate ─▶ CutPart, to the part with the new last byte ─▶ to the others ─▶ recorded there ─▶
//!             PartCut ─▶ all: the home part, recorded
//! ```
//! Nothing of an operation outlives this lane's start: its client sends it again. Invariants: a
//! truncation of a file runs alone among these, so that no look sees one part before and another
//! one behind it; it is answered when all parts have executed it; none executes it twice.

use crate::Lane;
use crate::appends::Appends;
use crate::config::Share;
use crate::part_pages::PartPages;
use crate::peers::message::PeerBody;
use crate::request::{Asked, PartWork, Sizing, WholeRequest};
use crate::waiters::{Cause, Waiter};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use data::{Answer, DataRequest, Token, WholeFile};
use disk::Change;
use interface::Turn;
use wire::{
    Contents, InodeNo, Layout, PeerLane, Rule, SessionId, ShardId, Status, Transno, Wire as _,
    Writer,
};

/// What is to be done with all of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Whole {
    /// `cut`: the new size, for a truncation.
    Request {
        request: WholeRequest,
        cut: Option<u64>,
    },
    Settle(Sizing),
}

impl Whole {
    const fn cut(&self) -> Option<u64> {
        match self {
            Self::Request { cut, .. } => *cut,
            Self::Settle(_) => None,
        }
    }

    const fn appends(&self) -> Option<SessionId> {
        match self {
            Self::Request { request, .. } => request.appends,
            Self::Settle(_) => None,
        }
    }
}

/// An operation that has begun.
#[derive(Debug)]
struct Running {
    number: u64,
    whole: Whole,
    layout: Layout,
    /// All that it shows must be durable.
    durable: bool,
    /// The shards that have not answered, and those that are asked when they have.
    left: BTreeSet<ShardId>,
    then: BTreeSet<ShardId>,
    /// The home part has the new last byte, and so is cut first.
    home_first: bool,
    /// What those have that did.
    contents: Option<Contents>,
    failed: bool,
    /// All have answered: the token of what is done with the home part.
    at_home: Option<Token>,
}

/// The operations on one file.
#[derive(Debug, Default)]
struct File {
    waiting: VecDeque<(Whole, Layout)>,
    running: Vec<Running>,
}

/// The operations on whole files of a lane, and those on its parts of files of others.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    number_last: u64,
    files: BTreeMap<InodeNo, File>,
    parts: BTreeMap<u64, PartWork>,
    /// Cuts that other lanes have asked for and may ask for again: whether each is recorded.
    cuts: BTreeMap<(PeerLane, u64), bool>,
    /// What was asked for before recovery was over or the map was known, or waits for changes.
    pub(crate) early: Vec<(PeerLane, Asked)>,
    pub(crate) appends: Appends,
    pub(crate) pages: PartPages,
}

impl Spread {
    /// Whether no truncation of a whole file is under way.
    pub(crate) fn has_no_cuts(&self) -> bool {
        let running = self.files.values().flat_map(|file| &file.running);
        let waiting = self.files.values().flat_map(|file| &file.waiting);
        let mut all = running.map(|it| &it.whole).chain(waiting.map(|(whole, _)| whole));
        self.pages.has_no_cuts() && all.all(|whole| whole.cut().is_none())
    }

    fn oldest_cut(&self) -> u64 {
        let running = self.files.values().flat_map(|file| &file.running);
        let cuts = running.filter(|it| it.whole.cut().is_some());
        cuts.map(|it| it.number).min().unwrap_or(self.number_last)
    }
}

/// What a part without bytes has.
pub(crate) const NOTHING: Contents =
    Contents { size_bytes: 0, allocated_bytes: 0, write_time: None };

/// Both parts of a file together.
pub(crate) fn merged(one: Contents, other: Contents) -> Contents {
    Contents {
        size_bytes: one.size_bytes.max(other.size_bytes),
        allocated_bytes: one.allocated_bytes.saturating_add(other.allocated_bytes),
        write_time: one.write_time.max(other.write_time),
    }
}

impl Lane {
    /// Sends a message to all data shards that may have contents of a file.
    pub(crate) fn send_to_contents(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        body: &PeerBody<'_>,
    ) {
        for shard in self.contents_shards(inode) {
            self.send_to_shard(turn, shard, body);
        }
    }

    // At the home shard.

    pub(crate) fn begin_whole_request(
        &mut self,
        turn: &mut Turn<'_>,
        WholeFile { inode, layout, cut, appends: _ }: WholeFile,
        request: WholeRequest,
    ) {
        match cut {
            Some(size_bytes) => self.begin_cut(turn, (inode, layout), (size_bytes, request)),
            None => self.begin_whole(turn, (inode, layout), Whole::Request { request, cut }),
        }
    }

    /// The pages of all parts are recalled.
    pub(crate) fn run_cut(
        &mut self,
        turn: &mut Turn<'_>,
        of: (InodeNo, Layout),
        (size_bytes, request): (u64, WholeRequest),
    ) {
        self.begin_whole(turn, of, Whole::Request { request, cut: Some(size_bytes) });
    }

    /// The metadata shard asks for the durable contents of a file.
    pub(crate) fn begin_settling(&mut self, turn: &mut Turn<'_>, sizing: Sizing, layout: Layout) {
        let waits = self.config.rules.hold(Rule::SettleBehindCuts);
        if !(waits && self.spread.pages.settles_later(sizing, layout)) {
            self.begin_whole(turn, (sizing.inode, layout), Whole::Settle(sizing));
        }
    }

    fn begin_whole(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, layout): (InodeNo, Layout),
        whole: Whole,
    ) {
        self.spread.files.entry(inode).or_default().waiting.push_back((whole, layout));
        self.advance_whole(turn, inode);
    }

    /// Begins what may begin.
    fn advance_whole(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        loop {
            let Some(file) = self.spread.files.get_mut(&inode) else { return };
            let Some((front, _)) = file.waiting.front() else {
                if file.running.is_empty() {
                    self.spread.files.remove(&inode);
                }
                return;
            };
            let cuts = file.running.iter().any(|running| running.whole.cut().is_some());
            let cuts = cuts && (front.cut().is_some() || self.config.rules.hold(Rule::LooksWait));
            let looks = file.running.iter().any(|running| running.whole.cut().is_none());
            let is_cut = front.cut().is_some();
            if cuts || is_cut && looks {
                return;
            }
            let Some((mut whole, layout)) = file.waiting.pop_front() else { return };
            if let Whole::Request { request: WholeRequest { appends, .. }, .. } = &mut whole {
                // It may have ended meanwhile.
                *appends = appends.filter(|it| self.spread.appends.is_held(inode, *it));
            }
            let number = self.next_whole_number();
            let home = self.config.map.data_shard(inode, 0);
            let all = self.config.map.data_shards(inode, layout);
            let mut then: BTreeSet<ShardId> = all.filter(|shard| *shard != home).collect();
            let (mut left, mut home_first) = (BTreeSet::new(), false);
            let is_ordered = self.config.rules.hold(Rule::CutEndFirst);
            let end = whole.cut().filter(|size_bytes| *size_bytes > 0 && is_ordered);
            if let Some(size_bytes) = end {
                // From here on the file is not shorter than that, whatever is cut before a crash.
                let (last, _) = layout.last(size_bytes);
                let first = self.config.map.stripe_shard(inode, layout, last);
                then.remove(&first);
                left.insert(first);
                home_first = first == home;
            }
            let is_strict = self.config.limits.share == Share::Strict;
            let mut durable = is_strict || matches!(whole, Whole::Settle(_));
            if let Some(session) = whole.appends() {
                durable |= self.spread.appends.follows_another(inode, session);
                self.spread.appends.close(inode, session, self.me());
            }
            if is_cut {
                self.spread.appends.forget(inode);
            }
            let (contents, failed, at_home) = (None, false, None);
            let asks: Vec<ShardId> = left.iter().copied().collect();
            let running = Running {
                number,
                whole,
                layout,
                durable,
                left,
                then,
                home_first,
                contents,
                failed,
                at_home,
            };
            if let Some(file) = self.spread.files.get_mut(&inode) {
                file.running.push(running);
            }
            for shard in asks {
                self.ask_part(turn, inode, (number, shard));
            }
            self.on_part_answered(turn, inode, number);
        }
    }

    /// The number of an operation: they rise over restarts.
    pub(crate) fn next_whole_number(&mut self) -> u64 {
        let of_start = self.config.boot_id << 32;
        self.spread.number_last = self.spread.number_last.max(of_start) + 1;
        self.spread.number_last
    }

    /// Asks a data shard to do its part.
    fn ask_part(&mut self, turn: &mut Turn<'_>, inode: InodeNo, (number, shard): (u64, ShardId)) {
        let oldest = self.spread.oldest_cut();
        let Some(file) = self.spread.files.get(&inode) else { return };
        let Some(running) = file.running.iter().find(|running| running.number == number) else {
            return;
        };
        let (layout, durable) = (running.layout, running.durable);
        // If it has ended meanwhile, nothing would open a part that is closed for it now.
        let appends = running.whole.appends();
        let appends = appends.filter(|session| self.spread.appends.is_held(inode, *session));
        let body = match running.whole.cut() {
            None => PeerBody::LookAtPart { inode, number, durable, appends },
            Some(size_bytes) => PeerBody::CutPart { inode, number, oldest, size_bytes, layout },
        };
        self.send_to_shard(turn, shard, &body);
    }

    /// A connection to a lane begins: asks it again for what it has not answered.
    pub(crate) fn restate_parts(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        let mut asks = Vec::new();
        for (inode, file) in &self.spread.files {
            for running in &file.running {
                let left = running.left.iter().filter(|shard| self.lane_of(**shard) == lane);
                asks.extend(left.map(|shard| (*inode, (running.number, *shard))));
            }
        }
        for (inode, ask) in asks {
            self.ask_part(turn, inode, ask);
        }
    }

    pub(crate) fn on_part_contents(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, number, shard): (InodeNo, u64, ShardId),
        contents: Option<Contents>,
    ) {
        let Some(running) = self.running_whole(inode, number) else { return };
        if running.left.remove(&shard) {
            running.failed |= contents.is_none();
            let known = running.contents.take();
            running.contents = match (known, contents) {
                (Some(known), Some(found)) => Some(merged(known, found)),
                (known, found) => found.or(known),
            };
            self.on_part_answered(turn, inode, number);
        }
    }

    pub(crate) fn on_part_cut(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, number, shard): (InodeNo, u64, ShardId),
        is_cut: bool,
    ) {
        let Some(running) = self.running_whole(inode, number) else { return };
        if running.left.remove(&shard) {
            running.failed |= !is_cut;
            self.on_part_answered(turn, inode, number);
        }
    }

    fn running_whole(&mut self, inode: InodeNo, number: u64) -> Option<&mut Running> {
        let file = self.spread.files.get_mut(&inode)?;
        file.running.iter_mut().find(|running| running.number == number)
    }

    /// When all other parts have answered, the home part follows.
    fn on_part_answered(&mut self, turn: &mut Turn<'_>, inode: InodeNo, number: u64) {
        let Some(running) = self.running_whole(inode, number) else { return };
        if !running.left.is_empty() || running.at_home.is_some() {
            return;
        }
        if !running.failed && !running.then.is_empty() {
            running.left = core::mem::take(&mut running.then);
            let asks: Vec<ShardId> = running.left.iter().copied().collect();
            return asks.into_iter().for_each(|shard| self.ask_part(turn, inode, (number, shard)));
        }
        let (whole, layout, failed) = (running.whole.clone(), running.layout, running.failed);
        let home_first = running.home_first;
        match whole {
            Whole::Request { request, .. } => {
                let WholeRequest { token, op, shard, body, client, appends } = request;
                running.at_home = Some(token);
                if failed {
                    self.on_answered(turn, token, (Err(Status::Io), Transno(0)));
                } else if appends.is_some() {
                    self.data.look_for_append(turn, token, inode);
                } else {
                    let (layout, bulk, kept, behind) = (Some(layout), None, false, false);
                    let body = &body[..];
                    let is_cut = home_first && self.config.rules.hold(Rule::CutHomeOnce);
                    let ask = DataRequest {
                        token,
                        op,
                        shard,
                        layout,
                        body,
                        bulk,
                        client,
                        kept,
                        behind,
                        is_cut,
                    };
                    if self.data.submit(turn, &ask).is_err() {
                        self.on_answered(turn, token, (Err(Status::Io), Transno(0)));
                    }
                }
            }
            Whole::Settle(sizing) => {
                let token = self.waiters.answers.await_size(sizing);
                if let Some(running) = self.running_whole(inode, number) {
                    running.at_home = Some(token);
                }
                if failed {
                    self.on_answered(turn, token, (Err(Status::Io), Transno(0)));
                } else {
                    self.data.query_durable_size(turn, token, inode);
                }
            }
        }
        self.on_outcomes(turn);
    }

    /// Whether what an operation shows of the home part must be durable.
    pub(crate) fn is_whole_durable(&self, token: Token) -> bool {
        let mut all = self.spread.files.values().flat_map(|file| &file.running);
        all.any(|running| running.at_home == Some(token) && running.durable)
    }

    /// What was done with the home part has this outcome: the operation has ended. Returns what the
    /// other parts have.
    pub(crate) fn end_whole(&mut self, turn: &mut Turn<'_>, token: Token) -> Option<Contents> {
        let is_it = |running: &Running| running.at_home == Some(token);
        let files = &mut self.spread.files;
        let (inode, file) = files.iter_mut().find(|(_, file)| file.running.iter().any(is_it))?;
        let (inode, index) = (*inode, file.running.iter().position(is_it)?);
        let Running { contents, whole, .. } = file.running.swap_remove(index);
        self.advance_whole(turn, inode);
        if whole.cut().is_some() {
            self.end_cut(turn, inode);
        }
        contents
    }

    // At another shard.

    pub(crate) fn on_part_asked(&mut self, turn: &mut Turn<'_>, from: PeerLane, asked: Asked) {
        if self.is_stopping() {
            return; // The next start is asked again.
        }
        // Replays may still change the part; and a server may know of a map earlier than this one.
        let is_known = asked.inode().generation() <= self.config.map.generation();
        let is_late = self.settles(asked) && self.has_late_changes(asked.inode());
        if !self.recovery.is_over() || !is_known || is_late {
            return self.spread.early.push((from, asked));
        }
        match asked {
            Asked::Recall { inode, number, client } => {
                self.recall_pages(turn, from, (inode, number, client));
            }
            Asked::Look { inode, number, durable, appends } => {
                let Some(shard) = self.part_shard(inode) else { return };
                if let Some(session) = appends {
                    self.spread.appends.close(inode, session, from);
                }
                let work = PartWork { inode, number, shard, cut_by: None, durable };
                if self.commit.has_failed() && durable {
                    return self.tell_part(turn, work, None);
                }
                let token = self.waiters.answers.new_token();
                self.spread.parts.insert(token.0, work);
                match (durable, appends) {
                    (_, Some(_)) => self.data.look_for_append(turn, token, inode),
                    (true, None) => self.data.query_durable_size(turn, token, inode),
                    (false, None) => self.data.look(turn, token, inode),
                }
                if durable {
                    self.data.request_sync(Some(shard));
                }
            }
            Asked::Cut { inode, number, oldest, size_bytes, layout } => {
                let is_new = !self.spread.cuts.contains_key(&(from, number));
                if is_new && self.cut_awaits_pages(turn.now.mono, from, (inode, asked)) {
                    return;
                }
                self.cut_part(turn, from, (inode, number, oldest), (size_bytes, layout));
            }
        }
        self.on_outcomes(turn);
    }

    fn cut_part(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        (inode, number, oldest): (InodeNo, u64, u64),
        (size_bytes, layout): (u64, Layout),
    ) {
        let Some(shard) = self.part_shard(inode) else { return };
        let work = PartWork { inode, number, shard, cut_by: Some(from), durable: true };
        self.spread.cuts.retain(|(lane, number), _| *lane != from || *number >= oldest);
        let known = self.spread.cuts.get(&(from, number)).copied();
        let known = known.filter(|_| self.config.rules.hold(Rule::CutOnce));
        match known {
            Some(true) => return self.tell_part(turn, work, Some(NOTHING)),
            Some(false) => return, // Its end is told.
            None => {}
        }
        if self.commit.has_failed() || !self.space_for_own() {
            return self.tell_part(turn, work, None);
        }
        self.spread.appends.forget(inode);
        self.spread.cuts.insert((from, number), false);
        let token = self.waiters.answers.new_token();
        self.spread.parts.insert(token.0, work);
        self.data.cut_part(turn, token, inode, (size_bytes, layout));
        self.data.request_sync(Some(shard));
    }

    /// The connection to a lane has ended: it asks again for what it still wants.
    pub(crate) fn forget_early_parts_of(&mut self, lane: PeerLane) {
        self.spread.early.retain(|(from, _)| *from != lane);
    }

    /// Whether a part is looked at for a settled size. With `share=strict` it may be for a glimpse,
    /// for which leases may wait.
    fn settles(&self, asked: Asked) -> bool {
        let is_durable = matches!(asked, Asked::Look { durable: true, appends: None, .. });
        is_durable && self.config.limits.share != Share::Strict
    }

    /// The end of recovery, or of leases, or a newer map.
    pub(crate) fn run_early_parts(&mut self, turn: &mut Turn<'_>) {
        for (from, asked) in core::mem::take(&mut self.spread.early) {
            self.on_part_asked(turn, from, asked);
        }
    }

    /// Tells the home shard what became of a part; `None`: it failed.
    pub(crate) fn tell_part(
        &mut self,
        turn: &mut Turn<'_>,
        work: PartWork,
        contents: Option<Contents>,
    ) {
        let PartWork { inode, number, shard, cut_by, durable: _ } = work;
        let body = match cut_by {
            None => PeerBody::PartContents { inode, number, shard, contents },
            Some(by) => {
                let is_cut = contents.is_some();
                if is_cut {
                    self.spread.cuts.insert((by, number), true);
                } else {
                    self.spread.cuts.remove(&(by, number));
                }
                PeerBody::PartCut { inode, number, shard, is_cut }
            }
        };
        self.send_to_shard(turn, self.config.map.data_shard(inode, 0), &body);
    }

    /// An outcome at once: returns whether it was one of a part.
    pub(crate) fn on_part_looked(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        result: Result<Answer, Status>,
    ) -> bool {
        let Some(work) = self.spread.parts.remove(&token.0) else { return false };
        let contents = match result {
            Ok(Answer::Glimpsed(contents)) => Some(contents),
            Ok(_) => Some(NOTHING),
            Err(_) => None,
        };
        self.tell_part(turn, work, contents);
        true
    }

    /// A part is as it should be, and will be durable with a transaction: likewise.
    pub(crate) fn on_part_done(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (shard, until, contents): (ShardId, Transno, Contents),
    ) -> bool {
        let Some(work) = self.spread.parts.get(&token.0).copied() else { return false };
        if work.cut_by.is_none() {
            self.spread.parts.remove(&token.0);
        }
        let is_early = work.cut_by.is_some() && !self.config.rules.hold(Rule::CutsDurable);
        if self.commit.has_failed() && work.durable {
            self.tell_part(turn, work, None);
        } else if !work.durable || until <= self.commit.shard(shard).durable || is_early {
            self.tell_part(turn, work, Some(contents));
        } else {
            let waiter = Waiter::Part(work, contents);
            self.waiters.suspend(Cause::Write(shard, until), waiter);
            self.data.request_sync(Some(shard));
        }
        true
    }

    /// Nothing of a part is to be recorded.
    pub(crate) fn end_part(&mut self, token: Token) {
        self.spread.parts.remove(&token.0);
    }

    /// Records the cut of a part: likewise.
    pub(crate) fn record_cut(
        &mut self,
        token: Token,
        (shard, transno): (ShardId, Transno),
        change: &Change<'_>,
    ) -> bool {
        if self.spread.parts.remove(&token.0).is_none() {
            return false;
        }
        if !self.commit.has_failed() {
            let mut changes = self.scratch.empty();
            change.encode(&mut Writer::new(&mut changes));
            self.record_own(shard, transno, &changes);
            self.scratch.recycle(changes);
            self.fence(shard, change);
        }
        true
    }
}
