//! `lanefs servers` and `lanefs cluster status`: what the registry says; and `lanefs drain`, which
//! changes that.

use super::ask::{NEVER_STARTED, access, etcd, failed, not_of_cluster, read};
use super::used::Used;
use crate::args::EtcdArg;
use crate::exit::Exit;
use crate::files::human;
use crate::running::{self, Kind, text_of};
use crate::table::{self, Column};
use crate::{args, export, log, mounts, out, secret, space};
use anyhow::{Result, bail};
use registry::{Access, Cluster, Etcd, RegistryError, Server, ServerState, Shards};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wire::{FsUuid, ServerId};

/// A cluster's registry, and where it is.
struct Found {
    fs: FsUuid,
    url: String,
    etcd: Etcd,
    cluster: Cluster,
    /// What the server has used whose store says where the registry is.
    used: Option<Used>,
}

/// A line of `lanefs servers`.
#[derive(Clone, Serialize)]
pub(super) struct ServerLine {
    id: u16,
    /// `None` before its first start.
    address: Option<String>,
    lanes: u16,
    /// It runs.
    up: bool,
    /// New directories and files are made there.
    takes_new: bool,
    weight: u32,
    /// Of the medium under its store; `None` if it is away, or does not answer.
    used_bytes: Option<u64>,
    free_bytes: Option<u64>,
    uuid: String,
}

/// A line of `lanefs cluster status`: the shards of a server.
#[derive(Clone, Serialize)]
pub(super) struct ShardsLine {
    server: u16,
    up: bool,
    takes_new: bool,
    term: u32,
    metadata: [u16; 2],
    data: [u16; 2],
}

/// The first line of `lanefs cluster status`.
#[derive(Serialize)]
struct Summary {
    fs: String,
    etcd: String,
    map_epoch: Option<u64>,
    generation: Option<u8>,
    server_count: usize,
    up_count: usize,
}

/// `lanefs servers`.
pub(crate) fn servers(args: &args::Servers) -> Result<()> {
    let found = find(&args.registry)?;
    found.report_loss();
    let mut lines: Vec<ServerLine> = found.servers().map(server_line).collect();
    ask_for_space(&mut lines, &args.login);
    if args.json {
        return print_json(&lines);
    }
    let head = ["ID", "ADDRESS", "LANES", "STATE", "WEIGHT", "USED", "FREE", "STORE"];
    let mut shown = vec![head.map(str::to_owned).to_vec()];
    shown.extend(lines.into_iter().map(|line| {
        let state = state_text(line.up, line.takes_new);
        let address = line.address.unwrap_or_else(|| "never started".to_owned());
        let (lanes, weight) = (line.lanes.to_string(), line.weight.to_string());
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human);
        let (used, free) = (size(line.used_bytes), size(line.free_bytes));
        let (id, state) = (line.id.to_string(), state.to_owned());
        vec![id, address, lanes, state, weight, used, free, line.uuid]
    }));
    let mut text = String::new();
    let is_number = |column| matches!(column, 0 | 2 | 4..=6);
    table::put(
        &mut text,
        &shown,
        |column| {
            if is_number(column) { Column::Number } else { Column::Text }
        },
    );
    out::print_bytes(text.as_bytes())
}

/// Asks those that run. Without the store's secret nothing is asked.
fn ask_for_space(lines: &mut [ServerLine], login: &args::AdminLogin) {
    if login.certificates.cert.is_none()
        && let Err(error) = secret::path(login.secret.secret_file.as_deref())
            .and_then(|path| secret::read_all(&path))
    {
        return log::report(&format!("used and free bytes are not known: {error}"));
    }
    let mut up: Vec<(&mut ServerLine, String)> = lines
        .iter_mut()
        .filter(|line| line.up)
        .filter_map(|line| line.address.clone().map(|address| (line, address)))
        .collect();
    let addresses: Vec<String> = up.iter().map(|(_, address)| address.clone()).collect();
    let spaces = space::of_each(&addresses, |address| {
        let server = args::Server { server: address.to_owned(), login: login.clone() };
        Ok(export::connect(&server)?.0)
    });
    for ((line, _), space) in up.iter_mut().zip(spaces) {
        match space {
            Ok(space) => {
                line.used_bytes = Some(space.total_bytes.saturating_sub(space.free_bytes));
                line.free_bytes = Some(space.available_bytes);
            }
            Err(error) => {
                log::report(&format!("server {} does not say its space: {error:#}", line.id))
            }
        }
    }
}

