//! Large bulk: replies sent from the page cache, requests received in few calls.

use super::support::{
    GIVE_UP_AFTER, echo_server, frame, hello, is_tmpfs, noise, only_mailbox, read_frame,
    ring_config, tempdir, tempdir_in_memory,
};
use interface::{
    Action, CloseReason, ConnId, Core, Errno, Event, NetAction, NetEvent, Object, ObjectAction,
    ObjectEvent, Ticket, Turn,
};
use ring::{Config, Counters, Ring, Stopper};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tempfile::TempDir;
use wire::{
    HEADER_BYTES, Header, InodeNo, LaneId, Lengths, Op, Reply, Request, SessionId, ShardId, Status,
    Transno, Wire, Writer, Xid, reply_flag,
};

const MIB: usize = 1 << 20;

// --- a server that reads objects -----------------------------------------------------------------

/// Executes reads, truncations and removals (requested by a Glimpse). Replies are numbered in the
/// order in which they are sent, in `transno`.
struct ObjectServer {
    pending: HashMap<u64, (ConnId, Xid, Op)>,
    ticket_count: u64,
    reply_count: u64,
    /// Close a connection after its first reply to a read.
    closes: bool,
    /// Stop after the first reply to a read.
    stops: bool,
    ended: Sender<Event>,
}

fn object(inode: InodeNo) -> Object {
    Object { shard_index: 3, stripe_index: 1, inode }
}

impl ObjectServer {
    fn on_request(&mut self, turn: &mut Turn<'_>, conn: ConnId, request: &Request, body: &[u8]) {
        self.ticket_count += 1;
        let ticket = Ticket(self.ticket_count);
        self.pending.insert(ticket.0, (conn, request.xid, request.op));
        match request.op {
            Op::Read => {
                let read = wire::Read::decode_all(body).unwrap();
                if read.read_bytes == 0 {
                    self.reply(turn, ticket, None);
                    return;
                }
                turn.act(ObjectAction::Read {
                    ticket,
                    object: object(read.inode),
                    object_offset: read.file_offset,
                    read_bytes: read.read_bytes,
                    only_cached: false,
                });
            }
            Op::Truncate => {
                let wire::Truncate { inode, size_bytes } =
                    wire::Truncate::decode_all(body).unwrap();
                turn.act(ObjectAction::Truncate { ticket, object: object(inode), size_bytes });
            }
            Op::Glimpse => {
                let inode = wire::Glimpse::decode_all(body).unwrap().inode;
                turn.act(ObjectAction::Remove { ticket, object: object(inode) });
            }
            other => panic!("{other:?}"),
        }
    }

    fn reply(&mut self, turn: &mut Turn<'_>, ticket: Ticket, bulk: Option<interface::Bulk>) {
        let (conn, xid, op) = self.pending.remove(&ticket.0).unwrap();
        self.reply_count += 1;
        let head = Header::Reply(Reply {
            op,
            lane_hint: LaneId(0),
            shard: ShardId::data(0),
            slot: 0,
            flags: 0,
            session: SessionId(1),
            xid,
            transno: Transno(self.reply_count),
            committed: Transno(0),
            status: Status::Ok,
            credits: 1,
            retry_after_ms: 0,
            boot_id: 1,
            trace_id: 0,
            op_time_ns: 0,
        });
        let sizes = bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        let frame = turn.arena.write(|out| head.encode(out, sizes, |_| {}));
        turn.act(NetAction::Send { conn, frame, bulk });
        if let Some(bulk) = bulk {
            turn.act(Action::Release { buf: bulk.buf });
        }
        if op == Op::Read && self.closes {
            turn.act(NetAction::Close { conn });
        }
        if op == Op::Read && self.stops {
            turn.act(Action::Stopped);
        }
    }
}

