//! Queries between lanes about containment: whether a directory lies below another, and a client's
//! rights to an inode. Replies are cached until a directory moves or the inode changes; a lane
//! announces that before it replies to the request that caused it.

use crate::Lane;
use crate::containment::Cached;
use crate::peers::containment::{ContainmentMessage, ContainmentQuery as Question, Use};
use crate::peers::message::PeerBody;
use core::ops::Range;
use interface::{Mono, Turn};
use wire::{ClientUuid, InodeNo, PeerLane, ShardId, Squash};

impl Lane {
    pub(crate) fn ask_below(&mut self, turn: &mut Turn<'_>, top: InodeNo, dir: InodeNo) {
        let (now, queried) = (turn.now.mono, &mut self.containment.queried_below);
        if queried.contains_key(&(top, dir)) {
            return;
        }
        if self.is_reachable(dir.shard()) {
            self.containment.queried_below.insert((top, dir), now);
            let query = Question::Below { by: self.me(), top, dir };
            self.send_containment(turn, dir.shard(), ContainmentMessage::Ask { query });
        }
    }

    pub(crate) fn ask_use(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, client): (InodeNo, ClientUuid),
        top: InodeNo,
        squash: Squash,
    ) {
        if self.containment.queried_uses.contains_key(&(inode, client)) {
            return;
        }
        // The next connection to its lane begins with a new check.
        if self.is_reachable(inode.shard()) {
            self.containment.queried_uses.insert((inode, client), turn.now.mono);
            let (by, number) = (self.me(), self.containment.number);
            let query = Question::Use { by, inode, client, top, squash, number };
            self.send_containment(turn, inode.shard(), ContainmentMessage::Ask { query });
        }
    }

    fn send_containment(&mut self, turn: &mut Turn<'_>, to: ShardId, message: ContainmentMessage) {
        self.send_to_shard(turn, to, &PeerBody::Containment { message });
    }

    pub(crate) fn on_containment_message(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        message: ContainmentMessage,
    ) {
        let is_own = from.server == self.config.server;
        match message {
            ContainmentMessage::Ask { query: question } => {
                self.containment.questions.push((turn.now.mono, question));
                self.answer_questions(turn);
            }
            ContainmentMessage::Below { top, dir, below, stays, moves } => {
                let asked_at = self.containment.queried_below.remove(&(top, dir));
                let stays = stays && is_own;
                if !stays || moves == self.containment.moves {
                    let asked_at = if stays { Some(Cached::<bool>::STAYS) } else { asked_at };
                    if let Some(asked_at) = asked_at {
                        let below = Cached { known: below, asked_at };
                        self.containment.cache_below((top, dir), below);
                    }
                }
                self.containment.due = true;
            }
            ContainmentMessage::MayUse { inode, client, granted, number, stays, moves } => {
                if number == self.containment.number {
                    let asked_at = self.containment.queried_uses.remove(&(inode, client));
                    let stays = stays && is_own;
                    if !stays || moves == self.containment.moves {
                        let asked_at = if stays { Some(Cached::<Use>::STAYS) } else { asked_at };
                        if let Some(asked_at) = asked_at {
                            let granted = Cached { known: granted, asked_at };
                            self.containment.cache_use(inode, client, granted);
                        }
                    }
                }
                self.containment.due = true;
            }
            ContainmentMessage::Changed { inode } => {
                self.containment.uses.remove(&inode);
            }
            ContainmentMessage::Moved { id } => {
                self.containment.apply_move(id);
                self.containment.due = true;
            }
            ContainmentMessage::Found { inode, dir } => {
                if self.is_own(inode.shard()) {
                    let index = self.meta_index(inode.shard());
                    self.metas[index].record_found_name(inode, dir);
                }
            }
        }
    }

    /// Answers the pending queries; those that depend on this lane's own queries stay pending.
    pub(crate) fn answer_questions(&mut self, turn: &mut Turn<'_>) {
        let questions = core::mem::take(&mut self.containment.questions);
        for (arrived, question) in questions {
            match self.answer_to(turn, arrived, question) {
                Some((to, message)) => {
                    self.send_to_lane(turn, to, &PeerBody::Containment { message });
                }
                None => self.containment.questions.push((arrived, question)),
            }
        }
    }

    fn answer_to(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: Mono,
        question: Question,
    ) -> Option<(PeerLane, ContainmentMessage)> {
        match question {
            Question::Below { by, top, dir } => {
                let (below, stays) = self.lies_below(turn, (top, arrived), dir)?;
                Some((
                    by,
                    ContainmentMessage::Below {
                        top,
                        dir,
                        below,
                        stays,
                        moves: self.containment.moves,
                    },
                ))
            }
            Question::Use { by, inode, client, top, squash, number } => {
                let way = (top, arrived);
                let (granted, stays) = self.use_here(turn, (inode, client), way, squash)?;
                let index = self.meta_index(inode.shard());
                self.metas[index].watch(inode);
                let moves = self.containment.moves;
                let answer =
                    ContainmentMessage::MayUse { inode, client, granted, number, stays, moves };
                Some((by, answer))
            }
        }
    }

    /// Sends a name found for an inode of another lane to that lane, before the reply leaves.
    pub(crate) fn send_found(&mut self, turn: &mut Turn<'_>, found: Option<(InodeNo, InodeNo)>) {
        if let Some((inode, dir)) = found
            && self.config.map.has(inode.shard())
        {
            self.send_containment(turn, inode.shard(), ContainmentMessage::Found { inode, dir });
        }
    }

    /// Announces changed inodes and moves at these metadata shards to the other lanes.
    pub(crate) fn send_containment_changes(&mut self, turn: &mut Turn<'_>, indices: Range<usize>) {
        if !self.exports.has_stored() {
            return;
        }
        for index in indices {
            for inode in self.metas[index].touched() {
                let message = ContainmentMessage::Changed { inode };
                self.send_to_own_lanes(turn, &PeerBody::Containment { message });
            }
            if self.metas[index].has_moved() {
                self.announce_move(turn);
            }
        }
    }

    /// A directory has moved: all lanes drop what they have cached about containment.
    pub(crate) fn announce_move(&mut self, turn: &mut Turn<'_>) {
        if self.exports.has_stored() {
            let id = self.containment.next_move();
            self.containment.apply_move(id);
            let message = ContainmentMessage::Moved { id };
            self.send_to_own_lanes(turn, &PeerBody::Containment { message });
        }
    }

    /// Once a turn.
    pub(crate) fn settle_containment(&mut self, turn: &mut Turn<'_>) {
        self.send_containment_changes(turn, 0..self.metas.len());
        if core::mem::take(&mut self.containment.due) && !self.is_stopping() {
            self.rerun_containment_waits(turn);
        }
    }
}
