//! Which secret the client proves. When the server refuses it, the client tries the earlier one of
//! two, then has the secret file read again, then stops.
//!
//! ```text
//! current ─refused─▶ earlier, if there is one ─refused─▶ Reading ─other secrets─▶ current
//!                                                           └─the same─▶ Refused ─a call─▶ Reading
//! ```
//! While the file is read, no connection is made and calls wait. So a server may retire a secret as
//! soon as its clients have the file with the new one: they lose nothing. A client that was refused
//! has answered its callers with an error, and continues under a new uuid; the server releases the
//! locks and handles of the earlier uuid when the Hello names it as predecessor.

use crate::client::Client;
use crate::refused::Refused;
use interface::Turn;
use wire::Secrets;

/// The shortest time between two reads of the file after a refusal.
const REREAD_MS_MIN: u64 = 1_000;

impl Client {
    /// The server refused the secret, or did not prove that it has it.
    pub(crate) fn on_wrong_secret(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        let proven = self.servers.link(link_index).and_then(|link| link.proven);
        // Otherwise another connection was refused first.
        if proven == Some(*self.identity.secrets.secret()) {
            self.identity.secrets.try_next(turn);
        }
        self.drop_link(turn, link_index);
    }

    /// The secrets that the file has; `None`: it cannot be read.
    pub(crate) fn on_secrets(&mut self, turn: &mut Turn<'_>, found: Option<Secrets>) {
        if self.identity.secrets.replace(found) {
            if self.identity.refused().is_some_and(Refused::is_of_secret) {
                self.identity.set_refused(None);
                self.begin_anew(turn);
            }
            return;
        }
        let refused = Refused::of_secret(self.identity.secrets.secret().credential());
        self.identity.secrets.set_refused_as(self.config.client);
        self.lose_locks();
        self.refuse(turn, refused);
    }

    /// Continues after a refusal, under a new uuid if the server may have a session of the earlier
    /// one.
    fn begin_anew(&mut self, turn: &mut Turn<'_>) {
        let ended = self.identity.secrets.refused_as();
        // Otherwise a peer lane has derived the new uuid first.
        let is_same = ended == self.config.client;
        if is_same && self.servers.sessions().iter().any(|session| session.used) {
            self.on_evicted(turn, false);
            self.config.predecessor = ended;
        }
    }

    /// At a call to a client whose secret was refused, reads the file again: it may have another
    /// secret by now.
    pub(crate) fn reread_after_refusal(&mut self, turn: &mut Turn<'_>) {
        let due = self.identity.secrets.was_read_before(turn.now.mono, REREAD_MS_MIN);
        if due && self.identity.refused().is_some_and(Refused::is_of_secret) {
            self.identity.secrets.read_again(turn);
        }
    }
}
