//! The option for the job of a mount.

use clap::Args;

/// The same as an argument.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobArg {
    /// What the mount is used for, at most 64 bytes: `lanefs stats --by job` of the server shows the
    /// requests of all clients with this name together
    #[arg(long, value_name = "NAME", default_value = "", env = "LANEFS_JOB", value_parser = job, hide_default_value = true)]
    pub(crate) job: String,
}

/// Reads the name of a job.
pub(crate) fn job(text: &str) -> Result<String, String> {
    if text.len() > wire::LABEL_BYTES_MAX {
        return Err(format!("a job's name has at most {} bytes", wire::LABEL_BYTES_MAX));
    }
    Ok(text.to_owned())
}
