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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
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
    mount_lanes(dir, (driver, transport), |_| {
        let store = File::open(store).unwrap();
        move |config: &mut Config| {
            config.store = Some(store.into());
            if before == Before::Echo {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                config.server = Some(listener.local_addr().unwrap());
                config.listener = Some(listener.into());
            }
            NullFs::new(before, transport == Transport::Uring, Some(contents()))
        }
    })
}

/// Mounts with a lane per core; each is configured, and given its core, on its thread.
fn mount_lanes<B: Core, F: FnOnce(&mut Config) -> B + Send + 'static>(
    dir: &Path,
    (driver, transport): Way,
    mut lane: impl FnMut(usize) -> F,
) -> Vec<Lane> {
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = mount(dir, &options).unwrap();
    let cores = usable_cores().unwrap();
    let channels =
        KernelChannel::share(device, transport, &cores, KernelChannel::QUEUE_DEPTH).unwrap();
    let mailboxes = Mesh::mailboxes(u16::try_from(cores.len()).unwrap()).unwrap();
    let lanes = channels.into_iter().zip(mailboxes).zip(cores).enumerate();
    lanes
        .map(|(index, ((channel, mailbox), core))| {
            let lane = lane(index);
            start(mailbox, move |config| {
                ring::pin_to_core(core).unwrap();
                config.driver = DriverChoice::Only(driver);
                config.kernel = Some(channel);
                lane(config)
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
    const LENGTHS: [usize; 4] = [4096, 1 << 17, 1 << 18, 1 << 20];
    let dir = tempdir();
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = mount(dir.path(), &options).unwrap();
    let channel = KernelChannel::share(device, transport, &[0], 4).unwrap().pop().unwrap();
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
    let path = dir.path().join(FILE_NAME);
    let readers: Vec<_> = (0..2 * LENGTHS.len())
        .map(|reader| {
            let (path, length) = (path.clone(), LENGTHS[reader % LENGTHS.len()]);
            std::thread::spawn(move || {
                let file = File::open(path).unwrap();
                let mut space = vec![0_u8; length + 4096];
                let start = space.as_ptr().align_offset(4096);
                for round in 0..20 {
                    let back = &mut space[start..start + length];
                    back.fill(0);
                    file.read_exact_at(back, 0).unwrap();
                    assert!(back == noise(7, length), "{length} bytes in round {round}");
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
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
    // A second read is tried after one in 64 requests, and the caller's core looked up as often, by
    // four calls.
    let call_count_max = calls_per_request * turn_count_max + 3 * request_count / 32;
    assert!(call_count <= call_count_max, "{call_count} calls for {request_count} requests");
}

/// A null file system that counts its requests, and blocks its lane at a name.
struct Counted {
    null: NullFs,
    served: Arc<AtomicU64>,
    blocks: Arc<Mutex<Receiver<()>>>,
}

/// At a request for this name the lane blocks until the test sends.
const BLOCKING_NAME: &str = "blocking";

impl Core for Counted {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Kernel(KernelEvent::Request { request, .. }) = &event {
            self.served.fetch_add(1, Ordering::SeqCst);
            let name = BLOCKING_NAME.as_bytes();
            if turn.arena.get(*request).windows(name.len()).any(|bytes| bytes == name) {
                self.blocks.lock().unwrap().recv().unwrap();
            }
        }
        self.null.apply(turn, event);
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// A mount of such lanes: their numbers of requests, and what ends a block.
fn mount_counted(dir: &Path, way: Way) -> (Vec<Lane>, Vec<Arc<AtomicU64>>, Sender<()>) {
    let (ends, blocks) = channel();
    let blocks = Arc::new(Mutex::new(blocks));
    let mut counts = Vec::new();
    let lanes = mount_lanes(dir, way, |_| {
        let served = Arc::new(AtomicU64::new(0));
        counts.push(Arc::clone(&served));
        let blocks = Arc::clone(&blocks);
        move |_: &mut Config| {
            let null = NullFs::new(Before::Nothing, false, None);
            Counted { null, served, blocks }
        }
    });
    (lanes, counts, ends)
}

fn end_mount(mounted: Mounted<'_>, lanes: Vec<Lane>) {
    unmount(mounted.0, false).unwrap();
    std::mem::forget(mounted);
    for lane in lanes {
        lane.thread.join().unwrap();
    }
}

/// A lane beside the one that serves a caller takes a request now and then, to see whether it is
/// needed: at most one in the time between two looks, whose length is that of `lane_order`.
fn one_caller_stays_with_one_lane(way: Way) {
    const STAT_COUNT: u64 = 1000;
    const LOOK_MS: u64 = 20;
    /// Until all lanes have started.
    const FIRST_COUNT: u64 = 100;
    let dir = tempdir();
    let (lanes, counts, _ends) = mount_counted(dir.path(), way);
    let mounted = Mounted(dir.path());
    let path = dir.path().join(FILE_NAME);
    let served = || counts.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let (mut before, mut last_lane, mut change_count) = (served(), 0, 0);
    let began = Instant::now();
    let first_core = usable_cores().unwrap()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ring::pin_to_core(first_core).unwrap();
            for _ in 0..STAT_COUNT {
                assert!(fs::metadata(&path).unwrap().is_file());
                let after = served();
                for lane in 0..after.len() {
                    if after[lane] > before[lane] {
                        change_count += u64::from(lane != std::mem::replace(&mut last_lane, lane));
                    }
                }
                before = after;
            }
        });
    });
    let look_count = u64::try_from(began.elapsed().as_millis()).unwrap() / LOOK_MS;
    println!("{way:?}: {before:?}, {change_count} changes of the lane, {look_count} looks");
    let change_count_max = FIRST_COUNT + 2 * look_count * counts.len() as u64;
    assert!(change_count <= change_count_max, "{change_count} changes, {look_count} looks");
    end_mount(mounted, lanes);
}

fn the_lane_of_the_callers_core_serves(way: Way) {
    let dir = tempdir();
    let (lanes, counts, _ends) = mount_counted(dir.path(), way);
    let mounted = Mounted(dir.path());
    let path = dir.path().join(FILE_NAME);
    for (core, count) in usable_cores().unwrap().into_iter().zip(&counts).rev() {
        let path = path.clone();
        let count = Arc::clone(count);
        std::thread::spawn(move || {
            ring::pin_to_core(core).unwrap();
            // Until it has served so many one after the other; each is two.
            let mut served_count = 0;
            while served_count < 50 {
                let before = count.load(Ordering::SeqCst);
                assert!(fs::metadata(&path).unwrap().is_file());
                let own = count.load(Ordering::SeqCst) >= before + 2;
                served_count = if own { served_count + 1 } else { 0 };
            }
        })
        .join()
        .unwrap();
    }
    end_mount(mounted, lanes);
}

fn many_callers_use_all_lanes(way: Way) {
    const SERVED_COUNT: u64 = 300;
    let dir = tempdir();
    let (lanes, counts, _ends) = mount_counted(dir.path(), way);
    let mounted = Mounted(dir.path());
    let path = dir.path().join(FILE_NAME);
    // Until each lane has served so many; with a lane that is never called it does not end.
    let is_over = || counts.iter().all(|count| count.load(Ordering::SeqCst) >= SERVED_COUNT);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_over() {
                    assert!(fs::metadata(&path).unwrap().is_file());
                }
            });
        }
    });
    end_mount(mounted, lanes);
}

fn a_blocked_lane_holds_no_requests(way: Way) {
    let dir = tempdir();
    let (lanes, _counts, ends) = mount_counted(dir.path(), way);
    if lanes.len() < 2 {
        return support::skip("a lane that blocks", "there is one core");
    }
    let mounted = Mounted(dir.path());
    let path = dir.path().join(FILE_NAME);
    // In each round one lane blocks, that which serves alone; the other serves.
    for _ in 0..3 {
        (0..200).for_each(|_| assert!(fs::metadata(&path).unwrap().is_file()));
        std::thread::scope(|scope| {
            let missing = dir.path().join(BLOCKING_NAME);
            let blocked = scope.spawn(move || fs::metadata(missing).unwrap_err().kind());
            (0..200).for_each(|_| assert!(fs::metadata(&path).unwrap().is_file()));
            ends.send(()).unwrap();
            assert_eq!(blocked.join().unwrap(), ErrorKind::NotFound);
        });
    }
    end_mount(mounted, lanes);
}

/// A null file system that records the opcodes of its requests, by turn.
struct Recorded {
    null: NullFs,
    turns: Arc<Mutex<Vec<Vec<u32>>>>,
}

impl Core for Recorded {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Kernel(KernelEvent::Request { request, .. }) = &event {
            let opcode = turn.arena.get(*request)[4..8].try_into().unwrap();
            self.turns.lock().unwrap().last_mut().unwrap().push(u32::from_ne_bytes(opcode));
        }
        self.null.apply(turn, event);
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {
        self.turns.lock().unwrap().push(Vec::new());
    }
}

/// A close is passed with the next request, and by itself when none follows.
fn closes_wait_for_the_next_request(way: Way) {
    const OPEN_COUNT: usize = 200;
    const OP_RELEASE: u32 = 18;
    let dir = tempdir();
    let turns = Arc::new(Mutex::new(vec![Vec::new()]));
    let lanes = mount_lanes(dir.path(), way, |_| {
        let turns = Arc::clone(&turns);
        move |_: &mut Config| Recorded { null: NullFs::new(Before::Nothing, false, None), turns }
    });
    let mounted = Mounted(dir.path());
    let path = dir.path().join(FILE_NAME);
    (0..OPEN_COUNT).for_each(|_| drop(File::open(&path).unwrap()));
    let release_count = || {
        let turns = turns.lock().unwrap();
        turns.iter().flatten().filter(|opcode| **opcode == OP_RELEASE).count()
    };
    // The last one, too.
    while release_count() < OPEN_COUNT {
        std::thread::yield_now();
    }
    end_mount(mounted, lanes);
    assert_eq!(release_count(), OPEN_COUNT);
    let turns = turns.lock().unwrap();
    let with_next = |turn: &&Vec<u32>| turn.first() == Some(&OP_RELEASE) && turn.len() > 1;
    let with_next_count = turns.iter().filter(with_next).count();
    println!("{way:?}: {with_next_count} of {OPEN_COUNT} closes were passed with the next request");
    assert!(with_next_count > 0);
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
fn over_dev_fuse_a_request_wakes_one_lane_and_costs_one_call_with_io_uring_and_three_without() {
    // It waits, reads and writes.
    wastes_nothing((DriverKind::Epoll, Transport::Classic), 3);
    if has_io_uring("requests over /dev/fuse are counted on io_uring") {
        wastes_nothing((DriverKind::IoUring, Transport::Classic), 1);
    }
}

fn on_both_drivers(what: &str, test: fn(Way)) {
    test((DriverKind::Epoll, Transport::Classic));
    if has_io_uring(what) {
        test((DriverKind::IoUring, Transport::Classic));
    }
}

#[test]
fn over_dev_fuse_one_caller_stays_with_one_lane() {
    on_both_drivers("one caller's lane", one_caller_stays_with_one_lane);
}

#[test]
fn over_dev_fuse_the_lane_of_the_callers_core_serves() {
    on_both_drivers("the lane of a caller's core", the_lane_of_the_callers_core_serves);
}

#[test]
fn over_dev_fuse_a_close_waits_for_the_next_request() {
    on_both_drivers("closes that wait", closes_wait_for_the_next_request);
}

#[test]
fn over_dev_fuse_many_callers_use_all_lanes() {
    on_both_drivers("many callers' lanes", many_callers_use_all_lanes);
}

#[test]
fn over_dev_fuse_a_blocked_lane_holds_no_requests() {
    on_both_drivers("a lane that blocks", a_blocked_lane_holds_no_requests);
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
