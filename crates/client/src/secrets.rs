//! Which secret is proven, and what follows when the server knows it not: the other one of two, then what
//! is kept in its file by now, then an end.
//!
//! ```text
//! current ─refused─▶ earlier, if there is one ─refused─▶ Asked ─other ones─▶ current
//!    ▲                                                     └─the same─▶ Refused ─a call─▶ Asked
//!    └─ a later connection
//! ```
//! While the world is asked, no connection is made and nothing that waits is answered. So a server may retire
//! a secret when the new one lies at its clients: they lose nothing. A client that was refused has told its
//! callers so, and comes back as a new one: what it held under its earlier name ends when the server hears
//! the new one.

use crate::client::Client;
use crate::refused::Refused;
use door::{Action, Mono, Turn};
use wire::{ClientUuid, Secret, Secrets};

/// Of a client that is refused, the world is asked so often at most.
const ASK_MS_MIN: u64 = 1_000;

/// What this lane holds.
#[derive(Debug)]
pub(crate) struct Held {
    secrets: Secrets,
    /// The current one was refused.
    uses_earlier: bool,
    /// The world has been asked what is kept.
    asked: bool,
    asked_at: Option<Mono>,
    /// What this client was called when it was refused.
    refused_as: ClientUuid,
}

impl Held {
    pub(crate) const fn new(secrets: Secrets) -> Self {
        let (asked_at, refused_as) = (None, ClientUuid::NONE);
        Self { secrets, uses_earlier: false, asked: false, asked_at, refused_as }
    }

    /// What is proven on the next connection.
    pub(crate) const fn secret(&self) -> &Secret {
        match &self.secrets.earlier {
            Some(earlier) if self.uses_earlier => earlier,
            Some(_) | None => &self.secrets.current,
        }
    }

    /// Whether everything waits for the world's answer.
    pub(crate) const fn is_asked(&self) -> bool {
        self.asked
    }

    fn ask(&mut self, turn: &mut Turn<'_>) {
        if !self.asked {
            self.asked = true;
            self.asked_at = Some(turn.now.mono);
            turn.act(Action::SecretsWanted);
        }
    }
}

impl Client {
    /// The server does not know the secret that was proven, or did not prove that it does.
    pub(crate) fn on_wrong_secret(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        let proven = self.links.get(link_index).and_then(|link| link.proven);
        // Otherwise another connection was told so first.
        if proven == Some(*self.held.secret()) {
            if self.held.secrets.earlier.is_some() && !self.held.uses_earlier {
                self.held.uses_earlier = true;
            } else {
                self.held.ask(turn);
            }
        }
        self.drop_link(turn, link_index);
    }

    /// What is kept by now; `None`: nothing that can be read.
    pub(crate) fn on_secrets(&mut self, turn: &mut Turn<'_>, kept: Option<Secrets>) {
        self.held.asked = false;
        self.held.uses_earlier = false;
        match kept {
            Some(kept) if kept != self.held.secrets => {
                self.held.secrets = kept;
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

    /// Goes on after a refusal, under a new name if the server may remember something of the earlier one.
    fn begin_anew(&mut self, turn: &mut Turn<'_>) {
        let ended = self.held.refused_as;
        // Otherwise a sister has come to the new name first.
        let is_same = ended == self.config.client;
        if is_same && self.sessions.iter().any(|session| session.used) {
            self.on_evicted(turn, false);
            self.config.predecessor = ended;
        }
    }

    /// A call of a client that was refused for its secret: another may be kept by now.
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
