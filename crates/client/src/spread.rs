//! Files whose stripes are at several data shards. A request about contents is split at the ends of
//! stripes, each part goes to the shard that has it, all at once, and the replies become one.
//!
//! ```text
//! Write ─▶ parts ─▶ all replied ─▶ answer
//! Read  ─▶ parts ─▶ all replied, nothing is short ─▶ answer
//!                └▶ a hole, or the end ─▶ Glimpse ─▶ parts that are short below the size, again
//!                                                    └▶ answer, zeros in what is still missing
//! ```
//! A part that is short may have been read before bytes were written, and the size afterwards: what
//! is zeros in the answer was read after the size was. Each part is a request of its own, with its
//! own slot and bytes to replay: a crash may leave some of them, as of any write that was not
//! answered.

use crate::client::Client;
use crate::plan::{Body, FollowUp, PlanReply, Target};
use crate::requests::Exchange;
use alloc::boxed::Box;
use alloc::vec::Vec;
use interface::{Action, BufId, Bulk, NO_MAC, Turn};
use wire::{
    ClearPrivileges, Getattr, Glimpse, InodeNo, Layout, ListRead, Op, PIECE_COUNT_MAX, Piece,
    Pieces, Read, ReadList, Rule, ShardId, Status, Wire, Write, WriteList, Writer, Written,
    request_flag,
};

/// The numbers of buffers that answers are put together in; the client's copies have those below.
const JOINED_BUF_ID_MIN: u32 = 3 << 30;

/// A range of a file in one stripe, of one of the pieces that the request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    /// Which piece.
    owner: usize,
    piece: Piece,
}

/// What is known of a split request.
#[derive(Debug)]
pub(crate) struct Spread {
    op: Op,
    inode: InodeNo,
    layout: Layout,
    accesses: bool,
    /// What is read stays in a page cache.
    fills_pages: bool,
    /// How many requests were sent for parts.
    asked_count: usize,
    /// What the caller wants to read or write.
    wanted: Vec<Piece>,
    /// The parts that are out, or were last.
    parts: Vec<Vec<Cut>>,
    /// The first part that failed, and how.
    failed: Option<(u16, Status)>,
    /// A short write fails.
    is_whole: bool,
    /// What was read.
    found: Vec<(Cut, Bulk)>,
    /// What was not there.
    short: Vec<Cut>,
    /// The highest end of the file that was seen.
    end: u64,
    is_glimpsed: bool,
    /// The buffers of what was read.
    bufs: Vec<BufId>,
    /// What is written behind of each part, when what is before it there was answered.
    later: Vec<Part>,
}

/// What follows when all parts have been answered.
enum Step {
    Glimpse,
    ReadAgain(Vec<Cut>),
    Done(Result<(), Status>),
}

/// Names and releases the buffers of joined answers, at the end of the turn.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    count: u32,
    actions: Vec<Action>,
}

impl Joins {
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        self.actions.drain(..).for_each(|action| turn.act(action));
    }

    fn release(&mut self, bufs: Vec<BufId>) {
        self.actions.extend(bufs.into_iter().map(|buf| Action::Release { buf }));
    }

    /// A buffer of zeros. Its owner has released it long before its number is used again.
    fn make(&mut self, bulk_bytes: u32) -> Bulk {
        let buf = BufId(JOINED_BUF_ID_MIN | self.count);
        self.count = (self.count + 1) & !JOINED_BUF_ID_MIN;
        self.actions.push(Action::Zeros { as_buf: buf, bulk_bytes });
        Bulk { buf, start: 0, bulk_bytes, crc32c: None, mac: NO_MAC }
    }
}

