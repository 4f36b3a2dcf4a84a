//! The command line: names, help and checks of all options.
//!
//! Each command's own file has its behaviour.

mod affinity;
mod bench;
mod cert;
mod certificates;
mod check;
mod cluster;
mod doctor;
mod driver;
mod engine;
mod etcd;
mod export;
mod expression;
mod files;
mod find;
mod find_kind;
mod generated_docs;
mod inspect;
mod job;
mod layout;
mod lease_grants;
mod leases;
mod line;
mod log;
mod metrics;
mod pin;
mod profile;
mod root_dir;
mod running;
mod seal;
mod secret;
mod slow;
mod spin;
mod stats;
mod top;
mod transport;
pub(crate) mod units;
mod versus;
mod warm;
mod why;

pub(crate) use affinity::Affinity;
pub(crate) use bench::{
    Bench, BenchCommand, BenchLimit, BenchNull, Dirs as BenchDirs, Exchange, Name as BenchName,
};
pub(crate) use cert::{Cert, CertCa, CertClient, CertCommand, CertServer, Validity};
pub(crate) use certificates::{CertArg, texts as certificate_texts};
pub(crate) use check::{Backup, Check, Dump, Restore};
pub(crate) use cluster::{
    Cluster, ClusterArg, ClusterCommand, ClusterInit, ClusterStatus, ClusterToken, Drain,
    RegistryArg, SERVER_COUNT_MAX, Servers, ServersArg, WEIGHT,
};
pub(crate) use doctor::Doctor;
pub(crate) use driver::{Driver, DriverArg, MountDriverArg};
pub(crate) use engine::{Direct, Io};
pub(crate) use etcd::EtcdArg;
pub(crate) use export::{
    AdminLogin, Export, ExportAdd, ExportCommand, ExportList, ExportName, Server, Squash,
};
pub(crate) use expression::{Expression, What};
pub(crate) use files::{
    Access, Cat, Chmod, Chown, Cp, Df, Du, Ln, Ls, Mkdir, Mv, Rm, Stat, Sync, Tree,
};
pub(crate) use find::Find;
pub(crate) use find_kind::FindKind;
pub(crate) use generated_docs::{Completions, Man};
pub(crate) use inspect::{Inspect, InspectWhat};
pub(crate) use job::{JobArg, job};
pub(crate) use layout::{Layout, LayoutCheck, LayoutCommand, LayoutGet, LayoutSet};
pub(crate) use lease_grants::{Granting, LeaseGrants};
pub(crate) use leases::{Leases, LeasesArg, WriteBehind, WriteBehindArg};
pub(crate) use line::parse;
pub(crate) use log::LogArg;
pub(crate) use metrics::MetricsArg;
pub(crate) use pin::{Pin, PinArg};
pub(crate) use profile::Profile;
pub(crate) use root_dir::RootDirArg;
pub(crate) use running::{Down, Status, Umount};
pub(crate) use seal::SealArg;
pub(crate) use secret::{Secret, SecretCommand};
pub(crate) use slow::SlowArg;
pub(crate) use spin::{SPIN_MAX, Spin, spin_us};
pub(crate) use stats::Stats;
pub(crate) use top::Top;
pub(crate) use transport::Transport;
pub(crate) use versus::BenchVersus;
pub(crate) use warm::Warm;
pub(crate) use why::Why;

use crate::address;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use units::time_text;
use units::{UNITS, size, size_in, size_text, time};

/// Most lanes of a process: a store has so many shards of each kind, and a lane without any has
/// nothing to do.
pub(crate) const LANE_COUNT_MAX: u16 = 64;

/// The version, and the commit where that is known (`build.rs`).
pub(crate) const VERSION: &str = env!("LANEFS_VERSION");

/// What every `--help` ends with.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, or failed for some of the files; stderr says why
  2  the command line makes no sense
  3  the server is not reachable; of `up`: it serves, and is mounted nowhere
  4  the secret or a certificate was refused, by the server or of the server
  5  this machine or user cannot mount";

/// What the `--help` of those ends with that take sizes and times.
fn units_and_codes() -> String {
    format!("{UNITS}\n\n{EXIT_CODES}")
}

