//! `cluster`: clients of a file system over four servers, beside the same clients of one server,
//! and beside bare streams over loopback; for writes also streams whose receivers write to files.
//!
//! A client is a [`Volume`] in a thread of its own, as a program has it that uses the library.
//! Everything runs on one machine: four servers have no more cores than one.

mod bare;
mod done;
mod servers;

use crate::report::Progress;
use crate::rounds::{alternate, median, spread};
use crate::row::Row;
use crate::server::Home;
use crate::usage::Usage;
use anyhow::{Context as _, Result, anyhow};
use bare::FarEnd;
use done::Done;
use library::{File, OpenFor, Piece, Volume};
use registry::LocalError;
use servers::Cluster;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "cluster";
const CLIENT_COUNT: u32 = 8;
const SERVER_COUNT: usize = 4;
/// Bytes of each client's file.
const FILE_BYTES: u64 = 32 << 20;
const LAYOUT: &str = "lanefs.layout";
/// Bytes of a stripe, and of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces of one call.
const PIECE_COUNT: u64 = 4;

/// What the clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Read,
    Write,
    /// New files, in a directory of each client.
    Create,
    /// One byte of its file: what several processes on one core cost with a small request.
    Byte,
}

/// On what.
#[derive(Clone, Copy, Debug)]
enum On<'a> {
    Servers(&'a Cluster),
    Bare,
    /// A bare stream whose receiver writes to a file.
    BareToFile,
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let servers = [1, SERVER_COUNT].map(|count| Cluster::start(home, count));
    let [one, four] = match servers {
        [Ok(one), Ok(four)] => [one, four],
        [Err(error), _] | [_, Err(error)] => {
            if !matches!(error.downcast_ref(), Some(LocalError::NotInstalled)) {
                return Err(error);
            }
            let mut row = Row::new(NAME, "not run");
            row.note = Some(error.to_string());
            return Ok(vec![row]);
        }
    };
    let progress = Progress::new(NAME);
    let mut rows = Vec::new();
    for client_count in
        home.options.shapes(&[(1, 1), (CLIENT_COUNT, 1)]).into_iter().map(|shape| shape.0)
    {
        for work in Work::ALL {
            let file_bytes = home.options.file_bytes(FILE_BYTES);
            for cluster in [&one, &four] {
                prepare(cluster, client_count, file_bytes)?;
            }
            let (ours, beside) = (On::Servers(&four), On::Servers(&one));
            // What the others are compared with comes first.
            let ons = match work {
                Work::Create | Work::Byte => vec![("one server", beside), ("four servers", ours)],
                Work::Read => {
                    vec![("loopback", On::Bare), ("one server", beside), ("four servers", ours)]
                }
                Work::Write => vec![
                    ("loopback", On::Bare),
                    ("loopback and pwrite", On::BareToFile),
                    ("one server", beside),
                    ("four servers", ours),
                ],
            };
            let options = &home.options;
            progress.begin(ons.len() * options.round_count);
            let samples = alternate(ons.len(), options.round_count, |index, _| {
                options.interrupt.check()?;
                let name = format!("{} {}", work.text(), ons[index].0);
                progress.step(&name);
                measure(home, ons[index].1, work, (client_count, file_bytes))
                    .with_context(|| format!("{NAME}: {name}, {client_count} clients"))
            })?;
            progress.end();
            let limit = ons[0].0;
            for (index, (name, _)) in ons.iter().enumerate() {
                let mut row = row_of(work, name, &samples[index]);
                row.clients = Some(client_count);
                if index > 0 {
                    compare(&mut row, work, (&samples[index], &samples[0]));
                    row.limit = Some(format!("{} {limit}", work.text()));
                }
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

impl Work {
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Create, Self::Byte];

    /// Whether operations are counted, not bytes.
    const fn is_counted(self) -> bool {
        matches!(self, Self::Create | Self::Byte)
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Byte => "read 1 byte",
        }
    }
}

fn row_of(work: Work, name: &str, samples: &[Done]) -> Row {
    let rates: Vec<f64> = samples.iter().map(|done| done.rate(work.is_counted())).collect();
    let rate = median(&rates);
    let mut row = Row::new(NAME, format!("{} {name}", work.text()));
    if work.is_counted() {
        row.ops_per_s = rate;
    } else {
        row.mb_per_s = rate.map(|rate| rate / 1e6);
    }
    row.spread = spread(&rates);
    let middle = |of: fn(Done, bool) -> f64| {
        let samples = samples.iter().map(|done| of(*done, work.is_counted()));
        median(&samples.collect::<Vec<_>>()).filter(|middle| *middle > 0.0)
    };
    let (cpu_ns, switches) = (middle(Done::cpu_ns), middle(Done::switches));
    if work.is_counted() {
        row.cpu_us_per_op = cpu_ns.map(|cpu_ns| cpu_ns / 1e3);
        row.switches_per_op = switches;
    } else {
        // Nanoseconds for a byte are seconds for 10^9.
        row.cpu_s_per_gb = cpu_ns;
        row.switches_per_mb = switches.map(|switches| switches * 1e6);
    }
    row
}

/// The median of the rounds' ratios of rates, and their spread.
fn compare(row: &mut Row, work: Work, (ours, beside): (&[Done], &[Done])) {
    let pairs = ours.iter().zip(beside);
    let ratios: Vec<f64> = pairs
        .map(|(ours, beside)| ours.rate(work.is_counted()) / beside.rate(work.is_counted()))
        .collect();
    (row.ratio_to_limit, row.spread) = (median(&ratios), spread(&ratios));
}

/// A directory and a file with contents for each client, in page caches.
fn prepare(cluster: &Cluster, client_count: u32, file_bytes: u64) -> Result<()> {
    let mut volume = cluster.volume()?;
    let bytes = crate::stream::contents(PIECE_BYTES);
    for client in 0..client_count {
        let dir = dir_of(client);
        if volume.stat(&dir).is_ok() {
            continue;
        }
        volume.mkdir(&dir, 0o755)?;
        volume.set_xattr(
            &dir,
            LAYOUT,
            format!("unit={PIECE_BYTES},count={SERVER_COUNT}").as_bytes(),
        )?;
        let file = volume.create(&dir.join("file"), 0o644, true)?;
        for at in (0..file_bytes).step_by(PIECE_BYTES) {
            volume.write_at(&file, at, &bytes)?;
        }
        volume.close(file)?;
        // New files have one object each, as by default.
        volume.set_xattr(&dir, LAYOUT, format!("unit={PIECE_BYTES},count=1").as_bytes())?;
    }
    Ok(())
}

fn dir_of(client: u32) -> PathBuf {
    PathBuf::from(format!("/client-{client}"))
}

/// All clients at once, for the measured time.
fn measure(
    home: &Home,
    on: On<'_>,
    work: Work,
    (client_count, file_bytes): (u32, u64),
) -> Result<Done> {
    let time = Duration::from_secs_f64(home.options.seconds);
    let usage = || match on {
        On::Servers(cluster) => cluster.usage(),
        On::Bare | On::BareToFile => Ok(Usage::default()),
    };
    let before = usage()?;
    let barrier = Barrier::new(client_count as usize);
    let done: Vec<Result<Done>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..client_count)
            .map(|client| {
                let barrier = &barrier;
                scope.spawn(move || match on {
                    On::Bare | On::BareToFile => {
                        let far_end = match (on, work) {
                            (On::BareToFile, _) => FarEnd::Writes { client, file_bytes },
                            (_, Work::Read) => FarEnd::Sends,
                            (_, Work::Write | Work::Create | Work::Byte) => FarEnd::Receives,
                        };
                        bare::run(home, far_end, PIECE_BYTES, (barrier, time))
                    }
                    On::Servers(cluster) => {
                        let prepared = Client::new(cluster, client, work);
                        barrier.wait();
                        prepared?.run(work, file_bytes, time)
                    }
                })
            })
            .collect();
        let ended = clients.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|done| done.unwrap_or_else(|_| Err(anyhow!("a client panicked")))).collect()
    });
    let mut sum = Done { servers: usage()?.since(&before), ..Done::default() };
    for done in done {
        let done = done?;
        sum.op_count += done.op_count;
        sum.moved_bytes += done.moved_bytes;
        sum.seconds = sum.seconds.max(done.seconds);
    }
    Ok(sum)
}

