//! The control socket of a mount: another process of its user asks its lanes something, and gets the bytes of
//! their answers.
//!
//! ```text
//! request   version 2 (1) | 0 2 | question_bytes 4 (at most 64 KiB) | question        (little-endian)
//! reply     version 2 (1) | status 2 | body_bytes 4 (at most 64 MiB) | body
//! status    0 answered; 1 another version; 2 an unknown kind of question; 3 malformed; 4 the lanes do not
//!           answer in time
//! body      with status 0: lane_count 2, then per lane, in their order: answer_bytes 4 | answer
//! ```
//! [`wire::Question`] has the questions and says how to add a kind; nothing here knows them. A
//! connection has one request. The socket is `PID.sock` beside the file of the process (`running`), for its
//! owner (and root) alone, and is removed at the end; one that a killed process left is removed together with
//! its file.
//!
//! A caller is three lines:
//!
//! ```text
//! let mount = control::mount_at("/mnt")?;                      None: no mount of lanefs is there
//! let answers: Vec<Vec<u8>> = control::ask(&mount, question.encode())?;       of each lane
//! ```
//! Threads of their own read, ask and write, never a lane; a lane that is asked takes a turn. Invariants: a
//! length is checked before memory is taken for it; who does not read or write for some seconds is
//! disconnected.

mod serve;

pub(crate) use serve::ControlSocket;

use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Kind, text_of};
use crate::{address, mounts};
use anyhow::{Context as _, Result, bail};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The version that is spoken.
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 8;
/// Most bytes of a question.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the answers together.
const BODY_BYTES_MAX: usize = 64 << 20;
/// How long a process waits for a mount: longer than the mount waits for its lanes.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
enum Status {
    Answered = 0,
    OtherVersion = 1,
    UnknownKind = 2,
    Malformed = 3,
    NoAnswer = 4,
}

impl Status {
    const fn of_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Answered,
            1 => Self::OtherVersion,
            2 => Self::UnknownKind,
            3 => Self::Malformed,
            4 => Self::NoAnswer,
            _ => return None,
        })
    }
}

/// The mount of lanefs at a directory, if `target` is one. Nothing is asked of what is mounted there.
pub(crate) fn mount_at(target: &str) -> Result<Option<Entry>> {
    let Ok(dir) = mounts::absolute(Path::new(target)) else { return Ok(None) };
    let text = text_of(&dir);
    let all = running::all();
    let found = all.iter().flatten().map(|found| &found.entry);
    let mut found = found.filter(|entry| {
        entry.kind == Kind::Mount && entry.mounted && entry.dir.as_ref() == Some(&text)
    });
    if let Some(entry) = found.next_back() {
        return Ok(Some(entry.clone()));
    }
    let Some(mounted) = mounts::at(&dir)?.filter(|mounted| mounted.is_lanefs()) else {
        return Ok(None);
    };
    let user_id = mounted.options.split(',').find_map(|option| option.strip_prefix("user_id="));
    let line = format!(
        "{text} is mounted, and this user sees no process that serves it: ask as the user who has mounted it \
         (user id {}); if that process was killed, `lanefs umount {text}` ends the mount",
        user_id.unwrap_or("unknown")
    );
    bail!(Exit::new(Code::Failed, line))
}

/// Whether `target` can only be a directory.
pub(crate) fn is_path(target: &str) -> bool {
    address::has_slash(target.as_ref()) || matches!(target, "." | "..")
}

