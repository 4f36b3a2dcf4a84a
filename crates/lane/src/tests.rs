//! Tests of the lane in a test server: what peers see of it, and what survives crashes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod across;
mod certificates;
mod counters;
mod destroys;
mod evictions;
mod exactly_once;
mod exports;
mod file_locks;
mod freeze;
mod gates;
mod handshakes;
mod inspect;
mod late_maps;
mod leases;
mod lists;
mod map_epochs;
mod merge;
mod non_resident;
mod peer;
mod peer_channel;
mod peer_delivery;
mod peer_messages;
mod protocol_errors;
mod recovery;
mod rotation;
mod servers;
mod shares;
mod sizes;
mod synced;
mod traces;
mod trouble;
mod writes;
