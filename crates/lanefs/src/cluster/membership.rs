//! A server in its cluster: it begins its start in the registry, stays alive there, and gives its lanes
//! each newer map.
//!
//! ```text
//! begin ─▶ thread "cluster lease": keeps the lease; begins another one when etcd was away for long
//!      └─▶ thread "cluster map":   follows the registry ─▶ Waker::set_map of each lane
//! ```
//! No request waits for any of this. Invariant: while etcd is away the server goes on with what it
//! knows; it ends by itself only if the registry says that a copy of its store was started.

use super::ask::{etcd, failed, read, remembered};
use super::seen::Seen;
use crate::questions::Lanes;
use anyhow::{Context as _, Result, bail};
use disk::Member;
use registry::{Access, Alive, Cluster, Etcd, LeaseId, RegistryError, Step, follow};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use store::Store;
use tracing::{info, warn};
use wire::{FsUuid, Map, MapEpoch, ServerId};

/// How long a server counts as alive that says nothing.
const TTL_S: u32 = 5;
/// How often it says something.
const KEEP: Duration = Duration::from_secs(1);
/// When a start of before is still alive after this time, it is another process. An etcd that has
/// itself just started gives leases some seconds more.
const EARLIER_START: Duration = Duration::from_secs(TTL_S as u64 * 3);
const LOOK: Duration = Duration::from_millis(100);

/// A server in its cluster, until it is dropped.
pub(crate) struct Membership {
    pub(crate) server: ServerId,
    /// With this start in it.
    pub(crate) map: Map,
    fs: FsUuid,
    access: Access,
    alive: Alive,
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
    server: ServerId,
    alive: Alive,
    lease: LeaseId,
    fault: Arc<Fault>,
}

impl Membership {
    /// Begins this start of a store's server, which is reached at an address and has so many lanes.
    /// `on_fault` is called once the server may not go on.
    pub(crate) fn begin(
        (store, member): (&Store, Member),
        access: &Access,
        (address, lanes): (SocketAddr, u16),
        on_fault: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        let (etcd, fs, server) = (etcd(access)?, store.superblock().fs, member.server);
        let cluster = read(&etcd, fs)?;
        check_member(&cluster, store.path(), &member)?;
        let alive = Alive { uuid: hex::encode(member.store), boot_id: store.boot_id() };
        wait_for_earlier_start(&etcd, fs, server, &alive)?;
        let lease = etcd.grant(TTL_S).map_err(failed)?;
        let begun = registry::change(&etcd, fs.0, |cluster| {
            Ok(((), cluster.start(server, &alive, (address, lanes), lease)?))
        });
        begun.map_err(failed)?;
        store::remember_cluster(store.path(), &remembered(access)?)?;
        let map = read(&etcd, fs)?.map();
        let map = map.context("the registry's entries are no map of servers and shards")?;
        let fault = Arc::new(Fault { line: OnceLock::new(), on_fault: Box::new(on_fault) });
        let (ends, ended) = channel();
        let keeper = Keeper { etcd, fs, server, alive: alive.clone(), lease, fault: fault.clone() };
        let thread = Builder::new().name("cluster lease".to_owned());
        let keeper = thread.spawn(move || keeper.run(&ended)).context("cannot start a thread")?;
        let (ends, keeper, access) = (Some(ends), Some(keeper), access.clone());
        Ok(Self { server, map, fs, access, alive, ends, keeper, fault })
    }

    /// Gives the lanes each newer map from now on.
    /// Returns what is seen of the cluster meanwhile.
    pub(crate) fn follow(&self, lanes: Lanes) -> Result<Seen> {
        let (etcd, fs) = (etcd(&self.access)?, self.fs);
        let (alive, fault) = (self.alive.clone(), self.fault.clone());
        let (own, epoch) = ((self.server, alive, fault), self.map.epoch());
        let seen = Seen::new(self.server);
        let mut followed = Followed { lanes, own, epoch, is_away: false, seen: seen.clone() };
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

/// The registry and the store must say the same of the server.
fn check_member(cluster: &Cluster, path: &Path, member: &Member) -> Result<()> {
    let (uuid, server) = (hex::encode(member.store), member.server);
    let found = cluster.server_of(&uuid);
    let same =
        found.is_some_and(|(id, shards)| super::join::member(id, &shards, member.store) == *member);
    if !same {
        let path = path.display();
        bail!(
            "{path} is a foreign store: it is that of server {server} with uuid {uuid}, which the cluster \
             does not have"
        );
    }
    Ok(())
}

/// A server that was killed is alive until its lease ends.
fn wait_for_earlier_start(etcd: &Etcd, fs: FsUuid, server: ServerId, alive: &Alive) -> Result<()> {
    let deadline = Instant::now() + EARLIER_START;
    let mut first = None;
    loop {
        let cluster = read(etcd, fs)?;
        let Some(earlier) = cluster.alive(server).filter(|earlier| earlier.uuid == alive.uuid)
        else {
            return Ok(());
        };
        let first = first.get_or_insert_with(|| {
            info!("an earlier start of server {server} has not ended in etcd yet: waiting, some seconds");
            earlier.boot_id
        });
        // If it is another process after all, the start says so.
        if *first != earlier.boot_id || Instant::now() > deadline {
            return Ok(());
        }
        sleep(LOOK);
    }
}

impl Keeper {
    fn run(mut self, ended: &Receiver<()>) {
        let mut is_away = false;
        while matches!(ended.recv_timeout(KEEP), Err(RecvTimeoutError::Timeout)) {
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
            let _revoked = self.etcd.revoke(self.lease);
        }
    }

    /// Keeps the lease, or begins another one in its place.
    fn keep(&mut self) -> Result<(), RegistryError> {
        if self.etcd.keep(self.lease)? {
            return Ok(());
        }
        let lease = self.etcd.grant(TTL_S)?;
        registry::change(&self.etcd, self.fs.0, |cluster| {
            Ok(((), cluster.revive(self.server, &self.alive, lease)?))
        })?;
        self.lease = lease;
        Ok(())
    }
}

/// What is known of the registry.
struct Followed {
    lanes: Lanes,
    own: (ServerId, Alive, Arc<Fault>),
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
                    "{error}. Files are served as before; servers that start or join wait until it is back"
                );
            }
        };
        if std::mem::take(&mut self.is_away) {
            info!("etcd answers again");
        }
        self.seen.is(cluster);
        let (server, alive, fault) = &self.own;
        if let Some(line) = cluster.overtaken(*server, alive) {
            return fault.set(line);
        }
        let Some(map) = cluster.map() else {
            return warn!(
                "the registry's entries are no map of servers and shards: they are not used"
            );
        };
        if map.epoch() > self.epoch {
            self.epoch = map.epoch();
            self.lanes.set_map(&map);
        }
    }
}
