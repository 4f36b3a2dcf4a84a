//! `lanefs up DIR`: a store, its server and its mount from one command; or several servers.
//!
//! This file prepares directory, store, secret and listening socket; the [`supervisor`] runs the processes.
//! Invariant: no server and no mount is started before everything was checked.

mod child;
mod place;
mod plan;
mod rates;
mod screen;
mod servers;
mod supervisor;

use crate::args::{self, SealArg};
use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Kind};
use crate::{address, background, driver, fuse_device, log, mounts, out, secret};
use anyhow::{Context as _, Result, bail};
use place::Place;
pub(crate) use place::bind;
pub(crate) use plan::Plan;
use ring::{DriverFound, DriverKind};
use rustix::io::Errno;
pub(crate) use screen::leases;
use servers::Cluster;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{RootDir, Shape};
use tracing::warn;

/// Ports tried after the default one.
const PORT_COUNT_MAX: u16 = 100;

/// The time limit for a reply of an existing mount.
const PROBE: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn run(args: &args::Up) -> Result<()> {
    if args.in_background.is_some() {
        background::begin()?;
    } else {
        let dir = mounts::absolute(&args.dir)?;
        if let Some(first) = earlier(&dir) {
            return show(args, &first);
        }
        if args.detach {
            let store = store_path(args, &dir)?;
            return background::launch(&background::beside(&store, ".log"));
        }
    }
    log::begin(args.log, false);
    let plan = prepare(args)?;
    supervisor::run(&plan)
}

/// The `up` that this directory has already.
fn earlier(dir: &Path) -> Option<Entry> {
    // Where nothing can be read, nothing is known.
    let all = running::all().ok()?;
    let dir = Some(running::text_of(dir));
    let found = all.into_iter().map(|found| found.entry);
    found.into_iter().find(|entry| entry.kind == Kind::Up && entry.dir == dir)
}

/// Prints what runs already, and whether it matches the request.
fn show(args: &args::Up, first: &Entry) -> Result<()> {
    let Entry { pid, address, store, log, mounted, .. } = first;
    let store = store.clone().unwrap_or_default();
    let dir = mounts::absolute(&args.dir)?;
    if args.store.is_some() && running::text_of(&store_path(args, &dir)?) != store {
        let shown = dir.display();
        bail!(
            "{shown} is kept up by process {pid} with the store {store}; `lanefs down {shown}` ends it"
        );
    }
    for (name, value) in [("address", address.as_deref()), ("store", Some(store.as_str()))] {
        out::print_line(&format!("{name} {}", value.unwrap_or("unknown")));
    }
    let log = log.as_ref().map_or_else(String::new, |log| format!(", log {log}"));
    out::print_line(&format!("up already: process {pid}{log}"));
    let there = mounts::at(&dir)?.is_some_and(|mounted| mounted.is_lanefs());
    if *mounted && there {
        out::print_line(&format!("mounted {}", dir.display()));
        return Ok(());
    }
    let line = format!("it serves, and {} is not mounted; its log says why", dir.display());
    Err(Exit::new(Code::Unreachable, line).into())
}

