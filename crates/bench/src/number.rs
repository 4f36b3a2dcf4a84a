//! Counts as numbers to calculate with.

/// A count as a number to calculate with; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "a statistic, not an identity")]
pub(crate) const fn number(count: u64) -> f64 {
    count as f64
}