impl Core for ObjectServer {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                let bytes = turn.arena.get(frame).to_vec();
                match Header::decode(&bytes).unwrap() {
                    (Header::Request(request), body) => self.on_request(turn, conn, &request, body),
                    (_, _) => {
                        turn.act(NetAction::admit(conn));
                        turn.act(NetAction::Send { conn, frame, bulk: None });
                    }
                }
            }
            Event::Object(ObjectEvent::Read { ticket, result }) => {
                self.reply(turn, ticket, result.unwrap())
            }
            Event::Object(ObjectEvent::Done { ticket, result: Ok(()) }) => {
                self.reply(turn, ticket, None)
            }
            Event::Net(NetEvent::Closed { .. }) => {
                // Not every test receives these events.
                self.ended.send(event).ok();
            }
            Event::Stop => turn.act(Action::Stopped),
            Event::Tick | Event::Net(NetEvent::FromThisHost { .. } | NetEvent::SentLate { .. }) => {
            }
            other => panic!("{other:?}"),
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// An object server on a thread, and the directory of its objects.
struct Server {
    dir: TempDir,
    address: SocketAddr,
    ended: Receiver<Event>,
    stopper: Stopper,
    /// Its counters, and the bytes of buffers in use when it ended.
    thread: JoinHandle<(Counters, usize)>,
}

impl Server {
    fn start(tune: impl FnOnce(&mut Config, &mut ObjectServer) + Send + 'static) -> Self {
        Self::start_in(tempdir_in_memory(), tune)
    }

    fn start_in(
        dir: TempDir,
        tune: impl FnOnce(&mut Config, &mut ObjectServer) + Send + 'static,
    ) -> Self {
        let store = File::open(dir.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mailbox = only_mailbox();
        let stopper = mailbox.stopper();
        let (sender, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut config = ring_config(LaneId(0));
            config.mailbox = Some(mailbox);
            config.listener = Some(listener.into());
            config.store = Some(store.into());
            let mut library = ObjectServer {
                pending: HashMap::new(),
                ticket_count: 0,
                reply_count: 0,
                closes: false,
                stops: false,
                ended: sender,
            };
            tune(&mut config, &mut library);
            let mut ring = Ring::new(config).unwrap();
            while ring.turn(&mut library).unwrap() {}
            (ring.counters(), ring.buffer_bytes())
        });
        Self { dir, address, ended, stopper, thread }
    }

    fn path(&self, inode: u64) -> PathBuf {
        self.dir.path().join(format!("03/00/{inode:016x}.1"))
    }

    /// Makes an object, in the page cache.
    fn put(&self, inode: u64, bytes: &[u8]) {
        let path = self.path(inode);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Open descriptors of an object's file in this process, also of a removed one.
    fn open_count(&self, inode: u64) -> usize {
        let path = self.path(inode);
        let path = path.to_str().unwrap();
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        links.filter(|target| target.to_string_lossy().starts_with(path)).count()
    }

    /// No buffer is in use at the end.
    fn stop(self) -> Counters {
        self.stopper.stop();
        let (counters, buffer_bytes) = self.thread.join().unwrap();
        assert_eq!(buffer_bytes, 0, "every buffer was released");
        assert_eq!(counters.protocol_error_count, 0);
        counters
    }
}

// --- its clients ---------------------------------------------------------------------------------

fn connect(mut stream: TcpStream) -> TcpStream {
    stream.write_all(&hello(b"hi")).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
    stream
}

fn client(server: &Server) -> TcpStream {
    connect(TcpStream::connect(server.address).unwrap())
}

/// Its socket has small buffers.
fn small_buffer_client(server: &Server) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 32 * 1024).unwrap();
    rustix::net::connect(&socket, &server.address).unwrap();
    connect(TcpStream::from(socket))
}

fn request(op: Op, xid: u64, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let (session, shard) = (SessionId(1), ShardId::data(0));
    let plain = Request::of(op);
    let head = Header::Request(Request { session, shard, xid: Xid(xid), conn_epoch: 1, ..plain });
    let mut out = Vec::new();
    head.encode(&mut out, None, body);
    Header::put_sums(&mut out, None);
    out
}

fn read_request(xid: u64, inode: u64, file_offset: usize, read_bytes: usize) -> Vec<u8> {
    let read = wire::Read {
        inode: InodeNo(inode),
        file_offset: file_offset as u64,
        read_bytes: u32::try_from(read_bytes).unwrap(),
        accesses: true,
    };
    request(Op::Read, xid, |to| read.encode(to))
}

