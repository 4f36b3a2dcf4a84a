//! Processors, memory, and whether this is a virtual machine.

use super::finding::Finding;
use indicatif::BinaryBytes;
use procfs::{CpuInfo, FromRead as _, Meminfo};
use std::fs;

/// With less available, a server's caches are lost to it.
const BYTES_MIN: u64 = 128 << 20;
const BYTES_GOOD: u64 = 512 << 20;

/// This machine.
pub(super) fn look() -> Vec<Finding> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let product = fs::read_to_string("/sys/class/dmi/id/sys_vendor").ok();
    vec![
        processors(&cpuinfo, ring::core_count()),
        memory(&meminfo, limit.as_deref()),
        hypervisor(&cpuinfo, product.as_deref()),
    ]
}

fn processors(cpuinfo: &str, usable_count: usize) -> Finding {
    let all = CpuInfo::from_read(cpuinfo.as_bytes()).ok();
    let name = all.as_ref().and_then(|all| all.model_name(0)).unwrap_or("of unknown name");
    let found = format!("{usable_count} usable ({name})");
    let finding = if usable_count < 2 {
        Finding::note("processors", found).remedy(
            "a server and a mount on one processor wait for each other: give it a second one",
        )
    } else {
        Finding::ok("processors", found)
    };
    finding.value("usable_count", usable_count)
}

/// `limit`: of the control group, `max` or bytes.
fn memory(meminfo: &str, limit: Option<&str>) -> Finding {
    let Ok(Meminfo { mem_total, mem_available: Some(available), .. }) =
        Meminfo::from_read(meminfo.as_bytes())
    else {
        return Finding::note("memory", "/proc/meminfo cannot be read");
    };
    let limit = limit.and_then(|text| text.trim_end().parse::<u64>().ok());
    let limited = limit.map(|bytes| format!(", {} for this container", BinaryBytes(bytes)));
    let usable = available.min(limit.unwrap_or(u64::MAX));
    let found = format!(
        "{} of {} are available{}",
        BinaryBytes(available),
        BinaryBytes(mem_total),
        limited.unwrap_or_default()
    );
    let remedy = "give it more memory, or bound the names of a server by `--meta-memory`";
    let finding = match usable {
        ..BYTES_MIN => Finding::error("memory", found, remedy),
        BYTES_MIN..BYTES_GOOD => Finding::warning("memory", found, remedy),
        _ => Finding::ok("memory", found),
    };
    finding.value("available_bytes", usable)
}

fn hypervisor(cpuinfo: &str, vendor: Option<&str>) -> Finding {
    let all = CpuInfo::from_read(cpuinfo.as_bytes()).ok();
    let flags = all.as_ref().and_then(|all| all.flags(0));
    let vendor = vendor.map(str::trim_end).filter(|vendor| !vendor.is_empty());
    let shown = vendor.map(|vendor| format!(" ({vendor})")).unwrap_or_default();
    let is_virtual = match flags {
        Some(flags) => flags.contains(&"hypervisor"),
        None => return Finding::note("hypervisor", format!("not known for this processor{shown}")),
    };
    if is_virtual {
        let found = format!("this is a virtual machine{shown}: wake-ups and flushes pass its host");
        return Finding::ok("hypervisor", found).value("is_virtual", true);
    }
    Finding::ok("hypervisor", format!("none{shown}")).value("is_virtual", false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    fn meminfo(available_kib: u64) -> String {
        // The kernel has had these lines since 2.6.
        let zeros = ["MemFree", "Buffers", "Cached", "SwapCached", "Active", "Inactive"];
        let more = ["SwapTotal", "SwapFree", "Dirty", "Writeback", "Mapped", "Slab"];
        let rest = ["Committed_AS", "VmallocTotal", "VmallocUsed", "VmallocChunk"];
        let lines = zeros.iter().chain(&more).chain(&rest).map(|name| format!("{name}: 0 kB\n"));
        format!(
            "MemTotal: 16777216 kB\nMemAvailable: {available_kib} kB\n{}",
            lines.collect::<String>()
        )
    }

    #[test]
    fn memory_is_what_is_available_and_what_the_container_may_take() {
        let enough = memory(&meminfo(8 << 20), Some("max\n"));
        assert_eq!(enough.severity, Severity::Ok, "{enough}");
        assert!(enough.found.contains("8.00 GiB of 16.00 GiB"), "{enough}");
        assert_eq!(memory(&meminfo(300 << 10), None).severity, Severity::Warning);
        assert_eq!(memory(&meminfo(1), None).severity, Severity::Error);
        let small = memory(&meminfo(8 << 20), Some("67108864\n"));
        assert!(small.severity == Severity::Error && small.found.contains("64.00 MiB"), "{small}");
        assert_eq!(memory("", None).severity, Severity::Note);
    }

    #[test]
    fn a_virtual_machine_is_known_by_its_flag() {
        let cpuinfo =
            |flags: &str| format!("processor\t: 0\nmodel name\t: Fast One\nflags\t\t: {flags}\n\n");
        let virtual_one = hypervisor(&cpuinfo("fpu hypervisor lahf_lm"), Some("QEMU\n"));
        assert!(virtual_one.found.contains("virtual machine (QEMU)"), "{virtual_one}");
        assert!(hypervisor(&cpuinfo("fpu"), None).found.contains("none"));
        assert_eq!(hypervisor("", None).severity, Severity::Note);
        assert!(processors(&cpuinfo("fpu"), 4).found.contains("4 usable (Fast One)"));
        assert_eq!(processors("", 1).severity, Severity::Note);
    }
}
