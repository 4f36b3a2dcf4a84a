//! Paths within a volume: all of them start at its root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// One step of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// To the parent.
    Up,
    /// To this name.
    Down(Vec<u8>),
}

/// The steps of a path, last one first, so that they are popped in order. Empty names and `.` are
/// skipped.
pub(crate) fn steps(path: &[u8]) -> Vec<Step> {
    let names = path.split(|byte| *byte == b'/').rev();
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.map(|name| if name == b".." { Step::Up } else { Step::Down(name.to_vec()) }).collect()
}

/// Whether the path must be a directory (`x/`, `x/.`).
pub(crate) fn wants_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

/// The directory part and the last name of a path; `None` when it ends in `..` or is the root.
pub(crate) fn split(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let name = path.file_name()?;
    let parent = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Some((parent, name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn steps_are_reversed_and_empty_names_skipped() {
        let down = |name: &str| Step::Down(name.as_bytes().to_vec());
        assert_eq!(steps(b"//a/./b/../c/"), vec![down("c"), Step::Up, down("b"), down("a")]);
        assert!(steps(b"/").is_empty());
    }

    #[test]
    fn a_path_is_split_at_its_last_name() {
        let (parent, name) = split(Path::new("/a/b/")).unwrap();
        assert_eq!((parent.as_path(), name), (Path::new("/a"), OsStr::new("b")));
        assert!(split(Path::new("/")).is_none());
        assert!(split(Path::new("/a/..")).is_none());
    }

    #[test]
    fn a_slash_at_the_end_wants_a_directory() {
        assert!(wants_directory(Path::new("/a/")));
        assert!(!wants_directory(Path::new("/a")));
    }
}
