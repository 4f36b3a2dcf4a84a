//! The servers that a benchmark starts: a lanefs server, or one of the limits, each in a process of
//! its own on the server's cores.
//!
//! Invariant: no process outlives its [`Server`], and no file its [`Home`].

use crate::cores::Cores;
use crate::limit::{self, Limit};
use crate::plan::Options;
use anyhow::{Context as _, Result, bail};
use disk::Share;
use library::{ConnectOptions, Identity, Sealing, Volume};
use ring::{DriverChoice, DriverKind, IoEngine, Transport};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use wire::{Secret, Status};

/// The hidden command of our binary that runs one of the limits.
pub const LIMIT_COMMAND: &str = "bench-limit";
/// The export on which root acts as root, so that root can run benchmarks too.
const EXPORT: &str = "bench";
const SECRET_FILE: &str = "secret";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A folder for stores and mounts, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Home {
    dir: TempDir,
    secret: Secret,
    pub(crate) options: Options,
    pub(crate) cores: Cores,
}

impl Home {
    /// Makes the folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lanefs-bench-").tempdir_in(&options.dir);
        let shown = options.dir.display();
        let dir = dir.with_context(|| format!("cannot make a folder in {shown}: see --dir"))?;
        let cores =
            if options.together { Cores::together()? } else { Cores::split(options.lane_count)? };
        ring::raise_fd_limit().context("cannot raise the limit of open files")?;
        cores.go_to_generator()?;
        let secret = make_secret(&dir.path().join(SECRET_FILE)).context("cannot make a secret")?;
        Ok(Self { dir, secret, options: options.clone(), cores })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The file with the secret of its servers' clients.
    pub(crate) fn secret_path(&self) -> PathBuf {
        self.path().join(SECRET_FILE)
    }

    /// The server to measure: a new one, or the remote one.
    ///
    /// # Errors When it does not start.
    pub(crate) fn server(&self, name: &str) -> Result<Server> {
        match &self.options.remote {
            None => self.server_on(name, self.options.driver),
            Some(remote) => {
                let (secret, export) = (remote.secret, remote.export.clone());
                Ok(Server::new(remote.address, Some(Access { secret, export })))
            }
        }
    }

