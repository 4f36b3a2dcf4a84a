//! Files: operations done at once and by threads, and a shutdown that waits for both.

use super::*;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use tempfile::tempdir;

pub(super) fn token(index: usize) -> Token {
    Token::new(Kind::Job, u32::try_from(index).unwrap())
}

pub(super) fn write(file: &File, bytes: &[u8], offset: u64, durable: bool) -> Op {
    let (file, at) = (file.as_raw_fd(), bytes.as_ptr());
    let write_bytes = u32::try_from(bytes.len()).unwrap();
    if durable {
        Op::WriteDurable { file, at, write_bytes, offset }
    } else {
        Op::Write { file, at, write_bytes, offset, direct: false }
    }
}

#[test]
fn a_file_is_created_written_read_truncated_and_removed() {
    on_both("a_file_is_made", |harness| {
        let folder = tempdir().unwrap();
        let dir = File::open(folder.path()).unwrap();
        let dir_fd = dir.as_raw_fd();
        let path = c"sub/file".as_ptr();
        let flags = libc::O_RDWR | libc::O_CREAT;
        assert_eq!(harness.ask(JOB, Op::Open { dir: dir_fd, path, flags }), Err(Errno(2)));
        let sub = c"sub".as_ptr();
        assert_eq!(harness.ask(JOB, Op::MakeDir { dir: dir_fd, path: sub }), Ok(0));
        assert_eq!(harness.ask(JOB, Op::MakeDir { dir: dir_fd, path: sub }), Err(Errno(17)));
        let opened = harness.ask(JOB, Op::Open { dir: dir_fd, path, flags }).unwrap();
        let file = File::from(owned(opened));
        assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        for durable in [false, true] {
            let bytes = vec![u8::from(durable) + 1; 9000];
            assert_eq!(harness.ask(JOB, write(&file, &bytes, 100, durable)), Ok(9000));
            let mut back = vec![0; 10_000];
            let (at, file) = (back.as_mut_ptr(), file.as_raw_fd());
            let read = |offset| Op::Read {
                file,
                at,
                read_bytes: 10_000,
                offset,
                direct: false,
                cached: false,
            };
            assert_eq!(harness.ask(JOB, read(0)), Ok(9100));
            assert!(back[100..9100] == bytes);
            assert_eq!(harness.ask(JOB, read(9100)), Ok(0), "the end");
        }
        let file_fd = file.as_raw_fd();
        if harness.driver.truncates() {
            assert_eq!(harness.ask(JOB, Op::Truncate { file: file_fd, size_bytes: 50 }), Ok(0));
            assert_eq!(file.metadata().unwrap().len(), 50);
        }
        let more = Op::Allocate { file: file_fd, offset: 0, range_bytes: 70_000, mode: 0 };
        assert_eq!(harness.ask(JOB, more), Ok(0));
        assert_eq!(file.metadata().unwrap().len(), 70_000);
        for data_only in [true, false] {
            assert_eq!(harness.ask(JOB, Op::Sync { file: file_fd, data_only }), Ok(0));
        }
        assert_eq!(harness.ask(JOB, Op::Remove { dir: dir_fd, path }), Ok(0));
        assert_eq!(harness.ask(JOB, Op::Remove { dir: dir_fd, path }), Err(Errno(2)));
        let closed = Op::Sync { file: -1, data_only: true };
        assert_eq!(harness.ask(JOB, closed), Err(Errno(9)));
    });
}

#[test]
fn a_lone_read_that_the_page_cache_has_does_not_enter_io_uring() {
    on_both("a_lone_read", |harness| {
        if harness.kind() == DriverKind::Epoll {
            return;
        }
        let folder = tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        let mut back = [[0_u8; 4096]; 2];
        let read = |back: &mut [u8; 4096]| Op::Read {
            file: file.as_raw_fd(),
            at: back.as_mut_ptr(),
            read_bytes: 4096,
            offset: 0,
            direct: false,
            cached: false,
        };
        // The second read finds that the kernel must be entered for what else is under way.
        for (calls, enters) in [(1, 0), (2, 1), (3, 1), (4, 2)] {
            harness.queue(token(0), read(&mut back[0]));
            harness.enter(Wait::Ever);
            assert_eq!(harness.reaped.pop().unwrap().result, Ok(4096));
            assert_eq!(harness.driver.call_count(), calls);
            assert_eq!(harness.driver.enter_count(), enters);
        }
        assert_eq!(back[0], [7; 4096]);
        harness.queue(token(0), read(&mut back[0]));
        harness.enter(Wait::No);
        assert_eq!(harness.reaped.pop().unwrap().result, Ok(4096));
        assert_eq!(harness.driver.enter_count(), 3, "what does not wait submits");
        harness.queue(token(0), read(&mut back[0]));
        harness.queue(token(1), read(&mut back[1]));
        assert_eq!(harness.result(token(0)), Ok(4096));
        assert_eq!(harness.result(token(1)), Ok(4096));
        assert_eq!(harness.driver.call_count(), 5, "two are submitted together");
        assert_eq!(back[1], [7; 4096]);
        fs::write(&path, b"").unwrap();
        assert_eq!(harness.ask(token(0), read(&mut back[0])), Ok(0), "the end");
    });
}

#[test]
fn more_operations_than_threads_complete_once_each() {
    const COUNT: usize = 300;
    on_both("more_is_under_way", |harness| {
        let folder = tempdir().unwrap();
        let file = File::create_new(folder.path().join("file")).unwrap();
        let bytes: Vec<Vec<u8>> = (0..COUNT).map(|index| index.to_le_bytes().to_vec()).collect();
        for (index, bytes) in bytes.iter().enumerate() {
            harness.queue(token(index), write(&file, bytes, index as u64 * 8, index % 3 == 0));
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
    });
}

#[test]
fn an_operation_on_a_thread_is_waited_for_instead_of_cancelled() {
    on_both("what_a_thread_does", |harness| {
        let folder = tempdir().unwrap();
        let file = File::create_new(folder.path().join("file")).unwrap();
        // It outlives the driver, whatever the result.
        let bytes: &[u8] = Box::leak(vec![3; 1 << 16].into_boxed_slice());
        harness.queue(token(0), write(&file, bytes, 0, true));
        harness.enter(Wait::No);
        harness.driver.cancel(token(0), file.as_raw_fd());
        let result = harness.result(token(0));
        // The kernel's own workers can be interrupted.
        assert!(result == Ok(1 << 16) || harness.kind() == DriverKind::IoUring, "{result:?}");
        for index in 0..64 {
            harness.queue(token(index), write(&file, bytes, index as u64 * 65_536, true));
        }
        harness.enter(Wait::No);
        assert!(harness.driver.quiesce());
        let name = format!("files-{}", rustix::thread::gettid().as_raw_nonzero());
        assert!(!lives(&name), "no thread is left");
    });
}

#[test]
fn a_thread_wakes_a_lane_that_sleeps() {
    on_both("a_thread_wakes", |harness| {
        let folder = tempdir().unwrap();
        let file = File::create_new(folder.path().join("file")).unwrap();
        for index in 0..200 {
            // Without another wakeup, an endless wait hangs the test.
            assert_eq!(harness.ask(token(index), write(&file, b"x", 0, true)), Ok(1));
        }
        assert_eq!(harness.driver.call_count() > 0, harness.kind() == DriverKind::Epoll);
    });
}
