//! The limits: servers that do as little as the hardware and the kernel allow. Each runs as a
//! hidden command of our binary in a process of its own.

mod bulk;
mod echo;
mod inline;
mod layers;

use crate::frames;
use anyhow::{Context as _, Result, bail};
use ring::DriverKind;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What a limit prints before its address.
pub(crate) const READY: &str = "limit on ";

/// The kinds of limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// A getattr's frames through a bare io_uring loop.
    Bare,
    /// The same through a lane: ring, sockets, framing, events, actions; no file system.
    Echo(DriverKind),
    /// The same through so many threads with queues between them.
    Layers(u8),
    /// Pieces of a file by sendfile.
    Sendfile { file: PathBuf, piece_bytes: u32 },
    /// Pieces received and written to a file, and synced as often as a server does, or not at all.
    RecvWrite { file: PathBuf, piece_bytes: u32, synced: bool },
    /// As [`Self::Echo`], with a read or write of a piece of a file within the turn.
    Inline { driver: DriverKind, file: PathBuf, piece_bytes: u32 },
}

impl Limit {
    /// The arguments of the hidden command.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let bulk = |name: &str, file: &Path, piece_bytes: u32| {
            vec![name.to_owned(), piece_bytes.to_string(), file.display().to_string()]
        };
        match self {
            Self::Bare => vec!["bare".to_owned()],
            Self::Echo(driver) => vec!["echo".to_owned(), driver.text().to_owned()],
            Self::Layers(hop_count) => vec!["layers".to_owned(), hop_count.to_string()],
            Self::Sendfile { file, piece_bytes } => bulk("sendfile", file, *piece_bytes),
            Self::RecvWrite { file, piece_bytes, synced } => {
                bulk(if *synced { "recv-write-sync" } else { "recv-write" }, file, *piece_bytes)
            }
            Self::Inline { driver, file, piece_bytes } => {
                let mut arguments = bulk("inline", file, *piece_bytes);
                arguments.push(driver.text().to_owned());
                arguments
            }
        }
    }

    fn parse(arguments: &[String]) -> Result<Self> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Ok(match *words {
            ["bare"] => Self::Bare,
            ["echo", driver] => Self::Echo(driver_called(driver)?),
            ["layers", hop_count] => Self::Layers(hop_count.parse()?),
            ["sendfile", bytes, file] => {
                Self::Sendfile { file: file.into(), piece_bytes: bytes.parse()? }
            }
            [way @ ("recv-write" | "recv-write-sync"), bytes, file] => {
                let (file, synced) = (file.into(), way == "recv-write-sync");
                Self::RecvWrite { file, piece_bytes: bytes.parse()?, synced }
            }
            ["inline", bytes, file, driver] => {
                let (driver, piece_bytes) = (driver_called(driver)?, bytes.parse()?);
                Self::Inline { driver, file: file.into(), piece_bytes }
            }
            _ => bail!("there is no limit {words:?}"),
        })
    }

    /// Lanes with counters.
    pub(crate) const fn counted_lane_count(&self) -> u16 {
        match self {
            Self::Echo(_) | Self::Inline { .. } => 1,
            Self::Bare | Self::Layers(_) | Self::Sendfile { .. } | Self::RecvWrite { .. } => 0,
        }
    }
}

fn driver_called(text: &str) -> Result<DriverKind> {
    let found = DriverKind::ALL.into_iter().find(|driver| driver.text() == text);
    found.with_context(|| format!("there is no driver {text}"))
}

/// Runs a limit until the process is killed or its parent ends.
///
/// # Errors When it does not start, or the kernel refuses what it needs.
pub fn run_limit(arguments: &[String]) -> Result<()> {
    let limit = Limit::parse(arguments)?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie to the parent")?;
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    println!("{READY}{}", listener.local_addr()?);
    match limit {
        Limit::Bare => {
            let (request_bytes, reply) = (frames::getattr_request_bytes(), frames::getattr_reply());
            ring::bare::echo(&OwnedFd::from(listener), request_bytes, &reply)
                .context("the bare loop failed")
        }
        Limit::Echo(driver) => echo::run(listener, driver),
        Limit::Layers(hop_count) => layers::run(&listener, hop_count),
        Limit::Sendfile { file, piece_bytes } => {
            bulk::run(listener, &file, piece_bytes, bulk::Way::Out)
        }
        Limit::RecvWrite { file, piece_bytes, synced } => {
            let way = if synced { bulk::Way::InSynced } else { bulk::Way::In };
            bulk::run(listener, &file, piece_bytes, way)
        }
        Limit::Inline { driver, file, piece_bytes } => {
            inline::run(listener, driver, &file, piece_bytes)
        }
    }
}
