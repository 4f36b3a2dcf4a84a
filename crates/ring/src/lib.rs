//! `ring`: the runtime of a lane. It performs the core's [`interface::Action`]s with io_uring, or
//! with epoll where io_uring is forbidden, and reports the results as [`interface::Event`]s:
//! sockets, files, messages between lanes, timers, the kernel's file system requests.
//!
//! It knows no names, sessions or operations. Invariant: a [`Ring`] belongs to one thread, and the
//! only call in a [`Ring::turn`] that blocks is the one wait at its beginning.
//!
//! ```text
//! turn: collect (submit, wait, reap: one io_uring_enter, with that driver) ─▶ one clock reading ─▶
//!       core.apply for each event ─▶ core.settle ─▶ perform the actions ─▶
//!       flush (one send a connection, one wakeup a sleeping peer lane);
//!       queued operations are submitted by the next collect
//! ```
//! A lane that busy-polls before it sleeps submits first and reaps afterwards: two calls.
#![cfg(target_os = "linux")]

mod abi;
mod allocate;
pub mod bare;
mod buffer;
mod cache;
mod caller;
mod clock;
mod config;
mod conn;
mod counters;
mod direct;
mod driver;
mod fault;
pub mod feed;
mod file_map;
pub mod forbidden;
mod framing;
pub mod handoff;
mod inspect;
mod io_context;
mod job;
mod kernel;
mod kernel_classic;
mod kernel_queue;
mod limits;
mod listen;
mod lists;
mod log;
mod log_first;
mod mailbox;
mod memory;
mod mount;
mod mount_namespaces;
mod mount_options;
mod mount_table;
mod mount_tool;
mod named_buffers;
mod notify;
mod number;
mod objects;
mod path;
mod pin;
pub mod probe;
mod sealing;
mod send;
mod socket;
mod spin;
mod sums;
mod time_sync;
mod turn;
mod usage;

pub use abi::KERNEL_DATA_BYTES_MAX;
pub use config::{Config, LogFile, LogFn, ReadSecrets};
pub use counters::Counters;
pub use direct::check_direct;
pub use driver::{DriverChoice, DriverFound, DriverKind, IoEngine};
pub use fault::{Fault, FaultPoint};
pub use file_map::FileMap;
pub use inspect::{InspectQueue, InspectRequest, SubmitInspect};
pub use kernel::{KernelChannel, Transport};
pub use limits::Limits;
pub use mailbox::{Mailbox, Mesh, Stopper, Waker};
pub use memory::BulkBytes;
pub use mount::{is_connected, mount, remount, unmount};
pub use mount_options::MountOptions;
pub use mount_table::{Mounted, mount_table, unescape};
pub use mount_tool::mount_tool_obstacle;
pub use pin::{core_count, pin_to_core, raise_fd_limit, usable_cores};
pub use sealing::{ClientSeals, Sealing, ServerSeals};
pub use socket::{tune_listener, tune_socket};
pub use time_sync::is_clock_synchronised;
pub use turn::Ring;
