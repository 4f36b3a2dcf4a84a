//! The pseudo-random numbers that decide everything in a run.

/// The generator of a run: `fastrand`'s, with the distributions that a simulation needs.
#[derive(Clone, Debug)]
pub struct Prng(fastrand::Rng);

impl Prng {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// 0 .. `count`; 0 for a count of 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.number().is_multiple_of(count)
    }

    pub fn per_mille(&mut self, chance: u64) -> bool {
        self.number() % 1000 < chance
    }

    /// One of these; `None` where there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let index = self.below(from.len());
        from.get(index).copied()
    }

    /// A duration around `mean_ns`: mostly less than twice as long, rarely much longer.
    pub fn span_ns(&mut self, mean_ns: u64) -> u64 {
        let stretch = match self.number() % 16 {
            0 => 8,
            1 | 2 => 3,
            _ => 1,
        };
        1 + self.number() % (2 * mean_ns * stretch + 1)
    }

    /// Random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }
}
