//! Which secret the client proves, and what it does when the server refuses it: it tries the earlier one of two,
//! then has the secret file read again, then stops.
//!
//! ```text
//! current ─refused─▶ earlier, if there is one ─refused─▶ Reading ─other secrets─▶ current
//!                                                           └─the same─▶ Refused ─a call─▶ Reading
//! ```
//! While the file is read, no connection is made and waiting calls are not answered. So a server may retire a
//! secret as soon as its clients have the file with the new one: they lose nothing. A client that was refused has
//! answered its callers with an error, and comes back under a new uuid; the server releases the locks and handles
//! of the earlier uuid when the Hello names it as predecessor.

use crate::client::Client;
use crate::refused::Refused;
use interface::{Action, Mono, Turn};
use wire::{ClientUuid, Secret, Secrets};

/// A refused client has the file read at most this often.
const ASK_MS_MIN: u64 = 1_000;

/// The secrets of this client lane.
#[derive(Debug)]
pub(crate) struct Held {
    secrets: Secrets,
    /// The current one was refused.
    uses_earlier: bool,
    /// The file is being read.
    asked: bool,
    /// When that last began.
    asked_at: Option<Mono>,
    /// This client's uuid when it was refused.
    refused_as: ClientUuid,
}

impl Held {
    pub(crate) const fn new(secrets: Secrets) -> Self {
        let (asked_at, refused_as) = (None, ClientUuid::NONE);
        Self { secrets, uses_earlier: false, asked: false, asked_at, refused_as }
    }

    /// The secret for the next connection.
    pub(crate) const fn secret(&self) -> &Secret {
        match &self.secrets.earlier {
            Some(earlier) if self.uses_earlier => earlier,
            Some(_) | None => &self.secrets.current,
        }
    }

    /// Whether the file is being read.
    pub(crate) const fn is_asked(&self) -> bool {
        self.asked
    }

    fn ask(&mut self, turn: &mut Turn<'_>) {
        if !self.asked {
            self.asked = true;
            self.asked_at = Some(turn.now.mono);
            turn.act(Action::ReadSecrets);
        }
    }
}

impl Client {
    /// The server refused the secret, or did not prove that it has it.
    pub(crate) fn on_wrong_secret(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        let proven = self.links.get(link_index).and_then(|link| link.proven);
        // Otherwise another connection was refused first.
        if proven == Some(*self.held.secret()) {
            if self.held.secrets.earlier.is_some() && !self.held.uses_earlier {
                self.held.uses_earlier = true;
            } else {
                self.held.ask(turn);
            }
        }
        self.drop_link(turn, link_index);
    }

    /// What the file has; `None`: it cannot be read.
    pub(crate) fn on_secrets(&mut self, turn: &mut Turn<'_>, found: Option<Secrets>) {
        self.held.asked = false;
        self.held.uses_earlier = false;
        match found {
            Some(found) if found != self.held.secrets => {
                self.held.secrets = found;
                if self.refused.is_some_and(Refused::is_of_secret) {
                    self.refused = None;
                    self.begin_anew(turn);
                }
            }
            Some(_) | None => {
                let refused = Refused::of_secret(self.held.secret().credential());
                self.held.refused_as = self.config.client;
                self.lose_locks();
                self.refuse(turn, refused);
            }
        }
    }

    /// Goes on after a refusal, under a new uuid if the server may remember a session of the earlier one.
    fn begin_anew(&mut self, turn: &mut Turn<'_>) {
        let ended = self.held.refused_as;
        // Otherwise a peer lane has gone on to the new uuid first.
        let is_same = ended == self.config.client;
        if is_same && self.sessions.iter().any(|session| session.used) {
            self.on_evicted(turn, false);
            self.config.predecessor = ended;
        }
    }

    /// A call to a client whose secret was refused: the file may have another one by now.
    pub(crate) fn ask_after_refusal(&mut self, turn: &mut Turn<'_>) {
        let due = self.held.asked_at.is_none_or(|at| at.after_ms(ASK_MS_MIN) <= turn.now.mono);
        if due && self.refused.is_some_and(Refused::is_of_secret) {
            self.held.ask(turn);
        }
    }

    /// Why calls are answered without the server.
    pub(crate) fn stopped(&self) -> Option<Refused> {
        self.refused.filter(|_| !self.held.asked)
    }
}
