//! Joining a cluster: a new store becomes that of a further server.
//!
//! In this order, each step durable: the store's uuid; the server's entry in the registry, with which the
//! token is used up; the store. After a crash between the last two the registry knows the uuid, and
//! the same command goes on without the token.

use super::ask::{etcd, failed, not_of_cluster, server_of};
use super::token::{Package, Token};
use crate::args::ClusterArg;
use crate::exit::Exit;
use crate::secret;
use anyhow::{Context as _, Result, bail};
use disk::{Member, Superblock};
use registry::{Brought, Etcd, RegistryError, Shards};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use store::{Draft, Shape, Store, StoreFault};
use tracing::{info, warn};
use wire::{Layout, Secret, ServerId, ShardCounts};

/// A store that is to join.
pub(crate) struct Joining {
    path: PathBuf,
    url: String,
    etcd: Etcd,
    /// Begun earlier, and known to the registry.
    known: Option<Draft>,
    /// What the token opens; `None` if the store is known.
    opened: Option<(Token, Package)>,
    weight: u32,
}

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
        let etcd = etcd(url)?;
        let begun = Draft::unfinished(path)?;
        let is_known = |draft: &Draft| -> Result<bool> {
            let snapshot = etcd.read(&registry::prefix(draft.fs().0)).map_err(failed)?;
            let cluster = registry::Cluster::read(draft.fs().0, &snapshot).map_err(failed)?;
            Ok(cluster.server_of(&hex::encode(draft.uuid())).is_some())
        };
        let known = match begun {
            Some(draft) if is_known(&draft)? => Some(draft),
            Some(_) | None => None,
        };
        let opened = match (&known, &args.join) {
            (Some(_), _) => None,
            (None, Some(text)) => {
                let token = Token::parse(text)?;
                let package = token.open(&etcd)?;
                Some((token, package))
            }
            (None, None) => {
                return Err(Exit::usage(format!(
                    "there is no store at {shown}: to make it that of a further server, add --join TOKEN; \
                     `lanefs cluster token` on the host of a server prints one"
                ))
                .into());
            }
        };
        let (path, url, weight) = (path.to_owned(), url.clone(), args.weight);
        Ok(Some(Self { path, url, etcd, known, opened, weight }))
    }

    /// Brings the secret of the cluster's clients, if there is no file with one yet.
    pub(crate) fn bring_secret(&self, named: Option<&Path>) -> Result<()> {
        let opened = self.opened.as_ref();
        let Some(secret) = opened.and_then(|(_, package)| package.secret) else { return Ok(()) };
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
        let Self { path, url, etcd, known, opened, weight } = self;
        let (draft, token) = match (known, opened) {
            (Some(draft), _) => (draft, None),
            (None, Some((token, Package { fs, key, secret: _ }))) => {
                (Draft::begin(&path, fs, key)?, Some(token))
            }
            (None, None) => bail!("bug: a store joins by a token or is known"),
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
        let store = draft.finish(&shape, member, &url)?;
        info!("joined the cluster of file system {} as server {server}", store.superblock().fs);
        Ok(store)
    }
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
