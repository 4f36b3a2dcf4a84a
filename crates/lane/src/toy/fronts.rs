//! Which lane has a peer's socket, in the toy world.

use super::Toy;
use door::ConnId;

impl Toy {
    /// The lane that accepted it, or that it was handed to; not the one to which it is relayed.
    pub(crate) fn front_of(&self, conn: ConnId) -> usize {
        self.peers[&conn].front
    }
}
