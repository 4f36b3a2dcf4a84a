//! Who holds a certificate that was checked, and what it opens: the URIs among its alternative names
//! say so.
//!
//! ```text
//! lanefs:store          what the store's secret opens
//! lanefs:export/NAME    that export, and nothing else
//! ```

use crate::codec::{Bytes, Flaw, Reader, Wire, Writer};
use crate::{EXPORT_DEFAULT, Hello, Purpose};
use alloc::vec::Vec;

/// Opens every export, and administers.
pub const OPENS_STORE: &str = "lanefs:store";
/// Before an export's name: opens that.
pub const OPENS_EXPORT: &str = "lanefs:export/";

/// The holder of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder<'a> {
    /// SHA-256 of the certificate's SubjectPublicKeyInfo: renewed with the same key, it is the same
    /// holder's.
    pub key: [u8; 32],
    /// What it opens, a line each, as [`Self::lines`] makes them.
    pub opens: Bytes<'a>,
}

impl Holder<'_> {
    /// What a certificate with these URIs opens.
    #[must_use]
    pub fn lines<'u>(uris: impl Iterator<Item = &'u str>) -> Vec<u8> {
        let mut lines = Vec::new();
        let ours = |uri: &&str| {
            let known = *uri == OPENS_STORE || uri.starts_with(OPENS_EXPORT);
            known && uri.bytes().all(|byte| byte.is_ascii_graphic())
        };
        for uri in uris.filter(ours) {
            lines.extend_from_slice(uri.as_bytes());
            lines.push(b'\n');
        }
        lines
    }

    /// Whether the certificate opens what the store's secret opens.
    #[must_use]
    pub fn opens_store(&self) -> bool {
        self.opens.0.split(|byte| *byte == b'\n').any(|line| line == OPENS_STORE.as_bytes())
    }

    /// Whether the certificate opens what its holder asks for.
    #[must_use]
    pub fn opens(&self, hello: &Hello<'_>) -> bool {
        let name =
            if hello.export.0.is_empty() { EXPORT_DEFAULT.as_bytes() } else { hello.export.0 };
        let opens_export = self
            .opens
            .0
            .split(|byte| *byte == b'\n')
            .any(|line| line.strip_prefix(OPENS_EXPORT.as_bytes()) == Some(name));
        self.opens_store() || (hello.purpose == Purpose::Use && opens_export)
    }
}

impl<'a> Wire<'a> for Holder<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.key);
        to.write(&self.opens);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Flaw> {
        Ok(Self { key: from.read()?, opens: from.read()? })
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
        }
    }

    #[track_caller]
    fn opens(uris: &[&str], exports: &[&str], administers: bool) {
        let lines = Holder::lines(uris.iter().copied());
        let holder = Holder { key: [0; 32], opens: Bytes(&lines) };
        for export in ["", "default", "a", "ab", "a\nb"] {
            let found = holder.opens(&hello(export, Purpose::Use));
            assert_eq!(found, exports.contains(&export), "{uris:?}, {export:?}");
            let found = holder.opens(&hello(export, Purpose::Administer));
            assert_eq!(found, administers, "{uris:?}, {export:?}");
        }
    }

    #[test]
    fn a_certificate_opens_what_it_names_and_nothing_else() {
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
    fn a_holder_survives_its_bytes() {
        let lines = Holder::lines(["lanefs:store", "lanefs:export/a"].into_iter());
        let holder = Holder { key: [7; 32], opens: Bytes(&lines) };
        assert_eq!(Holder::decode_all(&holder.to_bytes()), Ok(holder));
    }
}
