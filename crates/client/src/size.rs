//! Where a file's size is: with its data shard while `SIZE_AT_DATA` is set.

use wire::{Attr, Contents, FileKind, Times, attr_flag};

/// Whether `attr` must be completed by a glimpse before anybody sees it.
pub(crate) const fn at_data(attr: &Attr) -> bool {
    matches!(attr.kind, FileKind::File) && attr.flags & attr_flag::SIZE_AT_DATA != 0
}

/// The attributes of a file whose contents are `contents`.
/// Size and space are the contents'; the times follow [`wire::Times::after_write`].
#[must_use]
pub fn with_contents(attr: Attr, contents: Contents) -> Attr {
    let Attr { mtime, mtime_set, ctime, .. } = attr;
    let times = Times { mtime, mtime_set, ctime }.after_write(contents.write_time);
    Attr {
        size_bytes: contents.size_bytes,
        allocated_bytes: contents.allocated_bytes,
        mtime: times.mtime,
        mtime_set: times.mtime_set,
        ctime: times.ctime,
        ..attr
    }
}