    /// A new server with this sharing mode.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn sharing(&self, share: Share) -> Result<Server> {
        let text = share.text();
        let arguments = [format!("--share={text}")];
        self.start_lanefs(&format!("share-{text}"), self.options.driver, &arguments)
    }

    /// A new server whose connections are under TLS.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn sealed(&self, name: &str) -> Result<Server> {
        let arguments = ["--seal".to_owned()];
        let mut server = self.start_lanefs(name, self.options.driver, &arguments)?;
        server.sealing = Sealing::All;
        Ok(server)
    }

    /// A new server that neither counts nor traces requests.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn unobserved(&self, name: &str) -> Result<Server> {
        self.start_lanefs(name, self.options.driver, &["--unobserved".to_owned()])
    }

    /// A new server with this `--affinity`.
    ///
    /// # Errors When it does not come up.
    pub(crate) fn with_affinity(&self, affinity: &str) -> Result<Server> {
        let arguments = [format!("--affinity={affinity}")];
        self.start_lanefs(&format!("affinity-{affinity}"), self.options.driver, &arguments)
    }

    /// A new server whose files are read and written by this engine, past the page cache or through it.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn with_engine(&self, engine: IoEngine, direct: bool) -> Result<Server> {
        let way = if direct { "on" } else { "off" };
        let arguments = [format!("--io-engine={}", engine.text()), format!("--io-direct={way}")];
        let name = format!("engine-{}-{way}", engine.text());
        self.start_lanefs(&name, self.options.driver, &arguments)
    }

    /// A new server whose log gathers for so long before it is applied to the rows.
    ///
    /// # Errors When it does not come up.
    pub(crate) fn collecting(&self, name: &str, collect_ms: u64) -> Result<Server> {
        // So that the length of the log never makes the applier start early.
        const LOG_BYTES_MAX: u64 = 1 << 36;
        let arguments = [
            format!("--collect={collect_ms}ms"),
            format!("--log-max={LOG_BYTES_MAX}"),
            format!("--segment={LOG_BYTES_MAX}"),
        ];
        self.start_lanefs(name, self.options.driver, &arguments)
    }

    /// A new server whose lanes are on this driver.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn server_on(&self, name: &str, driver: DriverKind) -> Result<Server> {
        let share = self.options.shares.first().filter(|_| self.options.shares.len() == 1);
        let share = share.map(|share| format!("--share={}", share.text()));
        self.start_lanefs(name, driver, share.as_slice())
    }

    /// A new server with these arguments, on the store of this name.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn start_lanefs(
        &self,
        name: &str,
        driver: DriverKind,
        arguments: &[String],
    ) -> Result<Server> {
        let mut command = Command::new(own_program()?);
        command.arg("serve").arg("--store").arg(self.path().join(name));
        command.args(["--listen", "127.0.0.1:0", "--lanes"]);
        command.arg(self.options.lane_count.to_string());
        command.arg("--export").arg(format!("{EXPORT}=no-root-squash"));
        command.arg("--secret-file").arg(self.secret_path());
        command.arg("--parent-pid").arg(std::process::id().to_string());
        command.args(["--driver", driver.text()]).args(arguments);
        if let Some(spin_us) = self.options.spin_us {
            command.arg("--spin").arg(format!("{spin_us}us"));
        }
        command.args(["--pin", self.pin()]);
        // Servers that join, and see each other end, say so.
        command.env("RUST_LOG", "error");
        if self.options.sync {
            command.arg("--sync");
        }
        let (child, output, address) = self.start(command, "listening on ")?;
        let access = Access { secret: self.secret, export: EXPORT.to_owned() };
        let mut server = Server::new(address, Some(access));
        (server.child, server._output) = (Some(child), Some(output));
        server.lane_count = Some(self.options.lane_count);
        Ok(server)
    }

    /// Starts one of the limits.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn start_limit(&self, limit: &Limit) -> Result<Server> {
        let mut command = Command::new(own_program()?);
        command.arg(LIMIT_COMMAND).args(limit.arguments());
        let (child, output, address) = self.start(command, limit::READY)?;
        let mut server = Server::new(address, None);
        (server.child, server._output) = (Some(child), Some(output));
        server.counted_lane_count = limit.counted_lane_count();
        server.lane_count = (server.counted_lane_count > 0).then_some(server.counted_lane_count);
        Ok(server)
    }

    /// Mounts a server of ours, with lanes on its cores.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub(crate) fn start_mount(
        &self,
        server: &Server,
        dir: &Path,
        (driver, transport): (DriverKind, Transport),
    ) -> Result<(Child, BufReader<ChildStdout>)> {
        let mut command = Command::new(own_program()?);
        command.arg("mount").arg(server.address.to_string()).arg(dir);
        command.args(["--export", EXPORT, "--lanes", &self.options.lane_count.to_string()]);
        // Every call is to reach the server.
        command.args(["--leases", "off"]);
        command.arg("--secret-file").arg(self.secret_path());
        command.arg("--parent-pid").arg(std::process::id().to_string());
        command.arg("--fuse").arg(match transport {
            Transport::Uring => "uring",
            Transport::Classic => "classic",
        });
        command.args(["--driver", driver.text(), "--pin", self.pin()]);
        if let Some(spin_us) = self.options.spin_us {
            command.arg("--spin").arg(format!("{spin_us}us"));
        }
        let (child, output, _) = self.start_until(command, "mounted ")?;
        Ok((child, output))
    }

    /// The option of servers and mounts.
    const fn pin(&self) -> &'static str {
        if self.options.pin { "on" } else { "off" }
    }

    /// Starts a program on the server's cores and waits for its address.
    fn start(
        &self,
        command: Command,
        ready: &str,
    ) -> Result<(Child, BufReader<ChildStdout>, SocketAddr)> {
        let (child, output, rest) = self.start_until(command, ready)?;
        let text = rest.split([',', ' ']).next().unwrap_or(&rest);
        let address = text.parse().with_context(|| format!("{text:?} is no address"))?;
        Ok((child, output, address))
    }

    /// Starts a program on the server's CPUs and waits for a line with this prefix; returns the
    /// rest.
    fn start_until(
        &self,
        mut command: Command,
        ready: &str,
    ) -> Result<(Child, BufReader<ChildStdout>, String)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // A child inherits the CPUs of the thread that starts it.
        self.cores.go_to_server()?;
        let started = command.spawn();
        self.cores.go_to_generator()?;
        let mut child = started.with_context(|| format!("cannot start {command:?}"))?;
        let Some(stdout) = child.stdout.take() else { bail!("{command:?} has no output") };
        let mut output = BufReader::new(stdout);
        let mut line = String::new();
        while output.read_line(&mut line)? > 0 {
            if let Some(rest) = line.trim().strip_prefix(ready) {
                return Ok((child, output, rest.to_owned()));
            }
            line.clear();
        }
        child.wait()?;
        bail!("{command:?} ended at its start; its complaint is above")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The next home must find all CPUs; if it does not, its rows say that they were shared.
        self.cores.go_back().ok();
    }
}

