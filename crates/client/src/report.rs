//! What people must be told: promises that could not be kept, and by whom.

use crate::refused::Refused;
use alloc::vec::Vec;
use core::fmt;
use wire::{InodeNo, Op, ShardId, Status, Transno};

/// Inodes named in one line.
const NAMED_COUNT_MAX: usize = 8;

/// Something that a face passes on to people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The server went on without this client: it comes back as a new one.
    Evicted {
        /// Changes that had been answered and are not known to be durable.
        lost_count: u64,
        /// What they were about, ascending.
        inodes: Vec<InodeNo>,
    },
    /// A change that had been answered is gone: what it was based on was lost with another client.
    ReplayRefused {
        /// What it was.
        op: Op,
        /// What it was about.
        inode: InodeNo,
        /// What the server said.
        status: Status,
    },
    /// A lock on a file went to another while the server could not be reached.
    LockLost {
        /// Which file.
        inode: InodeNo,
    },
    /// There is no connection for this reason, and who waits goes on waiting.
    Waits {
        /// Why.
        refused: Refused,
    },
    /// This client may have no more files open: further opens are refused.
    TooManyFiles {
        /// How many it may have.
        count_max: usize,
    },
    /// The server has forgotten what it said was durable.
    WentBack {
        /// Which of its shards.
        shard: ShardId,
        /// The last change that was called durable.
        known: Transno,
        /// The last one it has now.
        found: Transno,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicted { lost_count: 0, .. } => {
                write!(to, "the server went on without us; nothing that was answered is lost")
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
                write!(
                    to,
                    "a lock on inode {:#x} is lost: its holder hears of it by fsync",
                    inode.0
                )
            }
            Self::Waits { refused } => {
                write!(to, "no connection to the server, which is waited for: {}", refused.text())
            }
            Self::TooManyFiles { count_max } => {
                write!(to, "{count_max} files are open, and no more can be: opens fail with ENFILE")
            }
            Self::WentBack { shard, known, found } => write!(
                to,
                "the store went back: shard {shard:?} had {:#x} durable and has {:#x} now; \
                 nothing is sent to it any more",
                known.0, found.0
            ),
        }
    }
}
