//! Glimpses: an object's size, space and times, and whether they may be lost.

use crate::in_flight::InFlight;
use crate::object::NOTHING;
use crate::request::Glimpsing;
use crate::unstable::ByteAccess;
use crate::{Answer, Outcome, Shards};
use interface::{Errno, ObjectStat, Turn};
use wire::{Contents, InodeNo};

impl Shards {
    pub(crate) fn begin_glimpse(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        glimpsing: Glimpsing,
    ) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let fresh = object.allocated_change_no == object.change_no;
        if let Some(stat) = object.stat.filter(|_| fresh) {
            let contents = object.contents(stat);
            return self.tell_contents(inode, glimpsing, contents);
        }
        object.running_count += 1;
        let change_no = object.change_no;
        let ticket = self.ticket(InFlight::Glimpse { inode, glimpsing, change_no });
        self.stat_objects(turn, inode, ticket);
    }

    pub(crate) fn on_glimpsed(
        &mut self,
        inode: InodeNo,
        glimpsing: Glimpsing,
        (change_no, result): (u64, Result<Option<ObjectStat>, Errno>),
    ) {
        let found = match result {
            Ok(found) => found.unwrap_or(NOTHING),
            Err(errno) => return self.answer(glimpsing.token, Err(errno.status())),
        };
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let stat = match &mut object.stat {
            Some(stat) => {
                stat.allocated_bytes = found.allocated_bytes;
                object.allocated_change_no = change_no;
                *stat
            }
            None => found,
        };
        let contents = object.contents(stat);
        self.tell_contents(inode, glimpsing, contents);
    }

    /// Replies with the current contents. A glimpse for durable contents waits until the last
    /// change in them is durable; later changes do not delay it.
    fn tell_contents(
        &mut self,
        inode: InodeNo,
        Glimpsing { token, durable, alone: _, client }: Glimpsing,
        contents: Contents,
    ) {
        let shard = self.shard(inode);
        let durable_last = self.durable(shard);
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.unstable.settle(durable_last);
        if !durable {
            let (from, until, extends, at_end) = (0, u64::MAX, false, true);
            let shown =
                object.unstable.depends(&ByteAccess { client, from, until, extends, at_end });
            let (result, shown) = (Ok(Answer::Glimpsed(contents)), shown.foreign);
            return self.outcomes.push_back(Outcome::Answered { token, result, shown });
        }
        let until = object.unstable.last();
        self.outcomes.push_back(Outcome::Sized { token, shard, until, contents });
    }
}
