//! Bounds as `find` reads them on a command line: `+10M`, `-7d`, `2026-01-31`.

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
    /// Reads `[+-]N[kMGT]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no size: [+-]N[kMGT], as +10M, -4k or 0");
        let (sign, number) = signed(text);
        let (number, shift) = match number.as_bytes().last() {
            Some(b'k' | b'K') => (&number[..number.len() - 1], 10),
            Some(b'M') => (&number[..number.len() - 1], 20),
            Some(b'G') => (&number[..number.len() - 1], 30),
            Some(b'T') => (&number[..number.len() - 1], 40),
            _ => (number, 0),
        };
        let bytes = digits(number).and_then(|number| number.checked_mul(1 << shift));
        let bytes = bytes.ok_or_else(wrong)?;
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
}

/// How long ago contents were changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    /// Longer than so many seconds.
    Older(i64),
    /// Less long.
    Younger(i64),
}

impl Age {
    /// Reads `+N[smhdw]` or `-N[smhdw]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no age: +N or -N with s, m, h, d or w, as +30d or -12h");
        let (sign, number) = signed(text);
        let (number, unit_secs) = match number.as_bytes().last() {
            Some(b's') => (&number[..number.len() - 1], 1),
            Some(b'm') => (&number[..number.len() - 1], 60),
            Some(b'h') => (&number[..number.len() - 1], 3600),
            Some(b'd') => (&number[..number.len() - 1], 86_400),
            Some(b'w') => (&number[..number.len() - 1], 7 * 86_400),
            _ => (number, 86_400),
        };
        let secs = digits(number).and_then(|number| i64::try_from(number).ok());
        let secs = secs.and_then(|number| number.checked_mul(unit_secs)).ok_or_else(wrong)?;
        match sign {
            Some('+') => Ok(Self::Older(secs)),
            Some(_) => Ok(Self::Younger(secs)),
            None => Err(wrong()),
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

/// Digits and nothing else: `parse` alone would take a second sign.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A time as people write it, local where it names no zone; `None`: it is none.
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
        for wrong in ["", "+", "k", "+-5", "-0", "1x", "1.5k", "+18446744073709551615", "99999999T"]
        {
            assert!(Size::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_units_and_a_direction() {
        assert_eq!(Age::parse("+7"), Ok(Age::Older(7 * 86_400)));
        assert_eq!(Age::parse("-90s"), Ok(Age::Younger(90)));
        assert_eq!(Age::parse("-2w"), Ok(Age::Younger(14 * 86_400)));
        for wrong in ["", "7", "+", "+d", "--1", "+1y", "+9223372036854775807w"] {
            assert!(Age::parse(wrong).is_err(), "{wrong}");
        }
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