/// lanefs: a parallel file system in user space, without a kernel module.
///
/// Start with `lanefs up ./mnt`: it makes the store ./mnt.lanefs, serves it and mounts it on ./mnt,
/// until Ctrl-C. The store has the files of ./mnt.
#[derive(Parser, Debug)]
#[command(name = "lanefs", version = VERSION, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Make a store if there is none, serve it and mount it on DIR, all in one
    #[command(after_help = units_and_codes())]
    Up(Up),
    /// Serve a store to the network, without mounting it
    #[command(after_help = units_and_codes())]
    Serve(Serve),
    /// Mount the file system of a server on DIR
    #[command(after_help = units_and_codes())]
    Mount(Mount),
    /// Unmount DIR
    #[command(after_help = EXIT_CODES)]
    Umount(Umount),
    /// Stop a running `up`, `serve` or `mount`
    Down(Down),
    /// List the running servers and mounts of this machine
    Status(Status),
    /// Look at what lanefs needs of this machine, of stores and of servers, and name remedies
    Doctor(Doctor),
    /// Read what lies below a path of a mount into the mount's caches ahead
    Warm(Warm),
    /// Show what a server or a mount does, for whom, and how long it takes
    Stats(Stats),
    /// Watch servers on a screen: what they do, for whom, and what is wrong
    Top(Top),
    /// Show where the time of slow and stuck requests goes, and for whom they wait
    Why(Why),
    /// Show who uses a mount, and where: requests by process and path, for some seconds
    Profile(Profile),
    /// List directories of a server, without a mount
    Ls(Ls),
    /// Print files of a server, without a mount
    Cat(Cat),
    /// Copy files to, from, within or between servers, without a mount
    Cp(Cp),
    /// Show all attributes of a file of a server
    Stat(Stat),
    /// Show directories of a server as a tree
    Tree(Tree),
    /// Find files of a server by name, kind, size and age; the server searches, only matches travel
    Find(Find),
    /// Show how much space directories of a server take
    Du(Du),
    /// Make directories on a server
    Mkdir(Mkdir),
    /// Remove files of a server
    Rm(Rm),
    /// Rename or move files within a server
    Mv(Mv),
    /// Make hard or symbolic links on a server
    Ln(Ln),
    /// Change permission bits of files of a server
    Chmod(Chmod),
    /// Change owner and group of files of a server
    Chown(Chown),
    /// Wait until all changes that programs have made, on any client, are on disk
    Sync(Sync),
    /// Show how much space a server's file system has
    Df(Df),
    /// Spread files over several servers: how new ones are, and where the stripes of a file lie
    Layout(Layout),
    /// Define what clients may mount: a directory, read-only or not, as which users
    Export(Export),
    /// Change the secret in two steps: both are valid, then the new one alone
    Secret(Secret),
    /// Make certificates for a server and its clients, to be used instead of the secret
    Cert(Cert),
    /// Make one file system of several servers
    Cluster(Cluster),
    /// List the servers of a cluster
    Servers(Servers),
    /// Give no new directories and files to a server of a cluster
    Drain(Drain),
    /// Check a store, and repair it
    Check(Check),
    /// Copy a store while a server has it open
    Backup(Backup),
    /// Print all metadata of a store as lines of JSON
    Dump(Dump),
    /// Make a store of a backup, or of what `dump` printed
    Restore(Restore),
    /// Read a store on its server's machine, for a client of the server.
    #[command(hide = true)]
    Inspect(Inspect),
    /// Measure lanefs against its limits
    #[command(after_help = units_and_codes())]
    Bench(Bench),
    /// Print a script that completes lanefs's command line in a shell
    Completions(Completions),
    /// Show or write the manual pages
    Man(Man),
    /// Run one of the limits that `bench` measures against.
    #[command(name = ::bench::LIMIT_COMMAND, hide = true)]
    BenchLimit(BenchLimit),
    /// Mount the null file system that `bench fuse-null` measures.
    #[command(name = ::bench::NULL_COMMAND, hide = true)]
    BenchNull(BenchNull),
}

/// What programs may do through a mount.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Powers {
    /// Set-id bits and capabilities of programs on the mount have effect; for root only
    #[arg(long)]
    pub(crate) suid: bool,
    /// Device files on the mount can be opened; for root only
    #[arg(long)]
    pub(crate) dev: bool,
}

