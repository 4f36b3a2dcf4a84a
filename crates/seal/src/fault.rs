//! What can be wrong: with a connection, a certificate, or a configuration.

use rustls::Error;

/// Why a connection cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The received bytes are not TLS; [`Seal::unopened`] returns them.
    Foreign,
    /// The peer's certificate is not good.
    Certificate(Flaw),
    /// The peer rejected our certificate.
    OwnCertificate(Flaw),
    /// A record or message that violates the protocol.
    Broken,
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// It has expired; an alert may also mean that it is not yet valid.
    Expired,
    /// It is not yet valid.
    NotYetValid,
    /// It does not lead to a trusted root.
    OtherIssuer,
    /// It is for other names; an alert may also mean that it is damaged.
    OtherName,
    /// Its key usage is for the other end of a connection.
    OtherUse,
    /// The peer sent none.
    Missing,
    /// It cannot be parsed or verified.
    Unfit,
}

/// Why a TLS configuration could not be made, as text.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{0}")]
pub struct SetupError(String);

impl SetupError {
    pub(crate) const fn new(line: String) -> Self {
        Self(line)
    }
}

impl From<Error> for SetupError {
    fn from(error: Error) -> Self {
        Self(format!("TLS cannot be set up: {error}"))
    }
}
