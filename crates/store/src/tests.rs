//! The store directory on a real file system: locking, refusals, repairs.
#![allow(clippy::unwrap_used, missing_docs)]

use super::*;
use disk::{Batch, LogPosition, Origin, PreVersions, Record};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use tempfile::TempDir;
use wire::{LaneId, ShardId, Term, Transno, Wire as _};

/// A folder of its own per test, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }
}

fn open_new(folder: &Folder) -> Store {
    open_or_create(&folder.store(), &Shape::default()).unwrap()
}

fn batch(boot_id: u64, batch_no: u64, lsns: &[u64]) -> Vec<u8> {
    let mut batch = Batch::new();
    for lsn in lsns {
        batch.push(&Record {
            shard: ShardId::meta(0),
            lsn: *lsn,
            term: Term::of_boot(boot_id),
            transno: Transno(*lsn),
            pre_versions: PreVersions::new(),
            origin: Origin::Internal,
            changes: &[],
        });
    }
    let mut out = Vec::new();
    batch.seal(boot_id, batch_no, &mut out);
    out
}

/// The log of the only lane of this boot.
fn new_log(store: &Store) -> (fs::File, u64) {
    let head = disk::LogHeader {
        fs: store.superblock().fs,
        boot_id: store.boot_id(),
        lane: LaneId(0),
        lane_count: 1,
        segment_no: 1,
        file_bytes: 0,
        is_first: false,
    };
    let made = new_logs::make(store.path(), &head, 0).unwrap();
    (made.file, made.start_offset)
}

/// Opens, writes these bytes behind the head of lane 0's log, closes.
fn write_log(folder: &Folder, write: impl FnOnce(u64) -> Vec<u8>) -> PathBuf {
    let store = open_new(folder);
    let (mut file, start_offset) = new_log(&store);
    file.seek(SeekFrom::Start(start_offset)).unwrap();
    file.write_all(&write(store.boot_id())).unwrap();
    folder.store().join(LOG).join(format!("{:016x}-0000-00000001.log", store.boot_id()))
}

fn lsns(store: &Store) -> Result<Vec<u64>, StoreError> {
    let mut lsns = Vec::new();
    store.replay(0, |record| {
        lsns.push(record.lsn);
        Ok(())
    })?;
    Ok(lsns)
}

#[test]
fn a_new_store_is_private_and_opens_again() {
    let folder = Folder::new();
    let store = open_new(&folder);
    assert_eq!(store.boot_id(), 1);
    assert_eq!(store.superblock().data_shard_count, 64);
    assert_eq!(fs::metadata(folder.store()).unwrap().permissions().mode() & 0o777, 0o700);
    let fs_uuid = store.superblock().fs;
    drop(store);
    let again = open(&folder.store()).unwrap();
    assert_eq!((again.boot_id(), again.superblock().fs), (2, fs_uuid));
    let exists = create(&folder.store(), &Shape::default()).unwrap_err();
    assert!(matches!(exists.fault(), StoreFault::Locked { .. }), "{exists}");
    drop(again);
    let exists = create(&folder.store(), &Shape::default()).unwrap_err();
    assert!(matches!(exists.fault(), StoreFault::Exists), "{exists}");
}

#[test]
fn a_second_open_is_refused_while_the_first_exists() {
    let folder = Folder::new();
    let store = open_new(&folder);
    let refused = open(&folder.store()).unwrap_err();
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    drop(store);
    assert_eq!(open(&folder.store()).unwrap().boot_id(), 2);
}

#[test]
fn other_directories_are_left_alone() {
    let folder = Folder::new();
    let nothing = open(&folder.store()).unwrap_err();
    assert!(matches!(nothing.fault(), StoreFault::NoStore), "{nothing}");
    fs::create_dir(folder.store()).unwrap();
    fs::write(folder.store().join("thesis.tex"), b"mine").unwrap();
    let refused = open_or_create(&folder.store(), &Shape::default()).unwrap_err();
    assert!(refused.to_string().contains("thesis.tex"), "{refused}");
    assert_eq!(files::names(&folder.store()).unwrap(), ["thesis.tex"], "nothing was added");
    fs::remove_file(folder.store().join("thesis.tex")).unwrap();
    fs::create_dir(folder.store().join(LOG)).unwrap();
    let refused = open_or_create(&folder.store(), &Shape::default()).unwrap_err();
    assert!(matches!(refused.fault(), StoreFault::Foreign { .. }), "{refused}");
    fs::remove_dir(folder.store().join(LOG)).unwrap();
    assert_eq!(open_new(&folder).boot_id(), 1, "an empty directory is used");
}

