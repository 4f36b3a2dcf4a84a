//! Sizes and times on the command line: numbers with units, read and written.
//!
//! Sizes are read as GNU's programs read them (`docs/decisions/units.md`), times by `jiff`.

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Their description in `--help`.
pub(crate) const UNITS: &str = "\
Sizes and times:
  SIZE  bytes, or a whole number with a unit: K, M, G, T (or KiB to TiB) are
        powers of 1024, KB, MB, GB, TB powers of 1000
  TIME  a number with a unit: us, ms, s, min, h, d or w, as 2ms, 1.5s or 5min";

/// Units of sizes, in lower case, and how many bytes they are.
const SIZES: [(&str, u64); 12] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];

/// Units that times are written in, largest first.
const TIMES: [(&str, u128); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

/// A hundred years: in nanoseconds it can be added to any clock reading without overflow.
const TIME_MAX: Duration = Duration::from_hours(24 * 36_525);

/// Renamed options: old and new names.
const RENAMED: [(&str, &str); 9] = [
    ("--recovery-soft-ms", "--recovery-soft TIME"),
    ("--recovery-hard-ms", "--recovery-hard TIME"),
    ("--log-bytes-max", "--log-max SIZE"),
    ("--segment-bytes", "--segment SIZE"),
    ("--collect-ms", "--collect TIME"),
    ("--spin-us", "--spin TIME"),
    ("--seconds", "--time TIME"),
    ("--piece-kib", "--piece SIZE"),
    ("--days", "--valid TIME"),
];

/// The message for an unknown option that was renamed.
pub(crate) fn renamed(option: &str) -> Option<String> {
    let option = option.split('=').next()?;
    let (_, now) = RENAMED.iter().find(|(before, _)| *before == option)?;
    Some(format!("there is no {option}: it is {now}, and takes a unit"))
}

/// Reads a size in bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("'{text}' is no size: a whole number, alone or with a unit as in 64K, 1GiB or 10MB")
    };
    let (number, unit_bytes) = split_size(text);
    let number = digits(number).ok_or_else(wrong)?;
    number.checked_mul(unit_bytes).ok_or_else(|| format!("{text} is more than there can be"))
}

/// The number of a size, and the bytes of its unit.
fn split_size(text: &str) -> (&str, u64) {
    let number_chars = text.trim_end_matches(|end: char| end.is_ascii_alphabetic()).len();
    let (number, unit) = text.split_at(number_chars);
    let unit = unit.to_ascii_lowercase();
    match SIZES.iter().find(|(name, _)| *name == unit) {
        Some((_, bytes)) => (number, *bytes),
        // What is no unit is no digit either.
        None => (text, 1),
    }
}

/// Digits and nothing else: `parse` alone would take a sign.
pub(crate) fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Reads a size within bounds.
pub(crate) fn size_in(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = size(text)?;
        let (least, most) = (size_text(*bounds.start()), size_text(*bounds.end()));
        let wrong = || format!("{text} is not from {least} to {most}");
        bounds.contains(&bytes).then_some(bytes).ok_or_else(wrong)
    }
}

/// A size as [`size`] reads it, with the largest unit of 1024 that it is a multiple of.
pub(crate) fn size_text(bytes: u64) -> String {
    for (name, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{name}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Reads a time.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if digits(text).is_some() {
        return Err(format!(
            "'{text}' has no unit: {text}s, {text}ms or another of us, min, h, d, w"
        ));
    }
    let wrong =
        || format!("'{text}' is no time: a number with a unit, as 2ms, 1.5s, 5min, 1h or 7d");
    let span = SpanParser::new().parse_span(text).map_err(|_| wrong())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("'{text}': years and months have no fixed length; say it in d or w"));
    }
    let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    let time = Duration::try_from(time).map_err(|_| wrong())?;
    let long = || format!("{text} is longer than {}d", TIME_MAX.as_secs() / 86_400);
    (time <= TIME_MAX).then_some(time).ok_or_else(long)
}

/// Reads a time within bounds.
pub(crate) fn time_in(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = time(text)?;
        let (least, most) = (time_text(*bounds.start()), time_text(*bounds.end()));
        let wrong = || format!("{text} is not from {least} to {most}");
        bounds.contains(&found).then_some(found).ok_or_else(wrong)
    }
}

/// A time as [`time`] reads it.
pub(crate) fn time_text(time: Duration) -> String {
    let ns = time.as_nanos();
    let fits = |(_, unit_ns): &&(&str, u128)| ns.is_multiple_of(*unit_ns);
    let (name, unit_ns) = TIMES.iter().find(fits).unwrap_or(&("ns", 1));
    format!("{}{name}", ns / unit_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_have_the_units_of_gnu() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512k", 512 << 10),
            ("512K", 512 << 10),
            ("1G", 1 << 30),
            ("1GiB", 1 << 30),
            ("1gib", 1 << 30),
            ("2T", 2 << 40),
            ("3MiB", 3 << 20),
            ("1KB", 1000),
            ("5MB", 5_000_000),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "K", "1.5M", "-1", "+1", "1 K", "1X", "1Ki", "1B", "0x10", "1KK"] {
            let line = size(wrong).unwrap_err();
            assert!(line.contains("is no size"), "{wrong}: {line}");
        }
        assert!(size("16777216T").unwrap_err().contains("more than there can be"));
    }

    #[test]
    fn times_have_a_unit() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("2ms", 2),
            ("1.5s", 1500),
            ("30s", 30_000),
            ("5min", 300_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(time("20us"), Ok(Duration::from_micros(20)));
        let line = time("30").unwrap_err();
        assert!(line.contains("has no unit: 30s"), "{line}");
        assert!(time("36525d").is_ok());
        assert!(time("36526d").unwrap_err().contains("longer than 36525d"));
        for wrong in ["", "s", "-5s", "5 s ago", "5x", "1y", "2mo", "1e3s", "99999999999999999w"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_out_of_bounds_is_refused_with_the_bounds() {
        let line = size_in(1 << 20..=1 << 30)("4K").unwrap_err();
        assert_eq!(line, "4K is not from 1MiB to 1GiB");
        let line = time_in(Duration::ZERO..=Duration::from_millis(1))("2ms").unwrap_err();
        assert_eq!(line, "2ms is not from 0s to 1ms");
    }

    #[test]
    fn what_is_written_is_read_the_same() {
        for bytes in [0, 1, 1000, 1024, 1536, 3 << 20, 1 << 30, u64::MAX, 5 << 40] {
            assert_eq!(size(&size_text(bytes)), Ok(bytes));
        }
        for ns in [0, 1, 1500, 20_000, 1_000_000, 1_500_000_000, 60_000_000_000] {
            let time_asked = Duration::from_nanos(ns);
            assert_eq!(time(&time_text(time_asked)), Ok(time_asked));
        }
        assert_eq!(
            (size_text(1 << 30), time_text(Duration::from_secs(60))),
            ("1GiB".into(), "60s".into())
        );
    }
}
