//! Why a client does not go on: what the server said, or what of it cannot be.

use wire::{Credential, RefusalReason, Status};

/// Why the client does not go on until told to ([`crate::Client::try_again`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The server, or the client, has another secret.
    WrongSecret,
    /// The server has no such export, or another secret for it: it does not say which to whoever has
    /// only an export's secret.
    WrongExportSecret,
    /// The server has no such export.
    NoSuchExport,
    /// Another file system answers now.
    OtherFileSystem,
    /// The export is another directory now.
    OtherRoot,
    /// It lacks changes that it said were durable.
    WentBack,
}

impl Refused {
    /// What waiting calls are answered with.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::WrongSecret => Status::Access,
            Self::WrongExportSecret
            | Self::NoSuchExport
            | Self::OtherFileSystem
            | Self::OtherRoot => Status::Stale,
            Self::WentBack => Status::Io,
        }
    }

    /// In words, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::WrongSecret => "the server has another secret",
            Self::WrongExportSecret => "the server has no such export, or another secret for it",
            Self::NoSuchExport => "the server has no such export",
            Self::OtherFileSystem => "another file system answers at this address now",
            Self::OtherRoot => "the export is another directory now; unmount, and mount again",
            Self::WentBack => "the server's store went back: it lacks what it said was durable",
        }
    }

    /// Of a secret that the other end does not know.
    pub(crate) const fn of_secret(credential: Credential) -> Self {
        match credential {
            Credential::Store => Self::WrongSecret,
            Credential::Export => Self::WrongExportSecret,
        }
    }

    pub(crate) const fn of(reason: RefusalReason, credential: Credential) -> Option<Self> {
        match reason {
            RefusalReason::WrongSecret => Some(Self::of_secret(credential)),
            RefusalReason::NoSuchExport => Some(Self::NoSuchExport),
            RefusalReason::Evicted
            | RefusalReason::OldEpoch
            | RefusalReason::Busy
            | RefusalReason::Stopping => None,
        }
    }
}