#[test]
fn an_interrupted_creation_is_finished_wherever_it_stopped() {
    // The steps of a creation in order; a crash may happen after each of them.
    let steps: [&dyn Fn(&Path); 10] = [
        &|path| fs::write(path.join("lock"), b"").unwrap(),
        &|path| fs::create_dir(path.join(LOG)).unwrap(),
        &|path| fs::create_dir(path.join(ROWS)).unwrap(),
        &|path| fs::create_dir(path.join(OBJECTS)).unwrap(),
        &|path| fs::write(path.join("boot.tmp"), b"").unwrap(),
        &|path| boot::begin(path).unwrap(),
        &|path| fs_key::make(path, FsUuid([1; 16]), &[2; 32]).unwrap(),
        &|path| fs::write(path.join("rows/lock.mdb"), b"").unwrap(),
        &|path| fs::write(path.join("rows/data.mdb"), [7; 5000]).unwrap(),
        &|path| fs::write(path.join("superblock.tmp"), b"LANEFSSB").unwrap(),
    ];
    for died_after in 0..=steps.len() {
        let folder = Folder::new();
        fs::create_dir(folder.store()).unwrap();
        steps[..died_after].iter().for_each(|step| step(&folder.store()));
        assert!(matches!(open(&folder.store()).unwrap_err().fault(), StoreFault::NoStore));
        let store = open_new(&folder);
        assert_eq!(store.boot_id(), 1, "crash after step {died_after}");
        assert_eq!(lsns(&store).unwrap(), []);
    }
}

#[test]
fn an_unknown_version_names_both() {
    let folder = Folder::new();
    drop(open_new(&folder));
    let file = folder.store().join(SUPERBLOCK);
    let mut bytes = fs::read(&file).unwrap();
    bytes[8..12].copy_from_slice(&6_u32.to_le_bytes());
    fs::write(&file, &bytes[..1000]).unwrap();
    let refused = open(&folder.store()).unwrap_err().to_string();
    assert!(refused.contains("version 6"), "{refused}");
    let known = format!("version {}", Superblock::FORMAT_VERSION);
    assert!(refused.contains(&known), "{refused}");
}

#[test]
fn damaged_or_missing_parts_are_named() {
    let folder = Folder::new();
    drop(open_new(&folder));
    let superblock = folder.store().join(SUPERBLOCK);
    let good = fs::read(&superblock).unwrap();
    for bad in [&good[..0], &good[..100], &good[..4095]] {
        fs::write(&superblock, bad).unwrap();
        let refused = open(&folder.store()).unwrap_err();
        assert!(matches!(refused.fault(), StoreFault::Damage(_)), "{refused}");
        assert_eq!(refused.path(), superblock);
    }
    let mut flipped = good.clone();
    flipped[33] ^= 1;
    fs::write(&superblock, flipped).unwrap();
    assert!(open(&folder.store()).unwrap_err().to_string().contains("checksum"));
    fs::write(&superblock, good).unwrap();
    fs::remove_dir(folder.store().join(OBJECTS)).unwrap();
    assert!(matches!(open(&folder.store()).unwrap_err().fault(), StoreFault::Missing));
}

#[test]
fn logs_are_read_in_the_order_of_boots() {
    let folder = Folder::new();
    write_log(&folder, |boot_id| [batch(boot_id, 1, &[1, 2]), batch(boot_id, 2, &[3])].concat());
    let empty = write_log(&folder, |_| Vec::new());
    write_log(&folder, |boot_id| batch(boot_id, 1, &[4]));
    // An unfinished log of a lane, and an old copy of the boot counter.
    let unfinished = empty.with_file_name("0000000000000003-0001-00000001.log.tmp");
    fs::write(&unfinished, b"LANE").unwrap();
    fs::write(folder.store().join("boot"), b"1\n").unwrap();
    let store = open_new(&folder);
    assert_eq!(store.boot_id(), 4, "above every log");
    let (_fd, _) = new_log(&store);
    assert_eq!(lsns(&store).unwrap(), [1, 2, 3, 4], "this boot's own log is not read");
    assert!(!unfinished.exists());
    store.remove_earlier_logs().unwrap();
    assert!(!empty.exists());
    assert_eq!(lsns(&store).unwrap(), []);
}

