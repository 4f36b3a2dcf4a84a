//! Reading a store that a server has open: a command on the server's machine reads rows and objects from the
//! disk, and the server freezes changes while it does.
//!
//! Invariant: if [`Freeze::end`] returns true, no change was made from its begin to its end, even if the server was
//! killed meanwhile.

use crate::{args, export, out};
use anyhow::{Result, bail};
use library::{FREEZE_MS_MAX, Volume};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time limit for changes that had begun before the freeze.
const QUIET_MAX: Duration = Duration::from_secs(20);
/// The pause between queries of their number.
const QUIET_PAUSE: Duration = Duration::from_millis(1);
/// How often the freeze is renewed.
const RENEWAL: Duration = Duration::from_secs(5);

/// The environment of a command that reads a store while a server has it open: it freezes changes and
/// reports lines.
pub(crate) trait FreezeControl {
    /// Freezes changes of all clients. Returns when those that had begun are done and durable.
    fn freeze(&mut self) -> Result<()>;
    /// Ends the freeze.
    ///
    /// # Errors
    /// When it was interrupted.
    fn thaw(&mut self) -> Result<()>;
    /// Reports a line to the user.
    fn report_line(&mut self, line: &str) -> Result<()>;
}

/// The server of a store on this machine.
pub(crate) struct LocalServer {
    server: args::Server,
    freeze: Option<Freeze>,
}

impl LocalServer {
    /// For the store in a directory.
    pub(crate) fn new(store: &Path, login: &args::AdminLogin) -> Self {
        Self { server: login.of(store), freeze: None }
    }
}

impl FreezeControl for LocalServer {
    fn freeze(&mut self) -> Result<()> {
        self.freeze = Some(Freeze::begin(&self.server)?);
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        self.freeze.take().map_or(Ok(()), end)
    }

    fn report_line(&mut self, line: &str) -> Result<()> {
        out::print_error_line(line);
        Ok(())
    }
}

/// Ends a freeze that must not have been interrupted.
pub(crate) fn end(freeze: Freeze) -> Result<()> {
    if !freeze.end()? {
        bail!("the server was started again, or did not hear from this command: try again");
    }
    Ok(())
}

/// Changes of all clients are frozen while this exists: a thread renews the freeze.
pub(crate) struct Freeze {
    over: Sender<()>,
    renewing: JoinHandle<Result<bool>>,
}

impl Freeze {
    /// Freezes changes of all clients. Returns when those that had begun are done and durable.
    pub(crate) fn begin(server: &args::Server) -> Result<Self> {
        let (over, ends) = channel::<()>();
        let (frozen_sender, frozen) = channel();
        let server = server.clone();
        let renew = move || {
            let (mut volume, _) = export::connect(&server)?;
            // What mounts write behind cannot be waited for during the freeze.
            volume.sync_server()?;
            wait_until_quiet(&mut volume)?;
            volume.sync_answered()?;
            frozen_sender.send(())?;
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(RENEWAL) {
                if !volume.freeze(FREEZE_MS_MAX)?.held_on {
                    volume.freeze(0)?;
                    return Ok(false);
                }
            }
            let ended = volume.freeze(0)?;
            volume.leave()?;
            Ok(ended.held_on)
        };
        let renewing = std::thread::Builder::new().name("freeze".to_owned()).spawn(renew)?;
        let freeze = Self { over, renewing };
        if frozen.recv().is_err() {
            // The thread ended before the freeze began.
            freeze.end()?;
            bail!("the server could not be asked to let changes wait");
        }
        Ok(freeze)
    }

    /// Ends the freeze; false if it was interrupted.
    pub(crate) fn end(self) -> Result<bool> {
        drop(self.over);
        match self.renewing.join() {
            Ok(held_on) => held_on,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Freezes changes and waits until none that had begun is left at any lane. A count of zero is valid only after
/// all lanes were frozen: the lane at which a change began counts it.
fn wait_until_quiet(volume: &mut Volume) -> Result<()> {
    let began_at = Instant::now();
    volume.freeze(FREEZE_MS_MAX)?;
    loop {
        let frozen = volume.freeze(FREEZE_MS_MAX)?;
        if !frozen.held_on {
            bail!("the server was started again meanwhile: try again");
        }
        if frozen.change_count == 0 {
            return Ok(());
        }
        if began_at.elapsed() > QUIET_MAX {
            volume.freeze(0)?;
            let count = frozen.change_count;
            bail!("{count} changes that had begun did not end within {QUIET_MAX:?}: try again");
        }
        std::thread::sleep(QUIET_PAUSE);
    }
}
