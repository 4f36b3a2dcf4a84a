//! Applying logs to rows while a lane writes them: with a real ring, real files and real threads.
#![allow(clippy::unwrap_used, missing_docs)]

mod writer;

use disk::Batch;
use disk::rows::Range;
use ring::feed::LogLengths;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{Pace, RowStore, StoreFault, View};
use wire::{InodeNo, LaneId};
use writer::{
    Held, LENGTHS, Writer, expected, found, live, live_as, new_store, with_record, write,
};

fn log_files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_log_continues_in_new_files_and_old_ones_are_removed() {
    let (_folder, path) = new_store();
    // The next file is ready in time unless the lane is in a hurry; then it continues in its
    // current file.
    assert_eq!(live_as(&path, 6000, |_| (), |writer| writer.keeps_pace = true), 0);
    let files = log_files(&path);
    let last = files.last().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let segment_no = u32::from_str_radix(&last[22..30], 16).unwrap();
    assert!(segment_no > 3, "{last}");
    assert!(files.len() <= 3, "{files:?}");
    assert_eq!(live(&path, 100, |_| ()), 6000);
    assert!(log_files(&path).iter().all(|file| !files.contains(file)), "an earlier boot's");
}

#[test]
fn a_lane_gets_the_rows_it_queries() {
    let (_folder, path) = new_store();
    let mut store = store::open(&path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    let pace = Pace { lengths: LENGTHS, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (0, 100), |_| ());
    writer.queries = true;
    assert_eq!(write(&store, &row_store, pace, &mut writer), Vec::<String>::new());
    let table = expected(&store, 100);
    let rows = |range: &Range, count: usize| -> Vec<u8> {
        let inside = table.iter().filter(|(key, _)| range.contains(key)).take(count);
        inside
            .flat_map(|(key, value)| {
                let bytes = |part: &[u8]| u32::try_from(part.len()).unwrap().to_le_bytes();
                [&bytes(key)[..], &bytes(value)[..], key, value].concat()
            })
            .collect()
    };
    let root = rows(&Range::inode(InodeNo::ROOT), 1);
    assert_eq!(writer.found, [root, rows(&Range::listing(InodeNo::ROOT, 0), 10)]);
}

#[test]
fn a_long_log_is_applied_without_collecting() {
    let (_folder, path) = new_store();
    let mut store = store::open(&path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    let lengths = LogLengths { log_bytes_max: 256 << 10, segment_bytes: 1 << 30 };
    let pace = Pace { lengths, collect: Duration::from_secs(1 << 20) };
    let mut writer = Writer::new(store.boot_id(), (0, 3000), |_| ());
    assert_eq!(write(&store, &row_store, pace, &mut writer), Vec::<String>::new());
    assert_eq!((writer.lsn, found(&row_store).1), (3000, 3000));
}

#[test]
fn when_the_rows_are_full_the_server_continues_until_its_log_is_full() {
    let (_folder, path) = new_store();
    let mut store = store::open(&path).unwrap();
    let row_store = store.open_rows(256 << 10).unwrap();
    let lengths = LogLengths { log_bytes_max: 2 << 20, segment_bytes: 300 << 10 };
    let pace = Pace { lengths, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (0, 1 << 40), |_| ());
    writer.fills_bytes = Some(lengths.log_bytes_max);
    let alarms = write(&store, &row_store, pace, &mut writer);
    assert_eq!(alarms.len(), 1, "reported once: {alarms:?}");
    assert!(alarms[0].contains("greatest size"), "{alarms:?}");
    let (lsn, checkpointed) = (writer.lsn, writer.checkpointed);
    assert!(lsn > 3000 && checkpointed < lsn, "{lsn}, {checkpointed} of them checkpointed");
    drop((row_store, store));
    // With space again, nothing is missing.
    assert_eq!(live(&path, 100, |_| ()), writer.lsn);
}

#[test]
fn what_the_log_may_have_alone_does_not_go_to_the_rows() {
    let (_folder, path) = new_store();
    let mut store = store::open(&path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    let pace = Pace { lengths: LENGTHS, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (0, 2000), |_| ());
    writer.holds_rows = Some(Held::Failed);
    let alarms = write(&store, &row_store, pace, &mut writer);
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert!(alarms[0].contains("cannot be made durable"), "{alarms:?}");
    assert_eq!(writer.lsn, 2000, "the log goes on");
    assert!(found(&row_store).1 <= 10 * writer::BATCH_RECORD_COUNT);
    drop((row_store, store));
    // The next start has all of it.
    assert_eq!(live(&path, 100, |_| ()), 2000);
}

#[test]
fn an_end_loses_nothing_that_was_held_until_then() {
    for (held, is_in_rows) in [(Held::ToTheEnd, true), (Held::Never, false)] {
        let (_folder, path) = new_store();
        let mut store = store::open(&path).unwrap();
        let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
        let pace = Pace { lengths: LENGTHS, collect: Duration::ZERO };
        let mut writer = Writer::new(store.boot_id(), (0, 2000), |_| ());
        writer.holds_rows = Some(held);
        assert_eq!(write(&store, &row_store, pace, &mut writer), Vec::<String>::new());
        assert_eq!(found(&row_store).1 == 2000, is_in_rows, "{held:?}");
        drop((row_store, store));
        assert_eq!(live(&path, 100, |_| ()), 2000, "{held:?}");
    }
}

#[test]
fn rows_of_an_older_copy_are_refused() {
    let (folder, path) = new_store();
    live(&path, 200, |_| ());
    let copy = folder.path().join("copy");
    let copy_rows = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        fs::copy(from.join("data.mdb"), to.join("data.mdb")).unwrap();
    };
    copy_rows(&path.join("rows"), &copy);
    live(&path, 200, |_| ());
    copy_rows(&copy, &path.join("rows"));
    let mut store = store::open(&path).unwrap();
    let refused = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap_err();
    assert!(matches!(refused.fault(), StoreFault::RolledBack { .. }), "{refused}");
    assert!(refused.to_string().contains("rows/data.mdb went back"), "{refused}");
}

/// Removes all log files, and leaves one of this boot with one record.
fn leave_one_log(path: &Path, boot_id: u64, lsn: u64) {
    let mut batch = Batch::new();
    with_record(lsn, |record| batch.push(record));
    let head = disk::LogHeader {
        fs: store::open(path).unwrap().superblock().fs,
        boot_id,
        lane: LaneId(0),
        lane_count: 1,
        segment_no: 4,
        file_bytes: 64,
        is_first: false,
    };
    let mut bytes = head.encode().to_vec();
    batch.seal(boot_id, 15, &mut bytes);
    for file in log_files(path) {
        fs::remove_file(file).unwrap();
    }
    fs::write(path.join(format!("log/{boot_id:016x}-0000-00000004.log")), bytes).unwrap();
}

/// As if the server had removed a file between the two reads.
#[test]
fn a_view_whose_log_does_not_follow_its_rows_has_a_fault() {
    for (lsn, follows) in [(201, true), (202, false)] {
        let (_folder, path) = new_store();
        live(&path, 200, |_| ());
        let mut store = store::open(&path).unwrap();
        drop(store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap());
        let boot_id = store.boot_id();
        drop(store);
        leave_one_log(&path, boot_id, lsn);
        let view = View::open_served(&path).unwrap();
        let fault = view.fault().map(|fault| fault.fault());
        assert_eq!(fault.is_none(), follows, "{lsn}: {fault:?}");
    }
}

#[test]
fn a_log_of_a_boot_that_the_rows_do_not_know_is_refused() {
    let (folder, path) = new_store();
    live(&path, 200, |_| ());
    // The rows from the beginning of this boot, with the log from its end.
    let mut store = store::open(&path).unwrap();
    drop(store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap());
    let boot_id = store.boot_id();
    drop(store);
    let rows = folder.path().join("rows");
    fs::create_dir(&rows).unwrap();
    fs::copy(path.join("rows/data.mdb"), rows.join("data.mdb")).unwrap();
    leave_one_log(&path, boot_id, 300);
    let mut store = store::open(&path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    let refused = store.redo(&row_store).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("it ends with boot 1, the log continues with boot {boot_id}")),
        "{refused}"
    );
}