struct ReceivedReply {
    reply: Reply,
    bulk: Vec<u8>,
}

impl ReceivedReply {
    fn unchecked(&self) -> bool {
        self.reply.flags & reply_flag::BULK_UNCHECKED != 0
    }
}

/// A reply; if it has a bulk checksum, it is verified.
fn received_reply(bytes: &[u8]) -> ReceivedReply {
    let lengths = Lengths::peek(bytes.first_chunk::<HEADER_BYTES>().unwrap()).unwrap();
    let (frame, bulk) = bytes.split_at(lengths.frame_bytes);
    let Header::Reply(reply) = Header::decode(frame).unwrap().0 else { panic!("a reply") };
    if let Some(crc32c) = lengths.bulk_crc32c.filter(|_| !bulk.is_empty()) {
        assert_eq!(wire::crc32c(bulk), crc32c);
    }
    ReceivedReply { reply, bulk: bulk.to_vec() }
}

fn ask(stream: &mut TcpStream, request: &[u8]) -> ReceivedReply {
    stream.write_all(request).unwrap();
    received_reply(&read_frame(stream).unwrap())
}

// --- tests ---------------------------------------------------------------------------------------

#[test]
fn reads_of_every_size_and_offset_return_the_files_bytes() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, 2 * MIB + 100_000);
    server.put(1, &bytes);
    let mut stream = client(&server);
    let mut lent_bytes = 0;
    for read_bytes in [1, 4096, 65_535, 65_536, 65_537, 131_073, MIB - 1, MIB] {
        for offset in [0, 1, 4095, 65_536, 777_777, 2 * MIB, bytes.len() - 65_536, bytes.len() - 5]
        {
            let found = ask(&mut stream, &read_request(1, 1, offset, read_bytes));
            let end = bytes.len().min(offset + read_bytes);
            assert!(found.bulk == bytes[offset..end], "{read_bytes} bytes at {offset}");
            assert_eq!(found.unchecked(), end - offset >= 65_536, "{read_bytes} at {offset}");
            lent_bytes += if found.unchecked() { (end - offset) as u64 } else { 0 };
        }
    }
    for offset in [bytes.len(), bytes.len() + 1, 1 << 40] {
        let found = ask(&mut stream, &read_request(1, 1, offset, MIB));
        assert!(found.bulk.is_empty() && !found.unchecked());
    }
    assert!(ask(&mut stream, &read_request(1, 2, 0, MIB)).bulk.is_empty(), "there is no such one");
    let counters = server.stop();
    assert_eq!(counters.sendfile_bytes, lent_bytes);
    assert!(counters.sendfile_bytes < counters.out_bytes);
}

/// Mapped pages of a file, to check whether they are in the page cache, and to lock them there.
struct Pages {
    at: *mut libc::c_void,
    file_bytes: usize,
}

