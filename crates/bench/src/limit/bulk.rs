//! Bare bulk: sendfile from a file, or recv and pwrite into one, behind the same heads that a server
//! sends and receives. One thread, epoll, nothing else; a second one syncs the file, if wanted.

use crate::frames;
use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::sendfile;
use rustix::io::{Errno, ioctl_fionbio, pwrite, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::fs::{File, OpenOptions};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The direction of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// To the client, by sendfile.
    Out,
    /// From the client, by recv and pwrite.
    In,
    /// The same, and made durable behind the replies, as a server does.
    InSynced,
}

const LISTENER: u64 = u64::MAX;
const EVENT_COUNT_MAX: usize = 256;
/// Bytes, or time, after which what was written is synced: those of a server.
const UNSYNCED_BYTES_MAX: u64 = 8 << 20;
const SYNC_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a client that may not be durable, as with a client's replay lists.
const CLIENT_UNSYNCED_BYTES_MAX: u64 = 64 << 20;

struct Bulk {
    way: Way,
    file: File,
    file_bytes: u64,
    piece_bytes: usize,
    request_bytes: usize,
    reply: Vec<u8>,
    syncer: Option<Arc<Syncer>>,
}

/// The bytes written and synced so far.
#[derive(Default)]
struct Syncer {
    bytes: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Syncer {
    /// Syncs the file again and again.
    fn run(&self, file: &File) {
        let mut bytes = lock(&self.bytes);
        loop {
            let is_early =
                |&mut (written, synced): &mut (u64, u64)| written - synced < UNSYNCED_BYTES_MAX;
            let waited = self.changed.wait_timeout_while(bytes, SYNC_EVERY, is_early);
            bytes = waited.unwrap_or_else(PoisonError::into_inner).0;
            let (written_bytes, synced_bytes) = *bytes;
            if written_bytes == synced_bytes {
                continue;
            }
            drop(bytes);
            if file.sync_data().is_err() {
                return;
            }
            bytes = lock(&self.bytes);
            bytes.1 = written_bytes;
            self.changed.notify_all();
        }
    }

    /// So many bytes are about to be written: waits while too many are not durable.
    fn on_write(&self, write_bytes: u64, client_count: u64) {
        let is_full = |&mut (written, synced): &mut (u64, u64)| {
            written - synced >= client_count * CLIENT_UNSYNCED_BYTES_MAX
        };
        let waited = self.changed.wait_while(lock(&self.bytes), is_full);
        let mut bytes = waited.unwrap_or_else(PoisonError::into_inner);
        bytes.0 += write_bytes;
        if bytes.0 - bytes.1 >= UNSYNCED_BYTES_MAX {
            self.changed.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        Way::In | Way::InSynced => {
            let bulk_bytes = usize::try_from(piece_bytes)?;
            (frames::write_request_bytes() + bulk_bytes, frames::write_reply(piece_bytes))
        }
    };
    let piece_bytes = usize::try_from(piece_bytes)?;
    let syncer = (way == Way::InSynced).then(|| Arc::new(Syncer::default()));
    if let Some(syncer) = syncer.clone() {
        let file = file.try_clone()?;
        std::thread::spawn(move || syncer.run(&file));
    }
    let bulk = Bulk { way, file, file_bytes, piece_bytes, request_bytes, reply, syncer };
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
                    let count = peers.len() as u64;
                    let Some(peer) = peers.get_mut(usize::try_from(index)?) else { continue };
                    let closed =
                        peer.as_mut().is_some_and(|peer| peer.serve(&bulk, count).is_err());
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
    fn serve(&mut self, bulk: &Bulk, client_count: u64) -> Result<(), Errno> {
        loop {
            let blocked = self.send_replies(bulk)?;
            match recv(&self.socket, &mut self.buffer[self.arrived_bytes..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(Errno::PIPE),
                Ok((_, received_bytes)) => self.arrived((received_bytes, client_count), bulk)?,
                Err(Errno::AGAIN) if blocked || self.owed_count == 0 => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn arrived(
        &mut self,
        (received_bytes, client_count): (usize, u64),
        bulk: &Bulk,
    ) -> Result<(), Errno> {
        self.arrived_bytes += received_bytes;
        if self.arrived_bytes < bulk.request_bytes {
            return Ok(());
        }
        self.arrived_bytes = 0;
        if bulk.way != Way::Out {
            if let Some(syncer) = &bulk.syncer {
                syncer.on_write(bulk.piece_bytes as u64, client_count);
            }
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
