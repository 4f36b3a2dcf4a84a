//! The names of files and folders in a store's directory.

/// The superblock's file.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// The folder of the logs.
pub(crate) const LOG: &str = "log";
/// The folder of the rows.
pub(crate) const ROWS: &str = "rows";
/// The folder of the objects, in a store and in its backup.
pub const OBJECTS: &str = "objects";
/// The folder of files that a repair has moved away.
pub const QUARANTINE: &str = "quarantine";
/// The file with the addresses of a cluster's registry.
pub(crate) const CLUSTER: &str = "cluster";
/// The file with what the server has used of that registry.
pub(crate) const REGISTRY: &str = "registry";
/// The file with the uuid of a store that joins a cluster.
pub(crate) const JOINING: &str = "joining";
