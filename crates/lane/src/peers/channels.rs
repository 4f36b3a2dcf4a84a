//! The channels of a lane, and which of them have something to do: a lane of many servers has
//! hundreds, and each turn looks at those only.

use super::channel::Channel;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{InodeNo, PeerLane};

/// The channels to all peer lanes.
///
/// Invariant: a channel that is not idle is in `busy`.
#[derive(Debug, Default)]
pub(super) struct Channels {
    all: BTreeMap<PeerLane, Channel>,
    busy: BTreeSet<PeerLane>,
}

impl Channels {
    /// The channel to a lane, to be changed.
    pub(super) fn to(&mut self, lane: PeerLane) -> &mut Channel {
        self.busy.insert(lane);
        self.all.entry(lane).or_default()
    }

    /// There is no such lane any more. Returns the inodes that it was being told of.
    pub(super) fn remove(&mut self, lane: PeerLane) -> Vec<InodeNo> {
        self.busy.remove(&lane);
        self.all.remove(&lane).iter().flat_map(Channel::being_told).collect()
    }

    /// Those that have something to do.
    pub(super) fn busy(&self) -> impl Iterator<Item = (PeerLane, &Channel)> {
        self.busy.iter().filter_map(|lane| Some((*lane, self.all.get(lane)?)))
    }

    /// Changes each that has something to do. Those that have nothing left are passed over from now
    /// on.
    pub(super) fn settle(&mut self, mut with: impl FnMut(PeerLane, &mut Channel)) {
        let all = &mut self.all;
        self.busy.retain(|lane| {
            all.get_mut(lane).is_some_and(|channel| {
                with(*lane, channel);
                !channel.is_idle()
            })
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use interface::Mono;
    use wire::{LaneId, ServerId};

    #[test]
    fn a_channel_is_looked_at_until_everything_is_acknowledged() {
        let lane = PeerLane { server: ServerId(2), lane: LaneId(7) };
        let mut channels = Channels::default();
        let busy_count = |channels: &mut Channels| {
            channels.settle(|_, _| ());
            channels.busy().count()
        };
        channels.to(lane);
        assert_eq!(busy_count(&mut channels), 0, "nothing was sent");
        channels.to(lane).push(b"message", None);
        channels.to(lane).leave(Mono(1), &mut |_, _| ());
        assert_eq!(busy_count(&mut channels), 1);
        channels.to(lane).on_acknowledged(Mono(2), 1);
        assert_eq!(busy_count(&mut channels), 0);
        // What waits while the lane is away, and an acknowledgement that is due.
        channels.to(lane).await_barrier(5, true);
        assert_eq!(busy_count(&mut channels), 1);
        assert_eq!(channels.remove(lane), []);
        channels.to(lane).await_told(InodeNo(9), true);
        assert_eq!(busy_count(&mut channels), 1);
        assert_eq!(channels.remove(lane), [InodeNo(9)]);
        channels.to(lane).receive(wire::Term(1), 1, Mono(3));
        assert_eq!(busy_count(&mut channels), 1);
        channels.settle(|_, channel| channel.acknowledged_received());
        assert_eq!(channels.busy().count(), 0);
    }
}
