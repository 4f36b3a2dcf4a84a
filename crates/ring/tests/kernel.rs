//! A null file system, really mounted, over both transports and on both drivers. The switch of
//! io_uring queues is machine-wide: one test sets it, and restores it.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod support;

use bench::null::{Before, FILE_BYTES, FILE_NAME, NullFs};
use interface::{
    ConnId, Core, Event, KernelAction, KernelEvent, NetAction, NetEvent, Object, Ticket, Turn,
};
use ring::{
    Config, DriverChoice, DriverKind, KernelChannel, Mesh, MountOptions, Ring, Transport, mount,
    unmount, usable_cores,
};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{Lane, noise, read_frame, start, tempdir};
use wire::{Header, InodeNo, LaneId, Lengths, Op, Request, ServerAddress, Status};

/// Of rings whose test does not choose.
const DRIVER: DriverKind = DriverKind::Epoll;
const ENGINE: ring::IoEngine = ring::IoEngine::Auto;
const DIRECT: bool = false;
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

fn contents() -> Object {
    Object { shard_index: 0, stripe_index: 0, inode: InodeNo(2) }
}

/// Restores the machine's switch, and locks out other tests that set it.
struct Switch {
    before: String,
    _lock: File,
}

impl Switch {
    /// `None`, with a log line, where it cannot be set.
    fn turn_on() -> Option<Self> {
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open("/tmp/lanefs-enable-uring.lock")
            .unwrap();
        lock.lock().unwrap();
        let before = fs::read_to_string(SWITCH).unwrap_or_default();
        if let Err(error) = fs::write(SWITCH, "Y") {
            support::skip("FUSE over io_uring", &format!("{SWITCH} cannot be set: {error}"));
            return None;
        }
        Some(Self { before, _lock: lock })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        fs::write(SWITCH, self.before.trim()).unwrap();
    }
}

/// Unmounts even if the test fails, so that no process hangs on the mount.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        unmount(self.0, true).ok();
    }
}

/// A driver and a transport.
type Way = (DriverKind, Transport);

/// Mounts with a lane per core.
fn mount_null(dir: &Path, store: &Path, (driver, transport): Way, before: Before) -> Vec<Lane> {
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = mount(dir, &options).unwrap();
    let cores = usable_cores().unwrap();
    let channels =
        KernelChannel::share(device, transport, &cores, KernelChannel::QUEUE_DEPTH).unwrap();
    let mailboxes = Mesh::mailboxes(u16::try_from(cores.len()).unwrap()).unwrap();
    let lanes = channels.into_iter().zip(mailboxes).zip(cores);
    lanes
        .map(|((channel, mailbox), core)| {
            let store = File::open(store).unwrap();
            start(mailbox, move |config| {
                ring::pin_to_core(core).unwrap();
                config.driver = DriverChoice::Only(driver);
                config.kernel = Some(channel);
                config.store = Some(store.into());
                if before == Before::Echo {
                    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                    config.server = Some(listener.local_addr().unwrap());
                    config.listener = Some(listener.into());
                }
                NullFs::new(before, transport == Transport::Uring, Some(contents()))
            })
        })
        .collect()
}

/// Replies to a WRITE at once, though its data are still being sent.
struct Forward {
    null: NullFs,
    conn: Option<ConnId>,
}

