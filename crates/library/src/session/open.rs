//! Open files: open, create, truncate, sync and close.

use super::walk::checked;
use super::{Session, broken, refused};
use crate::{Error, File, OpenFor};
use client::{Answer, Call};
use std::path::Path;
use wire::{FileKind, Status};

/// The most walks of a path whose file is removed, as another one gets its name, before it is opened.
const WALK_COUNT_MAX: u32 = 8;

impl Session {
    /// Opens an existing file.
    pub(crate) async fn open(&self, path: &Path, open_for: OpenFor) -> Result<File, Error> {
        for _ in 1..WALK_COUNT_MAX {
            match self.open_found(path, open_for).await {
                Err(error) if error.status() == Some(Status::Stale) => {}
                opened => return opened,
            }
        }
        self.open_found(path, open_for).await
    }

    async fn open_found(&self, path: &Path, open_for: OpenFor) -> Result<File, Error> {
        let found = self.find(path).await?;
        if found.kind == FileKind::Directory {
            return Err(refused("open", path, Status::IsDirectory));
        }
        let call = Call::Open(client::Open {
            caller: self.options.identity.caller(),
            inode: found.inode,
            open_for: match open_for {
                OpenFor::Read => wire::OpenFor::Read,
                OpenFor::Write => wire::OpenFor::Write,
            },
            sizes: true,
        });
        let reply = self.call("open", path, &call).await?;
        let Answer::Opened { attr, handle } = reply.answer else {
            return Err(broken("open", path));
        };
        Ok(File { path: path.to_path_buf(), attr, handle })
    }

    /// Opens a file for writing, creating it if it does not exist; `exclusive` refuses any existing
    /// name.
    pub(crate) async fn create(
        &self,
        path: &Path,
        mode: u32,
        exclusive: bool,
    ) -> Result<File, Error> {
        if !exclusive {
            match self.open(path, OpenFor::Write).await {
                Err(error) if error.is_not_found() => {}
                opened => return opened,
            }
        }
        let target = self.target("create", path).await?;
        let call = Call::Create(client::Create {
            caller: self.options.identity.caller(),
            parent: target.parent,
            name: checked("create", path, &target.name)?,
            mode,
            umask: self.options.identity.umask,
            exclusive,
            open: Some(wire::OpenFor::Write),
        });
        let reply = self.call("create", path, &call).await?;
        let Answer::Created { attr, made: _, handle: Some(handle) } = reply.answer else {
            return Err(broken("create", path));
        };
        Ok(File { path: path.to_path_buf(), attr, handle })
    }

    /// Waits until all changes to an open file, from any client, are durable: names, attributes,
    /// contents.
    pub(crate) async fn sync_file(&self, file: &File) -> Result<(), Error> {
        let sync =
            client::Sync { inode: file.attr.inode, contents: true, handle: Some(file.handle) };
        self.call("fsync", &file.path, &Call::Sync(sync)).await.map(drop)
    }

    /// Sets the size of a file that is open for writing.
    pub(crate) async fn truncate(&self, file: &File, size_bytes: u64) -> Result<(), Error> {
        let call = Call::Resize(client::Resize {
            caller: self.options.identity.caller(),
            inode: file.attr.inode,
            size_bytes,
            open_for_write: true,
        });
        self.call("truncate", &file.path, &call).await.map(drop)
    }

    /// Waits until all changes are durable.
    pub(crate) async fn sync(&self) -> Result<(), Error> {
        let closed = self.reap_closes(0).await;
        let synced = self.call("sync", Path::new("/"), &Call::SyncAll).await.map(drop);
        closed.and(synced)
    }
}