#[test]
fn an_incomplete_last_batch_is_ignored() {
    let whole = batch(1, 2, &[2, 3]);
    for tail in [&whole[..1], &whole[..20], &whole[..whole.len() - 1], &[0; 4096]] {
        let folder = Folder::new();
        let log = write_log(&folder, |boot_id| [&batch(boot_id, 1, &[1])[..], tail].concat());
        let before = fs::metadata(&log).unwrap().len();
        let store = open_new(&folder);
        assert_eq!(lsns(&store).unwrap(), [1]);
        assert_eq!(fs::metadata(&log).unwrap().len(), before, "nothing was cut");
        assert_eq!(lsns(&store).unwrap(), [1], "reading again finds the same");
    }
}

#[test]
fn damage_in_the_middle_refuses_and_changes_nothing() {
    let folder = Folder::new();
    let log = write_log(&folder, |boot_id| {
        [batch(boot_id, 1, &[1]), batch(boot_id, 2, &[2]), batch(boot_id, 3, &[3])].concat()
    });
    let good = fs::read(&log).unwrap();
    let batch_bytes = batch(1, 1, &[1]).len();
    let second = disk::LOG_HEADER_BYTES + batch_bytes;
    for offset in [second, second + 30, second + batch_bytes - 9] {
        let mut bad = good.clone();
        bad[offset] ^= 0x10;
        fs::write(&log, &bad).unwrap();
        let store = open_new(&folder);
        let refused = lsns(&store).unwrap_err();
        assert_eq!(refused.path(), log);
        assert!(refused.to_string().contains(&format!("at byte {second}")), "{refused}");
        assert_eq!(fs::read(&log).unwrap(), bad, "nothing was cut");
    }
    let mut other = good.clone();
    other[20] ^= 1;
    fs::write(&log, &other).unwrap();
    assert!(matches!(lsns(&open_new(&folder)).unwrap_err().fault(), StoreFault::Damage(_)));
}

#[test]
fn a_record_that_cannot_be_redone_names_the_file() {
    let folder = Folder::new();
    let log = write_log(&folder, |boot_id| batch(boot_id, 1, &[1]));
    let store = open_new(&folder);
    let refused = store.replay(0, |_| Err(disk::Fault::new("no such inode", 5))).unwrap_err();
    assert_eq!(refused.path(), log);
    assert!(refused.to_string().contains("no such inode"), "{refused}");
    let of_rows = disk::Fault::new("a row", 0).on("rows/data.mdb");
    let refused = store.replay(0, |_| Err(of_rows.clone())).unwrap_err();
    assert_eq!(refused.path(), Path::new("rows/data.mdb"), "not the log");
}

#[test]
fn logs_of_another_store_are_refused() {
    let (one, other) = (Folder::new(), Folder::new());
    let log = write_log(&one, |boot_id| batch(boot_id, 1, &[1]));
    drop(open_new(&other));
    fs::copy(&log, other.store().join(LOG).join("0000000000000001-0000-00000001.log")).unwrap();
    let refused = lsns(&open_new(&other)).unwrap_err();
    assert!(refused.to_string().contains("another store"), "{refused}");
    fs::write(other.store().join(LOG).join("notes.txt"), b"").unwrap();
    let refused = open(&other.store()).unwrap_err();
    assert!(refused.to_string().contains("notes.txt"), "{refused}");
}

// --- required logs -------------------------------------------------------------------------------

