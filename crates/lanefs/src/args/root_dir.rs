//! The options for the root directory of a new store.

use clap::Args;
use store::RootDir;

/// Owner and mode of the root directory of a new store; an existing store keeps its own.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RootDirArg {
    /// Owner of the root directory of a new store [default: root with mode 1777, if root or a system
    /// account (uid below 1000) creates the store; else the creating user, with mode 0755]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) root_owner: Option<(u32, u32)>,
    /// Mode of the root directory of a new store, octal [default: as above; 0755 with --root-owner]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) root_mode: Option<u32>,
}

impl RootDirArg {
    /// The options applied to the defaults.
    pub(crate) fn over(self, usual: RootDir) -> RootDir {
        let owned = self.root_owner.map_or(usual, |(uid, gid)| RootDir { uid, gid, mode: 0o755 });
        RootDir { mode: self.root_mode.unwrap_or(owned.mode), ..owned }
    }

    /// Whether an option differs from the root directory as it was created.
    pub(crate) fn differs_from(self, made: &RootDir) -> bool {
        self.root_owner.is_some_and(|owner| owner != (made.uid, made.gid))
            || self.root_mode.is_some_and(|mode| mode != made.mode)
    }

    /// The same as arguments.
    pub(crate) fn texts(self) -> impl Iterator<Item = String> {
        let Self { root_owner, root_mode } = self;
        let owner = root_owner.map(|(uid, gid)| format!("--root-owner={uid}:{gid}"));
        let mode = root_mode.map(|mode| format!("--root-mode={mode:04o}"));
        owner.into_iter().chain(mode)
    }
}

/// Reads `UID:GID`.
fn owner(text: &str) -> Result<(u32, u32), String> {
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
    let owner = text.split_once(':').and_then(|(uid, gid)| Some((id(uid)?, id(gid)?)));
    owner.ok_or_else(|| String::from("two numbers are needed, such as 1000:1000"))
}

/// Reads octal digits.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| String::from("octal digits are needed, such as 0755 or 1777"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_the_defaults() {
        let over = |root_owner, root_mode, (uid, gid)| {
            let root = RootDirArg { root_owner, root_mode }.over(RootDir::made_by(uid, gid));
            (root.uid, root.gid, root.mode)
        };
        assert_eq!(over(None, None, (0, 0)), (0, 0, 0o1777));
        assert_eq!(over(None, None, (998, 998)), (0, 0, 0o1777));
        assert_eq!(over(None, None, (1000, 100)), (1000, 100, 0o755));
        assert_eq!(over(Some((5, 6)), None, (0, 0)), (5, 6, 0o755));
        assert_eq!(over(None, Some(0o700), (0, 0)), (0, 0, 0o700));
        assert_eq!(over(Some((5, 6)), Some(0o2770), (1000, 100)), (5, 6, 0o2770));
    }

    #[test]
    fn owners_and_modes_are_read() {
        assert_eq!(owner("1000:100"), Ok((1000, 100)));
        assert_eq!(mode("1777"), Ok(0o1777));
        for wrong in ["", "1", "a:b", "1:", "4294967295:0"] {
            assert!(owner(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "8", "17777", "rwx"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }
}
