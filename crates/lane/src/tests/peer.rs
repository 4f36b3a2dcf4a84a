//! A client for tests: connects, sends requests, and tracks its outstanding ones.

use crate::test_server::{ReceivedRequest, TestServer};
use alloc::vec::Vec;
use interface::ConnId;
use wire::{
    Bytes, Caller, Challenge, ClientUuid, FrameKind, Groups, Header, Hello, InodeNo, LaneId,
    MapEpoch, Name, Op, PLAIN, Proof, Proven, Refusal, Reply, ReplyParts, Request, Secret,
    SessionId, ShardId, Status, Transno, Welcome, Wire, Xid,
};

pub(crate) const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// The fields of a Hello that tests vary.
#[derive(Clone, Debug)]
pub(crate) struct HelloFields {
    pub(crate) client: ClientUuid,
    pub(crate) client_lane: LaneId,
    pub(crate) server_lane: LaneId,
    pub(crate) conn_epoch: u32,
    pub(crate) boot_id_last: u64,
    pub(crate) export: &'static str,
    pub(crate) credential: wire::Credential,
    pub(crate) purpose: wire::Purpose,
    pub(crate) host_boot_id: [u8; 16],
    pub(crate) predecessor: ClientUuid,
    pub(crate) host: &'static str,
    pub(crate) job: &'static str,
}

impl HelloFields {
    pub(crate) fn new(client: u8) -> Self {
        Self {
            client: ClientUuid([client; 16]),
            client_lane: LaneId(0),
            server_lane: LaneId(0),
            conn_epoch: 1,
            boot_id_last: 0,
            export: "",
            credential: wire::Credential::Store,
            purpose: wire::Purpose::Use,
            host_boot_id: [2; 16],
            predecessor: ClientUuid::NONE,
            host: "",
            job: "",
        }
    }

    /// With the key id of this secret.
    pub(crate) fn hello(&self, secret: &Secret) -> Vec<u8> {
        let hello = Hello {
            server_lane: self.server_lane,
            client: self.client,
            client_lane: self.client_lane,
            conn_epoch: self.conn_epoch,
            nonce: [9; 32],
            host_id: [1; 16],
            host_boot_id: self.host_boot_id,
            boot_id_last: self.boot_id_last,
            predecessor: self.predecessor,
            export: Bytes(self.export.as_bytes()),
            credential: self.credential,
            purpose: self.purpose,
            key_id: secret.key_id(&[9; 32]),
            host_name: Bytes(self.host.as_bytes()),
            job: Bytes(self.job.as_bytes()),
        };
        hello.to_bytes()
    }
}

pub(crate) fn handshake(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Header::Handshake(kind).encode(&mut frame, None, |to| to.put(body));
    frame
}

/// The last handshake frame in an inbox.
pub(crate) fn handshake_frame(received: &[ReceivedRequest]) -> (FrameKind, Vec<u8>) {
    let (head, body) = Header::decode(&received.last().unwrap().frame).unwrap();
    let Header::Handshake(kind) = head else { panic!("{head:?} is no handshake") };
    (kind, body.to_vec())
}

/// Connects with the right secret; returns the server's last frame.
pub(crate) fn send_handshake(
    server: &mut TestServer,
    fields: &HelloFields,
) -> (ConnId, Result<Welcome, Refusal>) {
    let conn = server.connect();
    server.send(conn, handshake(FrameKind::Hello, &fields.hello(&server.secret)), None);
    server.run();
    let (kind, body) = handshake_frame(&server.take(conn));
    if kind == FrameKind::Refusal {
        return (conn, Err(Refusal::decode_all(&body).unwrap()));
    }
    assert_eq!(kind, FrameKind::Challenge);
    let challenge = Challenge::decode_all(&body).unwrap();
    let hello = fields.hello(&server.secret);
    let proven = Proven { hello: &hello, nonce: &challenge.nonce, channel: &PLAIN };
    assert!(server.secret.server_proven(proven, &challenge.proof));
    let proof = Proof { proof: server.secret.client_proof(proven) };
    server.send(conn, handshake(FrameKind::Proof, &proof.to_bytes()), None);
    server.run();
    let (kind, body) = handshake_frame(&server.take(conn));
    match kind {
        FrameKind::Welcome => (conn, Ok(Welcome::decode_all(&body).unwrap())),
        FrameKind::Refusal => (conn, Err(Refusal::decode_all(&body).unwrap())),
        other => panic!("{other:?} is no answer to a proof"),
    }
}

/// An authenticated connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) conn: ConnId,
    pub(crate) session: SessionId,
    pub(crate) conn_epoch: u32,
    pub(crate) xid: u64,
}

/// A received reply.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedReply {
    pub(crate) head: Reply,
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
    /// Its redo token.
    pub(crate) token: Vec<u8>,
}

/// The layout that a request states.
pub(crate) fn stated_layout(op: Op) -> Option<wire::Layout> {
    (op.row().route == wire::Route::Data).then_some(wire::Layout::DEFAULT)
}

impl Peer {
    pub(crate) fn new(server: &mut TestServer, fields: &HelloFields) -> Self {
        let (conn, welcome) = send_handshake(server, fields);
        let welcome = welcome.unwrap();
        assert!(server.is_admitted(conn));
        Self { conn, session: welcome.session, conn_epoch: fields.conn_epoch, xid: 1000 }
    }

