//! Fair shares of a limited resource: how much each party holds, and which holds the most.
//!
//! Clients that share a credential are one [`Party`]: they could impersonate each other, so they
//! share one part of the resource. While the resource lasts, every request is granted; when it is
//! exhausted, the party that holds the most yields to one that holds less.

use alloc::collections::BTreeMap;

/// The clients that proved the same credential for the same export; each client certificate is a
/// party.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Party(pub u64);

impl Party {
    /// Unauthenticated clients; at a client, the server.
    pub const NONE: Self = Self(0);
    /// Holders of the store's secret.
    pub const STORE: Self = Self(1);
    /// Holders of the store's secret in administrative sessions.
    pub const ADMINISTERS: Self = Self(2);

    /// The holder of a certificate with this key.
    #[must_use]
    pub const fn of_certificate(key: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *key;
        // Half of the number space is for certificates.
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1 << 63)
    }

    /// Holders of an export's own secret.
    #[must_use]
    pub const fn of_export(export_no: u64) -> Self {
        Self(export_no.saturating_add(16))
    }
}

/// How much each party holds of one resource. Parties that hold nothing take no memory.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    held: BTreeMap<Party, u64>,
    total: u64,
}

impl Shares {
    /// No party holds anything.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: BTreeMap::new(), total: 0 }
    }

    /// A party takes `count` more.
    pub fn add(&mut self, party: Party, count: u64) {
        if count > 0 {
            *self.held.entry(party).or_default() += count;
            self.total += count;
        }
    }

    /// A party returns `count`.
    pub fn sub(&mut self, party: Party, count: u64) {
        if count == 0 {
            return;
        }
        let Some(held) = self.held.get_mut(&party) else {
            panic!("{party:?} returns what it does not hold")
        };
        assert!(*held >= count, "{party:?} returns more than it holds");
        *held -= count;
        if *held == 0 {
            self.held.remove(&party);
        }
        self.total -= count;
    }

    /// What all parties hold together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// What a party holds.
    #[must_use]
    pub fn of(&self, party: Party) -> u64 {
        self.held.get(&party).copied().unwrap_or(0)
    }

    /// The party that holds the most.
    #[must_use]
    pub fn largest_holder(&self) -> Option<Party> {
        self.held.iter().max_by_key(|(party, held)| (**held, **party)).map(|(party, _)| *party)
    }

    /// The party that yields to one that wants `count` more: the largest holder, if it would still
    /// hold as much afterwards as the other. So the resource does not oscillate between two
    /// parties.
    #[must_use]
    pub fn yielding_party(&self, party: Party, count: u64) -> Option<Party> {
        let largest_holder = self.largest_holder()?;
        let wanted = self.of(party).saturating_add(count);
        let left = self.of(largest_holder).saturating_sub(count);
        (largest_holder != party && left >= wanted).then_some(largest_holder)
    }

    /// Whether a party may hold `count` more of `total_max`: all but a quarter, which is reserved
    /// for others.
    #[must_use]
    pub fn fits(&self, party: Party, count: u64, total_max: u64) -> bool {
        self.of(party).saturating_add(count) <= total_max - total_max / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Party = Party::STORE;
    const B: Party = Party::of_export(1);
    const C: Party = Party::of_export(2);

    #[test]
    fn holdings_are_counted_by_party() {
        let mut shares = Shares::new();
        assert_eq!((shares.total(), shares.largest_holder()), (0, None));
        shares.add(A, 3);
        shares.add(B, 5);
        shares.add(A, 1);
        assert_eq!((shares.of(A), shares.of(B), shares.of(C), shares.total()), (4, 5, 0, 9));
        assert_eq!(shares.largest_holder(), Some(B));
        shares.sub(B, 5);
        assert_eq!((shares.of(B), shares.largest_holder(), shares.held.len()), (0, Some(A), 1));
        shares.add(C, 0);
        assert_eq!(shares.held.len(), 1, "a party that holds nothing takes no memory");
    }

    #[test]
    fn the_largest_holder_yields_to_smaller_ones_only() {
        let mut shares = Shares::new();
        shares.add(A, 10);
        shares.add(B, 3);
        assert_eq!(shares.yielding_party(B, 1), Some(A));
        assert_eq!(shares.yielding_party(C, 5), Some(A));
        assert_eq!(
            shares.yielding_party(C, 6),
            None,
            "it would hold more than the largest holder then"
        );
        assert_eq!(shares.yielding_party(A, 1), None, "no party holds more");
    }

    #[test]
    fn equal_holders_do_not_yield_to_each_other() {
        let mut shares = Shares::new();
        shares.add(A, 8);
        shares.add(B, 7);
        assert_eq!((shares.yielding_party(A, 1), shares.yielding_party(B, 1)), (None, None));
    }

    #[test]
    fn a_quarter_is_reserved_for_others() {
        let mut shares = Shares::new();
        shares.add(A, 74);
        assert!(shares.fits(A, 1, 100));
        assert!(!shares.fits(A, 2, 100));
        assert!(shares.fits(B, 75, 100));
    }

    #[test]
    #[should_panic(expected = "returns more than it holds")]
    fn returning_more_than_is_held_panics() {
        let mut shares = Shares::new();
        shares.add(A, 1);
        shares.sub(A, 2);
    }

    #[test]
    fn party_numbers_of_different_kinds_differ() {
        let certified = [[0; 32], [0x7f; 32]].map(|key| Party::of_certificate(&key));
        let parties = [Party::NONE, A, Party::ADMINISTERS, Party::of_export(0), B, C];
        let parties = [&parties[..], &certified].concat();
        for (index, party) in parties.iter().enumerate() {
            assert!(!parties[index + 1..].contains(party), "{party:?}");
        }
    }
}
