//! The threads of a server in its cluster, and their calls of etcd. What is decided is in `registry`:
//! [`Start`], [`Keep`], [`Own::judge`].
//!
//! ```text
//! begin ─▶ thread "cluster lease": keeps the lease; begins another one when etcd was away for long
//!      └─▶ thread "cluster map":   follows the registry ─▶ Waker::set_map of each lane
//! ```
//! No request waits for any of this. Invariant: while etcd is away the server goes on with what it
//! knows; it ends by itself only if the registry says that a copy of its store was started.

use super::ask::{etcd, existing, failed, remembered};
use super::seen::Seen;
use crate::lanes::ProcessEvent;
use crate::questions::Lanes;
use anyhow::{Context as _, Result, bail};
use disk::Member;
use registry::{
    Access, Alive, Answer, Call, Cluster, Etcd, KEEP_MS, Keep, LeaseId, News, Next, Own,
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

/// A server in its cluster, until it is dropped.
pub(crate) struct Membership {
    pub(crate) server: ServerId,
    /// With this start in it.
    pub(crate) map: Map,
    fs: FsUuid,
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
        let starting = Starting { own: own.clone(), store: shown, first, at: (address, lanes) };
        let Some(lease) = asking.begin(Start::new(starting))? else { return Ok(None) };
        store::remember_cluster(store.path(), &remembered(access)?)?;
        // etcd may have been restored from an older copy just now.
        let Some(cluster) = asking.entries()? else { return Ok(None) };
        let map = match own.judge(&cluster, MapEpoch(0)) {
            News::Newer(map) => map,
            News::Overtaken(line) => bail!("{line}"),
            News::Nothing | News::NoMap => {
                bail!("the registry's entries are no map of servers and shards")
            }
        };
        let fault = Arc::new(Fault { line: OnceLock::new(), on_fault: Box::new(on_fault) });
        let (ends, ended) = channel();
        let keep = Keep::new(own.clone(), lease);
        let keeper = Keeper { etcd, fs, keep, fault: fault.clone() };
        let thread = Builder::new().name("cluster lease".to_owned());
        let keeper = thread.spawn(move || keeper.run(&ended)).context("cannot start a thread")?;
        let (ends, keeper, access) = (Some(ends), Some(keeper), access.clone());
        Ok(Some(Self { server, map, fs, access, own, ends, keeper, fault }))
    }

    /// Gives the lanes each newer map from now on.
    /// Returns what is seen of the cluster meanwhile.
    pub(crate) fn follow(&self, lanes: Lanes) -> Result<Seen> {
        let (etcd, fs) = (etcd(&self.access)?, self.fs);
        let (own, fault, epoch) = (self.own.clone(), self.fault.clone(), self.map.epoch());
        let seen = Seen::new(self.server);
        let mut followed =
            Followed { lanes, own, fault, epoch, is_away: false, seen: seen.clone() };
        let thread = Builder::new().name("cluster map".to_owned());
        let spawned = thread.spawn(move || {
            follow(&etcd, fs.0, |step| {
                followed.take(&step);
                ControlFlow::Continue(())
            });
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
                Next::Done(lease) => return Ok(Some(lease)),
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
    is_away: bool,
    seen: Seen,
}

impl Followed {
    fn take(&mut self, step: &Step<'_>) {
        let cluster = match step {
            Step::Is(cluster) => cluster,
            Step::Fails(error) => {
                self.is_away = true;
                self.seen.fails();
                return warn!(
                    "{error}. Files are served as before; a server that starts waits until it is back"
                );
            }
        };
        if std::mem::take(&mut self.is_away) {
            info!("etcd answers again");
        }
        self.seen.is(cluster);
        match self.own.judge(cluster, self.epoch) {
            News::Nothing => {}
            News::Newer(map) => {
                self.epoch = map.epoch();
                self.lanes.set_map(&map);
            }
            News::NoMap => {
                warn!("the registry's entries are no map of servers and shards: they are not used");
            }
            News::Overtaken(line) => self.fault.set(line),
        }
    }
}
