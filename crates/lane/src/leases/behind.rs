//! Which requests are sent when their callers have the answers.

use wire::{Create, InodeNo, Op, Request, Unlink, Wire as _, request_flag};

/// The inode that a change of attributes or names is about whose caller has the answer, and the number
/// of the file that it creates.
pub(super) fn behind(request: &Request, body: &[u8]) -> Option<(InodeNo, Option<InodeNo>)> {
    if request.op == Op::Create {
        let Create { parent, behind, .. } = Create::decode_all(body).ok()?;
        return Some((parent, Some(behind?.inode)));
    }
    if request.op == Op::Unlink {
        let Unlink { parent, behind, .. } = Unlink::decode_all(body).ok()?;
        return behind.map(|_| (parent, None));
    }
    let is_behind = request.op == Op::Setattr && request.flags & request_flag::BEHIND != 0;
    is_behind.then(|| (request.op.inodes(body)[0].unwrap_or(InodeNo(0)), None))
}

/// Whether a client may have answered a change before it sent this, or needs this for such a change.
pub(crate) fn is_behind(request: &Request, body: &[u8]) -> bool {
    let is_write = request.op == Op::Write && request.flags & request_flag::BEHIND != 0;
    is_write || request.op == Op::Widen || behind(request, body).is_some()
}
