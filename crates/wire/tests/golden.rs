//! Golden bytes: every frame and message keeps the encoding it has.
//!
//! `golden.txt` holds one line for each: a name and the bytes in hexadecimal. A line that differs
//! means that old peers are not understood any more; that needs a new frame version, not a new
//! line. `LANEFS_GOLDEN_WRITE=1` writes the file for messages added.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, clippy::panic)]

use std::collections::BTreeMap;
use wire::*;

const ATTR: Attr = Attr {
    inode: InodeNo(0x0003_0000_0000_0102),
    kind: FileKind::File,
    flags: attr_flag::SIZE_AT_DATA,
    mode: 0o4755,
    nlink: 2,
    uid: 1000,
    gid: 100,
    rdev: 0x0010_3203,
    size_bytes: 0x1_0000_0001,
    allocated_bytes: 8192,
    atime: Timestamp { secs: -1, nanos: 999_999_999 },
    mtime: Timestamp { secs: 1_700_000_000, nanos: 1 },
    mtime_set: Timestamp { secs: 1_700_000_001, nanos: 3 },
    ctime: Timestamp { secs: 1_700_000_001, nanos: 2 },
    birth: Timestamp { secs: 1_600_000_000, nanos: 4 },
    version: Transno(0x1_0000_0007),
    layout: Some(Layout { stripe_unit_bytes: 1 << 20, stripe_count: 1, narrow: false }),
};
const CONTENTS: Contents = Contents {
    size_bytes: 4097,
    allocated_bytes: 8192,
    write_time: Some(Timestamp { secs: 5, nanos: 6 }),
};

fn caller() -> Caller<'static> {
    Caller { uid: 1000, gid: 100, groups: Groups::Known(&[4, 0, 0, 0, 20, 0, 0, 0]) }
}

