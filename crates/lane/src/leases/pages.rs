//! Leases of pages: what a read leaves in a page cache, and so in mappings. They are at the data
//! shard, because a file is written while it is open.
//!
//! ```text
//! read for pages ─▶ lease ─▶ bytes ─▶ reply ─ brief? ─▶ recall, behind the reply
//! change of contents ─ foreign leases? ─ no ─▶ execute
//!                         └ yes: recall, suspend ─▶ ended ─▶ looked at anew
//! ```
//! A read never waits for a lease: the holder's kernel has locked the pages that it reads, and drops
//! others only when it was answered. So where others get no lease, it gets a brief one.
//!
//! Invariant: the lease is there before the bytes are read, and every change that does not wait for
//! it has ended then.

use super::outgoing::Recalled;
use super::table::{Lease, Refusal};
use super::{Leases, ReplyLease};
use crate::Lane;
use crate::request::ReceivedRequest;
use alloc::boxed::Box;
use alloc::vec::Vec;
use interface::{Mono, Turn};
use meta::{LeaseConflict, LeaseKey};
use wire::{
    Changes, ClientUuid, Executor, Grants, HEADER_BYTES, InodeNo, LeaseGrant, LeaseNo, Op,
    ProtocolError, Rule, Rules, SessionId, lease_flag, request_flag,
};

/// What the reply to a read will grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PagesGrant {
    inode: InodeNo,
    lease: Lease,
    /// It is recalled behind the reply.
    is_brief: bool,
    /// The next recovery awaits the client. Else the reply grants nothing, and the client drops the
    /// pages by itself.
    is_recorded: bool,
}

impl Leases {
    /// Grants the pages of a file, for as long as nothing speaks against it.
    fn grant_pages(
        &mut self,
        inode: InodeNo,
        (session, client): (SessionId, ClientUuid),
        now: Mono,
        is_recorded: bool,
    ) -> Option<PagesGrant> {
        let key = LeaseKey::Pages(inode);
        let is_hot = self.heat.is_hot(key, now);
        self.counts.refused_hot_count += u64::from(is_hot);
        let is_recalled = self.table.live(key, now).iter().any(Lease::is_recalled);
        let is_brief = !is_recorded || is_hot || is_recalled || self.is_awaited(key, now);
        let lease_no = LeaseNo(self.lease_no_last.0 + 1);
        let mut lease = Lease::new(session, lease_no, now);
        if is_brief {
            lease.ends_at = self.brief_until(key, now);
        }
        let times = (now, self.term_from(now));
        self.table.renew(session, times, self.lease_no_last);
        match self.table.hold(key, client, lease, times) {
            Ok(()) => {}
            Err(Refusal::Share(too_large)) => {
                self.counts.refused_share_count += 1;
                if let Some(session) = too_large {
                    self.outgoing.entry(session).or_default().all = true;
                }
                return None;
            }
            Err(Refusal::Recalled) => return None,
        }
        self.counts.granted_count += 1;
        self.lease_no_last = lease_no;
        if is_brief {
            self.set_expiry(key, lease.ends_at);
        }
        Some(PagesGrant { inode, lease, is_brief, is_recorded })
    }

    /// When a brief lease ends at the latest: a term from now, and half a term after the longest
    /// wait for earlier ones, so that a change does not wait for ever for reads that go on.
    fn brief_until(&self, key: LeaseKey, now: Mono) -> Mono {
        let waiting = self.waits.get(&key).filter(|wait| wait.count > 0);
        let last = waiting.map(|wait| wait.since.after_ms(self.wait_ms + self.wait_ms / 2));
        self.term_from(now).min(last.unwrap_or(Mono(u64::MAX)))
    }

    /// The read of a brief lease is answered.
    fn recall_brief(&mut self, PagesGrant { inode, lease, .. }: PagesGrant) {
        self.counts.recalled_count += 1;
        let recalled = Recalled { lease, key: LeaseKey::Pages(inode) };
        self.outgoing.entry(lease.session).or_default().add(recalled, &[]);
    }
}

impl Lane {
    /// Grants the pages of a file to the client that is about to read it, if it keeps them.
    pub(crate) fn grant_pages(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Option<PagesGrant> {
        let request = received.request;
        let asks =
            request.op.row().grants == Grants::Pages && request.flags & request_flag::LEASES != 0;
        let grants = self.leases.term_ms > 0 && !self.commit.has_failed();
        if !asks || !grants || !self.recovery.is_over() {
            return None;
        }
        let inode = request.op.inodes(&turn.arena.get(received.frame)[HEADER_BYTES..])[0]?;
        if self.spread.pages.is_cutting(inode) {
            return None;
        }
        let client = received.open.client;
        let is_recorded = !self.config.rules.hold(Rule::LeaseRestart)
            || self.is_recorded((request.shard, request.session));
        self.leases.grant_pages(inode, (request.session, client), turn.now.mono, is_recorded)
    }

    /// What the reply to a read says of that.
    pub(crate) fn reply_pages(&self, pages: PagesGrant) -> Option<ReplyLease> {
        if !pages.is_recorded {
            return None;
        }
        let term_ms = u32::try_from(self.leases.term_ms).unwrap_or(u32::MAX);
        let (lease_no, granted) = (pages.lease.lease_no, lease_flag::CONTENTS);
        let grant = LeaseGrant { lease_no, term_ms, granted, further_count: 0 };
        Some(ReplyLease { grant, further: Vec::new(), new_files: None, named: None })
    }

    /// A read is answered, or has failed.
    pub(crate) fn end_read_of_pages(&mut self, pages: Option<PagesGrant>) {
        if let Some(pages) = pages.filter(|pages| pages.is_brief) {
            self.leases.recall_brief(pages);
        }
    }

    /// Suspends a change of contents of which other clients have pages, and recalls these. Returns
    /// whether it did. What a client writes back while its own pages are recalled does not wait: the
    /// acknowledgement waits for it.
    pub(crate) fn waits_for_pages(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let request = received.request;
        let row = request.op.row();
        let changes = row.executor == Executor::Data && row.changes == Changes::Always;
        let rules: Rules = self.config.rules;
        if self.leases.is_empty() || !changes || !rules.hold(Rule::LeasePages) {
            return false;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let Some(inode) = request.op.inodes(body)[0] else { return false };
        let (key, now) = (LeaseKey::Pages(inode), turn.now.mono);
        // Other shards will change a wide file, which know of no pages that it had before.
        let is_widened = request.op == Op::Widen;
        let client = if is_widened { ClientUuid::NONE } else { received.open.client };
        let is_awaited = request.flags & request_flag::WRITE_BACK != 0
            && self.leases.table.is_recalled_from(key, client, now);
        if !self.leases.recall(&LeaseConflict::of(key), client, now) || is_awaited {
            return false;
        }
        let keys: Box<[LeaseKey]> = Box::from([key]);
        self.leases.begin_wait(&keys, now);
        self.suspend_for_leases(turn, received, (key, keys));
        true
    }

    /// Executes what takes effect once, at a data shard, which owns the bulk from here on.
    pub(crate) fn run_data(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<(), ProtocolError> {
        if self.refuses_write_behind(turn, received)
            || self.refuses_narrow_file(turn, received)
            || self.waits_for_pages(turn, received)
        {
            return Ok(());
        }
        self.ask_data(turn, received)
    }
}
