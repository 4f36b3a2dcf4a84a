//! Rows of two mounts of one file system: a change through one, and the next call through the other.
//!
//! Which mount changes and which observes is random in every trial. An observation of an earlier
//! state counts as stale, one of a state that never existed as wrong.

use super::place::Place;
use super::workload::{Sample, Workload};
use anyhow::{Context as _, Result};
use ring::FileMap;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(super) const WORKLOADS: [Workload; 7] = [
    Workload::shared("peer: closed", closed),
    Workload::shared("peer: open", opened),
    Workload::shared("peer: mapped", mapped),
    Workload::shared("peer: names", names),
    Workload::shared("peer: appends", |place, _| appends(place)),
    Workload::shared("peer: removed", |place, _| removed(place)),
    Workload::shared("peer: ping-pong", |place, _| ping_pong(place)),
];

/// Words of a file that is open or mapped.
const WORD_COUNT: usize = 8192;
const WORD_BYTES: u64 = 8;
/// Names that are made, removed and changed.
const NAME_COUNT: usize = 64;
/// Bytes of an appended record.
const RECORD_BYTES: usize = 64;

/// What the trials of a round have shown.
#[derive(Default)]
struct Observed {
    stale: u64,
    wrong: u64,
    stale_handles: u64,
    errors: u64,
}

impl Observed {
    /// An error of a call that should not fail.
    fn fail(&mut self, error: &io::Error) {
        if Errno::from_io_error(error) == Some(Errno::STALE) {
            self.stale_handles += 1;
        } else {
            self.errors += 1;
        }
    }

    /// Whether the observation was the present state, `now`, which is `earlier` afterwards.
    fn observe<T: Ord>(&mut self, seen: io::Result<T>, now: T, earlier: &mut BTreeSet<T>) -> bool {
        let agrees = seen.as_ref().is_ok_and(|seen| *seen == now);
        match seen {
            Ok(_) if agrees => {}
            Ok(seen) if earlier.contains(&seen) => self.stale += 1,
            Ok(_) => self.wrong += 1,
            Err(error) => self.fail(&error),
        }
        earlier.insert(now);
        agrees
    }

    fn sample(self, began: Instant, trial_count: u64) -> Sample {
        let mut sample = Sample::new(began.elapsed(), trial_count, "trials");
        let Self { stale, wrong, stale_handles, errors } = self;
        sample.anomalies = vec![
            ("stale", stale),
            ("wrong", wrong),
            ("ESTALE", stale_handles),
            ("other errors", errors),
        ];
        sample
    }
}

/// Trials of one round.
fn trial_count(place: &Place<'_>) -> u64 {
    (place.setup.counts.trial_count / place.setup.round_count as u64).max(1)
}

/// The changing mount and the observing one.
fn sides(rng: &mut fastrand::Rng) -> (usize, usize) {
    if rng.bool() { (0, 1) } else { (1, 0) }
}

/// A file that is opened for each change and each observation.
fn closed(place: &Place<'_>, round_no: usize) -> Result<Sample> {
    let count = trial_count(place);
    let mut rng = fastrand::Rng::with_seed(round_no as u64);
    place.fresh_shared(|dirs| {
        let mut now: Vec<u64> = vec![0; 8];
        write_words(&dirs[0].join("file"), &now)?;
        let (mut observed, mut agree) = (Observed::default(), true);
        let mut earlier = BTreeSet::from([bytes_of(&now)]);
        let began = Instant::now();
        for _ in 0..count {
            place.setup.interrupt.check()?;
            let (changing, observing) = sides(&mut rng);
            let file = dirs[changing].join("file");
            // A mount with a stale view would write it back: after a difference all is replaced.
            match if agree { rng.u8(..4) } else { 0 } {
                0 => {
                    now = words(&mut rng);
                    let new = dirs[changing].join("new");
                    write_words(&new, &now)?;
                    fs::rename(new, file)?;
                }
                1 => {
                    now = words(&mut rng);
                    write_words(&file, &now)?;
                }
                2 => {
                    let (at, word) = (rng.usize(..now.len()), rng.u64(..));
                    now[at] = word;
                    let file = OpenOptions::new().write(true).open(file)?;
                    file.write_all_at(&word.to_ne_bytes(), at as u64 * WORD_BYTES)?;
                }
                _ => {
                    let word = rng.u64(..);
                    now.push(word);
                    let mut file = OpenOptions::new().append(true).open(file)?;
                    file.write_all(&word.to_ne_bytes())?;
                }
            }
            let seen = fs::read(dirs[observing].join("file"));
            agree = observed.observe(seen, bytes_of(&now), &mut earlier);
        }
        Ok(observed.sample(began, count))
    })
}