/// A client of servers, with its file.
struct Client {
    volume: Volume,
    dir: PathBuf,
    file: File,
}

impl Client {
    fn new(cluster: &Cluster, client: u32, work: Work) -> Result<Self> {
        let mut volume = cluster.volume()?;
        let dir = dir_of(client);
        let open_for = if work == Work::Write { OpenFor::Write } else { OpenFor::Read };
        let file = volume.open(&dir.join("file"), open_for)?;
        Ok(Self { volume, dir, file })
    }

    fn run(mut self, work: Work, file_bytes: u64, time: Duration) -> Result<Done> {
        let bytes = crate::stream::contents(PIECE_BYTES);
        let began = Instant::now();
        let mut done = Done::default();
        let mut at = 0;
        while began.elapsed() < time {
            let offsets = (0..PIECE_COUNT).map(|piece| at + piece * PIECE_BYTES as u64);
            match work {
                Work::Read => {
                    let piece_bytes = u32::try_from(PIECE_BYTES)?;
                    let piece = |file_offset| Piece { file_offset, piece_bytes };
                    let pieces: Vec<Piece> = offsets.map(piece).collect();
                    let read = self.volume.read_pieces(&self.file, &pieces)?;
                    done.moved_bytes += read.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
                }
                Work::Write => {
                    let pieces: Vec<(u64, &[u8])> =
                        offsets.map(|offset| (offset, bytes.as_slice())).collect();
                    self.volume.write_pieces(&self.file, &pieces)?;
                    done.moved_bytes += PIECE_COUNT * PIECE_BYTES as u64;
                }
                Work::Create => {
                    let name = self.dir.join(format!("new-{:x}", fastrand::u128(..)));
                    let file = self.volume.create(&name, 0o644, true)?;
                    self.volume.close(file)?;
                }
                Work::Byte => {
                    self.volume.read_at(&self.file, Piece { file_offset: 0, piece_bytes: 1 })?;
                }
            }
            done.op_count += 1;
            at = (at + PIECE_COUNT * PIECE_BYTES as u64) % file_bytes;
        }
        done.seconds = began.elapsed().as_secs_f64();
        Ok(done)
    }
}
