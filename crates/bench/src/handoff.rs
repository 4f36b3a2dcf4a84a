//! `handoff`: the cost of passing work to a sleeping thread, on another CPU and on the same.
//!
//! Two threads send a number of items to and fro; each direction is a hop. An operation is an item,
//! to show what more items a wakeup save; times are of hops.

mod ends;

use crate::generator::WARM_PART;
use crate::load::Tally;
use crate::plan::Options;
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::Sample;
use crate::samples::fill;
use crate::server::Home;
use crate::usage::Usage;
use anyhow::{Context as _, Result, anyhow};
use ends::{Condvar, Lane, Side};
use ring::handoff::Wake;
use ring::{DriverChoice, DriverKind, Mesh, pin_to_core};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "handoff";
/// Items of one wakeup.
const ITEM_COUNTS: [usize; 3] = [1, 8, 64];
/// A hop takes microseconds: longer measurements show nothing more.
const SECONDS_MAX: f64 = 0.25;
/// Where neither thread sleeps, reading the clock would be a good part of a hop.
const ROUNDS_A_READING: u32 = 64;
/// An item that begins the measured time.
const BEGIN: u64 = u64::MAX - 1;
/// The last item.
const END: u64 = u64::MAX;

/// The mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// A vector behind a mutex, and a condition variable.
    Condvar,
    /// Our queue and one of `ring`'s wakeups.
    Queue(Wake),
    /// Messages between two lanes: turns, events, actions and all.
    Lane,
}

impl Way {
    const ALL: [Self; 7] = [
        Self::Condvar,
        Self::Queue(Wake::Futex),
        Self::Queue(Wake::Eventfd),
        Self::Queue(Wake::MsgRing),
        Self::Queue(Wake::Mailbox),
        Self::Lane,
        Self::Queue(Wake::Spin),
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Condvar => "condvar",
            Self::Queue(Wake::Futex) => "futex",
            Self::Queue(Wake::Eventfd) => "eventfd",
            Self::Queue(Wake::MsgRing) => "msg-ring",
            Self::Queue(Wake::Mailbox) => "mailbox",
            Self::Queue(Wake::Spin) => "spin",
            Self::Lane => "lane",
        }
    }

    fn spins(self) -> bool {
        self == Self::Queue(Wake::Spin)
    }
}

/// A contender.
#[derive(Clone, Copy, Debug)]
struct Contender {
    way: Way,
    /// The CPU of the thread that sends first, and of the other.
    cores: [u16; 2],
    item_count: usize,
}

impl Contender {
    fn row(&self) -> Row {
        let cores = if self.cores[0] == self.cores[1] { "1-core" } else { "2-cores" };
        let items =
            if self.item_count == 1 { "1-item" } else { &format!("{}-items", self.item_count) };
        Row::new(NAME, format!("{} {cores} {items}", self.way.text()))
    }
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let cores = [home.cores.generator, home.cores.server[0]];
    let has_ring = DriverChoice::Only(DriverKind::IoUring).find().is_ok();
    let mut contenders = contenders(cores);
    contenders.retain(|contender| has_ring || contender.way != Way::Queue(Wake::MsgRing));
    let options = &home.options;
    let progress = Progress::new(NAME);
    progress.begin(contenders.len() * options.round_count);
    let samples = alternate(contenders.len(), options.round_count, |index, _| {
        let contender = &contenders[index];
        let row = contender.row().row;
        progress.step(&row);
        measure(contender, options).with_context(|| format!("{NAME}: {row}"))
    })?;
    progress.end();
    let named = contenders.iter().zip(&samples);
    let mut rows: Vec<Row> = named.map(|(contender, samples)| row_of(contender, samples)).collect();
    if let Some(first) = rows.first_mut().filter(|_| !has_ring) {
        first.note = Some("no rows of msg-ring: io_uring cannot be used here".to_owned());
    }
    Ok(rows)
}

/// All mechanisms on two CPUs if there are two, then on one; spinning on one makes no sense.
fn contenders(cores: [u16; 2]) -> Vec<Contender> {
    let mut places = vec![cores, [cores[0]; 2]];
    places.dedup();
    let mut contenders = Vec::new();
    for cores in places {
        for way in Way::ALL {
            let fits = cores[0] != cores[1] || !way.spins();
            let counts = ITEM_COUNTS.iter().filter(|_| fits);
            contenders.extend(counts.map(|&item_count| Contender { way, cores, item_count }));
        }
    }
    contenders
}

fn row_of(contender: &Contender, samples: &[Sample]) -> Row {
    let mut row = contender.row();
    fill(&mut row, samples);
    // There is no server and no load, but two equal threads.
    (row.server_busy, row.generator_busy) = (None, None);
    if contender.way.spins() {
        // The times are means of many hops.
        (row.p50_us, row.p99_us, row.p999_us) = (None, None, None);
    }
    row
}

