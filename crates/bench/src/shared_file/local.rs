//! The limit: threads on the server's CPUs that read the same offsets of such files, without a
//! server.
//!
//! One thread for each operation that the clients keep under way.

use super::files::{Files, region};
use crate::generator::WARM_PART;
use crate::load::{Pieces, Tally, latencies};
use crate::samples::Sample;
use crate::server::Home;
use crate::usage::Usage;
use anyhow::{Context as _, Result, anyhow, bail};
use hdrhistogram::Histogram;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Threads that read.
pub(super) struct Local {
    files: Vec<File>,
    region: Pieces,
    client_count: u32,
    thread_count: u32,
}

/// The result of one thread.
struct Done {
    latency: Histogram<u64>,
    usage: Usage,
    /// The end of its last read.
    until: Instant,
}

impl Local {
    pub(super) fn new(
        home: &Home,
        files: Files,
        (client_count, depth): (u32, u32),
        direct: bool,
    ) -> Result<Self> {
        let (file_count, region_count) = match files {
            Files::Separate => (client_count, 1),
            Files::Shared => (1, client_count),
        };
        let region = region(home);
        let files: Result<Vec<File>> = (0..file_count)
            .map(|index| {
                let path = home.path().join(format!("local-{}-{index}", files.text()));
                make_file(&path, u64::from(region_count) * region.file_bytes)?;
                let flags = if direct { OFlags::DIRECT.bits().cast_signed() } else { 0 };
                let opened = File::options().read(true).custom_flags(flags).open(&path);
                opened.with_context(|| format!("cannot open {}", path.display()))
            })
            .collect();
        Ok(Self { files: files?, region, client_count, thread_count: client_count * depth })
    }

    /// One repetition, as long as a load's.
    pub(super) fn measure(&self, home: &Home) -> Result<Sample> {
        let options = &home.options;
        options.interrupt.check()?;
        let from = Instant::now() + Duration::from_secs_f64(options.seconds * WARM_PART);
        let until = from + Duration::from_secs_f64(options.seconds);
        let done: Result<Vec<Done>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.thread_count)
                .map(|index| scope.spawn(move || self.read(home, index, (from, until))))
                .collect();
            let ended = threads.into_iter().map(|thread| {
                thread.join().map_err(|_| anyhow!("a thread that reads panicked"))?
            });
            ended.collect()
        });
        let mut tally = Tally::new()?;
        let mut usage = Usage::default();
        let mut last = until;
        for one in done? {
            last = last.max(one.until);
            tally.latency.add(&one.latency)?;
            usage = usage.plus(&one.usage);
        }
        tally.op_count = tally.latency.len();
        tally.moved_bytes = tally.op_count * u64::from(self.region.piece_bytes);
        tally.measured_ns = u64::try_from((last - from).as_nanos()).unwrap_or(u64::MAX);
        Ok(Sample { tally, usage: Some(usage), busy: 0.0 })
    }

    fn read(&self, home: &Home, index: u32, (from, until): (Instant, Instant)) -> Result<Done> {
        home.cores.go_to_server()?;
        let client = index % self.client_count;
        let (file, start) = match self.files.get(client as usize).filter(|_| self.files.len() > 1) {
            Some(own) => (own, 0),
            None => {
                let shared = self.files.first().context("there is a file")?;
                (shared, u64::from(client) * self.region.file_bytes)
            }
        };
        let piece_bytes = self.region.piece_bytes as usize;
        let mut buffer = vec![0; 2 * piece_bytes];
        // Direct I/O needs page-aligned buffers.
        let skip_bytes = buffer.as_ptr().align_offset(piece_bytes);
        let Some(piece) = buffer.get_mut(skip_bytes..skip_bytes + piece_bytes) else {
            bail!("no whole page in two")
        };
        let mut latency = latencies()?;
        let mut before = None;
        for number in 0.. {
            let began = Instant::now();
            // At least one is counted.
            if began >= until && !latency.is_empty() {
                break;
            }
            if before.is_none() && began >= from {
                before = Some(Usage::of_thread()?);
            }
            let offset = start + self.region.anywhere(u64::from(index), number);
            if rustix::io::pread(file, &mut *piece, offset)? != piece_bytes {
                bail!("a file of the benchmark is shorter than it was made");
            }
            if before.is_some() {
                let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                latency.saturating_record(took_ns);
            }
        }
        let now = Usage::of_thread()?;
        let usage = now.since(&before.unwrap_or(now));
        Ok(Done { latency, usage, until: Instant::now() })
    }
}

/// Makes the file; that loads it into the page cache.
fn make_file(path: &PathBuf, file_bytes: u64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let bytes = vec![0x5a; 1 << 19];
    let mut file = File::create(path).context("cannot make the limit's file")?;
    for _ in 0..file_bytes / bytes.len() as u64 {
        file.write_all(&bytes).context("cannot fill the limit's file")?;
    }
    file.sync_data().context("cannot sync the limit's file")
}
