//! `fuse-null`: the cost of the kernel's part of a request, with a file system that has no
//! contents.
//!
//! Plain, and with an exchange over loopback for every request that a mount sends its server: the
//! limit of a real mount. The other end of the exchange is a process of its own on the lane's CPU,
//! as a server on the same machine is.

pub(crate) mod mounted;

pub use mounted::{NULL_COMMAND, NULL_READY};

use crate::generator::WARM_PART;
use crate::load::Tally;
use crate::null::FILE_NAME;
use crate::plan::Options;
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::Sample;
use crate::samples::fill;
use crate::server::Home;
use crate::usage::Usage;
use anyhow::{Context as _, Result, ensure};
use mounted::{Exchange, Mounted};
use ring::{Transport, pin_to_core};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "fuse-null";
/// Lengths of the reads that are measured.
pub const NULL_READ_BYTES: [usize; 2] = [4096, 1 << 20];

const PAGE_BYTES: usize = 4096;

/// The operation that the caller repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    /// Attributes, past the kernel's cache.
    Statx,
    OpenClose,
    /// Past the page cache.
    Read(usize),
}

impl Op {
    const ALL: [Self; 4] = [
        Self::Statx,
        Self::OpenClose,
        Self::Read(NULL_READ_BYTES[0]),
        Self::Read(NULL_READ_BYTES[1]),
    ];

    fn text(self) -> String {
        match self {
            Self::Statx => "statx".to_owned(),
            Self::OpenClose => "open+close".to_owned(),
            Self::Read(bytes) => format!("read-{}KiB", bytes / 1024),
        }
    }
}

/// A contender.
#[derive(Clone, Copy, Debug)]
struct Contender {
    /// Index of its mount.
    mount: usize,
    /// The caller's core.
    core: u16,
    op: Op,
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let lane_core = home.cores.server[0];
    let uring = Transport::best(home.options.driver) == Transport::Uring;
    let mut mounts = Vec::new();
    let transports = [(Transport::Uring, uring), (Transport::Classic, true)];
    for (transport, _) in transports.into_iter().filter(|(_, allowed)| *allowed) {
        for exchange in [Exchange::None, Exchange::Apart] {
            let dir = home.path().join(format!("{transport:?}-{exchange:?}"));
            let at = (home.options.driver, transport, lane_core);
            mounts.push(Mounted::start(&program, dir, at, (exchange, &[]))?);
        }
    }
    let contenders = contenders(mounts.len(), [lane_core, home.cores.generator]);
    let measured = measure_all(home, &mounts, &contenders);
    // Back to the load's CPU.
    home.cores.go_to_generator()?;
    let samples = measured?;
    let named = contenders.iter().zip(&samples);
    let mut rows: Vec<Row> = named
        .map(|(contender, samples)| {
            let place = if contender.core == lane_core { "same-core" } else { "other-core" };
            let mount = &mounts[contender.mount];
            let row = format!("{} {} {place}{}", mount.how(), contender.op.text(), mount.echo());
            let mut row = Row::new(NAME, row);
            fill(&mut row, samples);
            // A read is counted by operation, like the others.
            (row.cpu_s_per_gb, row.switches_per_mb) = (None, None);
            row
        })
        .collect();
    if let Some(first) = rows.first_mut().filter(|_| !uring) {
        first.note = Some(
            "no rows of io_uring: the kernel's enable_uring is not Y, or lanes are on epoll"
                .to_owned(),
        );
    }
    Ok(rows)
}

fn contenders(mount_count: usize, cores: [u16; 2]) -> Vec<Contender> {
    let mut cores = cores.to_vec();
    cores.dedup();
    let mut contenders = Vec::new();
    for mount in 0..mount_count {
        for op in Op::ALL {
            contenders.extend(cores.iter().map(|&core| Contender { mount, core, op }));
        }
    }
    contenders
}

fn measure_all(
    home: &Home,
    mounts: &[Mounted],
    contenders: &[Contender],
) -> Result<Vec<Vec<Sample>>> {
    let options = &home.options;
    let progress = Progress::new(NAME);
    progress.begin(contenders.len() * options.round_count);
    let samples = alternate(contenders.len(), options.round_count, |index, _| {
        let Contender { mount, core, op } = contenders[index];
        let mount = &mounts[mount];
        let what = format!("{} {}{}", mount.how(), op.text(), mount.echo());
        progress.step(&what);
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        measure(mount, op, options).with_context(|| format!("{NAME}: {what}"))
    })?;
    progress.end();
    Ok(samples)
}

fn measure(mount: &Mounted, op: Op, options: &Options) -> Result<Sample> {
    let mut caller = Caller::new(mount.dir.join(FILE_NAME), op)?;
    let measured = Duration::from_secs_f64(options.seconds);
    let warm = Duration::from_secs_f64(options.seconds * WARM_PART);
    let start = Instant::now();
    while start.elapsed() < warm {
        options.interrupt.check()?;
        caller.call()?;
    }
    let mut tally = Tally::new()?;
    let before = (mount.usage()?, Usage::of_thread()?);
    let start = Instant::now();
    let mut last = start;
    while last - start < measured {
        options.interrupt.check()?;
        caller.call()?;
        let now = Instant::now();
        tally.latency.saturating_record(u64::try_from((now - last).as_nanos())?);
        tally.op_count += 1;
        last = now;
    }
    let after = (mount.usage()?, Usage::of_thread()?);
    tally.measured_ns = u64::try_from((last - start).as_nanos())?;
    if let Op::Read(bytes) = op {
        tally.moved_bytes = tally.op_count * u64::try_from(bytes)?;
    }
    let busy_ns = after.1.since(&before.1).cpu_ns;
    let busy = Duration::from_nanos(busy_ns).as_secs_f64() / (last - start).as_secs_f64();
    Ok(Sample { tally, usage: Some(after.0.since(&before.0)), busy })
}

/// A program that uses the mount.
struct Caller {
    path: PathBuf,
    op: Op,
    /// Open for reading past the page cache.
    file: OwnedFd,
    /// A buffer with an aligned part: the kernel splits unaligned reads.
    buffer: Vec<u8>,
}

impl Caller {
    fn new(path: PathBuf, op: Op) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = open(&path, flags, Mode::empty()).context("cannot open the file")?;
        let read_bytes = if let Op::Read(bytes) = op { bytes } else { 0 };
        Ok(Self { path, op, file, buffer: vec![0; read_bytes + PAGE_BYTES] })
    }

    fn call(&mut self) -> Result<()> {
        match self.op {
            Op::Statx => {
                statx(CWD, &self.path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
            }
            Op::OpenClose => {
                drop(open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
            }
            Op::Read(bytes) => {
                let start = self.buffer.as_ptr().align_offset(PAGE_BYTES);
                let read =
                    rustix::io::pread(&self.file, &mut self.buffer[start..start + bytes], 0)?;
                ensure!(read == bytes, "{read} bytes of {bytes} came");
            }
        }
        Ok(())
    }
}
