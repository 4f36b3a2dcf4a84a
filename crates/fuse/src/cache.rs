//! Answers without an exchange: from what the lanes of the mount have learned under leases
//! ([`client::Cache`]).
//!
//! The kernel gets the rest of a lease as validity only from the lane that has it, because that one
//! hears of its recall. What another lane has learned is answered with validity 0, and only a few
//! times: then this lane asks for a lease of its own, because the kernel asks each time.
//!
//! Invariant: what a request changes is outdated for all lanes before the kernel gets the reply.

use crate::abi::Opcode;
use crate::args::split;
use crate::begin::{Decoded, RequestDecoder};
use crate::lane::MountLane;
use crate::leases::APPLY_MS_MAX;
use crate::pending::{Continuation, PendingRequest, Progress};
use alloc::sync::Arc;
use client::{Answer, Asked, Cache, Call, Client, Granted, RecalledKey, TakenAnswer};
use interface::{Mono, Turn};
use wire::{Attr, ClearPrivileges, Groups, InodeNo, Status};

/// The call of a request that needs no groups of its caller, and no bytes.
pub(crate) fn call_of(request: &[u8]) -> Result<Call<'_>, Status> {
    let (header, args) = split(request)?;
    let opcode = Opcode::from_number(header.opcode).ok_or(Status::NotImplemented)?;
    let decoder = RequestDecoder { header, args, groups: Groups::Unknown, bulk: None };
    let Decoded::Call(call, _) = decoder.decode(opcode)? else { return Err(Status::Invalid) };
    Ok(call)
}

impl PendingRequest {
    /// The next call of the request.
    pub(crate) fn decoded(&self) -> Result<Decoded<'_>, Status> {
        let groups = self.groups.as_deref().map_or(Groups::Unknown, Groups::Known);
        let (header, args) = split(&self.request)?;
        let opcode = Opcode::from_number(header.opcode).ok_or(Status::NotImplemented)?;
        let decoder = RequestDecoder { header, args, groups, bulk: self.bulk };
        match self.progress {
            Progress::Begun | Progress::LookedUp => decoder.decode(opcode),
            // Both have the name alone.
            Progress::LooksUp => match decoder.decode(Opcode::Lookup)? {
                Decoded::Call(call, _) => Ok(Decoded::Call(call, Continuation::LookedUp)),
                Decoded::Done
                | Decoded::Release(..)
                | Decoded::Init
                | Decoded::Silent
                | Decoded::Interrupt(_) => Err(Status::Invalid),
            },
            Progress::Size(clears) => decoder.set_rest(clears),
            Progress::NeedsClear => decoder.clear_after_refusal(opcode),
            Progress::Cleared if opcode == Opcode::Fallocate => {
                decoder.allocate(ClearPrivileges::Nothing)
            }
            Progress::Cleared if opcode == Opcode::CopyFileRange => {
                decoder.copy(ClearPrivileges::Nothing)
            }
            Progress::Cleared => decoder.write_bytes(ClearPrivileges::Nothing),
        }
    }
}

