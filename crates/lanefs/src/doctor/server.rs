//! A server: whether it is reachable, lets this user in, how far away it is, and its clock.

use super::finding::Finding;
use super::space;
use super::text::time_text;
use crate::args::Access;
use crate::login::Login;
use crate::running::{Entry, Kind};
use crate::top::alerts;
use crate::{address, args, export};
use anyhow::Result;
use library::{ConnectOptions, DriverChoice, Error, Identity, Purpose, Refused, Volume};
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PING_COUNT_MAX: usize = 100;
const PINGING_MAX: Duration = Duration::from_secs(1);
/// A median of more than this makes each change and each fsync slow.
const FAR: Duration = Duration::from_millis(5);
/// Clocks that differ by more than this confuse `make` and `find -mtime`.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Looks at the server at `address`, as `HOST:PORT`. `running`: what runs on this machine.
pub(super) fn look(address: &str, access: &Access, running: &[&Entry]) -> Vec<Finding> {
    let findings = match address::resolve(address) {
        Ok(at) => reach(address, at, access, running),
        Err(error) => {
            let remedy = "look at the spelling, at /etc/hosts and at the name server";
            vec![Finding::error("server-address", format!("{error:#}"), remedy)]
        }
    };
    findings.into_iter().map(|finding| finding.about(address)).collect()
}

fn reach(address: &str, at: SocketAddr, access: &Access, running: &[&Entry]) -> Vec<Finding> {
    let begin = Instant::now();
    let connected = TcpStream::connect_timeout(&at, access.connect_timeout).map(drop);
    let mut findings = vec![connection(connected, begin.elapsed(), where_is(at))];
    if findings.iter().any(|finding| finding.remedy.is_some()) {
        return findings;
    }
    let mut volume = match connect(address, at, access) {
        Ok(volume) => volume,
        Err(error) => {
            findings.push(refusal(&error));
            return findings;
        }
    };
    let lanes = volume.server_lane_count();
    findings.push(Finding::ok("server-login", format!("it lets this user in; lanes: {lanes}")));
    findings.push(version(at, running));
    findings.extend(exchanges(&mut volume));
    findings.extend(state(address, access));
    match volume.statfs() {
        Ok(space) => findings.extend(space::judge(space::Free::of_server(&space))),
        Err(error) => {
            findings.push(Finding::note("space", format!("cannot be asked for: {error}")))
        }
    }
    findings
}

/// What the server itself knows to be wrong, which it tells administrators.
fn state(address: &str, access: &Access) -> Vec<Finding> {
    const CHECK: &str = "server-state";
    let Access { secret, seal, certificates, connect_timeout, .. } = access;
    let login = args::AdminLogin {
        secret: secret.clone(),
        seal: *seal,
        certificates: certificates.clone(),
        connect_timeout: *connect_timeout,
    };
    let asked = export::connect(&args::Server { server: address.to_owned(), login });
    match asked.and_then(|(mut volume, _)| Ok(volume.counters()?)) {
        Ok(lanes) => judge_state(alerts::standing(&lanes)),
        Err(error) => {
            let found = format!("it tells its state to administrators only: {error:#}");
            vec![Finding::note(CHECK, found)]
        }
    }
}

fn judge_state(sentences: Vec<String>) -> Vec<Finding> {
    const CHECK: &str = "server-state";
    if sentences.is_empty() {
        let found = "no log is full, no shard is stuck, and no client holds others up";
        return vec![Finding::ok(CHECK, found.to_owned())];
    }
    let remedy = "`lanefs why` says who waits, and `lanefs top` whether it goes on";
    sentences.into_iter().map(|it| Finding::warning(CHECK, it, remedy)).collect()
}

/// How the way to an address is named.
fn where_is(at: SocketAddr) -> &'static str {
    if at.ip().is_loopback() {
        "over loopback, on this machine"
    } else if UdpSocket::bind((at.ip(), 0)).is_ok() {
        // Only an own address can be bound.
        "at an address of this machine"
    } else {
        "over the network"
    }
}

fn connection(connected: io::Result<()>, took: Duration, way: &str) -> Finding {
    const CHECK: &str = "server-connection";
    let Err(error) = connected else {
        return Finding::ok(CHECK, format!("a TCP connection {way} takes {}", time_text(took)));
    };
    let (found, remedy) = if error.kind() == io::ErrorKind::ConnectionRefused {
        let remedy = "start the server there (`lanefs serve --store PATH --listen ADDR`), or look at the port: \
                      `lanefs status` on that machine names what runs";
        ("nothing listens there".to_owned(), remedy)
    } else if error.kind() == io::ErrorKind::TimedOut {
        let found = format!("no answer within {}", time_text(took));
        (found, "look whether the machine is up, and whether a firewall in between drops the port")
    } else {
        let found = format!("no connection: {error}");
        (found, "look at the address, the route to it (`ip route get ADDR`) and firewalls")
    };
    Finding::error(CHECK, found, remedy)
}

