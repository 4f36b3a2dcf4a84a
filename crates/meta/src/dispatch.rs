//! The switchboard: a request's op to the two functions that answer it.

use crate::needs::Needs;
use crate::ops;
use crate::shard::{Ask, Effect, Shard};
use crate::txn::Txn;
use alloc::vec::Vec;
use wire::{Breach, Flaw, Op, Status, Wire, Writer};

impl Shard {
    /// Executes one request. The reply's body is appended to `reply`, the changes to record (when
    /// the effect has a transno) to `changes`; both stay as they were unless the status is `Ok`.
    /// Two are for the lane alone: `Busy`, wait for [`Shard::blocker`], or bring what is
    /// [`Shard::missing`], and execute it again;
    /// `CrossDevice`, it takes several shards, see [`Shard::plan`].
    ///
    /// # Errors
    /// [`Breach`] when the body is not what the op has: nothing was done, close the connection.
    pub fn execute(
        &mut self,
        ask: &Ask<'_>,
        reply: &mut Vec<u8>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, Breach> {
        macro_rules! answer {
            ($op:ident) => {{
                let args = match decoded(ask.body) {
                    Ok(args) => args,
                    Err(refused) => return refused.map(Effect::unchanged),
                };
                let mut needs = Needs::new();
                ops::$op::needs(&args, &mut needs);
                self.blocker = None;
                if !self.has(&needs) {
                    return Ok(Effect::unchanged(Status::Busy));
                }
                self.blocker = self.locks.blocker(ask.op, &needs, &self.state, None);
                if self.blocker.is_some() {
                    return Ok(Effect::unchanged(Status::Busy));
                }
                self.uses.clear();
                if ask.tells_reads {
                    needs.reads(&self.state, &mut self.uses);
                }
                let read_count = self.uses.len();
                let mut txn = Txn::new(self, ask, changes);
                let status = match ops::$op::execute(&args, &mut txn) {
                    Ok(answer) => {
                        Writer::new(reply).write(&answer);
                        Status::Ok
                    }
                    Err(status) => status,
                };
                let effect = txn.finish(status);
                if effect.transno.0 > 0 {
                    self.uses.drain(..read_count);
                }
                Ok(effect)
            }};
        }
        match ask.op {
            Op::Lookup => answer!(lookup),
            Op::Getattr => answer!(getattr),
            Op::Setattr => answer!(setattr),
            Op::Create => answer!(create),
            Op::Mkdir => answer!(mkdir),
            Op::Symlink => answer!(symlink),
            Op::Tmpfile => answer!(tmpfile),
            Op::Mknod => answer!(mknod),
            Op::Link => answer!(link),
            Op::Unlink => answer!(unlink),
            Op::Rmdir => answer!(rmdir),
            Op::Rename => answer!(rename),
            Op::Readlink => answer!(readlink),
            Op::Readdir => answer!(readdir),
            Op::Find => answer!(find),
            Op::Open => answer!(open),
            Op::Close => answer!(close),
            Op::Reopen => answer!(reopen),
            Op::Access => answer!(access),
            Op::Getxattr => answer!(getxattr),
            Op::Setxattr => answer!(setxattr),
            Op::Listxattr => answer!(listxattr),
            Op::Removexattr => answer!(removexattr),
            // The lane's own, and the data shards'.
            Op::SetLock
            | Op::GetLock
            | Op::CancelLock
            | Op::Relock
            | Op::Statfs
            | Op::Stats
            | Op::Ping
            | Op::Sync
            | Op::Resume
            | Op::ReplayDone
            | Op::SetExport
            | Op::Exports
            | Op::Freeze
            | Op::Inspect
            | Op::Goodbye => Ok(Effect::unchanged(Status::NotImplemented)),
            Op::Read
            | Op::Write
            | Op::ReadList
            | Op::WriteList
            | Op::Truncate
            | Op::Allocate
            | Op::Seek
            | Op::Glimpse => Ok(Effect::unchanged(Status::NotImplemented)),
        }
    }
}

/// A request's body as a message; or how it is refused.
pub(crate) fn decoded<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, Result<Status, Breach>> {
    T::decode_all(body).map_err(|flaw| match flaw {
        Flaw::Breach(breach) => Err(breach),
        Flaw::Status(status) => Ok(status),
    })
}