impl Powers {
    /// The same as arguments.
    pub(crate) fn texts(self) -> impl Iterator<Item = &'static str> {
        let Self { suid, dev } = self;
        [suid.then_some("--suid"), dev.then_some("--dev")].into_iter().flatten()
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SecretFile {
    /// File with the secret [default: $LANEFS_SECRET_FILE, else lanefs/secret in the user's
    /// configuration folder, else /etc/lanefs/secret]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

/// Which replies wait for the disk.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// Only those that their own client could not replay. If a client does not return after a crash,
    /// changes of others that depend on its last changes may be lost
    Off,
    /// Those that depend on another client's uncommitted changes
    Write,
    /// Also those that show another client's uncommitted changes
    Strict,
}

impl Share {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        self.mode().text()
    }

    pub(crate) const fn mode(self) -> lane::Share {
        match self {
            Self::Off => lane::Share::Off,
            Self::Write => lane::Share::Write,
            Self::Strict => lane::Share::Strict,
        }
    }
}

/// What a server promises of changes that are not on disk yet.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Promises {
    /// Which replies wait until the changes that they depend on are on disk
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Share::Write)]
    pub(crate) share: Share,
    /// Every change is on disk before its reply
    #[arg(long)]
    pub(crate) sync: bool,
    /// How long a restarted server waits for known clients that are silent
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) recovery_soft: Duration,
    /// How long a restarted server waits for known clients that replay
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) recovery_hard: Duration,
}

/// Bounds of the log that is not applied yet.
pub(crate) const LOG_BYTES: std::ops::RangeInclusive<u64> = 1 << 24..=1 << 40;

/// Space for the log, and memory for names.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Most log that is not applied to the rows yet, from 16MiB to 1TiB; changes beyond it wait
    #[arg(long = "log-max", value_name = "SIZE", default_value = "1GiB", value_parser = size_in(LOG_BYTES))]
    pub(crate) log_bytes_max: u64,
    /// Size at which the next log file begins.
    #[arg(long = "segment", hide = true, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub(crate) segment_bytes: u64,
    /// How long records gather before they are applied to the rows.
    #[arg(long, hide = true, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) collect: Duration,
    /// Memory for names, approximately; other names are read when they are needed. Any size works,
    /// also 0 [default: all names are in memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) meta_memory: Option<u64>,
}

/// How a store is served, by `serve` and by `up`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serving {
    /// An export of the whole file system, for as long as the server runs; with =no-root-squash its
    /// clients' root acts as root. `lanefs export` defines permanent ones
    #[arg(long = "export", value_name = "NAME[=no-root-squash]")]
    pub(crate) exports: Vec<String>,
    /// Send a CRC-32C with the contents of every reply, at the cost of a copy. Without it large reads
    /// leave by sendfile, protected by TCP's checksum only
    #[arg(long)]
    pub(crate) checksum_reads: bool,
    /// Spread new directories down to this depth over the metadata shards; deeper ones are on their
    /// parent's shard; 0 spreads none
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) spread_depth: u8,
    /// Which lane has a connection's socket
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Affinity::Object, env = "LANEFS_AFFINITY")]
    pub(crate) affinity: Affinity,
    #[command(flatten)]
    pub(crate) promises: Promises,
    #[command(flatten)]
    pub(crate) lease_grants: LeaseGrants,
    #[command(flatten)]
    pub(crate) slow: SlowArg,
    #[command(flatten)]
    pub(crate) space: Space,
    #[command(flatten)]
    pub(crate) io: Io,
    #[command(flatten)]
    pub(crate) root_dir: RootDirArg,
}

