//! Keys that several clients change in turn get no leases for a while.
//!
//! ```text
//! recalled within 50 ms of its grant, twice within a second ─▶ hot for 0.5 s
//! again soon after that ─▶ hot for twice as long, up to 60 s
//! ```
//! A key that is left out because there are too many is granted as before: it costs recalls.

use hashbrown::HashMap;
use interface::{Mono, Seed};
use meta::LeaseKey;

/// A recall this soon after the grant is a strike.
const SOON_MS: u64 = 50;
const FIRST_MS: u64 = 500;
const LAST_MS: u64 = 60_000;
/// A strike is remembered for this long, and behind a hot period.
const REMEMBERED_MS: u64 = 1000;
const KEY_COUNT_MAX: usize = 16_384;

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
struct Strikes {
    /// The last hot period; 0 before the first.
    hot_ms: u64,
    hot_until: Mono,
    forgotten_at: Mono,
}

/// The keys with strikes.
#[derive(Debug)]
pub(super) struct Heat {
    keys: HashMap<LeaseKey, Strikes, Seed>,
    /// The table of full size is cleaned only now and then.
    cleaned_at: Mono,
}

impl Heat {
    pub(super) const fn new(seed: Seed) -> Self {
        Self { keys: HashMap::with_hasher(seed), cleaned_at: Mono(0) }
    }

    /// Whether a key gets no lease now.
    pub(super) fn is_hot(&self, key: LeaseKey, now: Mono) -> bool {
        !self.keys.is_empty() && self.keys.get(&key).is_some_and(|known| now < known.hot_until)
    }

    /// A lease is recalled that was granted at this time.
    pub(super) fn recalled(&mut self, key: LeaseKey, granted_at: Mono, now: Mono) {
        if now >= granted_at.after_ms(SOON_MS) {
            return;
        }
        let known = self.keys.get(&key).copied().filter(|known| now < known.forgotten_at);
        let Some(known) = known else {
            let forgotten_at = now.after_ms(REMEMBERED_MS);
            if self.has_space(key, now) {
                self.keys.insert(key, Strikes { hot_ms: 0, hot_until: now, forgotten_at });
            }
            return;
        };
        if now < known.hot_until {
            return; // It was granted before.
        }
        let hot_ms = if known.hot_ms == 0 { FIRST_MS } else { (known.hot_ms * 2).min(LAST_MS) };
        let hot_until = now.after_ms(hot_ms);
        let forgotten_at = hot_until.after_ms(hot_ms.max(REMEMBERED_MS));
        self.keys.insert(key, Strikes { hot_ms, hot_until, forgotten_at });
    }

    fn has_space(&mut self, key: LeaseKey, now: Mono) -> bool {
        if self.keys.len() < KEY_COUNT_MAX || self.keys.contains_key(&key) {
            return true;
        }
        if now >= self.cleaned_at.after_ms(REMEMBERED_MS) {
            self.cleaned_at = now;
            self.keys.retain(|_, known| now < known.forgotten_at);
        }
        self.keys.len() < KEY_COUNT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::InodeNo;

    const KEY: LeaseKey = LeaseKey::Attributes(InodeNo(7));

    fn at_ms(ms: u64) -> Mono {
        Mono(1_000_000_000).after_ms(ms)
    }

    #[test]
    fn the_second_early_recall_makes_a_key_hot_and_each_further_one_for_twice_as_long() {
        let mut heat = Heat::new(Seed(1));
        heat.recalled(KEY, at_ms(0), at_ms(49));
        assert!(!heat.is_hot(KEY, at_ms(49)));
        heat.recalled(KEY, at_ms(60), at_ms(100));
        let (mut now_ms, mut hot_ms) = (100, 500);
        loop {
            assert!(heat.is_hot(KEY, at_ms(now_ms + hot_ms - 1)));
            assert!(!heat.is_hot(KEY, at_ms(now_ms + hot_ms)));
            if hot_ms == 60_000 {
                break;
            }
            now_ms += hot_ms + 10;
            heat.recalled(KEY, at_ms(now_ms - 10), at_ms(now_ms));
            hot_ms = (hot_ms * 2).min(60_000);
        }
    }

    #[test]
    fn late_recalls_and_lone_ones_leave_a_key_cool() {
        let mut heat = Heat::new(Seed(1));
        for second in 0..20 {
            let now = at_ms(second * 1500);
            heat.recalled(KEY, now, now.after_ms(10));
            assert!(!heat.is_hot(KEY, now.after_ms(10)), "more than a second apart");
            heat.recalled(KEY, now, now.after_ms(50));
            assert!(!heat.is_hot(KEY, now.after_ms(50)), "held for long enough");
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut heat = Heat::new(Seed(1));
        for number in 0..100_000 {
            let now = at_ms(number / 100);
            heat.recalled(LeaseKey::Contents(InodeNo(number)), now, now);
            assert!(heat.keys.len() <= KEY_COUNT_MAX);
        }
    }
}
