//! The options of a mount: those of `-o`, as mount(8) writes them, and the flags of `lanefs mount`.
//!
//! Invariant: an unknown option is refused by its name.

use super::independent::{Independent, flags_of, is_of_fuse, look_up};
use crate::args::LANE_COUNT_MAX;
use crate::args::{
    self, CertArg, Driver, Leases, Pin, SPIN_MAX, SealArg, Transport, WriteBehind, spin_us, units,
};
use crate::exit::{Code, Exit};
use crate::{address, background};
use anyhow::{Result, bail};
use clap::ValueEnum;
use rustix::mount::MountFlags;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Options with a value.
const SETTINGS: [&str; 16] = [
    "export",
    "secret_file",
    "cert",
    "key",
    "ca",
    "log",
    "lanes",
    "fuse",
    "driver",
    "pin",
    "spin",
    "leases",
    "write_behind",
    "job",
    "slow",
    "soft",
];

/// The supported options of `-o`, for the error message about others.
const KNOWN: &str = "those of mount(8) that every file system has, remount, allow_other, seal, plain, export=NAME, \
    secret_file=FILE, cert=FILE, key=FILE, ca=FILE, log=FILE, lanes=N, fuse=HOW, driver=WHICH, pin=HOW, spin=TIME, leases=HOW, \
    write_behind=HOW, job=NAME, slow=TIME, hard, soft, soft=TIME";

/// What `soft` means without a time.
const SOFT_DEFAULT: Duration = Duration::from_secs(60);

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// `HOST:PORT` of servers, at least one: the first that answers is used.
    pub(crate) addresses: Vec<String>,
    /// Empty: the nameless one.
    pub(crate) export: String,
    /// What the kernel itself sees to.
    pub(crate) flags: MountFlags,
    /// The flags of these that `-o` named, set or not.
    named: MountFlags,
    /// What is mounted there already gets other flags.
    pub(crate) remount: bool,
    /// Users other than the mounting one may use it.
    pub(crate) allow_other: bool,
    /// Where the secret is, if that was said.
    pub(crate) secret_file: Option<PathBuf>,
    /// Lanes, if that was said.
    pub(crate) lanes: Option<u16>,
    /// How the kernel's requests reach the mount.
    pub(crate) fuse: Transport,
    pub(crate) driver: Driver,
    pub(crate) pin: Pin,
    /// How long lanes look out for more work before they sleep.
    pub(crate) spin_us: u32,
    /// Whether the kernel caches.
    pub(crate) leases: Leases,
    /// Whether writes to new files are answered early.
    pub(crate) write_behind: WriteBehind,
    /// What the mount is used for.
    pub(crate) job: String,
    /// Requests that take as long are remembered.
    pub(crate) slow: Duration,
    /// Requests that take as long fail, if that was said.
    pub(crate) soft: Option<Duration>,
    /// Whether connections are under TLS.
    pub(crate) seal: SealArg,
    /// What is shown instead of a secret.
    pub(crate) certificates: CertArg,
    log: Option<PathBuf>,
}

impl Options {
    /// What a command line asks for. Where flags and `-o` say different things, `-o` is followed;
    /// two exports are an error.
    pub(crate) fn of(args: &args::Mount) -> Result<Self> {
        let (addresses, export) = split_source(&args.source);
        let addresses: Result<Vec<String>> = addresses.split(',').map(address::full).collect();
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        flags.set(MountFlags::NOSUID, !args.powers.suid);
        flags.set(MountFlags::NODEV, !args.powers.dev);
        let mut options = Self {
            addresses: addresses?,
            export: export.unwrap_or_default().to_owned(),
            flags,
            named: MountFlags::empty(),
            remount: split(&args.options).any(|option| option == "remount"),
            // Only root may let others in without a line in /etc/fuse.conf.
            allow_other: rustix::process::geteuid().is_root(),
            secret_file: args.secret.secret_file.clone(),
            lanes: args.lanes,
            fuse: args.fuse,
            driver: args.driver.driver,
            pin: args.pin.pin,
            spin_us: args.spin.us(),
            leases: args.leases.leases,
            write_behind: args.write_behind.write_behind,
            job: args.job.job.clone(),
            slow: args.slow.slow,
            soft: args.soft,
            seal: args.seal,
            certificates: args.certificates.clone(),
            log: None,
        };
        if let Some(export) = &args.export {
            options.choose_export(export)?;
        }
        for option in split(&args.options) {
            if !options.take(option)? {
                if option.starts_with("spin_us=") {
                    bail!(Exit::usage(
                        "there is no mount option spin_us: it is spin=TIME, as spin=50us"
                    ));
                }
                bail!(Exit::usage(format!("unknown mount option \"{option}\"; there are {KNOWN}")));
            }
        }
        Ok(options)
    }

