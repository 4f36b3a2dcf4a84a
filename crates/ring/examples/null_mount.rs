//! Mounts a null file system, to measure the way through the kernel.
//!
//! `null_mount DIR [--classic] [--echo] [--cores 0,1]`; `umount DIR` ends it.

use ring::null::{Before, NullFs};
use ring::{Config, KernelChannel, Mesh, MountOptions, Ring, Transport, mount, pin_to_core};
use std::io;
use std::net::TcpListener;
use std::path::Path;
use wire::LaneId;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let Some(dir) = arguments.first() else {
        eprintln!("null_mount DIR [--classic] [--echo] [--cores 0,1]");
        std::process::exit(2);
    };
    let cores = arguments.iter().skip_while(|argument| *argument != "--cores").nth(1);
    let cores: Vec<u16> = match cores {
        Some(list) => list.split(',').filter_map(|core| core.parse().ok()).collect(),
        None => ring::usable_cores()?,
    };
    let transport = if has("--classic") { Transport::Classic } else { Transport::best() };
    let before = if has("--echo") { Before::Echo } else { Before::Nothing };
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
            if before == Before::Echo {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                config.server = Some(listener.local_addr()?);
                config.listener = Some(listener.into());
            }
            let mut ring = Ring::new(config)?;
            let mut brain = NullFs::new(before, transport == Transport::Uring, None);
            while ring.turn(&mut brain)? {}
            println!("{:?}", ring.counters());
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