impl Serving {
    /// The same as arguments.
    pub(crate) fn texts(&self) -> Vec<String> {
        // Without `..`: a new field cannot be forgotten.
        let Self {
            exports,
            checksum_reads,
            spread_depth,
            affinity,
            promises,
            lease_grants,
            slow,
            space,
            io,
            root_dir,
        } = self;
        let Promises { share, sync, recovery_soft, recovery_hard } = promises;
        let Space { log_bytes_max, segment_bytes, collect, meta_memory } = space;
        let mut texts: Vec<String> =
            exports.iter().map(|export| format!("--export={export}")).collect();
        texts.push(format!("--spread-depth={spread_depth}"));
        texts.push(format!("--affinity={}", affinity.text()));
        texts.push(format!("--share={}", share.text()));
        texts.push(format!("--recovery-soft={}", time_text(*recovery_soft)));
        texts.push(format!("--recovery-hard={}", time_text(*recovery_hard)));
        texts.extend(lease_grants.texts());
        texts.push(format!("--slow={}", time_text(slow.slow)));
        texts.push(format!("--log-max={}", size_text(*log_bytes_max)));
        texts.push(format!("--collect={}", time_text(*collect)));
        texts.push(format!("--segment={}", size_text(*segment_bytes)));
        texts.extend(io.texts());
        texts.extend(root_dir.texts());
        texts.extend(meta_memory.map(|bytes| format!("--meta-memory={}", size_text(bytes))));
        texts.extend(checksum_reads.then(|| "--checksum-reads".to_owned()));
        texts.extend(sync.then(|| "--sync".to_owned()));
        texts
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Up {
    /// Where to mount; made if missing, must be empty
    pub(crate) dir: PathBuf,
    /// The directory of the data; made at the first start [default: DIR.lanefs, beside DIR]
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// Address to serve on [default: 127.0.0.1:7117, or the next free port]
    #[arg(long, value_name = "HOST:PORT", value_parser = address::read)]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) servers: ServersArg,
    /// Lanes (threads) of the server and of the mount [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LANE_COUNT_MAX)))]
    pub(crate) lanes: Option<u16>,
    #[command(flatten)]
    pub(crate) spin: Spin,
    #[command(flatten)]
    pub(crate) driver: DriverArg,
    #[command(flatten)]
    pub(crate) mount_driver: MountDriverArg,
    #[command(flatten)]
    pub(crate) pin: PinArg,
    /// Go to the background when everything runs; the log file is beside the store
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
    /// How the kernel's requests reach the mount
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Transport::Auto)]
    pub(crate) fuse: Transport,
    #[command(flatten)]
    pub(crate) powers: Powers,
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) metrics: MetricsArg,
    #[command(flatten)]
    pub(crate) seal: SealArg,
    #[command(flatten)]
    pub(crate) certificates: CertArg,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
    #[command(flatten)]
    pub(crate) log: LogArg,
    /// This is the process in the background: say READY, then write to this file.
    #[arg(long, hide = true, value_name = "LOG")]
    pub(crate) in_background: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// The directory of the data; made if it does not exist
    #[arg(long, value_name = "PATH")]
    pub(crate) store: PathBuf,
    /// Address to serve on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7117")]
    #[arg(value_parser = address::read)]
    pub(crate) listen: String,
    /// Lanes (threads) [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LANE_COUNT_MAX)))]
    pub(crate) lanes: Option<u16>,
    #[command(flatten)]
    pub(crate) spin: Spin,
    #[command(flatten)]
    pub(crate) driver: DriverArg,
    #[command(flatten)]
    pub(crate) pin: PinArg,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
    #[command(flatten)]
    pub(crate) seal: SealArg,
    #[command(flatten)]
    pub(crate) certificates: CertArg,
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) cluster: ClusterArg,
    #[command(flatten)]
    pub(crate) metrics: MetricsArg,
    #[command(flatten)]
    pub(crate) log: LogArg,
    /// Read options from this file, under the same names; the command line wins [default:
    /// /etc/lanefs/serve.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Inject a fault, for crash tests.
    #[arg(long = "fault", hide = true, value_name = "NAME:COUNT")]
    #[arg(value_parser = crate::faults::Planned::parse)]
    pub(crate) faults: Vec<crate::faults::Planned>,
    /// Count and trace no requests, to measure what that costs.
    #[arg(long, hide = true)]
    pub(crate) unobserved: bool,
    /// Serve only the store of this file system, and make none.
    #[arg(long, hide = true, value_name = "HEX")]
    pub(crate) only: Option<String>,
    /// Standard input is the listening socket.
    #[arg(long, hide = true)]
    pub(crate) listen_on_stdin: bool,
    /// End when this parent process ends.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent_pid: Option<u32>,
}

