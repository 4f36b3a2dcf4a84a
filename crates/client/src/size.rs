//! Where a file's size is: with its data shard while `SIZE_AT_DATA` is set. The one rule that joins
//! what both shards know.

use wire::{Attr, Contents, FileKind, attr_flag};

/// Whether `attr` must be completed by a glimpse before anybody sees it.
pub(crate) const fn at_data(attr: &Attr) -> bool {
    matches!(attr.kind, FileKind::File) && attr.flags & attr_flag::SIZE_AT_DATA != 0
}

/// The attributes of a file whose contents are `contents`.
///
/// Size and space are the contents'. A write later than the inode's last change is the last change
/// of both contents and inode. An earlier one changes no times: the inode's were set after it
/// (`cp -p` and `tar` set them last, and must win).
#[must_use]
pub fn with_contents(attr: Attr, contents: Contents) -> Attr {
    let mut attr = attr;
    attr.size_bytes = contents.size_bytes;
    attr.allocated_bytes = contents.allocated_bytes;
    if let Some(write_time) = contents.write_time
        && write_time > attr.ctime
    {
        attr.mtime = write_time;
        attr.ctime = write_time;
    }
    attr
}