/// What a client needs besides the address.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) secret: Secret,
    pub(crate) export: String,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    /// `None`: a remote server.
    child: Option<Child>,
    /// Held open for the child's last output.
    _output: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    /// Of a lanefs server.
    pub(crate) access: Option<Access>,
    /// Lanes of a limit with counters; a lanefs server knows its own.
    pub(crate) counted_lane_count: u16,
    /// Lanes, where that is known.
    pub(crate) lane_count: Option<u16>,
    /// Whether its connections are under TLS.
    pub(crate) sealing: Sealing,
}

impl Server {
    /// A server of which nothing else is known.
    const fn new(address: SocketAddr, access: Option<Access>) -> Self {
        Self {
            child: None,
            _output: None,
            address,
            access,
            counted_lane_count: 0,
            lane_count: None,
            sealing: Sealing::Auto,
        }
    }

    /// Its process, if it runs here.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// A connection to prepare files for a load, as this process's user.
    ///
    /// # Errors When it cannot be made.
    pub(crate) fn volume(&self) -> Result<Volume> {
        let Some(access) = &self.access else { bail!("a limit has no files") };
        Ok(Volume::connect(&ConnectOptions {
            address: self.address,
            secret: access.secret,
            secret_file: None,
            export: access.export.clone(),
            identity: Identity::of_process(),
            purpose: library::Purpose::Use,
            connect_timeout: CONNECT_TIMEOUT,
            driver: DriverChoice::Auto,
            sealing: self.sealing,
            certificates: None,
        })?)
    }

    /// A directory for this run's files: the root of a server of our own, a new one elsewhere.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn folder(&self, volume: &mut Volume) -> Result<PathBuf> {
        if self.child.is_some() {
            return Ok(PathBuf::from("/"));
        }
        let path = PathBuf::from(format!("/lanefs-bench-{}", std::process::id()));
        match volume.mkdir(&path, 0o755) {
            Ok(_) => Ok(path),
            Err(error) if error.status() == Some(Status::Exists) => Ok(path),
            Err(error) if error.status() == Some(Status::Access) => Err(error).context(
                "no directory for the benchmark's files could be made there: on most exports root \
                 is nobody; name one that was opened with =no-root-squash (--export), or be a \
                 user who may write into the root directory",
            ),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already; the wait follows either way.
            kill_process(Pid::from_child(child), Signal::KILL).ok();
            child.wait().ok();
        }
    }
}

/// The running program, also when its file has been replaced meanwhile.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot tell where this program lies")
}

/// A new secret for a run, in a file for `serve`.
fn make_secret(path: &Path) -> io::Result<Secret> {
    let secret = Secret::new(library::random()?);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(library::secret::text_of(&secret).as_bytes())?;
    Ok(secret)
}
