//! Bare bulk: sendfile from a file, or recv and pwrite into one, behind the same heads that a server
//! sends and receives. One thread, epoll, nothing else.

use crate::frames;
use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::sendfile;
use rustix::io::{Errno, ioctl_fionbio, pwrite, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::fs::{File, OpenOptions};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// The direction of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// To the client, by sendfile.
    Out,
    /// From the client, by recv and pwrite.
    In,
}

const LISTENER: u64 = u64::MAX;
const EVENT_COUNT_MAX: usize = 256;

struct Bulk {
    way: Way,
    file: File,
    file_bytes: u64,
    piece_bytes: usize,
    request_bytes: usize,
    reply: Vec<u8>,
}

struct Peer {
    socket: TcpStream,
    buffer: Vec<u8>,
    arrived_bytes: usize,
    /// Requests without a complete reply; the first may be under way.
    owed_count: usize,
    /// Sent of the first one's head and piece.
    sent_bytes: usize,
    /// Pieces moved so far: the offset of the next one.
    piece_no: u64,
}

pub(super) fn run(listener: TcpListener, path: &Path, piece_bytes: u32, way: Way) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let file_bytes = file.metadata()?.len();
    let (request_bytes, reply) = match way {
        Way::Out => (frames::read_request_bytes(), frames::read_reply(piece_bytes)),
        Way::In => {
            let bulk_bytes = usize::try_from(piece_bytes)?;
            (frames::write_request_bytes() + bulk_bytes, frames::write_reply(piece_bytes))
        }
    };
    let piece_bytes = usize::try_from(piece_bytes)?;
    let bulk = Bulk { way, file, file_bytes, piece_bytes, request_bytes, reply };
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    ring::tune_listener(&listener);
    ioctl_fionbio(&listener, true)?;
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut events = Vec::with_capacity(EVENT_COUNT_MAX);
    loop {
        events.clear();
        retry_on_intr(|| epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None))?;
        for event in &events {
            let data = event.data;
            match data.u64() {
                LISTENER => {
                    let Ok((socket, _)) = listener.accept() else { continue };
                    let edges = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                    epoll::add(&poll, &socket, EventData::new_u64(peers.len() as u64), edges)?;
                    peers.push(Some(Peer::new(socket, &bulk)?));
                }
                index => {
                    let Some(peer) = peers.get_mut(usize::try_from(index)?) else { continue };
                    let closed = peer.as_mut().is_some_and(|peer| peer.serve(&bulk).is_err());
                    if closed {
                        *peer = None;
                    }
                }
            }
        }
    }
}

impl Peer {
    fn new(socket: TcpStream, bulk: &Bulk) -> Result<Self> {
        ioctl_fionbio(&socket, true)?;
        ring::tune_socket(&socket);
        let buffer = vec![0; bulk.request_bytes];
        Ok(Self { socket, buffer, arrived_bytes: 0, owed_count: 0, sent_bytes: 0, piece_no: 0 })
    }

    /// Receives and sends until the socket would block.
    fn serve(&mut self, bulk: &Bulk) -> Result<(), Errno> {
        loop {
            let blocked = self.send_replies(bulk)?;
            match recv(&self.socket, &mut self.buffer[self.arrived_bytes..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(Errno::PIPE),
                Ok((_, received_bytes)) => self.arrived(received_bytes, bulk)?,
                Err(Errno::AGAIN) if blocked || self.owed_count == 0 => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn arrived(&mut self, received_bytes: usize, bulk: &Bulk) -> Result<(), Errno> {
        self.arrived_bytes += received_bytes;
        if self.arrived_bytes < bulk.request_bytes {
            return Ok(());
        }
        self.arrived_bytes = 0;
        if bulk.way == Way::In {
            let contents = &self.buffer[bulk.request_bytes - bulk.piece_bytes..];
            let mut written_bytes = 0;
            while written_bytes < contents.len() {
                let at = self.offset(bulk) + written_bytes as u64;
                written_bytes += pwrite(&bulk.file, &contents[written_bytes..], at)?;
            }
            self.piece_no += 1;
        }
        self.owed_count += 1;
        Ok(())
    }

    /// Returns whether the socket is full.
    fn send_replies(&mut self, bulk: &Bulk) -> Result<bool, Errno> {
        while self.owed_count > 0 {
            let sent = self.send_some(bulk);
            match sent {
                Ok(0) => return Err(Errno::PIPE),
                Ok(sent_bytes) => self.sent_bytes += sent_bytes,
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            let piece_bytes = if bulk.way == Way::Out { bulk.piece_bytes } else { 0 };
            if self.sent_bytes == bulk.reply.len() + piece_bytes {
                self.sent_bytes = 0;
                self.owed_count -= 1;
                self.piece_no += u64::from(bulk.way == Way::Out);
            }
        }
        Ok(false)
    }

    fn send_some(&self, bulk: &Bulk) -> Result<usize, Errno> {
        if let Some(head) = bulk.reply.get(self.sent_bytes..).filter(|head| !head.is_empty()) {
            let more = if bulk.way == Way::Out { SendFlags::MORE } else { SendFlags::empty() };
            return send(&self.socket, head, more | SendFlags::NOSIGNAL);
        }
        let piece_sent_bytes = self.sent_bytes - bulk.reply.len();
        let mut from = self.offset(bulk) + piece_sent_bytes as u64;
        sendfile(&self.socket, &bulk.file, Some(&mut from), bulk.piece_bytes - piece_sent_bytes)
    }

    fn offset(&self, bulk: &Bulk) -> u64 {
        let piece_bytes = bulk.piece_bytes as u64;
        self.piece_no % (bulk.file_bytes / piece_bytes).max(1) * piece_bytes
    }
}
