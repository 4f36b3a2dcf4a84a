//! What happens on the wires: connecting, sending, arriving, hanging up, and being cut.

use crate::desk::Coming;
use crate::net::{Conn, End, Parcel, Way};
use crate::world::{Due, Place, World};
use interface::{CloseReason, ConnId, Errno, Event, NetEvent, Ticket};

const REFUSED: Errno = Errno(111);
const TIMED_OUT: Errno = Errno(110);

impl World {
    /// A client lane's attempt to connect comes to something.
    pub(crate) fn connect(&mut self, client: usize, lane: usize, life: u64, ticket: Ticket) {
        let place = Place::Client(client, lane);
        if life != self.life(place) || self.mounts[client].seats.len() <= lane {
            return;
        }
        let parted = self.mounts[client].parted_until_ns > self.now_ns;
        if parted || !self.server.up {
            let errno = if parted { TIMED_OUT } else { REFUSED };
            let event =
                Event::Net(NetEvent::ConnectFailed { ticket, reason: CloseReason::Failed(errno) });
            return self.bring(place, Coming::Plain(event));
        }
        self.conn_count += 1;
        let conn = ConnId(self.conn_count);
        let lane_count = self.server.seats.len();
        let slow =
            |world: &mut Self| if world.dice.one_in(6) { 1 + world.dice.throw() % 12 } else { 1 };
        let server_lane = self.choose(lane_count);
        let (up, down) = (slow(self), slow(self));
        self.conns.insert(
            conn,
            Conn {
                client,
                client_lane: lane,
                server_lane,
                server_life: self.server.life,
                up: Way { slowness: up, ..Way::default() },
                down: Way { slowness: down, ..Way::default() },
                cut: false,
            },
        );
        self.tell(|| format!("{place:?}: connected as {conn:?}"));
        self.bring(place, Coming::Plain(Event::Net(NetEvent::Connected { ticket, conn })));
    }

    /// A frame sets out.
    pub(crate) fn send(&mut self, conn: ConnId, to: End, parcel: Parcel) {
        let mean_ns = match to {
            End::Server => self.plan.speeds.request_ns,
            End::Client => self.plan.speeds.reply_ns,
        };
        let delay_ns = self.dice.span_ns(mean_ns);
        let now_ns = self.now_ns;
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let way = known.way_to(to);
        if way.dead || way.closed {
            if to == End::Server && self.plan.faults.silent {
                // The machine that is there now knows nothing of the connection.
                self.put_in(self.plan.speeds.restart_ns, Due::Hang(conn, End::Client));
            }
            return;
        }
        let at_ns = way.arrival_ns(now_ns, delay_ns);
        let head = wire::Header::decode(&parcel.frame).map(|(head, _)| head);
        way.queue.push_back(parcel);
        self.tell(|| format!("{conn:?} to {to:?} by {}: {}", at_ns / 1000, short(&head)));
        self.put(at_ns, Due::Arrive(conn, to));
    }

    /// The next frame of a direction arrives.
    pub(crate) fn arrive(&mut self, conn: ConnId, to: End) {
        let now_ns = self.now_ns;
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let place = match to {
            End::Client => Place::Client(known.client, known.client_lane),
            End::Server => Place::Server(known.server_lane),
        };
        let stale = to == End::Server && known.server_life != self.server.life;
        let way = known.way_to(to);
        if way.held_until_ns > now_ns {
            let at_ns = way.held_until_ns;
            return self.put(at_ns, Due::Arrive(conn, to));
        }
        let Some(parcel) = way.queue.pop_front() else { return };
        if way.closed || stale {
            return;
        }
        let Parcel { frame, bulk } = parcel;
        self.tell(|| format!("{conn:?} arrived at {place:?}"));
        self.bring(place, Coming::Frame { conn, frame, bulk });
    }

