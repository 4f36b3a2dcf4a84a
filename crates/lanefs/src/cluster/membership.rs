//! The threads of a server in its cluster, and their calls of etcd. What is decided is in `registry`:
//! [`Start`], [`Keep`], [`Own::judge`].
//!
//! ```text
//! begin ─▶ thread "cluster lease": keeps the lease; begins another one when etcd was away for long
//!      └─▶ thread "cluster map":   follows the registry ─▶ Waker::set_map of each lane
//! ```
//! No request waits for any of this. Invariant: while etcd is away the server goes on with what it
//! knows; it ends by itself only if the registry says that a copy of its store was started. What a
//! restored etcd has lost of what the server has used is put back before its maps are used.

use super::ask::{etcd, existing, failed, remembered};
use super::seen::Seen;
use super::used::Used;
use crate::lanes::ProcessEvent;
use crate::questions::Lanes;
use anyhow::{Context as _, Result, bail};
use disk::Member;
use registry::{
    Access, Alive, Answer, Call, Cluster, Etcd, KEEP_MS, Keep, LeaseId, Loss, News, Next, Own,
    RegistryError, Start, Starting, Step, follow,
};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use store::Store;
use tracing::{info, warn};
use wire::{FsUuid, Map, MapEpoch, ServerId};

/// The pause until a start looks again whether an earlier one has ended, or etcd is back.
const LOOK: Duration = Duration::from_millis(100);
/// The pause until the registry is followed anew when what it says could not be used.
const PAUSE: Duration = Duration::from_millis(500);

/// A server in its cluster, until it is dropped.
pub(crate) struct Membership {
    pub(crate) server: ServerId,
    /// With this start in it.
    pub(crate) map: Map,
    fs: FsUuid,
    used: Used,
    access: Access,
    own: Own,
    /// Dropped to end the lease's thread.
    ends: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    fault: Arc<Fault>,
}

/// Why the server may not go on, and who has to know.
struct Fault {
    line: OnceLock<String>,
    on_fault: Box<dyn Fn() + Send + Sync>,
}

impl Fault {
    fn set(&self, line: String) {
        // The first reason is told.
        let _known = self.line.set(line);
        (self.on_fault)();
    }
}

/// What the lease's thread has.
struct Keeper {
    etcd: Etcd,
    fs: FsUuid,
    keep: Keep,
    fault: Arc<Fault>,
}

impl Membership {
    /// Begins this start of a store's server, which is reached at an address and has so many lanes.
    /// It waits while etcd is away. `events`: none if they ask the process to end meanwhile.
    /// `on_fault` is called once the server may not go on.
    pub(crate) fn begin(
        (store, member): (&Store, Member),
        access: &Access,
        (address, lanes): (SocketAddr, u16),
        events: &Receiver<ProcessEvent>,
        on_fault: impl Fn() + Send + Sync + 'static,
    ) -> Result<Option<Self>> {
        let (etcd, fs, server) = (etcd(access)?, store.superblock().fs, member.server);
        let mut asking = Asking { etcd: &etcd, fs, events, is_away: false };
        if asking.entries()?.is_none() {
            return Ok(None);
        }
        let alive = Alive { uuid: hex::encode(member.store), boot_id: store.boot_id() };
        let own = Own { server, alive };
        let (shown, first) =
            (store.path().display().to_string(), (member.first_meta, member.first_data));
        let mut used = Used::of(store.path())?;
        let (at, known) = ((address, lanes), used.known().clone());
        let starting = Starting { own: own.clone(), store: shown, first, at, known };
        let Some(lease) = asking.begin(Start::new(starting))? else { return Ok(None) };
        store::remember_cluster(store.path(), &remembered(access)?)?;
        let Some(map) = asking.first_map(&own, &mut used)? else { return Ok(None) };
        let fault = Arc::new(Fault { line: OnceLock::new(), on_fault: Box::new(on_fault) });
        let (ends, ended) = channel();
        let keep = Keep::new(own.clone(), lease);
        let keeper = Keeper { etcd, fs, keep, fault: fault.clone() };
        let thread = Builder::new().name("cluster lease".to_owned());
        let keeper = thread.spawn(move || keeper.run(&ended)).context("cannot start a thread")?;
        let (ends, keeper, access) = (Some(ends), Some(keeper), access.clone());
        Ok(Some(Self { server, map, fs, used, access, own, ends, keeper, fault }))
    }

