//! An etcd of this process alone, on loopback: for tests, and to try a cluster out on one machine.
//!
//! Invariant: it ends with the value that started it, at the latest with the thread.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Why it did not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// There is no such program.
    #[error("etcd is not installed: `apt install etcd-server` (Debian) does that")]
    NotInstalled,
    /// It cannot be started.
    #[error("cannot start etcd: {0}")]
    Io(io::Error),
    /// It has ended.
    #[error("etcd ended at its start; its last lines: {0}")]
    Ended(String),
}

/// A running etcd.
#[derive(Debug)]
pub struct LocalEtcd {
    child: Child,
    url: String,
}

impl LocalEtcd {
    /// Starts one on data in a directory, which it makes, and waits until it serves. `peer` is an address
    /// that it listens on for further members, of which there are none.
    ///
    /// # Errors
    /// [`LocalError`] if it is not installed or does not start.
    pub fn start(data: &Path, client: SocketAddr, peer: SocketAddr) -> Result<Self, LocalError> {
        Self::start_with(data, format!("http://{client}"), peer, &[])
    }

    /// Starts one that talks to clients under TLS: with the certificate and key, to those with a
    /// certificate of the authority.
    ///
    /// # Errors
    /// [`LocalError`] if it is not installed or does not start.
    pub fn start_tls(
        data: &Path,
        (client, peer): (SocketAddr, SocketAddr),
        (ca, cert, key): (&Path, &Path, &Path),
    ) -> Result<Self, LocalError> {
        let files = [("--trusted-ca-file", ca), ("--cert-file", cert), ("--key-file", key)];
        let mut args = vec![OsStr::new("--client-cert-auth")];
        args.extend(files.iter().flat_map(|(name, path)| [OsStr::new(name), path.as_os_str()]));
        Self::start_with(data, format!("https://{client}"), peer, &args)
    }

    fn start_with(
        data: &Path,
        url: String,
        peer: SocketAddr,
        args: &[&OsStr],
    ) -> Result<Self, LocalError> {
        const SHOWN_COUNT: usize = 5;
        let peer = format!("http://{peer}");
        is_installed()?;
        // It ends with the thread that starts it, also when this process is killed.
        let spawned = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--name", "local", "--initial-cluster", &format!("local={peer}")])
            .args(args)
            // It runs on others, and says that this is not tested.
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            // Ctrl-C is for this process, which ends it behind its servers.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(LocalError::Io)?;
        let stderr = child.stderr.take();
        let mut local = Self { child, url };
        let Some(stderr) = stderr else { return Err(LocalError::Ended(String::new())) };
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut said: Vec<String> = Vec::new();
        loop {
            let Some(line) = lines.next() else {
                local.kill();
                let shown = &said[said.len().saturating_sub(SHOWN_COUNT)..];
                return Err(LocalError::Ended(shown.join("; ")));
            };
            if line.contains("serving") && line.contains("client requests on") {
                break;
            }
            said.push(line);
        }
        // Nobody reads the rest; but it must go on.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(local)
    }

    /// Its endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        // It has ended already, or ends now.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

fn is_installed() -> Result<(), LocalError> {
    let asked = Command::new("etcd").arg("--version").stdin(Stdio::null()).output();
    match asked {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LocalError::NotInstalled),
        Err(error) => Err(LocalError::Io(error)),
    }
}

impl Drop for LocalEtcd {
    fn drop(&mut self) {
        self.kill();
    }
}
