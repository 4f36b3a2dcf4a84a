//! A suite's environment: a store of its own, or those of a cluster, served and mounted twice.
//!
//! The first mount is `up`'s, over io_uring where the kernel allows it; the second is over
//! `/dev/fuse`. The paths of the mounts are short, because that of a socket is limited to 107
//! bytes. Invariant: the mounts are removed and the servers stopped in any case.

use crate::run::{ended_after, run, target_dir};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A directory on both mounts, for files over several servers.
pub(crate) const SPREAD: &str = "spread";

/// What a suite runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    /// Whether the mounts cache.
    pub(crate) leases: bool,
    pub(crate) server_count: u16,
}

impl Form {
    const fn leases_text(self) -> &'static str {
        if self.leases { "on" } else { "off" }
    }
}

/// Two mounts of one store, and a folder beside them.
pub(crate) struct Stand {
    folder: PathBuf,
    mounts: PathBuf,
    lanefs: PathBuf,
    form: Form,
    /// The first is stopped last.
    running: Vec<Running>,
}

struct Running {
    child: Child,
    dir: PathBuf,
}

impl Stand {
    /// Starts all in an empty folder.
    pub(crate) fn new(name: &str, lanefs: PathBuf, form: Form) -> Result<Self> {
        let (leases, servers) = (form.leases_text(), form.server_count);
        let name = format!("posix-{name}-leases-{leases}-servers-{servers}");
        let folder = target_dir().join("tmp").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let mounts = std::env::temp_dir().join(format!("lanefs-{}", std::process::id()));
        for folder in [&folder, &mounts] {
            fs::create_dir_all(folder)?;
            // The suites act as other users, too.
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        let mut stand = Self { folder, mounts, lanefs, form, running: Vec::new() };
        stand.start()?;
        Ok(stand)
    }

    /// `up`'s mount.
    pub(crate) fn first(&self) -> PathBuf {
        self.mounts.join("1")
    }

    /// The other mount of the same store.
    pub(crate) fn second(&self) -> PathBuf {
        self.mounts.join("2")
    }

    /// How many servers the file system has.
    pub(crate) const fn server_count(&self) -> u16 {
        self.form.server_count
    }

    /// Makes the directory whose files are on all servers.
    pub(crate) fn spread(&self) -> Result<()> {
        let dir = self.first().join(SPREAD);
        fs::create_dir(&dir)?;
        let mut layout = self.command("layout");
        layout.arg("set").arg(dir).args(["--count", "all", "--unit", "64KiB"]);
        run(&mut layout)
    }

    /// A path beside the mounts, on the file system of the build.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Stops everything and starts it again on the same store.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    fn start(&mut self) -> Result<()> {
        let (first, second) = (self.first(), self.second());
        fs::create_dir_all(&second)?;
        let mut up = self.command("up");
        up.arg(&first).arg("--store").arg(self.beside("store"));
        up.args(["--listen", "127.0.0.1:0"]);
        if self.form.server_count > 1 {
            up.args(["--servers", &self.form.server_count.to_string()]);
        }
        let lines = self.begin(up, first, "stop with ")?;
        let address = lines.iter().find_map(|line| line.strip_prefix("address "));
        let address = address.context("`up` printed no address")?;
        let mut mount = self.command("mount");
        mount.arg(address).arg(&second).args(["--export", "up", "--fuse", "classic"]);
        self.begin(mount, second, "mounted ")?;
        Ok(())
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.lanefs);
        command.arg(name).env("XDG_CONFIG_HOME", self.beside("config"));
        command.env_remove("LANEFS_SECRET_FILE").env("LANEFS_LEASES", self.form.leases_text());
        command.stdin(Stdio::null());
        command
    }

    /// Starts a command and waits for the line that begins with `ready`; returns the lines up to
    /// there. The rest of its output goes to ours.
    fn begin(&mut self, mut command: Command, dir: PathBuf, ready: &str) -> Result<Vec<String>> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        self.running.push(Running { child, dir });
        let mut output = BufReader::new(stdout.context("no stdout")?).lines();
        let mut lines = Vec::new();
        for line in output.by_ref() {
            lines.push(line?);
            if lines.last().is_some_and(|line| line.starts_with(ready)) {
                std::thread::spawn(move || {
                    for line in output.map_while(Result::ok) {
                        println!("lanefs: {line}");
                    }
                });
                return Ok(lines);
            }
        }
        bail!("{command:?} ended before it was ready: {lines:?}");
    }

    fn stop(&mut self) -> Result<()> {
        while let Some(running) = self.running.pop() {
            running.end()?;
        }
        Ok(())
    }
}

impl Running {
    fn end(mut self) -> Result<()> {
        // A process that ended by itself gets no signal; its status says why it ended.
        let asked = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let status = self.child.wait()?;
        if asked.is_err() || !status.success() {
            bail!("the mount on {} ended with {status}", self.dir.display());
        }
        Ok(())
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        while let Some(running) = self.running.pop() {
            let dir = running.dir.clone();
            if let Err(error) = running.end() {
                eprintln!("{error:#}");
            }
            while is_mounted(&dir)
                && rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).is_ok()
            {
            }
        }
        // Only empty folders are removed.
        for folder in [self.first(), self.second(), self.mounts.clone()] {
            if let Err(error) = fs::remove_dir(&folder) {
                eprintln!("{}: {error}", folder.display());
            }
        }
    }
}

/// Whether exactly this path is a mount point. Never accesses the mount itself.
fn is_mounted(dir: &Path) -> bool {
    ring::mount_table(None).is_ok_and(|table| table.iter().any(|mounted| mounted.point == dir))
}

/// The exit code and the output of a suite's program.
pub(crate) struct Ended {
    /// Its exit code; -1 if a signal ended it.
    pub(crate) code: i32,
    /// stdout and stderr, in the order in which they came.
    pub(crate) output: String,
}

/// Runs a program of a suite to its end, for at most `seconds_max`.
pub(crate) fn ended(command: &Command, seconds_max: u64, log: &Path) -> Result<Ended> {
    let file = File::create(log).with_context(|| log.display().to_string())?;
    let mut limited = ended_after(seconds_max, command);
    limited.env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
    limited.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = limited.status().with_context(|| format!("cannot start {limited:?}"))?;
    let output = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    Ok(Ended { code: status.code().unwrap_or(-1), output })
}

/// Prints the output of a failed test.
pub(crate) fn show(name: &str, output: &str) {
    let mut out = std::io::stdout().lock();
    let text: String = output.lines().map(|line| format!("    {line}\n")).collect();
    if let Err(error) = write!(out, "{name}:\n{text}") {
        eprintln!("cannot show the output of {name}: {error}");
    }
}