/// Two lanes' logs of a killed server: lane 0 has two batches, then lane 1 has one, whose trailer
/// names the durable end of lane 0's log.
fn two_lanes(folder: &Folder) -> [PathBuf; 2] {
    let mut store = open_new(folder);
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&row_store).unwrap();
    let logs = store.new_logs(&row_store, 2, 256 << 10).unwrap();
    let boot_id = store.boot_id();
    let mut places = [LogPosition { segment_no: 1, offset: 64 }; 2];
    for (lane, batch_no, lsn) in [(0, 1, 1), (0, 2, 2), (1, 1, 1)] {
        let mut bytes = Vec::new();
        let mut batch = Batch::new();
        let (transno, pre_versions) = (Transno(lsn), PreVersions::new());
        let (shard, origin, changes) = (ShardId::meta(lane), Origin::Internal, &[][..]);
        // The same records in each start.
        let term = Term(1);
        batch.push(&Record { shard, lsn, term, transno, pre_versions, origin, changes });
        batch.seal(boot_id, batch_no, &mut bytes);
        let place = &mut places[usize::from(lane)];
        let start_offset = place.offset;
        let batch_bytes = u32::try_from(bytes.len()).unwrap();
        let zero_piece_count = disk::zero_piece_count(start_offset, &bytes);
        let file_bytes = 64 + (256 << 10);
        let places_before = places.to_vec();
        let trailer = disk::Trailer {
            boot_id,
            batch_no,
            batch_bytes,
            zero_piece_count,
            file_bytes,
            places: places_before,
        };
        trailer.encode(&mut bytes);
        logs[usize::from(lane)].0.write_all_at(&bytes, start_offset).unwrap();
        places[usize::from(lane)].offset += bytes.len() as u64;
    }
    let name = |lane: u16| log_name::LogName { boot_id, lane: LaneId(lane), segment_no: 1 };
    [0, 1].map(|lane| name(lane).path(&folder.store()))
}

/// Runs a start: returns the number of new records, and the repairs.
fn start(folder: &Folder) -> Result<(u64, Vec<String>), StoreError> {
    let mut store = open(&folder.store())?;
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX)?;
    let replayed = store.redo(&row_store)?;
    Ok((replayed.new_count, store.repairs().to_vec()))
}

#[test]
fn complete_logs_are_redone_once() {
    let folder = Folder::new();
    two_lanes(&folder);
    assert_eq!(start(&folder).unwrap(), (3, Vec::new()));
    assert_eq!(start(&folder).unwrap(), (0, Vec::new()));
}

#[test]
fn a_missing_log_is_named() {
    let folder = Folder::new();
    for lane in [0, 1] {
        let logs = two_lanes(&folder);
        let aside = folder.0.path().join("aside");
        fs::rename(&logs[lane], &aside).unwrap();
        let refused = start(&folder).unwrap_err();
        assert!(matches!(refused.fault(), StoreFault::LogMissing { .. }), "{refused}");
        assert_eq!(refused.path(), logs[lane]);
        fs::rename(&aside, &logs[lane]).unwrap();
        start(&folder).unwrap();
        // Its records are all in the rows now.
        fs::remove_file(&logs[lane]).unwrap();
        start(&folder).unwrap();
    }
}

#[test]
fn a_truncated_log_is_named_wherever_it_was_cut() {
    let folder = Folder::new();
    let logs = two_lanes(&folder);
    for log in &logs {
        let good = fs::read(log).unwrap();
        let (_, mut reader) = disk::LogReader::new(&good).unwrap();
        let mut edges = vec![0, 1, reader.valid_bytes(), good.len() as u64 - 1];
        while reader.next_batch().unwrap().is_some() {
            edges.extend([reader.valid_bytes() - 60, reader.valid_bytes()]);
        }
        for edge in edges {
            let cut = usize::try_from(edge).unwrap();
            fs::write(log, &good[..cut]).unwrap();
            let refused = start(&folder).unwrap_err();
            assert_eq!(refused.path(), log, "cut at {edge}: {refused}");
        }
        fs::write(log, good).unwrap();
    }
    assert_eq!(start(&folder).unwrap().0, 3);
}

