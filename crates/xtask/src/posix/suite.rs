//! The suites of tests.

use clap::ValueEnum;

/// A suite of tests.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Suite {
    /// The result and the effect of each call
    Pjdfstest,
    /// A file that is written, read, mapped and truncated at random
    Fsx,
    /// Files whose blocks carry checksums, read again after a restart
    Fio,
    /// Many programs at once with all kinds of calls
    StressNg,
}

impl Suite {
    /// All of them, in the order in which they run.
    pub(crate) const ALL: [Self; 4] = [Self::Pjdfstest, Self::Fsx, Self::Fio, Self::StressNg];

    /// Its name in reports of a run without leases.
    pub(crate) const fn text_without_leases(self) -> &'static str {
        match self {
            Self::Pjdfstest => "pjdfstest without leases",
            Self::Fsx => "fsx without leases",
            Self::Fio => "fio without leases",
            Self::StressNg => "stress-ng without leases",
        }
    }

    /// Its name in reports of a run over several servers, if CI has one.
    pub(crate) const fn text_over_servers(self) -> Option<&'static str> {
        match self {
            Self::Pjdfstest => Some("pjdfstest over servers"),
            Self::Fsx => Some("fsx over servers"),
            Self::Fio | Self::StressNg => None,
        }
    }

    /// Its name in the list and in reports.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Pjdfstest => "pjdfstest",
            Self::Fsx => "fsx",
            Self::Fio => "fio",
            Self::StressNg => "stress-ng",
        }
    }
}