fn name(text: &'static str) -> Name<'static> {
    Name::new(text.as_bytes()).unwrap()
}

/// The request body of every op, and the bodies of replies.
fn bodies() -> BTreeMap<String, Vec<u8>> {
    let parent = InodeNo::ROOT;
    let inode = InodeNo(258);
    let handle = Handle { id: HandleId(0x0001_0000_0000_0009), open_for: OpenFor::ReadWrite };
    let entries = Dirent {
        cookie: 3,
        inode,
        kind: FileKind::Symlink,
        name: name("l"),
        attr: None,
        granted: true,
    }
    .to_bytes();
    let mut all = BTreeMap::new();
    for &op in Op::ALL {
        let body = match op {
            Op::Lookup => Lookup { caller: caller(), parent, name: name("a") }.to_bytes(),
            Op::Getattr => Getattr { inode }.to_bytes(),
            Op::Setattr => Setattr {
                caller: Caller { groups: Groups::Unknown, ..caller() },
                inode,
                mode: Some(0o640),
                uid: None,
                gid: Some(5),
                atime: SetTime::Now,
                mtime: SetTime::At(Timestamp { secs: 7, nanos: 8 }),
                clears: wire::ClearPrivileges::All,
            }
            .to_bytes(),
            Op::Create => Create {
                caller: caller(),
                parent,
                name: name("f"),
                mode: 0o644,
                umask: 0o22,
                exclusive: true,
                handle: Some(handle),
                behind: Some(CreateBehind {
                    inode: InodeNo(97),
                    at: Timestamp { secs: 9, nanos: 10 },
                }),
            }
            .to_bytes(),
            Op::Mkdir => {
                let (name, mode, umask) = (name("d"), 0o777, 0o27);
                Mkdir { caller: caller(), parent, name, mode, umask }.to_bytes()
            }
            Op::Symlink => {
                Symlink { caller: caller(), parent, name: name("l"), target: Bytes(b"../x") }
                    .to_bytes()
            }
            Op::Tmpfile => {
                let (mode, umask, linkable) = (0o666, 0o22, true);
                Tmpfile { caller: caller(), parent, mode, umask, linkable, handle }.to_bytes()
            }
            Op::Mknod => Mknod {
                caller: caller(),
                parent,
                name: name("n"),
                kind: FileKind::CharDevice,
                mode: 0o640,
                umask: 0o22,
                rdev: 0x0103,
            }
            .to_bytes(),
            Op::Link => Link { caller: caller(), inode, parent, name: name("h") }.to_bytes(),
            Op::Unlink => {
                let behind = Some(Timestamp { secs: 9, nanos: 10 });
                Unlink { caller: caller(), parent, name: name("f"), behind }.to_bytes()
            }
            Op::Claim => Claim { inode, first: InodeNo(98), count: 99 }.to_bytes(),
            Op::Rmdir => Rmdir { caller: caller(), parent, name: name("d") }.to_bytes(),
            Op::Rename => Rename {
                caller: caller(),
                parent,
                name: name("a"),
                new_parent: inode,
                new_name: name("b"),
                how: RenameHow::NoReplace,
            }
            .to_bytes(),
            Op::Readlink => Readlink { inode }.to_bytes(),
            Op::Readdir => Readdir {
                caller: caller(),
                inode,
                cookie: 9,
                listing_bytes_max: 65_536,
                attrs: true,
                handle: Some(handle.id),
            }
            .to_bytes(),
            Op::Find => Find {
                caller: caller(),
                inode,
                cookie: 9,
                listing_bytes_max: 65_536,
                attrs: true,
                directories: true,
                predicate: Predicate {
                    name: Some(Pattern::new(b"*.c").unwrap()),
                    kinds: Some(Kinds::default().with(FileKind::File).with(FileKind::Symlink)),
                    size_bytes_min: Some(0x1_0000_0001),
                    size_bytes_max: None,
                    mtime_after: None,
                    mtime_before: Some(Timestamp { secs: 7, nanos: 8 }),
                },
            }
            .to_bytes(),
            Op::Open => Open { caller: caller(), inode, handle }.to_bytes(),
            Op::Close => Close { inode, handle: handle.id }.to_bytes(),
            Op::Reopen => Reopen { inode, handle }.to_bytes(),
            Op::Access => Access { caller: caller(), inode, mask: 5 }.to_bytes(),
            Op::Getxattr => Getxattr { caller: caller(), inode, name: Bytes(b"user.k") }.to_bytes(),
            Op::Setxattr => Setxattr {
                caller: caller(),
                inode,
                name: Bytes(b"user.k"),
                value: Bytes(b"v"),
                flags: 1,
            }
            .to_bytes(),
            Op::Listxattr => Listxattr { caller: caller(), inode }.to_bytes(),
            Op::Removexattr => {
                Removexattr { caller: caller(), inode, name: Bytes(b"user.k") }.to_bytes()
            }
            Op::Statfs => Statfs { inode }.to_bytes(),
            Op::SetLock => SetLock {
                inode,
                kind: LockKind::Flock,
                owner: 0x1020_3040_5060_7080,
                lock: Some(LockType::Write),
                range: ByteRange::new(3, LOCK_END_MAX).unwrap(),
                pid: 77,
                wait_id: 78,
                place: 79,
            }
            .to_bytes(),
            Op::GetLock => GetLock {
                inode,
                kind: LockKind::Posix,
                owner: 9,
                lock: LockType::Read,
                range: ByteRange::ALL,
            }
            .to_bytes(),
            Op::CancelLock => CancelLock { inode, wait_id: 80 }.to_bytes(),
            Op::Relock => Relock {
                inode,
                kind: LockKind::Posix,
                owner: 9,
                lock: LockType::Write,
                range: ByteRange::new(1, 2).unwrap(),
                pid: 81,
            }
            .to_bytes(),
            Op::Read => {
                Read { inode, file_offset: 1 << 40, read_bytes: 4096, accesses: true }.to_bytes()
            }
            Op::Write => Write {
                inode,
                file_offset: 1 << 41,
                append: true,
                clears: wire::ClearPrivileges::Nothing,
            }
            .to_bytes(),
            Op::Truncate => Truncate { inode, size_bytes: 77 }.to_bytes(),
            Op::Glimpse => Glimpse { inode }.to_bytes(),
            Op::Reserve => Reserve { inode, begins: true, again: false }.to_bytes(),
            Op::Widen => Widen { inode }.to_bytes(),
            Op::Allocate => {
                let (allocation, keep_size) = (Allocation::Zero, true);
                let (file_offset, range_bytes) = (1 << 42, 1 << 33);
                Allocate {
                    inode,
                    file_offset,
                    range_bytes,
                    allocation,
                    keep_size,
                    clears: wire::ClearPrivileges::Nothing,
                }
                .to_bytes()
            }
            Op::Seek => Seek { inode, file_offset: 1 << 43, hole: true }.to_bytes(),
            Op::ReadList => ReadList { inode, pieces: pieces(), accesses: true }.to_bytes(),
            Op::WriteList => {
                WriteList { inode, pieces: pieces(), clears: wire::ClearPrivileges::Nothing }
                    .to_bytes()
            }
            Op::Resume => {
                Resume { known_committed: Transno(0x1_0000_0001), replay_count: 2 }.to_bytes()
            }
            Op::ReplayDone => ReplayDone { reopen_count: 3 }.to_bytes(),
            Op::SetExport => SetExport { export: export(), replace: true }.to_bytes(),
            Op::Freeze => Freeze { lease_ms: 30_000 }.to_bytes(),
            Op::Inspect => Inspect::Read { stream_offset: 1 << 46 }.to_bytes(),
            Op::Stats
            | Op::Counters
            | Op::Traces
            | Op::Ping
            | Op::Sync
            | Op::Goodbye
            | Op::Exports => Vec::new(),
        };
        all.insert(format!("request {}", op.row().name), body);
    }
    all.insert("request sync narrow".to_owned(), SyncNarrow { inode }.to_bytes());
    let check = Inspection::Check { json: true, skip_contents: true };
    for (what, inspection) in [
        ("check", check),
        ("dump", Inspection::Dump),
        ("backup", Inspection::Backup { freeze_ms_max: 30_000 }),
    ] {
        all.insert(format!("request inspect {what}"), Inspect::Start(inspection).to_bytes());
    }
    all.insert("request inspect held".to_owned(), Inspect::Held.to_bytes());
    let mut reply = |what: &str, body: Vec<u8>| all.insert(format!("reply {what}"), body);
    let resumed = Resumed { committed: Transno(0x1_0000_0002), recovering: true };
    reply("resumed", resumed.to_bytes());
    reply("entry", Entry { attr: ATTR }.to_bytes());
    reply("created", Created { attr: ATTR, made: true }.to_bytes());
    reply("target", Target { target: Bytes(b"../x") }.to_bytes());
    let renamed = Renamed { moved: Some(inode), exchanged: None };
    reply("renamed", renamed.to_bytes());
    reply("value", Value { value: Bytes(b"v") }.to_bytes());
    let listing = Listing { parent, end: true, entries: List::new(1, &entries) };
    reply("listing", listing.to_bytes());
    let verdict = Verdict::Yes;
    let entry =
        FoundEntry { inode, kind: FileKind::File, name: name("f"), verdict, attr: Some(ATTR) };
    let entry = entry.to_bytes();
    let found = Found { cookie: 86, end: false, search: true, entries: List::new(1, &entry) };
    reply("found", found.to_bytes());
    reply("written", Written { file_offset: 3, written_bytes: 4 }.to_bytes());
    reply("list_read", ListRead { size_bytes: 1 << 45 }.to_bytes());
    reply("sought", Sought { file_offset: 1 << 44 }.to_bytes());
    reply("glimpsed", Glimpsed { contents: CONTENTS }.to_bytes());
    reply("space", {
        let (total_bytes, free_bytes, available_bytes) = (9, 8, 7);
        let (inode_count, inode_free_count) = (6, 5);
        let (free, available) = (free_bytes, available_bytes);
        Space {
            total_bytes,
            free_bytes: free,
            available_bytes: available,
            inode_count,
            inode_free_count,
            lane_count: 4,
        }
        .to_bytes()
    });
    reply("inspected", Inspected { end: true, bytes: Bytes(b"output") }.to_bytes());
    reply("lock_set", LockSet { granted: true, place: 82 }.to_bytes());
    let range = ByteRange::new(4, 5).unwrap();
    let row = LockRow { lock: LockType::Write, range, pid: 83 };
    reply("lock_found", LockFound { found: Some(row) }.to_bytes());
    reply("lock_cancelled", LockCancelled { waited: true }.to_bytes());
    reply("lease", lease().to_bytes());
    reply("new_files", new_files().to_bytes());
    reply("named_inodes", named().to_bytes());
    reply("recall", recall(&recalled()));
    let recall_nos = [RecallNo(92), RecallNo(93)].map(|no| no.to_bytes()).concat();
    let recall_nos = List::new(2, &recall_nos);
    let written = [InodeNo(95), InodeNo(96)].map(|inode| inode.to_bytes()).concat();
    let written = List::new(2, &written);
    let ack = RecallAck { recall_nos, dropped_until: LeaseNo(94), written };
    reply("recall_ack", ack.to_bytes());
    reply("grant", Grant { inode, wait_id: 84, status: Status::Deadlock }.to_bytes());
    reply("stats", {
        Stats {
            request_count: 1,
            change_count: 2,
            batch_count: 3,
            deferred_count: 4,
            from_slot_count: 5,
            turn_count: 6,
            read_bytes: 7,
            written_bytes: 8,
            conn_count: 9,
            protocol_error_count: 10,
            inode_count: 11,
            cpu_ns: 12,
            voluntary_switch_count: 13,
            involuntary_switch_count: 14,
            syscall_count: 15,
            clock_read_count: 16,
            message_out_count: 17,
            send_count: 18,
            spin_count: 19,
            spin_hit_count: 20,
            turn_ns_max: 37,
            reply_gating: ReplyGatingCounts {
                deferred_own_count: 21,
                deferred_foreign_count: 22,
                deferred_strict_count: 23,
                deferred_self_count: 24,
                released_count: 25,
                token_count: 26,
                commit_notification_count: 27,
            },
            recovery: RecoveryCounts {
                known_count: 28,
                returned_count: 29,
                evicted_count: 30,
                replayed_count: 31,
                already_durable_count: 32,
                rejected_count: 33,
                forged_count: 34,
                lost_durable_count: 35,
                recovery_ms: 36,
            },
            objects: ObjectCounts {
                handed_count: 38,
                thread_count: 39,
                under_way_max: 40,
                under_way_one_max: 41,
                damage_count: 42,
            },
            peers: PeerCounts {
                sent_count: 43,
                resent_count: 44,
                repeated_count: 45,
                refused_count: 46,
            },
            leases: LeaseCounts {
                held_count: 47,
                granted_count: 48,
                recalled_count: 49,
                expired_count: 50,
                refused_hot_count: 51,
                refused_share_count: 52,
                wait_count: 53,
                ping_count: 54,
            },
        }
        .to_bytes()
    });
    let row = ExportRow { export: export(), stored: true }.to_bytes();
    reply("frozen", Frozen { held_on: true, change_count: 91 }.to_bytes());
    reply("exports", Exports { rows: List::new(1, &row) }.to_bytes());
    all
}

fn lease() -> LeaseGrant {
    let granted = lease_flag::ATTRIBUTES | lease_flag::NAME;
    LeaseGrant { lease_no: LeaseNo(0x1_0000_005f), term_ms: 10_000, granted, further_count: 2 }
}

const fn named() -> NamedInodes {
    NamedInodes([Some(InodeNo(0x1_0000_0007)), None])
}

fn new_files() -> NewFiles {
    NewFiles { first: InodeNo(0x1_0000_0001), count: 1024, layout: Layout::DEFAULT }
}

/// Keys of every kind.
fn recalled() -> Vec<u8> {
    let keys = [
        LeaseKey::Attributes(InodeNo(258)),
        LeaseKey::Name(InodeNo::ROOT, name("a")),
        LeaseKey::Contents(InodeNo(259)),
        LeaseKey::All,
        LeaseKey::Pages(InodeNo(260)),
    ];
    keys.map(|key| key.to_bytes()).concat()
}

fn recall(keys: &[u8]) -> Vec<u8> {
    let keys = List::new(5, keys);
    Recall { recall_no: RecallNo(96), lease_no_max: LeaseNo(97), keys }.to_bytes()
}

fn pieces() -> Pieces {
    let first = Piece { file_offset: 1 << 46, piece_bytes: 4096 };
    Pieces::new(vec![first, Piece { file_offset: 7, piece_bytes: 9 }]).unwrap()
}

fn export() -> Export<'static> {
    Export {
        id: 0x0102_0304_0506_0708,
        name: Bytes(b"home"),
        root: InodeNo(258),
        path: Bytes(b"/a/b"),
        read_only: true,
        squash: Squash { ids: SquashedIds::All, anon_uid: 1000, anon_gid: 100 },
        closed: false,
    }
}