    /// The head of a request under the next xid.
    pub(crate) fn head(&mut self, op: Op, shard: ShardId, slot: u16) -> Request {
        self.xid += 1;
        Request {
            op,
            lane_hint: LaneId(0),
            shard,
            slot,
            flags: 0,
            session: self.session,
            xid: Xid(self.xid),
            ack_xid: Xid(0),
            sack: 0,
            conn_epoch: self.conn_epoch,
            layout: stated_layout(op),
            transno: Transno(0),
            trace_id: 5,
            map_epoch: MapEpoch(0),
        }
    }

    /// Sends a request as a client with the server's map.
    pub(crate) fn send(
        &self,
        server: &mut TestServer,
        head: &Request,
        body: &[u8],
        bulk: Option<&[u8]>,
    ) {
        let head = Request { map_epoch: server.map.epoch(), ..*head };
        self.send_routed(server, &head, body, bulk);
    }

    /// Sends a request under the map epoch that it names.
    pub(crate) fn send_routed(
        &self,
        server: &mut TestServer,
        head: &Request,
        body: &[u8],
        bulk: Option<&[u8]>,
    ) {
        server.send(self.conn, request(head, body, bulk), bulk.map(<[u8]>::to_vec));
    }

    pub(crate) fn replies(&self, server: &mut TestServer) -> Vec<ReceivedReply> {
        let received = server.take(self.conn).into_iter();
        let unasked =
            |received: &ReceivedRequest| commit_rows(received).is_some() || is_map(received);
        received.filter(|received| !unasked(received)).map(got).collect()
    }

    /// Sends a request to a metadata shard and waits for the reply.
    pub(crate) fn ask<'a>(
        &mut self,
        server: &mut TestServer,
        op: Op,
        slot: u16,
        body: &impl Wire<'a>,
    ) -> ReceivedReply {
        let head = self.head(op, InodeNo::ROOT.shard(), slot);
        self.ask_for(server, &head, &body.to_bytes(), None)
    }

    /// Sends a request to a data shard and waits for the reply.
    pub(crate) fn ask_data<'a>(
        &mut self,
        server: &mut TestServer,
        (op, slot, inode): (Op, u16, InodeNo),
        body: &impl Wire<'a>,
        bulk: Option<&[u8]>,
    ) -> ReceivedReply {
        let head = self.head(op, server.map.data_shard(inode, 0), slot);
        self.ask_for(server, &head, &body.to_bytes(), bulk)
    }

    fn ask_for(
        &self,
        server: &mut TestServer,
        head: &Request,
        body: &[u8],
        bulk: Option<&[u8]>,
    ) -> ReceivedReply {
        self.send(server, head, body, bulk);
        server.run();
        let mut replies = self.replies(server);
        assert_eq!(replies.len(), 1, "one reply to {:?}", head.op);
        replies.remove(0)
    }

    /// After a restart: ends the replays for a shard without any; for a data shard those for all of
    /// its lane, because the server has recorded the session there.
    pub(crate) fn come_back(&mut self, server: &mut TestServer, shard: ShardId) {
        let map = server.map.clone();
        let is_there = |at: &ShardId| at.is_data() && map.lane(*at) == map.lane(shard);
        let shards = map.shard_counts().shards();
        let others = shards.filter(|at| shard.is_data() && *at != shard && is_there(at));
        for shard in [shard].into_iter().chain(others) {
            let head = self.head(Op::ReplayDone, shard, 0);
            let body = wire::ReplayDone { reopen_count: 0 }.to_bytes();
            assert_eq!(self.ask_for(server, &head, &body, None).head.status, Status::Ok);
        }
    }

    pub(crate) fn create(&mut self, server: &mut TestServer, text: &str) -> InodeNo {
        let got = self.ask(server, Op::Create, 1, &create(text));
        assert_eq!(got.head.status, Status::Ok);
        wire::Created::decode_all(&got.body).unwrap().attr.inode
    }
}

pub(crate) fn create(text: &str) -> wire::Create<'_> {
    wire::Create {
        caller: ROOT,
        parent: InodeNo::ROOT,
        name: name(text),
        mode: 0o644,
        umask: 0,
        exclusive: true,
        handle: None,
        behind: None,
    }
}

pub(crate) fn request(head: &Request, body: &[u8], bulk: Option<&[u8]>) -> Vec<u8> {
    let mut frame = Vec::new();
    let lengths = bulk.map(|bulk| (bulk.len() as u32, Some(wire::crc32c(bulk))));
    Header::Request(*head).encode(&mut frame, lengths, |to| to.put(body));
    frame
}

pub(crate) fn got(received: ReceivedRequest) -> ReceivedReply {
    let (head, body) = Header::decode(&received.frame).unwrap();
    let Header::Reply(head) = head else { panic!("{head:?} is no reply") };
    let ReplyParts { message, token, .. } = ReplyParts::split(&head, body).unwrap();
    let token = token.unwrap_or_default().to_vec();
    ReceivedReply { head, body: message.to_vec(), bulk: received.bulk, token }
}

fn is_map(received: &ReceivedRequest) -> bool {
    Header::decode(&received.frame).unwrap().0 == Header::MapNote
}

/// Decodes a commit notification.
pub(crate) fn commit_rows(received: &ReceivedRequest) -> Option<Vec<wire::CommitRow>> {
    let (head, body) = Header::decode(&received.frame).unwrap();
    let notification = (head == Header::CommitNotification)
        .then(|| wire::CommitNotification::decode_all(body).unwrap());
    notification.map(|notification| notification.rows.iter().collect())
}
