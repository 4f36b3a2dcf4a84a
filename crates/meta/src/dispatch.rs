//! Dispatch: maps a request's op to its two functions.

use crate::decoded::decoded;
use crate::needs::Needs;
use crate::ops;
use crate::shard::{Effect, MetaRequest, Shard};
use crate::txn::Txn;
use alloc::vec::Vec;
use wire::{Op, ProtocolError, Status, Writer};

impl Shard {
    /// Executes one request. Appends the reply's body to `reply` and the changes to record (when
    /// the effect has a transno) to `changes`; both are unchanged unless the status is `Ok`. Two
    /// statuses are for the lane only: `Busy`: wait for [`Shard::blocker`] or fetch what is
    /// [`Shard::missing`], and execute the request again; `CrossDevice`: the request needs several
    /// shards, see [`Shard::plan`].
    ///
    /// # Errors
    /// [`ProtocolError`] when the body is not valid for the op: nothing was done, close the
    /// connection.
    pub fn execute(
        &mut self,
        request: &MetaRequest<'_>,
        reply: &mut Vec<u8>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, ProtocolError> {
        macro_rules! answer {
            ($op:ident) => {{
                let args = match decoded(request.body) {
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
                if request.records_reads {
                    needs.reads(&self.state, &mut self.uses);
                }
                let read_count = self.uses.len();
                let mut txn = Txn::new(self, request, changes);
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
                match request.op {
                    $(Op::$op => answer!($module),)*
                    // Executed by another part of the server.
                    _ => Ok(Effect::unchanged(Status::NotImplemented)),
                }
            };
        }
        wire::metadata_operations!(dispatch)
    }
}
