//! `mount.lanefs`: the program that mount(8) starts for `mount -t lanefs` and such lines of fstab;
//! `mount.fuse.lanefs` is the same for `-t fuse.lanefs`. Without that link mount(8) has mount.fuse3 start
//! `lanefs SOURCE DIR -o OPTIONS`, which has the same effect.
//!
//! It checks the command line, starts `lanefs mount` in the background, and ends when that has mounted.
//! Invariant: its exit codes are those of mount(8), and nothing is on stdout.

use super::{options, remount};
use crate::args::{Cli, Command, VERSION};
use crate::exit::{Code, Exit};
use crate::{background, mounts, out};
use anyhow::Result;
use clap::{CommandFactory as _, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NAMES: [&str; 2] = ["mount.lanefs", "mount.fuse.lanefs"];

/// mount(8): incorrect invocation or permissions.
const USAGE: u8 = 1;
/// mount(8): system error.
const SYSTEM: u8 = 2;
/// mount(8): mount failure.
const FAILURE: u8 = 32;

/// Mounts the file system of a lanefs server, for mount(8).
#[derive(Parser, Debug)]
#[command(name = "mount.lanefs", version = VERSION, max_term_width = 100)]
struct Arguments {
    /// The server: HOST or HOST:PORT, and /EXPORT behind it for an export
    source: String,
    /// Where to mount; an existing, empty directory
    dir: PathBuf,
    /// Options of the mount, as `lanefs mount -o` has them
    #[arg(short = 'o', value_name = "OPTION,...")]
    options: Vec<String>,
    /// Options that are not known are passed over
    #[arg(short = 's')]
    sloppy: bool,
    /// Everything but mounting is done
    #[arg(short = 'f')]
    fake: bool,
    /// Accepted: there is no mtab to leave alone
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Print the mount on stderr
    #[arg(short = 'v')]
    verbose: bool,
    /// The file system type passed by mount(8)
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
}

/// Whether this command line, with the program's name, is one of those above.
pub(crate) fn is_by_type(line: &[OsString]) -> bool {
    let name = line.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| NAMES.iter().any(|ours| name == *ours)) {
        return true;
    }
    let [_, source, _, option, _] = line else { return false };
    let is_command = |name| Cli::command().find_subcommand(name).is_some();
    let is_flag = source.as_encoded_bytes().starts_with(b"-");
    option == "-o" && !is_flag && !is_command(source)
}

/// Runs the command; `arguments` without the program's name.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let line = std::iter::once(OsString::from(NAMES[0])).chain(arguments);
    let arguments = match Arguments::try_parse_from(line) {
        Ok(arguments) => arguments,
        Err(error) => {
            // There is no place left to say that the output is closed.
            let _unread = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match mount(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = format!("{error:#}");
            if !line.is_empty() {
                out::print_error_line(&format!("mount.lanefs: {line}"));
            }
            ExitCode::from(code_of(&error))
        }
    }
}

/// The code of mount(8). What has a code of its own was said by the mount; the rest is of this
/// process: it could not begin.
fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Exit>() {
        Some(exit) if exit.code == Code::Usage => USAGE,
        Some(_) => FAILURE,
        None => SYSTEM,
    }
}

fn mount(arguments: Arguments) -> Result<()> {
    let Arguments { source, dir, options, sloppy, fake, no_mtab: _, verbose, fs_type: _ } =
        arguments;
    let options = if sloppy { options::known_of(&options) } else { options.join(",") };
    let mut line = vec![OsString::from("mount")];
    if !options.is_empty() {
        line.extend(["-o".into(), options.into()]);
    }
    line.extend(["--".into(), source.clone().into(), dir.clone().into()]);
    let checked = Cli::try_parse_from(std::iter::once("lanefs".into()).chain(line.clone()))?;
    let Command::Mount(args) = checked.command else { panic!("it is the command mount") };
    let asked = options::Options::of(&args)?;
    let failed = |error: anyhow::Error| Exit::new(Code::Failed, format!("{error:#}"));
    let dir = mounts::absolute(&dir).map_err(failed)?;
    if asked.remount {
        return if fake { Ok(()) } else { remount::run(&dir, &asked) };
    }
    // Before a log is begun beside it.
    super::check_dir(&dir).map_err(failed)?;
    if fake {
        return Ok(());
    }
    background::launch_with(&line, &asked.log_file(&dir), false)?;
    if verbose {
        out::print_error_line(&format!("mount.lanefs: {source} mounted on {}", dir.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_arguments_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_name_decides_or_what_mount_fuse3_writes() {
        let is = |line: &str| is_by_type(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(is("/sbin/mount.lanefs"));
        assert!(is("mount.fuse.lanefs host dir"));
        assert!(is("lanefs host:1/up dir -o rw,dev,suid"));
        for other in
            ["/usr/bin/lanefs", "lanefs mount host -o ro", "lanefs --x y -o z", "lanefs ls"]
        {
            assert!(!is(other), "{other}");
        }
        assert!(!is_by_type(&[]));
    }
}
