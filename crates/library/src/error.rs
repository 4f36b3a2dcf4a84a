//! What can go wrong, by what the caller can do about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use wire::{Breach, RefusalReason, Status};

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// No connection within the time allowed, or it was lost and did not come back in time.
    Unreachable {
        /// Whom we tried.
        address: SocketAddr,
        /// The last reason, when the network named one.
        reason: Option<io::Error>,
    },
    /// The server said no to the greeting.
    Refused {
        /// Which server.
        address: SocketAddr,
        /// Why.
        reason: RefusalReason,
    },
    /// The server could not prove that it knows the secret.
    Impostor {
        /// Which server.
        address: SocketAddr,
    },
    /// Something that is no lanefs server of this version answered.
    Protocol {
        /// Which server.
        address: SocketAddr,
        /// What was wrong with it.
        breach: Breach,
    },
    /// The server refused one operation.
    Op {
        /// The operation's name.
        op: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        status: Status,
    },
    /// This machine cannot run a ring (io_uring missing or forbidden, no memory).
    Ring(io::Error),
}

impl Error {
    /// The status of a refused operation.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Op { status, .. } => Some(*status),
            Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::Impostor { .. }
            | Self::Protocol { .. }
            | Self::Ring(_) => None,
        }
    }

    /// Whether the operation failed because the name does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(Status::NotFound)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, reason: Some(reason) } => {
                write!(f, "no lanefs server reachable at {address}: {reason}")
            }
            Self::Unreachable { address, reason: None } => {
                write!(f, "no lanefs server reachable at {address}: no answer in time")
            }
            Self::Refused { address, reason } => {
                write!(f, "the server at {address} refused: {}", refusal_text(*reason))
            }
            Self::Impostor { address } => {
                write!(f, "the server at {address} does not know our secret: another file system's?")
            }
            Self::Protocol { address, breach } => {
                write!(f, "what answers at {address} does not speak lanefs: {}", breach.text())
            }
            Self::Op { op: _, path, status } => {
                write!(f, "{}: {}", path.display(), status.text())
            }
            Self::Ring(error) => write!(f, "cannot set up io_uring: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// A refusal in words.
const fn refusal_text(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::WrongSecret => "wrong secret",
        RefusalReason::NoSuchExport => "it has no such export",
        RefusalReason::OldEpoch => "a later connection of this client exists",
        RefusalReason::Busy => "too many connections",
        RefusalReason::Stopping => "it is stopping",
    }
}
