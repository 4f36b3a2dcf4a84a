//! Secrets and maps for a core: set by another thread, or read at the core's request.

use super::Parts;
use interface::Event;
use std::thread;
use wire::Secrets;

impl Parts {
    /// Another thread may have set secrets, or a map.
    pub(super) fn take_set(&mut self) {
        if let Some(map) = self.mailbox.take_map() {
            self.io.events.push(Event::Map(self.io.arena.put(&map)));
        }
        if let Some(secrets) = self.mailbox.take_secrets() {
            self.io.events.push(Event::Secrets(secrets));
        }
    }

    /// Reads the secret file. It may be on a slow file system, and nothing in a turn may block, so
    /// a thread does it; that is as rare as a refused secret.
    pub(super) fn read_secrets(&mut self) {
        let waker = self.mailbox.waker();
        let spawned = self.read_secrets.clone().is_some_and(|read| {
            let thread = thread::Builder::new().name("secret".to_owned());
            thread.spawn(move || waker.set_secrets(read(), None)).is_ok()
        });
        if !spawned {
            self.io.events.push(Event::Secrets(None::<Secrets>));
        }
    }
}
