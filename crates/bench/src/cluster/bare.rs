//! The limits: bytes over a TCP connection of loopback, between two threads that do nothing with
//! them, or of which the receiving one writes them to a file in the page cache.

use super::done::Done;
use crate::server::Home;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// What the servers' end of a stream does.
#[derive(Clone, Copy, Debug)]
pub(super) enum FarEnd {
    Sends,
    Receives,
    /// And writes the bytes to the file of this client, again and again.
    Writes {
        client: u32,
        file_bytes: u64,
    },
}

/// One stream, to or from this thread. The other end runs on the servers' cores.
pub(super) fn run(
    home: &Home,
    far_end: FarEnd,
    piece_bytes: usize,
    (barrier, time): (&Barrier, Duration),
) -> Result<Done> {
    let connected = connect();
    let file = match far_end {
        FarEnd::Writes { client, .. } => {
            let path = home.path().join(format!("bare-{client}"));
            let opened = File::options().create(true).truncate(false).write(true).open(path);
            opened.map(Some).context("cannot open the file of a bare stream")
        }
        FarEnd::Sends | FarEnd::Receives => Ok(None),
    };
    barrier.wait();
    let (mut near, far) = connected.context("cannot connect over loopback")?;
    let file = file?;
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            home.cores.go_to_server()?;
            match (far_end, file) {
                (FarEnd::Writes { file_bytes, .. }, Some(file)) => {
                    return write(far, &file, (piece_bytes, file_bytes));
                }
                (FarEnd::Sends, _) => send(far, piece_bytes),
                (FarEnd::Receives | FarEnd::Writes { .. }, _) => receive(far, piece_bytes),
            }
            Ok(())
        });
        let mut buffer = vec![0x5a; piece_bytes];
        let mut done = Done::default();
        let began = Instant::now();
        while began.elapsed() < time {
            let moved = if matches!(far_end, FarEnd::Sends) {
                near.read(&mut buffer)?
            } else {
                near.write_all(&buffer)?;
                buffer.len()
            };
            ensure!(moved > 0, "a bare stream has ended early");
            done.moved_bytes += moved as u64;
            done.op_count += 1;
        }
        done.seconds = began.elapsed().as_secs_f64();
        near.shutdown(Shutdown::Both)?;
        drop(near);
        let ended: Result<()> = other.join().map_err(|_| anyhow!("a bare stream panicked"))?;
        ended.map(|()| done)
    })
}

fn connect() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

/// Until the other end closes.
fn send(mut to: TcpStream, piece_bytes: usize) {
    let buffer = vec![0x5a; piece_bytes];
    while to.write_all(&buffer).is_ok() {}
}

/// Until the other end closes.
fn receive(mut from: TcpStream, piece_bytes: usize) {
    let mut buffer = vec![0; piece_bytes];
    while from.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// The same, with the bytes written to a file, which begins anew after `file_bytes`.
fn write(mut from: TcpStream, file: &File, (piece_bytes, file_bytes): (usize, u64)) -> Result<()> {
    let mut buffer = vec![0; piece_bytes];
    let mut at = 0;
    while from.read_exact(&mut buffer).is_ok() {
        file.write_all_at(&buffer, at).context("cannot write the file of a bare stream")?;
        at = (at + piece_bytes as u64) % file_bytes;
    }
    Ok(())
}
