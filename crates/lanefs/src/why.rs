//! `lanefs why`: where the time of recent requests went, and for whom or what those wait that have no
//! reply. The server's lanes remember that ([`library::Traces`]); here it is chosen, and said in words.

mod chrome;
mod explain;
mod json;
mod shown;
mod text;

use crate::exit::{Code, Exit};
use crate::{args, control, export, mounts, out, running, stats};
use anyhow::{Context as _, Result};
use library::Traces;
use library::traces::{Kept, Party, RequestTrace};
use shown::{Shown, this_host, uuid};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// A mount that does not answer by then is not waited for.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(args: &args::Why) -> Result<()> {
    let about = args.path.as_deref().map(About::of).transpose()?;
    let server = match (&args.server, &about) {
        (Some(server), _) => match control::mount_at(server)?.and_then(|mount| mount.address) {
            Some(address) => address,
            None => stats::server_of(Some(server))?,
        },
        (None, Some(about)) => about.server()?,
        (None, None) => stats::server_of(None)?,
    };
    let (mut volume, _) = export::connect(&args::Server { server, login: args.login.clone() })?;
    let lanes = volume.traces()?;
    // Not left: a Goodbye is answered when the log is on the disk, which may be what is stuck. An
    // administrator has nothing that a server would keep.
    std::mem::forget(volume);
    let wanted = |shown: &Shown| {
        let trace = &shown.trace;
        (args.samples || trace.kept != Kept::Sample)
            && args.client.as_ref().is_none_or(|client| has_client(trace, client))
            && args.pid.is_none_or(|pid| has_process(trace, pid))
            && about.as_ref().is_none_or(|about| about.is_of(trace))
    };
    let mut all: Vec<Shown> = lanes.into_iter().flat_map(each).filter(wanted).collect();
    // What waits comes first, then the slowest.
    all.sort_by_key(|Shown { trace, .. }| {
        (trace.kept != Kept::Waiting, std::cmp::Reverse(trace.total_us()))
    });
    if let Some(file) = &args.chrome {
        let trace = serde_json::to_vec(&chrome::trace(&all))?;
        std::fs::write(file, trace).with_context(|| format!("cannot write {}", file.display()))?;
        out::print_line(&format!("{} requests are in {}", all.len(), file.display()));
        return Ok(());
    }
    let left_out = all.len().saturating_sub(args.count.into());
    all.truncate(args.count.into());
    let mut text = String::new();
    if args.json {
        for shown in &all {
            text.push_str(&serde_json::to_string(&json::object(shown))?);
            text.push('\n');
        }
    } else {
        text::put(&mut text, &all, left_out);
    }
    out::print_bytes(text.as_bytes())
}

fn each(Traces { lane, requests }: Traces) -> impl Iterator<Item = Shown> {
    requests.into_iter().map(move |trace| Shown { lane, trace })
}

/// Whether a request is of a client, or waits for it.
fn has_client(trace: &RequestTrace, wanted: &str) -> bool {
    let is_it = |party: &Party| {
        let uuid = uuid(party);
        let is_uuid = wanted.len() >= 4 && uuid.starts_with(&wanted.to_lowercase());
        party.host == wanted || party.job == wanted || is_uuid
    };
    is_it(&trace.client) || trace.waits.iter().flat_map(|wait| &wait.whom).any(is_it)
}

/// Whether a request is of a process of this machine, or waits for it.
fn has_process(trace: &RequestTrace, pid: u32) -> bool {
    let here = this_host();
    let is_it = |party: &Party| party.pid == pid && party.host == here;
    is_it(&trace.client) || trace.waits.iter().flat_map(|wait| &wait.whom).any(is_it)
}

/// A file or directory of a mount of this machine.
struct About {
    path: PathBuf,
    /// Its inode, if the mount says that in time.
    inode: Option<u64>,
    dir_inode: Option<u64>,
}

impl About {
    fn of(path: &Path) -> Result<Self> {
        let path = mounts::absolute(path)?;
        let [inode, dir_inode] = [Some(path.as_path()), path.parent()].map(|path| {
            let path = path?.to_owned();
            let (sender, receiver) = mpsc::channel();
            // The mount may be what is stuck.
            std::thread::spawn(move || {
                let found = std::fs::symlink_metadata(path).map(|found| found.ino());
                // Nobody waits any more.
                let _late = sender.send(found.ok());
            });
            receiver.recv_timeout(LOOK_TIMEOUT).ok().flatten()
        });
        if inode.is_none() && dir_inode.is_none() {
            let line = format!(
                "{}: its mount does not answer; `lanefs why` without it shows all that waits",
                path.display()
            );
            return Err(Exit::new(Code::Failed, line).into());
        }
        Ok(Self { path, inode, dir_inode })
    }

    /// The server of the mount that the path is in.
    fn server(&self) -> Result<String> {
        let all = running::all()?;
        let entries = all.iter().map(|found| &found.entry).filter(|entry| entry.mounted);
        let below = entries.filter(|entry| {
            entry.dir.as_ref().is_some_and(|dir| self.path.starts_with(Path::new(dir)))
        });
        let deepest = below.max_by_key(|entry| entry.dir.as_ref().map_or(0, String::len));
        let address = deepest.and_then(|entry| entry.address.clone());
        address.with_context(|| {
            format!(
                "{} is in no mount of lanefs that this user sees: name the server, as `--server HOST`",
                self.path.display()
            )
        })
    }

    fn is_of(&self, trace: &RequestTrace) -> bool {
        let Some(inode) = trace.inode else { return false };
        let is_named = self.dir_inode == Some(inode.0)
            && self.path.file_name().is_some_and(|name| name.as_bytes() == trace.name);
        is_named || self.inode == Some(inode.0)
    }
}
