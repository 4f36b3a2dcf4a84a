//! The blocking API: each operation is a [`Session`]'s, run on the calling thread.
//!
//! Invariant: a method returns when its operation has ended, or when the server was away for the
//! connect timeout.

use crate::operations::operations;
use crate::session::Session;
use crate::{
    Attr, ConnectOptions, Dir, DirEntry, Error, Export, File, FoundEntry, Frozen, InodeNo, Inspect,
    ListRead, NewExport, OpenFor, Piece, Removal, Report, Search, SearchOptions, SetAttr, Snapshot,
    Space, Special, Stats, Stride, Traces,
};
use bytes::Bytes;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use wire::Map;

/// A connection to a file system, for one thread, whose calls block.
///
/// Besides the errors named at a method, each may return [`Error::Unreachable`] when the server was
/// away for the connect timeout, [`Error::Refused`] when it refuses this client, and [`Error::Op`]
/// with [`Status::Io`](crate::Status::Io) when its disk failed. The errors of a path are
/// `NotFound`, `NotDirectory`, `Access` (no permission to search a directory on the way),
/// `NameTooLong` (a name beyond 255 bytes) and `Loop` (more than 40 symbolic links).
pub struct Volume {
    session: Session,
}

impl Volume {
    /// Connects, with mutual proof of the secret, and waits for the Welcome.
    ///
    /// # Errors
    /// [`Error::Unreachable`] after the connect timeout, [`Error::Refused`] (wrong secret, unknown
    /// export, an impostor, another version), [`Error::Ring`] when this machine has no driver, or
    /// not the chosen one.
    pub fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let session = Session::new(options, None)?;
        session.block_on(session.connect())?;
        Ok(Self { session })
    }

    /// From now on the last `count` names of every path are refused with `Loop` if they are
    /// symbolic links that would have to be followed. With 0, the default, all are followed.
    pub fn refuse_links(&mut self, count: usize) {
        self.session.refused_link_count.set(count);
    }

    /// The number of the server's lanes.
    #[must_use]
    pub fn server_lane_count(&self) -> u16 {
        self.session.server_lane_count()
    }

    /// The reports of broken promises since the last call.
    pub fn take_reports(&mut self) -> Vec<Report> {
        self.session.take_reports()
    }

    /// Ends in order: waits until all changes through this volume are durable, and ends the session
    /// at the server. Dropping a volume does the same, but the result is lost.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn leave(self) -> Result<(), Error> {
        self.wait(self.session.leave())
    }

    fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.session.block_on(operation)
    }
}

/// The type of an argument.
macro_rules! argument {
    (path) => { &Path };
    (os_str) => { &OsStr };
    (text) => { &str };
    (file) => { &File };
    (pieces) => { &[Piece] };
    (bytes) => { &[u8] };
    (parts) => { &[(u64, &[u8])] };
    (wanted) => { &SearchOptions<'_> };
    (export) => { &NewExport<'_> };
    ((&$type:ident)) => { &$type };
    ($type:ident) => { $type };
}

macro_rules! methods {
    (
        facts { $($(#[$fact_doc:meta])* $fact:ident -> $known:ty;)* }
        continued {
            $($(#[$more_doc:meta])* $more:ident[$at:ident: $place:ty]($($by:ident: $of:tt),*)
                -> $next:ty;)*
        }
        others { $($(#[$doc:meta])* $name:ident($($arg:ident: $kind:tt),*) -> $result:ty;)* }
    ) => {
        impl Volume {
            $(
                $(#[$fact_doc])*
                #[must_use]
                pub fn $fact(&self) -> $known {
                    self.session.$fact()
                }
            )*
            $(
                $(#[$more_doc])*
                pub fn $more(
                    &mut self,
                    $at: &mut $place,
                    $($by: argument!($of)),*
                ) -> Result<$next, Error> {
                    self.wait(self.session.$more($at, $($by),*))
                }
            )*
            $(
                $(#[$doc])*
                pub fn $name(&mut self, $($arg: argument!($kind)),*) -> Result<$result, Error> {
                    self.wait(self.session.$name($($arg),*))
                }
            )*
        }
    };
}

operations!(methods);

impl Drop for Volume {
    fn drop(&mut self) {
        // No caller is left, and an absent server is given up soon; a caller that needs the result,
        // or a longer wait, uses `leave`.
        self.wait(self.session.leave_soon());
    }
}
