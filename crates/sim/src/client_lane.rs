//! A lane of a simulated client.

use crate::servers::Lives;
use crate::work::Tag;
use client::{Asked, Client, RecallId, RecalledKey};
use interface::Bulk;
use std::collections::BTreeMap;
use test_runtime::LaneState;

/// The core of a client lane and its simulated surroundings.
pub(crate) struct ClientLane {
    pub(crate) core: Client,
    pub(crate) state: LaneState,
    /// Unanswered calls, with the buffer of a write.
    pub(crate) outstanding: BTreeMap<Tag, Option<Bulk>>,
    /// Calls to begin in the next turn.
    pub(crate) to_begin: Vec<Tag>,
    pub(crate) interrupts: Vec<Tag>,
    /// Calls under way, for the cache of the mount.
    pub(crate) asked: BTreeMap<Tag, Asked>,
    /// Recalls that are not processed yet, each from this time on.
    pub(crate) recalls: Vec<(u64, RecallId, Vec<RecalledKey>)>,
    /// When files are to be registered that are open without the server: a timer beside the core's.
    pub(crate) register_at_ns: Option<u64>,
    /// The oldest process of each server whose frames this turn received.
    pub(crate) frame_lives: Lives,
}

impl ClientLane {
    /// A lane without calls.
    pub(crate) fn new(core: Client) -> Self {
        Self {
            core,
            state: LaneState::default(),
            outstanding: BTreeMap::new(),
            to_begin: Vec::new(),
            interrupts: Vec::new(),
            asked: BTreeMap::new(),
            recalls: Vec::new(),
            register_at_ns: None,
            frame_lives: Lives::default(),
        }
    }
}