#[test]
fn an_overwritten_end_is_detected_by_the_other_lanes_log() {
    let folder = Folder::new();
    let logs = two_lanes(&folder);
    let good = fs::read(&logs[0]).unwrap();
    let (_, mut reader) = disk::LogReader::new(&good).unwrap();
    reader.next_batch().unwrap();
    let edge = usize::try_from(reader.valid_bytes()).unwrap();
    let mut bad = good;
    bad[edge..].fill(0);
    fs::write(&logs[0], bad).unwrap();
    let refused = start(&folder).unwrap_err();
    assert!(matches!(refused.fault(), StoreFault::LogShort { .. }), "{refused}");
    assert_eq!(refused.path(), logs[0]);
    assert!(refused.to_string().contains(&*logs[1].to_string_lossy()), "{refused}");
}

#[test]
fn damaged_rows_are_rebuilt_while_the_logs_have_everything() {
    let folder = Folder::new();
    two_lanes(&folder);
    let rows = folder.store().join("rows/data.mdb");
    let good = fs::read(&rows).unwrap();
    let mut bad = good;
    bad[16] ^= 1;
    fs::write(&rows, &bad).unwrap();
    let (new_count, repairs) = start(&folder).unwrap();
    assert_eq!((new_count, repairs.len()), (3, 1), "{repairs:?}");
    assert!(repairs[0].contains("rows/data.mdb is rebuilt"), "{repairs:?}");
    assert_eq!(fs::read(rows.with_file_name("data.mdb.damaged")).unwrap(), bad);
    assert_eq!(start(&folder).unwrap(), (0, Vec::new()));
    // The logs of later boots are not everything.
    two_lanes(&folder);
    for damage in [&[][..], &bad[..8192], &bad] {
        fs::write(&rows, damage).unwrap();
        let refused = start(&folder).unwrap_err();
        assert_eq!(refused.path(), rows, "{refused}");
        assert_eq!(fs::read(&rows).unwrap(), damage, "nothing was changed");
    }
}

#[test]
fn a_lost_boot_counter_is_rewritten() {
    let folder = Folder::new();
    two_lanes(&folder);
    start(&folder).unwrap();
    let boot = folder.store().join("boot");
    let good = fs::read(&boot).unwrap();
    for damage in [&b""[..], b"x", b"1 f16177d2\n", &good[..3]] {
        fs::write(&boot, damage).unwrap();
        let mut store = open(&folder.store()).unwrap();
        drop(store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap());
        assert!(store.boot_id() > 2, "{}", store.boot_id());
        assert!(store.repairs()[0].contains("boot was missing"), "{:?}", store.repairs());
    }
    fs::remove_file(&boot).unwrap();
    assert_eq!(start(&folder).unwrap().1.len(), 1);
    assert_eq!(start(&folder).unwrap().1.len(), 0);
}

#[test]
fn the_key_of_another_file_system_is_refused() {
    let (folder, other) = (Folder::new(), Folder::new());
    drop((open_new(&folder), open_new(&other)));
    let key = folder.store().join("fs-key");
    let good = fs::read(&key).unwrap();
    let theirs = fs::read(other.store().join("fs-key")).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&key, bytes).unwrap();
        let refused = open(&folder.store()).unwrap_err();
        assert_eq!(refused.path(), key, "{refused}");
        refused.to_string()
    };
    assert!(refused(&theirs).contains("another file system"));
    assert!(refused(&good[..63]).contains("wrong length"));
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 4;
        refused(&bad);
    }
    fs::remove_file(&key).unwrap();
    assert!(matches!(open(&folder.store()).unwrap_err().fault(), StoreFault::Missing));
}

#[test]
fn rows_of_another_store_are_refused() {
    let (folder, other) = (Folder::new(), Folder::new());
    drop((open_new(&folder), open_new(&other)));
    let rows = folder.store().join("rows/data.mdb");
    fs::copy(other.store().join("rows/data.mdb"), &rows).unwrap();
    let refused = start(&folder).unwrap_err();
    assert_eq!(refused.path(), rows);
    assert!(refused.to_string().contains("another store"), "{refused}");
}

#[test]
fn a_missing_superblock_is_named() {
    let folder = Folder::new();
    two_lanes(&folder);
    fs::remove_file(folder.store().join(SUPERBLOCK)).unwrap();
    let refused = open_or_create(&folder.store(), &Shape::default()).unwrap_err();
    assert!(matches!(refused.fault(), StoreFault::Missing), "{refused}");
    assert_eq!(refused.path(), folder.store().join(SUPERBLOCK));
}