    /// Takes one option; one that is not known is not taken.
    fn take(&mut self, option: &str) -> Result<bool> {
        match look_up(option) {
            Independent::Flag(set, clear) => {
                self.flags = self.flags.difference(clear).union(set);
                self.named |= set | clear;
                return Ok(true);
            }
            Independent::ForOthers => return Ok(true),
            Independent::Impossible(why) => {
                bail!(Exit::usage(format!("the mount option \"{option}\" cannot be had: {why}")));
            }
            Independent::Other => {}
        }
        match option.split_once('=') {
            None if option == "remount" => {}
            None if option == "allow_other" => self.allow_other = true,
            None if option == "seal" => self.seal = SealArg::ALL,
            None if option == "plain" => self.seal = SealArg { seal: false, plain: true },
            None if option == "hard" => self.soft = None,
            None if option == "soft" => self.soft = Some(SOFT_DEFAULT),
            Some(("export", name)) => self.choose_export(name)?,
            Some(("secret_file", file)) => self.secret_file = Some(full(option, file)?),
            Some(("cert", file)) => self.certificates.cert = Some(full(option, file)?),
            Some(("key", file)) => self.certificates.key = Some(full(option, file)?),
            Some(("ca", file)) => self.certificates.ca = Some(full(option, file)?),
            Some(("log", file)) => self.log = Some(full(option, file)?),
            Some(("lanes", count)) => self.lanes = Some(number(option, count, 1, LANE_COUNT_MAX)?),
            Some(("fuse", how)) => self.fuse = one_of(option, how)?,
            Some(("driver", which)) => self.driver = one_of(option, which)?,
            Some(("pin", how)) => self.pin = one_of(option, how)?,
            Some(("leases", how)) => self.leases = one_of(option, how)?,
            Some(("write_behind", how)) => self.write_behind = one_of(option, how)?,
            Some(("job", name)) => self.job = args::job(name).map_err(Exit::usage)?,
            Some(("slow", time)) => self.slow = value(option, units::time(time))?,
            Some(("soft", time)) => self.soft = Some(value(option, args::soft_time(time))?),
            Some(("spin", time)) => {
                self.spin_us =
                    spin_us(value(option, units::time_in(Duration::ZERO..=SPIN_MAX)(time))?)
            }
            Some(_) | None => return Ok(self.remount && is_of_fuse(option)),
        }
        Ok(true)
    }

    fn choose_export(&mut self, export: &str) -> Result<()> {
        if !self.export.is_empty() && self.export != export {
            let line = format!("two exports are named: \"{}\" and \"{export}\"", self.export);
            bail!(Exit::usage(line));
        }
        export.clone_into(&mut self.export);
        Ok(())
    }

    /// The flags of a mount that has these options in the mount table, once it is mounted anew.
    pub(crate) fn flags_over(&self, shown: &str) -> MountFlags {
        flags_of(shown).difference(self.named).union(self.flags.intersection(self.named))
    }

