//! `lanefs status`: lists the servers and mounts of this machine by their processes' files ([`running`]).
//! With `--leases` it also asks the servers.

use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Found, Kind, text_of};
use crate::{address, args, export, mounts, out, terms, up};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// Runs the command.
pub(crate) fn run(args: &args::Status) -> Result<()> {
    let all = running::all()?;
    let entries: Vec<&Entry> = match &args.target {
        None => all.iter().map(|found| &found.entry).collect(),
        Some(target) => family_of(&all, target),
    };
    if let (Some(target), true) = (&args.target, entries.is_empty()) {
        return Err(nothing_runs(target).into());
    }
    let with_counts = |entry| Ok(Shown { entry, lease_counts: LeaseCounts::of(entry, args)? });
    let all_shown: Vec<Shown<'_>> = entries.into_iter().map(with_counts).collect::<Result<_>>()?;
    let mut text = String::new();
    if args.json {
        for shown in all_shown {
            writeln!(text, "{}", serde_json::to_string(&shown)?)?;
        }
    } else {
        for shown in &all_shown {
            // Children stand below their `up`.
            let Entry { pid, parent_pid, .. } = shown.entry;
            if !all_shown.iter().any(|it| Some(it.entry.pid) == *parent_pid) {
                describe(&mut text, shown, "")?;
                for child in all_shown.iter().filter(|it| it.entry.parent_pid == Some(*pid)) {
                    describe(&mut text, child, "  ")?;
                }
            }
        }
    }
    out::print_bytes(text.as_bytes())
}

/// What is shown of a process.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_counts: Option<LeaseCounts>,
}

/// The leases of a server, of all its lanes; all but the first count from its start.
#[derive(Serialize)]
struct LeaseCounts {
    held: u64,
    granted: u64,
    recalled: u64,
    /// Recalls that ended by the term.
    expired: u64,
    /// Not granted because the key was recalled too often.
    refused_hot: u64,
}

impl LeaseCounts {
    /// Asked of a server, if that is wanted.
    fn of(entry: &Entry, args: &args::Status) -> Result<Option<Self>> {
        let is_asked = args.leases && entry.kind == Kind::Serve;
        let Some(address) = entry.address.as_ref().filter(|_| is_asked) else { return Ok(None) };
        let listens = address::loopback_if_unspecified(address.parse()?);
        let server = args::Server { server: listens.to_string(), login: args.login.clone() };
        let counts = up::leases(&export::connect(&server)?.0.stats()?);
        Ok(Some(Self {
            held: counts.held_count,
            granted: counts.granted_count,
            recalled: counts.recalled_count,
            expired: counts.expired_count,
            refused_hot: counts.refused_hot_count,
        }))
    }

    fn text(&self) -> String {
        let Self { held, granted, recalled, expired, refused_hot } = self;
        format!(
            "{held}; {granted} granted, {recalled} recalled, {expired} expired, {refused_hot} hot"
        )
    }
}

/// Says that nothing was found, or that the target is neither a directory nor an address.
pub(crate) fn nothing_runs(target: &str) -> Exit {
    // Nothing is asked of a path: what is mounted there may not answer.
    if !address::has_slash(target.as_ref())
        && !matches!(target, "." | "..")
        && let Err(why) = address::read(target)
    {
        return Exit::usage(format!(
            "nothing of lanefs runs here for a directory {target}, and {why}"
        ));
    }
    let line = format!(
        "nothing of lanefs runs here for {target}, as far as this user can see; `lanefs status` names all that does"
    );
    Exit::new(Code::Failed, line)
}

/// What `target` means, with its `up` and all that belongs to that.
fn family_of<'a>(all: &'a [Found], target: &str) -> Vec<&'a Entry> {
    let wanted = Wanted::of(target);
    let meant: Vec<u32> = all
        .iter()
        .filter(|found| wanted.means(&found.entry))
        .map(|found| found.entry.head_pid())
        .collect();
    let belongs = |entry: &Entry| meant.contains(&entry.head_pid());
    all.iter().map(|found| &found.entry).filter(|entry| belongs(entry)).collect()
}

