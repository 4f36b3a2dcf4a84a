//! The lane's thread reads and writes, and serves nothing meanwhile.

use super::super::files;
use super::{Engine, Offloaded, Token, Wakeup, Work};
use interface::Errno;

/// Completed operations that were not taken.
#[derive(Default)]
pub(super) struct Inline {
    ended: Vec<(Token, Result<u32, Errno>)>,
    call_count: u64,
}

impl Engine for Inline {
    unsafe fn begin(&mut self, work: Work) {
        self.call_count += 1;
        // SAFETY: the caller vouches until the completion, which comes later.
        let result = unsafe { files::perform(work.op) };
        self.ended.push((work.token, result));
    }

    fn take(&mut self, taken: &mut dyn FnMut(Token, Result<u32, Errno>)) {
        self.ended.drain(..).for_each(|(token, result)| taken(token, result));
    }

    fn wakeup(&self) -> Option<&Wakeup> {
        None
    }

    fn end(&mut self) -> bool {
        self.ended.clear();
        true
    }

    fn offloaded(&self) -> Offloaded {
        Offloaded::default()
    }

    fn call_count(&self) -> u64 {
        self.call_count
    }
}
