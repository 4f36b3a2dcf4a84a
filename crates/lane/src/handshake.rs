//! The handshake: Hello, Challenge, Proof, Welcome. Before the proof the server trusts nothing of a
//! peer, stores little of it, and reveals nothing to it, not even which exports exist.

use crate::Lane;
use crate::affinity::Affinity;
use crate::config::Config;
use crate::connections::{Handshake, Open, Sealed};
use crate::counters::Name;
use crate::export::Binding;
use crate::identity::Identity;
use crate::keys::KeyNo;
use crate::limits::Limit;
use crate::session::{Basis, Session};
use crate::shares::party_of;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use disk::SessionRow;
use interface::{ConnId, NetAction, Party, Span, Turn};
use wire::{
    Challenge, Channel, ClientUuid, Credential, DecodeError, EXPORT_NAME_BYTES_MAX, FrameKind,
    HEADER_BYTES, Header, Hello, InodeNo, LABEL_BYTES_MAX, LaneId, PLAIN, Proof, ProtocolError,
    Proven, Purpose, Refusal, RefusalReason, Secret, SessionId, Welcome, Wire, welcome_flag,
};

/// What to do with a connection of another executing lane.
enum Pass {
    /// Hand its socket over to this lane.
    HandOver(LaneId),
    /// Be its proxy lane: forward its frames to this lane.
    Proxy(LaneId),
}

impl Lane {
    /// The first frame of a connection: a Hello, read here or handed over by a peer lane.
    pub(crate) fn on_hello(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        frame: Span,
        handed_over: bool,
    ) {
        let (sealed, from_this_host) = self.connections.take_origin(conn);
        let channel = sealed.as_ref().map_or(PLAIN, |sealed| sealed.channel);
        if self.is_stopping() {
            return self.refuse(turn, conn, RefusalReason::Stopping);
        }
        let bytes = turn.arena.get(frame);
        if Self::is_peer_hello(bytes) {
            return self.on_first_of_peer(turn, conn, (frame, channel), handed_over);
        }
        let hello = match decode_hello(bytes) {
            Ok(hello) => hello,
            Err(protocol_error) => return self.protocol_error(turn, conn, protocol_error),
        };
        if let Some(passes) = self.pass(&hello, handed_over) {
            return match passes {
                Ok(Pass::HandOver(lane)) => {
                    turn.act(NetAction::HandOver { conn, lane, hello: frame });
                }
                Ok(Pass::Proxy(lane)) => turn.act(NetAction::Proxy { conn, lane, hello: frame }),
                Err(protocol_error) => self.protocol_error(turn, conn, protocol_error),
            };
        }
        // It is not known yet which exports there are. Another lane may know it.
        if !self.knows_exports() {
            return self.refuse(turn, conn, RefusalReason::Busy);
        }
        let limits = self.config.limits;
        let certified = hello.credential == Credential::Certificate;
        let shown = sealed.filter(|_| certified);
        let grants_store = match hello.credential {
            Credential::Store => true,
            Credential::Certificate => shown.as_ref().is_some_and(Sealed::grants_store),
            Credential::Export => false,
        };
        let own_host = from_this_host && grants_store;
        let holder = shown.and_then(|sealed| sealed.holder_for(&hello));
        if certified && holder.is_none() {
            let what = "a client was refused: its certificate does not open what it asked for";
            self.report_limit(turn, (Limit::NotCertified, Party::NONE), what);
            return self.refuse(turn, conn, RefusalReason::NotCertified);
        }
        let (key_no, secret) = if certified {
            (KeyNo::NONE, Secret::of_channel(&channel))
        } else {
            let export = self.exports.find(hello.export.0);
            self.keys.wanted(&hello, export, self.nonces.decoy())
        };
        let hello = bytes[HEADER_BYTES..].to_vec();
        if self.connections.handshake_count() >= limits.handshake_count_max {
            self.shed_handshake(turn);
        }
        let nonce = self.nonces.nonce();
        let proof = secret.server_proof(Proven { hello: &hello, nonce: &nonce, channel: &channel });
        let challenge = Challenge { fs: self.config.fs, nonce, proof };
        send_handshake(turn, conn, FrameKind::Challenge, &challenge);
        let deadline = turn.now.mono.after_ms(limits.handshake_ms_max);
        let handshake =
            Handshake { hello, nonce, channel, secret, key_no, holder, own_host, deadline };
        self.connections.begin_handshake(conn, handshake);
    }