fn prepare(args: &args::Up) -> Result<Plan> {
    let dir = mounts::absolute(&args.dir)?;
    let store = store_path(args, &dir)?;
    if store.starts_with(&dir) {
        bail!("the store {} cannot lie below the mount point {}", store.display(), dir.display());
    }
    prepare_dir(&dir)?;
    let secret_file = std::path::absolute(secret::path_or_new(args.secret.secret_file.as_deref()))?;
    secret::read_or_make(&secret_file)?;
    let certificates = args.certificates.files(args.seal)?;
    // Found out here, before a server fails to start again and again.
    if let Some(files) = &certificates {
        library::certificates::server(files.clone(), true, Arc::new(|_| {}))?;
    }
    let seal = if certificates.is_some() { SealArg::ALL } else { args.seal };
    let listener = listen(args.listen.as_deref())?;
    let address = listener.local_addr()?;
    let driver = driver::choice(args.driver.driver).find()?;
    let mount_driver = mount_driver(args, &driver)?;
    let obstacle = fuse_device::obstacle();
    if obstacle.is_none() {
        fuse_device::transport(args.fuse, mount_driver)?;
    }
    let server_count = servers::count(&store, args.servers.servers)?;
    let cluster = match server_count {
        1 => None,
        count => {
            let root = args.serving.root_dir.over(RootDir::of_process());
            let shape = Shape { root, ..Shape::default() };
            Some(Cluster::start((&store, address), &shape, count)?)
        }
    };
    Ok(Plan {
        dir,
        first: Place { store, listener, address },
        cluster,
        secret_file,
        lanes: args.lanes,
        spin: args.spin.spin,
        pin: args.pin.pin,
        driver,
        mount_driver,
        serving: args.serving.clone(),
        metrics: args.metrics.absolute()?,
        seal,
        certificates,
        fuse: args.fuse,
        powers: args.powers,
        obstacle,
        log_level: args.log,
        log: args.in_background.clone(),
    })
}

/// The mount's driver; why it is not the usual one is written to stderr, unless the server's says it.
fn mount_driver(args: &args::Up, server: &DriverFound) -> Result<DriverKind> {
    match args.mount_driver.mount_driver {
        None => Ok(server.kind),
        Some(asked) if server.why.is_none() => driver::choose(asked),
        Some(asked) => Ok(driver::choice(asked).find()?.kind),
    }
}

fn store_path(args: &args::Up, dir: &Path) -> Result<PathBuf> {
    match &args.store {
        Some(store) => mounts::absolute(store),
        None => Ok(background::beside(dir, ".lanefs")),
    }
}

/// Makes the mount point, or sees that it can be one.
fn prepare_dir(dir: &Path) -> Result<()> {
    let shown = dir.display();
    if let Some(mounted) = mounts::at(dir)? {
        if !mounted.is_lanefs() {
            bail!("{shown}: {} is mounted there already", mounted.fs_type);
        }
        if !is_dead(dir) {
            bail!("{shown}: lanefs is mounted there already; `lanefs umount {shown}` ends it");
        }
        mounts::detach(dir)?;
        warn!("cleared a mount on {shown} whose process had ended");
    }
    match std::fs::create_dir(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make {shown}")),
    }
    let mut entries = std::fs::read_dir(dir).with_context(|| format!("cannot use {shown}"))?;
    if entries.next().is_some() {
        bail!("{shown} is not empty: a mount would hide its files; name an empty directory");
    }
    Ok(())
}

/// A FUSE mount whose process has ended answers ENOTCONN, at the latest when the kernel has released the
/// process's rings. A living process that does not answer is not waited for.
fn is_dead(dir: &Path) -> bool {
    let dir = dir.to_path_buf();
    let (sender, is_dead) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("probe".to_owned());
    let spawned = thread.spawn(move || {
        // The first answers after the end are "cancelled" (what the kernel was handing to a ring, seen on
        // 6.18 after a quarter of the kills) or "aborted", the later ones are "not connected".
        let dead = std::fs::symlink_metadata(&dir).is_err_and(|error| {
            let errno = Errno::from_io_error(&error);
            matches!(errno, Some(Errno::CANCELED | Errno::CONNABORTED | Errno::NOTCONN))
        });
        // The receiver may have timed out.
        let _late = sender.send(dead);
    });
    spawned.is_ok() && is_dead.recv_timeout(PROBE).unwrap_or(false)
}

/// The socket to serve on: the requested address, else the default port or the next free one.
fn listen(asked: Option<&str>) -> Result<TcpListener> {
    if let Some(asked) = asked {
        return bind(asked, "--listen");
    }
    for step in 0..PORT_COUNT_MAX {
        let address = SocketAddr::from(([127, 0, 0, 1], address::PORT_DEFAULT + step));
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).with_context(|| format!("cannot serve on {address}")),
        }
    }
    bail!("no free port from {} on; name one with --listen", address::PORT_DEFAULT)
}
