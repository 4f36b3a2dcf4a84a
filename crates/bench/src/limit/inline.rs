//! A lane without a file system that reads or writes a piece of one file for each request, by pread
//! and pwrite of its own thread.
//!
//! The ring does framing, sockets and checksums, as for a server. Invariant: replies leave in the
//! order of their requests, once a turn.

use super::echo::Echo;
use crate::frames;
use anyhow::{Context as _, Result};
use interface::{Action, Bulk, ConnId, Core, Event, NetAction, NetEvent, Turn};
use ring::{Config, DriverChoice, DriverKind, Ring};
use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use wire::{Header, LaneId, Op};

pub(super) fn run(
    listener: TcpListener,
    driver: DriverKind,
    path: &Path,
    piece_bytes: u32,
) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let mut config = Config::new(LaneId(0));
    config.driver = DriverChoice::Only(driver);
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).context("cannot set up the lane's ring")?;
    let mut file_state = InlineFile::new(file, piece_bytes)?;
    let mut core = Inline { echo: Echo::new(), request: Vec::new() };
    while ring.turn(&mut core).context("the lane failed")? {
        for request in core.request.drain(..) {
            file_state.answer(&mut ring, &request).context("the file failed")?;
        }
    }
    Ok(())
}

/// A request; with a bulk it is a write.
struct Request {
    conn: ConnId,
    bulk: Option<Bulk>,
}

/// Collects the requests: a lane core does not access files.
struct Inline {
    echo: Echo,
    request: Vec<Request>,
}

impl Core for Inline {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is as in the echo")]
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(NetEvent::Frame { conn, frame, bulk }) => {
                if self.echo.counts(turn, conn, frame) {
                    self.request.push(Request { conn, bulk });
                }
            }
            other => self.echo.apply(turn, other),
        }
    }

    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// The file, and its pieces.
struct InlineFile {
    file: File,
    piece: Vec<u8>,
    piece_count: u64,
    piece_no: u64,
    written: Vec<u8>,
}

impl InlineFile {
    fn new(file: File, piece_bytes: u32) -> Result<Self> {
        let piece_count = (file.metadata()?.len() / u64::from(piece_bytes)).max(1);
        let piece = vec![0; usize::try_from(piece_bytes)?];
        let written = frames::write_reply(piece_bytes);
        Ok(Self { file, piece, piece_count, piece_no: 0, written })
    }

    /// Performs the request; its reply leaves with the next turn.
    fn answer(&mut self, ring: &mut Ring, request: &Request) -> Result<()> {
        let conn = request.conn;
        let piece_bytes = self.piece.len() as u64;
        let offset = self.piece_no % self.piece_count * piece_bytes;
        self.piece_no += 1;
        if let Some(bulk) = request.bulk {
            self.file.write_all_at(ring.bulk_bytes(bulk), offset)?;
            ring.with(|turn| {
                let frame = turn.arena.put(&self.written);
                turn.act(NetAction::Send { conn, frame, bulk: None });
                turn.act(Action::Release { buf: bulk.buf });
            });
            return Ok(());
        }
        self.file.read_exact_at(&mut self.piece, offset)?;
        let bulk = ring.bulk_of(&self.piece).context("no memory for what was read")?;
        let head = Header::Reply(frames::reply_head(Op::Read));
        ring.with(|turn| {
            let lengths = Some((bulk.bulk_bytes, bulk.crc32c));
            let frame = turn.arena.write(|out| head.encode(out, lengths, |_| {}));
            turn.act(NetAction::Send { conn, frame, bulk: Some(bulk) });
            turn.act(Action::Release { buf: bulk.buf });
        });
        Ok(())
    }
}
