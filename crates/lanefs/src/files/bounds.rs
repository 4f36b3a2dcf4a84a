//! Bounds as `find` reads them on a command line: `+10M`, `-7d`, `2026-01-31`.

use crate::args::units;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use library::Timestamp;

/// A bound of sizes in bytes, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub(crate) bytes_min: Option<u64>,
    pub(crate) bytes_max: Option<u64>,
}

impl Size {
    /// Reads a size behind `+`, `-` or nothing. Nothing is rounded.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no bound of sizes: [+-]SIZE, as +10M, -4k or 0");
        let (sign, number) = signed(text);
        let bytes = units::size(number).map_err(|_| wrong())?;
        match sign {
            Some('+') => {
                let min = bytes.checked_add(1).ok_or_else(wrong)?;
                Ok(Self { bytes_min: Some(min), bytes_max: None })
            }
            Some(_) => {
                let none = || "nothing is smaller than 0 bytes".to_owned();
                let max = bytes.checked_sub(1).ok_or_else(none)?;
                Ok(Self { bytes_min: None, bytes_max: Some(max) })
            }
            None => Ok(Self { bytes_min: Some(bytes), bytes_max: Some(bytes) }),
        }
    }

    /// Reads `[+-]N[cwbkMG]` as find(1) does: files have as many units as they begin, and a unit is 512
    /// bytes where none is named.
    pub(crate) fn of_find(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no size of find(1): [+-]N with c, w, b, k, M or G");
        let (sign, number) = signed(text);
        let units =
            [("c", 1), ("w", 2), ("b", 512), ("k", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];
        let unit =
            units.iter().find_map(|(name, bytes)| Some((number.strip_suffix(name)?, *bytes)));
        let (number, unit_bytes) = unit.unwrap_or((number, 512));
        let count = units::digits(number).ok_or_else(wrong)?;
        let bytes = |count: u64| count.checked_mul(unit_bytes).ok_or_else(wrong);
        let (above, upto) = match (sign, count.checked_sub(1)) {
            (Some('+'), _) => (Some(bytes(count)?), None),
            (Some(_), Some(before)) => (None, Some(bytes(before)?)),
            (None, Some(before)) => (Some(bytes(before)?), Some(bytes(count)?)),
            (None, None) => (None, Some(0)),
            // Nothing has fewer than none.
            (Some(_), None) => (Some(u64::MAX - 1), Some(0)),
        };
        let bytes_min = above.map(|bytes| bytes.saturating_add(1));
        Ok(Self { bytes_min, bytes_max: upto })
    }
}

/// How long ago contents were changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Age {
    /// Longer than so many seconds.
    pub(crate) older_secs: Option<i64>,
    /// Less long.
    pub(crate) younger_secs: Option<i64>,
}

impl Age {
    /// In seconds.
    pub(crate) const DAY: i64 = 86_400;
    /// In seconds.
    pub(crate) const MINUTE: i64 = 60;

    /// Reads a time, or a number of days, behind `+` or `-`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no age: +TIME or -TIME, days without a unit, as +30d or -12h");
        let (sign, number) = signed(text);
        let secs = match units::digits(number) {
            Some(days) => i64::try_from(days).ok().and_then(|days| days.checked_mul(Self::DAY)),
            None => units::time(number).ok().and_then(|time| i64::try_from(time.as_secs()).ok()),
        };
        let secs = secs.ok_or_else(wrong)?;
        match sign {
            Some('+') => Ok(Self { older_secs: Some(secs), younger_secs: None }),
            Some(_) => Ok(Self { older_secs: None, younger_secs: Some(secs) }),
            None => Err(wrong()),
        }
    }

    /// Reads `[+-]N` units as find(1) does: of days the part that is not whole is not counted, of minutes it
    /// counts as one.
    pub(crate) fn of_find(text: &str, unit_secs: i64) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no number of find(1): N, +N or -N");
        let (sign, number) = signed(text);
        let count = units::digits(number).and_then(|count| i64::try_from(count).ok());
        let count = count.ok_or_else(wrong)?;
        let secs = |count: i64| count.checked_mul(unit_secs).ok_or_else(wrong);
        let (from, upto) = if unit_secs == Self::DAY {
            (secs(count)?, secs(count.saturating_add(1))?)
        } else {
            (secs(count.saturating_sub(1))?, secs(count)?)
        };
        match sign {
            Some('+') => Ok(Self { older_secs: Some(upto), younger_secs: None }),
            Some(_) => Ok(Self { older_secs: None, younger_secs: Some(secs(count)?) }),
            None => Ok(Self { older_secs: Some(from), younger_secs: Some(upto) }),
        }
    }
}

