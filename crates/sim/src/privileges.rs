//! Set-id bits: clients set them, and most writes must clear them, as those of processes that are not
//! root (docs/protocol.md R13.18). As a mount does, a client clears the bits before it writes if the file had
//! some when it was opened, and else when the write is refused, which is made again then. Here it must
//! still clear them, which a mount's second write need not: so a refusal for nothing shows.
//!
//! Checked in the end: no bit is left by a write that followed the answer of a call which has set or
//! shown it, and no write is refused that followed the answer of one which shows that there are none
//! (R12.18). A restart of the file's metadata shard excuses both: until handles are registered again, a
//! write may leave bits.

use crate::due::Verdict;
use crate::plan::{Faults, Injection, Plan};
use crate::servers::Lives;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, CallState, Kind, Tag};
use test_runtime::Prng;
use wire::{ClearPrivileges, FileKind, HandleId, InodeNo, Rule, Status, Transno};

const SET_USER: u32 = 0o4000;
/// Without the right of the group to execute, root may keep it.
const SET_GROUP: u32 = 0o2010;
const SET_ID: u32 = 0o6000;

pub(crate) const fn has_set_id(mode: u32) -> bool {
    mode & SET_ID != 0
}

pub(crate) const fn without_set_id(mode: u32) -> u32 {
    mode & !SET_ID
}

impl Plan {
    /// One of so many runs has set-id bits.
    const SET_ID_ONE_IN: u64 = 5;
    /// Makes the draws another stream than the run's. The seeds that were kept before have none.
    const SET_ID_STREAM: u64 = 0x1737;

    /// Some runs have set-id bits.
    pub(crate) fn with_set_id(mut self, seed: u64) -> Self {
        self.sets_id = match self.injection {
            None => Prng::new(seed ^ Self::SET_ID_STREAM).one_in(Self::SET_ID_ONE_IN),
            Some(Injection::Rule(rule) | Injection::Control(rule)) => rule == Rule::BitsTold,
            Some(Injection::LostBatch | Injection::LostResend | Injection::LostSync) => false,
        };
        self
    }

    /// Clients set and clear bits of a file that others look at and write. Messages between lanes are
    /// late.
    pub(crate) fn set_bits(&mut self) {
        const MIX: [(Kind, u64); 5] = [
            (Kind::Create, 1),
            (Kind::Open, 3),
            (Kind::Setattr, 4),
            (Kind::Getattr, 4),
            (Kind::Write, 8),
        ];
        self.mix = MIX.to_vec();
        self.client_lanes.resize_with(self.client_lanes.len().clamp(2, 3), || 1);
        self.over_late_lanes();
        (self.choice_count, self.name_count) = (1, 1);
        self.call_count = self.call_count.clamp(25, 60);
        (self.faults, self.last_crash) = (Faults::NONE, false);
    }
}

/// A call that has shown the attributes of a file.
#[derive(Clone, Copy, Debug)]
struct Look<'a> {
    call: &'a CallRecord,
    ended_ns: u64,
    version: Transno,
    has_set_id: bool,
}

/// What is known of one file.
struct Bits<'a> {
    /// Calls that set set-id bits.
    setters: Vec<&'a CallRecord>,
    looks: Vec<Look<'a>>,
}

impl Bits<'_> {
    /// Whether what was shown before `until_ns` includes what a call has done.
    fn is_before(&self, call: &CallRecord, until_ns: u64) -> bool {
        let is_over = |ended_ns| call.result().is_some() && ended_ns < until_ns;
        let version = call.result().and_then(|result| result.attr).map(|attr| attr.version);
        let has_shown = |look: &Look<'_>| look.ended_ns < until_ns && Some(look.version) >= version;
        call.ended_ns.is_some_and(is_over)
            || (version.is_some() && self.looks.iter().any(has_shown))
    }
}

impl Simulation {
    /// Some set-id bits, derived from a number that has chosen other bits already.
    pub(crate) fn set_id_of(&self, inode: InodeNo, number: u64) -> u32 {
        let is_file = self.seen.contains(&(inode, FileKind::File));
        if !self.plan.sets_id || !is_file {
            return 0;
        }
        [SET_USER, SET_GROUP, SET_USER | SET_GROUP, 0]
            .get(crate::number::narrow((number >> 32) % 4))
            .copied()
            .unwrap_or(0)
    }

    /// What a write must clear, by its value: root's processes clear nothing.
    pub(crate) fn cleared_by(&self, value: u8) -> ClearPrivileges {
        match self.plan.sets_id && !value.is_multiple_of(5) {
            true => ClearPrivileges::All,
            false => ClearPrivileges::Nothing,
        }
    }

    /// A client begins a write, through files of which one had set-id bits when it was opened: it clears
    /// them first. Returns whether it does.
    pub(crate) fn clears_first(&mut self, (client, lane): (usize, usize), spec: CallSpec) -> bool {
        let Some(inode) = spec.contents().filter(|_| clears(&spec)) else { return false };
        let had_bits = self.opened_with_set_id.iter().any(|(by, handle)| {
            let is_it =
                |(open, file, _): &(HandleId, InodeNo, bool)| (open, *file) == (handle, inode);
            *by == client && self.mounts[client].handles.iter().any(is_it)
        });
        if had_bits {
            let clearing = self.begin_call(client, lane, CallSpec::ClearBits { inode });
            self.retries.insert(clearing, spec);
        }
        had_bits
    }

