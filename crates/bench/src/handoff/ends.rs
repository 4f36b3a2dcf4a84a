//! The ends that threads hold, beside those of `ring::handoff`.

use anyhow::{Context as _, Result, bail};
use interface::{Action, Core, Event, MountMessage, PeerAction, PeerEvent, Turn};
use ring::{Config, DriverChoice, DriverKind, Mailbox, Ring};
use std::mem;
use std::sync::{self, Arc, Mutex, PoisonError};
use wire::LaneId;

/// One of two threads' end. It is made on its thread.
pub(super) trait Side {
    /// Sends items and wakes the other thread.
    fn send(&mut self, items: &[u64]) -> Result<()>;

    /// Sends the last items.
    fn send_last(&mut self, items: &[u64]) -> Result<()> {
        self.send(items)
    }

    /// Takes items until there are `item_count`.
    fn receive(&mut self, items: &mut Vec<u64>, item_count: usize) -> Result<()>;
}

impl Side for ring::handoff::End {
    fn send(&mut self, items: &[u64]) -> Result<()> {
        Ok(self.send(items)?)
    }

    fn receive(&mut self, items: &mut Vec<u64>, item_count: usize) -> Result<()> {
        Ok(self.receive(items, item_count)?)
    }
}

/// The textbook queue: a locked vector and a condition variable.
pub(super) struct Condvar {
    mine: Arc<Locked>,
    theirs: Arc<Locked>,
}

#[derive(Default)]
struct Locked {
    items: Mutex<Vec<u64>>,
    filled: sync::Condvar,
}

impl Condvar {
    pub(super) fn pair() -> [Self; 2] {
        let (here, there) = (Arc::new(Locked::default()), Arc::new(Locked::default()));
        let other = Self { mine: Arc::clone(&there), theirs: Arc::clone(&here) };
        [Self { mine: here, theirs: there }, other]
    }
}

impl Side for Condvar {
    fn send(&mut self, items: &[u64]) -> Result<()> {
        let mut waiting = self.theirs.items.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend_from_slice(items);
        drop(waiting);
        self.theirs.filled.notify_one();
        Ok(())
    }

    fn receive(&mut self, items: &mut Vec<u64>, item_count: usize) -> Result<()> {
        let mut waiting = self.mine.items.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            items.append(&mut waiting);
            if items.len() >= item_count {
                return Ok(());
            }
            waiting = self.mine.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A lane that sends messages.
pub(super) struct Lane {
    ring: Ring,
    inbox: Inbox,
    other: LaneId,
}

/// A lane core that stores what it receives.
#[derive(Default)]
struct Inbox(Vec<u64>);

impl Core for Inbox {
    fn apply(&mut self, _turn: &mut Turn<'_>, event: Event) {
        if let Event::Peer(PeerEvent::Message {
            message: MountMessage::Interrupt { unique }, ..
        }) = event
        {
            self.0.push(unique);
        }
    }

    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

impl Lane {
    pub(super) fn start(mailbox: Mailbox, driver: DriverKind, spin_us: u32) -> Result<Self> {
        let other = LaneId(1 - mailbox.lane().0);
        let mut config = Config::new(mailbox.lane());
        config.mailbox = Some(mailbox);
        config.driver = DriverChoice::Only(driver);
        config.spin_us = spin_us;
        let ring = Ring::new(config).context("cannot set up a lane's ring")?;
        Ok(Self { ring, inbox: Inbox::default(), other })
    }

    fn turn(&mut self) -> Result<()> {
        if !self.ring.turn(&mut self.inbox).context("a lane's ring failed")? {
            bail!("a lane ended by itself");
        }
        Ok(())
    }
}

impl Side for Lane {
    /// The messages leave at the beginning of the turn that [`Self::receive`] takes.
    fn send(&mut self, items: &[u64]) -> Result<()> {
        let to = self.other;
        self.ring.with(|turn| {
            for item in items {
                turn.act(PeerAction::Message {
                    to,
                    message: MountMessage::Interrupt { unique: *item },
                });
            }
        });
        Ok(())
    }

    fn send_last(&mut self, items: &[u64]) -> Result<()> {
        self.send(items)?;
        // A turn that does not sleep.
        self.ring.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono }));
        self.turn()
    }

    fn receive(&mut self, items: &mut Vec<u64>, item_count: usize) -> Result<()> {
        while self.inbox.0.len() < item_count {
            self.turn()?;
        }
        items.append(&mut mem::take(&mut self.inbox.0));
        Ok(())
    }
}
