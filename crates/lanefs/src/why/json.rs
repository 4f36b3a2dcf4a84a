//! Requests as JSON: one object each.

use super::explain;
use super::shown::{Shown, uuid};
use library::traces::{Party, Wait};
use serde_json::{Value, json};

/// The object of a request. Times are in microseconds.
pub(super) fn object(shown: &Shown) -> Value {
    let Shown { lane, trace } = shown;
    json!({
        "kept": trace.kept.name(),
        "lane": lane,
        "op": trace.op.map(|op| op.row().name),
        "client": party(&trace.client),
        "export": trace.export,
        "inode": trace.inode.map(|inode| inode.0),
        "name": String::from_utf8_lossy(&trace.name),
        "session": trace.session.0,
        "xid": trace.xid.0,
        "trace_id": trace.trace_id,
        "age_us": trace.age_us,
        "total_us": trace.total_us(),
        "queue_us": trace.queue_us,
        "execution_us": trace.execution_us,
        "commit_us": trace.commit_us,
        "flush_us": trace.flush_us,
        "ahead_count": trace.ahead_count,
        "status": trace.status.map(|status| status.text()),
        "waits": trace.waits.iter().map(wait).collect::<Vec<Value>>(),
        "why": explain::sentences(shown),
    })
}

fn wait(Wait { cause, begun_us, took_us, is_now, whom }: &Wait) -> Value {
    json!({
        "cause": cause.name(),
        "begun_us": begun_us,
        "took_us": took_us,
        "is_now": is_now,
        "whom": whom.iter().map(party).collect::<Vec<Value>>(),
    })
}

fn party(party: &Party) -> Value {
    json!({ "uuid": uuid(party), "host": party.host, "job": party.job, "pid": party.pid })
}
