//! The API for programs that wait for many things at once: each operation is a future. It needs no
//! particular runtime: any executor can poll it.
//!
//! ```no_run
//! # async fn read_attributes(options: library::ConnectOptions) -> Result<(), library::Error> {
//! let volume = library::nonblocking::Volume::connect(&options).await?;
//! let file = volume.create("/handshake", 0o644, false).await?;
//! volume.write_at(&file, 0, "hello").await?;
//! volume.close(file).await?;
//! volume.leave().await
//! # }
//! ```
//! A volume is a thread with its own ring, on which all operations of all its clones run
//! concurrently; the futures only wait for them. So dropping a future does not cancel an operation
//! that has begun. Operations begin when their futures are first polled, and those that are begun
//! together may be executed in any order.

mod runner;

use crate::operations::operations;
use crate::{
    Attr, ConnectOptions, Dir, DirEntry, Error, Export, File, FoundEntry, Frozen, InodeNo, Inspect,
    ListRead, NewExport, OpenFor, Piece, Removal, Report, Search, SearchOptions, SetAttr, Snapshot,
    Space, Special, Stats, Stride, Traces,
};
use bytes::Bytes;
use runner::Runner;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use wire::Map;

/// A connection to a file system, whose calls are futures. Clones share the connection; several
/// threads may use it.
///
/// Errors are those of the method of the same name of [`crate::Volume`]; [`Error::Left`] besides,
/// once a clone has [left](Self::leave). If the future of a call that continues something is
/// dropped ([`Self::next_entries`], [`Self::search`]), the state that it was to continue does not change.
#[derive(Clone)]
pub struct Volume {
    runner: Arc<Runner>,
}

impl Volume {
    /// Connects, with mutual proof of the secret, and waits for the Welcome.
    ///
    /// # Errors
    /// As [`crate::Volume::connect`]; [`Error::Ring`] when no thread can be started.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let runner = Runner::start(options)?;
        runner.run(|session| async move { session.connect().await }).await?;
        Ok(Self { runner: Arc::new(runner) })
    }

    /// The reports of broken promises since the last call.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub async fn take_reports(&self) -> Result<Vec<Report>, Error> {
        self.runner.run(|session| async move { Ok(session.take_reports()) }).await
    }

    /// Ends in order, for all clones: waits until all changes are durable, and ends the sessions at
    /// the server. Operations in flight end first; later ones fail. Dropping the last clone does
    /// the same, but the result is lost.
    ///
    /// # Errors
    /// As [`crate::Volume::leave`].
    pub async fn leave(self) -> Result<(), Error> {
        self.runner.leave().await
    }
}

/// The type of an argument.
macro_rules! argument {
    (path) => { impl AsRef<Path> };
    (os_str) => { impl AsRef<OsStr> };
    (text) => { &str };
    (file) => { &File };
    (pieces) => { &[Piece] };
    (bytes) => { impl Into<Vec<u8>> };
    (parts) => { Vec<(u64, Vec<u8>)> };
    (wanted) => { &SearchOptions<'_> };
    (export) => { &NewExport<'_> };
    ((&$type:ident)) => { &$type };
    ($type:ident) => { $type };
}

/// An argument without borrowed parts, for the volume's thread.
macro_rules! owned {
    (path $arg:ident) => {
        $arg.as_ref().to_path_buf()
    };
    (os_str $arg:ident) => {
        $arg.as_ref().to_os_string()
    };
    (text $arg:ident) => {
        $arg.to_owned()
    };
    (file $arg:ident) => {
        $arg.same()
    };
    (pieces $arg:ident) => {
        $arg.to_vec()
    };
    (bytes $arg:ident) => {
        Into::<Vec<u8>>::into($arg)
    };
    ((&$type:ident) $arg:ident) => {
        *$arg
    };
    (wanted $arg:ident) => {
        $arg.owned()
    };
    (export $arg:ident) => {
        $arg.owned()
    };
    ($kind:ident $arg:ident) => {
        $arg
    };
}

/// The argument of the session's method.
macro_rules! lent {
    (path $arg:ident) => {
        &$arg
    };
    (os_str $arg:ident) => {
        &$arg
    };
    (text $arg:ident) => {
        &$arg
    };
    (file $arg:ident) => {
        &$arg
    };
    (pieces $arg:ident) => {
        &$arg
    };
    (bytes $arg:ident) => {
        &$arg
    };
    ((&$type:ident) $arg:ident) => {
        &$arg
    };
    (parts $arg:ident) => {
        &$arg.iter().map(|(file_offset, bytes)| (*file_offset, &bytes[..])).collect::<Vec<_>>()
    };
    (wanted $arg:ident) => {
        &$arg.lent()
    };
    (export $arg:ident) => {
        &$arg.lent()
    };
    ($type:ident $arg:ident) => {
        $arg
    };
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
                ///
                /// # Errors
                /// [`Error::Left`].
                pub async fn $fact(&self) -> Result<$known, Error> {
                    self.runner.run(|session| async move { Ok(session.$fact()) }).await
                }
            )*
            $(
                $(#[$more_doc])*
                pub async fn $more(
                    &self,
                    $at: &mut $place,
                    $($by: argument!($of)),*
                ) -> Result<$next, Error> {
                    let mut place = $at.clone();
                    $(let $by = owned!($of $by);)*
                    let continued = self.runner.run(move |session| async move {
                        let next = session.$more(&mut place, $(lent!($of $by)),*).await?;
                        Ok((place, next))
                    });
                    let (place, next) = continued.await?;
                    *$at = place;
                    Ok(next)
                }
            )*
            $(
                $(#[$doc])*
                pub async fn $name(
                    &self,
                    $($arg: argument!($kind)),*
                ) -> Result<$result, Error> {
                    $(let $arg = owned!($kind $arg);)*
                    let run = self.runner.run(move |session| async move {
                        session.$name($(lent!($kind $arg)),*).await
                    });
                    run.await
                }
            )*
        }
    };
}

operations!(methods);
