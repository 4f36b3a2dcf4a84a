//! What a client's lane says of replies that the client's other lanes have received (docs/protocol.md
//! R3.6): it counts as if these had said so with a request of their own.

use crate::Lane;
use interface::ConnId;
use wire::{LANES_TOLD_MAX, LaneAcks, ProtocolError, Received, SessionId, Wire as _};

impl Lane {
    /// A client has said it.
    pub(crate) fn on_received_by_others(
        &mut self,
        conn: ConnId,
        body: &[u8],
    ) -> Result<(), ProtocolError> {
        let Received { shard, lanes } =
            Received::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
        if lanes.iter().count() > LANES_TOLD_MAX {
            return Err(ProtocolError::Malformed);
        }
        let Some(served) = self.connections.served_mut(conn) else { return Ok(()) };
        // That of an ended session has no client any more.
        let Some(client) = self.sessions.client_of(served.session()) else { return Ok(()) };
        for LaneAcks { client_lane, ack_xid, sack } in lanes.iter() {
            let is_it = |session: &&SessionId| {
                let found = self.sessions.get(**session);
                found.is_some_and(|found| found.row.client_lane == client_lane)
            };
            let session = self.sessions.of_client(client).iter().find(is_it).copied();
            if let Some(session) = session
                && let Some(table) = self.sessions.table_mut((shard, session))
            {
                table.acknowledge(ack_xid, sack);
            }
        }
        Ok(())
    }
}
