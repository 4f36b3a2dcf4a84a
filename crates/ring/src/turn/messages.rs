//! Messages from peer lanes, in the order in which they are applied.
//!
//! Invariant: messages from a peer lane are applied before requests that follow from its replies,
//! even if such a request comes through a third lane: messages about relayed connections are
//! applied after all messages that were in the queues when they were read.

use super::Parts;
use crate::mailbox::{QUEUE_COUNT_MAX, QueuedMessage};
use interface::{Event, PeerEvent};

/// Messages read from each peer lane in one turn.
const COUNT_MAX: usize = 256;

impl Parts {
    pub(super) fn read_messages(&mut self) {
        self.read_queues(COUNT_MAX);
        if self.relayed_waiting.is_empty() {
            return;
        }
        // Queues are read one by one: an earlier message from another peer lane may have come
        // meanwhile.
        let mut relayed_messages = std::mem::take(&mut self.relayed_waiting);
        self.read_queues(QUEUE_COUNT_MAX);
        for (from, relayed) in relayed_messages.drain(..) {
            self.conns.on_relayed(from, relayed, &mut self.io);
        }
        if self.relayed_waiting.is_empty() {
            self.relayed_waiting = relayed_messages;
        }
    }

    fn read_queues(&mut self, count_max: usize) {
        let Self { mailbox, io, conns, kernel, spin, relayed_waiting, .. } = self;
        mailbox.read(count_max, |from, message| {
            spin.worked = true;
            match message {
                QueuedMessage::Mount(message) => {
                    io.events.push(Event::Peer(PeerEvent::Message { from, message }))
                }
                QueuedMessage::Peer(encoded) => {
                    let body = io.arena.put(&encoded);
                    io.events.push(Event::Peer(PeerEvent::Received { from, body }));
                }
                QueuedMessage::Socket { socket, seal, hello } => {
                    conns.adopt((socket, seal), &hello, io);
                }
                QueuedMessage::Relayed(relayed) => {
                    relayed_waiting.push((usize::from(from.0), relayed))
                }
                QueuedMessage::RegisterKernelQueues => {
                    if let Some(kernel) = kernel {
                        kernel.register(io);
                    }
                }
            }
        });
    }
}
