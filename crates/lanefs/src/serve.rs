//! `lanefs serve`: serves a store's lanes on the network, until a signal.
//!
//! It opens the store, applies its logs to the rows and gives each lane its shards, its log and a ring.
//! Invariant: `listening on` is printed when every lane takes turns; at a clean end all acknowledged changes
//! are durable.

use crate::args::{self, Direct, Pin};
use crate::cluster::join::Joining;
use crate::cluster::membership::Membership;
use crate::exit::Exit;
use crate::export::ADDRESS_FILE;
use crate::lanes::{self, ProcessEvent, count_text};
use crate::metrics::{About, Metrics};
use crate::questions::Lanes;
use crate::reload::Reload;
use crate::running::{self, Entry, Kind, Running};
use crate::secret::{ReloadTrigger, WatchedSecrets};
use crate::{address, cluster, driver, faults, inspect, log, notify, out, secret, terms, up};
use anyhow::{Context as _, Result, bail};
use disk::Creation;
use lane::{Export, Lane, Restore, Restored};
use ring::feed::LogLengths;
use ring::{DriverChoice, DriverKind, LogFile, Mesh, Sealing, ServerSeals, Stopper};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use store::{Pace, RootDir, RowStore, RowThreads, RunningRowThreads, Shape, Store};
use tracing::{info, warn};
use wire::{Map, Secret, Secrets, ServerId, Term};

/// Runs the command.
pub(crate) fn run(args: &args::Serve) -> Result<()> {
    // What is made here has the mode it asks for, and nobody else writes it.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    log::begin(args.log, args.parent_pid.is_some());
    let trigger = ReloadTrigger::new()?;
    let (sender, events) = lanes::listen(args.parent_pid, Some(reload(args, trigger.clone())?))?;
    let driver = driver::choose(args.driver.driver)?;
    args.serving.io.io_engine.engine().check(driver)?;
    let path = std::path::absolute(&args.store)?;
    let joining = Joining::of(&path, &args.cluster)?;
    if let Some(joining) = &joining {
        joining.bring_secret(args.secret.secret_file.as_deref())?;
    }
    let credentials = credentials(args, trigger)?;
    let metrics = Metrics::open(&args.metrics)?;
    let listener = listener(args)?;
    let address = listener.local_addr().context("the listening socket has no address")?;
    let cores = lanes::cores(args.lanes)?;
    let place = (advertised(args, address)?, u16::try_from(cores.len())?);
    let mut store = match joining {
        Some(joining) => joining.join(place, &Shape::default())?,
        None => open(&path, args)?,
    };
    if args.serving.io.io_direct == Direct::On {
        let objects = File::open(store.objects_path());
        ring::check_direct(objects.context("cannot open the objects' folder")?)?;
    }
    let begun = membership(&store, args, place, (&sender, &events))?;
    let ControlFlow::Continue(membership) = begun else { return Ok(()) };
    let map = match &membership {
        Some(membership) => membership.map.clone(),
        None => map_of(&store, u16::try_from(cores.len())?),
    };
    let server = membership.as_ref().map_or(ServerId::FIRST, |membership| membership.server);
    let Started { stoppers, row_threads, lanes: asked } =
        start((args, driver), (&mut store, &map, server), listener, credentials, &cores, &sender)?;
    let seen = match &membership {
        Some(membership) => Some(membership.follow(asked.clone())?),
        None => None,
    };
    if lanes::wait_until_ready(&events, stoppers.len())? {
        // Asked to end while it started: it ends as it would later, and never says that it listens.
        lanes::stop(&stoppers);
        wait_for_end((&events, true), &stoppers)?;
        row_threads.stop();
        return membership.map_or(Ok(()), Membership::end);
    }
    let address_file = path.join(ADDRESS_FILE);
    write_address(&address_file, address)?;
    let lanes = count_text(stoppers.len());
    let entry = Entry {
        address: Some(address.to_string()),
        store: Some(running::text_of(&path)),
        driver: Some(driver.name().to_owned()),
        lane_count: Some(stoppers.len()),
        map_epoch: Some(map.epoch().0),
        terms: Some(terms::of_map(&map, server)),
        leases: Some(args.serving.lease_grants.state()),
        metrics: metrics.as_ref().map(Metrics::url),
        ..Entry::of(Kind::Serve, args.parent_pid)
    };
    if let Some(metrics) = metrics {
        metrics.start(asked, About::of(&entry, seen))?;
    }
    let _running = Running::begin(entry);
    out::print_line(&format!("listening on {address}, driver {}, {lanes}", driver.name()));
    notify::ready(&format!("serving {} on {address}, {lanes}", path.display()));
    wait_for_end((&events, false), &stoppers)?;
    // A client that reads a stale address gets no connection.
    let _stays = std::fs::remove_file(address_file);
    row_threads.stop();
    membership.map_or(Ok(()), Membership::end)
}

