//! The hidden command that `lanefs bench fuse-null` measures: a null file system, really mounted,
//! with one lane.
//!
//! Invariant: it unmounts on a signal or when its parent ends, and leaves no process behind.

use crate::args::{BenchNull, Exchange};
use crate::lanes::{self, ProcessEvent};
use crate::mounts::Served;
use crate::{driver, fuse_device, out, signals};
use anyhow::{Context as _, Result, bail};
use bench::null::{Before, Cost, NullFs};
use bench::{NULL_READ_BYTES, NULL_READY};
use interface::Object;
use ring::{Config, DriverChoice, DriverKind, KernelChannel, MountOptions, Ring, pin_to_core};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use wire::{InodeNo, LaneId};

/// Runs the command.
pub(crate) fn run(args: &BenchNull) -> Result<()> {
    let driver = driver::choose(args.driver.driver)?;
    let Some(dir) = &args.dir else { return echo(args, driver) };
    let transport = fuse_device::transport(args.fuse, driver)?;
    // Before anything is mounted, so that no signal finds it mounted and nobody listening.
    let (sender, events) = lanes::listen(Some(args.parent_pid), None)?;
    let mut echo = None;
    let mut server = None;
    if args.exchange == Exchange::Apart {
        let (child, address) = start_echo(args.core, driver)?;
        (echo, server) = (Some(child), Some(address));
    }
    let options = MountOptions { source: "null".to_owned(), ..MountOptions::default() };
    let device = ring::mount(dir, &options)?;
    let mount = Served::new(dir, &device)?;
    let contents = args.contents.as_ref().map(File::open).transpose();
    let contents = contents.context("cannot open the directory for contents")?.map(OwnedFd::from);
    let costs = args.costs.clone();
    let plan = Plan {
        driver,
        transport,
        exchange: args.exchange,
        server,
        core: args.core,
        costs,
        contents,
    };
    let started = KernelChannel::share(device, transport, &[args.core], KernelChannel::QUEUE_DEPTH)
        .map(|mut channels| plan.start(channels.pop(), sender));
    let served = match started {
        Ok(()) => serve(dir, &events, echo.as_ref()),
        Err(error) => Err(error.into()),
    };
    let cleared = mount.clear();
    if let Some(mut echo) = echo {
        // It may have ended already; either way it is waited for.
        echo.kill().ok();
        echo.wait().ok();
    }
    served.and(cleared)
}

/// The object of all contents.
const CONTENTS: Object = Object { shard_index: 0, stripe_index: 0, inode: InodeNo::ROOT };

struct Plan {
    driver: DriverKind,
    transport: ring::Transport,
    exchange: Exchange,
    server: Option<SocketAddr>,
    core: u16,
    costs: Vec<Cost>,
    /// The file for written data.
    contents: Option<OwnedFd>,
}

impl Plan {
    /// Starts the lane on its own thread.
    fn start(self, channel: Option<KernelChannel>, sender: Sender<ProcessEvent>) {
        std::thread::spawn(move || {
            let ended = self.run(channel, &sender);
            // Nobody listens any more when the process is about to end.
            let _unheard = sender.send(ProcessEvent::Ended(ended));
        });
    }

    fn run(self, channel: Option<KernelChannel>, sender: &Sender<ProcessEvent>) -> io::Result<()> {
        pin_to_core(self.core)?;
        let mut config = Config::new(LaneId(0));
        config.driver = DriverChoice::Only(self.driver);
        config.kernel = channel;
        config.server = self.server;
        if self.exchange == Exchange::Within {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            config.server = Some(listener.local_addr()?);
            config.listener = Some(listener.into());
        }
        let before = if self.exchange == Exchange::None { Before::Nothing } else { Before::Echo };
        let contents = self.contents.is_some().then_some(CONTENTS);
        config.store = self.contents;
        let null = NullFs::new(before, self.transport == ring::Transport::Uring, contents);
        let null = null.costing(self.costs);
        turn(config, null, || {
            // As above.
            let _unheard = sender.send(ProcessEvent::Ready);
        })
    }
}

/// Turns until the core has enough, with bytes in memory for the reads that are measured.
fn turn(config: Config, null: NullFs, ready: impl FnOnce()) -> io::Result<()> {
    let mut ring = Ring::new(Config { checksum_memory: false, ..config })?;
    let buffers = NULL_READ_BYTES.iter().map(|count| ring.bulk_of(&vec![7; *count])).collect();
    let buffers: Option<Vec<_>> = buffers;
    let mut null =
        null.keeping(buffers.ok_or_else(|| io::Error::other("no buffers to read from"))?);
    ready();
    while ring.turn(&mut null)? {}
    Ok(())
}

/// Waits for the end of the mount or a signal.
fn serve(dir: &Path, events: &Receiver<ProcessEvent>, echo: Option<&Child>) -> Result<()> {
    if lanes::wait_until_ready(events, 1)? {
        return Ok(());
    }
    // Interrupted: see `lanefs mount`.
    rustix::io::retry_on_intr(|| rustix::fs::statfs(dir)).context("the mount does not answer")?;
    let own = std::process::id();
    let pids = echo.map_or_else(|| own.to_string(), |echo| format!("{own} {}", echo.id()));
    out::print_line(&format!("{NULL_READY}{pids}"));
    loop {
        match events.recv()? {
            ProcessEvent::Signal => return Ok(()),
            ProcessEvent::Ended(ended) => return ended.context("the lane failed"),
            ProcessEvent::Ready => {}
        }
    }
}

/// Starts the echoing lane in a separate process.
fn start_echo(core: u16, driver: DriverKind) -> Result<(Child, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([bench::NULL_COMMAND, "--core", &core.to_string()]);
    command.args(["--parent-pid", &std::process::id().to_string()]);
    command.args(["--driver", driver.text()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the lane that echoes")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let address = line.trim().parse().context("the lane that echoes ended at its start")?;
    Ok((child, address))
}

/// Echoes frames until it is killed, or its parent ends.
fn echo(args: &BenchNull, driver: DriverKind) -> Result<()> {
    if !signals::tie_to_parent(args.parent_pid)? {
        bail!("the parent process has ended");
    }
    pin_to_core(args.core)?;
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    out::print_line(&listener.local_addr()?.to_string());
    let mut config = Config::new(LaneId(0));
    config.driver = DriverChoice::Only(driver);
    config.listener = Some(listener.into());
    turn(config, NullFs::new(Before::Nothing, false, None), || {}).context("the lane failed")
}
