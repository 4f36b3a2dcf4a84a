//! `serve --metrics ADDR`: the server's counters for Prometheus, at `http://ADDR/metrics`.
//!
//! Threads of their own answer, never a lane: the server's counters are asked for as any administrator asks for
//! them, over a connection to this server. Invariant: beyond loopback nobody gets them without the token.

mod http;
mod text;

use crate::exit::Exit;
use crate::{address, args, up};
use anyhow::{Context as _, Result, bail};
use http::Verdict;
use library::{ConnectOptions, Identity, Purpose, Sealing, Volume};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tracing::{info, warn};
use wire::Secret;

/// Connections that are answered at a time; others are closed.
const CONN_COUNT_MAX: usize = 16;
/// How long a server is asked that does not answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// The socket, and what opens it.
pub(crate) struct Metrics {
    listener: TcpListener,
    token: Option<String>,
}

/// How this process reaches its own server.
pub(crate) struct Source {
    pub(crate) address: SocketAddr,
    pub(crate) secret: Secret,
    /// Read again when the server refuses the secret.
    pub(crate) secret_file: PathBuf,
    pub(crate) sealing: Sealing,
}

/// Who waits for the metrics, as text.
type Asked = Sender<Result<String, library::Error>>;

impl Metrics {
    /// Listens, if that is wanted. `has_secret`: the server's secret is known to this process.
    ///
    /// # Errors
    /// An address that is not loopback without a token; a token file that others may read.
    pub(crate) fn open(args: &args::MetricsArg, has_secret: bool) -> Result<Option<Self>> {
        let Some(listen) = &args.metrics else { return Ok(None) };
        if !has_secret {
            let line = "--metrics asks the server with its secret: name one with --secret-file, beside \
                        the certificates";
            bail!(Exit::usage(line));
        }
        let token = args.metrics_token_file.as_deref().map(read_token).transpose()?;
        let listener = up::bind(listen).context("--metrics")?;
        let at = listener.local_addr().context("the socket of the metrics has no address")?;
        if !at.ip().is_loopback() && token.is_none() {
            let line = format!(
                "{at} can be reached from other machines: --metrics-token-file FILE says which token \
                 opens the metrics"
            );
            bail!(Exit::usage(line));
        }
        Ok(Some(Self { listener, token }))
    }

    /// Answers from here on.
    pub(crate) fn start(self, source: Source) -> Result<()> {
        let at = self.listener.local_addr().context("the socket of the metrics has no address")?;
        let (sender, asked) = channel();
        thread("counters", move || collect(&source, &asked))?;
        thread("metrics", move || self.accept(&sender))?;
        info!("metrics at http://{at}/metrics");
        Ok(())
    }

    fn accept(&self, sender: &Sender<Asked>) {
        let conn_count = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else { continue };
            if conn_count.fetch_add(1, Ordering::Relaxed) >= CONN_COUNT_MAX {
                conn_count.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (sender, token, count) = (sender.clone(), self.token.clone(), conn_count.clone());
            let started = thread("metrics", move || {
                // A peer that went away needs no answer.
                serve(stream, token.as_deref(), &sender).ok();
                count.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                conn_count.fetch_sub(1, Ordering::Relaxed);
            }
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

fn serve(mut stream: TcpStream, token: Option<&str>, sender: &Sender<Asked>) -> io::Result<()> {
    let Some(request) = http::read(&mut stream)? else {
        return http::refuse(&mut stream, "400 Bad Request");
    };
    let has_body = match http::judge(&request, token) {
        Verdict::Refused(status) => return http::refuse(&mut stream, status),
        Verdict::Metrics { has_body } => has_body,
    };
    let (asked, answer) = channel();
    // Without an answer there is none to receive.
    let _unheard = sender.send(asked);
    match answer.recv_timeout(ASK_TIMEOUT) {
        Ok(Ok(text)) => http::answer(&mut stream, &text, has_body),
        Ok(Err(error)) => {
            warn!("the metrics cannot be asked for: {error}");
            http::refuse(&mut stream, "503 Service Unavailable")
        }
        Err(_) => http::refuse(&mut stream, "503 Service Unavailable"),
    }
}

/// Asks the server for each who waits, over one connection, made again when it is lost.
fn collect(source: &Source, asked: &Receiver<Asked>) {
    let mut volume = None;
    for waiting in asked {
        let counted = count(&mut volume, source);
        if counted.is_err() {
            volume = None;
        }
        // It went away.
        let _unheard = waiting.send(counted);
    }
}

fn count(volume: &mut Option<Volume>, source: &Source) -> Result<String, library::Error> {
    let volume = match volume {
        Some(volume) => volume,
        None => volume.insert(Volume::connect(&options(source))?),
    };
    Ok(text::exposition(args::VERSION, &volume.counters()?))
}

fn options(source: &Source) -> ConnectOptions {
    let Source { address, secret, secret_file, sealing } = source;
    ConnectOptions {
        secret_file: Some(secret_file.clone()),
        purpose: Purpose::Administer,
        identity: Identity::new(0, 0, &[]),
        connect_timeout: ASK_TIMEOUT,
        sealing: *sealing,
        ..ConnectOptions::new(address::loopback_if_unspecified(*address), *secret)
    }
}