/// Writes where this server is, for commands that name its store. A full disk keeps nobody from serving.
fn write_address(file: &Path, address: SocketAddr) -> Result<()> {
    match std::fs::write(file, format!("{address}\n")) {
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            let _absent = std::fs::remove_file(file);
            let file = file.display();
            warn!("cannot write {file}: {error}; name the server by its address, not its store");
            Ok(())
        }
        written => written.with_context(|| format!("cannot write {}", file.display())),
    }
}

/// The address by which others reach this server.
fn advertised(args: &args::Serve, bound: SocketAddr) -> Result<SocketAddr> {
    args.cluster.advertise.as_deref().map_or(Ok(bound), address::resolve)
}

/// Begins this start in the cluster, if the store belongs to one. It breaks off if the process is to end.
fn membership(
    store: &Store,
    args: &args::Serve,
    (address, lanes): (SocketAddr, u16),
    (sender, events): (&Sender<ProcessEvent>, &Receiver<ProcessEvent>),
) -> Result<ControlFlow<(), Option<Membership>>> {
    let Some(member) = store.superblock().member else { return Ok(ControlFlow::Continue(None)) };
    if address.ip().is_unspecified() {
        let line = format!(
            "--listen {}: in a cluster others must know one address of this host: --advertise HOST:PORT",
            args.listen
        );
        return Err(Exit::usage(line).into());
    }
    let named = args.cluster.cluster.as_deref();
    let access = cluster::access(store.path(), named, &args.cluster.etcd)?;
    let sender = sender.clone();
    // Nobody listens any more when the process is about to end.
    let on_fault = move || drop(sender.send(ProcessEvent::Signal));
    let begun = Membership::begin((store, member), &access, (address, lanes), events, on_fault)?;
    Ok(begun.map_or(ControlFlow::Break(()), |membership| ControlFlow::Continue(Some(membership))))
}

/// What SIGHUP has read again.
fn reload(args: &args::Serve, trigger: ReloadTrigger) -> Result<Reload> {
    let has_secret = args.certificates.cert.is_none() || args.secret.secret_file.is_some();
    let files = args.certificates.files(args.seal)?;
    Reload::new(move || {
        if has_secret {
            trigger.fire();
        }
        if let Some(files) = &files {
            match library::certificates::server(files.clone(), has_secret, Arc::new(|_| {})) {
                Ok(_) => info!("the certificates can be read: in use from the next connection on"),
                Err(error) => warn!("{error}; the certificates that were read before stay in use"),
            }
        }
    })
}

/// What clients have to prove, or to show.
struct Credentials {
    secrets: Secrets,
    /// The file that has the secrets, if one counts.
    watched: Option<WatchedSecrets>,
    /// With certificates.
    seals: Option<ServerSeals>,
}

/// What the command line says of it. With certificates the secret opens something only where a file was named.
fn credentials(args: &args::Serve, trigger: ReloadTrigger) -> Result<Credentials> {
    let secret_file = args.secret.secret_file.as_deref();
    let Some(files) = args.certificates.files(args.seal)? else {
        let watched = WatchedSecrets::open(&secret::path_or_new(secret_file), trigger)?;
        return Ok(Credentials { secrets: watched.secrets(), watched: Some(watched), seals: None });
    };
    let watched = secret_file.map(|file| WatchedSecrets::open(file, trigger)).transpose()?;
    let secrets = match &watched {
        Some(watched) => watched.secrets(),
        // Nobody knows it.
        None => Secret::new(library::random()?).into(),
    };
    let warn = Arc::new(|line: &str| warn!("{line}"));
    let seals = Some(library::certificates::server(files, watched.is_some(), warn)?);
    Ok(Credentials { secrets, watched, seals })
}

