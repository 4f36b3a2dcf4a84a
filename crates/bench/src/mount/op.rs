//! The operations on a mount.

/// Callers of the rows with many of them.
pub(super) const MANY: usize = 8;

/// The operation that the caller repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Attributes, past the kernel's cache.
    Stat,
    OpenClose,
    /// A new file, and its close.
    Create,
    /// A new file with 4 KiB.
    CreateWrite,
    /// What tar does for a small file: create, write, utimens, chown, chmod, close.
    Unpack,
    Unlink,
    /// Sequential, past the page cache.
    Read(usize),
    Write(usize),
    /// At random offsets.
    ReadAt(usize),
    WriteAt(usize),
    /// 4 KiB and fsync.
    WriteSync,
}

impl Op {
    pub(super) const ALL: [Self; 11] = [
        Self::Stat,
        Self::OpenClose,
        Self::Create,
        Self::CreateWrite,
        Self::Unpack,
        Self::Unlink,
        Self::Read(1 << 20),
        Self::Write(1 << 20),
        Self::ReadAt(4096),
        Self::WriteAt(4096),
        Self::WriteSync,
    ];

    pub(super) fn text(self) -> String {
        match self {
            Self::Stat => "stat".to_owned(),
            Self::OpenClose => "open+close".to_owned(),
            Self::Create => "create".to_owned(),
            Self::CreateWrite => "create+write".to_owned(),
            Self::Unpack => "unpack".to_owned(),
            Self::Unlink => "unlink".to_owned(),
            Self::Read(bytes) => format!("read-{}KiB", bytes / 1024),
            Self::Write(bytes) => format!("write-{}KiB", bytes / 1024),
            Self::ReadAt(bytes) => format!("read-random-{}KiB", bytes / 1024),
            Self::WriteAt(bytes) => format!("write-random-{}KiB", bytes / 1024),
            Self::WriteSync => "write+fsync".to_owned(),
        }
    }

    /// Numbers of callers.
    pub(super) const fn caller_counts(self) -> &'static [usize] {
        match self {
            Self::Stat | Self::Create | Self::WriteSync => &[1, MANY],
            Self::OpenClose
            | Self::CreateWrite
            | Self::Unpack
            | Self::Unlink
            | Self::Read(_)
            | Self::Write(_)
            | Self::ReadAt(_)
            | Self::WriteAt(_) => &[1],
        }
    }

    /// Whether it only writes bytes.
    pub(super) const fn is_write(self) -> bool {
        matches!(self, Self::Write(_) | Self::WriteAt(_))
    }

    /// Whether it waits for a disk, which no null file system has.
    pub(super) fn waits_for_disk(self) -> bool {
        self == Self::WriteSync
    }

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Read(bytes) | Self::Write(bytes) | Self::ReadAt(bytes) | Self::WriteAt(bytes) => {
                bytes
            }
            Self::CreateWrite | Self::Unpack | Self::WriteSync => 4096,
            Self::Stat | Self::OpenClose | Self::Create | Self::Unlink => 0,
        }
    }
}
