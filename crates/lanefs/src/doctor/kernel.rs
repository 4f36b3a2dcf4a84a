//! The kernel: its version, io_uring, and FUSE over io_uring.

use super::finding::Finding;
use procfs::sys::kernel::Version;
use ring::{DriverFound, DriverKind};

/// The oldest kernel with all that lanefs uses.
const VERSION_MIN: (u8, u8) = (6, 6);
/// FUSE over io_uring.
const VERSION_FUSE_URING: (u8, u8) = (6, 14);
/// FUSE_NOTIFY_INC_EPOCH.
const VERSION_EPOCHS: (u8, u8) = (6, 16);

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What this machine has.
pub(super) fn look() -> Vec<Finding> {
    let release = super::text::release();
    let found = ring::DriverChoice::Auto.find();
    let switch = std::fs::read_to_string(SWITCH).ok();
    vec![version(&release), io_uring(found.as_ref().ok()), fuse_uring(switch.as_deref())]
}

fn version(release: &str) -> Finding {
    let Ok(Version { major, minor, .. }) = Version::from_str(release) else {
        return Finding::note("kernel", format!("its version {release} cannot be read"));
    };
    let found = format!("Linux {release}");
    let has = |(needed_major, needed_minor): (u8, u8)| {
        (major, u16::from(minor)) >= (needed_major, u16::from(needed_minor))
    };
    if !has(VERSION_MIN) {
        return Finding::error(
            "kernel",
            format!("{found} lacks what lanefs needs of FUSE and io_uring"),
            "install Linux 6.6 or later",
        );
    }
    if !has(VERSION_FUSE_URING) {
        let found = format!("{found} has no FUSE over io_uring, and mounts cache no names");
        return Finding::note("kernel", found).remedy("Linux 6.16 or later has both");
    }
    if !has(VERSION_EPOCHS) {
        // Without FUSE_NOTIFY_INC_EPOCH it cannot forget all of them at once.
        let found = format!("{found}: mounts cache no names");
        return Finding::note("kernel", found).remedy("Linux 6.16 or later can cache them");
    }
    Finding::ok("kernel", found)
}

/// What a lane would use; `None`: it could not be found out.
fn io_uring(found: Option<&DriverFound>) -> Finding {
    match found {
        Some(DriverFound { kind: DriverKind::IoUring, .. }) => {
            Finding::ok("io-uring", "lanes can use io_uring")
        }
        Some(DriverFound { kind: DriverKind::Epoll, why }) => {
            let why = why.clone().unwrap_or_default();
            Finding::warning("io-uring", "lanes have to use epoll, which is slower", why)
        }
        None => Finding::note("io-uring", "whether lanes can use it could not be found out"),
    }
}

/// By the module's parameter.
fn fuse_uring(switch: Option<&str>) -> Finding {
    let on = format!("`echo Y > {SWITCH}` as root, before mounting");
    match switch.map(str::trim_end) {
        Some("Y" | "1") => Finding::ok("fuse-over-io-uring", "the kernel allows it"),
        Some(_) => {
            Finding::note("fuse-over-io-uring", "off: requests come over /dev/fuse").remedy(on)
        }
        None => Finding::note(
            "fuse-over-io-uring",
            "this kernel has no switch for it, or the module fuse is not loaded",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn each_version_is_judged_by_what_it_lacks() {
        for (release, severity, says) in [
            ("5.10.0-28-amd64", Severity::Error, "lacks"),
            ("6.5.0", Severity::Error, "lacks"),
            ("6.6.1", Severity::Note, "no FUSE over io_uring"),
            ("6.14.0-rc1", Severity::Note, "mounts cache no names"),
            ("6.16.0", Severity::Ok, "Linux 6.16.0"),
            ("6.18.44-fc-v595", Severity::Ok, "6.18.44-fc-v595"),
            ("7.0.0", Severity::Ok, "7.0.0"),
            ("none", Severity::Note, "cannot be read"),
        ] {
            let finding = version(release);
            assert_eq!(finding.severity, severity, "{finding}");
            assert!(finding.found.contains(says), "{finding}");
        }
    }

    #[test]
    fn io_uring_that_is_forbidden_is_named_with_the_reason() {
        let why = Some("kernel.io_uring_disabled is 2: `sysctl ...`".to_owned());
        let finding = io_uring(Some(&DriverFound { kind: DriverKind::Epoll, why }));
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("io_uring_disabled is 2")));
        let usual = DriverFound { kind: DriverKind::IoUring, why: None };
        assert_eq!(io_uring(Some(&usual)).severity, Severity::Ok);
        assert_eq!(io_uring(None).severity, Severity::Note);
    }

    #[test]
    fn the_switch_of_fuse_over_io_uring_is_read() {
        assert_eq!(fuse_uring(Some("Y\n")).severity, Severity::Ok);
        assert!(fuse_uring(Some("N\n")).remedy.is_some_and(|remedy| remedy.contains("echo Y")));
        assert_eq!(fuse_uring(None).severity, Severity::Note);
    }
}
