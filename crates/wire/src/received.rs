//! What a client lane says of replies that its client's other lanes have received.

use crate::codec::{DecodeError, List, Reader, Wire, Writer};
use crate::message::message;
use crate::{LaneId, ShardId, Xid};

message! {
    /// The replies that a lane of a client has received from one shard.
    LaneAcks {
        /// The lane of the client.
        client_lane: LaneId,
        /// Every reply of its session at the shard up to this xid was received.
        ack_xid: Xid,
        /// Received replies above `ack_xid`: bit n stands for `ack_xid + 1 + n`.
        sack: u64,
    }
}
message! {
    /// The body of a [`crate::FrameKind::Received`], which is not answered.
    Received<'a> {
        /// The shard.
        shard: ShardId,
        /// Other lanes of the same client; at most [`LANES_TOLD_MAX`].
        lanes: List<'a, LaneAcks>,
    }
}

/// The most lanes that one [`Received`] is about.
pub const LANES_TOLD_MAX: usize = 64;