    /// Checks that no option is reserved for root.
    pub(crate) fn check_rights(&self) -> Result<()> {
        let powers = [(MountFlags::NOSUID, "suid"), (MountFlags::NODEV, "dev")];
        let power = powers.iter().find(|(flag, _)| !self.flags.contains(*flag));
        // fusermount3 does not know it, and it is there to protect.
        let follows = (MountFlags::NOSYMFOLLOW, "nosymfollow");
        let asked = power.or_else(|| Some(&follows).filter(|(flag, _)| self.flags.contains(*flag)));
        match asked {
            Some((_, power)) if !rustix::process::geteuid().is_root() => {
                let line = format!("the mount option {power} is for root alone");
                Err(Exit::new(Code::CannotMount, line).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The log file of a mount in the background.
    pub(crate) fn log_file(&self, dir: &Path) -> PathBuf {
        self.log.clone().unwrap_or_else(|| background::beside(dir, ".lanefs-mount.log"))
    }
}

/// The options of several `-o`.
fn split(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty())
}

/// The known ones of `options`, as of `mount -s`.
pub(crate) fn known_of(options: &[String]) -> String {
    let is_known = |option: &&str| {
        let name = option.split_once('=').map_or(*option, |(name, _)| name);
        let has_value = SETTINGS.contains(&name);
        let is_flag = ["remount", "allow_other", "seal", "plain", "hard", "soft"].contains(option);
        is_flag || has_value || look_up(option) != Independent::Other
    };
    split(options).filter(is_known).collect::<Vec<_>>().join(",")
}

/// `HOST:PORT/EXPORT`, with `lanefs://` before it or not, `HOST:/EXPORT` as for NFS, or several `HOST:PORT`
/// separated by commas: addresses and export.
fn split_source(source: &str) -> (&str, Option<&str>) {
    let rest = source.strip_prefix(address::SCHEME).unwrap_or(source);
    let Some((addresses, export)) = rest.split_once('/') else { return (rest, None) };
    let is_v6 = addresses.ends_with("::");
    let bare = addresses.strip_suffix(':').filter(|_| !is_v6);
    (bare.unwrap_or(addresses), Some(export))
}

/// A path that is the same from everywhere: a mount in the background is elsewhere.
fn full(option: &str, file: &str) -> Result<PathBuf> {
    if file.is_empty() {
        bail!(Exit::usage(format!("the mount option \"{option}\" names no file")));
    }
    Ok(std::path::absolute(file)?)
}

fn number<N>(option: &str, count: &str, least: N, most: N) -> Result<N>
where
    N: FromStr + PartialOrd + Display,
{
    let fits = |count: &N| (&least..=&most).contains(&count);
    count.parse().ok().filter(fits).ok_or_else(|| {
        Exit::usage(format!("the mount option \"{option}\" is not a number from {least} to {most}"))
            .into()
    })
}

/// What was read of the value of an option, or an error that names the option.
fn value<T>(option: &str, read: Result<T, String>) -> Result<T> {
    Ok(read.map_err(|why| Exit::usage(format!("the mount option \"{option}\": {why}")))?)
}

/// A choice, in the words of the flag of that name.
fn one_of<T: ValueEnum>(option: &str, word: &str) -> Result<T> {
    T::from_str(word, false).map_err(|_| {
        let words = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let words: Vec<String> = words.map(|word| word.get_name().to_owned()).collect();
        Exit::usage(format!("the mount option \"{option}\" is none of {}", words.join(", "))).into()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    fn options(arguments: &[&str]) -> Result<Options> {
        let line = ["lanefs", "mount", "host/data", "dir"].iter().chain(arguments);
        let Command::Mount(args) = Cli::parse_from(line).command else { panic!("not mount") };
        Options::of(&args)
    }

    #[test]
    fn the_last_option_wins() {
        let found = options(&["-o", "ro,suid,noexec,rw", "-o", "exec,nodev,noatime"]).unwrap();
        assert_eq!(found.flags, MountFlags::NODEV | MountFlags::NOATIME);
    }

    #[test]
    fn what_is_for_others_is_passed_over() {
        let all = "defaults,_netdev,nofail,noauto,x-systemd.automount,X-mount.mkdir,user=me,,async";
        let plain = options(&[]).unwrap();
        // A remount takes what it names.
        let named = MountFlags::SYNCHRONOUS;
        assert_eq!(options(&["-o", all]).unwrap(), Options { named, ..plain.clone() });
        assert_eq!(plain.flags, MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(
            (plain.addresses, plain.export.as_str()),
            (vec!["host:7117".to_owned()], "data")
        );
    }

    #[test]
    fn what_is_not_known_is_named_and_sloppily_left_out() {
        for unknown in ["frob", "frob=1", "user_id=0", "ro=1", "export", "lanes"] {
            let line = options(&["-o", &format!("ro,{unknown}")]).unwrap_err().to_string();
            assert!(line.contains(&format!("\"{unknown}\"")), "{line}");
        }
        assert_eq!(known_of(&["ro,frob".into(), "lanes=2,x-y,z=1".into()]), "ro,lanes=2,x-y");
    }

    #[test]
    fn a_remount_changes_what_is_named_and_takes_what_the_mount_table_shows() {
        let shown = "rw,nosuid,nodev,noatime,rw,user_id=0,group_id=0,allow_other,max_read=1048576";
        let found = options(&["-o", &format!("{shown},remount,ro,relatime")]).unwrap();
        assert!(found.remount);
        let common = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(found.flags_over(shown), common | MountFlags::RDONLY | MountFlags::RELATIME);
        let found = options(&["-o", "remount,rw"]).unwrap();
        assert_eq!(found.flags_over("ro,noexec,strictatime,ro"), {
            MountFlags::NOEXEC | MountFlags::STRICTATIME
        });
    }

    #[test]
    fn values_are_looked_at() {
        let found = options(&["-o", "lanes=3,secret_file=/s,log=/l,export=data"]).unwrap();
        assert_eq!((found.lanes, found.secret_file.as_deref()), (Some(3), Some(Path::new("/s"))));
        assert_eq!(found.log_file(Path::new("/d")), Path::new("/l"));
        for bad in [
            "lanes=0",
            "lanes=65",
            "lanes=x",
            "secret_file=",
            "export=other",
            "spin=2ms",
            "spin=50",
            "slow=5",
            "soft=5",
            "soft=0",
        ] {
            assert!(options(&["-o", bad]).is_err(), "{bad}");
        }
        assert!(options(&["--export", "other"]).is_err());
        let slow = |arguments: &[&str]| options(arguments).unwrap().slow;
        assert_eq!(slow(&[]), Duration::from_millis(20));
        assert_eq!(slow(&["--slow", "3ms", "-o", "slow=1s"]), Duration::from_secs(1));
        let soft = |arguments: &[&str]| options(arguments).unwrap().soft;
        assert_eq!(soft(&[]), None);
        assert_eq!(soft(&["--soft", "5s"]), Some(Duration::from_secs(5)));
        assert_eq!(soft(&["-o", "soft"]), Some(Duration::from_secs(60)));
        assert_eq!(soft(&["-o", "soft=2min"]), Some(Duration::from_secs(120)));
        assert_eq!(soft(&["--soft", "5s", "-o", "hard"]), None);
    }

    #[test]
    fn what_a_flag_chooses_an_option_chooses_too() {
        let of = |arguments: &[&str]| {
            let Options { fuse, driver, pin, spin_us, leases, .. } = options(arguments).unwrap();
            (fuse, driver, pin, spin_us, leases)
        };
        let all = (Transport::Classic, Driver::Epoll, Pin::Off, 50, Leases::Off);
        let words = "--fuse classic --driver epoll --pin off --spin 50us --leases off";
        let flags: Vec<&str> = words.split(' ').collect();
        assert_eq!(of(&["-o", "fuse=classic,driver=epoll,pin=off,spin=50us,leases=off"]), all);
        assert_eq!(of(&flags), all);
        let usual = "fuse=auto,driver=auto,pin=on,spin=0,leases=on";
        assert_eq!(of(&[&flags[..], &["-o", usual]].concat()), of(&["-o", usual]));
        let line = options(&["-o", "driver=mio"]).unwrap_err().to_string();
        assert!(line.contains("\"driver=mio\" is none of auto, io-uring, epoll"), "{line}");
    }

    #[test]
    fn every_setting_is_taken_and_named() {
        for name in SETTINGS {
            // Whatever comes of its value.
            assert!(
                !options(&["-o", &format!("{name}=x")])
                    .is_err_and(|error| { error.to_string().contains("unknown") })
            );
            assert!(KNOWN.contains(&format!("{name}=")), "{name}");
        }
    }

    #[test]
    fn a_source_may_name_an_export() {
        assert_eq!(split_source("h:1"), ("h:1", None));
        assert_eq!(split_source("h:1,[::1]:2/a"), ("h:1,[::1]:2", Some("a")));
        assert_eq!(split_source("h:1/"), ("h:1", Some("")));
        assert_eq!(split_source("h:/"), ("h", Some("")));
        assert_eq!(split_source("h,[::1]:/a"), ("h,[::1]", Some("a")));
        assert_eq!(split_source("fe80::/a"), ("fe80::", Some("a")));
        assert_eq!(split_source("h:"), ("h:", None));
        assert_eq!(split_source("lanefs://[::1]:2/a"), ("[::1]:2", Some("a")));
    }
}
