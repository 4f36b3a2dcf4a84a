//! The outcome of a request: 0, a Linux errno, or one of a few numbers of our own from 1000 on.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// The outcome of a request. Numbers below 1000 are Linux's errno values.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Status {
            $($(#[$doc])* $name = $number,)*
        }

        impl Status {
            /// Every status, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The encoded number.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The status of a number from a peer, if there is one.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The text for display.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = 0, "done";
    /// EPERM.
    NotPermitted = 1, "operation not permitted";
    /// ENOENT.
    NotFound = 2, "no such file or directory";
    /// EINTR.
    Interrupted = 4, "interrupted";
    /// EIO.
    Io = 5, "input/output error";
    /// ENXIO.
    NoDevice = 6, "no such device or address";
    /// EBADF.
    BadHandle = 9, "bad file descriptor";
    /// EAGAIN.
    Again = 11, "resource temporarily unavailable";
    /// ENOMEM.
    NoMemory = 12, "not enough memory";
    /// EACCES.
    Access = 13, "permission denied";
    /// EBUSY.
    Busy = 16, "device or resource busy";
    /// EEXIST.
    Exists = 17, "file exists";
    /// EXDEV.
    CrossDevice = 18, "invalid cross-device link";
    /// ENOTDIR.
    NotDirectory = 20, "not a directory";
    /// EISDIR.
    IsDirectory = 21, "is a directory";
    /// EINVAL.
    Invalid = 22, "invalid argument";
    /// ENFILE.
    TooManyFiles = 23, "too many open files";
    /// EFBIG.
    TooLarge = 27, "file too large";
    /// ENOSPC.
    NoSpace = 28, "no space left on device";
    /// EROFS.
    ReadOnly = 30, "read-only file system";
    /// EMLINK.
    TooManyLinks = 31, "too many links";
    /// ERANGE.
    Range = 34, "numerical result out of range";
    /// EDEADLK.
    Deadlock = 35, "resource deadlock avoided";
    /// ENAMETOOLONG.
    NameTooLong = 36, "file name too long";
    /// ENOLCK.
    NoLocks = 37, "no locks available";
    /// ENOSYS.
    NotImplemented = 38, "function not implemented";
    /// ENOTEMPTY.
    NotEmpty = 39, "directory not empty";
    /// ELOOP.
    Loop = 40, "too many levels of symbolic links";
    /// ENODATA.
    NoData = 61, "no data available";
    /// EPROTO.
    Protocol = 71, "protocol error";
    /// EOVERFLOW.
    Overflow = 75, "value too large for defined data type";
    /// EOPNOTSUPP.
    NotSupported = 95, "operation not supported";
    /// ENOTCONN.
    NotConnected = 107, "not connected";
    /// ESTALE.
    Stale = 116, "stale file handle";
    /// EDQUOT.
    Quota = 122, "disk quota exceeded";
    /// Another lane owns the shard: the reply's lane hint names it. The request was not executed;
    /// send it there under a new xid.
    WrongLane = 1001, "wrong lane";
    /// Too busy: the slot was not changed. Retry under a new xid; a request resent under its xid is
    /// retried under the same one.
    RetryLater = 1002, "busy, retry later";
    /// The result depends on the caller's supplementary groups, which the request lacks. Nothing
    /// was done; resend with the groups, under a new xid.
    NeedGroups = 1003, "supplementary groups needed";
    /// The file grants privileges that this change of its contents must clear first
    /// ([`crate::ClearPrivileges`]). Nothing was done; clear them and resend under a new xid.
    NeedClearPrivileges = 1004, "set-id bits or capabilities must be taken away first";
    /// The client's map is older than the server's, which is the reply's body ([`crate::Map`]), or
    /// another server has the shard. The request was not looked at; route it anew by that map, and
    /// keep its xid: wherever it was executed, the slot says so.
    StaleMap = 1005, "old map of servers";
    /// The request takes the file for one at a single data shard, and the file has or needs a second
    /// stripe ([`crate::Layout::narrow`]). Nothing was done; send [`crate::Op::Widen`], and then the
    /// request again under a new xid and with the layout of a file over several data shards.
    MustWiden = 1006, "the file is or has to be spread";
}
