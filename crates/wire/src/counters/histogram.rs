//! Histograms of times: four buckets for each power of two, so that a bucket's width is at most a
//! quarter of its values.

use alloc::vec::Vec;

/// A distribution of times in microseconds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Histogram {
    /// By bucket; shorter than [`Histogram::BUCKET_COUNT`] where the rest is empty. The last is not 0.
    counts: Vec<u64>,
    sum_us: u64,
}

impl Histogram {
    /// Buckets at most: the last one has everything from about an hour on.
    pub const BUCKET_COUNT: usize = 124;

    /// Counts a time.
    pub fn record(&mut self, us: u64) {
        self.add(bucket_of(us), 1);
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// Counts times below one microsecond.
    pub fn record_zeros(&mut self, count: u64) {
        if count > 0 {
            self.add(0, count);
        }
    }

    /// Of times that were counted by limits: so many took at most so long.
    #[must_use]
    pub fn of_limits(sum_us: u64, counts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut histogram = Self { counts: Vec::new(), sum_us };
        for (limit_us, count) in counts.filter(|(_, count)| *count > 0) {
            histogram.add(bucket_of(limit_us), count);
        }
        histogram
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
    }

    /// A histogram of encoded buckets; `None` if they are not in order, or empty.
    pub(super) fn of_buckets(
        sum_us: u64,
        buckets: impl Iterator<Item = (u8, u64)>,
    ) -> Option<Self> {
        let mut histogram = Self { counts: Vec::new(), sum_us };
        for (bucket, count) in buckets {
            let bucket = usize::from(bucket);
            if bucket >= Self::BUCKET_COUNT || bucket < histogram.counts.len() || count == 0 {
                return None;
            }
            histogram.add(bucket, count);
        }
        Some(histogram)
    }

    /// The buckets that are not empty, with their counts.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (u8, u64)> {
        let numbered = (0_u8..).zip(self.counts.iter().copied());
        numbered.filter(|(_, count)| *count > 0)
    }

    /// The buckets that are not empty: the longest time of each in microseconds, `None` for the last
    /// bucket of all, and the number of times in it.
    pub fn bounds(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.buckets().map(|(bucket, count)| (last_us_of(usize::from(bucket)), count))
    }

    /// The number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their sum in microseconds.
    #[must_use]
    pub const fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The time that `part` of `whole` do not exceed, in microseconds: the longest of its bucket.
    /// `None` without any time.
    #[must_use]
    pub fn quantile_us(&self, part: u64, whole: u64) -> Option<u64> {
        let count = self.count();
        let wanted = u128::from(count) * u128::from(part);
        let mut seen = 0_u128;
        for (bucket, count) in self.buckets() {
            seen += u128::from(count);
            if seen * u128::from(whole) >= wanted {
                return Some(last_us_of(usize::from(bucket)).unwrap_or(u64::MAX));
            }
        }
        None
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.buckets() {
            self.add(usize::from(bucket), count);
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// What was counted since an earlier state of it; itself if that is no earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = self.counts.clone();
        let mut fits = before.counts.len() <= counts.len() && before.sum_us <= self.sum_us;
        for (now, before) in counts.iter_mut().zip(&before.counts) {
            fits &= *before <= *now;
            *now = now.saturating_sub(*before);
        }
        if !fits {
            return self.clone();
        }
        let used_count = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        counts.truncate(used_count);
        Self { counts, sum_us: self.sum_us - before.sum_us }
    }
}

/// The bucket of a time: the first four have one microsecond each.
fn bucket_of(us: u64) -> usize {
    let Some(octave) = us.checked_ilog2().and_then(|log2| log2.checked_sub(2)) else {
        return usize::try_from(us).unwrap_or(0);
    };
    let quarter = usize::try_from(us >> octave & 3).unwrap_or(0);
    let first = usize::try_from(octave + 1).unwrap_or(0) * 4;
    (first + quarter).min(Histogram::BUCKET_COUNT - 1)
}

/// The longest time of a bucket; `None` for the last one, which has no end.
const fn last_us_of(bucket: usize) -> Option<u64> {
    if bucket + 1 >= Histogram::BUCKET_COUNT {
        return None;
    }
    let next = bucket + 1;
    if next < 4 {
        return Some(bucket as u64);
    }
    let octave = next / 4 - 1;
    Some((((4 + next % 4) as u64) << octave) - 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_whose_bounds_it_is_within() {
        let mut us = 0_u64;
        while us < 1 << 33 {
            let bucket = bucket_of(us);
            assert!(last_us_of(bucket).is_none_or(|last| us <= last), "{us} in {bucket}");
            let before = bucket.checked_sub(1).and_then(last_us_of);
            assert!(before.is_none_or(|before| us > before), "{us} in {bucket}");
            us += 1 + us / 7;
        }
        assert_eq!(bucket_of(u64::MAX), Histogram::BUCKET_COUNT - 1);
    }

    #[test]
    fn a_bucket_is_at_most_a_quarter_wide() {
        for bucket in 4..Histogram::BUCKET_COUNT - 1 {
            let (last, before) = (last_us_of(bucket).unwrap(), last_us_of(bucket - 1).unwrap());
            assert!((last - before) * 4 <= before + 1, "{bucket}: {before}..{last}");
        }
    }

    #[test]
    fn quantiles_are_within_a_quarter() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_us(1, 2), None);
        (1..=1000).for_each(|us| histogram.record(us));
        for part in [1, 50, 99, 100] {
            let found = histogram.quantile_us(part, 100).unwrap();
            assert!(
                (part * 10..=part * 10 + part * 10 / 4 + 1).contains(&found),
                "{part}: {found}"
            );
        }
        assert_eq!((histogram.count(), histogram.sum_us()), (1000, 500_500));
    }

    #[test]
    fn what_was_counted_since_is_the_difference() {
        let mut before = Histogram::default();
        before.record(9);
        before.record_zeros(3);
        let mut now = before.clone();
        now.record(9);
        let mut other = Histogram::default();
        other.record(9);
        assert_eq!(now.since(&before), other);
        assert_eq!(now.since(&now), Histogram::default());
        // Of a server that was started again.
        assert_eq!(before.since(&now), before);
        other.merge(&before);
        assert_eq!(other, now);
    }
}
