//! A truncation of a file over several servers is executed once by each part, unless a server dies
//! meanwhile (docs/protocol.md R13.32). While it is under way, a read may show bytes that it has cut and,
//! in the same stripe, such as were written behind that. It does not cut those: also where its last
//! byte is in the home part, which is cut first and recorded last.

use crate::bytes::{Found, TimedChange};
use crate::plan::MS;
use crate::simulation::Simulation;
use crate::trace::TraceCall::{CreateOpen, Cut, Open, Read, Write};
use crate::trace::TraceStep::{self, Answered, Idle, LoseParts, Wait};
use crate::work::{CallRecord, CallSpec, CallState, Tag};
use wire::{InodeNo, Layout};

/// A file's second stripe is cut, written and read while the answer of its server is lost.
pub(crate) const CUT_ONCE: &[TraceStep] = &[
    TraceStep::Call((0, 0), CreateOpen(0)),
    Answered,
    TraceStep::Call((1, 0), Open),
    Answered,
    TraceStep::Call((0, 0), Write(STRIPE_BYTES, 1)),
    Answered,
    TraceStep::Call((0, 0), Write(STRIPE_BYTES + 100, 2)),
    Answered,
    Idle,
    TraceStep::Call((0, 0), Cut(10)),
    Wait(5 * MS),
    LoseParts(200 * MS),
    Wait(5 * MS),
    TraceStep::Call((1, 0), Write(STRIPE_BYTES + 100, 3)),
    Answered,
    TraceStep::Call((1, 0), Read(STRIPE_BYTES)),
];
/// A file is cut in its first stripe, which is written while the cut of the second one is delayed.
pub(crate) const CUT_HOME_ONCE: &[TraceStep] = &[
    TraceStep::Call((0, 0), CreateOpen(0)),
    Answered,
    TraceStep::Call((1, 0), Open),
    Answered,
    TraceStep::Call((0, 0), Write(0, 1)),
    Answered,
    TraceStep::Call((0, 0), Write(STRIPE_BYTES, 2)),
    Answered,
    Idle,
    TraceStep::Call((0, 0), Cut(10)),
    Wait(5 * MS),
    LoseParts(200 * MS),
    Wait(5 * MS),
    TraceStep::Call((1, 0), Write(100, 3)),
    Answered,
    TraceStep::Call((1, 0), Read(0)),
    Answered,
    Idle,
    TraceStep::Call((1, 0), Read(0)),
];
const STRIPE_BYTES: u64 = Layout::SPREAD_UNIT_BYTES_MIN;

/// A write that is known to have come behind a truncation that was under way, at one byte.
#[derive(Clone, Copy, Debug)]
struct Behind {
    inode: InodeNo,
    truncation: Tag,
    write: Tag,
    at: u64,
    seen_ns: u64,
}

/// All of a run.
#[derive(Default, Debug)]
pub(crate) struct CutsSeen(Vec<Behind>);

/// The changes of a file, each with its call.
type Changes = Vec<(Tag, TimedChange)>;

impl Simulation {
    /// A read has found bytes.
    pub(crate) fn check_cuts(&mut self, (inode, call): (InodeNo, &CallRecord), found: &Found<'_>) {
        if !self.plan.spreads {
            return;
        }
        let tags = self.file_changes.get(&inode).into_iter().flatten().map(|(tag, _)| *tag);
        let changes: Changes = tags.zip(self.changes_of(inode, call.began_ns)).collect();
        if let Some(behind) = self.cut_twice(inode, call, (&changes, found)) {
            let Behind { truncation, write, at, .. } = behind;
            return self.violates(format!(
                "R13.32: call {write} wrote byte {at} of inode {inode} behind the truncation of call \
                 {truncation}, which has then cut it: {call:?}"
            ));
        }
        let seen = self.writes_behind_cuts(inode, (&changes, found));
        self.cuts_seen.0.extend(seen);
    }

    /// Finds writes that came behind a truncation which is under way.
    fn writes_behind_cuts(
        &self,
        inode: InodeNo,
        (changes, found): (&Changes, &Found<'_>),
    ) -> Vec<Behind> {
        let unit_bytes = self.plan.spread_unit_bytes();
        let mut all = Vec::new();
        for (truncation, cut) in changes {
            let Some(CallRecord { spec: CallSpec::Resize { .. }, ended: CallState::Open, .. }) =
                self.call_of(*truncation)
            else {
                continue;
            };
            let bytes = || (found.from..).zip(found.bytes).filter(|(at, _)| cut.clears(*at));
            // It alone can have removed what was there.
            let is_cut = |at: u64| {
                changes.iter().any(|(_, before)| {
                    let mut others = changes.iter().filter(|(other, _)| other != truncation);
                    before.certain
                        && before.covers(at)
                        && others.all(|(_, other)| !other.clears(at) || other.is_before(before))
                })
            };
            let Some((shown, _)) = bytes().find(|(at, byte)| **byte == 0 && is_cut(*at)) else {
                continue;
            };
            for (at, byte) in bytes().filter(|(at, _)| at / unit_bytes == shown / unit_bytes) {
                let mut writers =
                    changes.iter().filter(|(_, change)| change.may_have_put(at, *byte));
                if let (Some((write, _)), None) = (writers.next(), writers.next()) {
                    let (truncation, write, seen_ns) = (*truncation, *write, self.now_ns);
                    all.push(Behind { inode, truncation, write, at, seen_ns });
                }
            }
        }
        all
    }

    /// A write behind a truncation that a read does not show any more, although nothing else can have
    /// removed its byte.
    fn cut_twice(
        &self,
        inode: InodeNo,
        call: &CallRecord,
        (changes, found): (&Changes, &Found<'_>),
    ) -> Option<Behind> {
        let end = found.from + crate::number::wide(found.bytes.len());
        let is_missing = |at: u64| match at.checked_sub(found.from) {
            None => false,
            Some(_) if at >= end => found.at_end,
            Some(index) => found.bytes[crate::number::narrow(index)] == 0,
        };
        let all = self.cuts_seen.0.iter().filter(|behind| {
            behind.inode == inode && behind.seen_ns < call.began_ns && is_missing(behind.at)
        });
        let is_wrong = |behind: &&Behind| {
            let of = |tag: Tag| changes.iter().find(|(other, _)| *other == tag);
            let Some((_, write)) = of(behind.write).filter(|(_, write)| write.certain) else {
                return false;
            };
            let cut_ns = self.call_of(behind.truncation).map_or(0, |cut| cut.began_ns);
            let mut others = changes.iter().filter(|(tag, _)| *tag != behind.truncation);
            others.all(|(_, other)| !other.clears(behind.at) || other.is_before(write))
                // A client that was evicted makes it again.
                && self.call_of(behind.truncation).is_some_and(|cut| {
                    self.mounts[cut.client].evicted_ns.is_none()
                })
                && !self.crashes.iter().any(|(_, at_ns)| *at_ns >= cut_ns)
        };
        let mut wrong = all.filter(is_wrong);
        wrong.next().copied()
    }
}
