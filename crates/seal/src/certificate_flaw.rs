//! What is wrong with a certificate, as `rustls` reports it and as TLS alerts express it (RFC 8446,
//! section 6.2).

use crate::fault::{Fault, Flaw};
use rustls::{AlertDescription, CertificateError, Error};

impl Flaw {
    fn of(error: &CertificateError) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other errors are unfit")]
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            // A signature by another key: another CA of the same name.
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

    /// What an alert says about our certificate, if it is about that.
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

/// Maps a handshake error to our fault. `certified`: this end has a certificate.
pub(crate) fn fault_of(error: &Error, certified: bool) -> Fault {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these faults are distinguished")]
    match error {
        Error::InvalidCertificate(error) => Fault::Certificate(Flaw::of(error)),
        Error::NoCertificatesPresented => Fault::Certificate(Flaw::Missing),
        // A server without a certificate answers so a client that requires one.
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
