//! Measured times and the kernel's release as text.

use std::time::Duration;

/// The kernel's release.
pub(super) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// A measured time, with two or three digits.
pub(super) fn time_text(time: Duration) -> String {
    match time.as_micros() {
        us @ ..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_that_fits() {
        for (us, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (1000, "1.0 ms"),
            (12_340, "12.3 ms"),
            (2_500_000, "2.5 s"),
        ] {
            assert_eq!(time_text(Duration::from_micros(us)), text);
        }
    }
}
