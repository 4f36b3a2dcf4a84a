//! The client's end of an inspection: a process on the server's host reads the store, and this end applies the
//! frames of its stream.
//!
//! Invariants: a stream without its last frame has failed; a freeze of changes ends with this process.

use crate::exit::{Code, Exit};
use crate::online::{self, Freeze};
use crate::progress::Progress;
use crate::{args, export, out};
use anyhow::{Context as _, Result, bail};
use check::Finished;
use check::stream::{Folder, Frame, Malformed};
use library::{Error, Inspect, Inspection, Status, Volume};
use std::path::Path;

/// Checks or dumps the store of a server; prints the same as the command on its host.
pub(crate) fn print(server: &args::Server, inspection: Inspection) -> Result<()> {
    let client = Client::begin(server, inspection)?;
    client.run(&mut |frame| match frame {
        Frame::Output(bytes) => out::print_bytes(bytes),
        Frame::Line(_)
        | Frame::Pass(_)
        | Frame::Looked(_)
        | Frame::Freeze
        | Frame::Thaw
        | Frame::Round
        | Frame::Same(_)
        | Frame::Object(_)
        | Frame::Data { .. }
        | Frame::Whole
        | Frame::Removed
        | Frame::Unread(_)
        | Frame::Metadata(_)
        | Frame::End { .. } => Err(Malformed.into()),
    })
}

/// Copies the store of a server into a new folder.
pub(crate) fn backup(server: &args::Server, dir: &Path, freeze_ms_max: u64) -> Result<Finished> {
    let client = Client::begin(server, Inspection::Backup { freeze_ms_max })?;
    let mut folder = Folder::begin(dir)?;
    client.run(&mut |frame| Ok(folder.take(frame)?))?;
    Ok(folder.finish()?)
}

/// The client's state while a stream arrives.
struct Client<'a> {
    server: &'a args::Server,
    volume: Volume,
    progress: Progress,
    /// The freeze in force.
    freeze: Option<Freeze>,
}

/// How a stream ended.
struct End {
    code: u8,
    line: String,
}

impl<'a> Client<'a> {
    fn begin(server: &'a args::Server, inspection: Inspection) -> Result<Self> {
        let (mut volume, _) = export::connect(server)?;
        volume.inspect(Inspect::Start(inspection)).map_err(why)?;
        Ok(Self { server, volume, progress: Progress::new(), freeze: None })
    }

    /// Reads the stream to its end. `take` gets the frames other than progress, lines and freezes.
    fn run(mut self, take: &mut dyn FnMut(&Frame<'_>) -> Result<()>) -> Result<()> {
        let ended = self.read(take);
        self.progress.end();
        if let Some(freeze) = self.freeze.take() {
            // The error of the stream is reported below; the freeze must end in any case.
            let _ended = freeze.end();
        }
        let End { code, line } = ended?;
        self.volume.leave()?;
        match code {
            0 => Ok(()),
            code => Err(Exit::new(Code::of_number(code).unwrap_or(Code::Failed), line).into()),
        }
    }

    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>) -> Result<()>) -> Result<End> {
        let (mut stream_offset, mut unread) = (0, Vec::new());
        loop {
            let (bytes, end) = self.volume.inspect(Inspect::Read { stream_offset }).map_err(why)?;
            stream_offset += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            unread.extend_from_slice(&bytes);
            let mut at = 0;
            while let Some((frame, frame_bytes)) = Frame::decode(&unread[at..])? {
                at += frame_bytes;
                if let Frame::End { code, line } = frame {
                    return Ok(End { code, line: line.to_owned() });
                }
                self.on_frame(&frame, take)?;
            }
            unread.drain(..at);
            if end {
                bail!(
                    "the process that read the store at the server ended before it was done: try again; the \
                     server's log says how it ended"
                );
            }
        }
    }

    fn on_frame(
        &mut self,
        frame: &Frame<'_>,
        take: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        match frame {
            Frame::Pass(name) => self.progress.begin(name),
            Frame::Looked(count) => self.progress.add(*count),
            Frame::Line(line) => out::print_error_line(line),
            Frame::Freeze => {
                self.freeze = Some(Freeze::begin(self.server)?);
                self.volume.inspect(Inspect::Held).map_err(why)?;
            }
            Frame::Thaw => {
                let freeze =
                    self.freeze.take().context("the server ended a freeze that had not begun")?;
                online::end(freeze)?;
            }
            Frame::Output(_)
            | Frame::Round
            | Frame::Same(_)
            | Frame::Object(_)
            | Frame::Data { .. }
            | Frame::Whole
            | Frame::Removed
            | Frame::Unread(_)
            | Frame::Metadata(_)
            | Frame::End { .. } => {
                self.progress.end();
                take(frame)?;
            }
        }
        Ok(())
    }
}

/// A refusal in words.
fn why(error: Error) -> anyhow::Error {
    match error.status() {
        Some(Status::NotPermitted) => anyhow::anyhow!(
            "the server lets its store be read for who administers it: pass the store's secret, or a \
             certificate with lanefs:store"
        ),
        Some(Status::Busy) => anyhow::anyhow!(
            "the server's host reads the store for as many clients as it may (check, dump, backup): try again \
             when one of them is done"
        ),
        Some(Status::NotFound) => anyhow::anyhow!(
            "the server was started again, or lost the connection, or ended the inspection because it was not \
             requested in time: try again"
        ),
        Some(Status::Io) => anyhow::anyhow!(
            "the server cannot start a process that reads its store: its log says why"
        ),
        Some(_) | None => error.into(),
    }
}
