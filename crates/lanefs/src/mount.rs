//! `lanefs mount ADDR DIR`: a server's file system on a directory, until a signal or `umount`.
//!
//! It joins the kernel's channel, the fuse lanes and their clients. Invariant: nothing is mounted
//! before the server has welcomed us, and nothing stays mounted when the process ends.

mod by_type;
mod independent;
mod options;
mod read_ahead;
mod remount;

pub(crate) use by_type::{is_by_type, run as run_by_type};

use crate::args::{self, Leases, Pin, WriteBehind};
use crate::control::ControlSocket;
use crate::exit::{Code, Exit};
use crate::lanes::{self, ProcessEvent, count_text};
use crate::login::Login;
use crate::mounts::{Served, Unmounted};
use crate::questions::Lanes;
use crate::reload::Reload;
use crate::running::{self, Entry, Kind, Running};
use crate::{address, background, driver, fuse_device, log, mounts, notify, out, secret, umount};
use anyhow::{Context as _, Result, bail};
use client::{Cache, CacheSize, Client, ReceivedByLanes};
use library::{Certificates, ConnectOptions, Identity, Sealing, Volume};
use options::Options;
use ring::{DriverChoice, DriverKind, KernelChannel, Mesh, MountOptions, Stopper};
use rustix::mount::MountFlags;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use wire::{ClientUuid, InodeNo, Secrets};

/// How long the server may take to welcome us before anything is mounted.
const WELCOME: Duration = Duration::from_secs(10);
/// How long the lanes may take to end: they wait until acknowledged changes are durable, and for a
/// server that is away one minute.
const LANES_END: Duration = Duration::from_secs(120);
/// Most calls in flight of a lane: more than the kernel sends.
const CALL_COUNT_MAX: usize = 4096;
/// Places of the kernel's queue that no process waiting for a lock may take.
const QUEUE_PLACES_LEFT: usize = 3;
/// Files that a lane may have open together.
pub(crate) const HANDLE_COUNT_MAX: usize = 1 << 20;

struct Plan {
    /// As on the command line, shown in the mount table: mount(8) compares it with fstab.
    source: String,
    server: SocketAddr,
    dir: PathBuf,
    secrets: Secrets,
    /// Read again when the server refuses these; absolute. None with a certificate.
    secret_file: Option<PathBuf>,
    certificates: Option<Certificates>,
    sealing: Sealing,
    /// What is mounted.
    root: InodeNo,
    cores: Vec<u16>,
    driver: DriverKind,
    transport: ring::Transport,
    options: Options,
    client: ClientUuid,
    predecessor: ClientUuid,
    forgets_names: bool,
}

/// Runs the command.
pub(crate) fn run(args: &args::Mount) -> Result<()> {
    let dir = mounts::absolute(&args.dir)?;
    let options = Options::of(args)?;
    if options.remount {
        return remount::run(&dir, &options);
    }
    if args.in_background.is_some() {
        background::begin()?;
    } else if args.detach {
        // Before a log is begun beside it.
        check_dir(&dir)?;
        return background::launch(&options.log_file(&dir));
    }
    log::begin(args.log, args.parent_pid.is_some());
    let (sender, events) = lanes::listen(args.parent_pid, Some(reload(&options)?))?;
    let plan = prepare(args, dir, options)?;
    let device = mount(&plan)?;
    let mount = Served::new(&plan.dir, &device)?;
    let served = serve(&plan, (device, &mount), &sender, &events, args);
    served.and(mount.clear())
}

/// What SIGHUP has read again. Lanes read both by themselves when they need them; this says what they will find.
fn reload(options: &Options) -> Result<Reload> {
    // Certificates are looked for by the name of the first one.
    let address = options.addresses[0].clone();
    let secret_file = options.secret_file.as_ref().map(std::path::absolute).transpose()?;
    let shown = (options.seal, options.certificates.clone());
    Reload::new(move || match Login::read(&address, secret_file.as_deref(), (shown.0, &shown.1)) {
        Ok(Login { secret_file: Some(file), .. }) => {
            info!(
                "the secret {} can be read: shown when the server refuses the one in use",
                file.display()
            );
        }
        Ok(_) => info!("the certificates can be read: shown at the next connection"),
        Err(error) => warn!("{error:#}; the earlier files stay in use"),
    })
}