/// The store; made if there is none and no certain one is wanted.
fn open(path: &Path, args: &args::Serve) -> Result<Store> {
    let Some(only) = &args.only else {
        let root_dir = args.serving.root_dir;
        let root = root_dir.over(RootDir::of_process());
        let store = store::open_or_create(path, &Shape { root, ..Shape::default() })?;
        let Creation { at_ns: _, uid, gid, mode, layout: _ } = store.superblock().creation;
        if root_dir.differs_from(&RootDir { uid, gid, mode }) {
            warn!(
                "--root-owner and --root-mode are for a store that is made; {} was made before and \
                 keeps its root directory: `lanefs chown` and `lanefs chmod` change it",
                path.display()
            );
        }
        return Ok(store);
    };
    let before = || format!("{} was the store of file system {only}", path.display());
    let store = store::open(path).with_context(before)?;
    let found = hex::encode(store.superblock().fs.0);
    if found != *only {
        bail!("{} and is now that of {found}", before());
    }
    Ok(store)
}

/// The socket handed in by `up`, which outlives us, or our own.
fn listener(args: &args::Serve) -> Result<TcpListener> {
    if args.listen_on_stdin {
        let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(TcpListener::from(stdin));
    }
    up::bind(&args.listen, "--listen")
}

/// Lanes end when they are asked to, after what they have begun. One that ends by itself takes the
/// process with it: its shards would answer nobody.
fn wait_for_end(
    (events, mut asked): (&Receiver<ProcessEvent>, bool),
    stoppers: &[Stopper],
) -> Result<()> {
    let mut running_count = stoppers.len();
    while running_count > 0 {
        match events.recv()? {
            ProcessEvent::Signal => {
                asked = true;
                lanes::stop(stoppers);
            }
            ProcessEvent::Ended(ended) => {
                ended.context("a lane failed")?;
                if !asked {
                    bail!("a lane ended without being asked to");
                }
                running_count -= 1;
            }
            ProcessEvent::Ready => {}
        }
    }
    Ok(())
}

/// Brings the rows up to the end of the logs; what they say then. With a limit on the memory of
/// names, of them only what must be there.
fn restore(
    store: &Store,
    row_store: &RowStore,
    (map, server): (&Map, ServerId),
    meta_bytes_max: Option<u64>,
) -> Result<Vec<Restored>> {
    let replayed = store.redo(row_store)?;
    if replayed.torn_count > 0 {
        warn!(
            "{} log(s) ended in a batch that was never acknowledged; it was left out",
            replayed.torn_count
        );
    }
    let superblock = store.superblock();
    let mut restore = Restore::new(map.shard_counts(), superblock.creation);
    restore.hash_names_by(u64::from_le_bytes(library::random()?));
    if let Some(bytes_max) = meta_bytes_max {
        // Those of other servers take none of it.
        let (all, own) = (map.shard_counts().meta, superblock.meta_shard_count);
        restore.bound(bytes_max.saturating_mul(all.into()) / u64::from(own));
    }
    let restore = restore.load(|range, take| anyhow::Ok(row_store.read(range, take)?))?;
    Ok(restore.into_lanes_of(map, server))
}

/// The map of a file system with this store alone.
fn map_of(store: &Store, lane_count: u16) -> Map {
    let term = Term::of_boot(store.boot_id());
    Map::single_server(lane_count, store.superblock().shard_counts(), term)
}

/// Lanes that run, and what belongs to them.
struct Started {
    stoppers: Vec<Stopper>,
    row_threads: RunningRowThreads,
    lanes: Lanes,
}

