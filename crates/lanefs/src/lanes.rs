//! The threads of a server or a mount: one per lane, pinned, each with its own ring and core.
//!
//! It is independent of the cores. Invariant: every lane that was started is reported
//! once, as ended.

use crate::args::LANE_COUNT_MAX;
use crate::reload::Reload;
use crate::{notify, signals};
use anyhow::{Context as _, Result, bail};
use interface::Core;
use ring::{Config, Ring, Stopper};
use signal_hook::consts::SIGHUP;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a process with lanes waits for.
#[derive(Debug)]
pub(crate) enum ProcessEvent {
    /// A lane has its ring and takes turns.
    Ready,
    /// A lane has ended.
    Ended(io::Result<()>),
    /// A signal requested the end.
    Signal,
}

/// The channel of events: signals from its creation on, lanes once they are started. A process with
/// a parent ends with it. SIGHUP means `reload`, unless there is none or this process has a terminal.
pub(crate) fn listen(
    parent_pid: Option<u32>,
    reload: Option<Reload>,
) -> Result<(Sender<ProcessEvent>, Receiver<ProcessEvent>)> {
    // A process with a parent gets no SIGHUP from a terminal.
    let mut reload = reload.filter(|_| parent_pid.is_some() || !signals::has_terminal());
    let (sender, events) = channel();
    let on_signal = sender.clone();
    signals::on_ending(move |signal| {
        if let Some(reload) = reload.as_mut().filter(|_| signal == SIGHUP) {
            reload.run();
            return;
        }
        notify::stopping();
        // Nobody listens any more when the process is about to end.
        let _unheard = on_signal.send(ProcessEvent::Signal);
    })?;
    if let Some(parent_pid) = parent_pid
        && !signals::tie_to_parent(parent_pid)?
    {
        bail!("the parent process has ended");
    }
    Ok((sender, events))
}

/// The cores of `wanted` lanes: by default one lane per usable core; more lanes than
/// cores share them.
pub(crate) fn cores(wanted: Option<u16>) -> Result<Vec<u16>> {
    let usable = ring::usable_cores().context("cannot find out the usable cores")?;
    let lane_count = wanted.map_or(usable.len().min(LANE_COUNT_MAX.into()), usize::from);
    Ok(usable.iter().copied().cycle().take(lane_count).collect())
}

/// Starts a lane on its own thread, pinned to `core` if there is one. `make` runs there, because a ring
/// belongs to the thread that made it. Threads that do what would block may use all cores that the caller
/// may, as far as the kernel lets them ([`Config::worker_cores`]).
pub(crate) fn start<B, M>(
    name: String,
    core: Option<u16>,
    events: Sender<ProcessEvent>,
    make: M,
) -> Result<()>
where
    B: Core,
    M: FnOnce() -> io::Result<(Config, B)> + Send + 'static,
{
    let thread = std::thread::Builder::new().name(name);
    let worker_cores = ring::usable_cores().context("cannot find out the usable cores")?;
    let spawned = thread.spawn(move || {
        let ended = run((core, worker_cores), &events, make);
        // Nobody listens any more when the process is about to end.
        let _unheard = events.send(ProcessEvent::Ended(ended));
    });
    spawned.context("cannot start a lane")?;
    Ok(())
}

fn run<B: Core>(
    (core, worker_cores): (Option<u16>, Vec<u16>),
    events: &Sender<ProcessEvent>,
    make: impl FnOnce() -> io::Result<(Config, B)>,
) -> io::Result<()> {
    if let Some(core) = core {
        ring::pin_to_core(core)?;
    }
    let (mut config, mut core) = make()?;
    config.worker_cores = worker_cores;
    let mut ring = Ring::new(config)?;
    // As above.
    let _unheard = events.send(ProcessEvent::Ready);
    while ring.turn(&mut core)? {}
    Ok(())
}

/// Waits until all lanes take turns; one that does not ends the others' waiting. Returns whether a signal asked
/// for the end meanwhile.
pub(crate) fn wait_until_ready(events: &Receiver<ProcessEvent>, lane_count: usize) -> Result<bool> {
    let (mut ready_count, mut asked) = (0, false);
    while ready_count < lane_count {
        match events.recv()? {
            ProcessEvent::Ready => ready_count += 1,
            ProcessEvent::Ended(ended) => {
                ended.context("a lane did not start")?;
                bail!("a lane ended at its start");
            }
            // A lane that has not started cannot end well.
            ProcessEvent::Signal => asked = true,
        }
    }
    Ok(asked)
}

/// Asks all lanes to end.
pub(crate) fn stop(stoppers: &[Stopper]) {
    for stopper in stoppers {
        stopper.stop();
    }
}

/// `1 lane`, `2 lanes`.
pub(crate) fn count_text(lane_count: usize) -> String {
    if lane_count == 1 { "1 lane".to_owned() } else { format!("{lane_count} lanes") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wait(said: Vec<ProcessEvent>) -> Result<bool> {
        let (sender, events) = channel();
        said.into_iter().for_each(|one| sender.send(one).unwrap());
        wait_until_ready(&events, 2)
    }

    #[test]
    fn a_signal_during_the_start_is_reported_when_all_lanes_are_ready() {
        assert!(!wait(vec![ProcessEvent::Ready, ProcessEvent::Ready]).unwrap());
        assert!(
            wait(vec![ProcessEvent::Signal, ProcessEvent::Ready, ProcessEvent::Ready]).unwrap()
        );
        assert!(
            wait(vec![
                ProcessEvent::Ready,
                ProcessEvent::Signal,
                ProcessEvent::Signal,
                ProcessEvent::Ready
            ])
            .unwrap()
        );
    }

    #[test]
    fn a_lane_that_does_not_start_is_an_error() {
        let failed = || ProcessEvent::Ended(Err(io::ErrorKind::OutOfMemory.into()));
        assert!(wait(vec![ProcessEvent::Ready, failed()]).is_err());
        assert!(wait(vec![ProcessEvent::Signal, ProcessEvent::Ready, failed()]).is_err());
        assert!(wait(vec![ProcessEvent::Ready, ProcessEvent::Ended(Ok(()))]).is_err());
    }
}
