//! What peer lanes wrote, in the order in which it is heard.
//!
//! Invariant: what a peer lane said before she answered somebody comes before what he asks here then, even
//! if his request comes by letter from a third: what is said on relayed connections is heard when
//! all that lay here when it was read has been.

use super::Parts;
use crate::mailbox::{Letter, QUEUE_COUNT_MAX};
use interface::{Event, PeerEvent};

/// Letters read from each peer lane in one turn.
const COUNT_MAX: usize = 256;

impl Parts {
    pub(super) fn read_mail(&mut self) {
        self.read_letters(COUNT_MAX);
        if self.unheard.is_empty() {
            return;
        }
        // Queues are read one by one: what another peer lane said before may have come meanwhile.
        let mut heard = std::mem::take(&mut self.unheard);
        self.read_letters(QUEUE_COUNT_MAX);
        for (from, relayed) in heard.drain(..) {
            self.conns.on_relayed(from, relayed, &mut self.tools);
        }
        if self.unheard.is_empty() {
            self.unheard = heard;
        }
    }

    fn read_letters(&mut self, count_max: usize) {
        let Self { post, tools, conns, kernel, spin, unheard, .. } = self;
        post.read(count_max, |from, letter| {
            spin.worked = true;
            match letter {
                Letter::Mail(message) => {
                    tools.events.push(Event::Peer(PeerEvent::Message { from, message }))
                }
                Letter::Words(words) => {
                    let body = tools.arena.put(&words);
                    tools.events.push(Event::Peer(PeerEvent::Encoded { from, body }));
                }
                Letter::Socket { socket, seal, hello } => {
                    conns.adopt((socket, seal), &hello, tools);
                }
                Letter::Relayed(relayed) => unheard.push((usize::from(from.0), relayed)),
                Letter::RegisterKernelQueues => {
                    if let Some(kernel) = kernel {
                        kernel.register(tools);
                    }
                }
            }
        });
    }
}
