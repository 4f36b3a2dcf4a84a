//! A client that sends exactly the frames of a test: for tests with invalid or hostile input.

use crate::fixture::PATIENCE;
use std::io::{Read as _, Result, Write as _};
use std::net::TcpStream;
use wire::*;

/// A connection to one lane of a server.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) session: SessionId,
    pub(crate) map: Map,
    pub(crate) root: InodeNo,
    pub(crate) credits: u16,
    conn_epoch: u32,
    xid: u64,
}

/// What a client says first; [`Raw::of`] puts in which secret it holds.
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
        key_id: KeyId(0),
        host_name: Bytes(b""),
        job: Bytes(b""),
    }
}

/// Sends a frame of the handshake.
pub(crate) fn send_handshake<'a>(
    stream: &mut TcpStream,
    kind: FrameKind,
    message: &impl Wire<'a>,
) -> Result<()> {
    let mut frame = Vec::new();
    Header::Handshake(kind).encode(&mut frame, None, |to| to.write(message));
    Header::put_sums(&mut frame, None);
    stream.write_all(&frame)
}

/// The next frame: its head, body and bulk. An error when the connection has ended.
pub(crate) fn take(stream: &mut TcpStream) -> Result<(Header, Vec<u8>, Vec<u8>)> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let lengths = Lengths::peek(&head).unwrap();
    let mut frame = head.to_vec();
    frame.resize(lengths.frame_bytes, 0);
    stream.read_exact(&mut frame[HEADER_BYTES..])?;
    let mut bulk = vec![0; usize::try_from(lengths.bulk_bytes).unwrap()];
    stream.read_exact(&mut bulk)?;
    assert_eq!(Header::check_sum(&frame), Ok(()));
    let (head, body) = Header::decode(&frame).unwrap();
    Ok((head, body.to_vec(), bulk))
}

/// What a server says to a client whose secret is not valid.
pub(crate) struct Refused {
    pub(crate) challenge: Challenge,
    /// By its proof the server knows that secret.
    pub(crate) server_proven: bool,
    pub(crate) reason: RefusalReason,
}

/// Sends this Hello, then a proof by this secret whatever the server's Challenge proves.
pub(crate) fn refused(address: &str, secret: &Secret, hello: &Hello<'_>) -> Refused {
    let hello = Hello { key_id: secret.key_id(&hello.nonce), ..*hello };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    send_handshake(&mut stream, FrameKind::Hello, &hello).unwrap();
    let challenge = handshake(&mut stream, FrameKind::Challenge);
    let challenge = Challenge::decode_all(&challenge).unwrap();
    let hello = hello.to_bytes();
    let proven = Proven { hello: &hello, nonce: &challenge.nonce, channel: &PLAIN };
    let server_proven = secret.server_proven(proven, &challenge.proof);
    let proof = Proof { proof: secret.client_proof(proven) };
    send_handshake(&mut stream, FrameKind::Proof, &proof).unwrap();
    let refusal = handshake(&mut stream, FrameKind::Refusal);
    let reason = Refusal::decode_all(&refusal).unwrap().reason;
    Refused { challenge, server_proven, reason }
}

