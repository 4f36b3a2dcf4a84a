//! The reasons for which a client stops.

use interface::{BadCertificate, CertificateFlaw, CloseReason};
use wire::{Credential, RefusalReason, Status};

/// Why the client has stopped, until [`crate::Client::try_again`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Server and client have different secrets.
    WrongSecret,
    /// The server has no such export, or another secret for it: it does not tell the two apart to a
    /// client that has only an export's secret.
    WrongExportSecret,
    /// The server has no such export.
    NoSuchExport,
    /// Another file system is at the address now.
    OtherFileSystem,
    /// The export has another root directory now.
    OtherRoot,
    /// The server lacks changes that it had reported durable.
    RolledBack,
    /// The server speaks TLS only.
    MustSeal,
    /// The server speaks no TLS.
    MustNotSeal,
    /// The server's certificate is not valid.
    ServerCertificate(CertificateFlaw),
    /// The server rejects the client's certificate.
    OwnCertificate(CertificateFlaw),
    /// The client's certificate is valid, but does not grant access to the export.
    NotCertified,
}

impl Refused {
    /// The status that calls are answered with.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::WrongSecret
            | Self::MustSeal
            | Self::MustNotSeal
            | Self::ServerCertificate(_)
            | Self::OwnCertificate(_)
            | Self::NotCertified => Status::Access,
            Self::WrongExportSecret
            | Self::NoSuchExport
            | Self::OtherFileSystem
            | Self::OtherRoot => Status::Stale,
            Self::RolledBack => Status::Io,
        }
    }

    /// A message for the user.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::WrongSecret => "the server has another secret; copy its secret file here again",
            Self::WrongExportSecret => "the server has no such export, or another secret for it",
            Self::NoSuchExport => "the server has no such export",
            Self::OtherFileSystem => "another file system answers at this address now",
            Self::OtherRoot => "the export is another directory now; unmount, and mount again",
            Self::RolledBack => {
                "the server's store went back: it lacks changes that it had reported durable"
            }
            Self::MustSeal => "the server speaks TLS only: leave --plain away, or pass --seal",
            Self::MustNotSeal => {
                "the server speaks plain text, which is not taken for TLS: pass --plain where \
                 nobody in between can read or change it, or start the server with --seal"
            }
            Self::ServerCertificate(flaw) => of_server(flaw),
            Self::OwnCertificate(flaw) => of_ours(flaw),
            Self::NotCertified => {
                "the certificate does not open that: an export needs lanefs:export/NAME or \
                 lanefs:store among its names, `lanefs export` needs lanefs:store"
            }
        }
    }

    /// A reason about certificates, which can be renewed while a mount waits.
    pub(crate) const fn of_certificates(reason: CloseReason) -> Option<Self> {
        match reason {
            CloseReason::Certificate(BadCertificate { ours: true, flaw }) => {
                Some(Self::OwnCertificate(flaw))
            }
            CloseReason::Certificate(BadCertificate { ours: false, flaw }) => {
                Some(Self::ServerCertificate(flaw))
            }
            CloseReason::Ended
            | CloseReason::Failed(_)
            | CloseReason::ProtocolError(_)
            | CloseReason::TooSlow
            | CloseReason::Unfinished => None,
        }
    }

    /// Whether another secret may help.
    pub(crate) const fn is_of_secret(self) -> bool {
        matches!(self, Self::WrongSecret | Self::WrongExportSecret)
    }

    /// The reason for a secret that the server does not know.
    pub(crate) const fn of_secret(credential: Credential) -> Self {
        match credential {
            Credential::Store => Self::WrongSecret,
            Credential::Export => Self::WrongExportSecret,
            Credential::Certificate => Self::NotCertified,
        }
    }

    pub(crate) const fn of(reason: RefusalReason, credential: Credential) -> Option<Self> {
        match reason {
            RefusalReason::WrongSecret => Some(Self::of_secret(credential)),
            RefusalReason::NoSuchExport => Some(Self::NoSuchExport),
            RefusalReason::MustSeal => Some(Self::MustSeal),
            RefusalReason::MustNotSeal => Some(Self::MustNotSeal),
            RefusalReason::NotCertified => Some(Self::NotCertified),
            RefusalReason::Evicted
            | RefusalReason::OldEpoch
            | RefusalReason::Busy
            | RefusalReason::Stopping => None,
        }
    }
}

/// What is wrong with the server's certificate, and the remedy.
const fn of_server(flaw: CertificateFlaw) -> &'static str {
    match flaw {
        CertificateFlaw::Expired => {
            "the server's certificate has expired: make it a new one there (`lanefs cert server \
             --renew`)"
        }
        CertificateFlaw::NotYetValid => {
            "the server's certificate is not valid yet: compare the clocks of both machines"
        }
        CertificateFlaw::OtherIssuer => {
            "the server's certificate is not of the CA that --ca names: pass the server's CA, or \
             find out who answers at this address"
        }
        CertificateFlaw::OtherName => {
            "the server's certificate is not for the name in this address: use a name that it has, \
             or make one with this name (`lanefs cert server`)"
        }
        CertificateFlaw::OtherUse => {
            "the server shows a certificate that is not for servers: make it one by `lanefs cert \
             server`"
        }
        CertificateFlaw::Missing => {
            "the server has no certificate: leave --cert, --key and --ca away, or start it with \
             them"
        }
        CertificateFlaw::Unfit => "the server's certificate cannot be read or checked",
    }
}

/// What is wrong with the client's certificate, and the remedy.
const fn of_ours(flaw: CertificateFlaw) -> &'static str {
    match flaw {
        CertificateFlaw::Expired | CertificateFlaw::NotYetValid => {
            "the server refused our certificate: it has expired (`lanefs cert client --renew` \
             makes a new one), or is not valid yet by the server's clock"
        }
        CertificateFlaw::OtherIssuer => {
            "the server refused our certificate: it is not of the CA that the server takes (its \
             --ca)"
        }
        CertificateFlaw::OtherUse => {
            "the server refused our certificate: it is not for clients; make one by `lanefs cert \
             client`"
        }
        CertificateFlaw::Missing => {
            "the server takes certificates only: pass --cert, --key and --ca"
        }
        CertificateFlaw::OtherName | CertificateFlaw::Unfit => {
            "the server refused our certificate: it cannot read or check it"
        }
    }
}
