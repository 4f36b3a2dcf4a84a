//! `fair`: the rates of a few modest clients beside a greedy one, and without it. The modest ones read one
//! file's attributes, one request at a time each; the greedy one uses all its credits.
//!
//! Both are threads of this process. With two CPUs they share one and the server's lane has the other, so
//! the greedy client also takes time of this process.

use crate::generator::Generator;
use crate::getattr::make_file;
use crate::load::{Pieces, Work};
use crate::plan::{Interrupt, Options};
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::{Compare, compare, fill};
use crate::server::{Home, Server};
use crate::stream::{file_bytes, make_files, write_of};
use anyhow::{Context as _, Result};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use wire::InodeNo;

pub(crate) const NAME: &str = "fair";
/// The modest: clients, and requests under way of each.
const MODEST: (u32, u32) = (4, 1);

/// What the greedy one does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greed {
    Nothing,
    /// Attributes: connections, and requests under way of each.
    Getattr(u32, u32),
    /// Large writes.
    Write,
    /// Large reads.
    Read,
    /// Large reads whose replies it never receives.
    NoReceive,
}

const ALL: [Greed; 6] = [
    Greed::Nothing,
    Greed::Getattr(1, 64),
    Greed::Getattr(32, 64),
    Greed::Write,
    Greed::Read,
    Greed::NoReceive,
];

impl Greed {
    fn name(self) -> String {
        match self {
            Self::Nothing => "alone".to_owned(),
            Self::Getattr(clients, depth) => format!("beside {} getattrs", clients * depth),
            Self::Write => "beside 16 writes of 1 MiB".to_owned(),
            Self::Read => "beside 64 reads of 1 MiB".to_owned(),
            Self::NoReceive => "beside 64 reads nobody takes".to_owned(),
        }
    }

    const fn shape(self) -> (u32, u32) {
        match self {
            Self::Nothing => (0, 0),
            Self::Getattr(clients, depth) => (clients, depth),
            Self::Write => (1, 16),
            Self::Read | Self::NoReceive => (1, 64),
        }
    }
}

/// What the clients work on.
struct Ground<'a> {
    server: &'a Server,
    inode: InodeNo,
    files: Vec<InodeNo>,
    pieces: Pieces,
    bytes: Vec<u8>,
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    let server = home.server(NAME)?;
    let inode = make_file(&server)?;
    let bytes = vec![0x5a; 1 << 20];
    let files = make_files(&server, &bytes, (1, file_bytes(home)))?;
    let pieces = Pieces { file_bytes: file_bytes(home), piece_bytes: 1 << 20 };
    let ground = Ground { server: &server, inode, files, pieces, bytes };
    let mut modest = Generator::connect(&server, MODEST, options, |_| Ok(Work::Getattr { inode }))?;
    let progress = Progress::new(NAME);
    progress.begin(ALL.len() * options.round_count);
    let samples = alternate(ALL.len(), options.round_count, |index, _| {
        let greed = ALL[index];
        progress.step(&greed.name());
        if greed == Greed::Nothing {
            return modest.measure(options);
        }
        let interrupt = Interrupt::default();
        let its_options = Options { interrupt: interrupt.clone(), ..options.clone() };
        thread::scope(|scope| {
            let (begun, begun_receiver) = channel();
            let greedy = scope.spawn(|| be_greedy(greed, &ground, &its_options, begun));
            // A load that cannot begin returns its error when it is joined.
            let has_begun = begun_receiver.recv().is_ok();
            let sample = if has_begun { Some(modest.measure(options)) } else { None };
            interrupt.set();
            let ended = greedy.join().map_err(|_| anyhow::anyhow!("the greedy load panicked"))?;
            match sample {
                Some(sample) => sample.with_context(|| greed.name()),
                None => Err(ended.err().unwrap_or_else(|| anyhow::anyhow!("it did not begin"))),
            }
        })
    })?;
    progress.end();
    let mut rows = Vec::new();
    for (index, greed) in ALL.into_iter().enumerate() {
        let mut row = Row::new(NAME, greed.name());
        (row.clients, row.depth) = (Some(MODEST.0), Some(MODEST.1));
        row.lanes = server.lane_count.map(u32::from);
        fill(&mut row, &samples[index]);
        if index > 0 {
            compare(&mut row, &samples[index], ("alone", &samples[0]), Compare::P99);
        }
        // The server's counters include the greedy client's requests.
        (row.cpu_us_per_op, row.switches_per_op, row.exchanges_per_op) = (None, None, None);
        row.syscalls_per_op = None;
        rows.push(row);
    }
    Ok(rows)
}

/// Runs until it is interrupted; signals when it has begun.
fn be_greedy(
    greed: Greed,
    ground: &Ground<'_>,
    options: &Options,
    begun: Sender<()>,
) -> Result<()> {
    let (files, pieces) = (ground.files.clone(), ground.pieces);
    let mut load = Generator::connect(ground.server, greed.shape(), options, |ring| {
        Ok(match greed {
            Greed::Nothing | Greed::Getattr(..) => Work::Getattr { inode: ground.inode },
            Greed::Read | Greed::NoReceive => Work::Read { files, pieces },
            Greed::Write => write_of(ring, files, pieces, &ground.bytes)?,
        })
    })?;
    if greed == Greed::NoReceive {
        load.ask_and_stop_receiving(options)?;
        begun.send(()).ok();
        while options.interrupt.check().is_ok() {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        return Ok(());
    }
    begun.send(()).ok();
    // An interrupt ends it.
    while load.measure(options).is_ok() {}
    Ok(())
}
