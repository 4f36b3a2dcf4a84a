//! The numbers of the kernel's protocol (`linux/fuse.h`): op codes, flags, sizes of structs. A test
//! compares them with the system's header.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal;)*) => {
        /// The kernel's op codes.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub(crate) enum Opcode {
            $($(#[$doc])* $name = $number,)*
        }

        impl Opcode {
            /// All op codes that are implemented.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The highest number.
            pub(crate) const NUMBER_MAX: u32 = {
                let mut highest = 0;
                $(highest = if $number > highest { $number } else { highest };)*
                highest
            };

            /// The kernel's name, in lower case.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// `None` for op codes that are not implemented.
            pub(crate) const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

// The other op codes are answered with ENOSYS, and the kernel then does what programs expect:
// - BMAP 37: for file systems on a block device only; FIBMAP then finds nothing (0);
// - IOCTL 39: ENOTTY. The kernel answers FICLONE, FIDEDUPERANGE and FIEMAP itself, with EOPNOTSUPP;
// - POLL 40: a file is always ready;
// - NOTIFY_REPLY 41: an answer to a request that we never make;
// - COPY_FILE_RANGE_64 53: the kernel falls back to COPY_FILE_RANGE, which copies at most 64 KiB;
// - SETUPMAPPING 48, REMOVEMAPPING 49: for virtiofs.
// CUSE's op codes are not implemented either.
opcodes! {
    Lookup = 1 "lookup";
    /// Has no reply.
    Forget = 2 "forget";
    Getattr = 3 "getattr";
    Setattr = 4 "setattr";
    Readlink = 5 "readlink";
    Symlink = 6 "symlink";
    Mknod = 8 "mknod";
    Mkdir = 9 "mkdir";
    Unlink = 10 "unlink";
    Rmdir = 11 "rmdir";
    Rename = 12 "rename";
    Link = 13 "link";
    Open = 14 "open";
    Read = 15 "read";
    Write = 16 "write";
    Statfs = 17 "statfs";
    Release = 18 "release";
    Fsync = 20 "fsync";
    Setxattr = 21 "setxattr";
    Getxattr = 22 "getxattr";
    Listxattr = 23 "listxattr";
    Removexattr = 24 "removexattr";
    Flush = 25 "flush";
    Init = 26 "init";
    Opendir = 27 "opendir";
    Readdir = 28 "readdir";
    Releasedir = 29 "releasedir";
    Fsyncdir = 30 "fsyncdir";
    Getlk = 31 "getlk";
    Setlk = 32 "setlk";
    Setlkw = 33 "setlkw";
    Access = 34 "access";
    Create = 35 "create";
    /// Has no reply.
    Interrupt = 36 "interrupt";
    Destroy = 38 "destroy";
    /// Has no reply.
    BatchForget = 42 "batch_forget";
    Fallocate = 43 "fallocate";
    Readdirplus = 44 "readdirplus";
    Rename2 = 45 "rename2";
    Lseek = 46 "lseek";
    CopyFileRange = 47 "copy_file_range";
    /// Sent by virtiofs and fuseblk only (Linux 6.18).
    Syncfs = 50 "syncfs";
    /// Linux 6.2 and later.
    Tmpfile = 51 "tmpfile";
    /// Linux 6.6 and later: a GETATTR that includes the time of birth.
    Statx = 52 "statx";
}

impl Opcode {
    /// Whether a request with this number needs the server.
    pub(crate) fn needs_server(number: u32) -> bool {
        !matches!(
            Self::from_number(number),
            None | Some(
                Self::Init | Self::Destroy | Self::Forget | Self::BatchForget | Self::Interrupt
            )
        )
    }

    /// Whether a request is about a name in a directory.
    pub(crate) const fn is_of_names(self) -> bool {
        matches!(
            self,
            Self::Lookup
                | Self::Create
                | Self::Mknod
                | Self::Mkdir
                | Self::Symlink
                | Self::Link
                | Self::Unlink
                | Self::Rmdir
                | Self::Rename
                | Self::Rename2
        )
    }
}

/// The only supported major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that we know.
pub(crate) const MINOR: u32 = 42;
/// The oldest supported minor version: 7.31, Linux 5.4.
pub(crate) const MINOR_MIN: u32 = 31;

/// The minor version from which on the kernel forgets all names at once: Linux 6.16.
pub(crate) const MINOR_FORGETS_NAMES: u32 = 44;

/// Flags of INIT.
pub(crate) mod init_flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// Linux 5.11 and later.
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// Linux 6.6 and later.
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Linux 6.14 and later.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of SETATTR: the attributes to set.
pub(crate) mod setattr_flag {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    /// The caller has no right to retain set-id bits.
    pub(crate) const KILL_SET_ID: u32 = 1 << 11;
}

/// A reply flag of OPEN and CREATE: reads and writes bypass the page cache.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// A reply flag of OPEN: the pages that the kernel has of the file stay valid.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// Allows parallel writes within a file's size; the server orders them. (Linux 6.2 and later. The
/// kernel serializes writes that append or extend, within a mount.)
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// A flag of GETATTR: it is about an open file.
pub(crate) const GETATTR_HANDLE: u32 = 1 << 0;
/// The WRITE comes from the page cache (a mapping): the flags do not belong to an open file.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// Of a READ: it has a lock owner, and so goes past the page cache.
pub(crate) const READ_LOCK_OWNER: u32 = 1 << 1;
/// The writer has no right to retain set-id bits.
pub(crate) const WRITE_KILL_SET_ID: u32 = 1 << 2;
/// OPEN and CREATE: a truncating caller has no right to retain set-id bits.
pub(crate) const OPEN_KILL_SET_ID: u32 = 1 << 0;

/// Linux's open flags, as on all architectures that we build for.
pub(crate) mod open_flag {
    pub(crate) const ACCESS_MODE: u32 = 0o3;
    pub(crate) const READ_ONLY: u32 = 0o0;
    pub(crate) const WRITE_ONLY: u32 = 0o1;
    /// Internal to the kernel: the file is opened for execution.
    pub(crate) const EXECUTE: u32 = 0o40;
    pub(crate) const EXCLUSIVE: u32 = 0o200;
    pub(crate) const TRUNCATE: u32 = 0o1000;
    pub(crate) const APPEND: u32 = 0o2000;
    /// O_NOATIME.
    pub(crate) const NO_ACCESS_TIME: u32 = 0o1_000_000;
    /// O_DSYNC, which is part of O_SYNC.
    pub(crate) const DATA_SYNC: u32 = 0o10_000;
}

/// Modes of FALLOCATE, as in fallocate(2).
pub(crate) mod fallocate_flag {
    pub(crate) const KEEP_SIZE: u32 = 1 << 0;
    pub(crate) const PUNCH_HOLE: u32 = 1 << 1;
    pub(crate) const ZERO_RANGE: u32 = 1 << 4;
}

/// Field mask of a STATX reply, as in statx(2).
pub(crate) mod statx_mask {
    pub(crate) const BASIC_STATS: u32 = 0x7ff;
    pub(crate) const BIRTH: u32 = 0x800;
}

/// Whence of LSEEK, as in lseek(2). The kernel implements the other values.
pub(crate) mod whence {
    pub(crate) const DATA: u32 = 3;
    pub(crate) const HOLE: u32 = 4;
}
/// A GETLK or SETLK for a flock lock.
pub(crate) const LK_FLOCK: u32 = 1 << 0;

/// Linux's lock types.
pub(crate) mod lock_type {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const UNLOCK: u32 = 2;
}

/// Sizes of the kernel's structs in bytes.
pub(crate) mod size {
    pub(crate) const IN_HEADER: usize = 40;
    #[cfg(test)]
    pub(crate) const ATTR: usize = 88;
    pub(crate) const ENTRY_OUT: usize = 128;
    #[cfg(test)]
    pub(crate) const ATTR_OUT: usize = 104;
    #[cfg(test)]
    pub(crate) const STATX_OUT: usize = 288;
    #[cfg(test)]
    pub(crate) const OPEN_OUT: usize = 16;
    #[cfg(test)]
    pub(crate) const STATFS_OUT: usize = 80;
    #[cfg(test)]
    pub(crate) const INIT_OUT: usize = 64;
    #[cfg(test)]
    pub(crate) const WRITE_OUT: usize = 8;
    pub(crate) const DIRENT: usize = 24;
}

/// The most bytes of one READ or WRITE.
pub(crate) const TRANSFER_BYTES_MAX: u32 = wire::BULK_BYTES_MAX;
/// The same in pages.
pub(crate) const TRANSFER_PAGES_MAX: u16 = 256;
const _: () = assert!(TRANSFER_PAGES_MAX as u32 * 4096 == TRANSFER_BYTES_MAX);
