//! A store while a server has it open: its rows and objects are read where they lie, on the server's machine, and the server
//! lets changes wait for the moment that is looked at.
//!
//! Invariant: what [`Hold::end`] says was held on for all of its life was one moment, also if the server was
//! killed meanwhile.

use crate::{args, export, out};
use anyhow::{Result, bail};
use library::{FREEZE_MS_MAX, Volume};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long changes that had begun may take to end.
const QUIET_MAX: Duration = Duration::from_secs(20);
/// How long to wait before it is asked again whether they have.
const QUIET_PAUSE: Duration = Duration::from_millis(1);
/// How often the server is asked to hold on.
const RENEWAL: Duration = Duration::from_secs(5);

/// What a command has beside it that reads a store while it is served: who lets changes wait, and who is told.
pub(crate) trait Beside {
    /// Lets changes of all clients wait. Returns when those that had begun are done and on disk.
    fn hold(&mut self) -> Result<()>;
    /// Changes go on.
    ///
    /// # Errors
    /// When they did not wait without a break.
    fn release(&mut self) -> Result<()>;
    /// Tells people.
    fn line(&mut self, line: &str) -> Result<()>;
}

/// The server of a store on this machine.
pub(crate) struct Here {
    server: args::Server,
    hold: Option<Hold>,
}

impl Here {
    /// For the store in a directory.
    pub(crate) fn new(store: &Path, login: &args::AdminLogin) -> Self {
        Self { server: login.of(store), hold: None }
    }
}

impl Beside for Here {
    fn hold(&mut self) -> Result<()> {
        self.hold = Some(Hold::begin(&self.server)?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.hold.take().map_or(Ok(()), end)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        out::print_error_line(line);
        Ok(())
    }
}

/// Ends a hold that must have been one moment.
pub(crate) fn end(hold: Hold) -> Result<()> {
    if !hold.end()? {
        bail!("the server was started again, or did not hear from this command: try again");
    }
    Ok(())
}

/// Changes wait while this lives.
pub(crate) struct Hold {
    over: Sender<()>,
    renewing: JoinHandle<Result<bool>>,
}

impl Hold {
    /// Lets changes of all clients wait. Returns when those that had begun are done and on disk.
    pub(crate) fn begin(server: &args::Server) -> Result<Self> {
        let (over, ends) = channel::<()>();
        let (tell, is_held) = channel();
        let server = server.clone();
        let renew = move || {
            let (mut volume, _) = export::connect(&server)?;
            wait_until_quiet(&mut volume)?;
            volume.sync_server()?;
            tell.send(())?;
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(RENEWAL) {
                if !volume.freeze(FREEZE_MS_MAX)?.held_on {
                    volume.freeze(0)?;
                    return Ok(false);
                }
            }
            let frozen = volume.freeze(0)?;
            volume.leave()?;
            Ok(frozen.held_on)
        };
        let renewing = std::thread::Builder::new().name("freeze".to_owned()).spawn(renew)?;
        let hold = Self { over, renewing };
        if is_held.recv().is_err() {
            // It ended before it could say so.
            hold.end()?;
            bail!("the server could not be asked to let changes wait");
        }
        Ok(hold)
    }

    /// Changes go on; whether they waited without a break.
    pub(crate) fn end(self) -> Result<bool> {
        drop(self.over);
        match self.renewing.join() {
            Ok(held_on) => held_on,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Lets changes wait, until none that had begun is left at any lane. One round in which no lane has any counts
/// when all lanes let changes wait before it: what one has left to do is counted where it began.
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
