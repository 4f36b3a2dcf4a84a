//! The clients of a run: processes of the Rust API, and mounts with programs on them. Each has a
//! journal outside the file system.

use crate::child::{Process, child_command, until};
use crate::run_folder::Setup;
use crate::server::{Mount, Server, secret_file};
use crate::work::{
    self, Findings, Journal, Loss, SHARED_DIRS, SHARED_LOG, check, own_dir, read_tree,
};
use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

/// Programs on a mount.
const PROGRAM_COUNT: usize = 2;

/// More than a result, a begin line and half of another result.
const TWO_LINES_BYTES: u64 = 100;

/// A client that can be killed.
#[derive(Debug)]
enum Member {
    /// A process of the Rust API.
    Library(Worker),
    /// A mount and its programs.
    Mount(Mount, Vec<Worker>),
}

/// A process that runs the workload.
#[derive(Debug)]
struct Worker {
    client: u64,
    process: Process,
}

/// How many clients of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) library_count: usize,
    pub(crate) mount_count: usize,
}

/// What a kill hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
    /// A whole client of the server.
    Client,
    /// A program; its mount stays alive.
    Program,
}

/// All clients of a run, the killed ones too.
#[derive(Debug)]
pub(crate) struct ClientGroup {
    setup: Setup,
    address: SocketAddr,
    client_count_max: u64,
    members: Vec<Member>,
    /// Killed programs whose mount is alive. The kernel ends such a process only when its request,
    /// or the request of another process that holds the directory's lock, is answered; the server
    /// may be down.
    ending: Vec<Process>,
    fates: BTreeMap<u64, Loss>,
}

impl ClientGroup {
    /// Prepares the tree for at most `client_count_max` clients, killed ones included.
    pub(crate) fn new(setup: &Setup, server: &mut Server, client_count_max: u64) -> Result<Self> {
        let mut volume = server.volume()?;
        let mut mkdir = |dir: &str| volume.mkdir(&PathBuf::from("/").join(dir), 0o755).map(drop);
        for dir in SHARED_DIRS {
            mkdir(dir)?;
        }
        for client in 1..=client_count_max {
            mkdir(&own_dir(client))?;
        }
        let log = volume.create(&PathBuf::from("/").join(SHARED_LOG), 0o644, true)?;
        volume.close(log)?;
        drop(volume);
        server.stop()?;
        server.restart()?;
        Ok(Self {
            setup: setup.clone(),
            address: server.address()?,
            client_count_max,
            members: Vec::new(),
            ending: Vec::new(),
            fates: BTreeMap::new(),
        })
    }

    /// Clients started from here on connect to another address.
    pub(crate) const fn set_address(&mut self, address: SocketAddr) {
        self.address = address;
    }

    /// Starts clients.
    pub(crate) fn start(&mut self, size: Size) -> Result<()> {
        for _ in 0..size.library_count {
            self.add_library()?;
        }
        for _ in 0..size.mount_count {
            self.add_mount()?;
        }
        Ok(())
    }

    fn add_library(&mut self) -> Result<()> {
        let worker = self.worker(None)?;
        self.members.push(Member::Library(worker));
        Ok(())
    }

    fn add_mount(&mut self) -> Result<()> {
        let name = format!("mount{}", self.fates.len());
        let mount = Mount::new(&self.setup, self.address, &name)?;
        let mut programs = Vec::new();
        for _ in 0..PROGRAM_COUNT {
            programs.push(self.worker(Some(mount.dir.clone()))?);
        }
        self.members.push(Member::Mount(mount, programs));
        Ok(())
    }

    fn journal(&self, client: u64) -> PathBuf {
        self.setup.folder.join(format!("journal{client}"))
    }

    fn worker(&mut self, mount: Option<PathBuf>) -> Result<Worker> {
        let client = self.fates.len() as u64 + 1;
        if client > self.client_count_max {
            bail!("more clients than the tree was prepared for");
        }
        self.fates.insert(client, Loss::None);
        let mut command = child_command(&std::env::current_exe()?);
        command.arg(work::SUBCOMMAND).args(["--client", &client.to_string()]);
        command.args(["--seed", &self.setup.seed.to_string()]);
        command.arg("--journal").arg(self.journal(client));
        match mount {
            Some(dir) => command.arg("--mount").arg(dir),
            None => {
                command.args(["--address", &self.address.to_string()]);
                command.arg("--secret-file").arg(secret_file(&self.setup))
            }
        };
        command.stdin(Stdio::piped());
        let log = self.setup.folder.join(format!("client{client}.log"));
        let process = Process::start(&mut command, log)?;
        Ok(Worker { client, process })
    }

    /// The shared file, on one of the mounts.
    pub(crate) fn shared_log(&self) -> Result<PathBuf> {
        let mut dirs = self.members.iter().filter_map(|member| match member {
            Member::Library(_) => None,
            Member::Mount(mount, _) => Some(&mount.dir),
        });
        Ok(dirs.next().context("nobody has a mount")?.join(SHARED_LOG))
    }

