//! Sizes of files that nobody writes to any more: they move from the data shard, which always knows
//! them, to the metadata shard, so that whoever looks at the file asks one of the two.
//!
//! ```text
//! metadata shard: the last writer's Close ─▶ Settle  ─▶ data shard: what it keeps, as soon as all of
//! metadata shard: a note, unless somebody ◀─ Settled ◀─ it is durable; else a size could outlive
//!                 opened it for writing                 the bytes it speaks of
//! ```
//! Nobody waits for it, so nobody hurries: what was written to many files becomes durable together,
//! and what is removed soon never does. No client brings the note back: after a crash the size may
//! be with the data shard still, and stays there until somebody writes again.

use crate::Lane;
use crate::unstable::Waiter;
use data::Token;
use interface::{LaneMessage, Turn};
use wire::{Contents, Created, InodeNo, Op, Rule, ShardId, Transno, Wire as _};

/// What a metadata shard asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizing {
    pub(crate) inode: InodeNo,
    /// The question's, given back.
    pub(crate) number: u64,
}

impl Lane {
    /// What a request made, whose reply lies in the scratch vector, has no contents: a data shard of
    /// this lane need not look for any.
    pub(crate) fn on_made(&mut self, op: Op) {
        if !matches!(op, Op::Create | Op::Tmpfile) {
            return;
        }
        let Ok(Created { attr, made }) = Created::decode_all(&self.reply) else { return };
        if made && self.data_lane(attr.inode) == self.config.lane {
            self.data.made(attr.inode);
        }
    }

    /// Nobody writes to an inode of this lane any more.
    pub(crate) fn on_settling(&mut self, turn: &mut Turn<'_>, sizing: Sizing) {
        let Sizing { inode, number } = sizing;
        self.send_message(
            turn,
            self.data_lane(inode),
            LaneMessage::QueryContents { inode, number },
        );
    }

    /// A metadata shard wants to know what a data shard of this lane keeps.
    pub(crate) fn ask_size(&mut self, turn: &mut Turn<'_>, sizing: Sizing) {
        let here = self.data_lane(sizing.inode) == self.config.lane;
        if !here || self.fenced || self.stopping {
            return;
        }
        if !self.recovery.is_over() {
            // What clients bring back may make the file longer, and is not there yet.
            return self.recovery.sizings.push(sizing);
        }
        self.token_count += 1;
        let token = Token(self.token_count);
        self.sizing.insert(token.0, sizing);
        self.data.ask_size(turn, token, sizing.inode);
        self.on_outcomes(turn);
    }

    /// The data shard answers.
    pub(crate) fn on_sized(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (shard, until, contents): (ShardId, Transno, Contents),
    ) {
        let Some(sizing) = self.sizing.remove(&token.0) else { return };
        let durable = until <= self.commit.shard(shard).durable;
        if durable || !self.config.rules.hold(Rule::SettleDurable) {
            return self.send_size(turn, sizing, Some(contents));
        }
        let waiters = self.waiters.entry((shard, until)).or_default();
        waiters.push(Waiter::Size(sizing, contents));
    }

    /// What the data shard keeps is durable; `None`: it could not be had.
    pub(crate) fn send_size(
        &mut self,
        turn: &mut Turn<'_>,
        sizing: Sizing,
        contents: Option<Contents>,
    ) {
        let Sizing { inode, number } = sizing;
        let to = self.config.map.lane(inode.shard());
        self.send_message(turn, to, LaneMessage::DurableContents { inode, number, contents });
    }

    /// The size of an inode of this lane is known.
    pub(crate) fn note_size(&mut self, sizing: Sizing, contents: Option<Contents>) {
        let Sizing { inode, number } = sizing;
        let shard = inode.shard();
        if !self.is_own(shard) || shard.is_data() {
            return;
        }
        let records = !self.fenced && !self.stopping && self.space_for_own();
        let contents = contents.filter(|_| records);
        let index = self.meta_index(shard);
        let mut changes = core::mem::take(&mut self.changes);
        changes.clear();
        let effect = self.metas[index].settle(inode, number, contents, &mut changes);
        if effect.transno.0 > 0 {
            self.record_own(shard, effect.transno, &changes);
        }
        self.changes = changes;
    }
}