    /// An end learns that the connection is no more, after what was still on its way to it.
    pub(crate) fn hang(&mut self, conn: ConnId, end: End) {
        const AGAIN_NS: u64 = 1_000;
        let now_ns = self.now_ns;
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let place = match end {
            End::Client => Place::Client(known.client, known.client_lane),
            End::Server => Place::Server(known.server_lane),
        };
        let stale = end == End::Server && known.server_life != self.server.life;
        let way = known.way_to(end);
        if !way.queue.is_empty() && !stale {
            let at_ns = now_ns.max(way.last_ns).max(way.held_until_ns) + AGAIN_NS;
            return self.put(at_ns, Due::Hang(conn, end));
        }
        if std::mem::replace(&mut way.closed, true) || stale {
            return;
        }
        self.tell(|| format!("{conn:?} is closed for {place:?}"));
        let event = Event::Net(NetEvent::Closed { conn, reason: CloseReason::Ended });
        self.bring(place, Coming::Plain(event));
    }

    /// A core closes a connection: what it sent before still arrives, then the other end hears.
    pub(crate) fn close(&mut self, conn: ConnId, by: End) {
        let other = if by == End::Client { End::Server } else { End::Client };
        let delay_ns = self.dice.span_ns(self.plan.speeds.request_ns);
        let Some(known) = self.conns.get_mut(&conn) else { return };
        known.way_to(by).closed = true;
        let way = known.way_to(other);
        way.dead = true;
        let at_ns = self.now_ns.max(way.last_ns) + delay_ns;
        self.put(at_ns, Due::Hang(conn, other));
    }

    /// A connection is cut: in each direction only some of what is on its way still arrives, and
    /// perhaps much later.
    pub(crate) fn cut(&mut self, conn: ConnId) {
        const LATE_NS: [u64; 3] = [0, 2_000_000, 200_000_000];
        let Some(known) = self.conns.get_mut(&conn) else { return };
        if std::mem::replace(&mut known.cut, true) {
            return;
        }
        for end in [End::Client, End::Server] {
            let late_ns = self.dice.pick(&LATE_NS).unwrap_or(0);
            let hang_ns = self.now_ns + late_ns + self.dice.span_ns(self.plan.speeds.request_ns);
            let Some(known) = self.conns.get_mut(&conn) else { return };
            let way = known.way_to(end);
            let kept_count = self.dice.below(way.queue.len() + 1);
            way.cut(kept_count);
            way.held_until_ns = self.now_ns + late_ns;
            self.put(hang_ns, Due::Hang(conn, end));
        }
    }

    /// One end's process is gone: it hears no more, and the other end gets what it had sent, or a
    /// part of it.
    pub(crate) fn end_gone(&mut self, conn: ConnId, gone: End) {
        const SILENCE_NS: u64 = 60_000_000_000;
        let other = if gone == End::Client { End::Server } else { End::Client };
        let delay_ns = self.dice.span_ns(self.plan.speeds.request_ns);
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let in_flight_count = known.way_to(other).queue.len();
        let kept_count = self.dice.below(in_flight_count + 1);
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let dead = known.way_to(gone);
        dead.cut(0);
        dead.closed = true;
        let way = known.way_to(other);
        way.cut(kept_count);
        let silent = gone == End::Server && self.plan.faults.silent;
        let silence_ns = if silent { SILENCE_NS } else { 0 };
        let at_ns = self.now_ns.max(way.last_ns) + delay_ns + silence_ns;
        self.put(at_ns, Due::Hang(conn, other));
    }
}

/// A frame in few words.
fn short(head: &Result<wire::Header, wire::ProtocolError>) -> String {
    match head {
        Ok(wire::Header::Handshake(kind)) => format!("{kind:?}"),
        Ok(wire::Header::Request(request)) => {
            let wire::Request { op, shard, slot, xid, flags, transno, .. } = request;
            format!("{op:?} {shard} slot {slot} xid {} flags {flags} T {transno}", xid.0 & 0xffff)
        }
        Ok(wire::Header::Reply(reply)) => {
            let wire::Reply { op, shard, slot, xid, status, transno, committed, .. } = reply;
            let xid = xid.0 & 0xffff;
            format!("{op:?} {shard} slot {slot} xid {xid}: {status:?} T {transno} ({committed})")
        }
        Ok(wire::Header::CommitNotification) => "CommitNotification".to_owned(),
        Ok(wire::Header::Grant) => "Grant".to_owned(),
        Err(protocol_error) => protocol_error.text().to_owned(),
    }
}