impl Core for Forward {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match (event, self.conn) {
            (
                Event::Kernel(KernelEvent::Request { slot: Some(slot), bulk: Some(bulk), .. }),
                Some(conn),
            ) => {
                let (head, sizes) =
                    (Header::Request(Request::of(Op::Write)), (bulk.bulk_bytes, None));
                let frame = turn.arena.write(|out| head.encode(out, Some(sizes), |_| {}));
                turn.act(NetAction::Send { conn, frame, bulk: Some(bulk) });
                let payload = turn.arena.put(&[bulk.bulk_bytes.to_le_bytes(), [0; 4]].concat());
                turn.act(KernelAction::Reply { slot, status: Status::Ok, payload, bulk: None });
            }
            (Event::Net(NetEvent::Connected { conn, .. }), _) => self.conn = Some(conn),
            (Event::Tick, None) => {
                turn.act(NetAction::Connect { ticket: Ticket(0), address: ServerAddress::Initial })
            }
            (event, _) => self.null.apply(turn, event),
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// Data of a WRITE that was answered early arrive unchanged, though the kernel wants to reuse their
/// memory.
fn forward((driver, transport): Way) {
    let dir = tempdir();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = mount(dir.path(), &options).unwrap();
    let mut channels = KernelChannel::share(device, transport, &[0], 1).unwrap();
    let channel = channels.pop().unwrap();
    let lane = start(support::only_mailbox(), move |config| {
        config.driver = DriverChoice::Only(driver);
        config.kernel = Some(channel);
        config.server = Some(address);
        let null = NullFs::new(Before::Nothing, transport == Transport::Uring, None);
        Forward { null, conn: None }
    });
    let mounted = Mounted(dir.path());
    let (mut peer, _) = listener.accept().unwrap();
    let path = dir.path().join(FILE_NAME);
    let writing = std::thread::spawn(move || {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        for round in 0..20 {
            file.write_all_at(&noise(round, 1 << 20), 0).unwrap();
        }
    });
    for round in 0..20 {
        // The kernel splits a write that spans more than 256 pages.
        let mut bytes = Vec::new();
        while bytes.len() < 1 << 20 {
            let frame = read_frame(&mut peer).unwrap();
            let (head, bulk) = frame.split_first_chunk().unwrap();
            assert_eq!(Header::check_sum(head), Ok(()));
            let found = Lengths::peek(head).unwrap().bulk_crc32c;
            assert_eq!(found, Some(wire::crc32c(bulk)), "the sender has summed it");
            bytes.extend_from_slice(bulk);
        }
        assert!(bytes == noise(round, 1 << 20), "write {round} arrived as it was");
    }
    writing.join().unwrap();
    unmount(dir.path(), false).unwrap();
    std::mem::forget(mounted);
    lane.thread.join().unwrap();
}

/// Reads of a retained length return the retained bytes, also over loopback.
fn keep((driver, transport): Way, before: Before) {
    const LENGTHS: [usize; 2] = [4096, 1 << 20];
    let dir = tempdir();
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = mount(dir.path(), &options).unwrap();
    let channel = KernelChannel::share(device, transport, &[0], 1).unwrap().pop().unwrap();
    let lane = std::thread::spawn(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = Config::new(LaneId(0));
        config.driver = DriverChoice::Only(driver);
        config.kernel = Some(channel);
        config.server = Some(listener.local_addr().unwrap());
        config.listener = Some(listener.into());
        let mut ring = Ring::new(config).unwrap();
        let buffers = LENGTHS.map(|length| ring.bulk_of(&noise(7, length)).unwrap());
        let null = NullFs::new(before, transport == Transport::Uring, None);
        let mut null = null.keeping(buffers.to_vec());
        while ring.turn(&mut null).unwrap() {}
        ring.counters()
    });
    let mounted = Mounted(dir.path());
    let file = File::open(dir.path().join(FILE_NAME)).unwrap();
    for length in LENGTHS {
        // Aligned to a page, or the kernel would split it for spanning more than 256 pages.
        let mut space = vec![0_u8; length + 4096];
        let start = space.as_ptr().align_offset(4096);
        let back = &mut space[start..start + length];
        file.read_exact_at(back, 8192).unwrap();
        assert!(
            back == noise(7, length),
            "{length} bytes over {transport:?} on {driver:?} after {before:?}"
        );
    }
    drop(file);
    unmount(dir.path(), false).unwrap();
    std::mem::forget(mounted);
    let received = lane.join().unwrap().in_bytes;
    let bulk_bytes: usize = LENGTHS.iter().sum();
    assert_eq!(received > bulk_bytes as u64, before == Before::Echo, "{received} bytes");
}

fn exercise(way: Way, before: Before) {
    let (dir, store) = (tempdir(), tempdir());
    let lanes = mount_null(dir.path(), store.path(), way, before);
    let mounted = Mounted(dir.path());

    let root = fs::metadata(dir.path()).unwrap();
    assert!(root.is_dir());
    let path = dir.path().join(FILE_NAME);
    assert_eq!(fs::metadata(&path).unwrap().len(), FILE_BYTES);
    let missing = fs::metadata(dir.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let long = dir.path().join("n".repeat(255));
    assert_eq!(fs::metadata(long).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for (offset, count) in [(0, 1 << 20), (5, 1), (100, 4097), (1_000_000, 300_000), (7, 65_536)] {
        let bytes = noise(offset, count);
        file.write_all_at(&bytes, offset).unwrap();
        let mut back = vec![0; count];
        file.read_exact_at(&mut back, offset).unwrap();
        assert!(back == bytes, "{count} bytes at {offset} came back");
        let stored = File::open(store.path().join("00/00/0000000000000002.0")).unwrap();
        stored.read_exact_at(&mut back, offset).unwrap();
        assert!(back == bytes, "{count} bytes at {offset} were stored");
    }
    drop(file);

    let readers: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                (0..200).for_each(|_| assert!(fs::metadata(&path).unwrap().is_file()));
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());

    // Unmounted from outside: the lanes notice it and end.
    unmount(dir.path(), false).unwrap();
    std::mem::forget(mounted);
    let requests: u64 =
        lanes.into_iter().map(|lane| lane.thread.join().unwrap().kernel_request_count).sum();
    assert!(requests > 1600, "{requests} requests were served, {way:?} after {before:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn mounting_on_a_missing_directory_fails_with_its_name() {
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let error = mount(Path::new("/nowhere/at/all"), &options).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

/// All of the above. Each combination is a test of its own.
fn works_and_ends_when_unmounted(way: Way) {
    exercise(way, Before::Nothing);
    exercise(way, Before::Echo);
    keep(way, Before::Nothing);
    keep(way, Before::Echo);
    forward(way);
}

/// The system calls and turns of two lanes for a request, where one process makes one at a time:
/// each request wakes one lane.
fn wastes_nothing(way: Way, calls_per_request: u64) {
    const STAT_COUNT: u64 = 1000;
    /// Turns of starting, of unmounting, and of messages between the lanes.
    const OTHER_COUNT: u64 = 100;
    let (dir, store) = (tempdir(), tempdir());
    let lanes = mount_null(dir.path(), store.path(), way, Before::Nothing);
    let lane_count = lanes.len();
    let mounted = Mounted(dir.path());
    let path = dir.path().join(FILE_NAME);
    (0..STAT_COUNT).for_each(|_| assert!(fs::metadata(&path).unwrap().is_file()));
    unmount(dir.path(), false).unwrap();
    std::mem::forget(mounted);
    let counters: Vec<_> = lanes.into_iter().map(|lane| lane.thread.join().unwrap()).collect();
    let sum = |count: fn(&ring::Counters) -> u64| counters.iter().map(count).sum::<u64>();
    let request_count = sum(|lane| lane.kernel_request_count);
    let turn_count = sum(|lane| lane.turn_count);
    let call_count = sum(|lane| lane.syscall_count + lane.enter_count);
    println!(
        "{way:?}: {lane_count} lanes, {request_count} requests, {turn_count} turns, {call_count} calls"
    );
    assert!(request_count >= 2 * STAT_COUNT, "LOOKUP and GETATTR: {request_count}");
    let turn_count_max = request_count + request_count / 20 + OTHER_COUNT;
    assert!(turn_count <= turn_count_max, "{turn_count} turns for {request_count} requests");
    // A second read is tried after one in 64 requests.
    let call_count_max = calls_per_request * turn_count_max + request_count / 32;
    assert!(call_count <= call_count_max, "{call_count} calls for {request_count} requests");
}

/// Whether io_uring is available; reports it if not.
fn has_io_uring(test: &str) -> bool {
    let found = DriverChoice::Only(DriverKind::IoUring).find();
    if let Err(error) = &found {
        support::skip(test, &error.to_string());
    }
    found.is_ok()
}

#[test]
fn over_dev_fuse_on_epoll_a_null_file_system_works_and_ends_when_unmounted() {
    works_and_ends_when_unmounted((DriverKind::Epoll, Transport::Classic));
}

#[test]
fn over_dev_fuse_on_io_uring_a_null_file_system_works_and_ends_when_unmounted() {
    if has_io_uring("a null file system over /dev/fuse, on io_uring") {
        works_and_ends_when_unmounted((DriverKind::IoUring, Transport::Classic));
    }
}

#[test]
fn over_dev_fuse_a_request_wakes_one_lane_and_costs_two_calls_with_io_uring_and_three_without() {
    // It waits, reads and writes.
    wastes_nothing((DriverKind::Epoll, Transport::Classic), 3);
    if has_io_uring("requests over /dev/fuse are counted on io_uring") {
        // It waits and reads with one, and writes: the caller goes on before the lane sleeps.
        wastes_nothing((DriverKind::IoUring, Transport::Classic), 2);
    }
}

#[test]
fn over_io_uring_a_null_file_system_works_and_ends_when_unmounted() {
    if !has_io_uring("a null file system over io_uring") {
        return;
    }
    if let Some(_switch) = Switch::turn_on() {
        assert_eq!(Transport::best(DriverKind::IoUring), Transport::Uring);
        assert_eq!(Transport::best(DriverKind::Epoll), Transport::Classic);
        works_and_ends_when_unmounted((DriverKind::IoUring, Transport::Uring));
        wastes_nothing((DriverKind::IoUring, Transport::Uring), 1);
    }
}

#[test]
fn io_uring_queues_are_refused_on_epoll() {
    let dir = tempdir();
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = mount(dir.path(), &options).unwrap();
    let _mounted = Mounted(dir.path());
    let channels = KernelChannel::share(device, Transport::Uring, &[0], 1).unwrap();
    let mut config = support::ring_config(LaneId(0));
    config.kernel = channels.into_iter().next();
    let Err(error) = Ring::new(config) else { panic!("no queues without io_uring") };
    assert!(error.to_string().contains("--fuse classic"), "{error}");
}
