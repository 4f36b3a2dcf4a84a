//! The file-system-independent options of mount(8): flags of the kernel, options for other programs, and
//! unsupported options with the reason.

use rustix::mount::MountFlags;

/// Options of the kernel: the flags that each sets and clears.
const FLAGS: [(&str, MountFlags, MountFlags); 22] = [
    ("ro", MountFlags::RDONLY, NONE),
    ("rw", NONE, MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID, NONE),
    ("suid", NONE, MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV, NONE),
    ("dev", NONE, MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC, NONE),
    ("exec", NONE, MountFlags::NOEXEC),
    ("nosymfollow", MountFlags::NOSYMFOLLOW, NONE),
    ("symfollow", NONE, MountFlags::NOSYMFOLLOW),
    ("noatime", MountFlags::NOATIME, STRICT_OR_RELATIVE),
    ("atime", NONE, MountFlags::NOATIME),
    ("relatime", MountFlags::RELATIME, STRICT_OR_NONE),
    ("norelatime", NONE, MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME, RELATIVE_OR_NONE),
    ("nostrictatime", NONE, MountFlags::STRICTATIME),
    ("nodiratime", MountFlags::NODIRATIME, NONE),
    ("diratime", NONE, MountFlags::NODIRATIME),
    ("lazytime", MountFlags::LAZYTIME, NONE),
    ("nolazytime", NONE, MountFlags::LAZYTIME),
    ("async", NONE, MountFlags::SYNCHRONOUS),
    ("defaults", NONE, NONE),
];
const NONE: MountFlags = MountFlags::empty();
const STRICT_OR_RELATIVE: MountFlags = MountFlags::STRICTATIME.union(MountFlags::RELATIME);
const STRICT_OR_NONE: MountFlags = MountFlags::STRICTATIME.union(MountFlags::NOATIME);
const RELATIVE_OR_NONE: MountFlags = MountFlags::RELATIME.union(MountFlags::NOATIME);

/// Options for mount(8), systemd and users, or without effect on a FUSE file system.
const FOR_OTHERS: [&str; 17] = [
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "nomand",
];
const FOR_OTHERS_BEGIN: [&str; 4] = ["x-", "X-", "comment=", "user="];

/// Options that the mount table shows of a FUSE mount, and that mount(8) passes again for a remount.
const OF_FUSE_BEGIN: [&str; 7] =
    ["fd=", "rootmode=", "user_id=", "group_id=", "max_read=", "blksize=", "fsname="];
const OF_FUSE: [&str; 3] = ["allow_other", "default_permissions", "subtype=lanefs"];

const LABEL: &str = "labels of a mount for SELinux are not supported";
const BIND: &str = "mount(8) does that by itself, without a type";
const SYNC: &str =
    "the server says what waits for its disk: `lanefs serve --sync`, or fsync and O_SYNC";

/// Options that cannot be had, and why.
const IMPOSSIBLE: [(&str, &str); 6] = [
    ("sync", SYNC),
    ("dirsync", SYNC),
    ("mand", "Linux has no mandatory locks any more; advisory locks need no option"),
    ("bind", BIND),
    ("rbind", BIND),
    ("move", BIND),
];
const IMPOSSIBLE_BEGIN: [&str; 4] = ["context=", "fscontext=", "defcontext=", "rootcontext="];

/// The treatment of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Independent {
    /// The kernel's: the flags it sets and clears.
    Flag(MountFlags, MountFlags),
    /// An option for other programs, not for the kernel.
    ForOthers,
    /// It cannot be had; why.
    Impossible(&'static str),
    /// It is none of these.
    Other,
}

/// What an option of a mount is.
pub(super) fn look_up(option: &str) -> Independent {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|with| option.starts_with(with));
    if let Some((_, set, clear)) = FLAGS.iter().find(|(name, ..)| *name == option) {
        return Independent::Flag(*set, *clear);
    }
    if FOR_OTHERS.contains(&option) || begins(&FOR_OTHERS_BEGIN) {
        return Independent::ForOthers;
    }
    if let Some((_, why)) = IMPOSSIBLE.iter().find(|(name, _)| *name == option) {
        return Independent::Impossible(why);
    }
    if begins(&IMPOSSIBLE_BEGIN) { Independent::Impossible(LABEL) } else { Independent::Other }
}

/// Whether the mount table shows this option of a FUSE mount.
pub(super) fn is_of_fuse(option: &str) -> bool {
    OF_FUSE.contains(&option) || OF_FUSE_BEGIN.iter().any(|with| option.starts_with(with))
}

/// The flags in the options of a line of the mount table.
pub(super) fn flags_of(options: &str) -> MountFlags {
    let mut flags = MountFlags::empty();
    for option in options.split(',') {
        if let Independent::Flag(set, clear) = look_up(option) {
            flags = flags.difference(clear).union(set);
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_times_of_access_counts() {
        let strict = flags_of("ro,noatime,relatime,strictatime");
        assert_eq!(strict, MountFlags::RDONLY | MountFlags::STRICTATIME);
        assert_eq!(flags_of("strictatime,noatime,rw"), MountFlags::NOATIME);
        assert_eq!(flags_of("strictatime,nostrictatime,relatime,norelatime"), MountFlags::empty());
    }

    #[test]
    fn an_unsupported_option_is_refused_with_its_reason() {
        for option in ["sync", "dirsync", "mand", "bind", "context=system_u:object_r:x_t:s0"] {
            assert!(matches!(look_up(option), Independent::Impossible(_)), "{option}");
        }
        assert_eq!(look_up("frob"), Independent::Other);
    }
}
