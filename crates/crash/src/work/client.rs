//! A client's process: chooses random operations, and writes each to the journal before its request
//! and after its result, until its standard input ends.
//!
//! Every name and every content is used once in a run, so a name or content found later identifies
//! its operation. A refused operation ends the client: each is chosen so that it succeeds.

use super::frontend::{Frontend, LibraryFrontend, MountFrontend};
use super::item::{Kind, State, contents, target};
use super::journal::{JournalWriter, Touch};
use super::{SHARED_DIRS, SHARED_LOG};
use crate::server::connect_options;
use anyhow::{Result, bail};
use clap::Args;
use fastrand::Rng;
use library::Volume;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The subcommand of this process.
pub(crate) const SUBCOMMAND: &str = "client";

/// Items of a client at a time.
const ITEM_COUNT_MAX: usize = 30;
/// Bytes of a file.
const SIZE_BYTES_MAX: usize = 200_000;
/// Mode changes in a row.
const CHMOD_COUNT_MAX: usize = 60;
/// The most bytes by which a write extends a file.
const GROWTH_BYTES_MAX: usize = 60_000;

/// The arguments of a client's process.
#[derive(Args, Debug)]
pub(crate) struct ClientArgs {
    /// Its number, unique in a store.
    #[arg(long)]
    pub(crate) client: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) journal: PathBuf,
    /// The mount point; without it the client uses the Rust API with address and secret.
    #[arg(long)]
    pub(crate) mount: Option<PathBuf>,
    #[arg(long)]
    pub(crate) address: Option<SocketAddr>,
    #[arg(long)]
    pub(crate) secret_file: Option<PathBuf>,
}

/// A client's own directory.
pub(crate) fn own_dir(client: u64) -> String {
    format!("c{client}")
}

/// A client's own file to append to.
fn own_log(client: u64) -> String {
    format!("{}/log", own_dir(client))
}

