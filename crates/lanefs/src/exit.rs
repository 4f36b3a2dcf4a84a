//! Exit codes: every outcome that a script may distinguish has its own code.
//!
//! Invariant: the numbers here are the ones `--help` prints ([`crate::args::EXIT_CODES`]), and those of `check` and `doctor` alone
//! are in their help.

use library::{Error, Refused};

/// Exit code of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Code {
    /// Failure; stderr has the reason.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The server is not reachable. Of `up -d`: it serves, and is mounted nowhere.
    Unreachable = 3,
    /// The server did not take the secret or certificate, or did not know it, or showed a bad one.
    Secret = 4,
    /// This machine or user cannot mount.
    CannotMount = 5,
    /// `check --repair` has mended all that it found.
    Repaired = 6,
    /// `check` found damage that `check --repair` repairs.
    Mendable = 7,
    /// `check` found damage that needs manual repair; `backup` and `restore` found damaged contents.
    Damaged = 8,
    /// The worst finding of `doctor` is a warning.
    Warnings = 9,
    /// The worst finding of `doctor` is an error.
    Errors = 10,
}

impl Code {
    /// The code of a number that another process ended with.
    pub(crate) const fn of_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Failed,
            2 => Self::Usage,
            3 => Self::Unreachable,
            4 => Self::Secret,
            5 => Self::CannotMount,
            6 => Self::Repaired,
            7 => Self::Mendable,
            8 => Self::Damaged,
            9 => Self::Warnings,
            10 => Self::Errors,
            _ => return None,
        })
    }

    /// The number.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }
}

/// An error with its own exit code.
#[derive(thiserror::Error, Debug)]
#[error("{line}")]
pub(crate) struct Exit {
    /// The code.
    pub(crate) code: Code,
    /// What to print; empty when everything was said already.
    pub(crate) line: String,
}

impl Exit {
    /// With a line.
    pub(crate) fn new(code: Code, line: impl Into<String>) -> Self {
        Self { code, line: line.into() }
    }

    /// A command line that makes no sense.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self::new(Code::Usage, line)
    }

    /// Everything was said already.
    pub(crate) const fn said(code: Code) -> Self {
        Self { code, line: String::new() }
    }
}

/// The code that an error ends with.
pub(crate) fn code_of(error: &anyhow::Error) -> Code {
    for cause in error.chain() {
        if let Some(exit) = cause.downcast_ref::<Exit>() {
            return exit.code;
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return code_of_library(error);
        }
    }
    Code::Failed
}

/// The code that an error of the library ends with.
pub(crate) const fn code_of_library(error: &Error) -> Code {
    match error {
        Error::Unreachable { .. } => Code::Unreachable,
        Error::Refused { reason, .. } => code_of_refusal(*reason),
        Error::Op { .. } | Error::Ring(_) | Error::Left => Code::Failed,
    }
}

/// The code that a refused handshake ends with.
pub(crate) const fn code_of_refusal(reason: Refused) -> Code {
    match reason {
        Refused::WrongSecret
        | Refused::WrongExportSecret
        | Refused::ServerCertificate(_)
        | Refused::OwnCertificate(_)
        | Refused::NotCertified => Code::Secret,
        Refused::NoSuchExport
        | Refused::OtherFileSystem
        | Refused::OtherRoot
        | Refused::RolledBack
        | Refused::MustSeal
        | Refused::MustNotSeal => Code::Failed,
    }
}