fn measure(contender: &Contender, options: &Options) -> Result<Sample> {
    let spin_us = options.spin_us.unwrap_or(0);
    let game = Repetition::new(contender, options);
    match contender.way {
        Way::Condvar => {
            let [here, there] = Condvar::pair();
            game.play(|| Ok(here), || Ok(there))
        }
        Way::Queue(wake) => {
            let [here, there] = ring::handoff::pair(wake)?;
            game.play(|| Ok(here.start()?), || Ok(there.start()?))
        }
        Way::Lane => {
            let driver = options.driver;
            let mailboxes = Mesh::mailboxes(2)?.try_into();
            let [here, there]: [_; 2] =
                mailboxes.map_err(|_| anyhow!("two lanes have two mailboxes"))?;
            game.play(
                move || Lane::start(here, driver, spin_us),
                move || Lane::start(there, driver, spin_us),
            )
        }
    }
}

/// One repetition of a contender.
struct Repetition<'a> {
    contender: &'a Contender,
    options: &'a Options,
    measured: Duration,
    warm: Duration,
}

/// Tells the other thread that this one is ready, and waits for it. An error of one ends both.
struct Ready(Sender<()>, Receiver<()>);

impl Ready {
    fn pair() -> [Self; 2] {
        let (here, there) = (channel(), channel());
        [Self(here.0, there.1), Self(there.0, here.1)]
    }

    fn wait(self) -> Result<()> {
        let missing = "the other thread did not start";
        self.0.send(()).map_err(|_| anyhow!(missing))?;
        self.1.recv().context(missing)
    }
}

impl<'a> Repetition<'a> {
    fn new(contender: &'a Contender, options: &'a Options) -> Self {
        let seconds = options.seconds.min(SECONDS_MAX);
        let measured = Duration::from_secs_f64(seconds);
        let warm = Duration::from_secs_f64(seconds * WARM_PART);
        Self { contender, options, measured, warm }
    }

    fn play<S: Side>(
        &self,
        here: impl FnOnce() -> Result<S> + Send,
        there: impl FnOnce() -> Result<S> + Send,
    ) -> Result<Sample> {
        let [here_ready, there_ready] = Ready::pair();
        let [here_core, there_core] = self.contender.cores;
        let item_count = self.contender.item_count;
        thread::scope(|scope| {
            let throwing = scope.spawn(move || {
                pin_to_core(here_core)?;
                let mut side = here()?;
                here_ready.wait()?;
                let thrown = self.throw(&mut side);
                // The other thread must end in any case.
                side.send_last(&vec![END; item_count])?;
                thrown
            });
            let returning = scope.spawn(move || {
                pin_to_core(there_core)?;
                let mut side = there()?;
                there_ready.wait()?;
                send_back(&mut side, item_count)
            });
            let failed = |_| anyhow!("a thread panicked");
            let thrown = throwing.join().map_err(failed)?;
            let returned = returning.join().map_err(failed)?;
            let (tally, here) = thrown?;
            Ok(Sample { tally, usage: Some(here.plus(&returned?)), busy: 0.0 })
        })
    }

    fn throw(&self, side: &mut impl Side) -> Result<(Tally, Usage)> {
        let item_count = self.contender.item_count;
        let mut items = vec![0; item_count];
        let mut back = Vec::with_capacity(item_count);
        let mut round = |items: &[u64]| {
            side.send(items)?;
            back.clear();
            side.receive(&mut back, item_count)
        };
        let start = Instant::now();
        while start.elapsed() < self.warm {
            round(&items)?;
        }
        round(&vec![BEGIN; item_count])?;
        let before = Usage::of_thread()?;
        let mut tally = Tally::new()?;
        let round_count = if self.contender.way.spins() { ROUNDS_A_READING } else { 1 };
        let start = Instant::now();
        let mut last = start;
        while last - start < self.measured {
            self.options.interrupt.check()?;
            for _ in 0..round_count {
                items[0] = tally.op_count;
                round(&items)?;
                tally.op_count += 2 * item_count as u64;
            }
            let now = Instant::now();
            let hop = (now - last) / (2 * round_count);
            tally.latency.saturating_record(u64::try_from(hop.as_nanos())?);
            last = now;
        }
        tally.measured_ns = u64::try_from((last - start).as_nanos())?;
        Ok((tally, Usage::of_thread()?.since(&before)))
    }
}

/// Sends back the items. Returns the resources used from [`BEGIN`] to [`END`].
fn send_back(side: &mut impl Side, item_count: usize) -> Result<Usage> {
    let mut items = Vec::with_capacity(item_count);
    let mut before = Usage::of_thread()?;
    loop {
        items.clear();
        side.receive(&mut items, item_count)?;
        match items.first() {
            Some(&END) => return Ok(Usage::of_thread()?.since(&before)),
            Some(&BEGIN) => before = Usage::of_thread()?,
            Some(_) | None => {}
        }
        side.send(&items)?;
    }
}

#[cfg(test)]
mod tests;