fn request_head() -> Request {
    Request {
        op: Op::Getattr,
        lane_hint: LaneId(1),
        shard: ShardId::data(5),
        slot: 2,
        flags: request_flag::RESENT,
        session: SessionId(0x1122_3344_5566_7788),
        xid: Xid(1000),
        ack_xid: Xid(990),
        sack: 0b101,
        conn_epoch: 3,
        layout: Some(Layout::DEFAULT),
        transno: Transno(0),
        trace_id: 42,
        map_epoch: MapEpoch(9),
    }
}

fn reply_head() -> Reply {
    Reply {
        op: Op::Getattr,
        lane_hint: LaneId(0),
        shard: ShardId::meta(0),
        slot: 2,
        flags: reply_flag::GATED,
        session: SessionId(0x1122_3344_5566_7788),
        xid: Xid(1000),
        transno: Transno(0x1_0000_0002),
        committed: Transno(0x1_0000_0001),
        status: Status::NeedGroups,
        credits: 80,
        retry_after_ms: 5,
        boot_id: 7,
        trace_id: 42,
        op_time_ns: 1_700_000_000_000_000_002,
    }
}

/// Every kind of frame, whole.
fn frames() -> BTreeMap<String, Vec<u8>> {
    let secret = Secret::new([9; 32]);
    let hello = Hello {
        server_lane: LaneId(1),
        client: ClientUuid([1; 16]),
        client_lane: LaneId(2),
        conn_epoch: 3,
        nonce: [4; 32],
        host_id: [5; 16],
        host_boot_id: [6; 16],
        boot_id_last: 7,
        predecessor: ClientUuid([8; 16]),
        export: Bytes(b"up"),
        credential: Credential::Export,
        purpose: Purpose::Use,
        key_id: secret.of_export(b"up", 1).key_id(&[4; 32]),
        host_name: Bytes(b"host"),
        job: Bytes(b"job"),
    };
    let hello_bytes = hello.to_bytes();
    let proven = Proven { hello: &hello_bytes, nonce: &[8; 32], channel: &[0xa; 32] };
    let (server_proof, client_proof) = (secret.server_proof(proven), secret.client_proof(proven));
    let welcome = Welcome {
        session: SessionId(0x8b1e_c69e_f01c_66a1),
        boot_id: 7,
        map: Map::single_server(2, ShardCounts { meta: 64, data: 64 }, Term(9)),
        server: ServerId::FIRST,
        lane: LaneId(1),
        slot_count: 16,
        credits: 80,
        flags: welcome_flag::HANDLES_UNKNOWN,
        recovery_ms: 10_000,
        root: InodeNo(259),
    };
    let challenge = Challenge { fs: FsUuid([3; 16]), nonce: [8; 32], proof: server_proof };
    let getattr = Getattr { inode: InodeNo(258) }.to_bytes();
    let mut all = BTreeMap::new();
    let mut frame = |what: &str, head: Header, bulk, body: &[u8]| {
        let mut bytes = Vec::new();
        head.encode(&mut bytes, bulk, |to| to.put(body));
        Header::put_sums(&mut bytes, None);
        all.insert(format!("frame {what}"), bytes);
    };
    frame("hello", Header::Handshake(FrameKind::Hello), None, &hello.to_bytes());
    frame("challenge", Header::Handshake(FrameKind::Challenge), None, &challenge.to_bytes());
    let proof = Proof { proof: client_proof };
    frame("proof", Header::Handshake(FrameKind::Proof), None, &proof.to_bytes());
    let certified = Secret::certified().on(proven.channel);
    let proof = Proof { proof: certified.client_proof(proven) };
    frame("proof of a certificate", Header::Handshake(FrameKind::Proof), None, &proof.to_bytes());
    frame("welcome", Header::Handshake(FrameKind::Welcome), None, &welcome.to_bytes());
    let row = CommitRow { shard: ShardId::meta(3), committed: Transno(0x1_0000_0003) }.to_bytes();
    frame(
        "note",
        Header::CommitNotification,
        None,
        &CommitNotification { rows: List::new(1, &row) }.to_bytes(),
    );
    let status = Status::Ok;
    let grant = Grant { inode: InodeNo(258), wait_id: 85, status };
    frame("grant", Header::Grant, None, &grant.to_bytes());
    frame("recall", Header::Recall, None, &recall(&recalled()));
    let (recall_nos, written) = (List::new(0, &[]), List::new(0, &[]));
    let ack = RecallAck { recall_nos, dropped_until: LeaseNo(98), written };
    frame("recall ack", Header::RecallAck, None, &ack.to_bytes());
    let acks = LaneAcks { client_lane: LaneId(1), ack_xid: Xid(99), sack: 5 }.to_bytes();
    let received = Received { shard: ShardId::meta(3), lanes: List::new(1, &acks) };
    frame("received", Header::Received, None, &received.to_bytes());
    let [from, to] = [(2, 1), (1, 0)]
        .map(|(server, lane)| PeerLane { server: ServerId(server), lane: LaneId(lane) });
    let hello = PeerHello { fs: FsUuid([1; 16]), from, boot_id: 7, to, nonce: [2; 32] };
    frame("peer hello", Header::Handshake(FrameKind::PeerHello), None, &hello.to_bytes());
    let challenge = PeerChallenge { boot_id: 8, nonce: [3; 32], proof: [4; 32] };
    let head = Header::Handshake(FrameKind::PeerChallenge);
    frame("peer challenge", head, None, &challenge.to_bytes());
    let proof = PeerProof { proof: [5; 32] };
    frame("peer proof", Header::Handshake(FrameKind::PeerProof), None, &proof.to_bytes());
    frame("peer message", Header::PeerMessage, None, b"message");
    let map = Map::single_server(2, ShardCounts { meta: 3, data: 4 }, Term(5));
    frame("map note", Header::MapNote, None, &map.to_bytes());
    let attr = Entry { attr: ATTR }.to_bytes();
    let (lease, further) = (Some(lease()), &[&attr[..], &attr[..]].concat());
    let token = Some(&b"token"[..]);
    let parts = ReplyParts { lease, further, token, ..ReplyParts::plain(&attr) };
    let leased = Reply { flags: parts.flags(), status: Status::Ok, ..reply_head() };
    let mut body = Vec::new();
    parts.put(&mut Writer::new(&mut body));
    frame("reply with a lease and a token", Header::Reply(leased), None, &body);
    let lease = lease.map(|lease| LeaseGrant { granted: lease_flag::NEW_FILES, ..lease });
    let parts = ReplyParts { lease, new_files: Some(new_files()), ..parts };
    let mut body = Vec::new();
    parts.put(&mut Writer::new(&mut body));
    frame("reply with new files", Header::Reply(leased), None, &body);
    let lease = lease.map(|lease| LeaseGrant { granted: lease_flag::NAMED_INODES, ..lease });
    let parts = ReplyParts { lease, new_files: None, named: Some(named()), ..parts };
    let mut body = Vec::new();
    parts.put(&mut Writer::new(&mut body));
    frame("reply with named inodes", Header::Reply(leased), None, &body);
    let replay = Replay { reply: Bytes(b"reply"), token: Bytes(b"token") };
    let replayed = Request { flags: request_flag::REPLAY, ..request_head() };
    frame("replay", Header::Request(replayed), None, &replay.to_bytes());
    let refusal = Refusal { reason: RefusalReason::WrongSecret };
    frame("refusal", Header::Handshake(FrameKind::Refusal), None, &refusal.to_bytes());
    let refusal = Refusal { reason: RefusalReason::NotCertified };
    let head = Header::Handshake(FrameKind::Refusal);
    frame("refusal of a certificate", head, None, &refusal.to_bytes());
    frame("request", Header::Request(request_head()), None, &getattr);
    let bulk = Some((9, Some(crc32c(b"123456789"))));
    frame("request with bulk", Header::Request(request_head()), bulk, &getattr);
    frame("reply", Header::Reply(reply_head()), None, &Entry { attr: ATTR }.to_bytes());
    let read_reply = Reply { op: Op::Read, ..reply_head() };
    frame("reply with bulk", Header::Reply(read_reply), bulk, &[]);
    frame("reply with unchecked bulk", Header::Reply(read_reply), Some((9, None)), &[]);
    all
}