    /// Gives the lanes each newer map from now on.
    /// Returns what is seen of the cluster meanwhile.
    pub(crate) fn follow(&self, lanes: Lanes) -> Result<Seen> {
        let (etcd, fs) = (etcd(&self.access)?, self.fs);
        let (own, fault, epoch) = (self.own.clone(), self.fault.clone(), self.map.epoch());
        let (seen, used) = (Seen::new(self.server), self.used.clone());
        let (lines, shown) = (Lines::default(), seen.clone());
        let mut followed = Followed { lanes, own, fault, epoch, used, lines, seen: shown };
        let thread = Builder::new().name("cluster map".to_owned());
        let spawned = thread.spawn(move || {
            loop {
                follow(&etcd, fs.0, |step| followed.take(&step, (&etcd, fs)));
                sleep(PAUSE);
            }
        });
        spawned.context("cannot start a thread")?;
        Ok(seen)
    }

    /// Ends it: the server may start again at once. An error if it had to end.
    pub(crate) fn end(mut self) -> Result<()> {
        self.leave();
        match self.fault.line.get() {
            Some(fault) => bail!("{fault}"),
            None => Ok(()),
        }
    }

    fn leave(&mut self) {
        self.ends = None;
        if let Some(keeper) = self.keeper.take() {
            // A panic ends the process.
            let _ended = keeper.join();
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What a start asks of etcd. Each result is none if the process is to end.
struct Asking<'a> {
    etcd: &'a Etcd,
    fs: FsUuid,
    events: &'a Receiver<ProcessEvent>,
    is_away: bool,
}

impl Asking<'_> {
    /// Performs the calls of a start until it has begun.
    fn begin(&mut self, mut start: Start) -> Result<Option<LeaseId>> {
        let (since, mut answer, mut waits) = (Instant::now(), None, false);
        loop {
            let now_ms = u64::try_from(since.elapsed().as_millis())?;
            match start.next(now_ms, answer.take()).map_err(failed)? {
                Next::Call(call) => match self.perform(&call)? {
                    None => return Ok(None),
                    answered => answer = answered,
                },
                Next::Done(lease) => {
                    if let Some(line) = start.loss() {
                        warn!("{line}. This server has put that back");
                    }
                    return Ok(Some(lease));
                }
                Next::Pause => {
                    if !std::mem::replace(&mut waits, true) {
                        let server = start.own().server;
                        info!(
                            "an earlier start of server {server} has not ended in etcd yet: waiting, some seconds"
                        );
                    }
                    if self.is_to_end() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// What the registry has of the cluster, which must be there.
    fn entries(&mut self) -> Result<Option<Cluster>> {
        match self.perform(&Call::Read)? {
            Some(Answer::Entries(cluster)) => existing(cluster, self.etcd, self.fs).map(Some),
            Some(answer) => bail!("etcd was asked for entries, and answers {answer:?}"),
            None => Ok(None),
        }
    }

    /// The first map of a start that has begun. etcd may have been restored just now.
    fn first_map(&mut self, own: &Own, used: &mut Used) -> Result<Option<Map>> {
        loop {
            let Some(cluster) = self.entries()? else { return Ok(None) };
            match own.judge(&cluster, (used.known(), MapEpoch(0))) {
                News::Newer(map) => {
                    used.record(&cluster)?;
                    return Ok(Some(map));
                }
                News::Lacks(Loss { writes, line }) => {
                    warn!("{line}. This server puts that back");
                    if self.perform(&Call::Swap(writes))?.is_none() {
                        return Ok(None);
                    }
                }
                News::Overtaken(line) | News::Differs(line) => bail!("{line}"),
                News::Nothing | News::NoMap => {
                    bail!("the registry's entries are no map of servers and shards")
                }
            }
        }
    }

    /// Performs a call, when etcd is there. Whether a transaction was made to which there is no answer
    /// the next start finds out.
    fn perform(&mut self, call: &Call) -> Result<Option<Answer>> {
        loop {
            let error = match self.etcd.perform(self.fs.0, call) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error @ RegistryError::Away { .. }) if !matches!(call, Call::Swap(_)) => error,
                Err(error) => return Err(failed(error)),
            };
            if !std::mem::replace(&mut self.is_away, true) {
                warn!("{error}. This server starts once it is back");
            }
            if self.is_to_end() {
                return Ok(None);
            }
        }
    }

    /// Pauses; whether the process is to end.
    fn is_to_end(&self) -> bool {
        !matches!(self.events.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout))
    }
}

impl Keeper {
    fn run(mut self, ended: &Receiver<()>) {
        let mut is_away = false;
        let pause = Duration::from_millis(KEEP_MS);
        while matches!(ended.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            match self.keep() {
                Ok(()) => is_away = false,
                Err(RegistryError::State(line)) => {
                    self.fault.set(line);
                    return;
                }
                // The thread that follows the registry says so.
                Err(_) => is_away = true,
            }
        }
        if !is_away {
            // Otherwise it ends by itself.
            let _revoked = self.etcd.revoke(self.keep.lease());
        }
    }

    /// Keeps the lease, or begins another one in its place.
    fn keep(&mut self) -> Result<(), RegistryError> {
        let mut answer: Option<Answer> = None;
        loop {
            match self.keep.next(answer.take())? {
                Next::Call(call) => answer = Some(self.etcd.perform(self.fs.0, &call)?),
                Next::Pause => sleep(LOOK),
                Next::Done(()) => return Ok(()),
            }
        }
    }
}

/// What is known of the registry.
struct Followed {
    lanes: Lanes,
    own: Own,
    fault: Arc<Fault>,
    epoch: MapEpoch,
    used: Used,
    lines: Lines,
    seen: Seen,
}

/// What was said last.
#[derive(Default)]
struct Lines {
    is_away: bool,
    /// Why the registry is not used.
    unused: String,
}

impl Lines {
    /// Says why the registry is not used, unless that was said already.
    fn unused(&mut self, line: String) {
        if self.unused != line {
            warn!("{line}");
            self.unused = line;
        }
    }
}

impl Followed {
    /// Whether the registry is to be followed on, or anew after a pause.
    fn take(&mut self, step: &Step<'_>, (etcd, fs): (&Etcd, FsUuid)) -> ControlFlow<()> {
        let cluster = match step {
            Step::Is(cluster) => cluster,
            Step::Fails(error) => {
                self.lines.is_away = true;
                self.seen.fails();
                warn!(
                    "{error}. Files are served as before; a server that starts waits until it is back"
                );
                return ControlFlow::Continue(());
            }
        };
        if std::mem::take(&mut self.lines.is_away) {
            info!("etcd answers again");
        }
        self.seen.is(cluster);
        match self.own.judge(cluster, (self.used.known(), self.epoch)) {
            News::Nothing => {}
            News::Newer(map) => return self.take_map(cluster, &map),
            News::Lacks(loss) => return self.put_back(loss, (etcd, fs)),
            News::Differs(line) => self.lines.unused(format!(
                "{line}. This server goes on with what it knows, learns of no other server's start, and \
                 will not start again"
            )),
            News::NoMap => {
                warn!("the registry's entries are no map of servers and shards: they are not used");
            }
            News::Overtaken(line) => self.fault.set(line),
        }
        ControlFlow::Continue(())
    }

    /// The lanes learn of a map, when the store remembers what it has.
    fn take_map(&mut self, cluster: &Cluster, map: &Map) -> ControlFlow<()> {
        if let Err(error) = self.used.record(cluster) {
            self.lines.unused(format!("a newer map of the cluster is not used yet: {error:#}"));
            return ControlFlow::Break(());
        }
        self.lines.unused.clear();
        self.epoch = map.epoch();
        self.lanes.set_map(map);
        ControlFlow::Continue(())
    }

    /// Puts back what the registry has lost.
    fn put_back(&mut self, loss: Loss, (etcd, fs): (&Etcd, FsUuid)) -> ControlFlow<()> {
        let Loss { writes, line } = loss;
        match etcd.perform(fs.0, &Call::Swap(writes)) {
            Ok(Answer::Swapped(true)) => warn!("{line}. This server has put that back"),
            // Another change came between, and is seen next.
            Ok(_) => {}
            Err(error) => {
                self.lines.unused(format!("{line}. This server cannot put that back yet: {error}"));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}