/// Restores the store's state and starts a lane on each core.
fn start(
    (args, driver): (&args::Serve, DriverKind),
    (store, map, server): (&mut Store, &Map, ServerId),
    listener: TcpListener,
    Credentials { secrets, watched, seals }: Credentials,
    cores: &[u16],
    sender: &Sender<ProcessEvent>,
) -> Result<Started> {
    ring::raise_fd_limit().context("cannot raise the limit of open files")?;
    let lane_count = u16::try_from(cores.len())?;
    let superblock = *store.superblock();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX)?;
    store.repairs().iter().for_each(|line| warn!("{line}"));
    let restored = restore(store, &row_store, (map, server), args.serving.space.meta_memory)?;
    let lengths = LogLengths {
        log_bytes_max: args.serving.space.log_bytes_max / u64::from(lane_count),
        segment_bytes: args.serving.space.segment_bytes,
    };
    let collect = args.serving.space.collect;
    let reserve_bytes = LogFile::RESERVE_BYTES.min(args.serving.space.segment_bytes / 4);
    let logs = store.new_logs(&row_store, lane_count, reserve_bytes)?;
    let mut row_threads = RowThreads::new(row_store.clone(), Pace { lengths, collect }, lane_count);
    // Clients rely on earlier promises until a recovery is completed.
    let promises = limits(args).promised();
    let promised = row_store.promised_before()?.map_or(promises, |before| before.and(promises));
    row_store.set_promised(promised)?;
    let recovered = when_recovered(lane_count, row_store, promises)?;
    let exports = exports(&args.serving.exports)?;
    check_stored(&exports, &restored)?;
    let objects = File::open(store.objects_path()).context("cannot open the objects' folder")?;
    let mailboxes = Mesh::mailboxes(lane_count)?;
    let stoppers = mailboxes.iter().map(ring::Mailbox::stopper).collect();
    let asked: Lanes = mailboxes.iter().map(ring::Mailbox::waker).collect();
    let mut inspections = inspect::processes::start(
        store.path(),
        mailboxes.iter().map(ring::Mailbox::waker).collect(),
    )?
    .into_iter();
    if let Some(watched) = watched {
        watched.keep(mailboxes.iter().map(ring::Mailbox::waker).collect())?;
    }
    let mut listener = Some(OwnedFd::from(listener));
    let spin_us = args.spin.us();
    let recovering = Arc::new(AtomicU16::new(lane_count));
    let fault = faults::faults(&args.faults, recovering.clone());
    let lanes = mailboxes.into_iter().zip(restored).zip(logs).zip(cores);
    for (((mailbox, restored), (log, start_offset)), core) in lanes {
        let lane = mailbox.lane();
        let config = lane::Config {
            lane,
            map: map.clone(),
            server,
            fs: superblock.fs,
            secrets,
            boot_id: store.boot_id(),
            exports: exports.clone(),
            seed: library::random()?,
            limits: limits(args),
            fs_key: lane::FsKey::new(*store.fs_key()),
            promised,
            rules: wire::Rules::default(),
            affinity: args.serving.affinity.mode(),
        };
        let feed = Some(row_threads.feed(mailbox.waker(), start_offset));
        let log = LogFile { file: log.into(), start_offset, reserve_bytes, feed };
        let objects = OwnedFd::from(objects.try_clone()?);
        // One lane listens; the Hello names the lane that a connection is handed to.
        let listener = listener.take();
        let inspections = inspections.next();
        let checksum_reads = args.serving.checksum_reads;
        let io = args.serving.io;
        let fault = fault.clone();
        let (recovered, recovering) = (recovered.clone(), recovering.clone());
        let core = (args.pin.pin == Pin::On).then_some(*core);
        let sealing = if seals.is_some() { Sealing::All } else { args.seal.sealing() };
        let seals = seals.clone();
        let make = move || {
            let mut ring_config = ring::Config::new(lane);
            ring_config.say = log::of_lane(lane.0);
            ring_config.mailbox = Some(mailbox);
            ring_config.driver = DriverChoice::Only(driver);
            ring_config.engine = io.io_engine.engine();
            ring_config.direct = io.io_direct == Direct::On;
            ring_config.spin_us = spin_us;
            ring_config.listener = listener;
            ring_config.sealing = sealing;
            ring_config.server_seals = seals;
            ring_config.log = Some(log);
            ring_config.store = Some(objects);
            ring_config.checksum_reads = checksum_reads;
            ring_config.contents_key = Some(config.fs_key.contents_key());
            ring_config.fault = fault;
            ring_config.inspections = inspections;
            ring_config.recovered = Box::new(move || {
                let one_less = |count: u16| count.checked_sub(1);
                recovering.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok();
                // Nobody listens any more when it is said for the second time.
                let _unheard = recovered.send(());
            });
            Ok((ring_config, Lane::new(config, restored)))
        };
        lanes::start(format!("lane {lane}"), core, sender.clone(), make)?;
    }
    // Every record of theirs is in the rows, and the new logs say which boot this is.
    store.remove_earlier_logs()?;
    let row_threads = row_threads.start(store, Arc::new(|line: &str| warn!("{line}")))?;
    Ok(Started { stoppers, row_threads, lanes: asked })
}