fn prepare(args: &args::Mount, dir: PathBuf, mut options: Options) -> Result<Plan> {
    check_dir(&dir)?;
    if let Some(obstacle) = fuse_device::obstacle() {
        return Err(Exit::new(Code::CannotMount, obstacle).into());
    }
    options.check_rights()?;
    let driver = driver::choose(options.driver)?;
    let transport = fuse_device::transport(options.fuse, driver)?;
    let address = address::that_answers(&options.addresses)?;
    let shown = (options.seal, &options.certificates);
    let Login { secrets, secret_file, certificates, sealing } =
        Login::read(address, options.secret_file.as_deref(), shown)?;
    let server = address::resolve(address)?;
    let connect_options = ConnectOptions {
        address: server,
        secret: secrets.current,
        secret_file: secret_file.clone(),
        certificates: certificates.clone(),
        export: options.export.clone(),
        purpose: library::Purpose::Use,
        identity: Identity::of_process(),
        connect_timeout: WELCOME,
        driver: DriverChoice::Only(driver),
        sealing,
    };
    // A wrong secret or address shall be an error here, not a mount that never answers.
    let volume = Volume::connect(&connect_options)?;
    if rustix::process::geteuid().is_root() && !volume.is_root_trusted() {
        let export = crate::export_name::or_default(&options.export);
        // Not on stdout: a reader of stdout waits for the line `mounted`.
        info!(
            "root is nobody on the export {export}: it may do what others may; it is root on the default \
             export where the server runs (over loopback, with the store's secret), and on an export of \
             `lanefs export add SERVER NAME PATH --squash none`"
        );
    }
    let root = volume.root();
    if volume.is_read_only() {
        // The kernel says so, too, and asks for nothing that would be refused.
        options.flags |= MountFlags::RDONLY;
    }
    if options.leases == Leases::On && volume.are_ids_replaced() {
        // The kernel would check permissions by itself, with the ids of this host.
        info!("the export replaces ids, so the kernel cannot check permissions: --leases off");
        options.leases = Leases::Off;
    }
    drop(volume);
    let cores = lanes::cores(options.lanes)?;
    let client = args.client.map_or_else(|| library::random().map(ClientUuid), Ok)?;
    let predecessor = args.predecessor.unwrap_or(ClientUuid::NONE);
    Ok(Plan {
        source: args.source.clone(),
        server,
        dir,
        secrets,
        secret_file,
        certificates,
        sealing,
        root,
        cores,
        driver,
        transport,
        options,
        client,
        predecessor,
        forgets_names: !args.as_before_epochs,
    })
}

fn check_dir(dir: &Path) -> Result<()> {
    let shown = dir.display();
    if let Some(mounted) = mounts::at(dir)? {
        bail!("{shown}: {} is mounted there already", mounted.fs_type);
    }
    let entries = std::fs::read_dir(dir);
    let mut entries = entries.with_context(|| format!("cannot mount on {shown}"))?;
    if entries.next().is_some() {
        bail!("{shown} is not empty: a mount would hide its files; name an empty directory");
    }
    Ok(())
}

fn mount(plan: &Plan) -> Result<OwnedFd> {
    let options = MountOptions {
        source: plan.source.clone(),
        allow_other: plan.options.allow_other,
        default_permissions: plan.options.leases == Leases::On,
        flags: plan.options.flags,
    };
    ring::mount(&plan.dir, &options).map_err(|error| {
        let kind = error.kind();
        let cannot = kind == io::ErrorKind::PermissionDenied || kind == io::ErrorKind::NotFound;
        let code = if cannot { Code::CannotMount } else { Code::Failed };
        Exit::new(code, error.to_string()).into()
    })
}

