//! A network that loses, holds and cuts: between clients and a server, on real sockets, frame by
//! frame.
//!
//! ```text
//! client ◀─── replies ─── proxy ◀─── server        a rule meets the next frames of a direction and
//!        ─── requests ──▶       ──▶                an op, so many times, and does one thing to them
//! ```
//! Without rules every frame passes. Invariant: frames of one direction of a connection keep their
//! order, but for those that a rule holds back.

use crate::child::until;
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use wire::{FrameKind, HEADER_BYTES, Lengths, Op};

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Request,
    Reply,
}

/// What happens to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// It is gone.
    Drop,
    /// It is gone, and its connection with it.
    DropAndCut,
    /// It passes, and then its connection is gone.
    PassAndCut,
    /// It is kept until it is released. The client loses its connection; the server keeps its end
    /// and knows nothing.
    HoldAndCut,
}

/// What is done to which frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) way: Way,
    /// Of this op only; `None`: of all that take effect once.
    pub(crate) op: Option<Op>,
    pub(crate) act: Act,
    /// How many frames it meets, before they pass again.
    pub(crate) frame_count: u64,
}

struct Active {
    rule: Rule,
    met_count: u64,
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

/// The network.
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

    /// Where clients find it.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// From here on, this happens to frames; the rules before it are asked first.
    pub(crate) fn rule(&self, rule: Rule) {
        self.state().rules.push(Active { rule, met_count: 0 });
    }

    /// All frames pass again.
    pub(crate) fn clear(&self) {
        self.state().rules.clear();
    }

    /// How many frames the rules have met.
    pub(crate) fn met_count(&self) -> u64 {
        self.state().rules.iter().map(|active| active.met_count).sum()
    }

    /// Waits until the rules have met so many frames.
    pub(crate) fn wait_met(&self, frame_count: u64) -> Result<()> {
        until(&format!("{frame_count} frames are met"), || Ok(self.met_count() >= frame_count))
    }

    /// Lets what was held go where it was going.
    pub(crate) fn release(&self) -> usize {
        let held = std::mem::take(&mut self.state().held);
        let held_count = held.len();
        for (mut stream, frame) in held {
            // The receiver may have closed, which is its good right.
            stream.write_all(&frame).ok();
        }
        held_count
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        for stream in self.state().streams.drain(..) {
            // Closed already is as good.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// Nobody reaches anybody, or everybody does again.
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
        // Wakes the accepting thread, which looks.
        TcpStream::connect(self.address).ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to happen to a frame.
    fn meet(&self, way: Way, frame: &[u8]) -> Option<Act> {
        let op = Op::from_number(u16::from_le_bytes([frame[6], frame[7]]));
        let takes_effect = frame[28..30] != [0, 0];
        let mut state = self.lock();
        let active = state.rules.iter_mut().find(|active| {
            let wanted = match active.rule.op {
                Some(wanted) => op == Some(wanted),
                None => takes_effect,
            };
            wanted && active.rule.way == way && active.met_count < active.rule.frame_count
        })?;
        active.met_count += 1;
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
        // Dropping the client's end is how it learns that the server is away.
        let Ok(server) = TcpStream::connect(shared.server) else { continue };
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok();
        }
        let (Ok(client2), Ok(server2)) = (client.try_clone(), server.try_clone()) else { continue };
        let ends = [client.try_clone(), server.try_clone()];
        shared.lock().streams.extend(ends.into_iter().flatten());
        let there = shared.clone();
        thread::spawn(move || pump(Way::Request, client, server, &there));
        let back = shared.clone();
        thread::spawn(move || pump(Way::Reply, server2, client2, &back));
    }
}

/// Frames of one direction of one connection.
fn pump(way: Way, mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut keeps_server = false;
    while let Some((kind, frame)) = next_frame(&mut from) {
        let met = matches!(kind, FrameKind::Request | FrameKind::Reply);
        let act = if met { shared.meet(way, &frame) } else { None };
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
                // The connection ends either way.
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
    let client_end = if way == Way::Request { &from } else { &to };
    client_end.shutdown(Shutdown::Both).ok();
    if !keeps_server && !shared.lock().holds(if way == Way::Request { &to } else { &from }) {
        let server_end = if way == Way::Request { &to } else { &from };
        server_end.shutdown(Shutdown::Both).ok();
    }
}

impl State {
    /// Whether something is held that goes over this connection.
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
