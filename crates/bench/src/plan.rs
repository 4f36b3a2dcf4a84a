//! The options of a run.

use anyhow::{Result, bail};
use ring::DriverKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::Secret;

/// The options of all benchmarks; each uses those that apply to it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Measured seconds of one repetition.
    pub seconds: f64,
    /// Repetitions.
    pub round_count: usize,
    /// Numbers of clients to try; empty for the benchmark's own.
    pub clients: Vec<u32>,
    /// Operations a client keeps under way; `None` for the benchmark's own.
    pub depth: Option<u32>,
    /// Lanes of the servers that are started.
    pub lane_count: u16,
    /// Most lanes, where their number varies; `None` for one per CPU.
    pub lane_count_max: Option<u16>,
    /// How long their lanes poll before they sleep, microseconds; `None` for their default.
    pub spin_us: Option<u32>,
    /// The driver of the lanes, of the servers and the limits; the load's is always the same.
    pub driver: DriverKind,
    /// Their lanes, and those of mounts, are pinned.
    pub pin: bool,
    /// Servers, mounts and loads share all CPUs.
    pub together: bool,
    /// They reply only when the change is durable.
    pub sync: bool,
    /// Where creates go; `None` for both.
    pub dirs: Option<Dirs>,
    /// echo: through so many threads with queues between them, besides.
    pub hops: Vec<u8>,
    /// The sharing mode of the servers that are started, or several to compare; empty for the
    /// default.
    pub shares: Vec<disk::Share>,
    /// Bytes of one read or write.
    pub piece_bytes: u32,
    /// Where the servers' stores are made and removed again.
    pub dir: PathBuf,
    /// A server elsewhere instead of servers of our own.
    pub remote: Option<Remote>,
    /// Set to end the run early.
    pub interrupt: Interrupt,
}

impl Options {
    /// Three short repetitions of a benchmark's own, for tests.
    #[cfg(test)]
    pub(crate) fn tiny(seconds: f64) -> Self {
        Self {
            seconds,
            round_count: 3,
            clients: Vec::new(),
            depth: None,
            lane_count: 1,
            lane_count_max: None,
            spin_us: None,
            pin: true,
            together: false,
            driver: ring::DriverChoice::Auto.find().map_or(DriverKind::Epoll, |found| found.kind),
            sync: false,
            dirs: None,
            hops: Vec::new(),
            shares: Vec::new(),
            piece_bytes: 1 << 20,
            dir: std::env::temp_dir(),
            remote: None,
            interrupt: Interrupt::default(),
        }
    }

    /// The size of a file: `bytes_max`, or an eighth of it in a run of less than a second, which
    /// only tries a benchmark out.
    pub(crate) fn file_bytes(&self, bytes_max: u64) -> u64 {
        if self.seconds < 1.0 { bytes_max / 8 } else { bytes_max }
    }

    /// The shapes to run: the benchmark's own, or those that were asked for.
    pub(crate) fn shapes(&self, own: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let depth_of = |depth: u32| self.depth.unwrap_or(depth);
        let own_depth = own.first().map_or(1, |shape| shape.1);
        let asked = self.clients.iter().map(|count| (*count, depth_of(own_depth)));
        let mut shapes: Vec<(u32, u32)> = if self.clients.is_empty() {
            own.iter().map(|(count, depth)| (*count, depth_of(*depth))).collect()
        } else {
            asked.collect()
        };
        shapes.dedup();
        shapes
    }
}

/// A server that runs already.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Where.
    pub address: SocketAddr,
    /// The secret that it shares with us.
    pub secret: Secret,
    /// The export to use.
    pub export: String,
}

/// Where creates go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dirs {
    /// Each client in a directory of its own (seed 003's test 3a).
    Own,
    /// All clients in one directory (3b).
    Shared,
}

impl Dirs {
    /// Its text in a row.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
        }
    }
}

/// Ends a run early, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Requests the end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if the end was requested.
    ///
    /// # Errors When it was.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted; nothing was left behind");
        }
        Ok(())
    }
}
