//! The identity of a verified certificate and what it grants, by the URIs among its alternative
//! names.
//!
//! ```text
//! lanefs:store          what the store's secret opens
//! lanefs:export/NAME    that export, and nothing else
//! ```

use crate::codec::{Bytes, DecodeError, Reader, Wire, Writer};
use crate::{EXPORT_DEFAULT, Hello, Purpose};
use alloc::vec::Vec;

/// Grants every export, and administration.
pub const GRANTS_STORE: &str = "lanefs:store";
/// Prefix of an export's name: grants that export.
pub const GRANTS_EXPORT: &str = "lanefs:export/";

/// The identity of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateIdentity<'a> {
    /// SHA-256 of the certificate's SubjectPublicKeyInfo. A certificate renewed with the same key
    /// keeps its identity.
    pub key: [u8; 32],
    /// The grants, one a line, as [`Self::grant_lines`] makes them.
    pub grants: Bytes<'a>,
}

impl CertificateIdentity<'_> {
    /// The grants of a certificate with these URIs.
    #[must_use]
    pub fn grant_lines<'u>(uris: impl Iterator<Item = &'u str>) -> Vec<u8> {
        let mut lines = Vec::new();
        let ours = |uri: &&str| {
            let known = *uri == GRANTS_STORE || uri.starts_with(GRANTS_EXPORT);
            known && uri.bytes().all(|byte| byte.is_ascii_graphic())
        };
        for uri in uris.filter(ours) {
            lines.extend_from_slice(uri.as_bytes());
            lines.push(b'\n');
        }
        lines
    }

    /// Whether the certificate grants what the store's secret grants.
    #[must_use]
    pub fn grants_store(&self) -> bool {
        self.grants.0.split(|byte| *byte == b'\n').any(|line| line == GRANTS_STORE.as_bytes())
    }

    /// Whether the certificate grants what a Hello asks for.
    #[must_use]
    pub fn grants(&self, hello: &Hello<'_>) -> bool {
        let name =
            if hello.export.0.is_empty() { EXPORT_DEFAULT.as_bytes() } else { hello.export.0 };
        let opens_export = self
            .grants
            .0
            .split(|byte| *byte == b'\n')
            .any(|line| line.strip_prefix(GRANTS_EXPORT.as_bytes()) == Some(name));
        self.grants_store() || (hello.purpose == Purpose::Use && opens_export)
    }
}

impl<'a> Wire<'a> for CertificateIdentity<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.key);
        to.write(&self.grants);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { key: from.read()?, grants: from.read()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientUuid, Credential, KeyId, LaneId};

    fn hello(export: &str, purpose: Purpose) -> Hello<'_> {
        Hello {
            server_lane: LaneId(0),
            client: ClientUuid([1; 16]),
            client_lane: LaneId(0),
            conn_epoch: 1,
            nonce: [0; 32],
            host_id: [0; 16],
            host_boot_id: [0; 16],
            boot_id_last: 0,
            predecessor: ClientUuid::NONE,
            export: Bytes(export.as_bytes()),
            credential: Credential::Certificate,
            purpose,
            key_id: KeyId(0),
            host_name: Bytes(b""),
            job: Bytes(b""),
        }
    }

    #[track_caller]
    fn opens(uris: &[&str], exports: &[&str], administers: bool) {
        let lines = CertificateIdentity::grant_lines(uris.iter().copied());
        let identity = CertificateIdentity { key: [0; 32], grants: Bytes(&lines) };
        for export in ["", "default", "a", "ab", "a\nb"] {
            let found = identity.grants(&hello(export, Purpose::Use));
            assert_eq!(found, exports.contains(&export), "{uris:?}, {export:?}");
            let found = identity.grants(&hello(export, Purpose::Administer));
            assert_eq!(found, administers, "{uris:?}, {export:?}");
        }
    }

    #[test]
    fn a_certificate_grants_what_it_names_and_nothing_else() {
        opens(&["lanefs:store"], &["", "default", "a", "ab", "a\nb"], true);
        opens(&["lanefs:export/a"], &["a"], false);
        opens(
            &["https://a/", "lanefs:export/default", "lanefs:export/ab"],
            &["", "default", "ab"],
            false,
        );
        opens(&[], &[], false);
        for nothing in [
            "lanefs:export/",
            "lanefs:export",
            "lanefs:Store",
            "LANEFS:store",
            "lanefs:store/",
            "lanefs:export/a/",
            "lanefs:export/a ",
            "lanefs:export/x\nlanefs:store",
            "lanefs:export/a\nb",
            "https://lanefs:store",
        ] {
            opens(&[nothing], &[], false);
        }
    }

    #[test]
    fn an_encoded_identity_decodes() {
        let lines =
            CertificateIdentity::grant_lines(["lanefs:store", "lanefs:export/a"].into_iter());
        let identity = CertificateIdentity { key: [7; 32], grants: Bytes(&lines) };
        assert_eq!(CertificateIdentity::decode_all(&identity.to_bytes()), Ok(identity));
    }
}
