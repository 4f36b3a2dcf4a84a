//! Traces of a mount's requests: what the kernel asked of it, and what each request waited for.
//!
//! ```text
//! calls   version 2 | lane 2 | client 16 | call*
//! call    bytes 4 | field*           step: the same, within a field (as in traces)
//! ```

use super::codec::{
    MALFORMED, TRACES_BYTES_MAX, VERSION, each_field, number, put, put_number, put_text, text,
};
use super::{Kept, NAME_BYTES_SHOWN};
use crate::codec::{Bytes, DecodeError, Reader, Writer};
use crate::{ClientUuid, InodeNo, Op, ProtocolError, SessionId, Status, Xid};
use alloc::string::String;
use alloc::vec::Vec;

/// Most steps of a call.
const STEP_COUNT_MAX: usize = 32;

/// What a lane of a mount remembers of the kernel's requests, and those that are not answered.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CallTraces {
    /// The lane.
    pub lane: u16,
    /// The mount's uuid, as servers know it.
    pub client: ClientUuid,
    /// The requests, in no order.
    pub calls: Vec<CallTrace>,
}

/// Where the time of a request of the kernel went, from its arrival at the mount. Times are in
/// microseconds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CallTrace {
    /// Why it is there.
    pub kept: Kept,
    /// The name of its op code.
    pub op: String,
    /// The thread that asks.
    pub pid: u32,
    /// The inode that it is about: for a name, the directory.
    pub inode: Option<InodeNo>,
    /// The name that it has.
    pub name: Vec<u8>,
    /// Since its arrival.
    pub age_us: u64,
    /// From its arrival to its reply, or until now.
    pub total_us: u64,
    /// What it was answered with.
    pub status: Option<Status>,
    /// What took a while, in order; what several wait for at once is there several times.
    pub steps: Vec<Step>,
}

/// A wait of a request of the kernel.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// What for.
    pub cause: StepCause,
    /// From the arrival of the request to its beginning.
    pub begun_us: u64,
    /// How long it took, or takes so far.
    pub took_us: u64,
    /// Whether it has not ended.
    pub is_now: bool,
    /// The exchange with a server that it is part of.
    pub exchange: Option<Exchange>,
}

/// A request to a server, as a mount knows it. Session and trace id together name it at the server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Exchange {
    /// The operation.
    pub op: Option<Op>,
    /// The server's lane.
    pub lane: u16,
    /// The session; 0: none yet.
    pub session: SessionId,
    /// Its last number in the session.
    pub xid: Xid,
    /// Its trace id.
    pub trace_id: u64,
}

/// What a request of the kernel waits for in a mount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(u8)]
pub enum StepCause {
    /// The server's reply.
    #[default]
    Reply = 1,
    /// A connection to the server.
    Connection = 2,
    /// Open files to be opened again at the server.
    Reopens = 3,
    /// A lost lease: first, what it covered is forgotten.
    Recall = 4,
    /// A credit: the server takes no more requests of this client at a time.
    Credits = 5,
    /// A slot of the session.
    Slot = 6,
    /// Space for changes that the server may still lose.
    ReplaySpace = 7,
    /// The time after which the server wants the request again: its log is full.
    Retry = 8,
    /// The layout of its file.
    Layout = 9,
    /// A lock that others hold.
    FileLock = 10,
    /// The groups of the process that asks.
    Groups = 11,
}

impl StepCause {
    /// All.
    pub const ALL: [Self; 11] = [
        Self::Reply,
        Self::Connection,
        Self::Reopens,
        Self::Recall,
        Self::Credits,
        Self::Slot,
        Self::ReplaySpace,
        Self::Retry,
        Self::Layout,
        Self::FileLock,
        Self::Groups,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Connection => "connection",
            Self::Reopens => "reopens",
            Self::Recall => "recall",
            Self::Credits => "credits",
            Self::Slot => "slot",
            Self::ReplaySpace => "replay_space",
            Self::Retry => "retry",
            Self::Layout => "layout",
            Self::FileLock => "file_lock",
            Self::Groups => "groups",
        }
    }
}

/// Fields of a call. A number is never used again.
mod of_call {
    pub(super) const KEPT: u8 = 1;
    pub(super) const OP: u8 = 2;
    pub(super) const PID: u8 = 3;
    pub(super) const INODE: u8 = 4;
    pub(super) const NAME: u8 = 5;
    pub(super) const AGE: u8 = 6;
    pub(super) const TOTAL: u8 = 7;
    pub(super) const STATUS: u8 = 8;
    pub(super) const STEP: u8 = 9;
}

