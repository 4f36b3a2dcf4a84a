//! The parts of a request on one timeline, for the programs that show those: the whole, its phases and waits,
//! each below the part that it belongs to.

use super::shown::Shown;
use super::story::{Call, Story};
use super::{explain, said};
use library::traces::{Step, StepCause};

/// A part of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) name: String,
    /// Where it happened: a mount, or a server for a client.
    pub(super) place: String,
    pub(super) lane: u16,
    /// When it began: so long ago.
    pub(super) ago_us: u64,
    pub(super) took_us: u64,
    /// The position of the part that this one is of, among those of the request.
    pub(super) within: Option<usize>,
    /// What else is known of it.
    pub(super) notes: Vec<(&'static str, String)>,
}

/// The parts of a request; the first one is the whole.
pub(super) fn of(story: &Story) -> Vec<Span> {
    let mut spans = Vec::new();
    match (&story.call, story.shown.first()) {
        (Some(call), _) => of_call(&mut spans, story, call),
        (None, Some(shown)) => {
            let place = format!("client {}", explain::client(&shown.trace.client));
            at_server(&mut spans, shown, (None, place, shown.trace.age_us));
        }
        (None, None) => {}
    }
    spans
}

fn of_call(spans: &mut Vec<Span>, story: &Story, call: &Call) {
    let trace = &call.trace;
    let place = format!("mount {}", call.mount);
    spans.push(Span {
        name: format!("{} {}", trace.op, call.path),
        place: place.clone(),
        lane: 0,
        ago_us: trace.age_us,
        took_us: trace.total_us,
        within: None,
        notes: vec![
            ("why", said::sentences(story).join("\n")),
            ("process", format!("{} {}", call.pid.unwrap_or(0), call.command)),
        ],
    });
    for step in &trace.steps {
        let Step { cause, begun_us, took_us, exchange, .. } = step;
        let op = exchange.and_then(|exchange| exchange.op).map_or("?", |op| op.row().name);
        let name = if *cause == StepCause::Reply {
            format!("exchange: {op}")
        } else {
            format!("wait: {}", cause.name())
        };
        let ago_us = trace.age_us.saturating_sub(*begun_us);
        let (took_us, within, notes) = (*took_us, Some(0), Vec::new());
        spans.push(Span { name, place: place.clone(), lane: 0, ago_us, took_us, within, notes });
        if let Some(shown) = story.at_server(step).filter(|_| *cause == StepCause::Reply) {
            // Clocks of hosts differ: what the server had it less than the exchange took is half before.
            let way_us = took_us.saturating_sub(shown.trace.total_us()) / 2;
            let place = format!("server, for client {}", explain::client(&shown.trace.client));
            let within = Some(spans.len() - 1);
            at_server(spans, shown, (within, place, ago_us.saturating_sub(way_us)));
        }
    }
}

fn at_server(
    spans: &mut Vec<Span>,
    shown: &Shown,
    (within, place, ago_us): (Option<usize>, String, u64),
) {
    let Shown { lane, trace } = shown;
    let whole = spans.len();
    let mut add = |name: String, begun_us: u64, took_us: u64, within, notes| {
        let (place, lane, ago_us) = (place.clone(), *lane, ago_us.saturating_sub(begun_us));
        spans.push(Span { name, place, lane, ago_us, took_us, within, notes });
    };
    let why = vec![
        ("why", explain::sentences(shown).join("\n")),
        ("trace_id", trace.trace_id.to_string()),
    ];
    add(explain::request(trace), 0, trace.total_us(), within, why);
    let mut at_us = 0;
    let phases = [
        ("queue", trace.queue_us),
        ("execution", trace.execution_us),
        ("commit", trace.commit_us),
        ("reply", trace.reply_us),
    ];
    for (name, took_us) in phases {
        if took_us > 0 {
            add(name.to_owned(), at_us, took_us, Some(whole), Vec::new());
        }
        at_us += took_us;
    }
    for wait in &trace.waits {
        let whom: Vec<String> = wait.whom.iter().map(explain::client).collect();
        let name = format!("wait: {}", wait.cause.name());
        let notes = vec![("whom", whom.join(", "))];
        add(name, wait.begun_us, wait.took_us, Some(whole), notes);
    }
}