/// A directory or an address, as the command line has it.
pub(crate) struct Wanted {
    dir: Option<String>,
    addresses: Vec<String>,
}

impl Wanted {
    /// Whatever it may be; nothing is asked of what is mounted there.
    pub(crate) fn of(target: &str) -> Self {
        let dir = mounts::absolute(Path::new(target)).ok().map(|dir| text_of(&dir));
        // A path is no host.
        let host = Some(target).filter(|target| !address::has_slash(target.as_ref()));
        let full = host.and_then(|host| address::read(host).ok());
        let found = full.and_then(|full| address::all(&full).ok());
        let addresses = found.into_iter().flatten().map(|address| address.to_string()).collect();
        Self { dir, addresses }
    }

    /// Whether a process has to do with it.
    pub(crate) fn means(&self, entry: &Entry) -> bool {
        let at = |dir: &Option<String>| self.dir.is_some() && *dir == self.dir;
        let reached = entry.address.as_ref().is_some_and(|address| {
            let listens = address.parse().ok().map(address::loopback_if_unspecified);
            let here = listens.map(|listens| listens.to_string());
            self.addresses.iter().any(|it| it == address || Some(it) == here.as_ref())
        });
        at(&entry.dir) || at(&entry.store) || reached
    }
}

fn describe(to: &mut String, shown: &Shown<'_>, indent: &str) -> Result<()> {
    let Shown { entry, lease_counts } = shown;
    let Entry { kind, pid, address, store, dir, mounted, driver, fuse, lane_count, .. } = entry;
    let Entry { leases, log, version, metrics, .. } = entry;
    let epoch = entry.map_epoch.map(|epoch| epoch.to_string());
    let terms = entry.terms.as_ref().map(|runs| terms::text(runs));
    writeln!(to, "{indent}{} process {pid}", kind.text())?;
    let is_child = !indent.is_empty();
    let mounted = match kind {
        Kind::Serve => None,
        Kind::Up | Kind::Mount if *mounted => Some("mounted"),
        Kind::Up | Kind::Mount => Some("not mounted"),
    };
    // A child's are those of its `up`.
    let paths = [("address", address), ("store", store), ("dir", dir), ("log", log)];
    let lanes = lane_count.map(|count| count.to_string());
    let held = lease_counts.as_ref().map(LeaseCounts::text);
    let of_map = [("epoch", &epoch), ("terms", &terms), ("leases", leases), ("held", &held)];
    let own = [("version", version), ("driver", driver), ("fuse", fuse), ("lanes", &lanes)];
    let own = own.into_iter().chain(of_map).chain([("metrics", metrics)]);
    let shown = paths.into_iter().filter(|_| !is_child).chain(own);
    for (name, value) in shown.filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        let note = mounted.filter(|_| name == "dir").map(|it| format!(" ({it})"));
        writeln!(to, "{indent}  {name:8} {value}{}", note.unwrap_or_default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_means_a_server_that_listens_on_all() {
        let address = Some("0.0.0.0:7117".to_owned());
        let entry = Entry { address, ..Entry::of(Kind::Serve, None) };
        assert!(Wanted::of("127.0.0.1").means(&entry));
        assert!(Wanted::of("127.0.0.1:7117").means(&entry));
        assert!(!Wanted::of("127.0.0.1:7118").means(&entry));
    }

    #[test]
    fn a_directory_means_its_mount_or_its_store() {
        let store = Some("/srv/store".to_owned());
        let entry = Entry { store, ..Entry::of(Kind::Serve, None) };
        assert!(Wanted::of("/srv/store").means(&entry));
        assert!(Wanted::of("/srv/../srv/store").means(&entry) == Path::new("/srv").exists());
        assert!(!Wanted::of("/srv").means(&entry));
        assert!(!Wanted::of("/other").means(&Entry::of(Kind::Serve, None)));
    }
}
