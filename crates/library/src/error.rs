//! What can go wrong, by what the caller can do about it.

use client::Refused;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use wire::Status;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// No connection within the time allowed, or it was lost and did not come back in time.
    Unreachable {
        /// Whom we tried.
        address: SocketAddr,
        /// It answered, and did not let us in: it has as many connections as it takes.
        busy: bool,
    },
    /// The handshake ended with a no, ours or the server's.
    Refused {
        /// Which server.
        address: SocketAddr,
        /// Why.
        reason: Refused,
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
    /// This machine cannot run a ring (the driver that is wanted is forbidden or missing, no memory).
    Ring(io::Error),
    /// The volume was left by a clone of it.
    Left,
}

impl Error {
    /// The status of a refused operation.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Op { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Refused { .. } | Self::Ring(_) | Self::Left => None,
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
            Self::Unreachable { address, busy: false } => {
                write!(f, "no lanefs server answers at {address}")
            }
            Self::Unreachable { address, busy: true } => {
                write!(f, "the server at {address} has as many connections as it takes")
            }
            Self::Refused { address, reason } => write!(f, "{address}: {}", reason.text()),
            Self::Op { op: _, path, status } => {
                write!(f, "{}: {}", path.display(), status.text())
            }
            Self::Ring(error) => write!(f, "cannot set up a lane: {error}"),
            Self::Left => f.write_str("the volume was left"),
        }
    }
}

impl std::error::Error for Error {}
