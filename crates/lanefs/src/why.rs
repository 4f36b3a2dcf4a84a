//! `lanefs why`: where the time of recent requests went, and for whom or what those wait that have no
//! reply. The lanes of the server ([`library::Traces`]) and of mounts ([`library::traces::CallTraces`]) remember
//! that; here both are put together, chosen, and said in words.

mod chrome;
mod explain;
mod json;
#[cfg(feature = "otlp")]
mod otlp;
mod said;
mod shown;
mod spans;
mod story;
mod text;

use crate::running::{Entry, Kind};
use crate::top::alerts;
use crate::{address, args, control, export, mounts, out, running, stats};
use anyhow::{Context as _, Result};
use library::Traces;
use library::traces::{Kept, Party};
use shown::{Shown, this_host, uuid};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use story::{Call, Story, stories};

/// Requests on a page, at most.
const PAGE_COUNT_MAX: usize = 50;
/// A mount that does not answer by then is not waited for.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(args: &args::Why) -> Result<()> {
    let about = args.path.as_deref().map(About::of).transpose()?;
    let named = args.server.as_deref().map(control::mount_at).transpose()?.flatten();
    let mounts = mounts(args, about.as_ref(), named.as_ref())?;
    let server = server(args, &mounts, named.as_ref())?;
    let (calls, mut notes) = calls_of(&mounts, &server);
    let asked = ask(args::Server { server, login: args.login.clone() });
    let lanes = match asked {
        Ok((lanes, sentences)) => {
            notes.extend(sentences.iter().map(|it| format!("At the server now: {it}.")));
            lanes
        }
        Err(error) if !calls.is_empty() => {
            notes.push(format!("This is the mount's side alone, without the server: {error:#}"));
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let wanted = |story: &Story| {
        (args.samples || story.kept() != Kept::Sample)
            && args.client.as_ref().is_none_or(|client| has_client(story, client))
            && args.pid.is_none_or(|pid| has_process(story, pid))
            && about.as_ref().is_none_or(|about| about.is_of(story))
    };
    let shown = lanes.into_iter().flat_map(each).collect();
    let mut all: Vec<Story> = stories(calls, shown).into_iter().filter(wanted).collect();
    // What waits comes first, then the slowest.
    all.sort_by_key(|story| (story.kept() != Kept::Waiting, std::cmp::Reverse(story.total_us())));
    show(args, all, &notes)
}

/// A client by its host's name and its job.
pub(crate) fn client_text(party: &Party) -> String {
    explain::client(party)
}

/// The requests that wait in these lanes, and the slowest of late, for the page of their server.
pub(crate) fn objects_of(lanes: Vec<Traces>, has_names: bool) -> Vec<serde_json::Value> {
    let mut all: Vec<Shown> = lanes.into_iter().flat_map(each).collect();
    all.retain(|shown| shown.trace.kept != Kept::Sample);
    all.sort_by_key(|Shown { trace, .. }| {
        (trace.kept != Kept::Waiting, std::cmp::Reverse(trace.total_us()))
    });
    all.truncate(PAGE_COUNT_MAX);
    if !has_names {
        all.iter_mut().for_each(|shown| shown.trace.name.clear());
    }
    all.iter().map(json::of_page).collect()
}

fn show(args: &args::Why, mut all: Vec<Story>, notes: &[String]) -> Result<()> {
    if let Some(file) = &args.chrome {
        let trace = serde_json::to_vec(&chrome::trace(&all))?;
        std::fs::write(file, trace).with_context(|| format!("cannot write {}", file.display()))?;
        out::print_line(&format!("{} requests are in {}", all.len(), file.display()));
        return Ok(());
    }
    #[cfg(feature = "otlp")]
    if let Some(to) = &args.otlp {
        otlp::export(&all, to)?;
        out::print_line(&format!("{} requests are at {to}", all.len()));
        return Ok(());
    }
    let left_out = all.len().saturating_sub(args.count.into());
    all.truncate(args.count.into());
    let mut text = String::new();
    if args.json {
        for story in &all {
            text.push_str(&serde_json::to_string(&json::object(story))?);
            text.push('\n');
        }
    } else {
        text::put(&mut text, &all, left_out);
        for note in notes {
            text.push_str(note);
            text.push('\n');
        }
    }
    out::print_bytes(text.as_bytes())
}

/// The mounts that are asked, and all that are meant by what is asked for.
fn mounts(args: &args::Why, about: Option<&About>, named: Option<&Entry>) -> Result<Vec<Entry>> {
    if let Some(about) = about {
        return Ok(vec![about.mount.clone()]);
    }
    if let Some(named) = named {
        return Ok(vec![named.clone()]);
    }
    let all = running::all()?.into_iter().map(|found| found.entry);
    let mut mounts: Vec<Entry> =
        all.filter(|entry| entry.kind == Kind::Mount && entry.mounted).collect();
    if let Some(server) = &args.server {
        let address = stats::server_of(Some(server)).ok();
        let address =
            address.and_then(|address| address::resolve(&address::full(&address).ok()?).ok());
        let address = address.map(|address| address.to_string());
        mounts.retain(|mount| address.is_some() && mount.address == address);
    }
    Ok(mounts)
}

/// The server that is asked: the one that was named, or that of the mounts.
fn server(args: &args::Why, mounts: &[Entry], named: Option<&Entry>) -> Result<String> {
    if let (Some(server), None) = (&args.server, named) {
        return stats::server_of(Some(server));
    }
    let addresses: BTreeSet<&String> =
        mounts.iter().filter_map(|mount| mount.address.as_ref()).collect();
    let mut addresses = addresses.into_iter();
    match (addresses.next(), addresses.next()) {
        (Some(one), None) if args.path.is_some() || named.is_some() => Ok(one.clone()),
        // A server that runs here comes first.
        (Some(one), None) => Ok(stats::server_of(None).unwrap_or_else(|_| one.clone())),
        _ => stats::server_of(None),
    }
}

/// What the mounts of a server remember, and which do not answer.
fn calls_of(mounts: &[Entry], server: &str) -> (Vec<Call>, Vec<String>) {
    let of_server = mounts.iter().filter(|mount| mount.address.as_deref() == Some(server));
    let asked: Vec<_> = of_server
        .map(|mount| {
            let asked = mount.clone();
            (mount, begin(move || Some(story::calls_of(&asked))))
        })
        .collect();
    let until = Instant::now() + LOOK_TIMEOUT;
    let (mut calls, mut notes) = (Vec::new(), Vec::new());
    for (mount, answer) in asked {
        let left = until.saturating_duration_since(Instant::now());
        let dir = mount.dir.as_deref().unwrap_or_default();
        match answer.recv_timeout(left) {
            Ok(Some(Ok(found))) => calls.extend(found),
            Ok(Some(Err(error))) => notes.push(format!("Without the mount {dir}: {error:#}.")),
            Ok(None) | Err(_) => notes.push(format!(
                "Without the mount {dir}: its process {} does not answer.",
                mount.pid
            )),
        }
    }
    (calls, notes)
}

/// What the lanes of a server remember, and what is wrong there now.
fn ask(server: args::Server) -> Result<(Vec<Traces>, Vec<String>)> {
    let (mut volume, _) = export::connect(&server)?;
    let lanes = volume.traces()?;
    let sentences = alerts::standing(&volume.counters()?);
    // Not left: a Goodbye is answered when the log is on the disk, which may be what is stuck. An
    // administrator has nothing that a server would keep.
    std::mem::forget(volume);
    Ok((lanes, sentences))
}

fn each(Traces { lane, requests }: Traces) -> impl Iterator<Item = Shown> {
    requests.into_iter().map(move |trace| Shown { lane, trace })
}

/// Whether a request is of a client, or waits for it.
fn has_client(story: &Story, wanted: &str) -> bool {
    let is_it = |party: &Party| {
        let uuid = uuid(party);
        let is_uuid = wanted.len() >= 4 && uuid.starts_with(&wanted.to_lowercase());
        party.host == wanted || party.job == wanted || is_uuid
    };
    parties(story).any(is_it)
}

/// Whether a request is of a process of this machine, or waits for it.
fn has_process(story: &Story, pid: u32) -> bool {
    let here = this_host();
    let is_caller = story.call.as_ref().is_some_and(|call| call.pid == Some(pid));
    is_caller || parties(story).any(|party| party.pid == pid && party.host == here)
}

fn parties(story: &Story) -> impl Iterator<Item = &Party> {
    story.shown.iter().flat_map(|shown| {
        let whom = shown.trace.waits.iter().flat_map(|wait| &wait.whom);
        std::iter::once(&shown.trace.client).chain(whom)
    })
}

/// A file or directory of a mount of this machine.
struct About {
    mount: Entry,
    path: PathBuf,
    /// Its inode, if the mount says that in time.
    inode: Option<u64>,
    dir_inode: Option<u64>,
}

/// The server in what was given in the place of a path, if it is the address of one.
fn server_in(given: &Path) -> Option<String> {
    let text = given.to_str()?;
    text.starts_with(address::SCHEME).then(|| address::read(text).ok()).flatten()
}

impl About {
    /// The mount is asked for inodes by a thread of its own: it may be what is stuck.
    fn of(given: &Path) -> Result<Self> {
        let lexical = std::path::absolute(given)?;
        let (mount, path) = match mount_of(&lexical)? {
            Some(mount) => (Some(mount), lexical),
            // Behind a symlink, perhaps.
            None => {
                let shown = lexical.display().to_string();
                let path = in_time(move || mounts::absolute(&lexical).ok());
                let path = path.with_context(|| match server_in(given) {
                    Some(server) => format!("a server is named by --server {server}"),
                    None => format!("{shown}: there is no such folder"),
                })?;
                (mount_of(&path)?, path)
            }
        };
        let mount = mount.with_context(|| {
            format!("{} is in no mount of lanefs that this user sees", path.display())
        })?;
        let [inode, dir_inode] = [Some(path.as_path()), path.parent()].map(|path| {
            let path = path?.to_owned();
            in_time(move || std::fs::symlink_metadata(path).ok().map(|found| found.ino()))
        });
        Ok(Self { mount, path, inode, dir_inode })
    }

    /// The path below the mount.
    fn below(&self) -> String {
        let dir = self.mount.dir.as_deref().unwrap_or_default();
        let below = self.path.strip_prefix(dir).unwrap_or(&self.path);
        format!("/{}", below.to_string_lossy().escape_debug())
    }

    fn is_of(&self, story: &Story) -> bool {
        let is_at_server = |shown: &Shown| {
            let trace = &shown.trace;
            trace.inode.is_some_and(|inode| self.is_named(inode.0, &trace.name))
        };
        let is_call = |call: &Call| {
            let trace = &call.trace;
            // A process that is on its way to it waits for directories above.
            let is_above =
                self.below().starts_with(&format!("{}/", call.path.trim_end_matches('/')));
            let is_on_its_way = trace.kept == Kept::Waiting && is_above;
            call.path == self.below()
                || is_on_its_way
                || trace.inode.is_some_and(|inode| self.is_named(inode.0, &trace.name))
        };
        // Not what this command itself asks of a mount.
        let is_own = |call: &Call| call.pid == Some(std::process::id());
        let call = story.call.as_ref().filter(|call| !is_own(call));
        call.is_some_and(is_call) || story.shown.iter().any(is_at_server)
    }

    fn is_named(&self, inode: u64, name: &[u8]) -> bool {
        let is_name = self.dir_inode == Some(inode)
            && self.path.file_name().is_some_and(|found| found.as_bytes() == name);
        is_name || self.inode == Some(inode)
    }
}

/// What a thread finds out, if that is soon.
fn in_time<T: Send + 'static>(find: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
    begin(find).recv_timeout(LOOK_TIMEOUT).ok().flatten()
}

fn begin<T: Send + 'static>(
    find: impl FnOnce() -> Option<T> + Send + 'static,
) -> Receiver<Option<T>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // Nobody waits any more.
        let _late = sender.send(find());
    });
    receiver
}

/// The mount that a path is in, which is asked nothing.
fn mount_of(path: &Path) -> Result<Option<Entry>> {
    let mounts = running::all()?.into_iter().map(|found| found.entry);
    let mounts = mounts.filter(|entry| entry.kind == Kind::Mount && entry.mounted);
    let is_below =
        |entry: &Entry| entry.dir.as_ref().is_some_and(|dir| path.starts_with(Path::new(dir)));
    let below = mounts.filter(is_below);
    Ok(below.max_by_key(|entry| entry.dir.as_ref().map_or(0, String::len)))
}