#[test]
fn every_frame_and_message_keeps_its_bytes() {
    let mut found = bodies();
    found.append(&mut frames());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");
    if std::env::var_os("LANEFS_GOLDEN_WRITE").is_some() {
        let lines: String =
            found.iter().map(|(k, v)| format!("{k}: {}\n", hex::encode(v))).collect();
        std::fs::write(path, lines).unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let golden: BTreeMap<&str, Vec<u8>> = text
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, bytes)| (name, hex::decode(bytes).unwrap()))
        .collect();
    for (name, bytes) in &found {
        let expected =
            golden.get(name.as_str()).unwrap_or_else(|| panic!("no golden bytes: {name}"));
        assert_eq!(hex::encode(bytes), hex::encode(expected), "the encoding of {name} changed");
    }
    assert_eq!(golden.len(), found.len(), "golden.txt has lines for things that do not exist");
}

#[test]
fn frames_decode_to_what_was_encoded() {
    let frames = frames();
    let request = Header::decode(&frames["frame request with bulk"]).unwrap();
    assert_eq!(request.0, Header::Request(request_head()));
    let lengths = Lengths::peek(frames["frame request with bulk"].first_chunk().unwrap()).unwrap();
    assert_eq!((lengths.bulk_bytes, lengths.bulk_crc32c), (9, Some(0xe306_9283)));
    assert_eq!(Header::decode(&frames["frame reply"]).unwrap().0, Header::Reply(reply_head()));
    let time_ns = |what: &str| Header::reply_time_ns(&frames[what]);
    assert_eq!(time_ns("frame reply"), Some(reply_head().op_time_ns));
    assert_eq!((time_ns("frame request"), time_ns("frame hello")), (None, None));
    assert_eq!(Header::reply_time_ns(&frames["frame reply"][..HEADER_BYTES - 1]), None);
    let hello = Header::decode(&frames["frame hello"]).unwrap();
    assert_eq!(hello.0, Header::Handshake(FrameKind::Hello));
    assert_eq!(Hello::decode_all(hello.1).unwrap().to_bytes(), hello.1);
}

