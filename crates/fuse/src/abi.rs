//! The numbers of the kernel's protocol (`linux/fuse.h`): op codes, flags, sizes of structs. A test
//! compares them with the system's header.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// What the kernel asks for.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub(crate) enum Opcode {
            $($(#[$doc])* $name = $number,)*
        }

        impl Opcode {
            /// All that is answered with something better than ENOSYS.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// `None` for what is not implemented.
            pub(crate) const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

// What is not among them is answered ENOSYS, and what the kernel makes of it is what programs on other
// file systems know:
// - BMAP 37: for file systems on a block device only; FIBMAP then finds nothing (0);
// - IOCTL 39: ENOTTY. FICLONE, FIDEDUPERANGE and FIEMAP never come here, the kernel says EOPNOTSUPP;
// - POLL 40: a file is always ready;
// - NOTIFY_REPLY 41: an answer to what we never ask;
// - COPY_FILE_RANGE_64 53: the kernel asks for COPY_FILE_RANGE instead, which copies no more than 64 KiB;
// - SETUPMAPPING 48, REMOVEMAPPING 49: of virtiofs.
// CUSE's are not ours.
opcodes! {
    Lookup = 1;
    /// Takes no answer.
    Forget = 2;
    Getattr = 3;
    Setattr = 4;
    Readlink = 5;
    Symlink = 6;
    Mknod = 8;
    Mkdir = 9;
    Unlink = 10;
    Rmdir = 11;
    Rename = 12;
    Link = 13;
    Open = 14;
    Read = 15;
    Write = 16;
    Statfs = 17;
    Release = 18;
    Fsync = 20;
    Setxattr = 21;
    Getxattr = 22;
    Listxattr = 23;
    Removexattr = 24;
    Flush = 25;
    Init = 26;
    Opendir = 27;
    Readdir = 28;
    Releasedir = 29;
    Fsyncdir = 30;
    Getlk = 31;
    Setlk = 32;
    Setlkw = 33;
    Access = 34;
    Create = 35;
    /// Takes no answer.
    Interrupt = 36;
    Destroy = 38;
    /// Takes no answer.
    BatchForget = 42;
    Fallocate = 43;
    Readdirplus = 44;
    Rename2 = 45;
    Lseek = 46;
    CopyFileRange = 47;
    /// Comes from virtiofs and fuseblk only (Linux 6.18).
    Syncfs = 50;
    /// Linux 6.2 and later.
    Tmpfile = 51;
    /// Linux 6.6 and later: a GETATTR of whoever wants to know the time of birth.
    Statx = 52;
}

/// The major version of the protocol; there is no other.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version whose messages we know.
pub(crate) const MINOR: u32 = 42;
/// The oldest kernel we talk to: 7.31, Linux 5.4.
pub(crate) const MINOR_MIN: u32 = 31;

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
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// Linux 5.11 and later.
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// Linux 6.6 and later.
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Linux 6.14 and later.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of SETATTR: what is to be set.
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
    /// The caller may not keep set-id bits.
    pub(crate) const KILL_SET_ID: u32 = 1 << 11;
}

/// The answer of OPEN and CREATE: reads and writes come here, not to the page cache.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// Several writes within a file at a time; the server orders them. (Linux 6.2 and later; one that
/// appends or makes the file longer has it alone within a mount.)
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// WRITE comes from the page cache (a mapping): the flags are not a file's.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// The writer may not keep set-id bits.
pub(crate) const WRITE_KILL_SET_ID: u32 = 1 << 2;
/// Of OPEN and CREATE: who empties the file may not keep them.
pub(crate) const OPEN_KILL_SET_ID: u32 = 1 << 0;

/// Linux's open flags, as on all architectures we build for.
pub(crate) mod open_flag {
    pub(crate) const ACCESS_MODE: u32 = 0o3;
    pub(crate) const READ_ONLY: u32 = 0o0;
    pub(crate) const WRITE_ONLY: u32 = 0o1;
    /// The kernel's own: the file is opened to be executed.
    pub(crate) const EXECUTE: u32 = 0o40;
    pub(crate) const EXCLUSIVE: u32 = 0o200;
    pub(crate) const TRUNCATE: u32 = 0o1000;
    pub(crate) const APPEND: u32 = 0o2000;
    /// O_NOATIME.
    pub(crate) const NO_ACCESS_TIME: u32 = 0o1_000_000;
    /// O_DSYNC, which O_SYNC has in it.
    pub(crate) const DATA_SYNC: u32 = 0o10_000;
}

/// Modes of FALLOCATE, as in fallocate(2).
pub(crate) mod fallocate_flag {
    pub(crate) const KEEP_SIZE: u32 = 1 << 0;
    pub(crate) const PUNCH_HOLE: u32 = 1 << 1;
    pub(crate) const ZERO_RANGE: u32 = 1 << 4;
}

/// What the answer of STATX has, as in statx(2).
pub(crate) mod statx_mask {
    pub(crate) const BASIC_STATS: u32 = 0x7ff;
    pub(crate) const BIRTH: u32 = 0x800;
}

/// What LSEEK looks for, as in lseek(2). The kernel does the rest itself.
pub(crate) mod whence {
    pub(crate) const DATA: u32 = 3;
    pub(crate) const HOLE: u32 = 4;
}
/// A GETLK or SETLK is flock's.
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

/// Most bytes of one READ or WRITE.
pub(crate) const TRANSFER_BYTES_MAX: u32 = wire::BULK_BYTES_MAX;
/// The same in pages.
pub(crate) const TRANSFER_PAGES_MAX: u16 = 256;
const _: () = assert!(TRANSFER_PAGES_MAX as u32 * 4096 == TRANSFER_BYTES_MAX);
