//! The encoding of traces.

use super::{Kept, NAME_BYTES_SHOWN, Party, RequestTrace, Traces, Wait, WaitCause};
use crate::codec::{DecodeError, Reader, Wire as _, Writer};
use crate::{ClientUuid, InodeNo, Op, ProtocolError, SessionId, Status, Xid};
use alloc::string::String;
use alloc::vec::Vec;

/// The version that is written and read: another one cannot be read at all.
pub(super) const VERSION: u16 = 1;
/// Traces that do not fit are left out. The reply fits into the body of a frame.
pub(super) const TRACES_BYTES_MAX: usize = 256 * 1024;
const _: () = assert!(TRACES_BYTES_MAX < crate::BODY_BYTES_MAX as usize, "a frame has it");
/// Most bytes of a label.
const LABEL_BYTES_MAX: usize = 255;
/// Most waits of a trace, and parties of a wait.
const LIST_COUNT_MAX: usize = 16;

pub(super) const MALFORMED: DecodeError = DecodeError::ProtocolError(ProtocolError::Malformed);

/// Fields of a trace. A number is never used again.
mod of_trace {
    pub(super) const KEPT: u8 = 1;
    pub(super) const OP: u8 = 2;
    pub(super) const CLIENT: u8 = 3;
    pub(super) const EXPORT: u8 = 4;
    pub(super) const INODE: u8 = 5;
    pub(super) const NAME: u8 = 6;
    pub(super) const SESSION: u8 = 7;
    pub(super) const XID: u8 = 8;
    pub(super) const TRACE_ID: u8 = 9;
    pub(super) const AGE: u8 = 10;
    pub(super) const QUEUE: u8 = 11;
    pub(super) const EXECUTION: u8 = 12;
    pub(super) const COMMIT: u8 = 13;
    pub(super) const FLUSH: u8 = 14;
    pub(super) const AHEAD: u8 = 15;
    pub(super) const STATUS: u8 = 16;
    pub(super) const WAIT: u8 = 17;
    pub(super) const REPLY: u8 = 18;
}

/// Fields of a wait.
mod of_wait {
    pub(super) const CAUSE: u8 = 1;
    pub(super) const BEGUN: u8 = 2;
    pub(super) const TOOK: u8 = 3;
    pub(super) const IS_NOW: u8 = 4;
    pub(super) const WHOM: u8 = 5;
}

/// Fields of a party.
mod of_party {
    pub(super) const UUID: u8 = 1;
    pub(super) const HOST: u8 = 2;
    pub(super) const JOB: u8 = 3;
    pub(super) const PID: u8 = 4;
}

impl Traces {
    /// The encoding. What comes first is left out last.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut to = Writer::new(&mut out);
        to.write(&VERSION);
        to.write(&self.lane);
        for request in &self.requests {
            let mut body = Vec::new();
            put_trace(request, &mut body);
            if out.len() + 4 + body.len() > TRACES_BYTES_MAX {
                break;
            }
            Writer::new(&mut out).write(&crate::Bytes(&body));
        }
        out
    }

    /// Reads those of this or another version of the program.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when lengths do not fit, a field is there twice, or is not what
    /// its tag says.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        read_traces(bytes).map_err(|error| match error {
            DecodeError::ProtocolError(protocol_error) => protocol_error,
            DecodeError::Status(_) => ProtocolError::Malformed,
        })
    }
}

pub(super) fn put(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let Ok(bytes_count) = u16::try_from(content.len()) else { return };
    if bytes_count > 0 {
        let mut to = Writer::new(out);
        to.write(&tag);
        to.write(&bytes_count);
        to.put(content);
    }
}

pub(super) fn put_number(out: &mut Vec<u8>, tag: u8, number: u64) {
    if number > 0 {
        put(out, tag, &number.to_le_bytes());
    }
}

pub(super) fn put_text(out: &mut Vec<u8>, tag: u8, text: &str) {
    put(out, tag, &text.as_bytes()[..text.floor_char_boundary(LABEL_BYTES_MAX)]);
}

fn put_trace(trace: &RequestTrace, out: &mut Vec<u8>) {
    // Without `..`: a new field cannot be forgotten.
    let RequestTrace {
        kept,
        op,
        client,
        export,
        inode,
        name,
        session,
        xid,
        trace_id,
        age_us,
        queue_us,
        execution_us,
        commit_us,
        reply_us,
        flush_us,
        ahead_count,
        status,
        waits,
    } = trace;
    let mut inner = Vec::new();
    put_party(client, &mut inner);
    put(out, of_trace::CLIENT, &inner);
    put_text(out, of_trace::EXPORT, export);
    put(out, of_trace::NAME, &name[..name.len().min(NAME_BYTES_SHOWN)]);
    for (tag, number) in [
        (of_trace::KEPT, *kept as u64),
        (of_trace::OP, op.map_or(0, |op| op.number().into())),
        (of_trace::INODE, inode.map_or(0, |inode| inode.0)),
        (of_trace::SESSION, session.0),
        (of_trace::XID, xid.0),
        (of_trace::TRACE_ID, *trace_id),
        (of_trace::AGE, *age_us),
        (of_trace::QUEUE, *queue_us),
        (of_trace::EXECUTION, *execution_us),
        (of_trace::COMMIT, *commit_us),
        (of_trace::REPLY, *reply_us),
        (of_trace::FLUSH, *flush_us),
        (of_trace::AHEAD, *ahead_count),
        // One more, because 0 is a status.
        (of_trace::STATUS, status.map_or(0, |status| u64::from(status.number()) + 1)),
    ] {
        put_number(out, tag, number);
    }
    for wait in waits.iter().take(LIST_COUNT_MAX) {
        inner.clear();
        put_wait(wait, &mut inner);
        put(out, of_trace::WAIT, &inner);
    }
}