#[test]
fn only_a_reply_with_bulk_may_be_unchecked() {
    const FLAGS_OFFSET: usize = 30;
    let flag = reply_flag::BULK_UNCHECKED;
    let frames = frames();
    let head = |what: &str| -> [u8; HEADER_BYTES] { *frames[what].first_chunk().unwrap() };
    let found = Lengths::peek(&head("frame reply with unchecked bulk")).unwrap();
    assert_eq!((found.bulk_bytes, found.bulk_crc32c), (9, None));
    let (decoded, _) = Header::decode(&frames["frame reply with unchecked bulk"]).unwrap();
    let Header::Reply(reply) = decoded else { panic!("a reply") };
    assert_eq!(reply.flags, reply_head().flags | flag);
    let mut again = Vec::new();
    decoded.encode(&mut again, Some((9, Some(7))), |_| {});
    let found = Lengths::peek(again.first_chunk().unwrap()).unwrap();
    assert_eq!(found.bulk_crc32c, Some(7), "the flag follows the bulk that is there");
    let mut summed = frames["frame reply with unchecked bulk"].clone();
    Header::put_sums(&mut summed, Some(crc32c(b"123456789")));
    assert_eq!(summed, frames["frame reply with bulk"], "the sender may set the sum");
    for what in [
        "frame hello",
        "frame request",
        "frame request with bulk",
        "frame reply",
        "frame reply with bulk",
    ] {
        let mut head = head(what);
        assert!(Lengths::peek(&head).is_ok());
        head[FLAGS_OFFSET] |= u8::try_from(flag).unwrap();
        assert_eq!(Lengths::peek(&head), Err(ProtocolError::Malformed), "{what}");
    }
}

