//! Alternating repetitions, and their medians and spread.
//!
//! The contenders run in turn, so that a machine that changes its speed changes it for all.
//! Invariant: every contender has as many samples as there were rounds.

use anyhow::Result;

/// Runs `measure` for contenders `0..contender_count`, `round_count` times; the first one changes
/// with every round. Returns samples by contender, then by round.
///
/// # Errors The first of `measure`.
pub(crate) fn alternate<S>(
    contender_count: usize,
    round_count: usize,
    mut measure: impl FnMut(usize, usize) -> Result<S>,
) -> Result<Vec<Vec<S>>> {
    let mut samples: Vec<Vec<S>> = (0..contender_count).map(|_| Vec::new()).collect();
    for round_no in 0..round_count {
        for turn_no in 0..contender_count {
            let contender = (round_no + turn_no) % contender_count;
            let sample = measure(contender, round_no)?;
            if let Some(samples) = samples.get_mut(contender) {
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

/// The median; `None` of nothing.
#[must_use]
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let low = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let high = sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(*low, *high))
}

/// (greatest − least) / median; `None` of nothing or around 0.
#[must_use]
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|middle| *middle > 0.0)?;
    let greatest = values.iter().copied().fold(f64::MIN, f64::max);
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    Some((greatest - least) / middle)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_contender_runs_in_every_round_and_the_first_one_changes() {
        let mut order = Vec::new();
        let samples = alternate(3, 3, |contender, round_no| {
            order.push(contender);
            Ok((contender, round_no))
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(samples[1], [(1, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn the_median_does_not_mind_an_outlier_and_the_spread_shows_it() {
        assert_eq!(median(&[3.0, 1.0, 100.0]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(median(&[]), None);
        assert_eq!(spread(&[1.0, 2.0, 4.0]), Some(1.5));
        assert_eq!(spread(&[0.0, 0.0]), None);
    }
}