fn put_wait(Wait { cause, begun_us, took_us, is_now, whom }: &Wait, out: &mut Vec<u8>) {
    put_number(out, of_wait::CAUSE, *cause as u64);
    put_number(out, of_wait::BEGUN, *begun_us);
    put_number(out, of_wait::TOOK, *took_us);
    put_number(out, of_wait::IS_NOW, u64::from(*is_now));
    let mut inner = Vec::new();
    for party in whom.iter().take(LIST_COUNT_MAX) {
        inner.clear();
        put_party(party, &mut inner);
        put(out, of_wait::WHOM, &inner);
    }
}

fn put_party(Party { client, host, job, pid }: &Party, out: &mut Vec<u8>) {
    put(out, of_party::UUID, &client.0);
    put_text(out, of_party::HOST, host);
    put_text(out, of_party::JOB, job);
    put_number(out, of_party::PID, u64::from(*pid));
}

fn read_traces(bytes: &[u8]) -> Result<Traces, DecodeError> {
    let mut from = Reader::new(bytes);
    if u16::decode(&mut from)? != VERSION {
        return Err(MALFORMED);
    }
    let mut traces = Traces { lane: from.read()?, requests: Vec::new() };
    while from.left() > 0 {
        let body: crate::Bytes<'_> = from.read()?;
        traces.requests.extend(read_trace(body.0)?);
    }
    Ok(traces)
}

/// Calls a function with each field. Only `several` may be there twice.
pub(super) fn each_field<'a>(
    bytes: &'a [u8],
    several: u8,
    mut field: impl FnMut(u8, &'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut from = Reader::new(bytes);
    let mut seen = [false; 256];
    while from.left() > 0 {
        let (tag, bytes_count) = (u8::decode(&mut from)?, u16::decode(&mut from)?);
        let content = from.take(bytes_count.into())?;
        if core::mem::replace(&mut seen[usize::from(tag)], true) && tag != several {
            return Err(MALFORMED);
        }
        field(tag, content)?;
    }
    Ok(())
}

pub(super) fn number(content: &[u8]) -> Result<u64, DecodeError> {
    u64::decode_all(content)
}

pub(super) fn text(content: &[u8]) -> Result<String, DecodeError> {
    core::str::from_utf8(content).map(String::from).map_err(|_| MALFORMED)
}

fn read_trace(bytes: &[u8]) -> Result<Option<RequestTrace>, DecodeError> {
    let mut trace = RequestTrace::default();
    let mut kept = None;
    each_field(bytes, of_trace::WAIT, |tag, content| {
        match tag {
            of_trace::CLIENT => trace.client = read_party(content)?,
            of_trace::EXPORT => trace.export = text(content)?,
            of_trace::NAME => trace.name = content.to_vec(),
            of_trace::WAIT => trace.waits.extend(read_wait(content)?),
            of_trace::KEPT => {
                let number = number(content)?;
                kept = Kept::ALL.into_iter().find(|kept| *kept as u64 == number);
            }
            of_trace::OP => {
                trace.op = u16::try_from(number(content)?).ok().and_then(Op::from_number);
            }
            of_trace::INODE => trace.inode = Some(InodeNo(number(content)?)),
            of_trace::SESSION => trace.session = SessionId(number(content)?),
            of_trace::XID => trace.xid = Xid(number(content)?),
            of_trace::TRACE_ID => trace.trace_id = number(content)?,
            of_trace::AGE => trace.age_us = number(content)?,
            of_trace::QUEUE => trace.queue_us = number(content)?,
            of_trace::EXECUTION => trace.execution_us = number(content)?,
            of_trace::COMMIT => trace.commit_us = number(content)?,
            of_trace::REPLY => trace.reply_us = number(content)?,
            of_trace::FLUSH => trace.flush_us = number(content)?,
            of_trace::AHEAD => trace.ahead_count = number(content)?,
            of_trace::STATUS => {
                let status = number(content)?.checked_sub(1).and_then(|it| u16::try_from(it).ok());
                trace.status = status.and_then(Status::from_number);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(kept.map(|kept| RequestTrace { kept, ..trace }))
}

fn read_wait(bytes: &[u8]) -> Result<Option<Wait>, DecodeError> {
    let mut wait = Wait::default();
    let mut cause = None;
    each_field(bytes, of_wait::WHOM, |tag, content| {
        match tag {
            of_wait::CAUSE => {
                let number = number(content)?;
                cause = WaitCause::ALL.into_iter().find(|cause| *cause as u64 == number);
            }
            of_wait::BEGUN => wait.begun_us = number(content)?,
            of_wait::TOOK => wait.took_us = number(content)?,
            of_wait::IS_NOW => wait.is_now = number(content)? > 0,
            of_wait::WHOM => wait.whom.push(read_party(content)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(cause.map(|cause| Wait { cause, ..wait }))
}

fn read_party(bytes: &[u8]) -> Result<Party, DecodeError> {
    let mut party = Party::default();
    each_field(bytes, 0, |tag, content| {
        match tag {
            of_party::UUID => party.client = ClientUuid::decode_all(content)?,
            of_party::HOST => party.host = text(content)?,
            of_party::JOB => party.job = text(content)?,
            of_party::PID => {
                party.pid = u32::try_from(number(content)?).map_err(|_| MALFORMED)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(party)
}