impl Client {
    /// Splits a request that is about to be routed, if it has to be: this exchange becomes the first
    /// part, and the others are made.
    pub(crate) fn split(&mut self, exchange_id: usize, inode: InodeNo, layout: Layout) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.is_split = true;
        if exchange.op == Op::Sync {
            if self.config.rules.hold(Rule::SyncParts) {
                self.split_sync(exchange_id, inode, layout);
            }
            return;
        }
        if self.begin_append(exchange_id, inode, layout)
            || self.split_by_part(exchange_id, inode, layout)
        {
            return;
        }
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let Some(mut spread) = Spread::of(exchange, inode, layout) else { return };
        let cuts = spread.cut(self.servers.map());
        let file_bytes_max = layout.file_bytes_max();
        let is_too_large = spread.wanted.iter().any(|piece| piece.end() > file_bytes_max);
        let is_behind = exchange.is_behind();
        if !spread.reads() && (cuts.len() < 2 && !is_behind || is_too_large) {
            return; // The server refuses what is too large.
        }
        spread.parts = cuts;
        let mut parts = self.parts_of(exchange_id, &spread);
        let count = parts.len();
        spread.asked_count = count;
        if is_behind {
            spread.later = spread.take_later(&mut parts);
        }
        let Some((first, others)) = parts.split_first() else { return };
        self.release_xid(exchange_id);
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.become_part(first);
        let (job_id, like) = (exchange.job_id, exchange.as_template());
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        job.spread = Some(Box::new(spread));
        job.pending_count += count - 1;
        for part in others {
            let mut exchange = like.as_template();
            exchange.become_part(part);
            self.add_and_route(exchange);
        }
    }

    /// A stripe's bytes that were written behind are there, or refused: writes those that come next
    /// in the same part of the file. Where one was refused, the server refuses them too.
    fn write_next_behind(&mut self, job_id: usize, answered: u16) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let Some(spread) = job.spread.as_mut() else { return };
        let Some(part) = spread.next_behind(answered) else { return };
        let (layout, op) = (Some(spread.layout), spread.op);
        let new = Exchange::new(job_id, op, part.target);
        let flags = request_flag::BEHIND;
        let mut exchange = Exchange { flags, layout, is_split: true, ..new };
        exchange.become_part(&part);
        self.add_and_route(exchange);
    }

    /// A sync of a file's contents goes to all shards that may have some.
    fn split_sync(&mut self, exchange_id: usize, inode: InodeNo, layout: Layout) {
        let Some(map) = self.servers.map() else { return };
        let stripes = 0..u32::from(layout.stripe_count);
        let mut shards: Vec<ShardId> =
            stripes.map(|index| map.stripe_shard(inode, layout, index)).collect();
        shards.sort_unstable();
        shards.dedup();
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let (job_id, like) = (exchange.job_id, exchange.as_template());
        let Some((first, others)) = shards.split_first() else { return };
        exchange.target = Target::Shard(*first);
        exchange.body.clear(); // It may have said that there is one shard.
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        job.pending_count += others.len();
        for shard in others {
            let target = Target::Shard(*shard);
            self.add_and_route(Exchange { target, ..like.as_template() });
        }
    }

    /// The bodies, bulks and targets of the parts.
    fn parts_of(&mut self, exchange_id: usize, spread: &Spread) -> Vec<Part> {
        let bulk = self.requests.get(exchange_id).and_then(|exchange| exchange.bulk);
        let clears = self.requests.get(exchange_id).map_or(ClearPrivileges::Nothing, clears_of);
        let mut parts = Vec::with_capacity(spread.parts.len());
        let mut start = 0;
        for (no, cuts) in (0..).zip(&spread.parts) {
            let bulk_bytes = cuts.iter().map(|cut| cut.piece.piece_bytes).sum();
            let part_bulk = bulk.map(|bulk| slice(bulk, start, bulk_bytes));
            start += bulk_bytes;
            let file_offset = cuts.first().map_or(0, |cut| cut.piece.file_offset);
            let mut body = self.requests.take_body();
            spread.encode((no, cuts), clears, &mut Writer::new(&mut body));
            let target = Target::Contents(spread.inode, file_offset);
            parts.push(Part { no, target, bulk: part_bulk, body });
        }
        parts
    }

    /// A reply to a request of a split job. Returns the reply to all of them together, once that is
    /// known.
    pub(crate) fn join(&mut self, job_id: usize, reply: PlanReply) -> Option<PlanReply> {
        let job = self.jobs.get_mut(job_id)?;
        let plan = job.plan;
        let spread = job.spread.as_mut()?;
        spread.take(&reply);
        if !reply.last {
            self.write_next_behind(job_id, reply.part);
            return None;
        }
        let is_abandoned = job.call.is_none();
        let outcome = match spread.next() {
            _ if is_abandoned => Err(Status::Interrupted),
            Step::Glimpse => {
                let inode = spread.inode;
                let mut all = Vec::from([FollowUp::Glimpse(Glimpse { inode })]);
                // Some shards may have removed their part of a file that is no more.
                if self.handles.may_lack(inode) {
                    all.push(FollowUp::Getattr(Getattr { inode }));
                }
                self.submit_all(job_id, plan, all);
                return None;
            }
            Step::ReadAgain(cuts) if self.config.rules.hold(Rule::ReadAgain) => {
                self.read_again(job_id, cuts);
                return None;
            }
            Step::ReadAgain(_) => Ok(()),
            Step::Done(outcome) => outcome,
        };
        let spread = job.spread.take()?;
        // A page that no part answers for could not be recalled.
        let has_all = job.grants.parts.len() == spread.asked_count;
        if !has_all && self.config.rules.hold(Rule::PageParts) {
            job.grants.contents = None;
        }
        let op = spread.op;
        let outcome = match outcome {
            Ok(()) => Ok(self.joined(*spread)),
            Err(status) => {
                let written = spread.written_before(status);
                self.joins.release(spread.bufs);
                written.map(Body::Written).ok_or(status)
            }
        };
        Some(PlanReply { outcome, op, part: 0, ..reply })
    }

    /// Reads parts again that were short.
    fn read_again(&mut self, job_id: usize, cuts: Vec<Cut>) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let Some(spread) = job.spread.as_mut() else { return };
        // One request for each: there are few.
        spread.parts = cuts.into_iter().map(|cut| Vec::from([cut])).collect();
        job.pending_count += spread.parts.len();
        spread.asked_count += spread.parts.len();
        let flags = if spread.fills_pages { request_flag::LEASES } else { 0 };
        let mut made = Vec::with_capacity(spread.parts.len());
        for (no, cuts) in (0..).zip(&spread.parts) {
            let mut body = Vec::new();
            spread.encode((no, cuts), ClearPrivileges::Nothing, &mut Writer::new(&mut body));
            let file_offset = cuts.first().map_or(0, |cut| cut.piece.file_offset);
            let target = Target::Contents(spread.inode, file_offset);
            let request = Exchange::new(job_id, spread.op, target);
            let layout = Some(spread.layout);
            made.push(Exchange { part: no, body, flags, layout, is_split: true, ..request });
        }
        made.into_iter().for_each(|exchange| self.add_and_route(exchange));
    }

    /// The reply to a request all of whose parts have succeeded.
    fn joined(&mut self, spread: Spread) -> Body {
        if !spread.reads() {
            let written_bytes = spread.wanted.iter().map(|piece| piece.piece_bytes).sum();
            let file_offset = spread.wanted.first().map_or(0, |piece| piece.file_offset);
            return Body::Written(Written { file_offset, written_bytes });
        }
        let end = spread.end;
        let total_bytes = spread.wanted.iter().map(|piece| piece.within(end)).sum();
        let bulk = match &spread.found[..] {
            _ if total_bytes == 0 => None,
            [(_, only)] if only.bulk_bytes == total_bytes && spread.bufs.len() == 1 => {
                let only = *only;
                return spread.answer(Some(only));
            }
            _ => Some(self.joins.make(total_bytes)),
        };
        if let Some(to) = bulk {
            let starts = spread.starts();
            for (cut, bulk) in &spread.found {
                let Some((start, wanted)) = starts.get(cut.owner) else { continue };
                let within = cut.piece.file_offset - wanted.file_offset;
                let at = start + u32::try_from(within).unwrap_or(u32::MAX);
                self.joins.actions.push(Action::Copy { to: to.buf, at, bulk: *bulk });
            }
        }
        let body = spread.answer(bulk);
        self.joins.release(spread.bufs);
        body
    }

    /// A split job has ended before its parts.
    pub(crate) fn drop_spread(&mut self, spread: Option<Box<Spread>>) {
        if let Some(spread) = spread {
            self.joins.release(spread.bufs);
        }
    }
}

