//! What the data shards and the runtime will answer, by token: requests, with the log space that is
//! reserved for their records, replays of writes, and sizes for metadata shards.

use crate::leases::PagesGrant;
use crate::request::{Replay, Sizing};
use crate::request_header::RequestHeader;
use alloc::collections::BTreeMap;
use data::Token;
use hashbrown::HashMap;
use interface::{ConnId, ContentsMac, Seed};
use wire::{Op, Retry, ShardId};

/// A request that waits for an outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) conn: ConnId,
    pub(crate) header: RequestHeader,
    /// The reply waits until the change is durable.
    pub(crate) synced: bool,
    /// A write behind: its client has received the replies to all its earlier changes of the file.
    pub(crate) behind: bool,
    /// The size of its frame.
    pub(crate) frame_bytes: usize,
    /// The MAC of the contents that came with it.
    pub(crate) contents: ContentsMac,
    /// What the reply to a read grants.
    pub(crate) pages: Option<PagesGrant>,
}

impl Waiting {
    /// Bytes of a data shard's record, at most, unless it names many ranges.
    const RECORD_BYTES: u64 = 512;

    /// Bytes of the request's record, at most.
    fn record_bytes(&self) -> u64 {
        let places_bytes = if self.header.op == Op::WriteList { self.frame_bytes } else { 0 };
        Self::RECORD_BYTES.saturating_add(u64::try_from(places_bytes).unwrap_or(u64::MAX))
    }
}

/// All that waits for an answer.
#[derive(Debug)]
pub(crate) struct Answers {
    token_last: u64,
    requests: HashMap<u64, Waiting, Seed>,
    /// Bytes of the requests' records, at most.
    record_bytes: u64,
    replays: HashMap<u64, Replay, Seed>,
    sizes: HashMap<u64, Sizing, Seed>,
    /// The requests among them that are writes behind and have not reached their objects, with their
    /// shards.
    unwritten: BTreeMap<u64, ShardId>,
}

impl Answers {
    pub(super) const fn new(seed: Seed) -> Self {
        Self {
            token_last: 0,
            requests: HashMap::with_hasher(seed),
            record_bytes: 0,
            replays: HashMap::with_hasher(seed),
            sizes: HashMap::with_hasher(seed),
            unwritten: BTreeMap::new(),
        }
    }

    /// A token of nothing that waits here.
    pub(crate) const fn new_token(&mut self) -> Token {
        self.next_token()
    }

    const fn next_token(&mut self) -> Token {
        self.token_last += 1;
        Token(self.token_last)
    }

    /// A request waits; its log space is reserved.
    pub(crate) fn await_request(&mut self, waiting: Waiting) -> Token {
        let token = self.next_token();
        self.record_bytes += waiting.record_bytes();
        self.requests.insert(token.0, waiting);
        token
    }

    /// A replay of a write waits.
    pub(crate) fn await_replay(&mut self, replay: Replay) -> Token {
        let token = self.next_token();
        self.replays.insert(token.0, replay);
        token
    }

    /// A metadata shard waits for the size of a file.
    pub(crate) fn await_size(&mut self, sizing: Sizing) -> Token {
        let token = self.next_token();
        self.sizes.insert(token.0, sizing);
        token
    }

    /// A request that waits is a write behind.
    pub(crate) fn begin_write_behind(&mut self, token: Token, shard: ShardId) {
        self.unwritten.insert(token.0, shard);
    }

    /// It has reached its object, or has failed. Returns its shard, if it is one.
    pub(crate) fn end_write_behind(&mut self, token: Token) -> Option<ShardId> {
        self.unwritten.remove(&token.0)
    }

    /// The last write behind of a shard that has not reached its object.
    pub(crate) fn last_write_behind(&self, shard: ShardId) -> Option<Token> {
        let last = self.unwritten.iter().rev().find(|(_, at)| **at == shard);
        last.map(|(token, _)| Token(*token))
    }

    /// The request of an answer, which no longer waits.
    pub(crate) fn take_request(&mut self, token: Token) -> Option<Waiting> {
        let waiting = self.requests.remove(&token.0)?;
        self.record_bytes -= waiting.record_bytes();
        Some(waiting)
    }

    /// The request that waits under a token.
    pub(crate) fn request(&self, token: Token) -> Option<&Waiting> {
        self.requests.get(&token.0)
    }

    /// The requests that wait, in no order.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &RequestHeader> {
        self.requests.values().map(|waiting| &waiting.header)
    }

    /// The replay of an answer, which no longer waits.
    pub(crate) fn take_replay(&mut self, token: Token) -> Option<Replay> {
        self.replays.remove(&token.0)
    }

    /// The replay that waits under a token.
    pub(crate) fn replay(&self, token: Token) -> Option<&Replay> {
        self.replays.get(&token.0)
    }

    /// The query of an answer, which no longer waits.
    pub(crate) fn take_size(&mut self, token: Token) -> Option<Sizing> {
        self.sizes.remove(&token.0)
    }

    /// The number of changes that wait: requests, replays and sizes.
    pub(crate) fn change_count(&self) -> usize {
        let changes = |waiting: &&Waiting| waiting.header.op.row().retry == Retry::Once;
        let requests = self.requests.values().filter(changes).count();
        requests + self.replays.len() + self.sizes.len()
    }

    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether no replay waits.
    pub(crate) fn has_no_replays(&self) -> bool {
        self.replays.is_empty()
    }

    /// Whether no metadata shard waits for a size.
    #[cfg(test)]
    pub(crate) fn has_no_sizes(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Bytes of all records of requests, at most.
    pub(crate) const fn record_bytes(&self) -> u64 {
        self.record_bytes
    }
}
