//! Replies before they are encoded.

use crate::leases::ReplyLease;
use crate::request_header::{RequestHeader, Target};
use crate::session::Done;
use alloc::vec::Vec;
use interface::{Bulk, ConnId};
use wire::{Status, Transno};

/// The contents of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response<'a> {
    pub(crate) status: Status,
    pub(crate) transno: Transno,
    pub(crate) committed: Transno,
    pub(crate) flags: u16,
    pub(crate) body: &'a [u8],
    /// What is granted.
    pub(crate) lease: Option<&'a ReplyLease>,
    /// Redo token; may be empty.
    pub(crate) token: &'a [u8],
    pub(crate) bulk: Option<Bulk>,
    /// When a refused request is to be sent again, if later than usual.
    pub(crate) retry_after_ms: u32,
}

/// The reply to a slot's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotReply<'a> {
    pub(crate) target: Target,
    pub(crate) done: &'a Done,
    pub(crate) flags: u16,
    /// What is granted.
    pub(crate) lease: Option<&'a ReplyLease>,
    /// Redo token; may be empty.
    pub(crate) token: &'a [u8],
}

impl<'a> Response<'a> {
    /// The reply to a request that changed nothing.
    pub(crate) const fn plain(status: Status, body: &'a [u8]) -> Self {
        let (transno, committed) = (Transno(0), Transno(0));
        let (lease, bulk, retry_after_ms) = (None, None, 0);
        Self { status, transno, committed, flags: 0, body, lease, token: &[], bulk, retry_after_ms }
    }
}

/// A deferred reply without a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeferredReply {
    pub(crate) conn: ConnId,
    pub(crate) header: RequestHeader,
    pub(crate) status: Status,
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
}