    /// The first frame of a connection of another server's lane: that lane names the one that it
    /// dials.
    fn on_first_of_peer(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (frame, channel): (Span, Channel),
        handed_over: bool,
    ) {
        match self.dialled_lane(turn.arena.get(frame)) {
            Some(lane) if lane == self.config.lane => {
                self.on_peer_hello(turn, conn, (frame, channel));
            }
            Some(lane) if !handed_over => {
                turn.act(NetAction::HandOver { conn, lane, hello: frame });
            }
            Some(_) | None => self.protocol_error(turn, conn, ProtocolError::Route),
        }
    }

    /// Where to pass a connection; `None`: it stays. The accepting lane chooses the proxy lane; the
    /// proxy lane knows the executing lane, which accepts connections from peer lanes.
    fn pass(
        &mut self,
        hello: &Hello<'_>,
        handed_over: bool,
    ) -> Option<Result<Pass, ProtocolError>> {
        let Config { affinity, lane: me, .. } = self.config;
        let lane_count = self.config.lane_count();
        let owner = LaneId(hello.server_lane.0 % lane_count);
        if handed_over {
            let relays = affinity != Affinity::Object;
            let passes = if relays { Ok(Pass::Proxy(owner)) } else { Err(ProtocolError::Route) };
            return (owner != me).then_some(passes);
        }
        let front = affinity.front((hello.client, owner), lane_count, &mut self.nonces);
        if front != me {
            Some(Ok(Pass::HandOver(front)))
        } else {
            (owner != me).then_some(Ok(Pass::Proxy(owner)))
        }
    }

    /// The second frame: the proof.
    pub(crate) fn on_proof(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span) {
        let proof = match decode_proof(turn.arena.get(frame)) {
            Ok(proof) => proof,
            Err(protocol_error) => return self.protocol_error(turn, conn, protocol_error),
        };
        let Some(handshake) = self.connections.handshake_mut(conn) else { return };
        let hello_bytes = core::mem::take(&mut handshake.hello);
        let Handshake { nonce, channel, secret, key_no, holder, own_host, .. } = *handshake;
        let proven = Proven { hello: &hello_bytes, nonce: &nonce, channel: &channel };
        if !secret.client_proven(proven, &proof.proof) {
            self.stats.protocol_error_count += 1;
            self.report_limit(
                turn,
                (Limit::Secret, Party::NONE),
                "a client with a wrong secret was refused",
            );
            return self.refuse(turn, conn, RefusalReason::WrongSecret);
        }
        let store = self.keys.valid(key_no).copied();
        // The secret may have been retired since the Hello.
        if store.is_none() && holder.is_none() {
            return self.refuse(turn, conn, RefusalReason::WrongSecret);
        }
        // It decoded when it arrived.
        let Ok(hello) = Hello::decode_all(&hello_bytes) else { return };
        let key = (&self.config.fs_key, self.config.rules);
        let export = self.exports.find(hello.export.0);
        match (hello.purpose, hello.credential) {
            (Purpose::Administer, Credential::Store | Credential::Certificate) => {
                let identity = Identity::new(key, &hello, None).held_by(holder.as_ref());
                self.admit(turn, conn, (&hello, &identity), (Binding::ADMINISTERS, key_no));
            }
            (Purpose::Administer, Credential::Export) => {
                self.refuse(turn, conn, RefusalReason::WrongSecret);
            }
            (Purpose::Use, credential) => match export {
                // The export may have been redefined since the Hello.
                Some(export)
                    if credential != Credential::Export
                        || store.is_some_and(|store| export.secret(&store) == secret) =>
                {
                    let (identity, binding) =
                        (Identity::new(key, &hello, Some(export)), export.binding(own_host));
                    let identity = identity.held_by(holder.as_ref());
                    self.admit(turn, conn, (&hello, &identity), (binding, key_no));
                }
                Some(_) => self.refuse(turn, conn, RefusalReason::WrongSecret),
                // Or removed.
                None => self.refuse(turn, conn, RefusalReason::NoSuchExport),
            },
        }
    }

