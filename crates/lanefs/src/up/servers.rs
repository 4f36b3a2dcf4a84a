//! The servers of `up --servers N`: a cluster on one machine, with an etcd of its own.
//!
//! What the first server has in PATH, the others have in PATH-2, PATH-3 and so on, and etcd in PATH-etcd.
//! Invariant: etcd ends behind the servers, at the latest with this process.

use super::place::{Place, bind};
use crate::args::SERVER_COUNT_MAX;
use crate::exit::Exit;
use crate::{background, cluster};
use anyhow::{Context as _, Result, bail};
use registry::{LocalError, LocalEtcd};
use rustix::fs::Mode;
use rustix::process::umask;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use store::Shape;
use tracing::warn;

/// How often it is looked whether etcd runs.
const LOOK: Duration = Duration::from_secs(1);

/// A cluster beside the first server.
pub(crate) struct Cluster {
    /// Where etcd is.
    pub(crate) url: String,
    /// The servers from the second one on.
    pub(crate) further: Vec<Place>,
    _etcd: KeptEtcd,
}

/// How many servers a store has: as many as are asked for, or as it had before.
pub(crate) fn count(first: &Path, asked: Option<u16>) -> Result<u16> {
    let is_there = |number: &u16| store_of(first, *number).exists();
    let known = (2..=SERVER_COUNT_MAX).take_while(is_there).last();
    let (known, asked) = (known.unwrap_or(1), asked.unwrap_or(1));
    if known > 1 && asked > 1 && asked < known {
        let line = format!(
            "{} has {known} servers already, and none can be taken away: --servers {known}, or more",
            first.display()
        );
        return Err(Exit::usage(line).into());
    }
    Ok(known.max(asked))
}

/// The store of a further server.
fn store_of(first: &Path, number: u16) -> PathBuf {
    background::beside(first, &format!("-{number}"))
}

impl Cluster {
    /// Starts etcd, and makes what is missing of the servers' stores. They listen where the first one does.
    pub(crate) fn start(
        (first, at): (&Path, SocketAddr),
        shape: &Shape,
        server_count: u16,
    ) -> Result<Self> {
        if at.ip().is_unspecified() {
            let line = format!(
                "--listen {at}: servers of a cluster reach each other by it: name one address of this host"
            );
            return Err(Exit::usage(line).into());
        }
        // As `serve` makes them.
        let before = umask(Mode::from_raw_mode(0o022));
        // It is open until etcd runs: the data of an etcd that runs already are locked, and it would wait.
        let mut store = store::open_or_create(first, shape)?;
        let etcd = KeptEtcd::start(&background::beside(first, "-etcd"))?;
        let mut made = Self { url: etcd.url.clone(), further: Vec::new(), _etcd: etcd };
        cluster::make(&mut store, &made.url)?;
        drop(store);
        for number in 2..=server_count {
            let store = store_of(first, number);
            cluster::extend(first, &store, &made.url)?;
            let listener = bind(&SocketAddr::new(at.ip(), 0).to_string(), "--listen")?;
            let address = listener.local_addr()?;
            made.further.push(Place { store, listener, address });
        }
        umask(before);
        Ok(made)
    }
}

/// An etcd that is started again when it has ended by itself; its thread.
struct KeptEtcd {
    url: String,
    /// Dropped to end it.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeptEtcd {
    fn start(data: &Path) -> Result<Self> {
        let (data, at) = (data.to_owned(), [free_address()?, free_address()?]);
        let (ends, ended) = channel();
        let (started, is_started) = channel();
        let thread = Builder::new().name("etcd".to_owned());
        let keep = move || keep(&data, at, &started, &ended);
        let thread = thread.spawn(keep).context("cannot start a thread")?;
        let mut kept = Self { url: String::new(), ends: Some(ends), thread: Some(thread) };
        kept.url = match is_started.recv()? {
            Ok(url) => url,
            Err(LocalError::NotInstalled) => bail!(
                "--servers needs etcd, and it is not installed: `apt install etcd-server` does that on Debian"
            ),
            Err(error) => return Err(error.into()),
        };
        Ok(kept)
    }
}

impl Drop for KeptEtcd {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // A panic ends the process.
            let _ended = thread.join();
        }
    }
}

/// Runs etcd until `ended` is closed. While it is away, files are served.
fn keep(
    data: &Path,
    at: [SocketAddr; 2],
    started: &Sender<Result<String, LocalError>>,
    ended: &Receiver<()>,
) {
    let start = || LocalEtcd::start(data, at[0], at[1]);
    let mut etcd = match start() {
        Ok(etcd) => etcd,
        // It is waited for.
        Err(error) => return drop(started.send(Err(error))),
    };
    // As above.
    drop(started.send(Ok(etcd.url().to_owned())));
    while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        if !etcd.has_ended() {
            continue;
        }
        warn!("etcd has ended; starting it again");
        match start() {
            Ok(again) => etcd = again,
            Err(error) => warn!("{error}"),
        }
    }
}

/// An address of loopback that is free now.
fn free_address() -> Result<SocketAddr> {
    let any = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0);
    let listener = TcpListener::bind(any).context("no port of loopback is free")?;
    Ok(listener.local_addr()?)
}
