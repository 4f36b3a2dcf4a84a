//! The end of the control socket in the mount: threads that ask the lanes.

use super::{
    BODY_BYTES_MAX, Head, QUESTION_BYTES_MAX, Status, Timed, VERSION, at_short_path, head,
    read_body,
};
use crate::questions::Lanes;
use crate::running;
use anyhow::{Context as _, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::{BadQuestion, Question};

/// Connections at a time; others are closed.
const CONN_COUNT_MAX: usize = 8;
/// How long a connection may take to ask, and again to read the answer.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the lanes may take to answer.
const LANES_TIMEOUT: Duration = Duration::from_secs(5);

/// The socket of this process; removed when dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Answers from here on, by asking these lanes.
    pub(crate) fn begin(lanes: Lanes) -> Result<Self> {
        let path = running::own_socket()?;
        // Of an ended process with the same number.
        let _absent = std::fs::remove_file(&path);
        let listener = at_short_path(&path, |path| UnixListener::bind(path))
            .with_context(|| format!("cannot make {}", path.display()))?;
        let socket = Self { path };
        // The folder is this user's alone; the owner of a connection is looked at, too.
        std::fs::set_permissions(&socket.path, Permissions::from_mode(0o600))?;
        thread(move || accept(&listener, &lanes))?;
        Ok(socket)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // One that stays is removed with the file of this process.
        let _stays = std::fs::remove_file(&self.path);
    }
}

fn thread(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("control".to_owned());
    thread.spawn(run).map(drop).context("cannot start a thread")
}

fn accept(listener: &UnixListener, lanes: &Lanes) {
    let conn_count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream.and_then(of_owner) else { continue };
        if conn_count.fetch_add(1, Ordering::Relaxed) >= CONN_COUNT_MAX {
            conn_count.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (lanes, count) = (lanes.clone(), Arc::clone(&conn_count));
        let started = thread(move || {
            // A peer that went away needs no answer.
            serve(&stream, &lanes, PEER_TIMEOUT).ok();
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            conn_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The connection, if it is of this user or of root.
fn of_owner(stream: UnixStream) -> io::Result<UnixStream> {
    let peer = socket_peercred(&stream)?;
    if peer.uid.is_root() || peer.uid == geteuid() {
        Ok(stream)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn serve(stream: &UnixStream, lanes: &Lanes, timeout: Duration) -> io::Result<()> {
    let mut timed = Timed { stream, until: Instant::now() + timeout };
    let Head { version, body_bytes, .. } = Head::read(&mut timed)?;
    let (status, body) = if version == VERSION {
        let question = read_body(&mut timed, body_bytes, QUESTION_BYTES_MAX)?;
        answer(&question, lanes)
    } else {
        (Status::OtherVersion, Vec::new())
    };
    timed.until = Instant::now() + timeout;
    timed.write_all(&head(status as u16, body.len()))?;
    timed.write_all(&body)
}

fn answer(question: &[u8], lanes: &Lanes) -> (Status, Vec<u8>) {
    match Question::decode(question) {
        Ok(_) => {}
        Err(BadQuestion::Unknown) => return (Status::UnknownKind, Vec::new()),
        Err(BadQuestion::Malformed) => return (Status::Malformed, Vec::new()),
    }
    let Ok(answers) = lanes.ask(question, LANES_TIMEOUT) else {
        return (Status::NoAnswer, Vec::new());
    };
    let mut body = u16::try_from(answers.len()).unwrap_or(u16::MAX).to_le_bytes().to_vec();
    for answer in answers {
        let answer_bytes = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        body.extend(answer_bytes.to_le_bytes());
        body.extend(answer);
        if body.len() > BODY_BYTES_MAX {
            return (Status::NoAnswer, Vec::new());
        }
    }
    (Status::Answered, body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::exchange;
    use super::*;

    fn asked(question: &[u8]) -> (Option<Status>, Vec<u8>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || serve(&theirs, &Lanes::default(), PEER_TIMEOUT));
        let found = exchange(&ours, question, PEER_TIMEOUT).unwrap();
        served.join().unwrap().unwrap();
        found
    }

    #[test]
    fn a_question_gets_a_status() {
        let answered = (Some(Status::Answered), vec![0, 0]);
        assert_eq!(asked(&Question::Counters.encode()), answered);
        assert_eq!(asked(b"\xff\xff"), (Some(Status::UnknownKind), Vec::new()));
        assert_eq!(asked(b"\x01"), (Some(Status::Malformed), Vec::new()));
    }

    #[test]
    fn another_version_is_answered_and_an_endless_question_is_not_read() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[9, 9, 0, 0, 0, 0, 0, 0]).unwrap();
        serve(&theirs, &Lanes::default(), PEER_TIMEOUT).unwrap();
        let found = Head::read(&mut ours).unwrap();
        assert_eq!(found.number, Status::OtherVersion as u16);
        ours.write_all(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).unwrap();
        let refused = serve(&theirs, &Lanes::default(), PEER_TIMEOUT).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn who_does_not_ask_or_read_is_left_alone_after_a_while() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let short = Duration::from_millis(10);
        let error = serve(&theirs, &Lanes::default(), short).unwrap_err();
        let timed_out = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
        assert!(timed_out.contains(&error.kind()), "{error}");
        // Half of a question.
        ours.write_all(&head(0, 100)).unwrap();
        let error = serve(&theirs, &Lanes::default(), short).unwrap_err();
        assert!(timed_out.contains(&error.kind()), "{error}");
    }
}