// --- ownership ---------------------------------------------------------------------------------

fn refusal(folder: &Folder) -> String {
    let refused = open_or_create(&folder.store(), &Shape::default()).unwrap_err().to_string();
    let opened = open(&folder.store()).unwrap_err().to_string();
    assert_eq!(opened, refused, "both ways to open check an existing store");
    refused
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_store_that_others_can_write_is_refused_with_the_remedy() {
    let folder = Folder::new();
    drop(open_new(&folder));
    for name in ["", "superblock", "boot", "lock", "log", "rows", "objects"] {
        let path = folder.store().join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        for open in [0o020, 0o002] {
            set_mode(&path, mode | open);
            let line = refusal(&folder);
            assert!(
                line.contains("can be written by others") && line.contains("chmod go-w"),
                "{line}"
            );
            assert!(line.contains(path.to_string_lossy().trim_end_matches('/')), "{line}");
        }
        set_mode(&path, mode);
    }
    let key = folder.store().join("fs-key");
    set_mode(&key, 0o640);
    let line = refusal(&folder);
    assert!(line.contains("chmod 600") && line.contains("fs-key"), "{line}");
    set_mode(&key, 0o600);
    drop(open_new(&folder));
}

#[test]
fn a_link_in_a_store_is_refused() {
    let folder = Folder::new();
    drop(open_new(&folder));
    for name in ["boot", "fs-key", "lock", "superblock", "log", "objects", "rows/data.mdb"] {
        let (path, aside) = (folder.store().join(name), folder.0.path().join("aside"));
        let there = path.exists();
        if there {
            fs::rename(&path, &aside).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&aside, "").unwrap();
        }
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        let line = refusal(&folder);
        assert!(line.contains("not a plain file") && line.contains(name), "{line}");
        fs::remove_file(&path).unwrap();
        if there {
            fs::rename(&aside, &path).unwrap();
        } else {
            fs::remove_file(&aside).unwrap();
        }
    }
    drop(open_new(&folder));
}

#[test]
fn a_store_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED a_store_of_another_user_is_refused: needs root, to change owners");
        return;
    }
    let folder = Folder::new();
    drop(open_new(&folder));
    for name in ["", "superblock", "boot", "fs-key", "log", "objects"] {
        let path = folder.store().join(name);
        std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
        let line = refusal(&folder);
        assert!(line.contains("belongs to user 4711") && line.contains("chown"), "{line}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    drop(open_new(&folder));
    // Nor is one created in a directory of another user.
    let theirs = folder.0.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(4711), None).unwrap();
    let line = open_or_create(&theirs, &Shape::default()).unwrap_err().to_string();
    assert!(line.contains("belongs to user 4711"), "{line}");
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "nothing was made");
}

/// How far the logs of the shards of [`two_lanes`] are applied.
fn lsns_of_rows(row_store: &RowStore) -> [u64; 2] {
    let gathering = row_store.gather(gathered::Gathered::default()).unwrap();
    [0, 1].map(|index| gathering.shard(ShardId::meta(index)).unwrap().lsn)
}

/// All rows are on one page, so every flip hits one of them, or the way to them: the rows of the
/// store, of shards, and of logs among them.
#[test]
fn after_the_loss_of_any_row_the_logs_are_applied_and_the_store_opens() {
    let folder = Folder::new();
    two_lanes(&folder);
    two_lanes(&folder);
    let path = folder.store().join("rows/data.mdb");
    let good = fs::read(&path).unwrap();
    let logs: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(folder.store().join(LOG))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let mut lost_count = 0;
    for at in (0..good.len()).step_by(173) {
        for (path, bytes) in &logs {
            fs::write(path, bytes).unwrap();
        }
        let mut bad = good.clone();
        bad[at] ^= 4;
        fs::write(&path, &bad).unwrap();
        let mut store = open(&folder.store()).unwrap();
        let salvaged = store.salvage_rows(&mut |_| Ok(())).unwrap();
        lost_count += salvaged.as_ref().map_or(0, |damaged| damaged.lost.len());
        if let Some(damaged) = &salvaged {
            assert_eq!((damaged.left_out_count, &damaged.log_gap), (0, &None), "byte {at}");
        }
        let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
        store.redo(&row_store).unwrap();
        assert_eq!(lsns_of_rows(&row_store), [2, 1], "byte {at}: {salvaged:?}");
        store.remove_earlier_logs().unwrap();
        drop((row_store, store));
        assert_eq!(start(&folder).unwrap().0, 0, "byte {at}");
    }
    assert!(lost_count > 0, "{lost_count}");
}