impl MountLane {
    /// The same lane, with the cache of all lanes of the mount.
    #[must_use]
    pub fn with_cache(mut self, cache: Arc<Cache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// The answer to a call, if it is known.
    pub(crate) fn known(
        &self,
        now: Mono,
        call: &Call<'_>,
        continuation: Continuation,
    ) -> Option<(Result<Answer, Status>, Granted)> {
        let cache = self.cache.as_ref()?;
        let (result, mut granted) = cache.answer(now, self.client.lane(), call)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the kernel keeps no other answers")]
        let says = match call {
            Call::Lookup(args) if result.is_ok() => {
                let is_kept = granted.name.is_some() && granted.attributes.is_some();
                is_kept || !self.leases.keeps_names(now) || cache.says_name(args.parent, args.name)
            }
            Call::Getattr(args) => {
                granted.attributes.is_some() || cache.says_attributes(args.inode)
            }
            _ => true,
        };
        if !says {
            return None; // The kernel asks again and again: the server grants this lane a lease.
        }
        if let Continuation::CachedAttr { .. } = continuation {
            // Another lane has the lease: the pages go on being used, the attributes do not.
            granted.attributes = granted.attributes.or(Some(now));
        }
        let root = self.client.root().unwrap_or(InodeNo::ROOT);
        Some((result.map(|answer| renumbered(answer, InodeNo::ROOT, root)), granted))
    }

    /// Learns from the answer to a request's call. To be called before the kernel gets the reply.
    pub(crate) fn learn(
        &mut self,
        turn: &Turn<'_>,
        pending_id: usize,
        result: &Result<Answer, Status>,
        granted: &Granted,
    ) {
        let Some(cache) = &self.cache else { return };
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        let Some(asked) = pending.asked.take() else { return };
        let root = self.client.root().unwrap_or(InodeNo::ROOT);
        let result = &result.map(|answer| renumbered(answer, root, InodeNo::ROOT));
        let listing = match result {
            Ok(Answer::Listing(listing)) => Some(turn.arena.get(*listing)),
            _ => None,
        };
        let is_part = matches!(
            pending.continuation,
            Continuation::CreateTruncated { .. }
                | Continuation::CreatedAgain { .. }
                | Continuation::EntryAgain
                | Continuation::CopyWritten { .. }
        );
        match pending.decoded() {
            Ok(Decoded::Call(call, _)) if !is_part => {
                let further = self.client.granted_further();
                let taken = TakenAnswer { result, granted, further, listing };
                cache.learn((turn.now.mono, asked), &call, &taken);
            }
            _ => cache.end_unlearned(asked),
        }
    }

    /// Whether the kernel may cache listings of a directory that is opened, and keep those that it
    /// has.
    pub(crate) fn keeps_listings(&self, now: Mono, dir: InodeNo) -> Option<bool> {
        self.cache.as_ref()?.keeps_listings(now, dir, APPLY_MS_MAX)
    }

    /// Nothing is answered from these any more. Returns whether a directory may have the name.
    pub(crate) fn recall_known(&self, now: Mono, key: &RecalledKey) -> bool {
        let Some(cache) = &self.cache else { return true };
        let is_part = self.client.root().is_some_and(|root| root != InodeNo::ROOT);
        let of_directory = matches!(key, RecalledKey::Name(dir, name)
            if cache.may_be_directory(now, *dir, name));
        if of_directory && is_part {
            // It may be moved out of the export, with all that is below it.
            cache.clear();
        }
        cache.recall(key);
        of_directory
    }

    /// The mount is used on any of its lanes: the leases of this one are kept for that.
    pub(crate) fn note_use(&mut self) {
        if let Some(cache) = &self.cache {
            self.client.note_use(cache.used_at());
        }
    }

    /// All lanes answer from what this one has learned, as long as its term lasts.
    pub(crate) fn set_term(&self) {
        if let Some(cache) = &self.cache {
            cache.set_term(self.client.lane(), self.client.term());
        }
    }

    /// Nothing is answered from what was learned so far.
    pub(crate) fn forget_known(&self) {
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// An abandoned change was executed, or was not: it is over.
    pub(crate) fn check_late_changes(&mut self) {
        if self.client.take_late_change() {
            self.forget_known();
        }
    }
}

/// A call is about to be made by this client.
pub(crate) fn begin_call(
    cache: Option<&Arc<Cache>>,
    client: &mut Client,
    (now, call): (Mono, &Call<'_>),
) -> Option<Asked> {
    let cache = cache?;
    if let Call::Read(wire::Read { inode, .. })
    | Call::ReadPages(wire::Read { inode, .. })
    | Call::Write(client::Write { inode, .. })
    | Call::WriteBack(client::Write { inode, .. }) = call
        && let Some(layout) = cache.layout(*inode)
    {
        client.learn_layout(*inode, layout);
    }
    Some(cache.begin(now, client.lane(), call))
}

/// The same answer with another number of an inode. The kernel shows the number that the export's
/// root has at the server; calls, recalls and the cache call it [`InodeNo::ROOT`].
fn renumbered(answer: Answer, from: InodeNo, to: InodeNo) -> Answer {
    let of = |attr: Attr| Attr { inode: if attr.inode == from { to } else { attr.inode }, ..attr };
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other answer shows the root")]
    match answer {
        Answer::Entry(attr) => Answer::Entry(of(attr)),
        Answer::Opened { attr, handle } => Answer::Opened { attr: of(attr), handle },
        other => other,
    }
}