fn connect(address: &str, at: SocketAddr, access: &Access) -> Result<Volume> {
    let shown = (access.seal, &access.certificates);
    let Login { secrets, secret_file, certificates, sealing } =
        Login::read(address, access.secret.secret_file.as_deref(), shown)?;
    let options = ConnectOptions {
        address: at,
        secret: secrets.current,
        secret_file,
        certificates,
        export: access.export.clone(),
        purpose: Purpose::Use,
        identity: Identity::of_process(),
        connect_timeout: access.connect_timeout,
        driver: DriverChoice::Auto,
        sealing,
    };
    Ok(Volume::connect(&options)?)
}

/// Why a server that has accepted a TCP connection lets nobody in.
fn refusal(error: &anyhow::Error) -> Finding {
    const CHECK: &str = "server-login";
    let Some(error) = error.downcast_ref::<Error>() else {
        return Finding::error(CHECK, "there is no secret to show it", format!("{error:#}"));
    };
    match error {
        Error::Unreachable { busy: true, .. } => Finding::error(
            CHECK,
            "it has as many connections as it takes",
            "end clients, or try again later",
        ),
        Error::Unreachable { busy: false, .. } => Finding::error(
            CHECK,
            "it accepts a connection and does not answer as a lanefs server of this version",
            "compare `lanefs --version` here and there, look whether another program has the port, and \
             whether the server's machine is overloaded",
        ),
        Error::Refused { reason, .. } => {
            Finding::error(CHECK, format!("refused: {}", reason.text()), remedy_of(*reason))
        }
        Error::Ring(error) => Finding::error(
            CHECK,
            format!("no lane can be made: {error}"),
            "raise the limits of memory and open files",
        ),
        Error::Op { .. } | Error::Left => Finding::error(
            CHECK,
            error.to_string(),
            "look at the log of the server, and report it with `lanefs doctor --report`",
        ),
    }
}

const fn remedy_of(reason: Refused) -> &'static str {
    match reason {
        Refused::WrongSecret | Refused::WrongExportSecret => {
            "copy the server's secret file here (mode 0600), or name the right one with --secret-file"
        }
        Refused::NoSuchExport => "`lanefs export list ADDR` names those that there are",
        Refused::OtherFileSystem | Refused::OtherRoot => "unmount, and mount again",
        Refused::RolledBack => {
            "restore the store's latest state: an older copy of it is being served"
        }
        Refused::MustSeal => "leave --plain away, or pass --seal",
        Refused::MustNotSeal => "pass --plain, or start the server with --seal",
        Refused::ServerCertificate(_) | Refused::OwnCertificate(_) | Refused::NotCertified => {
            "renew the certificate with `lanefs cert`, and look at the clocks of both machines"
        }
    }
}

/// Whether what serves there is the same build, which only a server of this machine says.
fn version(at: SocketAddr, running: &[&Entry]) -> Finding {
    let listens = |entry: &&&Entry| {
        let listens = entry.address.as_ref().and_then(|address| address.parse().ok());
        entry.kind == Kind::Serve && listens.map(address::loopback_if_unspecified) == Some(at)
    };
    let here = running.iter().find(listens).and_then(|entry| entry.version.as_deref());
    match here {
        Some(version) if version == args::VERSION => {
            Finding::ok("server-version", format!("lanefs {version}, as this program"))
        }
        Some(version) => {
            let found = format!("lanefs {version}; this program is {}", args::VERSION);
            Finding::note("server-version", found)
                .remedy("both understand each other; start the server again to run the newer one")
        }
        None => Finding::ok(
            "server-version",
            format!("it speaks the protocol of lanefs {}; its build is not told", args::VERSION),
        ),
    }
}

/// Some of the smallest requests, one after the other.
fn exchanges(volume: &mut Volume) -> Vec<Finding> {
    let begin = Instant::now();
    let mut measured = Vec::with_capacity(PING_COUNT_MAX);
    while measured.len() < PING_COUNT_MAX && (measured.is_empty() || begin.elapsed() < PINGING_MAX)
    {
        let (wall, one) = (SystemTime::now(), Instant::now());
        if let Err(error) = volume.ping() {
            let remedy = "look at the server's log, and whether it was restarted";
            return vec![Finding::error("round-trip", format!("a request fails: {error}"), remedy)];
        }
        measured.push(Exchange { took: one.elapsed(), wall, server_ns: volume.server_time_ns() });
    }
    vec![round_trip(&measured), clocks(&measured)]
}

/// One request and its reply.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    took: Duration,
    /// This machine's clock at its begin.
    wall: SystemTime,
    /// The server's clock in between, since 1970.
    server_ns: Option<u64>,
}

fn round_trip(measured: &[Exchange]) -> Finding {
    let mut all: Vec<Duration> = measured.iter().map(|exchange| exchange.took).collect();
    all.sort_unstable();
    let (median, worst) = (all[all.len() / 2], all[all.len() - 1]);
    let found = format!(
        "the smallest request takes {} (median of {}), at worst {}",
        time_text(median),
        all.len(),
        time_text(worst)
    );
    let finding = if median > FAR {
        Finding::note("round-trip", found)
            .remedy("each change and each fsync takes as long: bring the server nearer, or use `--leases on`")
    } else {
        Finding::ok("round-trip", found)
    };
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    finding.value("median_us", us(median)).value("worst_us", us(worst))
}