    /// The peer is authenticated. The connection replaces an earlier one of its session.
    fn admit(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (hello, identity): (&Hello<'_>, &Identity),
        (binding, key_no): (Binding, KeyNo),
    ) {
        let client = identity.client(hello.client);
        if self.was_evicted(client, hello.boot_id_last) {
            return self.refuse(turn, conn, RefusalReason::Evicted);
        }
        let (client_lane, host_id) = (hello.client_lane, hello.host_id);
        let host_boot_id = identity.host_boot(hello.host_boot_id);
        self.host_rebooted(turn.now.mono, host_id, host_boot_id);
        if hello.predecessor != hello.client {
            self.replace_client(turn, (client, identity.client(hello.predecessor)));
        }
        let id = identity.session(client, client_lane);
        let row = SessionRow { client, client_lane, host_id, host_boot_id };
        let holder = self.connections.handshake_mut(conn).and_then(|handshake| handshake.holder);
        let party = party_of((hello.credential, holder.as_ref()), &binding);
        let known = self.sessions.get(id);
        let replaced = known.and_then(|session| session.conn);
        if let Some(session) = known {
            let epoch_last = session.conn_epoch;
            let again = replaced.is_some() && hello.conn_epoch == epoch_last;
            if hello.conn_epoch < epoch_last || again {
                return self.refuse(turn, conn, RefusalReason::OldEpoch);
            }
        } else if !self.make_session_space(turn, party) {
            return self.refuse(turn, conn, RefusalReason::Busy);
        }
        if replaced.is_none() && !self.make_conn_space(turn, party) {
            return self.refuse(turn, conn, RefusalReason::Busy);
        }
        if let Some(replaced) = replaced {
            self.close(turn, replaced);
        }
        let conn_epoch = hello.conn_epoch;
        let left_at = turn.now.mono;
        let basis = Basis { key_no, export_no: binding.export_no, root: binding.root() };
        let session = Session {
            row,
            party,
            basis,
            conn: Some(conn),
            conn_epoch,
            request_seen: false,
            opened_no: 0,
            left_at,
        };
        let request_seen = self.sessions.open(id, session);
        let open = Open { session: id, client, conn_epoch, key_no, binding, party };
        let name = self.name_of(hello, &binding);
        self.accounts.open(&open, &name);
        self.connections.open(conn, open, name.job);
        turn.act(self.admission((conn, turn.now.mono), &binding, party));
        let mut flags = binding.welcome_flags();
        if self.must_reopen(client, hello.boot_id_last, request_seen) {
            flags |= welcome_flag::HANDLES_UNKNOWN;
        }
        let welcome = Welcome {
            recovery_ms: self.recovery_left_ms(turn.now.mono),
            root: binding.root(),
            ..self.welcome(id, flags)
        };
        send_handshake(turn, conn, FrameKind::Welcome, &welcome);
    }

    /// Who connects, for people.
    fn name_of(&self, hello: &Hello<'_>, binding: &Binding) -> Name {
        let export = self.exports.numbered(binding.export_no);
        let export = export.map_or(&[][..], |export| &export.name);
        let [host, export, job] = [hello.host_name.0, export, hello.job.0]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Name { client: hello.client, host, export, job }
    }

    fn welcome(&self, session: SessionId, flags: u32) -> Welcome {
        Welcome {
            session,
            boot_id: self.config.boot_id,
            map: self.config.map.clone(),
            server: self.config.server,
            lane: self.config.lane,
            slot_count: self.config.limits.slot_count,
            credits: self.config.limits.credits,
            flags,
            recovery_ms: 0,
            root: InodeNo::ROOT,
        }
    }

    /// Whether this client may hold handles that are unknown here. A needless yes costs a few
    /// requests; a wrong no destroys an open file.
    fn must_reopen(&self, client: ClientUuid, boot_id_last: u64, request_seen: bool) -> bool {
        let knows = self.metas.iter().all(|shard| shard.has_all_handles_of(client));
        let other_boot = self.config.boot_id > 1 && boot_id_last != self.config.boot_id;
        // Only a request after a Welcome shows that the client did what the Welcome asked for.
        let unheard = self.config.boot_id > 1 && !request_seen;
        !self.metas.is_empty() && (!knows || other_boot || unheard)
    }

    /// Refuses a connection and closes it.
    pub(crate) fn refuse(&mut self, turn: &mut Turn<'_>, conn: ConnId, reason: RefusalReason) {
        send_handshake(turn, conn, FrameKind::Refusal, &Refusal { reason });
        self.close(turn, conn);
    }

    /// Closes the oldest connection without a proof: an honest client proves its secret one round
    /// trip after the Challenge.
    fn shed_handshake(&mut self, turn: &mut Turn<'_>) {
        if let Some((_, conn)) = self.connections.first_deadline() {
            let count = self.config.limits.handshake_count_max;
            let line = format!("a connection was closed that proved nothing, of {count} such");
            self.report_limit(turn, (Limit::Handshakes, Party::NONE), &line);
            self.close(turn, conn);
        }
    }

    /// Closes connections whose handshake has timed out.
    pub(crate) fn end_handshakes(&mut self, turn: &mut Turn<'_>) {
        while let Some((deadline, conn)) = self.connections.first_deadline() {
            if deadline > turn.now.mono {
                return;
            }
            let seconds = self.config.limits.handshake_ms_max / 1000;
            let line = format!("a connection proved nothing in {seconds} s and was closed");
            self.report_limit(turn, (Limit::HandshakeTime, Party::NONE), &line);
            self.close(turn, conn);
        }
    }
}

/// Sends a frame of the handshake.
fn send_handshake<'a>(turn: &mut Turn<'_>, conn: ConnId, kind: FrameKind, message: &impl Wire<'a>) {
    let encode = |out: &mut Vec<u8>| {
        Header::Handshake(kind).encode(out, None, |to| to.write(message));
    };
    let frame = turn.arena.write(encode);
    turn.act(NetAction::Send { conn, frame, bulk: None });
}