impl Pages {
    fn of(file: &File, file_bytes: usize) -> Self {
        let (prot, null) = (libc::PROT_READ, std::ptr::null_mut());
        let flags = libc::MAP_SHARED;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(null, file_bytes, prot, flags, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { at, file_bytes }
    }

    /// How many are in the page cache.
    fn count(&self) -> usize {
        let mut pages = vec![0_u8; self.file_bytes.div_ceil(4096)];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let result = unsafe { libc::mincore(self.at, self.file_bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    /// Loads all of them into the page cache and locks them for the life of this value.
    fn lock(&self) {
        // SAFETY: the range is mapped.
        let locked = unsafe { libc::mlock(self.at, self.file_bytes) };
        assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: there are no references into the mapping.
        unsafe { libc::munmap(self.at, self.file_bytes) };
    }
}

#[test]
fn holes_read_as_zeros_from_the_page_cache_and_from_disk() {
    // Not on tmpfs: its holes are never in the page cache.
    let server = Server::start_in(tempdir(), |_, _| {});
    server.put(1, &[]);
    let file = File::options().read(true).write(true).open(server.path(1)).unwrap();
    file.set_len(4 * MIB as u64).unwrap();
    file.write_all_at(&noise(1, 10_000), 500_000).unwrap();
    let expected = fs::read(server.path(1)).unwrap();
    assert_eq!(expected[500_000..510_000], noise(1, 10_000));
    let mut stream = client(&server);
    let pages = Pages::of(&file, 4 * MIB);
    for locked in [false, true] {
        if locked {
            pages.lock();
        }
        let known_count = pages.count();
        for offset in (0..4 * MIB).step_by(MIB) {
            let found = ask(&mut stream, &read_request(1, 1, offset, MIB));
            assert!(found.bulk == expected[offset..offset + MIB], "at {offset}");
            assert!(found.unchecked() || !locked, "{known_count} pages were there");
        }
    }
    let counters = server.stop();
    assert!(counters.sendfile_bytes >= 4 * MIB as u64, "{counters:?}");
}

/// Waits until no page of a file is in the page cache; `false` on tmpfs.
fn evict(file: &File, pages: &Pages) -> bool {
    let given_up = Instant::now() + GIVE_UP_AFTER;
    while !is_tmpfs(file) {
        file.sync_all().unwrap();
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let resident_count = pages.count();
        if resident_count == 0 {
            return true;
        }
        // A concurrent sync may hold a page for a moment.
        assert!(Instant::now() < given_up, "{resident_count} pages stay");
    }
    false
}

#[test]
fn a_read_outside_the_page_cache_goes_to_memory_and_has_a_checksum() {
    let server = Server::start_in(tempdir(), |_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut stream = client(&server);
    let file = File::open(server.path(1)).unwrap();
    let pages = Pages::of(&file, MIB);
    let is_evicted = evict(&file, &pages);
    let found = ask(&mut stream, &read_request(1, 1, 0, MIB));
    assert!(found.bulk == bytes);
    if is_evicted {
        assert!(!found.unchecked(), "it was evicted");
    } else {
        println!("a file in memory cannot be evicted");
    }
    pages.lock();
    let found = ask(&mut stream, &read_request(2, 1, 0, MIB));
    assert!(found.bulk == bytes);
    assert!(found.unchecked(), "now it is there");
    server.stop();
}

#[test]
fn with_checksum_reads_every_bulk_has_a_checksum() {
    let server = Server::start(|config, _| config.checksum_reads = true);
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut stream = client(&server);
    for read_bytes in [1, 65_536, MIB] {
        let found = ask(&mut stream, &read_request(1, 1, 0, read_bytes));
        assert!(!found.unchecked());
        assert!(found.bulk == bytes[..read_bytes]);
    }
    let counters = server.stop();
    assert_eq!((counters.sendfile_count, counters.sendfile_bytes), (0, 0));
}

#[test]
fn large_and_small_replies_keep_their_order() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, 3 * MIB);
    server.put(1, &bytes);
    let mut stream = client(&server);
    let place = |xid: usize| (xid * 7919 % (2 * MIB), [0, 100, 70_000, MIB, 0, 65_536][xid % 6]);
    let requests: Vec<u8> = (0..300)
        .flat_map(|xid| {
            let (offset, read_bytes) = place(xid);
            read_request(xid as u64, 1, offset, read_bytes)
        })
        .collect();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&requests).unwrap());
    for number in 1..=300 {
        let found = received_reply(&read_frame(&mut stream).unwrap());
        assert_eq!(found.reply.transno, Transno(number), "as they were sent");
        let (offset, read_bytes) = place(usize::try_from(found.reply.xid.0).unwrap());
        assert!(found.bulk == bytes[offset..offset + read_bytes], "{:?}", found.reply.xid);
    }
    writing.join().unwrap();
    let counters = server.stop();
    assert!(counters.sendfile_count >= 150, "{counters:?}");
}

/// Requests 16 MiB, more than both sockets hold, and waits until a part of the reply has come.
fn ask_for_much(stream: &mut TcpStream) {
    let requests: Vec<u8> = (0..16).flat_map(|xid| read_request(xid, 1, 0, MIB)).collect();
    stream.write_all(&requests).unwrap();
    stream.peek(&mut [0]).unwrap();
}

fn expect_much(stream: &mut TcpStream, bytes: &[u8]) {
    for number in 1..=16 {
        let found = received_reply(&read_frame(stream).unwrap());
        assert!(found.bulk == bytes, "reply {number}");
    }
}

#[test]
fn a_client_that_reads_in_small_pieces_gets_every_byte() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut stream = small_buffer_client(&server);
    ask_for_much(&mut stream);
    // Enough turns to fill both sockets.
    let mut other = client(&server);
    for xid in 0..40 {
        ask(&mut other, &read_request(xid, 1, 0, 0));
    }
    let mut rest = std::io::BufReader::with_capacity(1777, stream);
    for _ in 0..16 {
        assert!(received_reply(&read_frame(&mut rest).unwrap()).bulk == bytes);
    }
    let counters = server.stop();
    assert_eq!(counters.sendfile_bytes, 16 * MIB as u64);
    assert!(counters.sendfile_count > 16, "it waited for space, {counters:?}");
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut greedy = small_buffer_client(&server);
    ask_for_much(&mut greedy);
    let mut other = client(&server);
    for xid in 0..10 {
        assert!(ask(&mut other, &read_request(xid, 1, 0, MIB)).bulk == bytes);
    }
    expect_much(&mut greedy, &bytes);
    server.stop();
}

