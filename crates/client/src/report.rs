//! Reports to the user: lost changes and their cause.

use crate::refused::Refused;
use alloc::vec::Vec;
use core::fmt;
use wire::{InodeNo, Op, ShardId, Status, Transno};

/// The most inodes named in one line.
const NAMED_COUNT_MAX: usize = 8;

/// An event that a frontend logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The server evicted this client, which continues as a new one.
    Evicted {
        /// Answered changes that are not known to be durable.
        lost_count: u64,
        /// Their inodes, ascending.
        inodes: Vec<InodeNo>,
    },
    /// An answered change is lost, because it depended on a change that another client lost.
    ReplayRefused {
        /// Its op.
        op: Op,
        /// Its inode.
        inode: InodeNo,
        /// The server's status for the replay.
        status: Status,
    },
    /// A lock was lost to another client while the server was unreachable.
    LockLost {
        /// The file.
        inode: InodeNo,
    },
    /// There is no connection for this reason; calls wait.
    NotConnected {
        /// The reason.
        refused: Refused,
    },
    /// The limit of open files is reached: further opens fail.
    TooManyFiles {
        /// The limit.
        count_max: usize,
    },
    /// The server lacks changes that it had reported durable.
    RolledBack {
        /// The shard.
        shard: ShardId,
        /// The last change that was reported durable.
        known: Transno,
        /// The last change that the shard has now.
        found: Transno,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicted { lost_count: 0, .. } => {
                write!(to, "the server evicted this client; no answered change is lost")
            }
            Self::Evicted { lost_count, inodes } => {
                write!(to, "evicted: {lost_count} answered changes are lost, of inodes")?;
                for (index, inode) in inodes.iter().take(NAMED_COUNT_MAX).enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(to, "{comma} {:#x}", inode.0)?;
                }
                match inodes.len().saturating_sub(NAMED_COUNT_MAX) {
                    0 => Ok(()),
                    more_count => write!(to, " and {more_count} more"),
                }
            }
            Self::ReplayRefused { op, inode, status } => write!(
                to,
                "an answered {} of inode {:#x} is lost: {}",
                op.row().name,
                inode.0,
                status.text()
            ),
            Self::LockLost { inode } => {
                write!(to, "a lock on inode {:#x} is lost: its holder's next fsync fails", inode.0)
            }
            Self::NotConnected { refused } => {
                write!(to, "no connection to the server, calls wait: {}", refused.text())
            }
            Self::TooManyFiles { count_max } => {
                write!(to, "{count_max} files are open, and no more can be: opens fail with ENFILE")
            }
            Self::RolledBack { shard, known, found } => write!(
                to,
                "the store went back: shard {shard:?} had {:#x} durable and has {:#x} now; nothing \
                 is sent to it any more",
                known.0, found.0
            ),
        }
    }
}
