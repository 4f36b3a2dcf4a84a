//! The arguments of the process that reads a server's store on its host. The server passes them.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inspect {
    /// The directory of the store, absolute
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// End when this process, the server, ends
    #[arg(long, value_name = "PID")]
    pub(crate) parent_pid: u32,
    #[command(subcommand)]
    pub(crate) what: InspectWhat,
}

#[derive(Subcommand, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InspectWhat {
    /// As `lanefs check`.
    Check {
        #[arg(long)]
        json: bool,
        #[arg(long)]
        skip_contents: bool,
    },
    /// As `lanefs dump`.
    Dump,
    /// As `lanefs backup`.
    Backup {
        /// In milliseconds.
        #[arg(long, value_name = "COUNT")]
        freeze_ms_max: u64,
    },
}

impl Inspect {
    /// The same as arguments.
    pub(crate) fn texts(&self) -> Vec<OsString> {
        let Self { store, parent_pid, what } = self;
        let parent_pid = format!("--parent-pid={parent_pid}");
        let mut texts = vec!["inspect".into(), parent_pid.into(), store.into()];
        match what {
            InspectWhat::Check { json, skip_contents } => {
                texts.push("check".into());
                texts.extend(json.then(|| "--json".into()));
                texts.extend(skip_contents.then(|| "--skip-contents".into()));
            }
            InspectWhat::Dump => texts.push("dump".into()),
            InspectWhat::Backup { freeze_ms_max } => {
                texts.push("backup".into());
                texts.push(format!("--freeze-ms-max={freeze_ms_max}").into());
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn what_a_server_writes_is_read_as_it_was_meant() {
        for what in [
            InspectWhat::Check { json: false, skip_contents: true },
            InspectWhat::Check { json: true, skip_contents: false },
            InspectWhat::Dump,
            InspectWhat::Backup { freeze_ms_max: u64::MAX },
        ] {
            let inspect = Inspect { store: PathBuf::from("/srv/check"), parent_pid: 7, what };
            let line = [OsString::from("lanefs")].into_iter().chain(inspect.texts());
            let Command::Inspect(read) = Cli::parse_from(line).command else {
                panic!("not inspect")
            };
            assert_eq!(read, inspect);
        }
    }
}
