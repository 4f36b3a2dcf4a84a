//! A client that says frames as it is told to, and nothing by itself: for tests of what a server bears.

use crate::stage::PATIENCE;
use std::io::{Read as _, Result, Write as _};
use std::net::TcpStream;
use wire::*;

/// A connection to one lane of a server.
pub(crate) struct Raw {
    stream: TcpStream,
    session: SessionId,
    pub(crate) map: Map,
    pub(crate) root: InodeNo,
    pub(crate) credits: u16,
    xid: u64,
}

/// What a client says first.
pub(crate) fn hello<'a>(
    credential: Credential,
    (export, lane): (&'a str, u16),
    client: ClientUuid,
) -> Hello<'a> {
    Hello {
        server_lane: LaneId(lane),
        client,
        client_lane: LaneId(0),
        conn_epoch: 1,
        nonce: library::random().unwrap(),
        host_id: [0; 16],
        host_boot_id: [0; 16],
        boot_id_last: 0,
        predecessor: ClientUuid::NONE,
        export: Bytes(export.as_bytes()),
        credential,
        purpose: Purpose::Use,
    }
}

/// Sends a frame of the greeting.
pub(crate) fn greet<'a>(
    stream: &mut TcpStream,
    kind: FrameKind,
    message: &impl Wire<'a>,
) -> Result<()> {
    let mut frame = Vec::new();
    Head::Greeting(kind).encode(&mut frame, None, |to| to.write(message));
    stream.write_all(&frame)
}

impl Raw {
    pub(crate) fn new(address: &str, secret: &Secret, at: (&str, u16), client: ClientUuid) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let map = Map { lane_count: 1, meta_shard_count: 1, data_shard_count: 1 };
        let (session, root) = (SessionId(0), InodeNo::ROOT);
        let mut raw = Self { stream, session, map, root, credits: 0, xid: 100 };
        let hello = hello(secret.credential(), at, client);
        greet(&mut raw.stream, FrameKind::Hello, &hello).unwrap();
        let (_, challenge) = raw.frame();
        let challenge = Challenge::decode_all(&challenge).unwrap();
        assert!(secret.server_proven(&hello.to_bytes(), &challenge.nonce, &challenge.proof));
        let proof = secret.client_proof(&hello.to_bytes(), &challenge.nonce);
        greet(&mut raw.stream, FrameKind::Proof, &Proof { proof }).unwrap();
        let (_, welcome) = raw.frame();
        let Welcome { session, map, root, credits, .. } = Welcome::decode_all(&welcome).unwrap();
        Self { session, map, root, credits, ..raw }
    }

    /// The next frame: its head and body. Bulk behind it is read and dropped.
    pub(crate) fn frame(&mut self) -> (Head, Vec<u8>) {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head).unwrap();
        let lengths = Lengths::peek(&head).unwrap();
        let mut frame = head.to_vec();
        frame.resize(lengths.frame_bytes, 0);
        self.stream.read_exact(&mut frame[HEAD_BYTES..]).unwrap();
        let mut bulk = vec![0; usize::try_from(lengths.bulk_bytes).unwrap()];
        self.stream.read_exact(&mut bulk).unwrap();
        let (head, body) = Head::decode(&frame).unwrap();
        (head, body.to_vec())
    }

    /// Sends a request, whose body is encoded so; its number.
    pub(crate) fn send(
        &mut self,
        op: Op,
        shard: ShardId,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Xid {
        self.xid += 1;
        let request = Request {
            lane_hint: self.map.lane(shard),
            shard,
            slot: u16::from(op.row().retry == Retry::Once),
            session: self.session,
            xid: Xid(self.xid),
            ack_xid: Xid(self.xid - 1),
            conn_epoch: 1,
            ..Request::of(op)
        };
        let mut frame = Vec::new();
        Head::Request(request).encode(&mut frame, None, encode);
        self.stream.write_all(&frame).unwrap();
        request.xid
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<'a>(&mut self, op: Op, shard: ShardId, message: &impl Wire<'a>) -> Status {
        let xid = self.send(op, shard, |to| to.write(message));
        loop {
            let (Head::Reply(reply), _) = self.frame() else { continue };
            if reply.xid == xid {
                return reply.status;
            }
        }
    }
}