/// Decodes `body` as the message of the golden line `what`, and encodes it again.
fn again(what: &str, body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    macro_rules! dispatch {
        ($($line:literal => $message:ident,)*) => {
            match what {
                $($line => $message::decode_all(body).map(|message| message.to_bytes()),)*
                _ => Ok(body.to_vec()),
            }
        };
    }
    dispatch! {
        "request read_list" => ReadList, "request write_list" => WriteList,
        "reply list_read" => ListRead,
        "request lookup" => Lookup, "request getattr" => Getattr, "request setattr" => Setattr,
        "request create" => Create, "request mkdir" => Mkdir, "request symlink" => Symlink,
        "request mknod" => Mknod,
        "request tmpfile" => Tmpfile,
        "request link" => Link, "request unlink" => Unlink, "request rmdir" => Rmdir,
        "request rename" => Rename, "request readlink" => Readlink,
        "request readdir" => Readdir, "request find" => Find, "reply found" => Found,
        "request open" => Open, "request close" => Close,
        "request reopen" => Reopen, "request access" => Access,
        "request getxattr" => Getxattr, "request setxattr" => Setxattr,
        "request listxattr" => Listxattr, "request removexattr" => Removexattr,
        "request statfs" => Statfs, "request read" => Read, "request write" => Write,
        "request truncate" => Truncate, "request glimpse" => Glimpse, "request reserve" => Reserve,
        "request widen" => Widen, "request sync narrow" => SyncNarrow,
        "request allocate" => Allocate, "request seek" => Seek, "reply sought" => Sought,
        "reply entry" => Entry, "reply created" => Created, "reply target" => Target,
        "reply renamed" => Renamed, "reply value" => Value, "reply listing" => Listing, "reply written" => Written,
        "reply glimpsed" => Glimpsed, "reply space" => Space, "reply stats" => Stats,
        "request set_export" => SetExport, "reply exports" => Exports,
        "request freeze" => Freeze, "reply frozen" => Frozen,
        "request inspect" => Inspect, "request inspect check" => Inspect,
        "request inspect dump" => Inspect, "request inspect backup" => Inspect,
        "request inspect held" => Inspect, "reply inspected" => Inspected,
        "request set_lock" => SetLock, "request get_lock" => GetLock,
        "request cancel_lock" => CancelLock, "request relock" => Relock,
        "reply lock_set" => LockSet, "reply lock_found" => LockFound,
        "reply lock_cancelled" => LockCancelled, "reply grant" => Grant,
        "reply lease" => LeaseGrant, "reply new_files" => NewFiles,
        "reply named_inodes" => NamedInodes, "request claim" => Claim,
        "reply recall" => Recall, "reply recall_ack" => RecallAck,
        "request resume" => Resume, "request replay_done" => ReplayDone, "reply resumed" => Resumed,
    }
}