/// `lanefs cluster status`.
pub(super) fn status(args: &args::ClusterStatus) -> Result<()> {
    let found = find(&args.registry)?;
    found.report_loss();
    let lines: Vec<ShardsLine> = found.servers().map(shards_line).collect();
    let map = found.cluster.map();
    let summary = Summary {
        fs: found.fs.to_string(),
        etcd: found.url.clone(),
        map_epoch: map.as_ref().map(|map| map.epoch().0),
        generation: map.as_ref().map(wire::Map::generation),
        server_count: lines.len(),
        up_count: lines.iter().filter(|line| line.up).count(),
    };
    if args.json {
        print_json(&[summary])?;
        return print_json(&lines);
    }
    let Summary { fs, etcd, map_epoch, generation, server_count, up_count } = summary;
    let number =
        |number: Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
    let (map_epoch, generation) = (number(map_epoch), number(generation.map(u64::from)));
    let mut text = String::new();
    writeln!(text, "cluster of file system {fs}, etcd {etcd}")?;
    writeln!(
        text,
        "{up_count} of {server_count} servers up; map epoch {map_epoch}, generation {generation}"
    )?;
    let head = ["SERVER", "STATE", "TERM", "METADATA", "DATA"];
    let mut shown = vec![head.map(str::to_owned).to_vec()];
    let range = |[first, last]: [u16; 2]| format!("{first}-{last}");
    shown.extend(lines.iter().map(|line| {
        let state = state_text(line.up, line.takes_new);
        let (metadata, data) = (range(line.metadata), range(line.data));
        vec![line.server.to_string(), state.to_owned(), line.term.to_string(), metadata, data]
    }));
    table::put(&mut text, &shown, |column| {
        if matches!(column, 0 | 2) { Column::Number } else { Column::Text }
    });
    for line in lines.iter().filter(|line| !line.up) {
        writeln!(text, "server {} is away: what lies on it waits until it is back", line.server)?;
    }
    out::print_bytes(text.as_bytes())
}

/// `lanefs drain`.
pub(crate) fn drain(args: &args::Drain) -> Result<()> {
    let found = find(&args.registry)?;
    let id = ServerId(args.server);
    let changed = registry::change(&found.etcd, found.fs.0, |cluster| {
        if let Some(line) = found.lost(cluster) {
            return Err(RegistryError::State(line));
        }
        let writes = if args.undo { cluster.undrain(id)? } else { cluster.drain(id)? };
        Ok(((), writes))
    });
    changed.map_err(failed)?;
    out::print_line(&if args.undo {
        format!("server {id} takes new directories and files again")
    } else {
        format!("server {id} takes no new directories and files; it keeps what it has")
    });
    Ok(())
}

const fn state_text(up: bool, takes_new: bool) -> &'static str {
    match (up, takes_new) {
        (true, true) => "up",
        (true, false) => "up, draining",
        (false, true) => "away",
        (false, false) => "away, draining",
    }
}

type OfServer<'a> = (ServerId, &'a Server, &'a Shards, bool);

impl Found {
    fn lost(&self, cluster: &Cluster) -> Option<String> {
        self.used.as_ref().and_then(|used| used.lost(cluster))
    }

    fn report_loss(&self) {
        if let Some(line) = self.lost(&self.cluster) {
            log::report(&line);
        }
    }

    fn servers(&self) -> impl Iterator<Item = OfServer<'_>> {
        servers_of(&self.cluster)
    }
}