/// Starts the lanes and waits for the end of the mount.
fn serve(
    plan: &Plan,
    (device, mount): (OwnedFd, &Served),
    sender: &Sender<ProcessEvent>,
    events: &Receiver<ProcessEvent>,
    args: &args::Mount,
) -> Result<()> {
    let (stoppers, asked) = start(plan, (device, mount.device_number()), sender)?;
    let mut running_count = stoppers.len();
    if lanes::wait_until_ready(events, running_count)? {
        bail!("asked to end before all lanes were ready");
    }
    // Through the kernel and the server and back: from here on it works.
    // Interrupted: the kernel takes the ring of the handshake apart by work that this thread, which
    // made it, is woken for as by a signal.
    rustix::io::retry_on_intr(|| rustix::fs::statfs(&plan.dir))
        .context("the mount does not answer")?;
    if plan.options.leases == Leases::On {
        read_ahead::raise(mount.device_number());
    }
    let how = match plan.transport {
        ring::Transport::Uring => "io_uring",
        ring::Transport::Classic => "/dev/fuse",
    };
    let lanes = count_text(running_count);
    let driver = plan.driver.name();
    let log = args.in_background.as_deref();
    let _running = Running::begin(Entry {
        address: Some(plan.server.to_string()),
        dir: Some(running::text_of(&plan.dir)),
        mounted: true,
        driver: Some(driver.to_owned()),
        fuse: Some(how.to_owned()),
        lane_count: Some(running_count),
        log: log.map(running::text_of),
        ..Entry::of(Kind::Mount, args.parent_pid)
    });
    let _control = match ControlSocket::begin(asked) {
        Ok(socket) => Some(socket),
        Err(error) => {
            warn!("`lanefs stats` will not reach this mount: {error:#}");
            None
        }
    };
    let dir = plan.dir.display();
    out::print_line(&format!("mounted {dir} over {how}, driver {driver}, {lanes}"));
    notify::ready(&format!("{} on {dir} over {how}, {lanes}", plan.server));
    if let Some(log) = log {
        background::ready(log, None)?;
        std::env::set_current_dir("/")?;
    }
    while running_count > 0 {
        match events.recv()? {
            ProcessEvent::Signal => return end(mount, &stoppers, running_count, events),
            ProcessEvent::Ended(ended) => {
                running_count -= 1;
                ended.context("a lane of the mount failed")?;
            }
            ProcessEvent::Ready => {}
        }
    }
    Ok(())
}

