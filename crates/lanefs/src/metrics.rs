//! `--metrics ADDR`: what the server does, at `http://ADDR/` for people, at `/metrics` for Prometheus, and at
//! `/api/counters` and `/api/requests` for the page itself.
//!
//! Threads of their own answer; each request asks the lanes of this process ([`Lanes`]). Invariant: beyond loopback nobody gets them without the token, and on loopback no web
//! page of another site does.

mod http;
mod json;
mod page;
mod text;

use crate::exit::Exit;
use crate::questions::Lanes;
use crate::{address, args, up};
use anyhow::{Context as _, Result, bail};
use http::{Body, Refusal, Wanted};
pub(crate) use json::About;
use library::{Snapshot, Traces};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::{info, warn};
use wire::Question;

/// Connections that are answered at a time; others are refused.
const CONN_COUNT_MAX: usize = 16;
/// How long a lane is waited for that does not answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a connection that could not be taken: descriptors may be missing for longer.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket, and what opens it.
pub(crate) struct Metrics {
    listener: TcpListener,
    at: SocketAddr,
    token: Option<String>,
}

/// What every connection needs.
struct Served {
    lanes: Lanes,
    about: About,
    token: Option<String>,
}

impl Served {
    /// The counters of each lane, in their order; or the number of the first one that did not answer.
    fn counters(&self) -> Result<Vec<Snapshot>, usize> {
        self.ask(&Question::Counters, Snapshot::decode)
    }

    /// What is slow or waits. Names of files are for those alone who have the token: every user of this machine
    /// may open a page without one.
    fn requests(&self) -> Result<Result<Body>, usize> {
        let traces = self.ask(&Question::Traces, Traces::decode)?;
        Ok(json::requests(traces, self.token.is_some()))
    }

    fn ask<T, E>(
        &self,
        question: &Question,
        decode: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<Vec<T>, usize> {
        let answers = self.lanes.ask(&question.encode(), ASK_TIMEOUT)?;
        let read = |(lane_no, answer): (usize, &Vec<u8>)| decode(answer).map_err(|_| lane_no);
        answers.iter().enumerate().map(read).collect()
    }
}

impl Metrics {
    /// Listens, if that is wanted.
    ///
    /// # Errors
    /// An address that is not loopback without a token; a token file that others may read.
    pub(crate) fn open(args: &args::MetricsArg) -> Result<Option<Self>> {
        let Some(listen) = &args.metrics else { return Ok(None) };
        let token = args.metrics_token_file.as_deref().map(read_token).transpose()?;
        let listener = up::bind(listen, "--metrics")?;
        let at = listener.local_addr().context("the socket of the metrics has no address")?;
        if !at.ip().is_loopback() && token.is_none() {
            let line = format!(
                "{at} can be reached from other machines: --metrics-token-file FILE says which token \
                 opens the metrics"
            );
            bail!(Exit::usage(line));
        }
        Ok(Some(Self { listener, at, token }))
    }

    /// Where the page is, for this machine.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", address::loopback_if_unspecified(self.at))
    }

    /// Answers from here on.
    pub(crate) fn start(self, lanes: Lanes, about: About) -> Result<()> {
        info!("metrics at {}, for Prometheus at {0}metrics", self.url());
        let Self { listener, token, at: _ } = self;
        let served = Arc::new(Served { lanes, about, token });
        thread("metrics", move || accept(&listener, &served))
    }
}

fn accept(listener: &TcpListener, served: &Arc<Served>) {
    let conn_count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if conn_count.fetch_add(1, Ordering::Relaxed) >= CONN_COUNT_MAX {
            conn_count.fetch_sub(1, Ordering::Relaxed);
            // It does not matter to a peer that takes nothing.
            http::refuse_at_once(&mut stream, &Refusal::TooMany).ok();
            continue;
        }
        let (served, count) = (served.clone(), conn_count.clone());
        let started = thread("metrics", move || {
            // A peer that went away needs no answer.
            serve(stream, &served).ok();
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            conn_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map(drop).context("cannot start a thread")
}

/// The token of a file that only its owner may read.
fn read_token(path: &Path) -> Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    let found = std::fs::metadata(path).with_context(|| format!("the token {shown}"))?;
    if found.permissions().mode() & 0o077 != 0 {
        bail!("the token {shown} is open to others: chmod 600 {shown}");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("the token {shown}"))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        bail!("the token {shown} is not one word");
    }
    Ok(token.to_owned())
}

fn serve(mut stream: TcpStream, served: &Served) -> io::Result<()> {
    let Some(request) = http::read(&mut stream)? else {
        return http::refuse(&mut stream, &Refusal::NoRequest);
    };
    let (wanted, has_body) = match http::judge(&request, served.token.as_deref()) {
        Err(refusal) => return http::refuse(&mut stream, &refusal),
        Ok(wanted) => wanted,
    };
    let body = match wanted {
        Wanted::Page => Ok(page::body()),
        Wanted::Metrics => served
            .counters()
            .map(|lanes| Ok(Body::metrics(text::exposition(args::VERSION, &lanes)))),
        Wanted::Counters => served.counters().map(|lanes| json::body(&served.about, &lanes)),
        Wanted::Requests => served.requests(),
    };
    let body = match body {
        Ok(body) => body,
        Err(lane_no) => {
            warn!("lane {lane_no} does not answer for the metrics");
            return http::refuse(&mut stream, &Refusal::NoAnswer { lane_no });
        }
    };
    match body {
        Ok(body) => http::answer(&mut stream, &body, has_body),
        Err(error) => {
            warn!("the metrics cannot be shown: {error:#}");
            http::refuse(&mut stream, &Refusal::Failed)
        }
    }
}