#[test]
fn bodies_decode_and_encode_to_the_same_bytes() {
    for (what, body) in bodies() {
        assert_eq!(again(&what, &body), Ok(body.clone()), "{what}");
    }
}

#[test]
fn a_body_cut_short_or_prolonged_is_a_protocol_error() {
    for (what, body) in bodies() {
        if body.is_empty() {
            continue;
        }
        for end in 0..body.len() {
            assert!(
                matches!(again(&what, &body[..end]), Err(DecodeError::ProtocolError(_))),
                "{what} to {end}"
            );
        }
        let longer = [&body[..], &[0]].concat();
        assert_eq!(
            again(&what, &longer),
            Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
            "{what}"
        );
    }
}

#[test]
fn changed_bytes_never_panic_and_what_decodes_encodes_the_same() {
    let bodies = bodies();
    let mut rng = fastrand::Rng::with_seed(0x1a2b_3c4d);
    for _ in 0..2_000 {
        for (what, body) in &bodies {
            let mut body = body.clone();
            for _ in 0..=rng.u64(..) % 3 {
                if !body.is_empty() {
                    let at = usize::try_from(rng.u64(..)).unwrap() % body.len();
                    body[at] = u8::try_from(rng.u64(..) & 0xff).unwrap();
                }
            }
            if let Ok(bytes) = again(what, &body) {
                assert_eq!(bytes, body, "{what}");
            }
        }
    }
}

