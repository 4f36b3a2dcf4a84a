//! Who holds how much of something that has a limit, and who holds the most.
//!
//! Those who share a credential are one [`Party`]: they could stand in for each other, so they share
//! one part of whatever there is. As long as there is room, anybody gets it; when there is none, the
//! party that holds the most gives way to one that holds less.

use alloc::collections::BTreeMap;

/// Those who have proven the same credential for the same export; of certificates each is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Party(pub u64);

impl Party {
    /// Nobody who has proven anything; at a client the server.
    pub const NONE: Self = Self(0);
    /// Holders of the store's secret.
    pub const STORE: Self = Self(1);
    /// Holders of the store's secret who administer.
    pub const ADMINISTERS: Self = Self(2);

    /// The holder of a certificate with this key.
    #[must_use]
    pub const fn of_certificate(key: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *key;
        // Half of all numbers is for certificates.
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
    /// Nobody holds anything.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: BTreeMap::new(), total: 0 }
    }

    /// A party holds more.
    pub fn add(&mut self, party: Party, count: u64) {
        if count > 0 {
            *self.held.entry(party).or_default() += count;
            self.total += count;
        }
    }

    /// A party holds less.
    pub fn sub(&mut self, party: Party, count: u64) {
        if count == 0 {
            return;
        }
        let Some(held) = self.held.get_mut(&party) else {
            panic!("{party:?} gives back what it does not hold")
        };
        assert!(*held >= count, "{party:?} gives back more than it holds");
        *held -= count;
        if *held == 0 {
            self.held.remove(&party);
        }
        self.total -= count;
    }

    /// What all hold together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// What a party holds.
    #[must_use]
    pub fn of(&self, party: Party) -> u64 {
        self.held.get(&party).copied().unwrap_or(0)
    }

    /// Who holds the most.
    #[must_use]
    pub fn greediest(&self) -> Option<Party> {
        self.held.iter().max_by_key(|(party, held)| (**held, **party)).map(|(party, _)| *party)
    }

    /// Who gives way to a party that wants `count` more: the one that holds the most, if it would still
    /// hold as much as that party does then. So nothing goes back and forth between two.
    #[must_use]
    pub fn gives_way(&self, party: Party, count: u64) -> Option<Party> {
        let greediest = self.greediest()?;
        let wanted = self.of(party).saturating_add(count);
        let left = self.of(greediest).saturating_sub(count);
        (greediest != party && left >= wanted).then_some(greediest)
    }

    /// Whether a party may hold `count` more of what there is `total_max` of: all but a quarter, which
    /// is kept for others.
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
    fn what_is_held_is_counted_by_party() {
        let mut shares = Shares::new();
        assert_eq!((shares.total(), shares.greediest()), (0, None));
        shares.add(A, 3);
        shares.add(B, 5);
        shares.add(A, 1);
        assert_eq!((shares.of(A), shares.of(B), shares.of(C), shares.total()), (4, 5, 0, 9));
        assert_eq!(shares.greediest(), Some(B));
        shares.sub(B, 5);
        assert_eq!((shares.of(B), shares.greediest(), shares.held.len()), (0, Some(A), 1));
        shares.add(C, 0);
        assert_eq!(shares.held.len(), 1, "who holds nothing takes no memory");
    }

    #[test]
    fn the_greediest_gives_way_to_who_holds_less_and_to_nobody_else() {
        let mut shares = Shares::new();
        shares.add(A, 10);
        shares.add(B, 3);
        assert_eq!(shares.gives_way(B, 1), Some(A));
        assert_eq!(shares.gives_way(C, 5), Some(A));
        assert_eq!(shares.gives_way(C, 6), None, "it would hold more than the greediest then");
        assert_eq!(shares.gives_way(A, 1), None, "nobody holds more");
    }

    #[test]
    fn nothing_goes_back_and_forth_between_equals() {
        let mut shares = Shares::new();
        shares.add(A, 8);
        shares.add(B, 7);
        assert_eq!((shares.gives_way(A, 1), shares.gives_way(B, 1)), (None, None));
    }

    #[test]
    fn a_quarter_is_kept_for_others() {
        let mut shares = Shares::new();
        shares.add(A, 74);
        assert!(shares.fits(A, 1, 100));
        assert!(!shares.fits(A, 2, 100));
        assert!(shares.fits(B, 75, 100));
    }

    #[test]
    #[should_panic(expected = "gives back more than it holds")]
    fn more_than_is_held_is_never_given_back() {
        let mut shares = Shares::new();
        shares.add(A, 1);
        shares.sub(A, 2);
    }

    #[test]
    fn parties_do_not_meet() {
        let certified = [[0; 32], [0x7f; 32]].map(|key| Party::of_certificate(&key));
        let parties = [Party::NONE, A, Party::ADMINISTERS, Party::of_export(0), B, C];
        let parties = [&parties[..], &certified].concat();
        for (index, party) in parties.iter().enumerate() {
            assert!(!parties[index + 1..].contains(party), "{party:?}");
        }
    }
}
