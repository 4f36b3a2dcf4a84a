//! Freeing what an allocation has taken: that of a job which the kernel refused, or one of an
//! object whose file got no space in another object.

use super::{Job, JobKind, Step, borrowed};
use crate::allocate::GiveBack;
use crate::driver::Token;
use crate::io_context::IoContext;
use crate::objects::Objects;
use interface::Errno;
use rustix::fs::ftruncate;
use std::os::fd::BorrowedFd;

impl Job {
    /// The kernel refused the allocation.
    pub(super) fn on_refused(
        &mut self,
        errno: Errno,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        self.refused = Some(errno);
        let JobKind::Allocate { offset, range_bytes, .. } = self.kind else {
            return self.fail(errno, objects, io);
        };
        let range = offset..offset.saturating_add(range_bytes);
        self.give_back = Some(GiveBack::new(range, self.before_bytes));
        self.shorten(token, objects, io)
    }

    /// Sets the former size first.
    pub(super) fn shorten(
        &mut self,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        if io.driver.truncates() {
            return self.go(Step::Shorten, token, objects, io);
        }
        let size_bytes = self.former_bytes();
        io.counters.syscall_count += 1;
        match borrowed(objects, self.object_index, |file| ftruncate(file, size_bytes)) {
            Ok(()) => self.punch_next(token, objects, io),
            Err(errno) => self.end_give_back(Err(errno), objects, io),
        }
    }

    pub(super) const fn former_bytes(&self) -> u64 {
        match &self.give_back {
            Some(give_back) => give_back.size_bytes,
            None => 0,
        }
    }

    /// Frees the next hole, until there is none.
    pub(super) fn punch_next(
        &mut self,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let Some(mut give_back) = self.give_back.take() else { return self.done(io) };
        io.counters.syscall_count += 2;
        let next =
            borrowed(objects, self.object_index, |file: BorrowedFd<'_>| give_back.next(file));
        self.give_back = Some(give_back);
        match next {
            Ok(Some(hole)) => {
                self.hole = hole;
                self.go(Step::Punch, token, objects, io)
            }
            Ok(None) => self.end_give_back(Ok(()), objects, io),
            Err(errno) => self.end_give_back(Err(errno), objects, io),
        }
    }

    /// Freed, as far as possible: a refused allocation fails with its own error.
    pub(super) fn end_give_back(
        &mut self,
        result: Result<(), Errno>,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        match (self.refused, result) {
            (Some(errno), _) | (None, Err(errno)) => self.fail(errno, objects, io),
            (None, Ok(())) => self.done(io),
        }
    }
}