/// A part that is about to become a request.
#[derive(Debug)]
struct Part {
    no: u16,
    target: Target,
    bulk: Option<Bulk>,
    body: Vec<u8>,
}

impl Exchange {
    fn become_part(&mut self, part: &Part) {
        self.part = part.no;
        self.target = part.target;
        self.bulk = part.bulk;
        self.body.clear();
        self.body.extend_from_slice(&part.body);
    }

    /// Another request of the same call that has not been sent.
    pub(crate) fn as_template(&self) -> Self {
        let Self { sync, flags, urgent, layout, .. } = *self;
        let new = Self::new(self.job_id, self.op, self.target);
        Self { sync, flags, urgent, layout, part: 1, is_split: true, ..new }
    }
}

impl Spread {
    /// `None`: a request that is not split.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other op is split")]
    fn of(exchange: &Exchange, inode: InodeNo, layout: Layout) -> Option<Self> {
        let bulk_bytes = exchange.bulk.map_or(0, |bulk| bulk.bulk_bytes);
        let one = |file_offset, piece_bytes| Vec::from([Piece { file_offset, piece_bytes }]);
        let body = &exchange.body;
        let (wanted, accesses) = match exchange.op {
            Op::Read => {
                let read = Read::decode_all(body).ok()?;
                (one(read.file_offset, read.read_bytes), read.accesses)
            }
            Op::ReadList => {
                let read = ReadList::decode_all(body).ok()?;
                (read.pieces.as_slice().to_vec(), read.accesses)
            }
            Op::Write => {
                let write = Write::decode_all(body).ok()?;
                if write.append && !exchange.is_behind() {
                    return None;
                }
                (one(write.file_offset, bulk_bytes), false)
            }
            Op::WriteList => (WriteList::decode_all(body).ok()?.pieces.as_slice().to_vec(), false),
            _ => return None,
        };
        let is_whole = exchange.op == Op::WriteList
            || exchange.is_behind()
            || exchange.flags & request_flag::WRITE_BACK != 0;
        Some(Self {
            op: exchange.op,
            inode,
            layout,
            accesses,
            fills_pages: exchange.op == Op::Read && exchange.flags & request_flag::LEASES != 0,
            asked_count: 0,
            wanted,
            parts: Vec::new(),
            failed: None,
            is_whole,
            found: Vec::new(),
            short: Vec::new(),
            end: 0,
            is_glimpsed: false,
            bufs: Vec::new(),
            later: Vec::new(),
        })
    }

