//! `check`: whether a store's rows and objects agree, what is done where they do not, and all metadata as
//! lines of JSON and back.
//!
//! It reads a store that nobody serves ([`store::View`]), or rows that a server sent. Invariants: a check changes nothing; a
//! repair writes into a report what it is about to change, before it does, and whenever it is killed,
//! the next one goes on from a whole store.
#![forbid(unsafe_code)]

mod backup;
mod backup_error;
mod dump;
mod edits;
mod finding;
mod json;
mod line;
mod lines;
mod mend;
mod names;
mod objects;
mod paths;
mod prove;
mod repair;
mod rest;
mod restore;
mod round;
mod salvaged;
mod stamp;
pub mod stream;
mod sums;
mod tally;
mod walk;

pub use backup::{Backup, Finished};
pub use backup_error::BackupError;
pub use dump::{DUMP_VERSION, DumpError, dump};
pub use finding::{Finding, Kind, Remedy, Severity};
pub use json::text_and_hex;
pub use lines::LineError;
pub use objects::{is_about_objects, recheck_objects};
pub use repair::{Repaired, Step, repair};
pub use restore::{Contents, RestoreError, Restored, Source, restore};
pub use round::Round;
pub use salvaged::rows_findings;
pub use sums::Damages;
pub use walk::{Depth, FINDING_COUNT_MAX, Outcome, Watch, check};
