//! Sizes of files that are no longer open for writing: they move from the data shard to the
//! metadata shard, so that a client that reads attributes asks only one shard.
//!
//! ```text
//! metadata shard: last writer's Close    ─▶ QueryContents   ─▶ data shard: size and times,
//! metadata shard: a record, unless the   ◀─ DurableContents ◀─ when the bytes are durable: else a
//!                 file is open again                           size could outlive its bytes
//! ```
//! No request waits for the move, so it is not urgent: the contents of many files become durable
//! together, and those of a file that is removed soon never do. No client replays the record: after
//! a crash the size may still be with the data shard, and stays there until the file is written
//! again.

use crate::Lane;
use crate::peers::message::PeerBody;
use crate::request::{ReceivedRequest, Sizing};
use crate::spread::merged;
use crate::waiters::{Cause, Waiter};
use data::{Answer, Token};
use interface::{Mono, Turn};
use meta::LeaseKey;
use wire::{
    Contents, Create, Created, HEADER_BYTES, InodeNo, Op, Rule, ShardId, Transno, Wire as _,
};

impl Lane {
    /// The file that a request has just created, whose reply lies in [`crate::scratch::Scratch`], has no
    /// contents: its data shard need not look for any. Not so at another server if its client had the
    /// number before: that may have started again since the client wrote (docs/protocol.md R13.49).
    pub(crate) fn on_made(&mut self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) {
        if !matches!(received.request.op, Op::Create | Op::Tmpfile) {
            return;
        }
        let Ok(Created { attr, made }) = Created::decode_all(self.scratch.reply()) else { return };
        let at = self.lane_of(self.data_shard(attr.inode));
        if !made {
            // It may have contents.
        } else if at == self.me() {
            self.data.made(attr.inode);
        } else if at.server == self.config.server || !has_number(turn, received) {
            self.made_elsewhere.insert(attr.inode);
        }
    }

    /// The last writer of an inode of this lane has closed it.
    pub(crate) fn on_settling(&mut self, turn: &mut Turn<'_>, sizing: Sizing) {
        let Sizing { inode, number } = sizing;
        let layout = self.metas[self.meta_index(inode.shard())].layout(inode).flatten();
        let spread = layout.filter(wire::Layout::is_spread);
        let (to, is_fresh) = (self.data_shard(inode), self.made_elsewhere.remove(inode));
        let query = PeerBody::QueryContents { inode, number, spread, is_fresh };
        self.send_to_shard(turn, to, &query);
    }

    /// A metadata shard queries a file's size at a data shard of this lane.
    /// `spread`: its layout, if it has contents elsewhere, too.
    pub(crate) fn query_durable_size(
        &mut self,
        turn: &mut Turn<'_>,
        sizing: Sizing,
        spread: Option<wire::Layout>,
    ) {
        if self.commit.has_failed() || self.is_stopping() {
            return;
        }
        // Replays may still make the file longer; and the metadata shard may know of a map earlier,
        // without which it is not known where the contents are.
        let is_known = sizing.inode.generation() <= self.config.map.generation();
        if !self.recovery.is_over() || !is_known || self.has_late_changes(sizing.inode) {
            let sizings = &mut self.recovery.sizings;
            sizings.retain(|(earlier, _)| earlier.inode != sizing.inode);
            return sizings.push((sizing, spread));
        }
        if !self.is_own(self.data_shard(sizing.inode)) {
            return;
        }
        // The metadata shard does not know whether a file was widened.
        if let Some(layout) = spread.or_else(|| self.data.wide_layout(sizing.inode)) {
            return self.begin_settling(turn, sizing, layout);
        }
        let token = self.waiters.answers.await_size(sizing);
        self.data.query_durable_size(turn, token, sizing.inode);
        self.on_outcomes(turn);
    }

    /// Whether changes of a file's contents wait for leases. The file may be closed all the same:
    /// their callers have been killed (docs/protocol.md R13.46).
    pub(crate) fn has_late_changes(&self, inode: InodeNo) -> bool {
        self.waiters.has(&Cause::Lease(LeaseKey::Pages(inode)))
    }

    /// The end of recovery, or of leases, or a newer map.
    pub(crate) fn run_early_sizings(&mut self, turn: &mut Turn<'_>) {
        for (sizing, spread) in core::mem::take(&mut self.recovery.sizings) {
            self.query_durable_size(turn, sizing, spread);
        }
    }

    /// The data shard's reply: forwarded when it is durable.
    pub(crate) fn on_sized(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (shard, until, contents): (ShardId, Transno, Contents),
    ) {
        if self.on_part_done(turn, token, (shard, until, contents)) {
            return self.end_part(token);
        }
        if self.waiters.answers.request(token).is_some() {
            // Of a file that is to be appended to.
            let until = if self.is_whole_durable(token) { until } else { Transno(0) };
            return self.on_answered(turn, token, (Ok(Answer::Glimpsed(contents)), until));
        }
        let others = self.end_whole(turn, token);
        let contents = others.map_or(contents, |others| merged(others, contents));
        let Some(sizing) = self.waiters.answers.take_size(token) else { return };
        let durable = until <= self.commit.shard(shard).durable;
        if durable || !self.config.rules.hold(Rule::SettleDurable) {
            return self.send_size(turn, sizing, Some(contents));
        }
        self.waiters.suspend(Cause::Write(shard, until), Waiter::Size(sizing, contents));
    }

    /// Sends the durable size to the metadata shard; `None`: it cannot be made durable.
    pub(crate) fn send_size(
        &mut self,
        turn: &mut Turn<'_>,
        sizing: Sizing,
        contents: Option<Contents>,
    ) {
        let Sizing { inode, number } = sizing;
        let body = PeerBody::DurableContents { inode, number, contents };
        self.send_to_shard(turn, inode.shard(), &body);
    }

    /// Records the size of an inode of this lane.
    pub(crate) fn record_size(&mut self, now: Mono, sizing: Sizing, contents: Option<Contents>) {
        let Sizing { inode, number } = sizing;
        let shard = inode.shard();
        if !self.is_own(shard) || shard.is_data() {
            return;
        }
        let records = !self.commit.has_failed() && !self.is_stopping() && self.space_for_own();
        let contents = contents.filter(|_| records);
        let index = self.meta_index(shard);
        let mut changes = self.scratch.empty();
        let effect = self.metas[index].settle(inode, number, contents, &mut changes);
        if effect.transno.0 > 0 {
            self.record_own(shard, effect.transno, &changes);
            self.leases.on_settled(inode, now);
        }
        self.scratch.recycle(changes);
    }
}

/// Whether the client of a Create has the number of its file before the reply.
fn has_number(turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> bool {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    received.request.op == Op::Create
        && Create::decode_all(body).is_ok_and(|create| create.behind.is_some())
}
