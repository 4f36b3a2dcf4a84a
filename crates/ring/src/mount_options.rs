//! Options of a mount, and its type.

use rustix::mount::MountFlags;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Shown as the device, such as `server:7117/data`.
    pub source: String,
    /// Users other than the mounting one may access it.
    pub allow_other: bool,
    /// The kernel checks permissions by itself.
    pub default_permissions: bool,
    /// Flags that the kernel implements, such as `RDONLY`. Only root may leave out `NOSUID` and
    /// `NODEV`.
    pub flags: MountFlags,
}

impl Default for MountOptions {
    fn default() -> Self {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        Self { source: String::new(), allow_other: false, default_permissions: false, flags }
    }
}

/// The file system's type.
pub(crate) const FS_TYPE: &str = "fuse.lanefs";
