//! The machine of a measurement: one line of text, or one object of JSON.

use crate::cores::Cores;
use procfs::{CpuInfo, Current as _};
use rustix::fs::statfs;
use rustix::system::uname;
use std::path::Path;

/// The properties that matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores that may be used.
    pub core_count: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The file system under the servers' stores.
    pub store_file_system: String,
    /// Which cores servers and load ran on.
    pub placement: String,
    /// Version of lanefs, and whether it was built for measuring.
    pub build: String,
}

impl Machine {
    /// This machine, with stores in `dir`.
    #[must_use]
    pub(crate) fn here(dir: &Path, cores: &Cores) -> Self {
        let shared = if cores.server.contains(&cores.generator) { ", SHARED" } else { "" };
        let listed: Vec<String> = cores.server.iter().map(u16::to_string).collect();
        Self {
            processor: processor(),
            core_count: ring::core_count().max(cores.server.len() + 1),
            kernel: kernel(),
            store_file_system: file_system(dir),
            placement: format!(
                "servers on core {}, load on core {}{shared}",
                listed.join(","),
                cores.generator
            ),
            build: build(),
        }
    }

    /// In one line.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { processor, core_count, kernel, store_file_system, placement, build } = self;
        format!(
            "{build}; {processor}, {core_count} cores, Linux {kernel}; stores on \
             {store_file_system}; {placement}"
        )
    }
}

/// The machine without servers, in one line.
pub(crate) fn host() -> String {
    let (build, processor, kernel) = (build(), processor(), kernel());
    format!("{build}; {processor}, {} cores, Linux {kernel}", ring::core_count())
}

fn processor() -> String {
    let processors = CpuInfo::current().ok();
    let name = processors.as_ref().and_then(|processors| processors.model_name(0));
    name.unwrap_or("unknown").to_owned()
}

fn kernel() -> String {
    uname().release().to_string_lossy().into_owned()
}

fn build() -> String {
    let build = if cfg!(debug_assertions) { "debug build: not for measuring" } else { "release" };
    format!("lanefs {}, {build}", env!("CARGO_PKG_VERSION"))
}

/// The name of a file system by its magic number, see statfs(2).
fn file_system(dir: &Path) -> String {
    const NAMES: [(i64, &str); 6] = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x0102_1994, "tmpfs (flushes cost nothing there)"),
        (0x794c_7630, "overlayfs"),
        (0x2fc1_2fc1, "zfs"),
    ];
    match statfs(dir) {
        Ok(found) => {
            let known = NAMES.iter().find(|(magic, _)| *magic == found.f_type);
            known.map_or_else(|| format!("{:#x}", found.f_type), |(_, name)| (*name).to_owned())
        }
        Err(error) => format!("unknown ({error})"),
    }
}
