//! Numbers as people read them, each with its unit or below a title that has it.

/// A rate or count: a digit behind the point where it is small, commas where it is large.
pub(super) fn number(number: f64) -> String {
    if number < 0.05 {
        return "0".to_owned();
    }
    if number < 9.95 {
        return format!("{number:.1}");
    }
    grouped(&format!("{number:.0}"))
}

/// A count, with commas.
pub(super) fn count(count: u64) -> String {
    grouped(&count.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a unit of 1024.
pub(super) fn bytes(bytes: f64) -> String {
    let mut scaled = bytes;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1023.5 {
            break;
        }
        (scaled, unit) = (scaled / 1024.0, next);
    }
    if unit == "B" || scaled >= 9.95 {
        format!("{scaled:.0} {unit}")
    } else {
        format!("{scaled:.1} {unit}")
    }
}

/// A time of microseconds.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn time_us(us: u64) -> String {
    let us_f = us as f64;
    match us {
        0..1000 => format!("{us} us"),
        1000..10_000 => format!("{:.1} ms", us_f / 1e3),
        10_000..1_000_000 => format!("{:.0} ms", us_f / 1e3),
        1_000_000..10_000_000 => format!("{:.1} s", us_f / 1e6),
        10_000_000..120_000_000 => format!("{:.0} s", us_f / 1e6),
        _ => long(us / 1_000_000),
    }
}

/// A time of seconds in its two largest units.
pub(super) fn long(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        let found = [0.0, 0.3, 9.94, 9.96, 999.6, 12_345.0].map(number);
        assert_eq!(found, ["0", "0.3", "9.9", "10", "1,000", "12,345"]);
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn bytes_and_times_have_units() {
        let found = [0.0, 1023.0, 1024.0, 4_300_000.0, 1e12].map(bytes);
        assert_eq!(found, ["0 B", "1023 B", "1.0 KiB", "4.1 MiB", "931 GiB"]);
        let found = [7, 1_234, 340_000, 9_400_000, 12_000_000, 130_000_000].map(time_us);
        assert_eq!(found, ["7 us", "1.2 ms", "340 ms", "9.4 s", "12 s", "2 min 10 s"]);
        assert_eq!([7300, 90_000].map(long), ["2 h 1 min", "1 d 1 h"]);
    }
}
