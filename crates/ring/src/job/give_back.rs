//! Freeing what an allocation has taken: that of a job which the kernel refused, or one of an
//! object whose file got no space in another object.

use super::{Job, JobKind, Step, borrowed};
use crate::allocate::GiveBack;
use crate::driver::Token;
use crate::objects::Objects;
use crate::tools::Tools;
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
        tools: &mut Tools,
    ) -> bool {
        self.refused = Some(errno);
        let JobKind::Allocate { offset, range_bytes, .. } = self.kind else {
            return self.fail(errno, objects, tools);
        };
        let range = offset..offset.saturating_add(range_bytes);
        self.give_back = Some(GiveBack::new(range, self.before_bytes));
        self.shorten(token, objects, tools)
    }

    /// Sets the former size first.
    pub(super) fn shorten(
        &mut self,
        token: Token,
        objects: &mut Objects,
        tools: &mut Tools,
    ) -> bool {
        if tools.driver.truncates() {
            return self.go(Step::Shorten, token, objects, tools);
        }
        let size_bytes = self.former_bytes();
        tools.counters.syscall_count += 1;
        match borrowed(objects, self.object_index, |file| ftruncate(file, size_bytes)) {
            Ok(()) => self.punch_next(token, objects, tools),
            Err(errno) => self.end_give_back(Err(errno), objects, tools),
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
        tools: &mut Tools,
    ) -> bool {
        let Some(mut give_back) = self.give_back.take() else { return self.done(tools) };
        tools.counters.syscall_count += 2;
        let next =
            borrowed(objects, self.object_index, |file: BorrowedFd<'_>| give_back.next(file));
        self.give_back = Some(give_back);
        match next {
            Ok(Some(hole)) => {
                self.hole = hole;
                self.go(Step::Punch, token, objects, tools)
            }
            Ok(None) => self.end_give_back(Ok(()), objects, tools),
            Err(errno) => self.end_give_back(Err(errno), objects, tools),
        }
    }

    /// Freed, as far as possible: a refused allocation fails with its own error.
    pub(super) fn end_give_back(
        &mut self,
        result: Result<(), Errno>,
        objects: &mut Objects,
        tools: &mut Tools,
    ) -> bool {
        match (self.refused, result) {
            (Some(errno), _) | (None, Err(errno)) => self.fail(errno, objects, tools),
            (None, Ok(())) => self.done(tools),
        }
    }
}
