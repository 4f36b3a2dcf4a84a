//! Where a server of `up` has its store, and the socket on which it serves it.

use crate::address;
use crate::exit::{Code, Exit};
use anyhow::Result;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the socket of a killed server may stay.
const LINGER: Duration = Duration::from_secs(2);

/// A server's store, and where it serves it.
pub(crate) struct Place {
    /// Absolute.
    pub(crate) store: PathBuf,
    /// Held by this process, so that clients queue while the server is away.
    pub(crate) listener: TcpListener,
    /// What it listens on.
    pub(crate) address: SocketAddr,
}

/// Binds and listens on exactly this address, which `option` names. The kernel may hold the socket of a server that was
/// killed for a moment longer than the process, so an address in use is tried again for a while.
pub(crate) fn bind(text: &str, option: &str) -> Result<TcpListener> {
    let address = address::resolve(text)?;
    let deadline = Instant::now() + LINGER;
    let bound = loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(LINGER / 20);
            }
            bound => break bound,
        }
    };
    bound.map_err(|error| {
        let line = if error.kind() == io::ErrorKind::AddrInUse {
            format!("{address} is in use by another program; name another with {option} HOST:PORT")
        } else {
            format!("{option}: cannot listen on {address}: {error}")
        };
        Exit::new(Code::Failed, line).into()
    })
}
