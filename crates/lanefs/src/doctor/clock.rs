//! The clock: its source, and whether it is synchronised.

use super::finding::Finding;
use std::fs;
use std::io;

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0";

/// This machine's.
pub(super) fn look() -> Vec<Finding> {
    let current = fs::read_to_string(format!("{SOURCE}/current_clocksource")).ok();
    let available = fs::read_to_string(format!("{SOURCE}/available_clocksource")).ok();
    vec![
        source(current.as_deref(), available.as_deref()),
        synchronised(ring::is_clock_synchronised()),
    ]
}

fn source(current: Option<&str>, available: Option<&str>) -> Finding {
    let Some(current) = current.map(str::trim) else {
        return Finding::note("clock-source", format!("{SOURCE} cannot be read"));
    };
    let is_read_without_a_call = matches!(current, "tsc" | "arch_sys_counter" | "kvm-clock")
        || current.starts_with("hyperv_clocksource_tsc");
    if is_read_without_a_call {
        return Finding::ok("clock-source", current);
    }
    let has_tsc = available.unwrap_or_default().split_whitespace().any(|name| name == "tsc");
    let remedy = if has_tsc {
        "`echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource` as root, if dmesg \
         does not call the tsc unstable"
    } else {
        "have the hypervisor offer an invariant tsc, or look at why dmesg calls the tsc unstable"
    };
    let found = format!("{current}: each reading is a system call");
    Finding::warning("clock-source", found, remedy)
}

/// As the kernel was told by what sets its clock.
fn synchronised(found: io::Result<bool>) -> Finding {
    match found {
        Ok(true) => Finding::ok("clock-synchronised", "the kernel's clock is kept by NTP or the like"),
        Ok(false) => Finding::note(
            "clock-synchronised",
            "the kernel knows of nothing that keeps its clock; times of files are the server's, and \
             certificates expire by this clock",
        )
        .remedy("run chrony or systemd-timesyncd"),
        Err(error) => Finding::note("clock-synchronised", format!("the kernel does not say: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_source_that_takes_a_call_is_named() {
        assert_eq!(source(Some("tsc\n"), Some("tsc hpet")).severity, Severity::Ok);
        assert_eq!(source(Some("kvm-clock\n"), None).severity, Severity::Ok);
        let slow = source(Some("hpet\n"), Some("tsc hpet acpi_pm\n"));
        assert_eq!(slow.severity, Severity::Warning);
        assert!(slow.remedy.is_some_and(|remedy| remedy.contains("echo tsc")));
        let none = source(Some("xen\n"), Some("xen\n"));
        assert!(none.remedy.is_some_and(|remedy| remedy.contains("hypervisor")));
        assert_eq!(source(None, None).severity, Severity::Note);
    }

    #[test]
    fn a_clock_that_nothing_keeps_is_a_note() {
        assert_eq!(synchronised(Ok(true)).severity, Severity::Ok);
        assert!(synchronised(Ok(false)).remedy.is_some());
        let unknown = synchronised(Err(io::Error::other("forbidden")));
        assert!(unknown.found.contains("forbidden"));
    }
}