/// The body of the next frame, which is of this kind.
fn handshake(stream: &mut TcpStream, wanted: FrameKind) -> Vec<u8> {
    let (head, body, _) = take(stream).unwrap();
    assert_eq!(head, Header::Handshake(wanted));
    body
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// Its message, without the redo token.
    pub(crate) message: Vec<u8>,
    /// Empty without one.
    pub(crate) token: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(address: &str, secret: &Secret, at: (&str, u16), client: ClientUuid) -> Self {
        Self::of(address, secret, &hello(secret.credential(), at, client)).unwrap()
    }

    /// Sends this Hello. Why not, if the server says no.
    pub(crate) fn of(
        address: &str,
        secret: &Secret,
        hello: &Hello<'_>,
    ) -> std::result::Result<Self, RefusalReason> {
        let hello = &Hello { key_id: secret.key_id(&hello.nonce), ..*hello };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let map = Map::single_server(1, ShardCounts { meta: 1, data: 1 }, Term(1));
        let (session, root, conn_epoch) = (SessionId(0), InodeNo::ROOT, hello.conn_epoch);
        let (credits, xid) = (0, 100);
        let mut raw = Self { stream, session, map, root, credits, conn_epoch, xid };
        send_handshake(&mut raw.stream, FrameKind::Hello, hello).unwrap();
        let challenge = raw.take_handshake(FrameKind::Challenge)?;
        let challenge = Challenge::decode_all(&challenge).unwrap();
        let hello = hello.to_bytes();
        let proven = Proven { hello: &hello, nonce: &challenge.nonce, channel: &PLAIN };
        assert!(secret.server_proven(proven, &challenge.proof));
        let proof = secret.client_proof(proven);
        send_handshake(&mut raw.stream, FrameKind::Proof, &Proof { proof }).unwrap();
        let welcome = raw.take_handshake(FrameKind::Welcome)?;
        let welcome = Welcome::decode_all(&welcome).unwrap();
        let Welcome { session, map, root, credits, .. } = welcome;
        Ok(Self { session, map, root, credits, ..raw })
    }

    /// The body of the next frame of the handshake, which is of this kind or says no.
    fn take_handshake(&mut self, wanted: FrameKind) -> std::result::Result<Vec<u8>, RefusalReason> {
        let (head, body) = self.frame();
        if head == Header::Handshake(FrameKind::Refusal) {
            return Err(Refusal::decode_all(&body).unwrap().reason);
        }
        assert_eq!(head, Header::Handshake(wanted));
        Ok(body)
    }

    /// The next frame: its head and body. Bulk behind it is read and dropped.
    pub(crate) fn frame(&mut self) -> (Header, Vec<u8>) {
        let (head, body, _) = self.take().unwrap();
        (head, body)
    }

    /// The next frame: its head, body and bulk. An error when the connection has ended.
    pub(crate) fn take(&mut self) -> Result<(Header, Vec<u8>, Vec<u8>)> {
        take(&mut self.stream)
    }

    /// A request as it should be: the next number of its session, in slot 1 if it needs one.
    pub(crate) fn request(&mut self, op: Op, shard: ShardId) -> Request {
        self.xid += 1;
        Request {
            lane_hint: self.map.lane(shard),
            shard,
            slot: u16::from(op.row().retry == Retry::Once),
            session: self.session,
            xid: Xid(self.xid),
            ack_xid: Xid(self.xid - 1),
            conn_epoch: self.conn_epoch,
            map_epoch: self.map.epoch(),
            layout: (op.row().route == wire::Route::Data).then_some(wire::Layout::DEFAULT),
            ..Request::of(op)
        }
    }

    /// Sends a request, whose body is encoded so; its number.
    pub(crate) fn send(
        &mut self,
        op: Op,
        shard: ShardId,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Xid {
        let request = self.request(op, shard);
        self.say(request, encode, &[]).unwrap();
        request.xid
    }

    /// Sends a request that may be anything.
    pub(crate) fn say(
        &mut self,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>),
        bulk: &[u8],
    ) -> Result<()> {
        let mut frame = Vec::new();
        let summed = (u32::try_from(bulk.len()).unwrap(), Some(crc32c(bulk)));
        Header::Request(request).encode(&mut frame, (!bulk.is_empty()).then_some(summed), encode);
        Header::put_sums(&mut frame, None);
        frame.extend_from_slice(bulk);
        self.stream.write_all(&frame)
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<'a>(&mut self, op: Op, shard: ShardId, message: &impl Wire<'a>) -> Status {
        self.answer(op, shard, message, &[]).reply.status
    }

    /// Asks, with bulk if there is some, and waits for the answer.
    pub(crate) fn answer<'a>(
        &mut self,
        op: Op,
        shard: ShardId,
        message: &impl Wire<'a>,
        bulk: &[u8],
    ) -> Answer {
        let request = self.request(op, shard);
        self.say(request, |to| to.write(message), bulk).unwrap();
        self.answer_to(request.xid).unwrap()
    }

    /// Waits for the answer to a request. An error when the connection ends before it.
    pub(crate) fn answer_to(&mut self, xid: Xid) -> Result<Answer> {
        loop {
            let (head, body, bulk) = self.take()?;
            let Header::Reply(reply) = head else { continue };
            if reply.xid != xid {
                continue;
            }
            let ReplyParts { message, token, .. } = ReplyParts::split(&reply, &body).unwrap();
            let (message, token) = (message.to_vec(), token.unwrap_or_default().to_vec());
            return Ok(Answer { reply, message, token, bulk });
        }
    }
}
