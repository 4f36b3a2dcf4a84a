//! The limit: bytes over a TCP connection of loopback, between two threads that do nothing with them.

use super::done::Done;
use crate::server::Home;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// One stream: to this thread if the client reads, else from it. The other end runs on the servers'
/// cores.
pub(super) fn run(
    home: &Home,
    reads: bool,
    piece_bytes: usize,
    (barrier, time): (&Barrier, Duration),
) -> Result<Done> {
    let connected = connect();
    barrier.wait();
    let (mut near, far) = connected.context("cannot connect over loopback")?;
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            home.cores.go_to_server()?;
            if reads {
                send(far, piece_bytes)
            } else {
                receive(far, piece_bytes)
            }
            Ok(())
        });
        let mut buffer = vec![0x5a; piece_bytes];
        let mut done = Done::default();
        let began = Instant::now();
        while began.elapsed() < time {
            let moved = if reads {
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
