//! The real binary as a server and as mounts.

use crate::child::{Process, child_command, until};
use crate::run_folder::Setup;
use crate::stores;
use anyhow::{Context as _, Result, bail};
use library::{ConnectOptions, Volume};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

/// The export in which root is root.
pub(crate) const EXPORT: &str = "up";
/// How long a restarted server waits for killed clients. Living ones reconnect in less, even on the
/// slowest disk.
const RECOVERY_SOFT: &str = "5s";
/// How long a client waits for its server; longer than any server of a run is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// The result of a start.
pub(crate) enum Started {
    /// It serves; its output so far.
    Serves { output: String },
    /// It has ended by itself.
    Ended { status: ExitStatus, output: String },
}

/// A store and its server process.
#[derive(Debug)]
pub(crate) struct Server {
    setup: Setup,
    store: PathBuf,
    arguments: Vec<String>,
    address: Option<SocketAddr>,
    process: Option<Process>,
}

impl Server {
    /// Starts a server of a new store in `store`.
    pub(crate) fn start(setup: &Setup, store: PathBuf, arguments: &[&str]) -> Result<Self> {
        let mut server = Self::prepare(setup, store, arguments);
        server.restart()?;
        Ok(server)
    }

    fn prepare(setup: &Setup, store: PathBuf, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        Self { setup: setup.clone(), store, arguments, address: None, process: None }
    }

    /// Its address.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.address.context("the server was never started")
    }

    /// The directory of its store.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Restarts it at the same address, and waits until it serves.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.restart_with(&[])
    }

    /// As [`Self::restart`], with further arguments for this start.
    pub(crate) fn restart_with(&mut self, more: &[&str]) -> Result<()> {
        self.launch(more)?;
        let line = self.running()?.line_with("listening on ")?;
        let listening = line.split("listening on ").nth(1).unwrap_or_default();
        let address = listening.split(',').next().unwrap_or_default();
        self.address = Some(address.parse().with_context(|| line.clone())?);
        Ok(())
    }

    /// Starts it without waiting.
    pub(crate) fn launch(&mut self, more: &[&str]) -> Result<()> {
        let listen = self.address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string());
        let mut command = child_command(&self.setup.lanefs);
        command.args(["serve", "--listen", &listen]).arg("--store").arg(&self.store);
        command.args(["--export", &format!("{EXPORT}=no-root-squash")]);
        command.args(["--recovery-soft", RECOVERY_SOFT, "--lease-term", RECOVERY_SOFT]);
        command.arg("--secret-file").arg(secret_file(&self.setup));
        command.args(&self.arguments).args(more).stdin(Stdio::null());
        let log = self.setup.folder.join("server.log");
        self.process = Some(Process::start(&mut command, log)?);
        Ok(())
    }

    /// Waits until it serves or has ended.
    pub(crate) fn started(&mut self) -> Result<Started> {
        let process = self.running()?;
        let mut ended = false;
        until("the server serves or ends", || {
            ended = process.has_ended()?;
            Ok(ended || process.output().contains("listening on "))
        })?;
        let output = process.output();
        if output.contains("listening on ") {
            let line = process.line_with("listening on ")?;
            let listening = line.split("listening on ").nth(1).unwrap_or_default();
            let address = listening.split(',').next().unwrap_or_default();
            self.address = Some(address.parse().with_context(|| line.clone())?);
            return Ok(Started::Serves { output });
        }
        let mut process = self.process.take().context("the server does not run")?;
        Ok(Started::Ended { status: process.end()?, output: process.output() })
    }

    /// The running process.
    pub(crate) fn running(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the server does not run")
    }

    /// Kills it with -9.
    pub(crate) fn kill(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&mut self) -> Result<u64> {
        resident_bytes(self.running()?)
    }

    /// Waits until it has ended by itself; returns its output.
    pub(crate) fn ended(&mut self) -> Result<String> {
        let mut process = self.process.take().context("the server does not run")?;
        process.end()?;
        Ok(process.output())
    }

    /// Stops it with a signal and waits.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal(Signal::TERM);
        let status = process.end()?;
        if !status.success() {
            bail!("the server ended with {status}:\n{}", process.output());
        }
        Ok(())
    }

    /// Checks its store on a disk that is about to be removed. The server must have ended.
    pub(crate) fn check_store(&self) -> Result<()> {
        for line in stores::check(&self.setup.lanefs, &self.store)? {
            println!("{}: {line}", self.store.display());
        }
        Ok(())
    }

    /// Repairs its store; returns the exit code and the output.
    pub(crate) fn repair_store(&self) -> Result<(Option<i32>, String)> {
        stores::repair(&self.setup.lanefs, &self.store)
    }

    /// The options for a client of it.
    pub(crate) fn options(&self) -> Result<ConnectOptions> {
        connect_options(self.address()?, &secret_file(&self.setup))
    }

    /// A new client.
    pub(crate) fn volume(&self) -> Result<Volume> {
        Ok(Volume::connect(&self.options()?)?)
    }

    /// A new client that connects to `address`.
    pub(crate) fn volume_through(&self, address: SocketAddr) -> Result<Volume> {
        Ok(Volume::connect(&ConnectOptions { address, ..self.options()? })?)
    }
}

fn resident_bytes(process: &Process) -> Result<u64> {
    let status = procfs::process::Process::new(process.pid().as_raw_pid())?.status()?;
    Ok(status.vmrss.context("no VmRSS")? << 10)
}

/// The secret file that the server and the clients of a run share.
pub(crate) fn secret_file(setup: &Setup) -> PathBuf {
    setup.folder.join("secret")
}

/// The options of a client with this secret file, as root.
pub(crate) fn connect_options(address: SocketAddr, secret_file: &Path) -> Result<ConnectOptions> {
    let secret = library::secret::read(secret_file)?;
    let options = ConnectOptions::new(address, secret);
    Ok(ConnectOptions { export: EXPORT.to_owned(), connect_timeout: CONNECT_TIMEOUT, ..options })
}

/// A mount of the real binary.
#[derive(Debug)]
pub(crate) struct Mount {
    process: Process,
    /// Its mount point.
    pub(crate) dir: PathBuf,
}

impl Mount {
    /// Mounts what `address` serves on a new folder of that name.
    pub(crate) fn new(setup: &Setup, address: SocketAddr, name: &str) -> Result<Self> {
        let dir = setup.folder.join(name);
        fs::create_dir(&dir)?;
        let mut command = child_command(&setup.lanefs);
        command.args(["mount", &address.to_string()]).arg(&dir);
        command.args(["--export", EXPORT, "--fuse", "classic"]);
        command.arg("--secret-file").arg(secret_file(setup)).stdin(Stdio::null());
        let log = setup.folder.join(format!("{name}.log"));
        let mut mount = Self { process: Process::start(&mut command, log)?, dir };
        mount.process.line_with("mounted ")?;
        Ok(mount)
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(&self.process)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Kills it with -9 and detaches the dead mount.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.clear();
        Ok(())
    }

    /// Unmounts it and waits.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::TERM);
        let status = self.process.end()?;
        if !status.success() {
            bail!("a mount ended with {status}:\n{}", self.process.output());
        }
        Ok(())
    }

    fn clear(&self) {
        // It may be unmounted already.
        unmount(&self.dir, UnmountFlags::DETACH).ok();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.clear();
    }
}
