//! Which of the store's secrets are valid, and what happens to connections and sessions of a
//! retired one.
//!
//! A secret has a number here, which a connection and its session store. A client's identity does
//! not depend on it, so a client that reconnects with another valid secret resumes its session.
//! When a secret is retired, the connections proven with it, or with an export's secret derived
//! from it, are closed at once. Clients that do not reconnect lose their locks and handles as any
//! client without a connection does ([`crate::Limits::lock_absent_ms`],
//! [`crate::Limits::client_absent_ms`]). They are not evicted: a library client that was idle for
//! that long may reconnect with a valid secret and still has replies to get.

use crate::Lane;
use crate::export::Defined;
use crate::limits::Limit;
use alloc::format;
use alloc::vec::Vec;
use interface::{ConnId, LogLevel, Party, Turn};
use wire::{ClientUuid, Credential, Hello, Secret, Secrets};

/// The number of a secret of the store: counts the secrets of this start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyNo(u64);

impl KeyNo {
    /// No secret was proven in this start.
    pub(crate) const NONE: Self = Self(0);
}

/// The secrets that are valid.
#[derive(Debug)]
pub(crate) struct Keys {
    rows: Vec<(KeyNo, Secret)>,
    no_last: u64,
}

impl Keys {
    pub(crate) fn new(secrets: &Secrets) -> Self {
        let mut keys = Self { rows: Vec::new(), no_last: 0 };
        keys.renew(secrets);
        keys
    }

    /// These are valid from now on. A secret that was valid before keeps its number.
    fn renew(&mut self, secrets: &Secrets) {
        self.rows.retain(|(_, known)| secrets.holds(known));
        for secret in secrets.iter() {
            if !self.rows.iter().any(|(_, known)| known == secret) {
                self.no_last += 1;
                self.rows.push((KeyNo(self.no_last), *secret));
            }
        }
    }

    /// The secret of this number, unless it was retired.
    pub(crate) fn valid(&self, no: KeyNo) -> Option<&Secret> {
        self.rows.iter().find(|(known, _)| *known == no).map(|(_, secret)| secret)
    }

    fn is_retired(&self, no: KeyNo) -> bool {
        no != KeyNo::NONE && self.valid(no).is_none()
    }

    /// The secret that a client has to prove: the valid one that its Hello names, else one that no
    /// client has. It takes the same time for an export that does not exist.
    pub(crate) fn wanted(
        &self,
        hello: &Hello<'_>,
        export: Option<&Defined>,
        decoy: &Secret,
    ) -> (KeyNo, Secret) {
        let unknown = || decoy.of_export(hello.export.0, 0);
        let mut wanted = (KeyNo::NONE, unknown());
        for (no, store) in &self.rows {
            let secret = match (hello.credential, export) {
                (Credential::Store, _) => *store,
                (Credential::Export, Some(export)) => export.secret(store),
                (Credential::Export, None) | (Credential::Certificate, _) => unknown(),
            };
            if secret.key_id(&hello.nonce) == hello.key_id {
                wanted = (*no, secret);
            }
        }
        wanted
    }
}

impl Lane {
    /// These secrets of the store are valid from now on.
    pub(crate) fn on_secrets(&mut self, turn: &mut Turn<'_>, secrets: &Secrets) {
        self.keys.renew(secrets);
        // The proof of a handshake is refused.
        let over =
            self.connections.all_open().filter(|(_, open)| self.keys.is_retired(open.key_no));
        let mut over: Vec<ConnId> = over.map(|(conn, _)| conn).collect();
        over.sort_unstable();
        if !over.is_empty() {
            let count = over.len();
            let line = format!("connections closed because their secret was retired: {count}");
            self.log(turn, LogLevel::Warning, &line);
        }
        over.into_iter().for_each(|conn| self.close(turn, conn));
    }

    /// A client without a connection loses its handles: logged if its secret was retired.
    pub(crate) fn report_if_retired(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        let sessions = self.sessions.of_client(client).iter();
        let mut sessions = sessions.filter_map(|id| self.sessions.get(*id)).peekable();
        let is_known = sessions.peek().is_some();
        if is_known && sessions.all(|session| self.keys.is_retired(session.basis.key_no)) {
            let seconds = self.config.limits.client_absent_ms / 1000;
            let line = format!(
                "a client did not come back with a valid secret in {seconds} s: its session has \
                 ended, \
                 its locks and open files are released"
            );
            self.report_limit(turn, (Limit::Retired, Party::NONE), &line);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_valid_secret_keeps_its_number_and_numbers_are_not_reused() {
        let [a, b, c] = [1, 2, 3].map(|byte| Secret::new([byte; 32]));
        let mut keys = Keys::new(&Secrets::from(a));
        let no_of = |keys: &Keys, secret| {
            keys.rows.iter().find(|(_, known)| *known == secret).map(|(no, _)| *no)
        };
        let first = no_of(&keys, a).unwrap();
        keys.renew(&Secrets { current: b, earlier: Some(a) });
        let second = no_of(&keys, b).unwrap();
        assert_eq!((keys.valid(first), keys.valid(second)), (Some(&a), Some(&b)));
        keys.renew(&Secrets::from(b));
        assert!(keys.is_retired(first) && !keys.is_retired(second));
        keys.renew(&Secrets { current: c, earlier: Some(a) });
        assert!(keys.is_retired(first) && keys.is_retired(second), "a comes again under another");
        assert!(!keys.is_retired(KeyNo::NONE) && keys.valid(KeyNo::NONE).is_none());
    }
}