/// Fields of a step.
mod of_step {
    pub(super) const CAUSE: u8 = 1;
    pub(super) const BEGUN: u8 = 2;
    pub(super) const TOOK: u8 = 3;
    pub(super) const IS_NOW: u8 = 4;
    /// Of its exchange.
    pub(super) const OP: u8 = 5;
    pub(super) const LANE: u8 = 6;
    pub(super) const SESSION: u8 = 7;
    pub(super) const XID: u8 = 8;
    pub(super) const TRACE_ID: u8 = 9;
}

impl CallTraces {
    /// The encoding. What comes first is left out last.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut to = Writer::new(&mut out);
        to.write(&VERSION);
        to.write(&self.lane);
        to.write(&self.client);
        for call in &self.calls {
            let mut body = Vec::new();
            put_call(call, &mut body);
            if out.len() + 4 + body.len() > TRACES_BYTES_MAX {
                break;
            }
            Writer::new(&mut out).write(&Bytes(&body));
        }
        out
    }

    /// Reads those of this or another version of the program.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when lengths do not fit, a field is there twice, or is not what
    /// its tag says.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        read_calls(bytes).map_err(|_| ProtocolError::Malformed)
    }
}

fn put_call(call: &CallTrace, out: &mut Vec<u8>) {
    // Without `..`: a new field cannot be forgotten.
    let CallTrace { kept, op, pid, inode, name, age_us, total_us, status, steps } = call;
    put_text(out, of_call::OP, op);
    put(out, of_call::NAME, &name[..name.len().min(NAME_BYTES_SHOWN)]);
    for (tag, number) in [
        (of_call::KEPT, *kept as u64),
        (of_call::PID, u64::from(*pid)),
        (of_call::INODE, inode.map_or(0, |inode| inode.0)),
        (of_call::AGE, *age_us),
        (of_call::TOTAL, *total_us),
        // One more, because 0 is a status.
        (of_call::STATUS, status.map_or(0, |status| u64::from(status.number()) + 1)),
    ] {
        put_number(out, tag, number);
    }
    let mut inner = Vec::new();
    for step in steps.iter().take(STEP_COUNT_MAX) {
        inner.clear();
        put_step(step, &mut inner);
        put(out, of_call::STEP, &inner);
    }
}

fn put_step(Step { cause, begun_us, took_us, is_now, exchange }: &Step, out: &mut Vec<u8>) {
    for (tag, number) in [
        (of_step::CAUSE, *cause as u64),
        (of_step::BEGUN, *begun_us),
        (of_step::TOOK, *took_us),
        (of_step::IS_NOW, u64::from(*is_now)),
    ] {
        put_number(out, tag, number);
    }
    let Some(Exchange { op, lane, session, xid, trace_id }) = exchange else { return };
    for (tag, number) in [
        (of_step::OP, op.map_or(0, |op| op.number().into())),
        (of_step::LANE, u64::from(*lane)),
        (of_step::SESSION, session.0),
        (of_step::XID, xid.0),
        (of_step::TRACE_ID, *trace_id),
    ] {
        put_number(out, tag, number);
    }
}

fn read_calls(bytes: &[u8]) -> Result<CallTraces, DecodeError> {
    let mut from = Reader::new(bytes);
    let version: u16 = from.read()?;
    if version != VERSION {
        return Err(MALFORMED);
    }
    let mut traces = CallTraces { lane: from.read()?, client: from.read()?, calls: Vec::new() };
    while from.left() > 0 {
        let body: Bytes<'_> = from.read()?;
        traces.calls.extend(read_call(body.0)?);
    }
    Ok(traces)
}

