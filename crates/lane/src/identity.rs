//! The identity of a client at the server: its uuid, together with the credential that it has
//! proven and the export that it is bound to.
//!
//! A client's uuid is no secret. So the server stores everything (sessions, handles, locks, cached
//! checks, redo tokens, predecessors, evictions) under an id that it derives from all three with a
//! key that only servers have. The same uuid with another credential, or for another export, is another client.
//!
//! ```text
//! party   = HMAC-SHA256(file system's key, "lanefs party 1" | purpose | credential | export)
//!           of a holder of a certificate HMAC-SHA256(that, "certificate" | SHA-256 of its key)
//! client  = first 16 bytes of HMAC-SHA256(party, "client" | uuid)
//! session = first  8 bytes of HMAC-SHA256(party, "session" | client | client lane)
//! ```

use crate::export::Defined;
use crate::token::{FsKey, mac_of};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use wire::{ClientUuid, Hello, LaneId, Rule, Rules, SessionId, Wire as _};

/// The clients with one credential, for one export or purpose.
#[derive(Clone)]
pub(crate) struct Identity(Hmac<Sha256>);

impl Identity {
    /// The identity behind a proven Hello. `export`: what it is bound to.
    pub(crate) fn new(
        (key, rules): (&FsKey, Rules),
        hello: &Hello<'_>,
        export: Option<&Defined>,
    ) -> Self {
        let mut mac = key.mac(b"lanefs party 1");
        if !rules.hold(Rule::Parties) {
            return Self(mac);
        }
        mac.update(&hello.purpose.to_bytes());
        mac.update(&hello.credential.to_bytes());
        if let Some(export) = export {
            mac.update(&export.id.to_le_bytes());
            mac.update(&export.root.to_bytes());
            mac.update(&export.name);
        }
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        Self(mac_of(&bytes, b""))
    }

    /// The same for the holder of a certificate with this key: a party of its own, unlike the
    /// clients that share a secret.
    pub(crate) fn held_by(self, key: Option<&[u8; 32]>) -> Self {
        let Some(key) = key else { return self };
        let bytes: [u8; 32] = self.first(b"certificate", &[key]);
        Self(mac_of(&bytes, b""))
    }

    /// The id of this party's client with this uuid; [`ClientUuid::NONE`] stays itself.
    pub(crate) fn client(&self, reported: ClientUuid) -> ClientUuid {
        if reported == ClientUuid::NONE {
            return reported;
        }
        ClientUuid(self.first(b"client", &[&reported.0]))
    }

    /// The session of a client lane: the same at every shard, lane and boot, so that creating it
    /// needs no log write; and not guessable. Never 0.
    pub(crate) fn session(&self, client: ClientUuid, lane: LaneId) -> SessionId {
        let number =
            u64::from_le_bytes(self.first(b"session", &[&client.0, &lane.0.to_le_bytes()]));
        SessionId(number.max(1))
    }

    /// A host's boot id as this party reports it: other parties' reports are not compared with it.
    pub(crate) fn host_boot(&self, boot_id: [u8; 16]) -> [u8; 16] {
        let (party, boot): ([u8; 8], [u8; 8]) =
            (self.first(b"host", &[]), self.first(b"boot", &[&boot_id]));
        let mut marked = [0; 16];
        marked[..8].copy_from_slice(&party);
        marked[8..].copy_from_slice(&boot);
        marked
    }

    fn first<const COUNT: usize>(&self, label: &[u8], parts: &[&[u8]]) -> [u8; COUNT] {
        let mut mac = self.0.clone();
        mac.update(label);
        parts.iter().for_each(|part| mac.update(part));
        let made = mac.finalize().into_bytes();
        let mut first = [0; COUNT];
        first.copy_from_slice(&made[..COUNT]);
        first
    }
}

/// Whether two results of [`Identity::host_boot`] are of one party and differ in the boot.
pub(crate) fn is_other_boot(known: [u8; 16], reported: [u8; 16]) -> bool {
    known[..8] == reported[..8] && known[8..] != reported[8..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use wire::{Bytes, Credential, InodeNo, Purpose};

    fn hello(credential: Credential, purpose: Purpose) -> Hello<'static> {
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
            export: Bytes(b""),
            credential,
            purpose,
            key_id: wire::KeyId(0),
            host_name: Bytes(b""),
            job: Bytes(b""),
        }
    }

    #[test]
    fn one_uuid_is_a_different_client_for_each_party() {
        let key = FsKey::new([7; 32]);
        let export = |name: &'static [u8], id, root| {
            Defined::of(
                1,
                &wire::Export {
                    id,
                    name: Bytes(name),
                    root: InodeNo(root),
                    path: Bytes(b"/"),
                    read_only: false,
                    squash: wire::Squash::NONE,
                    closed: false,
                },
            )
        };
        let first = export(b"a", 1, 256);
        let exports = [export(b"b", 1, 256), export(b"a", 2, 256), export(b"a", 1, 257)];
        let used = hello(Credential::Store, Purpose::Use);
        let mut parties: Vec<Identity> = exports
            .iter()
            .map(|export| Identity::new((&key, Rules::default()), &used, Some(export)))
            .collect();
        parties.push(Identity::new((&key, Rules::default()), &used, Some(&first)));
        let proven = hello(Credential::Export, Purpose::Use);
        parties.push(Identity::new((&key, Rules::default()), &proven, Some(&first)));
        parties.push(Identity::new(
            (&key, Rules::default()),
            &hello(Credential::Store, Purpose::Administer),
            None,
        ));
        parties.push(Identity::new((&FsKey::new([8; 32]), Rules::default()), &used, Some(&first)));
        let reported = ClientUuid([1; 16]);
        let mut clients: Vec<_> = parties.iter().map(|party| party.client(reported)).collect();
        let mut boots: Vec<_> = parties.iter().map(|party| party.host_boot([3; 16])).collect();
        assert!(boots.iter().all(|boot| boots.iter().all(|other| !is_other_boot(*boot, *other))));
        clients.push(reported);
        clients.sort_unstable();
        clients.dedup();
        boots.sort_unstable();
        boots.dedup();
        assert_eq!((clients.len(), boots.len()), (8, 7));
        // Making an export read-only does not make it another export.
        let mut changed = first.clone();
        changed.read_only = true;
        let [now, before] = [changed, first]
            .map(|export| Identity::new((&key, Rules::default()), &used, Some(&export)));
        assert_eq!(now.client(reported), before.client(reported));
        let client = now.client(reported);
        assert_eq!(now.session(client, LaneId(0)), before.session(client, LaneId(0)));
        assert_ne!(now.session(client, LaneId(0)), now.session(client, LaneId(1)));
        assert_eq!(now.client(ClientUuid::NONE), ClientUuid::NONE);
        assert!(is_other_boot(now.host_boot([3; 16]), now.host_boot([4; 16])));
        assert!(!is_other_boot(now.host_boot([3; 16]), now.host_boot([3; 16])));
    }
}
