//! A network between clients and a server that drops, delays and cuts: a proxy on real sockets,
//! frame by frame.
//!
//! ```text
//! client ◀─── replies ─── proxy ◀─── server        a rule matches the next frames of a direction and
//!        ─── requests ──▶       ──▶                an op, so many times, and does one thing to them
//! ```
//! Without rules every frame passes. Invariant: frames of one direction of a connection keep their
//! order, except those that a rule holds.

use crate::child::until;
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use wire::{FrameKind, HEADER_BYTES, Lengths, Op};

/// The direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Request,
    Reply,
}

/// What happens to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// The frame is dropped.
    Drop,
    /// The frame is dropped and its connection closed.
    DropAndCut,
    /// The frame passes, then its connection is closed.
    PassAndCut,
    /// The frame is held until it is released. The client loses its connection; the server's
    /// connection stays open.
    HoldAndCut,
}

/// What happens to which frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) direction: Direction,
    /// Only frames of this op; `None`: of all ops that take effect once.
    pub(crate) op: Option<Op>,
    pub(crate) act: Act,
    /// How many frames it matches before it expires.
    pub(crate) frame_count: u64,
}

struct Active {
    rule: Rule,
    matched_count: u64,
}

#[derive(Default)]
struct State {
    rules: Vec<Active>,
    held: Vec<(TcpStream, Vec<u8>)>,
    streams: Vec<TcpStream>,
    parted: bool,
}

struct Shared {
    state: Mutex<State>,
    server: SocketAddr,
    over: AtomicBool,
}

/// The proxy.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Proxy {
    /// In front of a server.
    pub(crate) fn new(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("the proxy cannot listen")?;
        let address = listener.local_addr()?;
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, server, over: AtomicBool::new(false) });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Ok(Self { shared, address })
    }

    /// The address for clients.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Adds a rule; earlier rules match first.
    pub(crate) fn rule(&self, rule: Rule) {
        self.state().rules.push(Active { rule, matched_count: 0 });
    }

    /// All frames pass again.
    pub(crate) fn clear(&self) {
        self.state().rules.clear();
    }

    /// How many frames the rules have matched.
    pub(crate) fn matched_count(&self) -> u64 {
        self.state().rules.iter().map(|active| active.matched_count).sum()
    }

    /// Waits until the rules have matched so many frames.
    pub(crate) fn wait_matched(&self, frame_count: u64) -> Result<()> {
        until(&format!("{frame_count} frames have matched"), || {
            Ok(self.matched_count() >= frame_count)
        })
    }

    /// Sends the held frames on; returns how many.
    pub(crate) fn release(&self) -> usize {
        let held = std::mem::take(&mut self.state().held);
        let held_count = held.len();
        for (mut stream, frame) in held {
            // The receiver may have closed the connection.
            stream.write_all(&frame).ok();
        }
        held_count
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        for stream in self.state().streams.drain(..) {
            // It may be closed already.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// Begins or ends a partition between all clients and the server.
    pub(crate) fn part(&self, parted: bool) {
        self.state().parted = parted;
        if parted {
            self.cut();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the accepting thread, which then ends.
        TcpStream::connect(self.address).ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The action of the first rule that matches a frame.
    fn match_rules(&self, direction: Direction, frame: &[u8]) -> Option<Act> {
        let op = Op::from_number(u16::from_le_bytes([frame[6], frame[7]]));
        let takes_effect = frame[28..30] != [0, 0];
        let mut state = self.lock();
        let active = state.rules.iter_mut().find(|active| {
            let wanted = match active.rule.op {
                Some(wanted) => op == Some(wanted),
                None => takes_effect,
            };
            wanted
                && active.rule.direction == direction
                && active.matched_count < active.rule.frame_count
        })?;
        active.matched_count += 1;
        Some(active.rule.act)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(client) = client else { continue };
        if shared.lock().parted {
            continue;
        }
        // The client learns from its closed connection that the server is down.
        let Ok(server) = TcpStream::connect(shared.server) else { continue };
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok();
        }
        let (Ok(client2), Ok(server2)) = (client.try_clone(), server.try_clone()) else { continue };
        let ends = [client.try_clone(), server.try_clone()];
        shared.lock().streams.extend(ends.into_iter().flatten());
        let there = shared.clone();
        thread::spawn(move || pump(Direction::Request, client, server, &there));
        let back = shared.clone();
        thread::spawn(move || pump(Direction::Reply, server2, client2, &back));
    }
}

/// Passes the frames of one direction of one connection.
fn pump(direction: Direction, mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut keeps_server = false;
    while let Some((kind, frame)) = next_frame(&mut from) {
        let has_rules = matches!(kind, FrameKind::Request | FrameKind::Reply);
        let act = if has_rules { shared.match_rules(direction, &frame) } else { None };
        match act {
            Some(Act::Drop) => {}
            Some(Act::DropAndCut) => break,
            Some(Act::HoldAndCut) => {
                if let Ok(to) = to.try_clone() {
                    shared.lock().held.push((to, frame));
                }
                keeps_server = true;
                break;
            }
            Some(Act::PassAndCut) => {
                // The connection ends whether this succeeds or fails.
                to.write_all(&frame).ok();
                break;
            }
            None => {
                if to.write_all(&frame).is_err() {
                    break;
                }
            }
        }
    }
    let client_end = if direction == Direction::Request { &from } else { &to };
    client_end.shutdown(Shutdown::Both).ok();
    if !keeps_server
        && !shared.lock().holds(if direction == Direction::Request { &to } else { &from })
    {
        let server_end = if direction == Direction::Request { &to } else { &from };
        server_end.shutdown(Shutdown::Both).ok();
    }
}

impl State {
    /// Whether a held frame is to be sent over this connection.
    fn holds(&self, stream: &TcpStream) -> bool {
        let port = |stream: &TcpStream| stream.local_addr().map(|address| address.port()).ok();
        self.held.iter().any(|(held, _)| port(held) == port(stream))
    }
}

fn next_frame(from: &mut TcpStream) -> Option<(FrameKind, Vec<u8>)> {
    let mut frame = vec![0; HEADER_BYTES];
    from.read_exact(&mut frame).ok()?;
    let lengths = Lengths::peek(frame.first_chunk()?).ok()?;
    frame.resize(lengths.frame_bytes + lengths.bulk_bytes as usize, 0);
    from.read_exact(&mut frame[HEADER_BYTES..]).ok()?;
    Some((lengths.kind, frame))
}