/// Runs a client.
pub(crate) fn run(args: &ClientArgs) -> Result<()> {
    let frontend: Box<dyn Frontend> = match (&args.mount, args.address, &args.secret_file) {
        (Some(dir), None, None) => Box::new(MountFrontend::new(dir.clone())),
        (None, Some(address), Some(file)) => {
            let volume = Volume::connect(&connect_options(address, file)?)?;
            Box::new(LibraryFrontend::new(volume))
        }
        _ => bail!("a client has a mount, or an address and a secret"),
    };
    let journal = JournalWriter::new(&args.journal)?;
    let mut dirs: Vec<String> = SHARED_DIRS.iter().map(|dir| (*dir).to_owned()).collect();
    // Half of its operations are in its own directory.
    dirs.extend((0..SHARED_DIRS.len()).map(|_| own_dir(args.client)));
    let rng = Rng::with_seed(args.seed ^ args.client.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (client, items) = (args.client, BTreeMap::new());
    let mut walker = Walker { client, frontend, journal, rng, dirs, items, made_count: 0 };
    let ending = Arc::new(AtomicBool::new(false));
    let ended = ending.clone();
    std::thread::spawn(move || {
        // Nothing is written to standard input: its end ends the client.
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        ended.store(true, Ordering::Relaxed);
    });
    while !ending.load(Ordering::Relaxed) {
        walker.step()?;
    }
    let Walker { frontend, mut journal, .. } = walker;
    drop(frontend);
    journal.end()
}

struct Walker {
    client: u64,
    frontend: Box<dyn Frontend>,
    journal: JournalWriter,
    rng: Rng,
    dirs: Vec<String>,
    items: BTreeMap<String, State>,
    made_count: u64,
}

impl Walker {
    /// One operation.
    fn step(&mut self) -> Result<()> {
        let item = self.pick();
        let Some((item, state)) = item else { return self.make() };
        match self.rng.u64(..100) {
            0..25 if self.items.len() < ITEM_COUNT_MAX => self.make(),
            0..45 if state.kind == Kind::File => self.write(item, state),
            45..60 => self.rename(item, state),
            60..66 => self.rename_over(item, state),
            66..76 => self.remove(item, state),
            76..82 if state.kind != Kind::Symlink => self.chmod(&item, state),
            82..86 if state.kind == Kind::File && self.frontend.kernel().is_some() => {
                self.link(item, state)
            }
            86..94 if self.frontend.kernel().is_some() => self.append(),
            94..98 if state.kind == Kind::File => self.sync(item, &state),
            98..100 if self.frontend.kernel().is_some() => self.sync_log(),
            _ => self.rename(item, state),
        }
    }

    fn pick(&mut self) -> Option<(String, State)> {
        let index = self.rng.usize(..self.items.len().max(1));
        self.items.iter().nth(index).map(|(item, state)| (item.clone(), state.clone()))
    }

    fn new_name(&mut self, item: &str) -> String {
        let dir = &self.dirs[self.rng.usize(..self.dirs.len())];
        format!("{dir}/{item}n{}", self.journal.next_no())
    }

    fn some_name(&mut self, state: &State) -> String {
        let index = self.rng.usize(..state.names.len());
        state.names.iter().nth(index).cloned().unwrap_or_default()
    }

    /// Journals, requests and journals the result; updates the items.
    fn perform(
        &mut self,
        text: &str,
        touches: &[Touch],
        act: impl FnOnce(&mut dyn Frontend) -> Result<()>,
    ) -> Result<()> {
        self.journal.begin(text, touches)?;
        let result = act(self.frontend.as_mut());
        self.journal.end_operation(&result)?;
        result?;
        for touch in touches {
            match touch {
                Touch::Item(item, state) if state.names.is_empty() => {
                    self.items.remove(item);
                }
                Touch::Item(item, state) => {
                    self.items.insert(item.clone(), state.clone());
                }
                Touch::Sync(_) | Touch::Append(..) | Touch::SyncLog(_) => {}
            }
        }
        Ok(())
    }

    fn make(&mut self) -> Result<()> {
        self.made_count += 1;
        let item = format!("c{}i{}", self.client, self.made_count);
        let name = self.new_name(&item);
        let (kind, mode) = match self.rng.u64(..10) {
            0..6 => (Kind::File, 0o644),
            6..8 => (Kind::Dir, 0o755),
            _ => (Kind::Symlink, 0o777),
        };
        let mut state = State::new(kind, mode);
        state.names.insert(name.clone());
        let touches = [Touch::Item(item.clone(), state)];
        match kind {
            Kind::File => self.perform(&format!("create {name}"), &touches, |frontend| {
                frontend.create(&name, mode)
            }),
            Kind::Dir => self.perform(&format!("mkdir {name}"), &touches, |frontend| {
                frontend.mkdir(&name, mode)
            }),
            Kind::Symlink => self.perform(&format!("symlink {name}"), &touches, |frontend| {
                frontend.symlink(&target(&item), &name)
            }),
        }
    }

    fn write(&mut self, item: String, mut state: State) -> Result<()> {
        let name = self.some_name(&state);
        state.version = self.journal.next_no();
        let growth_bytes = self.rng.usize(..GROWTH_BYTES_MAX);
        state.size_bytes = (state.size_bytes + growth_bytes).min(SIZE_BYTES_MAX);
        let bytes = contents(&item, state.version, state.size_bytes);
        let text = format!("write {name}");
        self.perform(&text, &[Touch::Item(item, state)], |frontend| frontend.write(&name, &bytes))
    }

    fn rename(&mut self, item: String, mut state: State) -> Result<()> {
        let (from, to) = (self.some_name(&state), self.new_name(&item));
        state.names.remove(&from);
        state.names.insert(to.clone());
        let text = format!("rename {from} {to}");
        self.perform(&text, &[Touch::Item(item, state)], |frontend| frontend.rename(&from, &to))
    }

    /// Over an item of the same kind, which is removed by that. The contents identify both.
    fn rename_over(&mut self, item: String, mut state: State) -> Result<()> {
        let identifies_itself = |state: &State| state.kind == Kind::Symlink || state.size_bytes > 0;
        let mut others = self.items.iter().filter(|(other, found)| {
            let alike =
                found.kind == state.kind && identifies_itself(found) && identifies_itself(&state);
            **other != item && alike && found.names.len() == 1
        });
        let Some((victim, victim_state)) = others.next() else { return self.rename(item, state) };
        let (victim, mut victim_state) = (victim.clone(), victim_state.clone());
        let from = self.some_name(&state);
        let Some(to) = victim_state.names.pop_first() else { return Ok(()) };
        state.names.remove(&from);
        state.names.insert(to.clone());
        let touches = [Touch::Item(item, state), Touch::Item(victim, victim_state)];
        self.perform(&format!("rename {from} {to}"), &touches, |frontend| {
            frontend.rename(&from, &to)
        })
    }

    fn remove(&mut self, item: String, mut state: State) -> Result<()> {
        let name = self.some_name(&state);
        state.names.remove(&name);
        let is_dir = state.kind == Kind::Dir;
        let touches = [Touch::Item(item, state)];
        self.perform(&format!("remove {name}"), &touches, |frontend| {
            if is_dir { frontend.rmdir(&name) } else { frontend.unlink(&name) }
        })
    }

    /// Some in a row: each is answered at once, so that many of them wait for one flush.
    fn chmod(&mut self, item: &str, mut state: State) -> Result<()> {
        let name = self.some_name(&state);
        let mode = if state.kind == Kind::Dir { 0o700 } else { 0o600 };
        for _ in 0..=self.rng.usize(..CHMOD_COUNT_MAX) {
            state.mode = mode | u32::try_from(self.rng.u64(..0o100)).unwrap_or(0);
            let (text, mode) = (format!("chmod {:o} {name}", state.mode), state.mode);
            let touches = [Touch::Item(item.to_owned(), state.clone())];
            self.perform(&text, &touches, |frontend| frontend.chmod(&name, mode))?;
        }
        Ok(())
    }

    fn link(&mut self, item: String, mut state: State) -> Result<()> {
        let (from, to) = (self.some_name(&state), self.new_name(&item));
        state.names.insert(to.clone());
        let text = format!("link {from} {to}");
        self.perform(&text, &[Touch::Item(item, state)], |frontend| match frontend.kernel() {
            Some(kernel) => kernel.link(&from, &to),
            None => bail!("no kernel"),
        })
    }

    fn append(&mut self) -> Result<()> {
        let path = match self.rng.u64(..2) {
            0 => SHARED_LOG.to_owned(),
            _ => own_log(self.client),
        };
        let padding = ".".repeat(self.rng.usize(..60));
        let record = format!("c{} {} {padding}", self.client, self.journal.next_no());
        let touches = [Touch::Append(path.clone(), record.clone())];
        self.perform(&format!("append {path}"), &touches, |frontend| match frontend.kernel() {
            Some(kernel) => kernel.append(&path, &format!("{record}\n")),
            None => bail!("no kernel"),
        })
    }

    fn sync(&mut self, item: String, state: &State) -> Result<()> {
        let name = self.some_name(state);
        self.perform(&format!("sync {name}"), &[Touch::Sync(item)], |frontend| frontend.sync(&name))
    }

    fn sync_log(&mut self) -> Result<()> {
        let path = SHARED_LOG;
        let touches = [Touch::SyncLog(path.to_owned())];
        self.perform(&format!("sync {path}"), &touches, |frontend| frontend.sync(path))
    }
}