/// `None`: of a kind that is not known.
fn read_call(bytes: &[u8]) -> Result<Option<CallTrace>, DecodeError> {
    let mut call = CallTrace::default();
    let mut kept = None;
    each_field(bytes, of_call::STEP, |tag, content| {
        match tag {
            of_call::OP => call.op = text(content)?,
            of_call::NAME => call.name = content.to_vec(),
            of_call::STEP => call.steps.extend(read_step(content)?),
            of_call::KEPT => {
                let number = number(content)?;
                kept = Kept::ALL.into_iter().find(|kept| *kept as u64 == number);
            }
            of_call::PID => call.pid = u32::try_from(number(content)?).map_err(|_| MALFORMED)?,
            of_call::INODE => call.inode = Some(InodeNo(number(content)?)),
            of_call::AGE => call.age_us = number(content)?,
            of_call::TOTAL => call.total_us = number(content)?,
            of_call::STATUS => {
                let status = number(content)?.checked_sub(1).and_then(|it| u16::try_from(it).ok());
                call.status = status.and_then(Status::from_number);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(kept.map(|kept| CallTrace { kept, ..call }))
}

fn read_step(bytes: &[u8]) -> Result<Option<Step>, DecodeError> {
    let (mut step, mut cause) = (Step::default(), None);
    let mut exchange = Exchange::default();
    // No field may be there several times: 0 is no tag.
    each_field(bytes, 0, |tag, content| {
        match tag {
            of_step::CAUSE => {
                let number = number(content)?;
                cause = StepCause::ALL.into_iter().find(|cause| *cause as u64 == number);
            }
            of_step::BEGUN => step.begun_us = number(content)?,
            of_step::TOOK => step.took_us = number(content)?,
            of_step::IS_NOW => step.is_now = number(content)? > 0,
            of_step::OP => {
                exchange.op = u16::try_from(number(content)?).ok().and_then(Op::from_number);
            }
            of_step::LANE => {
                exchange.lane = u16::try_from(number(content)?).map_err(|_| MALFORMED)?;
            }
            of_step::SESSION => exchange.session = SessionId(number(content)?),
            of_step::XID => exchange.xid = Xid(number(content)?),
            of_step::TRACE_ID => exchange.trace_id = number(content)?,
            _ => {}
        }
        Ok(())
    })?;
    let exchange = (exchange != Exchange::default()).then_some(exchange);
    Ok(cause.map(|cause| Step { cause, exchange, ..step }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> CallTraces {
        let exchange = Exchange {
            op: Some(Op::Create),
            lane: 3,
            session: SessionId(7),
            xid: Xid(9),
            trace_id: u64::MAX,
        };
        let steps = StepCause::ALL.map(|cause| Step {
            cause,
            begun_us: 5,
            took_us: 70,
            is_now: cause == StepCause::Reply,
            exchange: (cause != StepCause::Groups).then_some(exchange),
        });
        let call = CallTrace {
            kept: Kept::Slow,
            op: "create".into(),
            pid: 4711,
            inode: Some(InodeNo(1)),
            name: b"name".to_vec(),
            age_us: 100,
            total_us: 80,
            status: Some(Status::Ok),
            steps: steps.to_vec(),
        };
        let calls = [call.clone(), CallTrace { kept: Kept::Waiting, status: None, ..call }];
        CallTraces { lane: 2, client: ClientUuid([7; 16]), calls: calls.to_vec() }
    }

    #[test]
    fn calls_are_what_was_encoded_and_cut_ones_are_refused() {
        let bytes = calls().encode();
        assert_eq!(CallTraces::decode(&bytes), Ok(calls()));
        let empty_bytes = CallTraces::default().encode().len();
        for end in 0..bytes.len() {
            let cut = CallTraces::decode(&bytes[..end]);
            // Between two calls.
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.calls.len() < 2), "{end}");
        }
        assert_eq!(CallTraces::decode(&bytes[..empty_bytes]).map(|it| it.calls.len()), Ok(0));
    }

    #[test]
    fn what_a_later_version_adds_is_skipped() {
        let mut inner = Vec::new();
        put_number(&mut inner, of_step::CAUSE, 99);
        let mut body = Vec::new();
        put_number(&mut body, of_call::KEPT, Kept::Slow as u64);
        put(&mut body, of_call::STEP, &inner);
        put_number(&mut body, 200, 1);
        let mut bytes = CallTraces::default().encode();
        Writer::new(&mut bytes).write(&Bytes(&body));
        let call = CallTrace { kept: Kept::Slow, ..CallTrace::default() };
        assert_eq!(
            CallTraces::decode(&bytes),
            Ok(CallTraces { calls: [call].into(), ..CallTraces::default() })
        );
        body.clear();
        put_number(&mut body, of_call::PID, 1);
        put_number(&mut body, of_call::PID, 1);
        let mut bytes = CallTraces::default().encode();
        Writer::new(&mut bytes).write(&Bytes(&body));
        assert_eq!(CallTraces::decode(&bytes), Err(ProtocolError::Malformed));
    }

    #[test]
    fn many_calls_fit_into_a_frame() {
        let call = calls().calls.remove(0);
        let all = CallTraces { calls: alloc::vec![call; 5_000], ..CallTraces::default() };
        let bytes = all.encode();
        assert!(bytes.len() <= TRACES_BYTES_MAX);
        assert!(CallTraces::decode(&bytes).is_ok_and(|it| it.calls.len() > 100));
    }
}
