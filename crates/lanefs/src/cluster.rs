//! `lanefs cluster`: makes a cluster of a file system, and tokens with which further servers join it.
//!
//! What a server does in a cluster is below: joining it ([`join`]), and living in it ([`membership`]); and
//! what is shown of one ([`show`]).
//! All of it asks etcd by `registry`; none of it is on the way of a request.

mod ask;
pub(crate) mod check;
pub(crate) mod join;
pub(crate) mod membership;
pub(crate) mod seen;
mod show;
mod token;
mod used;

pub(crate) use ask::access;
pub(crate) use show::{drain, servers};

use crate::args::{self, ClusterCommand};
use crate::{out, secret};
use anyhow::{Result, bail};
use ask::{NEVER_STARTED, etcd, failed, not_of_cluster, read, remembered, server_of};
use join::Joining;
use registry::{Access, Brought, Etcd, Founding};
use std::path::Path;
use store::{Shape, Store};
use token::{Package, Token};
use used::Used;
use wire::{Layout, MapEpoch, ServerId};

/// Runs the command.
pub(crate) fn run(args: &args::Cluster) -> Result<()> {
    match &args.command {
        ClusterCommand::Init(args) => init(args),
        ClusterCommand::Status(args) => show::status(args),
        ClusterCommand::Token(args) => token(args),
    }
}

fn init(args: &args::ClusterInit) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let etcd = etcd(&args.access.access(&args.etcd)?)?;
    let path = std::path::absolute(&args.store)?;
    // Before a store is made for nothing.
    etcd.read(&registry::prefix([0; 16])).map_err(failed)?;
    let mut store = store::open_or_create(&path, &Shape::default())?;
    let superblock = *store.superblock();
    let Some(member) = superblock.member else {
        found(&etcd, &mut store, args.layout)?;
        let line =
            format!("{} is the store of server 1 of cluster {}", path.display(), superblock.fs);
        out::print_line(&line);
        out::print_line(&next_steps(&path, &shown(etcd.access())));
        return Ok(());
    };
    read(&etcd, superblock.fs)?;
    bail!("{} is the store of server {} of a cluster already", path.display(), member.server)
}

/// Makes an open store that of the first server of a cluster, unless it is that already.
pub(crate) fn make(store: &mut Store, url: &str) -> Result<()> {
    let etcd = etcd(&Access::to_endpoints(url))?;
    match store.superblock().member {
        None => found(&etcd, store, Layout::GROWING),
        Some(_) => read(&etcd, store.superblock().fs).map(drop),
    }
}

/// Makes the store of a further server, on the machine of the first one's, unless there is one already.
pub(crate) fn extend(first: &Path, path: &Path, url: &str) -> Result<()> {
    match Joining::beside(first, path, url)? {
        Some(joining) => joining.join((NEVER_STARTED, 1), &Shape::default()).map(drop),
        None => Ok(()),
    }
}

/// Writes the first server of a cluster into the registry, and then into the store.
fn found(etcd: &Etcd, store: &mut Store, layout: Layout) -> Result<()> {
    let superblock = *store.superblock();
    let uuid = store.begin_cluster()?;
    let server = server_of(uuid, args::WEIGHT, (NEVER_STARTED, 1));
    let brought = Brought { server, counts: superblock.shard_counts() };
    // A store that was made for others keeps its own.
    let layout = match superblock.creation.layout {
        Layout::DEFAULT => layout,
        own => own,
    };
    let founding = Founding { layout, epoch: MapEpoch(store.boot_id()) };
    let change = registry::change(etcd, superblock.fs.0, |cluster| {
        // An earlier run may have come so far.
        match cluster.server_of(&brought.server.uuid) {
            Some(found) => Ok(((found, cluster.layout()), Vec::new())),
            None => {
                let (found, writes) = cluster.found(&brought, &founding)?;
                Ok(((found, layout), writes))
            }
        }
    });
    let ((server, shards), layout) = change.map_err(failed)?;
    assert!(server == ServerId::FIRST, "a store that has all shards is the first server's");
    let member = join::member(server, &shards, uuid);
    store.become_member(member, (&remembered(etcd.access())?, layout))?;
    Ok(())
}

/// As options of a command at another host.
fn shown(access: &Access) -> String {
    let Access { endpoints: _, ca, cert, key, user, password } = access;
    let files = [
        ("ca", ca.is_some()),
        ("cert", cert.is_some()),
        ("key", key.is_some()),
        ("password-file", password.is_some()),
    ];
    let mut text = access.to_string();
    if let Some(user) = user {
        text += &format!(" --etcd-user {user}");
    }
    for (name, _) in files.into_iter().filter(|(_, is_named)| *is_named) {
        text += &format!(" --etcd-{name} FILE");
    }
    text
}

fn next_steps(path: &Path, url: &str) -> String {
    let path = path.display();
    format!(
        "serve it:                  lanefs serve --store {path}\n\
         for each further server, a token:\n    \
         lanefs cluster token --store {path}\n\
         and on the host of the new server, with that token:\n    \
         lanefs serve --store PATH --listen HOST:PORT --cluster {url} --join TOKEN"
    )
}

fn token(args: &args::ClusterToken) -> Result<()> {
    let path = std::path::absolute(&args.store)?;
    let (superblock, key) = store::superblock_and_key(&path)?;
    if superblock.member.is_none() {
        bail!("{}", not_of_cluster(&path));
    }
    let etcd = etcd(&access(&path, args.etcd.as_deref(), &args.access)?)?;
    if let Some(line) = Used::of(&path)?.lost(&read(&etcd, superblock.fs)?) {
        bail!("{line}");
    }
    let secret = match secret::path(args.secret.secret_file.as_deref()) {
        Ok(path) => Some(secret::read_all(&path)?.current),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let token = Token::new()?;
    let package = Package { fs: superblock.fs, key, secret };
    token.offer(&etcd, &package, args.valid).map_err(failed)?;
    out::print_line(&token.to_string());
    let (valid, url) = (args::time_text(args.valid), shown(etcd.access()));
    out::print_error_line(&format!(
        "valid once, for {valid}; on the host of the new server: lanefs serve --store PATH --listen \
         HOST:PORT --cluster {url} --join TOKEN"
    ));
    Ok(())
}
