//! Joining a cluster: a new store becomes that of a further server.
//!
//! In this order, each step durable: the store's uuid; the server's entry in the registry, with which the
//! token is used up; the store. After a crash between the last two the registry knows the uuid, and
//! the same command goes on without the token.

use super::ask::{etcd, failed, not_of_cluster, read_any, remembered, server_of};
use super::token::{Package, Token};
use crate::args::{ClusterArg, WEIGHT};
use crate::exit::Exit;
use crate::secret;
use anyhow::{Context as _, Result, bail};
use disk::{Member, Superblock};
use registry::{Access, Brought, Etcd, RegistryError, Shards};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use store::{Draft, Shape, Store, StoreFault};
use tracing::{info, warn};
use wire::{FsUuid, Layout, Secret, ServerId, ShardCounts};

/// A store that is to join.
pub(crate) struct Joining {
    path: PathBuf,
    etcd: Etcd,
    begun: Begun,
    weight: u32,
}

/// What a store is to become that of a further server with.
enum Begun {
    /// Begun earlier, and known to the registry.
    Known(Draft),
    /// With what a token opens.
    ByToken(Token, Package),
    /// With what another server's store says.
    ByStore(FsUuid, FsKey),
}

/// The key of a file system.
type FsKey = [u8; 32];

/// The place of a server's store.
pub(crate) const fn member(server: ServerId, shards: &Shards, store: [u8; 16]) -> Member {
    Member { server, first_meta: shards.metas.0, first_data: shards.datas.0, store }
}

impl Joining {
    /// If the store is to join a cluster: what it needs for it. Nothing is changed.
    pub(crate) fn of(path: &Path, args: &ClusterArg) -> Result<Option<Self>> {
        let Some(url) = &args.cluster else { return Ok(None) };
        let shown = path.display();
        if let Some(superblock) = superblock(path)? {
            if superblock.member.is_some() {
                return Ok(None);
            }
            if args.join.is_none() {
                bail!("{}", not_of_cluster(path));
            }
            bail!(
                "{shown} is the store of another file system, {}: --join needs a new or empty directory",
                superblock.fs
            );
        }
        let etcd = etcd(&args.etcd.access(url)?)?;
        let begun = match (known(&etcd, path)?, &args.join) {
            (Some(draft), _) => Begun::Known(draft),
            (None, Some(text)) => {
                let token = Token::parse(text)?;
                let package = token.open(&etcd)?;
                Begun::ByToken(token, package)
            }
            (None, None) => {
                return Err(Exit::usage(format!(
                    "there is no store at {shown}: to make it that of a further server, add --join TOKEN; \
                     `lanefs cluster token` on the host of a server prints one"
                ))
                .into());
            }
        };
        let (path, weight) = (path.to_owned(), args.weight);
        Ok(Some(Self { path, etcd, begun, weight }))
    }

    /// If there is no store at `path`: what it needs to become that of a further server beside the one
    /// whose store is `first`, on the same machine.
    pub(crate) fn beside(first: &Path, path: &Path, url: &str) -> Result<Option<Self>> {
        if superblock(path)?.is_some() {
            return Ok(None);
        }
        let etcd = etcd(&Access::to_endpoints(url))?;
        let begun = match known(&etcd, path)? {
            Some(draft) => Begun::Known(draft),
            None => {
                let (superblock, key) = store::superblock_and_key(first)?;
                Begun::ByStore(superblock.fs, key)
            }
        };
        let (path, weight) = (path.to_owned(), WEIGHT);
        Ok(Some(Self { path, etcd, begun, weight }))
    }

    /// Brings the secret of the cluster's clients, if there is no file with one yet.
    pub(crate) fn bring_secret(&self, named: Option<&Path>) -> Result<()> {
        let Begun::ByToken(_, Package { secret: Some(secret), .. }) = self.begun else {
            return Ok(());
        };
        let path = secret::path_or_new(named);
        match secret::read_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let written = secret::write_new(&path, &secret);
                written.with_context(|| format!("cannot make the secret {}", path.display()))?;
                info!("{} is the secret of the cluster now", path.display());
            }
            Err(error) => return Err(error.into()),
            Ok(secrets) if has(&secrets, &secret) => {}
            Ok(_) => warn!(
                "{} is not the secret of the cluster's other servers: clients that have theirs are refused \
                 here; copy their file",
                path.display()
            ),
        }
        Ok(())
    }

    /// Joins, makes the store and opens it.
    pub(crate) fn join(self, at: (SocketAddr, u16), shape: &Shape) -> Result<Store> {
        let Self { path, etcd, begun, weight } = self;
        let (draft, token) = match begun {
            Begun::Known(draft) => (draft, None),
            Begun::ByToken(token, Package { fs, key, secret: _ }) => {
                (Draft::begin(&path, fs, key)?, Some(token))
            }
            Begun::ByStore(fs, key) => (Draft::begin(&path, fs, key)?, None),
        };
        let server = server_of(draft.uuid(), weight, at);
        let (server, shards, layout) = add(&etcd, &draft, server, token.as_ref())?;
        let shape = Shape {
            meta_shard_count: shards.metas.1,
            data_shard_count: shards.datas.1,
            layout,
            ..*shape
        };
        let member = member(server, &shards, draft.uuid());
        let store = draft.finish(&shape, member, &remembered(etcd.access())?)?;
        info!("joined the cluster of file system {} as server {server}", store.superblock().fs);
        Ok(store)
    }
}

/// The store that was begun at `path`, if the registry knows it.
fn known(etcd: &Etcd, path: &Path) -> Result<Option<Draft>> {
    let Some(draft) = Draft::unfinished(path)? else { return Ok(None) };
    let cluster = read_any(etcd, draft.fs())?;
    Ok(cluster.server_of(&hex::encode(draft.uuid())).is_some().then_some(draft))
}

/// That of the store, if there is one.
fn superblock(path: &Path) -> Result<Option<Superblock>> {
    match store::superblock_and_key(path) {
        Ok((superblock, _)) => Ok(Some(superblock)),
        Err(error) if matches!(error.fault(), StoreFault::NoStore) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn has(secrets: &wire::Secrets, secret: &Secret) -> bool {
    secrets.iter().any(|one| one == secret)
}

/// Adds the server to the registry, unless it is there.
fn add(
    etcd: &Etcd,
    draft: &Draft,
    server: registry::Server,
    token: Option<&Token>,
) -> Result<(ServerId, Shards, Layout)> {
    let Shape { meta_shard_count: meta, data_shard_count: data, .. } = Shape::default();
    let brought = Brought { server, counts: ShardCounts { meta, data } };
    let added = registry::change(etcd, draft.fs().0, |cluster| {
        let layout = cluster.layout();
        if let Some((id, shards)) = cluster.server_of(&brought.server.uuid) {
            return Ok(((id, shards, layout), Vec::new()));
        }
        if !cluster.exists() {
            let line = "--join: the token's cluster is in another etcd";
            return Err(RegistryError::State(line.to_owned()));
        }
        let ((id, shards), mut writes) = cluster.add(&brought)?;
        if let Some(token) = token {
            writes.push(token.consume(etcd)?);
        }
        Ok(((id, shards, layout), writes))
    });
    added.map_err(failed)
}