    /// A call is answered: a write that was refused because of set-id bits has its client clear them, and
    /// is made again then.
    pub(crate) fn retry_when_cleared(
        &mut self,
        (client, lane): (usize, usize),
        tag: Tag,
        call: &CallRecord,
    ) {
        if let Some(result) = call.result()
            && result.attr.is_some_and(|attr| has_set_id(attr.mode))
        {
            self.opened_with_set_id.extend(result.handle.map(|handle| (client, handle)));
        }
        if let (Some(inode), CallState::Failed(Status::NeedClearPrivileges)) =
            (call.spec.contents(), &call.ended)
        {
            let clearing = self.begin_call(client, lane, CallSpec::ClearBits { inode });
            self.retries.insert(clearing, call.spec);
        }
        if let Some(spec) = self.retries.remove(&tag).filter(|_| call.result().is_some()) {
            let again = self.begin_call(client, lane, spec);
            let call = self.calls[self.calls.len() - 1].clone();
            self.record_change(again, &call);
        }
    }

    pub(crate) fn judge_privileges(&self) -> Verdict {
        let writes = self
            .calls
            .iter()
            .filter(|call| clears(&call.spec) && self.mounts[call.client].evicted_ns.is_none());
        for write in writes {
            let Some((inode, ended_ns)) = write.spec.contents().zip(write.ended_ns) else {
                continue;
            };
            match write.ended {
                // Not so what was answered early: nobody else has the file open then.
                CallState::Done(_) if write.ended_lives != Lives::default() => {
                    self.judge_cleared(inode, (write, ended_ns))?;
                }
                CallState::Failed(Status::NeedClearPrivileges) => {
                    self.judge_refused(inode, (write, ended_ns))?;
                }
                CallState::Open | CallState::Failed(_) | CallState::Done(_) => {}
            }
        }
        Ok(())
    }

    /// A write that clears set-id bits was executed.
    fn judge_cleared(&self, inode: InodeNo, (write, ended_ns): (&CallRecord, u64)) -> Verdict {
        let bits = self.bits_of(inode);
        let before = |call: &CallRecord| bits.is_before(call, write.began_ns);
        if bits.setters.iter().any(|setter| setter.may_have_happened() && !before(setter)) {
            return Ok(()); // It may have set them again.
        }
        let told = bits.setters.iter().filter(|setter| before(setter));
        let Some(told_ns) = told.map(|setter| setter.began_ns).max() else { return Ok(()) };
        let left = bits.looks.iter().find(|look| {
            look.has_set_id
                && look.call.began_ns > ended_ns
                && !self.has_crashed(inode, told_ns, look.ended_ns)
        });
        match left {
            Some(look) => Err(format!(
                "R12.18: {:?} followed the answer of what has set set-id bits of inode {inode}, and                  has left them: {:?}",
                write.spec, look.call
            )),
            None => Ok(()),
        }
    }

    /// A write that clears set-id bits was refused because there are some.
    fn judge_refused(&self, inode: InodeNo, (write, ended_ns): (&CallRecord, u64)) -> Verdict {
        let bits = self.bits_of(inode);
        let is_none = |look: &&Look<'_>| {
            let is_later = |setter: &&CallRecord| {
                setter.may_have_happened() && !bits.is_before(setter, look.call.began_ns.max(1))
            };
            !look.has_set_id
                && look.ended_ns < write.began_ns
                && !bits.setters.iter().any(|setter| is_later(setter) && !is_shown(setter, look))
                && !self.has_crashed(inode, look.call.began_ns, ended_ns)
        };
        match bits.looks.iter().find(is_none) {
            Some(look) => Err(format!(
                "R12.18: {:?} was refused for set-id bits of inode {inode}, and none are left: {:?}",
                write.spec, look.call
            )),
            None => Ok(()),
        }
    }

    fn bits_of(&self, inode: InodeNo) -> Bits<'_> {
        let sets = |call: &&CallRecord| match call.spec {
            CallSpec::Setattr { inode: changed, mode } => changed == inode && has_set_id(mode),
            _ => false,
        };
        let looks = self.calls.iter().filter_map(|call| {
            // Only of such calls has the answer the version of the file.
            let (CallSpec::Getattr { .. }
            | CallSpec::Lookup { .. }
            | CallSpec::Open { .. }
            | CallSpec::Setattr { .. }
            | CallSpec::ClearBits { .. }) = call.spec
            else {
                return None;
            };
            let attr = call.result()?.attr.filter(|attr| attr.inode == inode)?;
            let has_set_id = has_set_id(attr.mode);
            Some(Look { call, ended_ns: call.ended_ns?, version: attr.version, has_set_id })
        });
        Bits { setters: self.calls.iter().filter(sets).collect(), looks: looks.collect() }
    }

    /// Whether the server of the metadata shard of a file has crashed between these times.
    fn has_crashed(&self, inode: InodeNo, from_ns: u64, until_ns: u64) -> bool {
        let server = self.server_of(inode.shard());
        let mut crashes = self.crashes.iter();
        crashes.any(|(crashed, at_ns)| *crashed == server && (from_ns..=until_ns).contains(at_ns))
    }
}

/// Whether a look shows what a call has done.
fn is_shown(call: &CallRecord, look: &Look<'_>) -> bool {
    let attr = call.result().and_then(|result| result.attr);
    attr.is_some_and(|attr| attr.version <= look.version)
}

const fn clears(spec: &CallSpec) -> bool {
    matches!(
        spec,
        CallSpec::Write { clears: ClearPrivileges::All, .. }
            | CallSpec::WriteList { clears: ClearPrivileges::All, .. }
            | CallSpec::Allocate { clears: ClearPrivileges::All, .. }
    )
}