/// By the fastest exchange: the server's clock was read within it.
fn clocks(measured: &[Exchange]) -> Finding {
    const CHECK: &str = "clock-difference";
    let fastest = measured.iter().min_by_key(|exchange| exchange.took);
    let known = fastest.and_then(|Exchange { took, wall, server_ns }| {
        let ours_ns = (*wall + *took / 2).duration_since(UNIX_EPOCH).ok()?.as_nanos();
        Some((i128::from((*server_ns)?) - i128::try_from(ours_ns).ok()?, *took / 2))
    });
    let Some((difference_ns, error)) = known else {
        return Finding::note(CHECK, "the server's clock is not known");
    };
    let apart =
        Duration::from_nanos(u64::try_from(difference_ns.unsigned_abs()).unwrap_or(u64::MAX));
    let ahead = if difference_ns < 0 { "behind" } else { "ahead" };
    let found = format!(
        "the server's clock is {} {ahead} of this one, give or take {}",
        time_text(apart),
        time_text(error)
    );
    let finding = if apart.saturating_sub(error) > CLOCKS_APART {
        let remedy =
            "run chrony or systemd-timesyncd on both machines; times of files are the server's";
        Finding::warning(CHECK, found, remedy)
    } else {
        Finding::ok(CHECK, found)
    };
    finding.value("difference_us", i64::try_from(difference_ns / 1000).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn what_listens_nowhere_is_not_what_does_not_answer() {
        let of = |kind: io::ErrorKind| connection(Err(kind.into()), Duration::from_secs(5), "");
        let refused = of(io::ErrorKind::ConnectionRefused);
        assert!(refused.remedy.is_some_and(|remedy| remedy.contains("lanefs serve")));
        let silent = of(io::ErrorKind::TimedOut);
        assert!(
            silent.found.contains("5.0 s")
                && silent.remedy.is_some_and(|it| it.contains("firewall"))
        );
        assert_eq!(of(io::ErrorKind::HostUnreachable).severity, Severity::Error);
        let there = connection(Ok(()), Duration::from_micros(70), "over loopback");
        assert_eq!(
            there.to_string(),
            "ok       server-connection: a TCP connection over loopback takes 70 us"
        );
    }

    #[test]
    fn what_a_server_says_is_wrong_is_a_warning_each() {
        assert_eq!(judge_state(Vec::new())[0].severity, Severity::Ok);
        let found =
            judge_state(["log: lane 0 is full", "client: web1 is dead"].map(str::to_owned).into());
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|it| it.severity == Severity::Warning && it.remedy.is_some()));
    }

    #[test]
    fn the_clock_is_compared_in_the_middle_of_the_fastest_exchange() {
        let exchange = |took_ms: u64, server_ms: u64| Exchange {
            took: Duration::from_millis(took_ms),
            wall: UNIX_EPOCH + Duration::from_secs(1000),
            server_ns: Some((1_000_000 + server_ms) * 1_000_000),
        };
        let near = clocks(&[exchange(400, 900_000), exchange(2, 1), exchange(8, 70_000)]);
        assert!(near.severity == Severity::Ok && near.found.contains("is 0 us ahead"), "{near}");
        let apart = clocks(&[exchange(2, 3001)]);
        assert!(apart.found.contains("3.0 s ahead"), "{apart}");
        assert_eq!(apart.severity, Severity::Warning);
        let behind = Exchange { server_ns: Some(990_001_000_000), ..exchange(2, 0) };
        assert!(clocks(&[behind]).found.contains("10.0 s behind"));
        // A slow exchange says little.
        assert_eq!(clocks(&[exchange(6000, 6000)]).severity, Severity::Ok);
        let silent = Exchange { server_ns: None, ..exchange(2, 1) };
        assert_eq!(clocks(&[silent]).severity, Severity::Note);
    }

    #[test]
    fn a_far_server_is_a_note() {
        let exchange = |took_us| Exchange {
            took: Duration::from_micros(took_us),
            wall: UNIX_EPOCH,
            server_ns: None,
        };
        let near = round_trip(&[exchange(90), exchange(30), exchange(20_000)]);
        assert!(near.severity == Severity::Ok && near.found.contains("takes 90 us"), "{near}");
        assert_eq!(round_trip(&[exchange(30_000)]).severity, Severity::Note);
    }

    #[test]
    fn another_build_on_this_machine_is_told() {
        let at: SocketAddr = (std::net::Ipv4Addr::LOCALHOST, 7117).into();
        let entry = |version: Option<&str>| Entry {
            address: Some("0.0.0.0:7117".to_owned()),
            version: version.map(str::to_owned),
            ..Entry::of(Kind::Serve, None)
        };
        assert_eq!(version(at, &[&entry(Some(args::VERSION))]).severity, Severity::Ok);
        let other = version(at, &[&entry(Some("0.0.9"))]);
        assert!(other.severity == Severity::Note && other.found.contains("0.0.9"), "{other}");
        assert!(version(at, &[&entry(None)]).found.contains("not told"));
        assert!(version(at, &[]).found.contains("not told"));
    }
}