fn signed(text: &str) -> (Option<char>, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Some('+'), &text[1..]),
        Some(b'-') => (Some('-'), &text[1..]),
        _ => (None, text),
    }
}

/// A time in text form, local if it has no zone; `None`: not a time.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    let stamp = if let Some(secs) = text.strip_prefix('@') {
        return secs.parse().ok().map(|secs| Timestamp { secs, nanos: 0 });
    } else if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        stamp
    } else {
        let civil: DateTime = text.parse().ok()?;
        civil.to_zoned(TimeZone::system()).ok()?.timestamp()
    };
    // Before 1970 jiff counts the nanoseconds down.
    let secs = stamp.as_nanosecond().div_euclid(1_000_000_000);
    let nanos = stamp.as_nanosecond().rem_euclid(1_000_000_000);
    Some(Timestamp { secs: i64::try_from(secs).ok()?, nanos: u32::try_from(nanos).ok()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_are_not_rounded() {
        let size = |bytes_min, bytes_max| Ok(Size { bytes_min, bytes_max });
        assert_eq!(Size::parse("+10"), size(Some(11), None));
        assert_eq!(Size::parse("-1k"), size(None, Some(1023)));
        assert_eq!(Size::parse("2M"), size(Some(2 << 20), Some(2 << 20)));
        assert_eq!(Size::parse("0"), size(Some(0), Some(0)));
        assert_eq!(Size::parse("5KB"), size(Some(5000), Some(5000)));
        for wrong in ["", "+", "k", "+-5", "-0", "1x", "1.5k", "+18446744073709551615", "99999999T"]
        {
            assert!(Size::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_of_find_are_rounded_up() {
        let size = |bytes_min, bytes_max| Ok(Size { bytes_min, bytes_max });
        assert_eq!(Size::of_find("+10c"), size(Some(11), None));
        assert_eq!(Size::of_find("+1M"), size(Some((1 << 20) + 1), None));
        assert_eq!(Size::of_find("-1M"), size(None, Some(0)));
        assert_eq!(Size::of_find("2k"), size(Some(1025), Some(2048)));
        assert_eq!(Size::of_find("1"), size(Some(1), Some(512)));
        assert_eq!(Size::of_find("0"), size(None, Some(0)));
        for wrong in ["", "+", "k", "1K", "1.5M", "1kb", "+18446744073709551615"] {
            assert!(Size::of_find(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_units_and_a_direction() {
        let older = |secs| Ok(Age { older_secs: Some(secs), younger_secs: None });
        let younger = |secs| Ok(Age { older_secs: None, younger_secs: Some(secs) });
        assert_eq!(Age::parse("+7"), older(7 * 86_400));
        assert_eq!(Age::parse("-90s"), younger(90));
        assert_eq!(Age::parse("-5min"), younger(300));
        assert_eq!(Age::parse("-2w"), younger(14 * 86_400));
        for wrong in ["", "7", "+", "+d", "--1", "+1y", "+9223372036854775807w"] {
            assert!(Age::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_of_find_are_whole_days_and_begun_minutes() {
        let of = |older_secs, younger_secs| Ok(Age { older_secs, younger_secs });
        assert_eq!(Age::of_find("-7", Age::DAY), of(None, Some(7 * 86_400)));
        assert_eq!(Age::of_find("+7", Age::DAY), of(Some(8 * 86_400), None));
        assert_eq!(Age::of_find("7", Age::DAY), of(Some(7 * 86_400), Some(8 * 86_400)));
        assert_eq!(Age::of_find("+5", Age::MINUTE), of(Some(300), None));
        assert_eq!(Age::of_find("-5", Age::MINUTE), of(None, Some(300)));
        assert_eq!(Age::of_find("5", Age::MINUTE), of(Some(240), Some(300)));
        assert!(Age::of_find("1h", Age::DAY).is_err());
    }

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        let at = |secs, nanos| Some(Timestamp { secs, nanos });
        assert_eq!(time("1970-01-02T00:00Z"), at(86_400, 0));
        assert_eq!(time("1970-01-01T01:00:00.5+01:00"), at(0, 500_000_000));
        assert_eq!(time("1969-12-31T23:59:59.25Z"), at(-1, 250_000_000));
        assert_eq!(time("@77"), at(77, 0));
        assert!(time("2026-01-31").is_some() && time("2026-01-31T12:00").is_some());
        assert_eq!(time("yesterday"), None);
        assert_eq!(time("lanefs://h/x"), None);
    }
}