/// A server with one lane that died: its log has a write with pages of a file, which its object
/// lacks. Returns the object's path.
fn logged_write(folder: &Folder) -> PathBuf {
    let mut store = open_new(folder);
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&row_store).unwrap();
    let logs = store.new_logs(&row_store, 1, 256 << 10).unwrap();
    let inode = wire::InodeNo(7);
    let ranges = vec![disk::LoggedRange { object_offset: 4096, bytes: b"log".to_vec() }];
    let logged = disk::ContentsChange::Logged { inode, ranges };
    let (object_offset, write_bytes, crc32c) = (4096, 3, wire::crc32c(b"log"));
    let write =
        disk::ContentsChange::Write { inode, object_offset, write_bytes, crc32c, write_time_ns: 9 };
    let mut changes = Vec::new();
    for change in [logged, write] {
        disk::Change::Contents(change).encode(&mut wire::Writer::new(&mut changes));
    }
    let mut batch = Batch::new();
    let (transno, pre_versions, term) = (Transno(1), PreVersions::new(), Term(1));
    let (shard, origin, changes) = (ShardId::data(0), Origin::Internal, &changes[..]);
    batch.push(&Record { shard, lsn: 1, term, transno, pre_versions, origin, changes });
    let mut bytes = Vec::new();
    batch.seal(store.boot_id(), 1, &mut bytes);
    logs[0].0.write_all_at(&bytes, 64).unwrap();
    store.objects_path().join(FileObjects::single(0, inode).first.path())
}

#[test]
fn bytes_that_only_the_log_has_are_written_to_their_object_once() {
    let folder = Folder::new();
    let path = logged_write(&folder);
    assert!(!path.exists());
    assert_eq!(start(&folder).unwrap().0, 1);
    let expected = [vec![0; 4096], b"log".to_vec()].concat();
    assert_eq!(fs::read(&path).unwrap(), expected);
    fs::write(&path, b"later").unwrap();
    assert_eq!(start(&folder).unwrap().0, 0);
    assert_eq!(fs::read(&path).unwrap(), b"later", "the rows have the record");
}

#[test]
fn a_view_shows_bytes_that_only_the_log_has() {
    let folder = Folder::new();
    let path = logged_write(&folder);
    let objects = FileObjects::single(0, wire::InodeNo(7));
    for found in [None, Some(&b"old"[..]), Some(&[b'o'; 5000])] {
        if let Some(found) = found {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, found).unwrap();
        }
        let view = View::open(&folder.store()).unwrap();
        let files = view.object_files();
        let mut expected = found.unwrap_or_default().to_vec();
        expected.resize(expected.len().max(4099), 0);
        expected[4096..4099].copy_from_slice(b"log");
        let size = files.find_all(&objects).unwrap().unwrap().size_bytes;
        assert_eq!(size, expected.len() as u64);
        let mut contents = files.contents(objects.clone());
        let mut bytes = vec![7; 6000];
        assert_eq!(contents.read_at(0, &mut bytes).unwrap(), expected.len());
        assert_eq!(bytes[..expected.len()], expected);
        let mut piece = [7; 2];
        assert_eq!((contents.read_at(4097, &mut piece).unwrap(), &piece), (2, b"og"));
        assert_eq!(contents.next_data(4098).unwrap(), Some(4098));
        let copies = folder.0.path().join("copies");
        fs::create_dir_all(&copies).unwrap();
        view.put_logged(&copies, |_| true).unwrap();
        let copy = fs::read(copies.join(objects.first.path())).unwrap();
        assert_eq!(copy[4096..], *b"log");
    }
}
