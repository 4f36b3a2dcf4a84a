//! What replies have granted: to one job, and over one link.

use alloc::vec::Vec;
use interface::Mono;
use wire::{
    Attr, Grants, InodeNo, LeaseGrant, LeaseNo, NamedInodes, NewFiles, Op, ProtocolError, RecallNo,
    ReplyParts, lease_flag,
};

/// One grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OneGrant {
    pub(crate) link_index: usize,
    pub(crate) conn_epoch: u32,
    pub(crate) lease_no: LeaseNo,
    /// It lasts as long as this term of the client lane; 0: it has ended.
    pub(crate) term_no: u64,
}

/// What came with a reply's message.
#[derive(Clone, Debug)]
pub(crate) struct ReplyGrant {
    pub(crate) lease: Option<LeaseGrant>,
    /// Attributes of further inodes, granted as well.
    pub(crate) further: Vec<Attr>,
    pub(crate) new_files: Option<NewFiles>,
    pub(crate) named: Option<NamedInodes>,
}

impl ReplyGrant {
    pub(crate) fn of(parts: &ReplyParts<'_>) -> Result<Self, ProtocolError> {
        let ReplyParts { lease, new_files, named, .. } = *parts;
        Ok(Self { lease, further: parts.further_attributes()?, new_files, named })
    }
}

/// What the replies to a job's requests have granted.
#[derive(Clone, Default, Debug)]
pub(crate) struct JobGrants {
    pub(crate) attributes: Option<OneGrant>,
    pub(crate) name: Option<OneGrant>,
    pub(crate) new_name: Option<OneGrant>,
    pub(crate) contents: Option<OneGrant>,
    pub(crate) entries: Option<OneGrant>,
    pub(crate) writing: Option<OneGrant>,
    /// The pages that parts of a file over several data shards have granted.
    pub(crate) parts: Vec<OneGrant>,
    /// Attributes of further inodes.
    pub(crate) further: Vec<(Attr, OneGrant)>,
    /// What the last request has changed, if its reply says so.
    pub(crate) named: Option<NamedInodes>,
}

/// A link's leases.
#[derive(Debug)]
pub(crate) struct LinkLeases {
    /// The highest grant seen, and the highest that was recalled.
    pub(crate) granted_no: LeaseNo,
    pub(crate) recalled_no: LeaseNo,
    /// When its term ends; 0: there are no leases.
    pub(crate) until: Mono,
    /// The request was sent then whose reply has begun the term.
    pub(crate) began_at: Mono,
    /// Of the last grant.
    pub(crate) term_ms: u64,
    /// When a request was last sent.
    pub(crate) asked_at: Mono,
    /// The connection was lost while there were leases: the frontend drops everything first.
    pub(crate) must_drop: bool,
    /// The server must hear that everything up to this grant was dropped; 0: nothing.
    pub(crate) dropped_until: LeaseNo,
    /// Recalls to acknowledge, and when they arrived.
    pub(crate) acknowledged: Vec<(RecallNo, Mono)>,
    /// Files that are no longer written behind.
    pub(crate) written: Vec<InodeNo>,
}

impl JobGrants {
    pub(crate) fn add(&mut self, op: Op, granted: u8, grant: OneGrant) {
        let has = |flag: u8| granted & flag != 0;
        let fields = [
            (has(lease_flag::ATTRIBUTES), &mut self.attributes),
            (has(lease_flag::NAME), &mut self.name),
            (has(lease_flag::NEW_NAME), &mut self.new_name),
            (has(lease_flag::CONTENTS), &mut self.contents),
            (op.row().grants == Grants::Entries, &mut self.entries),
            (has(lease_flag::WRITING), &mut self.writing),
        ];
        for (_, field) in fields.into_iter().filter(|(is_granted, _)| *is_granted) {
            *field = Some(grant);
        }
    }
}

impl LinkLeases {
    pub(crate) const fn new() -> Self {
        Self {
            granted_no: LeaseNo(0),
            recalled_no: LeaseNo(0),
            until: Mono(0),
            began_at: Mono(0),
            term_ms: 0,
            asked_at: Mono(0),
            must_drop: false,
            dropped_until: LeaseNo(0),
            acknowledged: Vec::new(),
            written: Vec::new(),
        }
    }

    /// When a term ends that is counted from the sending of a request: a tenth earlier than at the
    /// server, whose clock may run faster.
    pub(crate) const fn term_from(&self, sent_at: Mono) -> Mono {
        sent_at.after_ms(self.term_ms - self.term_ms.div_ceil(10))
    }

    /// A Welcome arrived: of the same boot as before, or of another.
    pub(crate) fn welcomed(&mut self, same_boot: bool) {
        let (must_drop, written) = (self.must_drop, core::mem::take(&mut self.written));
        let granted_no = if same_boot { self.granted_no } else { LeaseNo(0) };
        let dropped_until = granted_no;
        // Replies of before may arrive late.
        let recalled_no = dropped_until;
        *self = Self { granted_no, recalled_no, must_drop, dropped_until, written, ..Self::new() };
    }
}
