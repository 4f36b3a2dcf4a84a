//! Mounts a null file system, to measure the way through the kernel.
//!
//! `null_mount DIR [--classic] [--echo | --echo-apart] [--cores 0,1]`; `umount DIR` ends it.
//! `--echo`: before every answer a frame goes over loopback and back, within the lane.
//! `--echo-apart`: to a lane in a process of its own on the same core, and back.

use ring::null::{Before, NullFs};
use ring::{Config, KernelChannel, Mesh, MountOptions, Ring, Transport, mount, pin_to_core};
use rustix::process::Signal;
use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use wire::LaneId;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let Some(dir) = arguments.first() else {
        eprintln!("null_mount DIR [--classic] [--echo | --echo-apart] [--cores 0,1]");
        std::process::exit(2);
    };
    if dir == ECHO_LANE {
        return echo_lane();
    }
    let cores = arguments.iter().skip_while(|argument| *argument != "--cores").nth(1);
    let cores: Vec<u16> = match cores {
        Some(list) => list.split(',').filter_map(|core| core.parse().ok()).collect(),
        None => ring::usable_cores()?,
    };
    let transport = if has("--classic") { Transport::Classic } else { Transport::best() };
    let apart = has("--echo-apart");
    let before = if apart || has("--echo") { Before::Echo } else { Before::Nothing };
    let options = MountOptions { source: "null".to_owned(), allow_other: true };
    let device = mount(Path::new(dir), &options)?;
    let channels = KernelChannel::share(device, transport, &cores, KernelChannel::QUEUE_DEPTH)?;
    let lane_count = u16::try_from(cores.len()).unwrap_or(u16::MAX);
    let posts = Mesh::posts(lane_count)?;
    println!("null: {dir}: {transport:?}, {before:?}, cores {cores:?}");
    let mut lanes = Vec::new();
    for ((channel, post), core) in channels.into_iter().zip(posts).zip(cores) {
        lanes.push(std::thread::spawn(move || -> io::Result<()> {
            pin_to_core(core)?;
            let mut config = Config::new(LaneId(post.lane().0));
            config.post = Some(post);
            config.kernel = Some(channel);
            let mut echo = None;
            if apart {
                let (child, address) = start_echo_lane()?;
                echo = Some(child);
                config.server = Some(address);
            } else if before == Before::Echo {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                config.server = Some(listener.local_addr()?);
                config.listener = Some(listener.into());
            }
            let mut ring = Ring::new(config)?;
            let mut brain = NullFs::new(before, transport == Transport::Uring, None);
            while ring.turn(&mut brain)? {}
            println!("{:?}", ring.counters());
            if let Some(mut child) = echo {
                child.kill()?;
                child.wait()?;
            }
            Ok(())
        }));
    }
    for lane in lanes {
        match lane.join() {
            Ok(result) => result?,
            Err(_) => return Err(io::Error::other("a lane panicked")),
        }
    }
    Ok(())
}

/// First argument of the process that only echoes.
const ECHO_LANE: &str = "--echo-lane";

/// Starts a process with an echoing lane on this thread's core.
fn start_echo_lane() -> io::Result<(Child, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg(ECHO_LANE).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    Ok((child, line.trim().parse().map_err(io::Error::other)?))
}

/// Echoes frames until it is killed, or its parent ends.
fn echo_lane() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut config = Config::new(LaneId(0));
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config)?;
    let mut brain = NullFs::new(Before::Nothing, false, None);
    while ring.turn(&mut brain)? {}
    Ok(())
}