/// Parses the time after which calls of a soft mount fail.
///
/// # Errors
/// No time, or one that is not from a second to a day, with the expected form.
pub(crate) fn soft_time(text: &str) -> Result<Duration, String> {
    units::time_in(Duration::from_secs(1)..=Duration::from_secs(86_400))(text)
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Mount {
    /// The server: HOST or HOST:PORT, followed by /EXPORT for an export. Of several addresses,
    /// separated by commas, the first that answers is used
    #[arg(value_name = "ADDRESS")]
    pub(crate) source: String,
    /// Where to mount; an existing, empty directory
    pub(crate) dir: PathBuf,
    /// Options of the mount as mount(8) has them, with commas between them: those that every file system has
    /// (ro, noexec, nosymfollow, noatime, suid, dev, ... and their opposites), remount for other flags of what is
    /// mounted already, allow_other, seal, plain, export=NAME, secret_file=FILE, cert=FILE,
    /// key=FILE, ca=FILE, log=FILE, lanes=N, fuse=HOW, driver=WHICH, pin=HOW, spin=TIME, leases=HOW,
    /// write_behind=HOW, job=NAME, slow=TIME, soft=TIME, hard
    #[arg(short = 'o', value_name = "OPTION,...")]
    pub(crate) options: Vec<String>,
    /// Which export to mount [default: the one that is called default; unless `lanefs export` made it
    /// another one, the whole file system, where root is nobody]
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Option<String>,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
    #[command(flatten)]
    pub(crate) seal: SealArg,
    #[command(flatten)]
    pub(crate) certificates: CertArg,
    /// How the kernel's requests reach the mount
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Transport::Auto)]
    pub(crate) fuse: Transport,
    #[command(flatten)]
    pub(crate) powers: Powers,
    /// Lanes (threads) [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LANE_COUNT_MAX)))]
    pub(crate) lanes: Option<u16>,
    #[command(flatten)]
    pub(crate) spin: Spin,
    #[command(flatten)]
    pub(crate) driver: DriverArg,
    #[command(flatten)]
    pub(crate) pin: PinArg,
    #[command(flatten)]
    pub(crate) leases: LeasesArg,
    #[command(flatten)]
    pub(crate) write_behind: WriteBehindArg,
    #[command(flatten)]
    pub(crate) job: JobArg,
    #[command(flatten)]
    pub(crate) slow: SlowArg,
    /// Let a call of a program fail (EIO) that no server has answered for so long [default: it waits
    /// until the server is back or the program is killed]
    #[arg(long, value_name = "TIME", value_parser = soft_time)]
    pub(crate) soft: Option<Duration>,
    #[command(flatten)]
    pub(crate) log: LogArg,
    /// Read options from this file, under the same names; the command line wins [default:
    /// /etc/lanefs/mount.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Go to the background once mounted
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
    /// This is the process in the background: say READY, then write to this file.
    #[arg(long, hide = true, value_name = "LOG")]
    pub(crate) in_background: Option<PathBuf>,
    /// The client's uuid at the server [default: random].
    #[arg(long, hide = true, value_name = "UUID", value_parser = client_uuid, env = "LANEFS_MOUNT_CLIENT")]
    pub(crate) client: Option<wire::ClientUuid>,
    /// Take the place of this mount, whose process has ended.
    #[arg(long, hide = true, value_name = "UUID", value_parser = client_uuid, env = "LANEFS_MOUNT_PREDECESSOR")]
    pub(crate) predecessor: Option<wire::ClientUuid>,
    /// Use the kernel as one before 6.16, which cannot forget all names at once, for tests.
    #[arg(long, hide = true)]
    pub(crate) as_before_epochs: bool,
    /// End when this parent process ends.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent_pid: Option<u32>,
}

/// Reads 32 hexadecimal digits.
fn client_uuid(text: &str) -> Result<wire::ClientUuid, String> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    let number = number.ok_or_else(|| String::from("32 hexadecimal digits are needed"))?;
    Ok(wire::ClientUuid(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_table_of_arguments_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn up_passes_the_options_of_serving_on() {
        let settings = [
            "--export=a",
            "--export=b=no-root-squash",
            "--spread-depth=1",
            "--affinity=client",
            "--share=strict",
            "--recovery-soft=1500ms",
            "--recovery-hard=2s",
            "--leases=off",
            "--lease-term=3s",
            "--slow=7ms",
            "--log-max=16MiB",
            "--collect=3ms",
            "--segment=4",
            "--io-engine=pool",
            "--io-direct=on",
            "--root-owner=7:8",
            "--root-mode=0750",
            "--meta-memory=5KiB",
            "--checksum-reads",
            "--sync",
        ];
        let up = Cli::parse_from(["lanefs", "up", "dir"].iter().chain(&settings));
        let Command::Up(up) = up.command else { panic!("not up") };
        let handed = up.serving.texts();
        assert_eq!(handed, settings);
        let served = ["lanefs", "serve", "--store", "store"].map(str::to_owned);
        let serve = Cli::parse_from(served.into_iter().chain(handed));
        let Command::Serve(serve) = serve.command else { panic!("not serve") };
        assert_eq!(serve.serving.texts(), settings);
    }
}
