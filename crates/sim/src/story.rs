//! Stories: a few calls in one order, with the dice's timing between them. A rule is missed where
//! some calls meet in one order, which random ones seldom do.

use crate::net::End;
use crate::work::{NameNo, Tag, Wish};
use crate::world::{Due, World};
use wire::InodeNo;

/// A client's lane.
pub(crate) type Who = (usize, usize);

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Somebody asks for something.
    Ask(Who, Deed),
    /// What was asked for last is answered.
    Answered,
    /// Nobody has anything to do, and everything is durable.
    Quiet,
    /// About so many nanoseconds go by.
    Pass(u64),
    /// Over the connections that a lane has nothing comes to it for about so many nanoseconds.
    Delay(Who, u64),
    /// A client dies.
    Kill(usize),
    /// The server dies.
    Crash,
}

/// What somebody asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// Of a directory in the root: the story's is the last that was made.
    Mkdir(NameNo),
    Rmdir(NameNo),
    Create(In, NameNo),
    Unlink(In, NameNo),
    /// At the root.
    Look,
}

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum In {
    Root,
    /// The story's.
    Dir,
}

/// How far the story is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Told {
    count: usize,
    last: Option<Tag>,
    dir: Option<Tag>,
}

impl World {
    /// Begins the story, if there is one.
    pub(crate) fn begin_story(&mut self) {
        if !self.plan.story.is_empty() {
            self.put_in(self.plan.speeds.think_ns, Due::Act);
        }
    }

    /// The story goes on, if it can.
    pub(crate) fn act(&mut self) {
        const LOOK_AGAIN_NS: u64 = 50_000;
        let Some(act) = self.plan.story.get(self.told.count).copied() else { return };
        if self.calm {
            return;
        }
        let mut pause_ns = self.plan.speeds.think_ns;
        let waits = match act {
            Act::Ask((client, lane), deed) => {
                let Some(wish) = self.wish_of(deed) else { return };
                if !self.mounts[client].alive {
                    return;
                }
                let tag = self.ask(client, lane, wish);
                self.told.last = Some(tag);
                if matches!(deed, Deed::Mkdir(_)) {
                    self.told.dir = Some(tag);
                }
                false
            }
            Act::Answered => {
                let asked = self.told.last.and_then(|tag| self.asked(tag));
                asked.is_some_and(|asked| asked.ended_ns.is_none())
            }
            Act::Quiet => !self.is_quiet(),
            Act::Pass(mean_ns) => {
                pause_ns = mean_ns;
                false
            }
            Act::Delay(who, late_ns) => {
                self.delay(who, late_ns);
                false
            }
            Act::Kill(client) => {
                self.crash_client(client);
                false
            }
            Act::Crash => {
                self.crash_server();
                false
            }
        };
        if waits {
            pause_ns = LOOK_AGAIN_NS;
        } else {
            self.told.count += 1;
        }
        self.put_in(pause_ns, Due::Act);
    }

    fn wish_of(&self, deed: Deed) -> Option<Wish> {
        let made = self.told.dir.and_then(|tag| self.asked(tag)?.brought()?.inode);
        let inode = |place| if place == In::Root { Some(InodeNo::ROOT) } else { made };
        let (mode, exclusive) = (0o755, true);
        Some(match deed {
            Deed::Mkdir(name) => Wish::Mkdir { parent: InodeNo::ROOT, name, mode },
            Deed::Rmdir(name) => Wish::Rmdir { parent: InodeNo::ROOT, name },
            Deed::Create(place, name) => {
                Wish::Create { parent: inode(place)?, name, mode, exclusive, open: None }
            }
            Deed::Unlink(place, name) => Wish::Unlink { parent: inode(place)?, name },
            Deed::Look => Wish::Getattr { inode: InodeNo::ROOT },
        })
    }

    fn delay(&mut self, (client, lane): Who, late_ns: u64) {
        let until_ns = self.now_ns + self.dice.span_ns(late_ns);
        self.tell(|| format!("client {client}.{lane}: nothing comes until {}", until_ns / 1000));
        let ours = |conn: &&mut crate::net::Conn| (conn.client, conn.client_lane) == (client, lane);
        for conn in self.conns.values_mut().filter(ours) {
            conn.way_to(End::Client).held_until_ns = until_ns;
        }
    }
}