/// A file of random words and a random length.
fn words(rng: &mut fastrand::Rng) -> Vec<u64> {
    (0..rng.usize(1..1024)).map(|_| rng.u64(..)).collect()
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn write_words(path: &Path, words: &[u64]) -> Result<()> {
    Ok(fs::write(path, bytes_of(words))?)
}

/// A file of so many words, opened for reading and writing at both mounts.
fn open_at_both(dirs: [&Path; 2]) -> Result<[File; 2]> {
    write_words(&dirs[0].join("file"), &[0; WORD_COUNT])?;
    let open = |dir: &Path| OpenOptions::new().read(true).write(true).open(dir.join("file"));
    Ok([open(dirs[0])?, open(dirs[1]).context("the peer cannot open the file")?])
}

/// A file that both have open: its words and its size.
fn opened(place: &Place<'_>, round_no: usize) -> Result<Sample> {
    let count = trial_count(place);
    let mut rng = fastrand::Rng::with_seed(round_no as u64);
    place.fresh_shared(|dirs| {
        let files = open_at_both(dirs)?;
        let size_min = WORD_COUNT as u64 * WORD_BYTES;
        let (mut words, mut sizes) = (BTreeSet::from([0]), BTreeSet::from([size_min]));
        let mut observed = Observed::default();
        let began = Instant::now();
        for _ in 0..count {
            place.setup.interrupt.check()?;
            let (changing, observing) = sides(&mut rng);
            if rng.u8(..4) == 0 {
                let size = size_min + rng.u64(..1 << 20);
                files[changing].set_len(size)?;
                let seen = files[observing].metadata().map(|found| found.len());
                observed.observe(seen, size, &mut sizes);
            } else {
                let (offset, word) = (rng.u64(..size_min / WORD_BYTES) * WORD_BYTES, rng.u64(..));
                files[changing].write_all_at(&word.to_ne_bytes(), offset)?;
                observed.observe(word_of(&files[observing], offset), word, &mut words);
            }
        }
        Ok(observed.sample(began, count))
    })
}

fn word_of(file: &File, offset: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A file that both have mapped.
fn mapped(place: &Place<'_>, round_no: usize) -> Result<Sample> {
    let count = trial_count(place);
    let mut rng = fastrand::Rng::with_seed(round_no as u64);
    place.fresh_shared(|dirs| {
        let files = open_at_both(dirs)?;
        let maps = [FileMap::new(&files[0], WORD_COUNT)?, FileMap::new(&files[1], WORD_COUNT)?];
        let mut earlier = BTreeSet::from([0]);
        let mut observed = Observed::default();
        let began = Instant::now();
        for _ in 0..count {
            place.setup.interrupt.check()?;
            let (changing, observing) = sides(&mut rng);
            let (at, word) = (rng.usize(..WORD_COUNT), rng.u64(..));
            files[changing].write_all_at(&word.to_ne_bytes(), at as u64 * WORD_BYTES)?;
            let mut seen = [0];
            maps[observing].read(at, &mut seen);
            observed.observe(Ok(seen[0]), word, &mut earlier);
        }
        Ok(observed.sample(began, count))
    })
}

/// Names that are made, removed and get other modes.
fn names(place: &Place<'_>, round_no: usize) -> Result<Sample> {
    let count = trial_count(place);
    let mut rng = fastrand::Rng::with_seed(round_no as u64);
    place.fresh_shared(|dirs| {
        // The mode of each name that exists.
        let mut now: [Option<u32>; NAME_COUNT] = [None; NAME_COUNT];
        let mut earlier = vec![BTreeSet::from([None]); NAME_COUNT];
        let mut observed = Observed::default();
        let began = Instant::now();
        for _ in 0..count {
            place.setup.interrupt.check()?;
            let (changing, observing) = sides(&mut rng);
            let at = rng.usize(..NAME_COUNT);
            let paths = dirs.map(|dir| dir.join(format!("name-{at}")));
            let before = now[at];
            now[at] = match before {
                Some(_) if rng.bool() => None,
                _ => Some(0o600 | rng.u32(..0o100)),
            };
            // A mount with a stale view fails here; the state is then what it was.
            if let Err(error) = change(&paths[changing], before, now[at]) {
                observed.fail(&error);
                now[at] = before;
            }
            observed.observe(mode_of(&paths[observing]), now[at], &mut earlier[at]);
        }
        Ok(observed.sample(began, count))
    })
}

fn change(path: &Path, before: Option<u32>, after: Option<u32>) -> io::Result<()> {
    let Some(mode) = after else { return fs::remove_file(path) };
    if before.is_none() {
        File::create_new(path)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// `None` if nothing has the name.
fn mode_of(path: &Path) -> io::Result<Option<u32>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found.permissions().mode() & 0o777)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Both append to one file at the same time.
fn appends(place: &Place<'_>) -> Result<Sample> {
    let count = trial_count(place).div_ceil(2);
    place.fresh_shared(|dirs| {
        let paths = dirs.map(|dir| dir.join("file"));
        File::create_new(&paths[0])?;
        let began = Instant::now();
        let appended: Vec<Result<()>> = std::thread::scope(|scope| {
            let append = |side: usize| {
                let path = &paths[side];
                scope.spawn(move || append_records(place, path, side, count))
            };
            let threads = [append(0), append(1)];
            let joined = threads.map(|thread| thread.join());
            joined.into_iter().map(|done| done.unwrap_or_else(|_| panicked())).collect()
        });
        let elapsed = began.elapsed();
        appended.into_iter().collect::<Result<()>>()?;
        let mut sample = Sample::new(elapsed, 2 * count, "appends");
        sample.anomalies = vec![("lost", missing_records(place, &paths, count)?)];
        Ok(sample.bytes(2 * count * RECORD_BYTES as u64))
    })
}

fn panicked() -> Result<()> {
    anyhow::bail!("an appending thread panicked")
}

fn append_records(place: &Place<'_>, path: &Path, side: usize, count: u64) -> Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    for index in 0..count {
        place.setup.interrupt.check()?;
        file.write_all(record(side, index).as_bytes())?;
    }
    Ok(())
}

fn record(side: usize, index: u64) -> String {
    format!("{side} {index:<0$}\n", RECORD_BYTES - 3)
}

/// Records that neither mount sees, after a drop of caches where that is possible.
fn missing_records(place: &Place<'_>, paths: &[PathBuf; 2], count: u64) -> Result<u64> {
    place.cool()?;
    let mut found = BTreeSet::new();
    for path in paths {
        let text = fs::read_to_string(path)?;
        found.extend(text.split_inclusive('\n').map(str::to_owned));
    }
    let all = (0..2).flat_map(|side| (0..count).map(move |index| record(side, index)));
    Ok(all.filter(|record| !found.contains(record)).count() as u64)
}

/// One has a file open that the other one removes.
fn removed(place: &Place<'_>) -> Result<Sample> {
    let count = trial_count(place).div_ceil(10);
    place.fresh_shared(|dirs| {
        let mut observed = Observed::default();
        let began = Instant::now();
        for index in 0..count {
            place.setup.interrupt.check()?;
            let paths = dirs.map(|dir| dir.join(format!("file-{index}")));
            let word = index + 1;
            write_words(&paths[0], &[word])?;
            let file = File::open(&paths[1]).context("the peer cannot open a new file")?;
            fs::remove_file(&paths[0])?;
            observed.observe(word_of(&file, 0), word, &mut BTreeSet::from([0]));
        }
        Ok(observed.sample(began, count))
    })
}

/// Both write the same block in turn, each after it has read what the other one wrote.
fn ping_pong(place: &Place<'_>) -> Result<Sample> {
    let count = trial_count(place);
    place.fresh_shared(|dirs| {
        let files = open_at_both(dirs)?;
        let (mut observed, mut earlier) = (Observed::default(), BTreeSet::from([0]));
        let began = Instant::now();
        for word in 0..count {
            place.setup.interrupt.check()?;
            let (writing, reading) = if word % 2 == 0 { (0, 1) } else { (1, 0) };
            files[writing].write_all_at(&bytes_of(&[word + 1; 512]), 0)?;
            observed.observe(word_of(&files[reading], 0), word + 1, &mut earlier);
        }
        Ok(observed.sample(began, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_is_present_stale_wrong_or_an_error() {
        let (mut observed, mut earlier) = (Observed::default(), BTreeSet::from([0]));
        assert!(observed.observe(Ok(1), 1, &mut earlier));
        assert!(!observed.observe(Ok(0), 2, &mut earlier));
        assert!(!observed.observe(Ok(1), 3, &mut earlier));
        assert!(!observed.observe(Ok(9), 4, &mut earlier));
        assert!(!observed.observe(Err(Errno::STALE.into()), 5, &mut earlier));
        assert!(!observed.observe(Err(Errno::IO.into()), 6, &mut earlier));
        let sample = observed.sample(Instant::now(), 6);
        let expected = [("stale", 2), ("wrong", 1), ("ESTALE", 1), ("other errors", 1)];
        assert_eq!(sample.anomalies, expected);
    }

    #[test]
    fn records_of_both_sides_have_one_length_and_differ() {
        let records = [record(0, 7), record(1, 7), record(0, 8)];
        assert!(records.iter().all(|record| record.len() == RECORD_BYTES), "{records:?}");
        assert_eq!(records.iter().collect::<BTreeSet<_>>().len(), 3);
    }
}