/// Asks a mount. Returns the answers of its lanes.
pub(crate) fn ask(mount: &Entry, question: &[u8]) -> Result<Vec<Vec<u8>>> {
    let shown = || format!("the mount process {}", mount.pid);
    let path = running::socket_of(mount.pid)?.with_context(|| {
        format!("{} has no control socket: it is of an earlier version, or is ending", shown())
    })?;
    let stream = at_short_path(&path, |path| UnixStream::connect(path)).with_context(shown)?;
    let (status, body) = exchange(&stream, question, ASK_TIMEOUT).with_context(shown)?;
    match status {
        Some(Status::Answered) => {
            let answers = split_answers(&body);
            answers.with_context(|| format!("{} has sent something else", shown()))
        }
        Some(Status::NoAnswer) => {
            bail!("{}: its lanes do not answer; its log may say why", shown())
        }
        Some(Status::UnknownKind | Status::OtherVersion) => bail!(
            "{} is of another version ({}) and does not know the question: mount again with this one",
            shown(),
            mount.version.as_deref().unwrap_or("unknown")
        ),
        Some(Status::Malformed) | None => bail!("{} does not understand the question", shown()),
    }
}

fn exchange(
    stream: &UnixStream,
    question: &[u8],
    timeout: Duration,
) -> io::Result<(Option<Status>, Vec<u8>)> {
    let mut timed = Timed { stream, until: Instant::now() + timeout };
    timed.write_all(&head(0, question.len()))?;
    timed.write_all(question)?;
    let Head { version, number: status, body_bytes } = Head::read(&mut timed)?;
    let known = if version == VERSION { Status::of_number(status) } else { None };
    Ok((known, read_body(&mut timed, body_bytes, BODY_BYTES_MAX)?))
}

fn split_answers(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (lane_count, mut rest) = body.split_first_chunk()?;
    let mut answers = Vec::new();
    for _ in 0..u16::from_le_bytes(*lane_count) {
        let (bytes, behind) = rest.split_first_chunk()?;
        let bytes = usize::try_from(u32::from_le_bytes(*bytes)).ok()?;
        let (answer, behind) = behind.split_at_checked(bytes)?;
        answers.push(answer.to_vec());
        rest = behind;
    }
    rest.is_empty().then_some(answers)
}

/// What precedes a question or answers; `number` is 0 or a status.
struct Head {
    version: u16,
    number: u16,
    body_bytes: usize,
}

fn head(number: u16, body_bytes: usize) -> [u8; HEAD_BYTES] {
    let body_bytes = u32::try_from(body_bytes).unwrap_or(u32::MAX);
    let mut bytes = [0; HEAD_BYTES];
    bytes[..2].copy_from_slice(&VERSION.to_le_bytes());
    bytes[2..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&body_bytes.to_le_bytes());
    bytes
}

impl Head {
    fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; HEAD_BYTES];
        from.read_exact(&mut bytes)?;
        let [v0, v1, n0, n1, b0, b1, b2, b3] = bytes;
        Ok(Self {
            version: u16::from_le_bytes([v0, v1]),
            number: u16::from_le_bytes([n0, n1]),
            body_bytes: usize::try_from(u32::from_le_bytes([b0, b1, b2, b3])).unwrap_or(usize::MAX),
        })
    }
}

fn read_body(from: &mut impl Read, bytes: usize, bytes_max: usize) -> io::Result<Vec<u8>> {
    if bytes > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    let mut body = vec![0; bytes];
    from.read_exact(&mut body)?;
    Ok(body)
}

/// A stream whose peer has until some time, however slowly it reads or writes.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(to)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Calls `with` with a path that the address of a socket has space for.
fn at_short_path<T>(path: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return with(path) };
    let folder = std::fs::File::open(folder)?;
    with(&PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn answers_that_are_cut_or_longer_are_refused() {
        let mut body = 2_u16.to_le_bytes().to_vec();
        for answer in [&b"one"[..], b""] {
            body.extend(u32::try_from(answer.len()).unwrap().to_le_bytes());
            body.extend(answer);
        }
        assert_eq!(split_answers(&body), Some(vec![b"one".to_vec(), Vec::new()]));
        for end in 0..body.len() {
            assert_eq!(split_answers(&body[..end]), None, "{end}");
        }
        body.push(0);
        assert_eq!(split_answers(&body), None);
    }

    #[test]
    fn a_length_is_checked_before_memory_is_taken() {
        let error = read_body(&mut io::empty(), BODY_BYTES_MAX + 1, BODY_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
