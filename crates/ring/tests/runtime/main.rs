//! The runtime's interface to a core, on both drivers: the same tests twice.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, clippy::cast_possible_truncation)]
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::duplicate_mod, reason = "that is how a test is run on each driver")]

mod on_epoll;
mod on_io_uring;