#[test]
fn what_a_client_reads_late_is_timed_and_reported() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut slow = small_buffer_client(&server);
    ask_for_much(&mut slow);
    // It is slow by this much; nothing waits for that.
    std::thread::sleep(std::time::Duration::from_millis(50));
    expect_much(&mut slow, &bytes);
    let mut other = client(&server);
    assert!(ask(&mut other, &read_request(1, 1, 0, 4096)).bulk == bytes[..4096]);
    let times = server.stop().send_times;
    assert!(times.counts[0] > 0, "{times:?}");
    assert!(times.counts[5..].iter().sum::<u64>() > 0, "{times:?}");
    assert!(times.sum_us >= 50_000, "{times:?}");
}

#[test]
fn a_client_with_too_many_unread_bytes_is_closed() {
    let server = Server::start(|config, _| config.limits.conn_out_bytes_max = 8 * MIB);
    server.put(1, &noise(1, MIB));
    let mut stream = small_buffer_client(&server);
    let requests: Vec<u8> = (0..64).flat_map(|xid| read_request(xid, 1, 0, MIB)).collect();
    stream.write_all(&requests).unwrap();
    let event = server.ended.recv().unwrap();
    assert!(
        matches!(event, Event::Net(NetEvent::Closed { reason: CloseReason::TooSlow, .. })),
        "{event:?}"
    );
    server.stop();
}

#[test]
fn a_truncation_does_not_change_earlier_replies() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut slow = small_buffer_client(&server);
    ask_for_much(&mut slow);
    let mut other = client(&server);
    // Its reply follows those of the earlier reads.
    ask(&mut other, &read_request(1, 1, 0, 0));
    let truncate = wire::Truncate { inode: InodeNo(1), size_bytes: 1000 };
    ask(&mut other, &request(Op::Truncate, 2, |to| truncate.encode(to)));
    assert_eq!(fs::metadata(server.path(1)).unwrap().len(), 1000);
    fs::write(server.path(1), vec![0xee; MIB]).unwrap();
    // Bytes already in the socket are the page itself; those behind it were copied.
    let mut replies = Vec::new();
    for _ in 0..16 {
        replies.push(received_reply(&read_frame(&mut slow).unwrap()).bulk);
    }
    assert!(replies[8..].iter().all(|reply| *reply == bytes));
    assert!(replies.iter().all(|reply| reply.len() == MIB));
    server.stop();
}

#[test]
fn an_external_truncation_ends_only_the_connection_with_a_pending_reply() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    server.put(2, &bytes);
    let mut slow = small_buffer_client(&server);
    ask_for_much(&mut slow);
    let mut other = client(&server);
    assert!(ask(&mut other, &read_request(1, 2, 0, MIB)).bulk == bytes);
    File::options().write(true).open(server.path(1)).unwrap().set_len(0).unwrap();
    let mut rest = Vec::new();
    // The connection may end with a reset.
    slow.read_to_end(&mut rest).ok();
    assert!(rest.len() < 16 * MIB, "no byte was made up: {}", rest.len());
    let event = server.ended.recv().unwrap();
    let reason = CloseReason::Failed(Errno(5));
    assert!(
        matches!(event, Event::Net(NetEvent::Closed { reason: found, .. }) if found == reason),
        "{event:?}"
    );
    assert!(ask(&mut other, &read_request(2, 2, 0, MIB)).bulk == bytes);
    server.stop();
}

