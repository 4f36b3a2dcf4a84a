//! The servers of one file system, and their etcd.

use crate::server::{Home, Server};
use crate::usage::Usage;
use anyhow::{Context as _, Result, ensure};
use library::Volume;
use registry::LocalEtcd;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a client may not know of all servers yet.
const KNOWN_TIME: Duration = Duration::from_secs(30);
const LOOK_TIME: Duration = Duration::from_millis(50);

/// Servers that run. They end before their etcd.
#[derive(Debug)]
pub(super) struct Cluster {
    servers: Vec<Server>,
    _etcd: LocalEtcd,
}

impl Cluster {
    /// Starts etcd and so many servers, and waits until clients hear of all of them.
    ///
    /// # Errors
    /// [`registry::LocalError`] without etcd; what a server said.
    pub(super) fn start(home: &Home, server_count: usize) -> Result<Self> {
        let name = |index: usize| format!("cluster-{server_count}-{index}");
        let store = |index: usize| home.path().join(name(index));
        let etcd_data = home.path().join(format!("cluster-{server_count}-etcd"));
        let etcd = LocalEtcd::start(&etcd_data, free_address()?, free_address()?)?;
        let run = |args: &[&str], store: PathBuf| -> Result<String> {
            let mut command = Command::new(crate::server::own_program()?);
            command.arg("cluster").args(args).arg("--store").arg(store);
            // A token has the secret of the servers' clients.
            let output = command.env("LANEFS_SECRET_FILE", home.secret_path()).output()?;
            let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            ensure!(output.status.success(), "lanefs cluster {}: {complaint}", args.join(" "));
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        };
        run(&["init", "--etcd", etcd.url()], store(0))?;
        let mut servers = vec![home.start_lanefs(&name(0), home.options.driver, &[])?];
        for index in 1..server_count {
            let token = run(&["token"], store(0))?;
            let join = ["--cluster", etcd.url(), "--join", &token].map(str::to_owned);
            servers.push(home.start_lanefs(&name(index), home.options.driver, &join)?);
        }
        let cluster = Self { servers, _etcd: etcd };
        cluster.await_all()?;
        Ok(cluster)
    }

    fn await_all(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let map = self.volume()?.map().context("a server has no map")?;
            if map.servers().len() == self.servers.len() {
                return Ok(());
            }
            ensure!(began.elapsed() < KNOWN_TIME, "the first server does not hear of the others");
            sleep(LOOK_TIME);
        }
    }

    /// What all of them have used so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        let pids = self.servers.iter().filter_map(Server::pid);
        pids.map(Usage::of_process).try_fold(Usage::default(), |sum, one| Ok(sum.plus(&one?)))
    }

    /// A client of all of them.
    pub(super) fn volume(&self) -> Result<Volume> {
        self.servers.first().context("no server")?.volume()
    }
}

/// An address that nobody uses.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
