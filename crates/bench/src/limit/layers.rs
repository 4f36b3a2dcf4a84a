//! An echo as the servers of 2006 were built: a thread for each layer, and between each two a queue with
//! a lock and a condition that is signalled for every request (PVFS2 developers list, 2006: BMI, job and
//! trove threads).
//!
//! The first thread receives, the last one sends; with no hop they are the same. Invariant: replies are
//! all alike, so it does not matter whose is sent first.

use crate::frames;
use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// Received at a time.
const SPACE_BYTES: usize = 64 * 1024;
/// Connections that are served in a turn.
const READY_COUNT_MAX: usize = 256;
/// The epoll key of the listening socket.
const LISTENER: u64 = u64::MAX;

/// A request: only the address of its reply matters.
type Request = Arc<TcpStream>;

/// The queue between two layers.
#[derive(Default)]
struct Queue {
    requests: Mutex<VecDeque<Request>>,
    some: Condvar,
}

impl Queue {
    fn push(&self, request: Request) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push_back(request);
        drop(requests);
        self.some.notify_one();
    }

    fn pop(&self) -> Request {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(request) = requests.pop_front() {
                return request;
            }
            requests = self.some.wait(requests).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The next step of a layer's requests.
enum Next {
    Queue(Arc<Queue>),
    /// The reply.
    Reply(Vec<u8>),
}

impl Next {
    fn take(&self, request: Request) {
        match self {
            Self::Queue(queue) => queue.push(request),
            // It fails when the peer has closed, which the first layer notices as well.
            Self::Reply(reply) => drop((&*request).write_all(reply)),
        }
    }
}

/// Echoes until the process ends.
pub(super) fn run(listener: &TcpListener, hop_count: u8) -> Result<()> {
    let mut next = Next::Reply(frames::getattr_reply());
    for hop in (1..=hop_count).rev() {
        let queue = Arc::new(Queue::default());
        let (from, to) = (Arc::clone(&queue), next);
        let layer = move || {
            loop {
                to.take(from.pop());
            }
        };
        let started = thread::Builder::new().name(format!("layer {hop}")).spawn(layer);
        started.context("cannot start a thread")?;
        next = Next::Queue(queue);
    }
    receive(listener, &next)
}

/// A connection, and how much of its next request has arrived.
struct Conn {
    stream: Request,
    part_bytes: usize,
}

fn receive(listener: &TcpListener, next: &Next) -> Result<()> {
    let request_bytes = frames::getattr_request_bytes();
    let poll = epoll::create(CreateFlags::CLOEXEC).context("no epoll")?;
    epoll::add(&poll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut conns: Vec<Option<Conn>> = Vec::new();
    let mut buffer = vec![0; SPACE_BYTES];
    let mut ready = Vec::with_capacity(READY_COUNT_MAX);
    loop {
        ready.clear();
        retry_on_intr(|| epoll::wait(&poll, rustix::buffer::spare_capacity(&mut ready), None))
            .context("the first layer cannot wait")?;
        for event in &ready {
            let index = event.data.u64();
            if index == LISTENER {
                let (stream, _) = listener.accept().context("cannot accept")?;
                conns.push(Some(meet(&poll, stream, conns.len())?));
                continue;
            }
            let Some(slot) = usize::try_from(index).ok().and_then(|index| conns.get_mut(index))
            else {
                continue;
            };
            let Some(conn) = slot else { continue };
            match recv(&conn.stream, &mut buffer[..], RecvFlags::DONTWAIT) {
                // Closed: the last reply under way holds the socket until it is sent.
                Ok((_, 0)) => {
                    epoll::delete(&poll, &conn.stream)?;
                    *slot = None;
                }
                Ok((_, received_bytes)) => {
                    conn.part_bytes += received_bytes;
                    for _ in 0..conn.part_bytes / request_bytes {
                        next.take(Arc::clone(&conn.stream));
                    }
                    conn.part_bytes %= request_bytes;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => {
                    epoll::delete(&poll, &conn.stream)?;
                    *slot = None;
                }
            }
        }
    }
}

fn meet(poll: &OwnedFd, stream: TcpStream, index: usize) -> Result<Conn> {
    stream.set_nodelay(true).context("no TCP_NODELAY")?;
    epoll::add(poll, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
    Ok(Conn { stream: Arc::new(stream), part_bytes: 0 })
}
