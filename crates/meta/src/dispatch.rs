//! The switchboard: a request's op to the two functions that answer it.

use crate::needs::Needs;
use crate::ops;
use crate::shard::{Ask, Effect, Shard};
use crate::txn::Txn;
use alloc::vec::Vec;
use wire::{Flaw, Op, ProtocolError, Status, Wire, Writer};

impl Shard {
    /// Executes one request. The reply's body is appended to `reply`, the changes to record (when
    /// the effect has a transno) to `changes`; both stay as they were unless the status is `Ok`.
    /// Two are for the lane alone: `Busy`, wait for [`Shard::blocker`], or bring what is
    /// [`Shard::missing`], and execute it again;
    /// `CrossDevice`, it takes several shards, see [`Shard::plan`].
    ///
    /// # Errors
    /// [`ProtocolError`] when the body is not what the op has: nothing was done, close the connection.
    pub fn execute(
        &mut self,
        ask: &Ask<'_>,
        reply: &mut Vec<u8>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, ProtocolError> {
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
                self.blocker = self.locks.blocker(&needs, &self.state, None);
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
        macro_rules! dispatch {
            ($($op:ident $module:ident $((several))?;)*) => {
                match ask.op {
                    $(Op::$op => answer!($module),)*
                    // Executed by another part of the server.
                    _ => Ok(Effect::unchanged(Status::NotImplemented)),
                }
            };
        }
        wire::metadata_operations!(dispatch)
    }
}

/// A request's body as a message; or how it is refused.
pub(crate) fn decoded<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, Result<Status, ProtocolError>> {
    T::decode_all(body).map_err(|flaw| match flaw {
        Flaw::ProtocolError(protocol_error) => Err(protocol_error),
        Flaw::Status(status) => Ok(status),
    })
}
