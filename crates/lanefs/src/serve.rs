//! `lanefs serve`: a store's lanes on the network, until a signal.
//!
//! It opens the store, replays its logs and gives each lane its shards, its log and a ring; what
//! lanes do with requests is theirs. Invariant: `listening on` is printed when every lane takes
//! turns, and a clean end has everything answered on disk.

use crate::args;
use crate::lanes::{self, News, count_text};
use crate::{out, secret, signals, up};
use anyhow::{Context as _, Result, bail};
use ring::{Mesh, Stopper};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use store::{Shape, Store};

/// Runs the command.
pub(crate) fn run(args: &args::Serve) -> Result<()> {
    let (tell, news) = channel();
    let on_signal = tell.clone();
    signals::on_ending(move |_| {
        // Nobody listens any more when the process is about to end.
        let _unheard = on_signal.send(News::Signal);
    })?;
    if let Some(parent_pid) = args.parent_pid
        && !signals::tie_to_parent(parent_pid)?
    {
        bail!("the parent process has ended");
    }
    let secret = secret::read_or_make(&secret::path(args.secret.secret_file.as_deref())?)?;
    let listener = listener(args)?;
    let path = std::path::absolute(&args.store)?;
    let store = store::open_or_create(&path, &Shape::default())?;
    let address = listener.local_addr().context("the listening socket has no address")?;
    let cores = lanes::cores(args.lanes)?;
    let stoppers = start(args, &store, listener, secret, &cores, &tell)?;
    wait_until_ready(&news, stoppers.len())?;
    out::tell(&format!("listening on {address}, {}", count_text(stoppers.len())));
    wait_for_end(&news, &stoppers)
}

/// The socket handed in by `up`, which outlives us, or our own.
fn listener(args: &args::Serve) -> Result<TcpListener> {
    if args.listen_on_stdin {
        let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(TcpListener::from(stdin));
    }
    up::bind(&args.listen)
}

fn wait_until_ready(news: &Receiver<News>, lane_count: usize) -> Result<()> {
    let mut ready_count = 0;
    while ready_count < lane_count {
        match news.recv()? {
            News::Ready => ready_count += 1,
            News::Ended(ended) => {
                ended.context("a lane did not start")?;
                bail!("a lane ended at its start");
            }
            News::Signal => bail!("asked to end before it was ready"),
        }
    }
    Ok(())
}

/// Lanes end when they are asked to, after what they have begun. One that ends by itself takes the
/// process with it: its shards would answer nobody.
fn wait_for_end(news: &Receiver<News>, stoppers: &[Stopper]) -> Result<()> {
    let mut running_count = stoppers.len();
    let mut asked = false;
    while running_count > 0 {
        match news.recv()? {
            News::Signal => {
                asked = true;
                lanes::stop(stoppers);
            }
            News::Ended(ended) => {
                ended.context("a lane failed")?;
                if !asked {
                    bail!("a lane ended without being asked to");
                }
                running_count -= 1;
            }
            News::Ready => {}
        }
    }
    Ok(())
}

fn start(
    _args: &args::Serve,
    _store: &Store,
    _listener: TcpListener,
    _secret: wire::Secret,
    cores: &[u16],
    _tell: &Sender<News>,
) -> Result<Vec<Stopper>> {
    let posts = Mesh::posts(u16::try_from(cores.len())?)?;
    Ok(posts.iter().map(ring::Post::stopper).collect())
}
