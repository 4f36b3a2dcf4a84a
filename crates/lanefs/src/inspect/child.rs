//! The process that reads a server's store on the server's host and writes a stream of frames to stdout.
//!
//! It has no secret and sends the server no requests: the client at the stream's other end freezes changes.

use crate::args::{self, InspectWhat};
use crate::exit;
use crate::online::FreezeControl;
use crate::{backup, check as checking, signals};
use anyhow::{Context as _, Result, bail};
use check::stream::{Frame, PIECE_BYTES_MAX, Source};
use check::{Depth, DumpError, Round, Watch};
use rustix::process::setpriority_process;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// The niceness of the process, except while changes are frozen for it.
const NICENESS: i32 = 10;
/// The OOM score adjustment: the kernel kills this process before others.
const OOM_SCORE: &str = "500";
/// How often progress is reported.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are buffered before a write.
const GATHER_BYTES: usize = 2 * PIECE_BYTES_MAX;

/// Runs the command.
pub(crate) fn run(args: &args::Inspect) -> Result<()> {
    if !signals::tie_to_parent(args.parent_pid)? {
        bail!("the server has ended");
    }
    // Not essential.
    let _equal = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let mut frames = Frames::new()?;
    let done = inspect(args, &mut frames);
    let (code, line) = match &done {
        Ok(()) => (0, String::new()),
        Err(error) => (exit::code_of(error).number(), format!("{error:#}")),
    };
    frames.send(&Frame::End { code, line: &line })?;
    Ok(frames.flush()?)
}

fn inspect(args: &args::Inspect, frames: &mut Frames) -> Result<()> {
    let store = &args.store;
    match args.what {
        InspectWhat::Check { json, skip_contents } => {
            let depth = if skip_contents { Depth::Metadata } else { Depth::Contents };
            let looked = checking::open_served(store, frames)
                .and_then(|view| checking::look((store, true), view, depth, frames));
            let outcome = looked.or_else(|error| checking::as_finding(error, store))?;
            checking::print_outcome(&outcome, json, frames)?;
            checking::sum_up(&outcome, &[], json, frames)?;
            checking::end_with(&outcome)
        }
        InspectWhat::Dump => {
            let view = checking::open_served(store, frames)?;
            let mut lines = BufWriter::with_capacity(PIECE_BYTES_MAX, &mut *frames);
            let written = check::dump(&view, &mut lines);
            written.and_then(|_| lines.flush().map_err(DumpError::Io))?;
            drop(lines);
            checking::still_current(&view)
        }
        InspectWhat::Backup { freeze_ms_max } => {
            let freeze_max = Duration::from_millis(freeze_ms_max);
            let mut source = Source::new(store.join("objects"));
            let view = backup::copy_served(&mut source, (store, freeze_max), frames)?;
            source.finish(&view, &mut |frame| frames.send(frame))?;
            Ok(())
        }
    }
}

impl backup::Copies<Frames> for Source {
    fn round(&mut self, to: &mut Frames, ends: &mut dyn FnMut() -> bool) -> Result<Round> {
        Ok(Self::round(self, &mut |frame| to.send(frame), ends)?)
    }
}

/// The stream.
pub(crate) struct Frames {
    to: File,
    gathered: Vec<u8>,
    written_at: Instant,
    looked_count: u64,
}

impl Frames {
    fn new() -> Result<Self> {
        let to = io::stdout().as_fd().try_clone_to_owned().context("cannot write to stdout")?;
        Ok(Self {
            to: to.into(),
            gathered: Vec::new(),
            written_at: Instant::now(),
            looked_count: 0,
        })
    }

    fn send(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        frame.encode(&mut self.gathered);
        if self.gathered.len() >= GATHER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Progress that is not reported yet.
    fn tell_looked(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.looked_count) {
            0 => Ok(()),
            count => self.send(&Frame::Looked(count)),
        }
    }
}

/// Output for the client's stdout.
impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        self.send(&Frame::Output(piece))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.written_at = Instant::now();
        self.to.write_all(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}

impl Watch for Frames {
    fn pass(&mut self, name: &'static str) {
        // A lost client is noticed when there is output for it.
        let _lost = self.tell_looked().and_then(|()| self.send(&Frame::Pass(name)));
    }

    fn looked(&mut self, count: u64) {
        self.looked_count += count;
        if self.written_at.elapsed() >= PROGRESS_PAUSE {
            // As above.
            let _lost = self.tell_looked().and_then(|()| self.flush());
        }
    }
}

impl FreezeControl for Frames {
    fn freeze(&mut self) -> Result<()> {
        // Only root may lower its niceness again.
        let _stays = setpriority_process(None, 0);
        self.send(&Frame::Freeze)?;
        self.flush()?;
        let frozen = io::stdin().read_exact(&mut [0]);
        frozen.context("the client did not freeze changes")
    }

    fn thaw(&mut self) -> Result<()> {
        self.send(&Frame::Thaw)?;
        self.flush()?;
        // As in `run`.
        let _equal = setpriority_process(None, NICENESS);
        Ok(())
    }

    fn report_line(&mut self, line: &str) -> Result<()> {
        self.send(&Frame::Line(line))?;
        Ok(self.flush()?)
    }
}