    /// Of what is written behind, a data shard gets one request after the other: it refuses what does
    /// not follow the end of its part. Takes all but the first for each out of the requests.
    fn take_later(&self, parts: &mut Vec<Part>) -> Vec<Part> {
        let mut begun = Vec::new();
        let is_later = |part: &mut Part| {
            let index = self.part_of(part.no);
            let is_later = begun.contains(&index);
            begun.push(index);
            is_later
        };
        parts.extract_if(.., is_later).collect()
    }

    /// The part of the file that a request is about.
    fn part_of(&self, no: u16) -> Option<u32> {
        let cut = self.parts.get(usize::from(no))?.first()?;
        Some(self.layout.part(self.layout.stripe(cut.piece.file_offset)))
    }

    fn next_behind(&mut self, answered: u16) -> Option<Part> {
        let part = self.part_of(answered);
        let at = self.later.iter().position(|later| self.part_of(later.no) == part)?;
        Some(self.later.remove(at))
    }

    const fn reads(&self) -> bool {
        matches!(self.op, Op::Read | Op::ReadList)
    }

    const fn is_list(&self) -> bool {
        matches!(self.op, Op::ReadList | Op::WriteList)
    }

    /// Cuts what is wanted at the ends of stripes. Pieces of a list that follow each other at one
    /// shard are one part: their bytes are side by side.
    fn cut(&self, map: Option<&wire::Map>) -> Vec<Vec<Cut>> {
        let mut parts: Vec<Vec<Cut>> = Vec::new();
        let mut last_shard = None;
        for (owner, wanted) in self.wanted.iter().enumerate() {
            for stripe in self.layout.parts(wanted.file_offset..wanted.end()) {
                let file_offset = self.layout.start(stripe.stripe_index) + stripe.object_offset;
                let piece_bytes = u32::try_from(stripe.part_bytes).unwrap_or(u32::MAX);
                let cut = Cut { owner, piece: Piece { file_offset, piece_bytes } };
                let shard =
                    map.map(|map| map.stripe_shard(self.inode, self.layout, stripe.stripe_index));
                let goes_on = self.is_list() && shard == last_shard;
                let fits = |part: &&mut Vec<Cut>| goes_on && part.len() < PIECE_COUNT_MAX;
                match parts.last_mut().filter(fits) {
                    Some(part) => part.push(cut),
                    None => parts.push(Vec::from([cut])),
                }
                last_shard = shard;
            }
        }
        parts
    }