fn decode_hello(frame: &[u8]) -> Result<Hello<'_>, ProtocolError> {
    let body = body_of(frame, FrameKind::Hello)?;
    let hello = Hello::decode_all(body).map_err(protocol_error_of)?;
    let labels = [hello.host_name, hello.job];
    if hello.export.0.len() > EXPORT_NAME_BYTES_MAX
        || labels.iter().any(|label| label.0.len() > LABEL_BYTES_MAX)
    {
        Err(ProtocolError::Malformed)
    } else {
        Ok(hello)
    }
}

fn decode_proof(frame: &[u8]) -> Result<Proof, ProtocolError> {
    Proof::decode_all(body_of(frame, FrameKind::Proof)?).map_err(protocol_error_of)
}

fn body_of(frame: &[u8], wanted: FrameKind) -> Result<&[u8], ProtocolError> {
    match Header::decode(frame)? {
        (Header::Handshake(kind), body) if kind == wanted => Ok(body),
        (
            Header::Handshake(_)
            | Header::Request(_)
            | Header::Reply(_)
            | Header::CommitNotification
            | Header::Grant
            | Header::Recall
            | Header::RecallAck
            | Header::Received
            | Header::PeerMessage
            | Header::MapNote,
            _,
        ) => Err(ProtocolError::Kind),
    }
}

const fn protocol_error_of(error: DecodeError) -> ProtocolError {
    match error {
        DecodeError::ProtocolError(protocol_error) => protocol_error,
        DecodeError::Status(_) => ProtocolError::Malformed,
    }
}
