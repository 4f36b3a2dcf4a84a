//! The options for file I/O of a store: the engine, and direct I/O.

use clap::{Args, ValueEnum};
use ring::IoEngine;

/// The engine that reads and writes files' contents in the store.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// The lane's driver: io_uring, or non-blocking I/O and worker threads
    Auto,
    /// io_uring; fails if the kernel does not permit it
    Uring,
    /// The C library's POSIX AIO: one queue per file, a new thread for each notification
    PosixAio,
    /// A new thread for each operation
    ThreadPerOp,
    /// A pool of 16 threads per lane
    Pool,
    /// The lane itself, blocking
    Inline,
}

impl Engine {
    /// The same for lanes.
    pub(crate) const fn engine(self) -> IoEngine {
        match self {
            Self::Auto => IoEngine::Auto,
            Self::Uring => IoEngine::Uring,
            Self::PosixAio => IoEngine::PosixAio,
            Self::ThreadPerOp => IoEngine::ThreadPerOp,
            Self::Pool => IoEngine::Pool,
            Self::Inline => IoEngine::Inline,
        }
    }
}

/// Whether files' contents bypass the page cache.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direct {
    /// I/O aligned to 4096 bytes bypasses it (O_DIRECT)
    On,
    /// All I/O uses it
    Off,
}

impl Direct {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The file I/O of a store.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Io {
    /// Engine for files' contents in the store; all but auto and uring read into memory, without sendfile
    /// from the page cache
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Engine::Auto, env = "LANEFS_IO_ENGINE")]
    pub(crate) io_engine: Engine,
    /// Direct I/O for reads and writes of files' contents that are aligned to 4096 bytes
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Direct::Off)]
    pub(crate) io_direct: Direct,
}

impl Io {
    /// The same as arguments.
    pub(crate) fn texts(self) -> [String; 2] {
        let Self { io_engine, io_direct } = self;
        let engine = io_engine.engine().text();
        [format!("--io-engine={engine}"), format!("--io-direct={}", io_direct.text())]
    }
}
