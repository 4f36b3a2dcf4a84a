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
    /// The server speaks TLS only.
    MustSeal,
    /// The server speaks no TLS.
    MustNotSeal,
    /// The server's certificate is not good.
    Certificate,
}

impl Refused {
    /// What waiting calls are answered with.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::WrongSecret | Self::MustSeal | Self::MustNotSeal | Self::Certificate => {
                Status::Access
            }
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
            Self::WrongSecret => "the server has another secret; copy its secret file here again",
            Self::WrongExportSecret => "the server has no such export, or another secret for it",
            Self::NoSuchExport => "the server has no such export",
            Self::OtherFileSystem => "another file system answers at this address now",
            Self::OtherRoot => "the export is another directory now; unmount, and mount again",
            Self::WentBack => "the server's store went back: it lacks what it said was durable",
            Self::MustSeal => "the server speaks TLS only: leave --plain away, or pass --seal",
            Self::MustNotSeal => {
                "the server speaks plain text, which is not taken for TLS: pass --plain where nobody \
                 in between can read or change it, or start the server with --seal"
            }
            Self::Certificate => "the server's certificate is not good, or of another name",
        }
    }

    /// Whether another secret may help.
    pub(crate) const fn is_of_secret(self) -> bool {
        matches!(self, Self::WrongSecret | Self::WrongExportSecret)
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
            RefusalReason::MustSeal => Some(Self::MustSeal),
            RefusalReason::MustNotSeal => Some(Self::MustNotSeal),
            RefusalReason::Evicted
            | RefusalReason::OldEpoch
            | RefusalReason::Busy
            | RefusalReason::Stopping => None,
        }
    }
}