#[test]
fn a_removed_object_is_sent_completely_and_then_closed() {
    let server = Server::start(|_, _| {});
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut slow = small_buffer_client(&server);
    ask_for_much(&mut slow);
    let mut other = client(&server);
    let closed = wire::Glimpse { inode: InodeNo(1) };
    ask(&mut other, &request(Op::Glimpse, 2, |to| closed.encode(to)));
    assert!(!server.path(1).exists());
    assert_eq!(server.open_count(1), 1, "open for the pending reply");
    expect_much(&mut slow, &bytes);
    // Small reads first and last: the turn that sent the last of the file is over.
    assert!(ask(&mut slow, &read_request(99, 1, 0, MIB)).bulk.is_empty());
    ask(&mut slow, &read_request(99, 1, 0, 0));
    assert_eq!(server.open_count(1), 0);
    server.stop();
}

#[test]
fn connections_that_break_in_a_reply_leave_no_buffers_or_descriptors() {
    let server = Server::start(|config, _| config.limits.open_object_count_max = 1);
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    server.put(2, &bytes);
    for _ in 0..20 {
        let mut stream = small_buffer_client(&server);
        ask_for_much(&mut stream);
        drop(stream);
        server.ended.recv().unwrap();
    }
    // Another object takes the only open slot, and no other descriptor of the first one exists.
    let mut other = client(&server);
    assert!(ask(&mut other, &read_request(1, 2, 0, MIB)).bulk == bytes);
    ask(&mut other, &read_request(1, 2, 0, 0));
    assert_eq!(server.open_count(1), 0);
    server.stop();
}

#[test]
fn replies_from_files_queued_before_a_close_arrive() {
    let server = Server::start(|_, library| library.closes = true);
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut stream = small_buffer_client(&server);
    stream.write_all(&read_request(1, 1, 0, MIB)).unwrap();
    assert!(received_reply(&read_frame(&mut stream).unwrap()).bulk == bytes);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    drop(stream);
    server.stop();
}

#[test]
fn stopping_sends_queued_replies_from_files() {
    let server = Server::start(|_, library| library.stops = true);
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut stream = small_buffer_client(&server);
    stream.write_all(&read_request(1, 1, 0, MIB)).unwrap();
    assert!(received_reply(&read_frame(&mut stream).unwrap()).bulk == bytes);
    server.stop();
}

#[test]
fn reads_wait_at_the_buffer_limit() {
    let server = Server::start(|config, _| config.limits.buffer_bytes_max = 4 * MIB);
    let bytes = noise(1, MIB);
    server.put(1, &bytes);
    let mut stream = small_buffer_client(&server);
    ask_for_much(&mut stream);
    expect_much(&mut stream, &bytes);
    server.stop();
}

#[test]
fn large_bulk_is_received_in_few_calls() {
    const FRAME_COUNT: u64 = 32;
    let (server, address, _) = echo_server(|_| {});
    let mut stream = connect(TcpStream::connect(address).unwrap());
    for xid in 0..FRAME_COUNT {
        let sent = frame(xid, &noise(xid, MIB));
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
        assert!(read_frame(&mut stream).unwrap() == sent);
        writing.join().unwrap();
    }
    let counters = server.stop();
    // Its header, in one piece or two; the available bytes, at most 256 KiB a call; and then the
    // rest, for which the ring waits as a whole. In addition the handshake and the last receive,
    // which waits.
    let frame_recv_count_max = 2 + MIB as u64 / (256 * 1024) + 1;
    assert!(counters.recv_count <= frame_recv_count_max * FRAME_COUNT + 2, "{counters:?}");
    assert!(counters.recv_count >= 2 * FRAME_COUNT, "{counters:?}");
}