    /// How many clients can be killed.
    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Kills a member with -9, or one of its programs.
    pub(crate) fn kill(&mut self, index: usize, victim: Victim) -> Result<()> {
        match (&mut self.members[index], victim) {
            (Member::Mount(_, programs), Victim::Program) => {
                if let Some(program) = programs.pop() {
                    // Its mount is alive, so no acknowledged operation may be lost.
                    program.process.signal(Signal::KILL);
                    self.ending.push(program.process);
                }
                Ok(())
            }
            (Member::Library(worker), _) => {
                worker.process.kill()?;
                self.fates.insert(worker.client, Loss::Killed);
                self.members.remove(index);
                Ok(())
            }
            (Member::Mount(mount, programs), Victim::Client) => {
                for program in &*programs {
                    program.process.signal(Signal::KILL);
                    self.fates.insert(program.client, Loss::Killed);
                }
                mount.kill()?;
                for program in programs {
                    program.process.end()?;
                }
                self.members.remove(index);
                Ok(())
            }
        }
    }

    /// Kills all clients.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        while !self.members.is_empty() {
            self.kill(0, Victim::Client)?;
        }
        Ok(())
    }

    /// Starts as many clients as were killed.
    pub(crate) fn replace(&mut self, size: Size) -> Result<()> {
        let is_library = |member: &&Member| matches!(member, Member::Library(_));
        let library_count = self.members.iter().filter(is_library).count();
        for _ in library_count..size.library_count {
            self.add_library()?;
        }
        for _ in self.members.len()..size.library_count + size.mount_count {
            self.add_mount()?;
        }
        for index in 0..self.members.len() {
            if let Member::Mount(mount, programs) = &self.members[index]
                && programs.len() < PROGRAM_COUNT
            {
                let worker = self.worker(Some(mount.dir.clone()))?;
                if let Member::Mount(_, programs) = &mut self.members[index] {
                    programs.push(worker);
                }
            }
        }
        Ok(())
    }

    /// Waits until every living client has completed one more operation.
    pub(crate) fn progress(&self) -> Result<()> {
        let before = self.written();
        until("every client goes on", || Ok(self.has_progress(&before)))
    }

    /// The length of every living client's journal in bytes, by client.
    pub(crate) fn written(&self) -> BTreeMap<u64, u64> {
        let clients = self.members.iter().flat_map(|member| match member {
            Member::Library(worker) => vec![worker.client],
            Member::Mount(_, programs) => programs.iter().map(|worker| worker.client).collect(),
        });
        clients.map(|client| (client, self.journal_bytes(client))).collect()
    }

    /// Whether every living client has completed an operation since then. An operation under way
    /// may have ended since, so another one must have begun and ended: two lines more.
    pub(crate) fn has_progress(&self, before: &BTreeMap<u64, u64>) -> bool {
        before.iter().all(|(client, bytes)| self.journal_bytes(*client) > bytes + TWO_LINES_BYTES)
    }

    /// Whether any client has.
    pub(crate) fn has_any_progress(&self, before: &BTreeMap<u64, u64>) -> bool {
        before.iter().any(|(client, bytes)| self.journal_bytes(*client) > bytes + TWO_LINES_BYTES)
    }

    fn journal_bytes(&self, client: u64) -> u64 {
        std::fs::metadata(self.journal(client)).map_or(0, |found| found.len())
    }

    /// Ends all clients and waits for them.
    pub(crate) fn end(&mut self) -> Result<()> {
        for member in &mut self.members {
            match member {
                Member::Library(worker) => worker.process.close_stdin(),
                Member::Mount(_, programs) => {
                    programs.iter_mut().for_each(|worker| worker.process.close_stdin());
                }
            }
        }
        for mut program in self.ending.drain(..) {
            program.end()?;
        }
        for member in self.members.drain(..) {
            match member {
                Member::Library(mut worker) => worker.process.end().map(drop)?,
                Member::Mount(mount, programs) => {
                    for mut program in programs {
                        program.process.end()?;
                    }
                    mount.stop()?;
                }
            }
        }
        Ok(())
    }

    /// Reads the whole tree and checks it against all journals.
    pub(crate) fn check(&self, server: &Server) -> Result<Findings> {
        let mut volume = server.volume()?;
        let tree = read_tree(&mut volume)?;
        let mut journals = Vec::new();
        for (client, loss) in &self.fates {
            let path = self.journal(*client);
            // The client was killed before it began.
            let journal = if path.exists() { Journal::read(&path)? } else { Journal::default() };
            journals.push((*client, journal, *loss));
        }
        Ok(check(&tree, &journals, self.client_count_max))
    }

    /// Checks killed clients like living ones: for a server that replies only when the change is
    /// durable.
    pub(crate) fn require_all_acknowledged(&mut self) {
        self.fates.values_mut().for_each(|loss| *loss = Loss::None);
    }
}