    /// Encodes a part's request. One of them counts as an access.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other op is split")]
    fn encode(&self, (no, cuts): (u16, &[Cut]), clears: ClearPrivileges, to: &mut Writer<'_>) {
        let inode = self.inode;
        let accesses = self.accesses && no == 0 && !self.is_glimpsed;
        let first = cuts.first().map_or(Piece { file_offset: 0, piece_bytes: 0 }, |cut| cut.piece);
        let Piece { file_offset, piece_bytes: read_bytes } = first;
        // They are parts of a valid list.
        let pieces = || Pieces::new(cuts.iter().map(|cut| cut.piece).collect()).unwrap_or_default();
        match self.op {
            Op::Read => to.write(&Read { inode, file_offset, read_bytes, accesses }),
            Op::ReadList => to.write(&ReadList { inode, pieces: pieces(), accesses }),
            Op::WriteList => to.write(&WriteList { inode, pieces: pieces(), clears }),
            _ => to.write(&Write { inode, file_offset, append: false, clears }),
        }
    }

    /// Takes a part's reply, or that to the glimpse.
    fn take(&mut self, reply: &PlanReply) {
        let part = self.parts.get_mut(usize::from(reply.part));
        match reply.outcome {
            Err(status) => {
                // The caller clears them, and writes everything again.
                let goes_first = status == Status::NeedClearPrivileges;
                let is_known = |known: Status| known == Status::NeedClearPrivileges;
                let is_first =
                    self.failed.is_none_or(|(part, known)| reply.part < part && !is_known(known));
                if goes_first || is_first {
                    self.failed = Some((reply.part, status));
                }
            }
            Ok(Body::Contents(contents)) => {
                self.end = self.end.max(contents.size_bytes);
            }
            Ok(Body::Bytes(bulk)) => {
                let cuts = part.map(core::mem::take).unwrap_or_default();
                let found_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes);
                let first = cuts.first().map_or(0, |cut| cut.piece.file_offset);
                self.take_bytes(&cuts, bulk, first + u64::from(found_bytes));
            }
            Ok(Body::List(bulk, ListRead { size_bytes })) => {
                let cuts = part.map(core::mem::take).unwrap_or_default();
                self.take_bytes(&cuts, bulk, size_bytes);
            }
            Ok(_) => {}
        }
    }

    /// Takes the bytes of a part, whose shard has none from `end` on.
    fn take_bytes(&mut self, cuts: &[Cut], bulk: Option<Bulk>, end: u64) {
        self.bufs.extend(bulk.map(|bulk| bulk.buf));
        let mut start = 0;
        for cut in cuts {
            let found_bytes = cut.piece.within(end);
            let found = Piece { piece_bytes: found_bytes, ..cut.piece };
            if found_bytes > 0 {
                self.end = self.end.max(found.end());
                let slice = bulk.map(|bulk| slice(bulk, start, found_bytes));
                self.found.extend(slice.map(|bulk| (Cut { piece: found, ..*cut }, bulk)));
                start += found_bytes;
            }
            let lacking_bytes = cut.piece.piece_bytes - found_bytes;
            if lacking_bytes > 0 {
                let piece = Piece { file_offset: found.end(), piece_bytes: lacking_bytes };
                self.short.push(Cut { piece, ..*cut });
            }
        }
    }

    /// All that was sent has been answered.
    fn next(&mut self) -> Step {
        if let Some((_, status)) = self.failed {
            return Step::Done(Err(status));
        }
        if self.short.is_empty() {
            return Step::Done(Ok(()));
        }
        let lacking: Vec<Cut> = core::mem::take(&mut self.short);
        if !core::mem::replace(&mut self.is_glimpsed, true) {
            self.short = lacking;
            self.parts.clear();
            return Step::Glimpse;
        }
        if self.parts.is_empty() {
            let within = |cut: &Cut| {
                let piece_bytes = cut.piece.within(self.end);
                let piece = Piece { piece_bytes, ..cut.piece };
                (piece_bytes > 0).then_some(Cut { piece, ..*cut })
            };
            let again: Vec<Cut> = lacking.iter().filter_map(within).collect();
            if !again.is_empty() {
                return Step::ReadAgain(again);
            }
        }
        Step::Done(Ok(()))
    }

    /// Where the bytes of each piece begin in the answer.
    fn starts(&self) -> Vec<(u32, Piece)> {
        let mut start = 0;
        let place = |wanted: &Piece| {
            let place = (start, *wanted);
            start += wanted.within(self.end);
            place
        };
        self.wanted.iter().map(place).collect()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other op is split")]
    const fn answer(&self, bulk: Option<Bulk>) -> Body {
        match self.op {
            Op::ReadList => Body::List(bulk, ListRead { size_bytes: self.end }),
            _ => Body::Bytes(bulk),
        }
    }

    /// What a write has written before the part that failed, if that is an answer.
    fn written_before(&self, status: Status) -> Option<Written> {
        let (part, _) = self.failed?;
        let must_fail = self.reads() || self.is_whole || status == Status::NeedClearPrivileges;
        let failed = self.parts.get(usize::from(part))?.first()?.piece.file_offset;
        let file_offset = self.wanted.first()?.file_offset;
        // The pieces of a list may come in any order.
        let written_bytes = u32::try_from(failed.checked_sub(file_offset)?).ok()?;
        (!must_fail && written_bytes > 0).then_some(Written { file_offset, written_bytes })
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other op is split")]
fn clears_of(exchange: &Exchange) -> ClearPrivileges {
    let write = || Write::decode_all(&exchange.body).map(|write| write.clears);
    let list = || WriteList::decode_all(&exchange.body).map(|write| write.clears);
    let clears = match exchange.op {
        Op::Write => write(),
        Op::WriteList => list(),
        _ => return ClearPrivileges::Nothing,
    };
    clears.unwrap_or(ClearPrivileges::Nothing)
}

/// Bytes of a bulk.
pub(crate) fn slice(bulk: Bulk, from: u32, bulk_bytes: u32) -> Bulk {
    if from == 0 && bulk_bytes == bulk.bulk_bytes {
        return bulk;
    }
    Bulk { start: bulk.start + from, bulk_bytes, crc32c: None, mac: NO_MAC, ..bulk }
}
