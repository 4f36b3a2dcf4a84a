//! The choice of who reads and writes the files of a store, on the command line of what serves one.

use clap::{Args, ValueEnum};
use ring::IoEngine;

/// Who reads and writes files' contents in the store.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// The driver: io_uring, or what can be done at once and a few threads for the rest
    Auto,
    /// io_uring, or nothing
    Uring,
    /// The C library's: one thread and one queue for a file, a new thread to tell of each operation
    PosixAio,
    /// A new thread for each operation
    ThreadPerOp,
    /// 16 threads a lane that stay
    Pool,
    /// The lane itself, which serves nobody else meanwhile
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

/// Whether files' contents go past the page cache.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direct {
    /// What is aligned to 4096 bytes does (O_DIRECT)
    On,
    /// All goes through it
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

/// How files' contents get to the disk and back.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Io {
    /// Who reads and writes files' contents in the store; all but auto and uring read them into memory,
    /// so nothing leaves straight from the page cache
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Engine::Auto, env = "LANEFS_IO_ENGINE")]
    pub(crate) io_engine: Engine,
    /// Reads and writes of files' contents that are aligned to 4096 bytes go past the page cache
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
