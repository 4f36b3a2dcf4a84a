//! Lookup, getattr, setattr, mkdir, symlink, mknod, link: one request, and a glimpse if the data
//! shard has the file's size.

use super::sized::{Size, SizedFor, complete};
use super::{Next, PlanReply};

pub(super) fn next(reply: PlanReply) -> Next {
    complete(reply.outcome.and_then(super::Body::entry), Size::Unasked, SizedFor::Entry)
}