/// Records what this start promises when the recovery of every lane is over: changes made under the earlier
/// sharing modes are durable then, and earlier leases have ended. A thread does it, because the write blocks.
fn when_recovered(
    lane_count: u16,
    row_store: RowStore,
    promises: lane::Promised,
) -> Result<Sender<()>> {
    let (sender, recovered) = channel();
    let thread = std::thread::Builder::new().name("recovered".to_owned());
    let spawned = thread.spawn(move || {
        if recovered.iter().take(usize::from(lane_count)).count() < usize::from(lane_count) {
            return;
        }
        if let Err(error) = row_store.set_promised(promises) {
            warn!("{error}: the next recovery goes by earlier promises, too");
        }
    });
    spawned.context("cannot start a thread")?;
    Ok(sender)
}

/// How long a batch of the log gathers that nobody waits for, in milliseconds: replies leave before, with
/// what brings their changes back.
const LOG_MS: u64 = 20;

/// How long messages between lanes gather that nothing waits for, in milliseconds: less than the
/// time after which they would be sent again.
const MESSAGE_MS: u64 = 20;

fn limits(args: &args::Serve) -> lane::Limits {
    let serving = &args.serving;
    let promises = &serving.promises;
    lane::Limits {
        spread_depth: serving.spread_depth,
        share: promises.share.mode(),
        sync: promises.sync,
        log_ms: LOG_MS,
        message_ms: MESSAGE_MS,
        recovery_soft_ms: ms(promises.recovery_soft),
        recovery_hard_ms: ms(promises.recovery_hard),
        lease_term_ms: ms(serving.lease_grants.term()),
        slow_ms: ms(serving.slow.slow),
        observes: !args.unobserved,
        ..lane::Limits::default()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the store says can be mounted is not said otherwise by the command line.
fn check_stored(exports: &[Export], restored: &[Restored]) -> Result<()> {
    let stored = restored.first().map(Restored::export_names).unwrap_or_default();
    match exports.iter().find(|export| stored.contains(&export.name)) {
        Some(export) => bail!(
            "--export {0}: the store has an export of that name (`lanefs export list`); leave the \
             option away, or take it away there",
            export.name
        ),
        None => Ok(()),
    }
}

/// The default export and those named on the command line.
fn exports(named: &[String]) -> Result<Vec<Export>> {
    let mut exports = vec![Export { name: String::new(), root_trusted: false }];
    for text in named {
        let (name, squash) = text.split_once('=').unwrap_or((text, ""));
        let root_trusted = match squash {
            "" => false,
            "no-root-squash" => true,
            _ => {
                let line = format!("--export {text}: after `=` only no-root-squash is known");
                return Err(Exit::usage(line).into());
            }
        };
        if !wire::is_export_name(name.as_bytes())
            || exports.iter().any(|export| export.name == name)
        {
            let line = format!("--export {text}: a unique name of a-z, A-Z, 0-9, '.', '-' and '_'");
            return Err(Exit::usage(line).into());
        }
        exports.push(Export { name: name.to_owned(), root_trusted });
    }
    Ok(exports)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn root_is_trusted_only_on_exports_that_say_so() {
        let exports = exports(&["up=no-root-squash".to_owned(), "other".to_owned()]).unwrap();
        let found: Vec<(&str, bool)> =
            exports.iter().map(|export| (export.name.as_str(), export.root_trusted)).collect();
        assert_eq!(found, [("", false), ("up", true), ("other", false)]);
    }

    #[test]
    fn exports_that_mean_nothing_are_refused() {
        for text in ["", "a=root", "=no-root-squash"] {
            assert!(exports(&[text.to_owned()]).is_err(), "{text}");
        }
        assert!(exports(&["a".to_owned(), "a".to_owned()]).is_err());
        assert!(exports(&["n".repeat(65)]).is_err());
    }
}
