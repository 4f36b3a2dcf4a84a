//! A client that speaks the protocol and keeps to none of its manners: bound to an export by the secret
//! of that, it asks by number for all there may be.

use crate::stage::{Stage, must};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use wire::*;

/// A connection to one lane of a server.
struct Raw {
    stream: TcpStream,
    session: SessionId,
    map: Map,
    root: InodeNo,
    xid: u64,
}

impl Raw {
    fn new(address: &str, secret: &Secret, (export, lane): (&str, u16)) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let map = Map { lane_count: 1, meta_shard_count: 1, data_shard_count: 1 };
        let (session, root) = (SessionId(0), InodeNo::ROOT);
        let mut raw = Self { stream, session, map, root, xid: 100 };
        let hello = Hello {
            server_lane: LaneId(lane),
            client: ClientUuid([7; 16]),
            client_lane: LaneId(0),
            conn_epoch: 1,
            nonce: [1; 32],
            host_id: [0; 16],
            host_boot_id: [0; 16],
            boot_id_last: 0,
            predecessor: ClientUuid::NONE,
            export: Bytes(export.as_bytes()),
            credential: secret.credential(),
            purpose: Purpose::Use,
        };
        raw.greet(FrameKind::Hello, &hello);
        let (_, challenge) = raw.frame();
        let challenge = Challenge::decode_all(&challenge).unwrap();
        assert!(secret.server_proven(&hello.to_bytes(), &challenge.nonce, &challenge.proof));
        let proof = secret.client_proof(&hello.to_bytes(), &challenge.nonce);
        raw.greet(FrameKind::Proof, &Proof { proof });
        let (_, welcome) = raw.frame();
        let welcome = Welcome::decode_all(&welcome).unwrap();
        Self { session: welcome.session, map: welcome.map, root: welcome.root, ..raw }
    }

    fn greet<'a>(&mut self, kind: FrameKind, message: &impl Wire<'a>) {
        let mut frame = Vec::new();
        Head::Greeting(kind).encode(&mut frame, None, |to| to.write(message));
        self.stream.write_all(&frame).unwrap();
    }

    /// The next frame: its head and body. Bulk behind it is read and dropped.
    fn frame(&mut self) -> (Head, Vec<u8>) {
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

    fn ask<'a>(&mut self, op: Op, shard: ShardId, message: &impl Wire<'a>) -> Status {
        self.xid += 1;
        let request = Request {
            op,
            lane_hint: LaneId(0),
            shard,
            slot: u16::from(op.row().retry == Retry::Once),
            flags: 0,
            session: self.session,
            xid: Xid(self.xid),
            ack_xid: Xid(self.xid - 1),
            sack: 0,
            conn_epoch: 1,
            deadline_ms: 0,
            transno: Transno(0),
            trace_id: 0,
            op_time_ns: 0,
        };
        let mut frame = Vec::new();
        Head::Request(request).encode(&mut frame, None, |to| to.write(message));
        self.stream.write_all(&frame).unwrap();
        loop {
            let (Head::Reply(reply), _) = self.frame() else { continue };
            if reply.xid == request.xid {
                return reply.status;
            }
        }
    }
}

fn secret_of(text: &str) -> Secret {
    let digits = text.trim().strip_prefix("export:").unwrap();
    let byte = |index: usize| u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
    Secret::of_one_export(std::array::from_fn(byte))
}

#[test]
fn numbers_of_what_lies_outside_are_worth_nothing() {
    let Some(stage) = Stage::new("export_hostile") else { return };
    let server = stage.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = stage.mount(&server.address, "all", &["--export", "up"]);
    let mut outside = vec![InodeNo::ROOT];
    for dir in ["a", "b", "c", "c/d"] {
        let path = all.dir.join(dir);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "secret").unwrap();
        fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    }
    for path in ["b", "b/file", "c", "c/file", "c/d", "c/d/file"] {
        outside.push(InodeNo(fs::metadata(all.dir.join(path)).unwrap().ino()));
    }
    let inside = InodeNo(fs::metadata(all.dir.join("a/file")).unwrap().ino());
    let address = server.address.as_str();
    must(&mut stage.lanefs(["export", "add", address, "a", "/a", "--squash", "all"]));
    let secret = secret_of(&must(&mut stage.lanefs(["export", "secret", address, "a"])));
    let mut lanes = [0, 1].map(|lane| Raw::new(address, &secret, ("a", lane)));
    assert_eq!(lanes[0].root, InodeNo(fs::metadata(all.dir.join("a")).unwrap().ino()));
    let map = lanes[0].map;
    let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
    let mut ask = |op: Op, inode: InodeNo, first: &dyn Fn(&mut Raw, ShardId) -> Status| {
        let data = op.row().route == Route::Data;
        let shard = if data { map.data_shard(inode, 0) } else { inode.shard() };
        first(&mut lanes[usize::from(map.lane(shard).0)], shard)
    };
    let mut statuses = |inode: InodeNo| {
        let (file_offset, read_bytes, accesses) = (0, 6, true);
        let name = Name::new(b"file").unwrap();
        let handle = Handle { id: HandleId(1), write: false };
        [
            ask(Op::Getattr, inode, &|raw, at| raw.ask(Op::Getattr, at, &Getattr { inode })),
            ask(Op::Lookup, inode, &|raw, at| {
                raw.ask(Op::Lookup, at, &Lookup { caller, parent: inode, name })
            }),
            ask(Op::Read, inode, &|raw, at| {
                raw.ask(Op::Read, at, &Read { inode, file_offset, read_bytes, accesses })
            }),
            ask(Op::Truncate, inode, &|raw, at| {
                raw.ask(Op::Truncate, at, &Truncate { inode, size_bytes: 0 })
            }),
            ask(Op::Reopen, inode, &|raw, at| raw.ask(Op::Reopen, at, &Reopen { inode, handle })),
            ask(Op::Unlink, inode, &|raw, at| {
                raw.ask(Op::Unlink, at, &Unlink { caller, parent: inode, name })
            }),
        ]
    };
    for inode in outside {
        assert_eq!(statuses(inode), [Status::Stale; 6], "{inode}");
    }
    assert_eq!(statuses(inside)[..3], [Status::Ok, Status::NotDirectory, Status::Ok]);
    for path in ["b/file", "c/file", "c/d/file"] {
        assert_eq!(fs::read_to_string(all.dir.join(path)).unwrap(), "secret");
    }
    all.stop();
}
