//! `check`: compares a store's rows and objects, repairs them, and converts all metadata to lines of JSON
//! and back.
//!
//! It reads a store without a server ([`store::View`]), or rows sent by a server. Invariants: a check changes
//! nothing; a repair writes each change to a report first, and if it is killed at any time, the next one
//! finds a usable store.
#![forbid(unsafe_code)]

mod backup;
mod backup_error;
mod dump;
mod edits;
mod finding;
mod here;
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
pub use walk::{Depth, FINDING_COUNT_MAX, Outcome, Watch, check, check_part};
