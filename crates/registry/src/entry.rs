//! Entries of etcd, and what is written to it.

/// A value and its version, the revision of etcd that wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// The key.
    pub key: String,
    /// The value; `None` if the key was removed.
    pub value: Option<String>,
    /// The revision.
    pub version: i64,
}

/// All keys below a prefix at one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The revision.
    pub revision: i64,
    /// In the order of the keys.
    pub entries: Vec<Versioned>,
}

/// A lease: keys that were written under it are removed when it ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeaseId(pub i64);

/// One write of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The key.
    pub key: String,
    /// The version that it must have, 0 for none.
    pub version: i64,
    /// What it becomes; `None`: it is removed.
    pub value: Option<String>,
    /// What it lives as long as.
    pub lease: Option<LeaseId>,
}
