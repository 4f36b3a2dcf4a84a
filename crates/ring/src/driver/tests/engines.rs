//! Every engine beside every driver: the same results, wakeups and shutdown.

use super::files::{token, write};
use super::*;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use tempfile::{TempDir, tempdir};

fn read(file: &File, space: &mut [u8], offset: u64) -> Op {
    let (file, at) = (file.as_raw_fd(), space.as_mut_ptr());
    let read_bytes = u32::try_from(space.len()).unwrap();
    Op::Read { file, at, read_bytes, offset, direct: false, cached: false }
}

fn new_file(folder: &TempDir) -> File {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).open(folder.path().join("file")).unwrap()
}

#[test]
fn written_bytes_are_read_up_to_the_end_with_the_kernels_errors() {
    on_every_engine("what_is_written_is_read", |harness| {
        let folder = tempdir().unwrap();
        let file = new_file(&folder);
        let bytes: Vec<u8> = (0..9000_u32).map(|index| index.to_le_bytes()[0]).collect();
        assert_eq!(harness.ask(JOB, write(&file, &bytes, 100, false)), Ok(9000));
        let mut back = vec![0; 10_000];
        assert_eq!(harness.ask(JOB, read(&file, &mut back, 0)), Ok(9100), "a short one");
        assert!(back[100..9100] == bytes);
        assert_eq!(harness.ask(JOB, read(&file, &mut back, 9100)), Ok(0), "the end");
        let reads_only = File::open(folder.path().join("file")).unwrap();
        assert_eq!(harness.ask(JOB, write(&reads_only, &bytes, 0, false)), Err(Errno(9)));
        let folder_file = File::open(folder.path()).unwrap();
        assert_eq!(harness.ask(JOB, read(&folder_file, &mut back, 0)), Err(Errno(21)));
    });
}

#[test]
fn many_operations_on_one_file_complete_once_each() {
    const COUNT: usize = 700;
    on_every_engine("every_one_of_many", |harness| {
        let folder = tempdir().unwrap();
        let file = new_file(&folder);
        let bytes: Vec<Vec<u8>> = (0..COUNT).map(|index| index.to_le_bytes().to_vec()).collect();
        for (index, bytes) in bytes.iter().enumerate() {
            harness.queue(token(index), write(&file, bytes, index as u64 * 8, false));
        }
        let mut answered: Vec<u32> = (0..COUNT)
            .map(|_| {
                let completion = harness.next();
                assert_eq!(completion.result, Ok(8));
                completion.token.index
            })
            .collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(0..u32::try_from(COUNT).unwrap()));
        assert!(fs::read(folder.path().join("file")).unwrap() == bytes.concat());
        let Offloaded { offloaded_count, thread_count } = harness.driver.offloaded();
        match harness.engine {
            IoEngine::Inline => assert_eq!((offloaded_count, thread_count), (0, 0)),
            IoEngine::Pool => assert!(offloaded_count == 700 && (1..=16).contains(&thread_count)),
            IoEngine::ThreadPerOp => assert_eq!((offloaded_count, thread_count), (700, 700)),
            IoEngine::PosixAio => assert!(offloaded_count == 700 && thread_count <= 700),
            IoEngine::Auto | IoEngine::Uring => {
                assert!(harness.kind() == DriverKind::Epoll || offloaded_count == 0);
            }
        }
    });
}

#[test]
fn an_engine_wakes_a_lane_that_sleeps() {
    on_every_engine("an_engine_wakes", |harness| {
        let folder = tempdir().unwrap();
        let file = new_file(&folder);
        let mut back = [0];
        for index in 0..200_u64 {
            // Without another wakeup, an endless wait hangs the test.
            assert_eq!(harness.ask(JOB, write(&file, b"x", index, false)), Ok(1));
            assert_eq!(harness.ask(JOB, read(&file, &mut back, index)), Ok(1));
        }
    });
}

#[test]
fn a_lane_sleeps_while_an_engine_has_no_completions() {
    on_every_engine("a_lane_sleeps", |harness| {
        let folder = tempdir().unwrap();
        let file = new_file(&folder);
        assert_eq!(harness.ask(JOB, write(&file, b"x", 0, false)), Ok(1));
        // A pending wakeup may be read first.
        let count = harness.sleep_count(Duration::from_millis(20));
        assert!(count <= 4, "{count}");
        assert!(harness.reaped.is_empty());
    });
}

#[test]
fn quiescing_waits_for_operations_of_an_engine() {
    on_every_engine("the_end_waits", |harness| {
        let folder = tempdir().unwrap();
        let file = new_file(&folder);
        // It outlives the driver, whatever the result.
        let bytes: &[u8] = Box::leak(vec![3; 1 << 16].into_boxed_slice());
        for index in 0..64 {
            harness.queue(token(index), write(&file, bytes, index as u64 * 65_536, false));
        }
        harness.enter(Wait::No);
        harness.driver.cancel(token(0), file.as_raw_fd());
        assert!(harness.driver.quiesce());
        let before = fs::read(folder.path().join("file")).unwrap();
        assert!(before.iter().all(|byte| [0, 3].contains(byte)));
        // Nothing writes any more.
        file.set_len(0).unwrap();
        let name = format!("objects-{}", rustix::thread::gettid().as_raw_nonzero());
        assert!(!lives(&name), "no thread is left");
        assert_eq!(file.metadata().unwrap().len(), 0);
    });
}

#[test]
fn an_unavailable_engine_is_refused_with_a_remedy() {
    let refused = IoEngine::Uring.check(DriverKind::Epoll).unwrap_err().to_string();
    assert!(refused.contains("--driver io-uring") && refused.contains("--io-engine"), "{refused}");
    let mut driver = Driver::new(DriverChoice::Only(DriverKind::Epoll), false).unwrap();
    assert!(driver.set_engine(IoEngine::Uring).is_err());
    for kind in DriverKind::ALL {
        for engine in [IoEngine::Auto, IoEngine::Pool, IoEngine::ThreadPerOp, IoEngine::Inline] {
            assert!(engine.check(kind).is_ok());
        }
    }
    assert!(IoEngine::Uring.check(DriverKind::IoUring).is_ok());
}