/// The servers, and whether they run.
fn servers_of(cluster: &Cluster) -> impl Iterator<Item = OfServer<'_>> {
    let servers = cluster.servers();
    servers.map(|(id, server, shards)| (id, server, shards, cluster.alive(id).is_some()))
}

/// A line of each server, of both kinds.
pub(super) fn lines(cluster: &Cluster) -> (Vec<ServerLine>, Vec<ShardsLine>) {
    (servers_of(cluster).map(server_line).collect(), servers_of(cluster).map(shards_line).collect())
}

fn server_line((id, server, _, up): OfServer<'_>) -> ServerLine {
    let Server { uuid, weight, state, address, lanes } = server;
    ServerLine {
        id: id.0,
        address: (*address != NEVER_STARTED).then(|| address.to_string()),
        lanes: *lanes,
        up,
        takes_new: *state == ServerState::Active,
        weight: *weight,
        used_bytes: None,
        free_bytes: None,
        uuid: uuid.clone(),
    }
}

fn shards_line((id, server, shards, up): OfServer<'_>) -> ShardsLine {
    let range = |(first, count): (u16, u16)| [first, first.saturating_add(count) - 1];
    let Shards { metas, datas, term } = *shards;
    let takes_new = server.state == ServerState::Active;
    let (metadata, data) = (range(metas), range(datas));
    ShardsLine { server: id.0, up, takes_new, term, metadata, data }
}

fn print_json<T: Serialize>(lines: &[T]) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{}", serde_json::to_string(line)?)?;
    }
    out::print_bytes(text.as_bytes())
}

fn find(args: &args::RegistryArg) -> Result<Found> {
    match args.registry.as_deref() {
        Some(url) if url.contains("://") => of_etcd(&args.etcd.access(url)?),
        Some(path) => of_store(&store_named(Path::new(path))?, &args.etcd),
        None => of_store(&running_store()?, &args.etcd),
    }
}

/// That of a server's store.
fn of_store(path: &Path, options: &EtcdArg) -> Result<Found> {
    let (superblock, _) = store::superblock_and_key(path)?;
    if superblock.member.is_none() {
        bail!("{}", not_of_cluster(path));
    }
    let etcd = etcd(&access(path, None, options)?)?;
    let (fs, cluster) = (superblock.fs, read(&etcd, superblock.fs)?);
    let used = Some(Used::of(path)?);
    Ok(Found { fs, url: etcd.access().to_string(), etcd, cluster, used })
}

/// The only one of an etcd.
fn of_etcd(access: &Access) -> Result<Found> {
    let (etcd, url) = (etcd(access)?, access.to_string());
    let all = registry::file_systems(&etcd).map_err(failed)?;
    match *all.as_slice() {
        [] => bail!("the etcd at {url} knows no cluster"),
        [fs] => {
            let fs = FsUuid(fs);
            let cluster = read(&etcd, fs)?;
            Ok(Found { fs, url, etcd, cluster, used: None })
        }
        [..] => {
            bail!("the etcd at {url} knows {} clusters: name the store of a server", all.len())
        }
    }
}

/// A store, or that of the `up` that is mounted at this path.
fn store_named(path: &Path) -> Result<PathBuf> {
    let path = mounts::absolute(path)?;
    let dir = Some(text_of(&path));
    let mut here = running::all()?.into_iter().map(|found| found.entry);
    let up = here.find(|entry| entry.kind == Kind::Up && entry.dir == dir);
    Ok(up.and_then(|entry| entry.store).map_or(path, PathBuf::from))
}

/// The store of a server in a cluster that runs here.
fn running_store() -> Result<PathBuf> {
    let served = running::all()?.into_iter().filter(|found| found.entry.kind == Kind::Serve);
    let mut stores = served.filter_map(|found| found.entry.store).map(PathBuf::from);
    let is_member = |path: &PathBuf| {
        store::superblock_and_key(path).is_ok_and(|(superblock, _)| superblock.member.is_some())
    };
    stores.find(is_member).ok_or_else(|| {
        let line = "no server of a cluster runs here: name the store of one, or its etcd as http://HOST:PORT";
        Exit::usage(line).into()
    })
}
