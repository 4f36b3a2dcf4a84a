//! Requests as JSON: one object each.

use super::shown::{Shown, uuid};
use super::story::{Call, Story};
use super::{explain, said};
use library::traces::{Party, Step, Wait};
use serde_json::{Value, json};

/// The object of a request. Times are in microseconds.
pub(super) fn object(story: &Story) -> Value {
    match (&story.call, story.shown.first()) {
        (Some(call), _) => of_call(story, call),
        (None, Some(shown)) => at_server(shown),
        (None, None) => Value::Null,
    }
}

fn of_call(story: &Story, call: &Call) -> Value {
    let trace = &call.trace;
    let step = |step: &Step| {
        let exchange = step.exchange.unwrap_or_default();
        json!({
            "cause": step.cause.name(),
            "begun_us": step.begun_us,
            "took_us": step.took_us,
            "is_now": step.is_now,
            "op": exchange.op.map(|op| op.row().name),
            "lane": step.exchange.map(|exchange| exchange.lane),
            "session": exchange.session.0,
            "xid": exchange.xid.0,
            "trace_id": exchange.trace_id,
            "server": story.at_server(step).map(at_server),
        })
    };
    json!({
        "kept": trace.kept.name(),
        "mount": call.mount,
        "op": trace.op,
        "pid": call.pid,
        "command": call.command,
        "inode": trace.inode.map(|inode| inode.0),
        "name": String::from_utf8_lossy(&trace.name),
        "path": call.path,
        "age_us": trace.age_us,
        "total_us": trace.total_us,
        "status": trace.status.map(|status| status.text()),
        "steps": trace.steps.iter().map(step).collect::<Vec<Value>>(),
        "why": said::sentences(story),
    })
}

fn at_server(shown: &Shown) -> Value {
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
        "reply_us": trace.reply_us,
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

/// The object for a page: with who asked for what in words.
pub(super) fn of_page(shown: &Shown) -> Value {
    let trace = &shown.trace;
    let mut object = at_server(shown);
    object["who"] = explain::client(&trace.client).into();
    object["request"] = explain::request(trace).into();
    object
}
