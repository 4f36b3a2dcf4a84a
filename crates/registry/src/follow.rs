//! `Following`: what is known of the registry, over failures of etcd.
//!
//! Everything is read, then watched from that revision, and read anew when the watch breaks or its revision
//! was compacted. While etcd is away what is known stays. [`Following`] decides, its user asks etcd
//! and waits.

use crate::{Cluster, RegistryError, Snapshot, Versioned};

/// What to do after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Read everything at once.
    Now,
    /// Wait, then read everything; it is to be reported if etcd had answered before.
    Later {
        /// It had.
        is_first: bool,
    },
}

/// What is known of the registry.
#[derive(Clone, Debug)]
pub struct Following {
    fs: [u8; 16],
    cluster: Option<Cluster>,
    revision: i64,
    /// The last failure was only a watch that ended, or a first call without an answer.
    is_doubted: bool,
    has_failed: bool,
}

impl Following {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new(fs: [u8; 16]) -> Self {
        Self { fs, cluster: None, revision: 0, is_doubted: false, has_failed: false }
    }

    /// What is known; `None` before everything was read.
    #[must_use]
    pub const fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The revision behind which changes are to be watched.
    #[must_use]
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// Everything was read. The state, if it is news: it differs, or etcd had failed.
    ///
    /// # Errors
    /// As of [`Cluster::read`].
    pub fn on_read(&mut self, snapshot: &Snapshot) -> Result<Option<&Cluster>, RegistryError> {
        let read = Some(Cluster::read(self.fs, snapshot)?);
        let is_news = self.has_failed || self.cluster != read;
        (self.cluster, self.revision) = (read, snapshot.revision);
        (self.is_doubted, self.has_failed) = (false, false);
        Ok(self.cluster.as_ref().filter(|_| is_news))
    }

    /// The changes of a revision were watched. The state with them.
    ///
    /// # Errors
    /// As of [`Cluster::apply`].
    pub fn on_changes(&mut self, changes: &[Versioned]) -> Result<Option<&Cluster>, RegistryError> {
        if let Some(cluster) = &mut self.cluster {
            cluster.apply(changes)?;
        }
        let last = changes.iter().map(|change| change.version).max();
        self.revision = last.map_or(self.revision, |last| last.max(self.revision));
        Ok(self.cluster.as_ref())
    }

    /// Reading or watching has failed.
    pub fn on_failure(&mut self, error: &RegistryError) -> Retry {
        match error {
            RegistryError::Compacted => Retry::Now,
            // A watch that saw nothing for a while ends like this: only reading again says whether
            // etcd answers.
            RegistryError::Away { .. } if !self.has_failed && !self.is_doubted => {
                self.is_doubted = true;
                Retry::Now
            }
            RegistryError::Away { .. }
            | RegistryError::Refused(_)
            | RegistryError::Malformed(_)
            | RegistryError::Entry { .. }
            | RegistryError::State(_) => {
                self.is_doubted = false;
                let is_first = !std::mem::replace(&mut self.has_failed, true);
                Retry::Later { is_first }
            }
        }
    }
}