#[test]
fn any_single_changed_byte_of_a_frame_is_noticed() {
    for (what, frame) in frames() {
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x20;
            assert_eq!(
                Header::check_sum(&changed),
                Err(ProtocolError::Checksum),
                "{what}: byte {at}"
            );
        }
        assert_eq!(Header::check_sum(&frame), Ok(()));
        assert!(Header::decode(&frame[..frame.len() - 1]).is_err());
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_memory_is_taken() {
    let frames = frames();
    let mut head: [u8; HEADER_BYTES] = *frames["frame request"].first_chunk().unwrap();
    head[8..12].copy_from_slice(&(BODY_BYTES_MAX + 1).to_le_bytes());
    assert_eq!(Lengths::peek(&head), Err(ProtocolError::TooLong));
    head[8..12].copy_from_slice(&0_u32.to_le_bytes());
    head[12..16].copy_from_slice(&(BULK_BYTES_MAX + 1).to_le_bytes());
    assert_eq!(Lengths::peek(&head), Err(ProtocolError::TooLong));
    let mut hello: [u8; HEADER_BYTES] = *frames["frame hello"].first_chunk().unwrap();
    hello[12..16].copy_from_slice(&1_u32.to_le_bytes());
    assert_eq!(Lengths::peek(&hello), Err(ProtocolError::TooLong), "a handshake carries no bulk");
    hello[0] = b'X';
    assert_eq!(Lengths::peek(&hello), Err(ProtocolError::Magic));
}

#[test]
fn proofs_hold_for_one_direction_one_nonce_one_channel_and_one_secret() {
    let secret = Secret::new([1; 32]);
    let proven = Proven { hello: b"hello", nonce: &[2; 32], channel: &[4; 32] };
    let proof = secret.client_proof(proven);
    assert!(secret.client_proven(proven, &proof));
    assert!(!secret.server_proven(proven, &proof));
    assert!(!secret.client_proven(Proven { hello: b"hellp", ..proven }, &proof));
    assert!(!secret.client_proven(Proven { nonce: &[3; 32], ..proven }, &proof));
    assert!(!secret.client_proven(Proven { channel: &PLAIN, ..proven }, &proof));
    assert!(!Secret::new([2; 32]).client_proven(proven, &proof));
    assert_eq!(format!("{secret:?}"), "Secret(..)", "a secret does not print itself");
}

#[test]
fn names_are_checked() {
    assert_eq!(Name::new(&[b'x'; 256]), Err(Status::NameTooLong));
    assert!(Name::new(&[b'x'; 255]).is_ok());
    for wrong in [&b"."[..], b"..", b"a/b", b"a\0b"] {
        assert_eq!(Name::new(wrong), Err(Status::Invalid));
    }
    assert_eq!(Name::new(b""), Err(Status::NotFound));
    let mut body = Lookup { caller: caller(), parent: InodeNo::ROOT, name: name("a") }.to_bytes();
    body.truncate(body.len() - 3);
    body.extend_from_slice(&256_u16.to_le_bytes());
    body.extend_from_slice(&[b'x'; 256]);
    assert_eq!(
        Lookup::decode_all(&body),
        Err(DecodeError::Status(Status::NameTooLong)),
        "an over-long name is the user's mistake, not a protocol error"
    );
}

#[test]
fn contents_changed_at_the_later_of_write_and_set() {
    let at = |secs| Timestamp { secs, nanos: 0 };
    let times = Times { mtime: at(10), mtime_set: at(100), ctime: at(120) };
    assert_eq!(times.after_write(None), times);
    assert_eq!(times.after_write(Some(at(99))), times, "utimes after the write stands");
    let written = Times { mtime: at(110), mtime_set: at(110), ctime: at(120) };
    assert_eq!(times.after_write(Some(at(110))), written, "a chmod at 120 hides no write");
    assert_eq!(times.after_write(Some(at(130))).ctime, at(130));
}

#[test]
fn shards_spread_over_lanes_and_numbers_are_unique() {
    let map = Map::single_server(3, ShardCounts { meta: 64, data: 64 }, Term(1));
    let mut per_shard = [0_u32; 64];
    for count in 1..=64_000 {
        let shard = map.data_shard(InodeNo::new(0, count), 0);
        assert!(map.has(shard));
        per_shard[usize::from(shard.index())] += 1;
    }
    assert!(per_shard.iter().all(|count| (800..1200).contains(count)), "{per_shard:?}");
    assert_eq!(InodeNo::ROOT.shard(), ShardId::meta(0));
    assert_eq!(InodeNo::new(63, 5).shard(), ShardId::meta(63));
    let mut numbers: Vec<u16> = Op::ALL.iter().map(|op| op.number()).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), Op::ALL.len());
    for &op in Op::ALL {
        assert_eq!(Op::from_number(op.number()), Some(op));
    }
    for &status in Status::ALL {
        assert_eq!(Status::from_number(status.number()), Some(status));
    }
}

#[test]
fn a_start_continues_above_its_term_and_all_earlier_numbers() {
    let start = |last, term| Transno::at_start(Transno(last), Term(term)).0;
    assert_eq!(start(0, 1), 1 << 32);
    assert_eq!(start(17, 1), 1 << 32);
    assert_eq!(start((3 << 32) + 17, 2), 4 << 32);
    assert_eq!(start((3 << 32) + 17, 4), 4 << 32);
    assert_eq!(start((3 << 32) + 17, 90), 90 << 32);
    assert_eq!(start(0, u32::MAX), u64::from(u32::MAX) << 32);
}