fn start(
    plan: &Plan,
    (device, device_number): (OwnedFd, Option<&str>),
    sender: &Sender<ProcessEvent>,
) -> Result<(Vec<Stopper>, Lanes)> {
    ring::raise_fd_limit().context("cannot raise the limit of open files")?;
    let depth = KernelChannel::QUEUE_DEPTH;
    let mut channels = KernelChannel::share(device, plan.transport, &plan.cores, depth)?;
    for channel in &mut channels {
        device_number.into_iter().for_each(|number| channel.set_device_number(number));
    }
    let lane_count = u16::try_from(plan.cores.len())?;
    let mailboxes = Mesh::mailboxes(lane_count)?;
    let stoppers = mailboxes.iter().map(ring::Mailbox::stopper).collect();
    let asked = mailboxes.iter().map(ring::Mailbox::waker).collect();
    let client = plan.client;
    let over_io_uring = plan.transport == ring::Transport::Uring;
    let leases = plan.options.leases == Leases::On;
    let forgets_names = plan.forgets_names;
    let cache = leases.then(new_cache).transpose()?;
    let received = Arc::new(ReceivedByLanes::new(lane_count));
    let is_behind = plan.options.write_behind == WriteBehind::On;
    let behind = (leases && is_behind).then(|| Arc::new(fuse::Behind::default()));
    // A lock request that waits occupies a place of a queue; some places are reserved for unlocks.
    let places = usize::from(depth).saturating_sub(QUEUE_PLACES_LEFT);
    let lock_wait_count_max = if over_io_uring { places } else { usize::MAX };
    for ((mailbox, channel), core) in mailboxes.into_iter().zip(channels).zip(&plan.cores) {
        let lane = mailbox.lane();
        let config = client::Config {
            client,
            lane,
            lane_count,
            secrets: plan.secrets,
            export: plan.options.export.as_bytes().to_vec(),
            purpose: wire::Purpose::Use,
            root: Some(plan.root),
            host_id: library::hex_file("/etc/machine-id"),
            host_boot_id: library::hex_file("/proc/sys/kernel/random/boot_id"),
            host_name: library::host_name(),
            job: plan.options.job.as_bytes().to_vec(),
            predecessor: plan.predecessor,
            seed: library::random()?,
            calls_max: CALL_COUNT_MAX,
            handles_max: HANDLE_COUNT_MAX,
            replay_bytes_max: client::REPLAY_BYTES_MAX,
            rules: wire::Rules::default(),
        };
        let Plan { server, driver, sealing, .. } = *plan;
        let Options { spin_us, pin, slow, soft, .. } = plan.options;
        let slow_us = u64::try_from(slow.as_micros()).unwrap_or(u64::MAX);
        let soft_ms = soft.and_then(|soft| u64::try_from(soft.as_millis()).ok());
        let client_seals = plan.certificates.as_ref().map(Certificates::seals);
        let core = (pin == Pin::On).then_some(*core);
        let (secret_file, cache) = (plan.secret_file.clone(), cache.clone());
        let (behind, received) = (behind.clone(), Arc::clone(&received));
        let make = move || {
            let mut ring_config = ring::Config::new(lane);
            ring_config.say = log::of_lane(lane.0);
            ring_config.mailbox = Some(mailbox);
            ring_config.driver = DriverChoice::Only(driver);
            ring_config.spin_us = spin_us;
            ring_config.server = Some(server);
            ring_config.sealing = sealing;
            ring_config.client_seals = client_seals;
            ring_config.kernel = Some(channel);
            if let Some(secret_file) = secret_file {
                ring_config.read_secrets = Some(Arc::new(move || secret::read_again(&secret_file)));
            }
            let fuse_config =
                fuse::Config { over_io_uring, lock_wait_count_max, leases, forgets_names, soft_ms };
            let client = Client::new(config).with_received(received);
            let lane = fuse::MountLane::new(fuse_config, client);
            let lane = lane.with_slow_us(slow_us);
            let lane = match cache {
                Some(cache) => lane.with_cache(cache),
                None => lane,
            };
            let lane = match behind {
                Some(behind) => lane.with_write_behind(behind),
                None => lane,
            };
            Ok((ring_config, lane))
        };
        lanes::start(format!("lane {lane}"), core, sender.clone(), make)?;
    }
    Ok((stoppers, asked))
}

/// The cache of all lanes of a mount.
fn new_cache() -> Result<Arc<Cache>> {
    let seed = [library::random()?, library::random()?, library::random()?];
    let seed = seed.map(u64::from_le_bytes);
    Ok(Arc::new(Cache::new(seed, CacheSize::MOUNT, wire::Rules::default())))
}

/// Unmounts, lazily if the mount is busy, and waits for the lanes.
fn end(
    mount: &Served,
    stoppers: &[Stopper],
    mut running_count: usize,
    events: &Receiver<ProcessEvent>,
) -> Result<()> {
    let dir = mount.dir();
    if mount.is_there()? && mounts::unmount(dir)? == Unmounted::Busy {
        umount::complain_of_holders("", dir);
        warn!("detached; its users will see it disconnected");
        mounts::detach(dir)?;
    }
    lanes::stop(stoppers);
    let deadline = Instant::now() + LANES_END;
    while running_count > 0 {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(ProcessEvent::Ended(ended)) => {
                running_count -= 1;
                ended.context("a lane of the mount failed")?;
            }
            Ok(ProcessEvent::Ready) => {}
            // The kernel ends the mount with the process.
            Ok(ProcessEvent::Signal) | Err(RecvTimeoutError::Timeout) => {
                bail!("ended before the server had made everything durable")
            }
            Err(error @ RecvTimeoutError::Disconnected) => return Err(error.into()),
        }
    }
    Ok(())
}
