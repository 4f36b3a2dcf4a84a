//! Errors, by the caller's remedy.

use client::Refused;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use wire::Status;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// No connection within the connect timeout, or it was lost for longer than that.
    Unreachable {
        /// The server's address.
        address: SocketAddr,
        /// The server refused the connection because it has its maximum.
        busy: bool,
    },
    /// The handshake failed, because the server or the client refused.
    Refused {
        /// The server's address.
        address: SocketAddr,
        /// The reason.
        reason: Refused,
    },
    /// The server refused one operation.
    Op {
        /// The operation's name.
        op: &'static str,
        /// The operation's path.
        path: PathBuf,
        /// The server's status.
        status: Status,
    },
    /// This machine cannot run a ring (the wanted driver is forbidden or missing, no memory).
    Ring(io::Error),
    /// A clone has left the volume.
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
