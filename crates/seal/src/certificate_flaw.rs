//! What is wrong with a certificate, as `rustls` finds it and as alerts of TLS say it (RFC 8446, section
//! 6.2).

use crate::Fault;
use rustls::{AlertDescription, CertificateError, Error};

/// What is wrong with a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// Its time is over; in an alert, it may also not have begun.
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// It does not lead to a root that is known.
    OtherIssuer,
    /// It is for other names; in an alert, it may also be damaged.
    OtherName,
    /// It is for the other end of connections.
    OtherUse,
    /// There is none.
    Missing,
    /// It cannot be read or checked.
    Unfit,
}

impl Flaw {
    fn of(error: &CertificateError) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what has no name here is unfit")]
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            // A signature of another key: a CA of the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::OtherIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherName
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::OtherUse
            }
            _ => Self::Unfit,
        }
    }

    /// What an alert says of our certificate, if it is about that.
    pub(crate) fn of_alert(alert: AlertDescription) -> Option<Self> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "most alerts are not about certificates"
        )]
        match alert {
            AlertDescription::CertificateExpired => Some(Self::Expired),
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Some(Self::OtherIssuer),
            AlertDescription::BadCertificate => Some(Self::OtherName),
            AlertDescription::UnsupportedCertificate => Some(Self::OtherUse),
            AlertDescription::CertificateRequired => Some(Self::Missing),
            AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied => Some(Self::Unfit),
            _ => None,
        }
    }
}

/// What an error of a handshake comes to. `certified`: we have a certificate.
pub(crate) fn fault_of(error: &Error, certified: bool) -> Fault {
    #[expect(clippy::wildcard_enum_match_arm, reason = "of many faults these are told apart")]
    match error {
        Error::InvalidCertificate(error) => Fault::Certificate(Flaw::of(error)),
        Error::NoCertificatesPresented => Fault::Certificate(Flaw::Missing),
        // What a server says that has none to somebody who wants one.
        Error::AlertReceived(AlertDescription::HandshakeFailure) if certified => {
            Fault::Certificate(Flaw::Missing)
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            Fault::OwnCertificate(Flaw::Missing)
        }
        Error::AlertReceived(alert) if certified => {
            Flaw::of_alert(*alert).map_or(Fault::Broken, Fault::OwnCertificate)
        }
        _ => Fault::Broken,
    }
}
