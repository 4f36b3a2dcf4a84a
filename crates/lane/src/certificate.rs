//! Log lines about certificates that were refused during the TLS handshake.

use crate::Lane;
use crate::limits::Limit;
use alloc::format;
use alloc::string::String;
use interface::{BadCertificate, CertificateFlaw, Party, Span, Turn};

impl Lane {
    /// A TLS handshake failed because one end refused the other's certificate.
    pub(crate) fn on_uncertified(
        &mut self,
        turn: &mut Turn<'_>,
        bad: BadCertificate,
        client: Span,
    ) {
        let client = String::from_utf8_lossy(turn.arena.get(client)).into_owned();
        let line = match bad {
            BadCertificate { ours: true, flaw: CertificateFlaw::Missing } => format!(
                "a client ({client}) was refused: it wants a certificate of this server, which has \
                 none (--cert, --key and --ca)"
            ),
            BadCertificate { ours: true, flaw } => {
                format!("a client ({client}) refused this server's certificate: {}", of_ours(flaw))
            }
            BadCertificate { ours: false, flaw } => {
                format!("a client ({client}) was refused: {}", of_client(flaw))
            }
        };
        self.report_limit(turn, (Limit::Certificate(bad), Party::NONE), &line);
    }
}

/// Why the server refused a client's certificate.
const fn of_client(flaw: CertificateFlaw) -> &'static str {
    match flaw {
        CertificateFlaw::Expired => {
            "its certificate has expired; `lanefs cert client --renew` makes a new one"
        }
        CertificateFlaw::NotYetValid => {
            "its certificate is not valid yet; compare the clocks of both machines"
        }
        CertificateFlaw::OtherIssuer => "its certificate is not of the CA that --ca names",
        CertificateFlaw::OtherUse => "its certificate is not for clients",
        CertificateFlaw::Missing => {
            "it shows no certificate, and this server takes certificates only"
        }
        CertificateFlaw::OtherName | CertificateFlaw::Unfit => {
            "its certificate cannot be read or checked"
        }
    }
}

/// Why a client refused this server's certificate.
const fn of_ours(flaw: CertificateFlaw) -> &'static str {
    match flaw {
        CertificateFlaw::Expired | CertificateFlaw::NotYetValid => {
            "it has expired (`lanefs cert server --renew` makes a new one), or is not valid yet by \
             the client's clock"
        }
        CertificateFlaw::OtherIssuer => "it is not of the CA that the client takes",
        CertificateFlaw::OtherName => {
            "it is not for the name that the client connected to, or cannot be read"
        }
        CertificateFlaw::OtherUse => "it is not for servers",
        CertificateFlaw::Missing | CertificateFlaw::Unfit => "it cannot be read or checked",
    }
}
