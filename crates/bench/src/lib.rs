//! `bench`: the benchmarks of `lanefs bench`: a load, a limit beside it, and rows that show both.
//!
//! It asserts only what a measurement needs to be valid. Invariant: compared rows come from the
//! same run, alternating, under the same load generator.

mod affinity;
mod brw;
mod clock;
mod cluster;
mod commit;
mod cores;
mod create;
mod drivers;
mod echo;
mod fair;
mod flush;
mod frames;
mod fuse_null;
mod generator;
mod getattr;
mod handoff;
mod limit;
mod lists;
mod load;
mod machine;
mod mount;
mod new_files;
pub mod null;
mod number;
mod observed;
mod pace;
mod plan;
mod race;
mod report;
mod rounds;
mod row;
mod samples;
mod sealed;
mod seeds;
mod server;
mod shared_file;
mod stream;
mod usage;
mod versus;
mod wired;

pub use fuse_null::{NULL_COMMAND, NULL_READ_BYTES, NULL_READY};
pub use limit::run_limit;
pub use machine::Machine;
pub use plan::{Dirs, Interrupt, Options, Remote};
pub use report::{fill_in, report_table, table, write_json};
pub use row::Row;
pub use seeds::run_seeds;
pub use server::LIMIT_COMMAND;
pub use versus::{Counts as VersusCounts, Line, Named, Versus, can_drop_caches, lines_table};

use anyhow::{Result, ensure};
use server::Home;

/// A benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bench {
    /// Frames through a lane without a file system.
    Echo,
    /// Attributes of one file.
    Getattr,
    /// New files.
    Create,
    /// Large files.
    Stream,
    /// Work passed to a sleeping thread.
    Handoff,
    /// Readings of the clock.
    Clock,
    /// The kernel's part of a request.
    FuseNull,
    /// Operations through a mount.
    Mount,
    /// New files under sharing modes.
    Share,
    /// Commits of many operations.
    Commit,
    /// Many pieces of a file in one request.
    Lists,
    /// A few modest clients beside a greedy one.
    Fair,
    /// A mount's callers on busy CPUs.
    Busy,
    /// io_uring and epoll.
    Drivers,
    /// Sockets on the lane that executes, and elsewhere.
    Affinity,
    /// Small reads and writes.
    Brw,
    /// One file that all read, and a file for each.
    SharedFile,
    /// Under TLS, and not.
    Seal,
    /// With counters and traces, and without.
    Observed,
    /// Several servers.
    Cluster,
}

