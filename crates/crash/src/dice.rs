//! Dice from a seed: what a run rolls, it rolls again under the same seed.

/// A small generator (xorshift64*, Vigna 2016); good enough for schedules.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    /// Dice of a seed; every seed gives others, also 0.
    pub(crate) fn new(seed: u64) -> Self {
        // splitmix64 (Steele, 2014) spreads neighbouring seeds; only 0 would stay as it is.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { state: (state ^ (state >> 31)).max(1) }
    }

    /// Dice for a part of the run, so that its rolls do not depend on how often others roll.
    pub(crate) fn part(&self, part_no: u64) -> Self {
        Self::new(self.state ^ part_no.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Any number.
    pub(crate) fn roll(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.roll() >> 11) % end
    }

    /// An index into something that long.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// Whether something of so many percent happens.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_no_other() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            (0..20).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        assert_ne!(rolls(0), rolls(1));
    }
}
