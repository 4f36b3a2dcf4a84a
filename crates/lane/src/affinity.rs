//! Which lane keeps a connection's socket: the executing lane, or a proxy lane that forwards its
//! frames.
//!
//! The executing lane owns the shards that the requests are for; sessions, slots and commit
//! dependencies never leave it. Invariant: a connection has one proxy lane, chosen once; with
//! [`Affinity::Object`] it is the executing lane itself.

use crate::nonces::NonceSource;
use sha2::{Digest as _, Sha256};
use wire::{ClientUuid, LaneId};

/// How the lane of a connection's socket is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Affinity {
    /// By the shard: requests arrive where they are executed.
    #[default]
    Object,
    /// By the client: all sockets of a client are on one lane.
    Client,
    /// At random.
    Random,
}

impl Affinity {
    /// The lane that keeps a new connection.
    pub(crate) fn front(
        self,
        (client, owner): (ClientUuid, LaneId),
        lane_count: u16,
        nonces: &mut NonceSource,
    ) -> LaneId {
        match self {
            Self::Object => owner,
            // A hash spreads uuids that differ in a few bits only.
            Self::Client => lane_of(&Sha256::digest(client.0).into(), lane_count),
            Self::Random => lane_of(&nonces.nonce(), lane_count),
        }
    }
}

/// Maps 32 bytes to one of `lane_count` lanes.
fn lane_of(drawn: &[u8; 32], lane_count: u16) -> LaneId {
    let mut number = [0; 8];
    number.copy_from_slice(&drawn[..8]);
    let index = u64::from_le_bytes(number) % u64::from(lane_count);
    LaneId(u16::try_from(index).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn fronts(affinity: Affinity, lane_count: u16) -> Vec<Vec<u16>> {
        let mut nonces = NonceSource::new([7; 32]);
        let clients = (0..2000_u128).map(|number| ClientUuid(number.to_be_bytes()));
        let of = |client| {
            let owners = (0..lane_count).map(LaneId);
            owners.map(|owner| affinity.front((client, owner), lane_count, &mut nonces).0).collect()
        };
        clients.map(of).collect()
    }

    #[test]
    fn the_proxy_lane_follows_the_affinity() {
        for lane_count in [1, 2, 3, 8, 64] {
            for of_client in fronts(Affinity::Object, lane_count) {
                assert!(of_client.iter().copied().eq(0..lane_count), "the owner itself");
            }
            for of_client in fronts(Affinity::Client, lane_count) {
                assert!(of_client.iter().all(|front| *front == of_client[0]), "one for all");
                assert!(of_client[0] < lane_count);
            }
            let drawn = fronts(Affinity::Random, lane_count).concat();
            assert!(drawn.iter().all(|front| *front < lane_count));
        }
    }

    #[test]
    fn client_and_random_affinity_spread_connections_over_the_lanes() {
        for affinity in [Affinity::Client, Affinity::Random] {
            let found = fronts(affinity, 4);
            for lane in 0..4 {
                let count = found.iter().filter(|of_client| of_client[0] == lane).count();
                assert!((350..650).contains(&count), "{affinity:?}: {count} of 2000 at {lane}");
            }
        }
    }
}
