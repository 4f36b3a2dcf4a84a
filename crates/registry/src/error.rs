//! Why the registry could not be used.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No endpoint answered. A write may have been made nevertheless.
    #[error("etcd does not answer ({endpoint}: {why}): start it, or name its addresses by --etcd")]
    Away {
        /// The last one asked.
        endpoint: String,
        /// Its fault.
        why: String,
    },
    /// etcd refused what was asked.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// The answer is none that etcd 3.4 or later gives.
    #[error("the answer of etcd cannot be understood: {0}")]
    Malformed(String),
    /// What was read is older than what etcd keeps: it must be read anew.
    #[error("the registry's history was compacted")]
    Compacted,
    /// An entry that this version does not understand.
    #[error("the entry {key} of the registry cannot be understood: {why}")]
    Entry {
        /// Its key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// The cluster is not as the caller believes; the sentence says how.
    #[error("{0}")]
    State(String),
}

#[cfg(feature = "client")]
impl RegistryError {
    pub(crate) fn away(endpoint: &str, why: &ureq::Error) -> Self {
        Self::Away { endpoint: endpoint.to_owned(), why: why.to_string() }
    }

    pub(crate) fn read(endpoint: &str, why: &std::io::Error) -> Self {
        Self::Away { endpoint: endpoint.to_owned(), why: why.to_string() }
    }
}
