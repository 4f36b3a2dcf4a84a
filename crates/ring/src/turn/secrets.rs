//! Secrets on their way to a core: as another thread gives them, or as the core asks for them.

use super::Parts;
use interface::Event;
use std::thread;
use wire::Secrets;

impl Parts {
    /// Another thread may have given some.
    pub(super) fn take_secrets(&mut self) {
        if let Some(secrets) = self.mailbox.take_secrets() {
            self.tools.events.push(Event::Secrets(secrets));
        }
    }

    /// Reads those that are kept. A file may be far away, and nothing in a turn blocks, so a thread does
    /// it; that is as rare as a secret that is refused.
    pub(super) fn read_secrets(&mut self) {
        let waker = self.mailbox.waker();
        let spawned = self.read_secrets.clone().is_some_and(|read| {
            let thread = thread::Builder::new().name("secret".to_owned());
            thread.spawn(move || waker.set_secrets(read(), None)).is_ok()
        });
        if !spawned {
            self.tools.events.push(Event::Secrets(None::<Secrets>));
        }
    }
}