impl Bench {
    /// All, in the order in which they build on each other.
    pub const ALL: [Self; 20] = [
        Self::Echo,
        Self::Getattr,
        Self::Create,
        Self::Stream,
        Self::Handoff,
        Self::Clock,
        Self::FuseNull,
        Self::Mount,
        Self::Share,
        Self::Commit,
        Self::Lists,
        Self::Fair,
        Self::Busy,
        Self::Drivers,
        Self::Affinity,
        Self::Brw,
        Self::SharedFile,
        Self::Seal,
        Self::Observed,
        Self::Cluster,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => echo::NAME,
            Self::Getattr => getattr::NAME,
            Self::Create => create::NAME,
            Self::Stream => stream::NAME,
            Self::Handoff => handoff::NAME,
            Self::Clock => clock::NAME,
            Self::FuseNull => fuse_null::NAME,
            Self::Mount => mount::NAME,
            Self::Share => create::SHARE_NAME,
            Self::Commit => commit::NAME,
            Self::Lists => lists::NAME,
            Self::Fair => fair::NAME,
            Self::Busy => mount::BUSY_NAME,
            Self::Drivers => drivers::NAME,
            Self::Affinity => affinity::NAME,
            Self::Brw => brw::NAME,
            Self::SharedFile => shared_file::NAME,
            Self::Seal => sealed::NAME,
            Self::Observed => observed::NAME,
            Self::Cluster => cluster::NAME,
        }
    }

    /// What it measures, in a line.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Echo => "echo: a getattr's frames through a lane without a file system",
            Self::Getattr => "getattr: the attributes of one file, without a client's cache",
            Self::Create => "create: new files, durable when they are acknowledged",
            Self::Stream => "stream: large reads and durable writes",
            Self::Handoff => {
                "handoff: work for a thread that sleeps; times of hops, the rest per item"
            }
            Self::Clock => "clock: readings",
            Self::Share => "share: new files, replies that may wait against those that do not",
            Self::Commit => "commit: a lane whose log becomes durable once in many operations",
            Self::Lists => "lists: one request for 64 pieces of 4 KiB, beside 64 requests",
            Self::Fair => "fair: a few modest clients beside a greedy one",
            Self::Busy => "busy: a mount on cores that all compute, its lanes pinned and not",
            Self::Drivers => "drivers: lanes on epoll, beside lanes on io_uring",
            Self::Affinity => {
                "affinity: requests that arrive at the lane that executes them, and elsewhere"
            }
            Self::Brw => "brw: reads and writes of 4 KiB by many clients",
            Self::SharedFile => {
                "shared-file: one file that all clients read, beside a file for each, with every I/O engine"
            }
            Self::Seal => "seal: requests and streams under TLS, beside the same in plain text",
            Self::Observed => {
                "observed: requests that are counted and traced, beside some that are not"
            }
            Self::Cluster => {
                "cluster: clients of four servers, beside one server, and beside bare streams"
            }
            Self::FuseNull => "fuse-null: a mounted file system with nothing in it",
            Self::Mount => {
                "mount: operations through a mount, beside a null one with as many exchanges"
            }
        }
    }

    /// Checks the options.
    ///
    /// # Errors Which option does not apply to it.
    pub fn check(self, options: &Options) -> Result<()> {
        let name = self.name();
        let has_servers = match self {
            Self::Echo
            | Self::Mount
            | Self::Share
            | Self::Busy
            | Self::Drivers
            | Self::Affinity
            | Self::SharedFile
            | Self::Seal
            | Self::Observed
            | Self::Cluster => true,
            Self::Getattr
            | Self::Create
            | Self::Stream
            | Self::Handoff
            | Self::Clock
            | Self::FuseNull
            | Self::Commit
            | Self::Lists
            | Self::Fair
            | Self::Brw => false,
        };
        ensure!(
            !has_servers || options.remote.is_none(),
            "{name} starts its own servers: leave --server out"
        );
        ensure!(
            self != Self::Create || options.shares.len() < 2 || options.remote.is_none(),
            "several --share start servers of their own; it cannot be used with --server"
        );
        ensure!(
            self != Self::SharedFile || options.lane_count == 1,
            "{name} is of servers with one lane: leave --lanes out"
        );
        Ok(())
    }

    /// Runs it.
    ///
    /// # Errors When an option does not apply, a server does not start, an operation fails, or the
    /// user interrupts.
    pub fn run(self, options: &Options) -> Result<(Machine, Vec<Row>)> {
        self.check(options)?;
        let home = Home::new(options)?;
        let machine = Machine::here(home.path(), &home.cores);
        let rows = match self {
            Self::Echo => echo::run(&home),
            Self::Getattr => getattr::run(&home),
            Self::Create => create::run(&home),
            Self::Stream => stream::run(&home),
            Self::Handoff => handoff::run(&home),
            Self::Clock => clock::run(&home),
            Self::FuseNull => fuse_null::run(&home),
            Self::Mount => mount::run(&home),
            Self::Share => create::shares(&home, create::SHARE_NAME),
            Self::Commit => commit::run(&home),
            Self::Lists => lists::run(&home),
            Self::Fair => fair::run(&home),
            Self::Busy => mount::run_busy(&home),
            Self::Drivers => drivers::run(&home),
            Self::Affinity => affinity::run(&home),
            Self::Brw => brw::run(&home),
            Self::SharedFile => shared_file::run(&home),
            Self::Seal => sealed::run(&home),
            Self::Observed => observed::run(&home),
            Self::Cluster => cluster::run(&home),
        }?;
        Ok((machine, rows))
    }
}
