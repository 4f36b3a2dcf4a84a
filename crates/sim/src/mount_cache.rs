//! The cache of a client's lanes, behind that of its host's kernel: the production code, with calls
//! of all lanes, and small, so that it forgets.
//!
//! What it answers is held against the calls of all clients, its own included: a client's own
//! answered changes are seen by all of its lanes.

use crate::cache::{Offer, Seen};
use crate::clients::Mount;
use crate::due::Place;
use crate::number::narrow_u16;
use crate::reply::{ReplyBytes, result_of};
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, CallState, NameNo, Tag, name_of};
use client::{Answer, Asked, Cache, CacheSize, Granted, TakenAnswer};
use interface::Mono;
use wire::{InodeNo, LaneId, Rules, Status};

/// A tag of calls that are not made.
const NO_TAG: Tag = 0;

/// A small cache: it forgets, and keys share slots.
pub(crate) fn new_cache(seed: u64, rules: Rules) -> Cache {
    let size = CacheSize {
        name_count_max: 16,
        attributes_count_max: 16,
        directory_count_max: 8,
        slot_count: 64,
    };
    Cache::new([seed, !seed, seed.rotate_left(32)], size, rules)
}

/// A call of a client was answered: its lanes learn from that.
pub(crate) fn learn(
    known: &Cache,
    asked: Asked,
    (tag, spec): (Tag, &CallSpec),
    (result, offer): (&Result<Answer, Status>, Offer<'_>),
) {
    let Offer { granted, further, found, now } = offer;
    let listing = matches!(result, Ok(Answer::Listing(_))).then_some(&found.bytes[..]);
    let taken = TakenAnswer { result, granted, further, listing };
    spec.with(tag, None, |_, call| known.learn((now, asked), &call, &taken));
}

impl Mount {
    /// What the mount says of a name, if it is known.
    pub(crate) fn known_name(
        &self,
        now: Mono,
        (dir, name): (InodeNo, NameNo),
    ) -> Option<Option<InodeNo>> {
        self.known.found(now, dir, name_of(name)).map(|found| found.value)
    }
}

impl Simulation {
    /// A call that the mount answers by itself, if it does. The kernel may cache what the answer
    /// grants.
    pub(crate) fn is_answered_by_mount(
        &mut self,
        (client, lane): (usize, usize),
        spec: &CallSpec,
    ) -> bool {
        let is_asked_for = matches!(
            spec,
            CallSpec::Lookup { .. }
                | CallSpec::Getattr { .. }
                | CallSpec::Getxattr { .. }
                | CallSpec::Listxattr { .. }
        );
        if !self.plan.leases || !is_asked_for {
            return false;
        }
        let now = self.now_at(Place::Client(client, lane)).mono;
        let lane_id = LaneId(narrow_u16(lane));
        let mut found = None;
        let known = &self.mounts[client].known;
        spec.with(NO_TAG, None, |_, call| found = known.answer(now, lane_id, &call));
        let Some((result, granted)) = found else { return false };
        self.log_line(|| format!("client {client}.{lane}: {spec:?} from its mount: {result:?}"));
        let seen = match (&result, spec) {
            (Ok(Answer::Entry(attr)), _) => {
                if let CallSpec::Lookup { parent, name } = *spec {
                    self.check_known_name("L2", None, ((parent, name), Some(attr.inode)));
                }
                Seen::Attributes(*attr)
            }
            (_, CallSpec::Lookup { parent, name }) => {
                self.check_known_name("L2", None, ((*parent, *name), None));
                self.fill_kernel((client, *spec), (&result, &granted));
                return true;
            }
            (_, _) => Seen::NoXattrs,
        };
        self.check_seen(client, spec, seen);
        self.fill_kernel((client, *spec), (&result, &granted));
        true
    }

    fn fill_kernel(
        &mut self,
        (client, spec): (usize, CallSpec),
        (result, granted): (&Result<Answer, Status>, &Granted),
    ) {
        let now_ns = self.now_ns;
        let ended = match result {
            Ok(answer) => CallState::Done(result_of(answer)),
            Err(status) => CallState::Failed(*status),
        };
        let call = CallRecord {
            client,
            spec,
            began_ns: now_ns,
            began_lives: self.lives(),
            ended_lives: self.lives(),
            ended_ns: Some(now_ns),
            ended,
            interrupted: false,
        };
        let now = self.now_at(Place::Client(client, 0)).mono;
        let found = &ReplyBytes::default();
        let offer = Offer { granted, further: &[], found, now };
        self.mounts[client].cache.end(&call, now_ns, offer);
    }
}
