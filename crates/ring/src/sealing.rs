//! Which connections are under TLS, and with which configuration.

use std::net::IpAddr;
use std::sync::Arc;

/// Which connections are under TLS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Sealing {
    /// Connections to an address that is not loopback. Both ends see the same address, unless
    /// something in between translates it.
    #[default]
    Auto,
    /// All.
    All,
    /// None.
    Nothing,
}

impl Sealing {
    /// Whether a connection to this server address is under TLS.
    #[must_use]
    pub fn takes(self, server: IpAddr) -> bool {
        match self {
            Self::Auto => !server.to_canonical().is_loopback(),
            Self::All => true,
            Self::Nothing => false,
        }
    }
}

/// Called for the TLS handshake of each accepted connection, so that renewed certificates take
/// effect from then on.
pub type ServerSeals = Arc<dyn Fn() -> seal::Server + Send + Sync>;
/// The same for outgoing connections.
pub type ClientSeals = Arc<dyn Fn() -> seal::Client + Send + Sync>;

/// The options of TLS of a ring.
#[derive(Clone, Copy)]
pub(crate) struct SealOptions<'c> {
    pub(crate) sealing: Sealing,
    /// It accepts connections.
    pub(crate) accepts: bool,
    /// The server that it connects to.
    pub(crate) server: Option<IpAddr>,
    pub(crate) server_seals: Option<&'c ServerSeals>,
    pub(crate) client_seals: Option<&'c ClientSeals>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Sealing;

    #[test]
    fn connections_to_other_hosts_are_under_tls_by_default() {
        for (address, leaves) in [
            ("127.0.0.1", false),
            ("127.8.9.10", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("10.0.0.1", true),
            ("169.254.1.1", true),
            ("::ffff:10.0.0.1", true),
            ("fe80::1", true),
            ("2001:db8::1", true),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(Sealing::Auto.takes(address), leaves, "{address}");
            assert!(Sealing::All.takes(address) && !Sealing::Nothing.takes(address));
        }
    }
}
