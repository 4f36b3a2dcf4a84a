//! Compares the manual (docs/operations.md) with the program: limits with the constants that define them,
//! options and defaults with the command line.

#![allow(clippy::unwrap_used)]

use crate::args::{Cli, Command, LOG_BYTES, SPIN_MAX};
use crate::mount;
use clap::{CommandFactory as _, Parser as _};
use std::collections::BTreeMap;
use std::fmt::Debug;

const MANUAL: &str = include_str!("../../../docs/operations.md");

/// The beginning of a row, and the numbers of its limit.
type Row = (&'static str, Vec<u64>);

fn of<N: TryInto<u64, Error: Debug>>(number: N) -> u64 {
    number.try_into().unwrap()
}

/// Milliseconds, as they are counted here, in the nanoseconds that times of the manual are read in.
fn ms(count: u64) -> u64 {
    count * 1_000_000
}

fn log_bytes_usual() -> u64 {
    let Command::Serve(serve) = Cli::parse_from(["lanefs", "serve", "--store", "s"]).command else {
        panic!("not serve");
    };
    serve.serving.space.log_bytes_max
}

/// The section "Limits".
fn limits() -> Vec<Row> {
    let lane = lane::Limits::default();
    let shape = store::Shape::default();
    assert_eq!(shape.meta_shard_count, shape.data_shard_count);
    let secret = wire::Secret::new([0; 32]);
    let secrets = wire::Secrets { current: secret, earlier: Some(secret) };
    let access_list = vec![of(meta::ACL_ENTRY_COUNT_MAX), of(meta::ACL_BYTES_MAX)];
    let frame = vec![of(wire::BODY_BYTES_MAX), of(wire::HANDSHAKE_BODY_BYTES_MAX)];
    let log = vec![log_bytes_usual(), *LOG_BYTES.start(), *LOG_BYTES.end()];
    let away = vec![ms(lane.client_absent_ms), ms(lane.lock_absent_ms)];
    vec![
        ("name of an entry", vec![of(wire::NAME_BYTES_MAX)]),
        ("target of a symbolic link", vec![of(wire::SYMLINK_BYTES_MAX)]),
        ("names (hard links) of a file", vec![of(meta::LINK_COUNT_MAX)]),
        ("file size", vec![wire::FILE_BYTES_MAX]),
        ("name of an extended attribute", vec![of(wire::XATTR_NAME_BYTES_MAX)]),
        ("value of an extended attribute", vec![of(wire::XATTR_VALUE_BYTES_MAX)]),
        ("names of one file's extended attributes", vec![of(meta::XATTR_LIST_BYTES_MAX)]),
        ("names and values of one file's", vec![of(meta::XATTR_TOTAL_BYTES_MAX)]),
        ("POSIX access control list", access_list),
        ("groups of a process", vec![of(wire::Groups::COUNT_MAX)]),
        ("name of an export", vec![of(wire::EXPORT_NAME_BYTES_MAX)]),
        ("path of an export", vec![of(wire::EXPORT_PATH_BYTES_MAX)]),
        ("definitions of all exports", vec![of(lane::EXPORTS_BYTES_MAX)]),
        ("bytes in one read or write", vec![of(wire::BULK_BYTES_MAX)]),
        ("frame without these bytes", frame),
        ("pieces of one list", vec![of(wire::PIECE_COUNT_MAX)]),
        ("pattern of `lanefs find`", vec![of(wire::PATTERN_BYTES_MAX)]),
        ("lanes of a server", vec![of(crate::args::LANE_COUNT_MAX)]),
        ("metadata shards of a store", vec![of(shape.meta_shard_count)]),
        ("names and attributes of a store", vec![of(store::RowStore::ROWS_BYTES_MAX)]),
        ("log that waits", log),
        ("how long a lane polls", vec![of(SPIN_MAX.as_nanos())]),
        ("open files of a mount lane", vec![of(mount::HANDLE_COUNT_MAX)]),
        ("changes of a client lane under way", vec![of(lane.slot_count)]),
        ("a client lane keeps", vec![of(client::REPLAY_BYTES_MAX)]),
        ("ranges that one client has locked", vec![of(meta::FileLocks::RANGE_COUNT_MAX)]),
        ("waits for locks of one client", vec![of(meta::FileLocks::WAIT_COUNT_MAX)]),
        ("a client without a connection", away),
        ("secrets that are valid", vec![of(secrets.iter().count())]),
        ("file with a certificate", vec![library::certificates::FILE_BYTES_MAX]),
    ]
}

/// The section "What one client may take from others".
fn shares() -> Vec<Row> {
    let lane = lane::Limits::default();
    let ring = ring::Limits::default();
    let begun = vec![ms(ring.frame_ms_max), ring::Limits::RATE_BYTES_MIN];
    let chain = vec![of(seal::CHAIN_COUNT_MAX), of(seal::CHAIN_BYTES_MAX)];
    let retired = vec![ms(lane.lock_absent_ms), ms(lane.client_absent_ms)];
    vec![
        ("requests outstanding on a connection", vec![of(lane.credits)]),
        ("bytes that a client has asked for", vec![of(ring.conn_out_bytes_pause)]),
        (
            "time in which it reads nothing",
            vec![ms(ring.stall_ms_max), ms(ring.starving_stall_ms_max)],
        ),
        ("memory for bytes on their way", vec![of(ring.buffer_bytes_max)]),
        ("of it, for writes", vec![]),
        ("time for what a client has begun", begun),
        ("what one connection brings", vec![of(ring::Limits::TURN_BYTES_MAX)]),
        ("connections that have said nothing", vec![of(ring.handshake_count_max)]),
        ("connections that have not proven", vec![of(lane.handshake_count_max)]),
        ("time for proving it", vec![ms(lane.handshake_ms_max)]),
        ("connections that have proven", vec![of(lane.conn_count_max)]),
        ("sessions", vec![of(lane.session_count_max)]),
        ("open files", vec![of(lane.handle_count_max)]),
        ("connections not accepted yet", vec![of(ring::Limits::BACKLOG_COUNT)]),
        ("what a client claims", vec![]),
        ("plain text where TLS", vec![]),
        ("a certificate that is no good", chain),
        ("a certificate that does not open", vec![]),
        ("a wrong secret", vec![]),
        ("a secret that was retired", retired),
        ("an export that was taken away", vec![]),
        ("the log running full", vec![log_bytes_usual()]),
    ]
}

/// The rows of the table under a title: their first two cells.
fn table(title: &str) -> Vec<(&'static str, &'static str)> {
    let section = MANUAL.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

/// The numbers in a text: bytes, nanoseconds, or as many as there are.
fn numbers(text: &str) -> Vec<u64> {
    let text = text.replace("2^63 − 1", &i64::MAX.to_string()).replace(',', "");
    let ends = |c: char| c.is_whitespace() || c == ';' || c == '(' || c == ')';
    let words: Vec<&str> = text.split(ends).collect();
    let unit = |name: Option<&&str>| match name.copied() {
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        Some("TiB") => 1 << 40,
        Some("ms") => 1_000_000,
        Some("s") => 1_000_000_000,
        _ => 1,
    };
    let number = |(index, word): (usize, &&str)| {
        word.parse::<u64>().ok().map(|number| number * unit(words.get(index + 1)))
    };
    words.iter().enumerate().filter_map(number).collect()
}

#[track_caller]
fn check(title: &str, expected: &[Row]) {
    let found = table(title);
    for (index, (what, limit)) in found.iter().enumerate() {
        let (begins, wanted) = &expected[index.min(expected.len() - 1)];
        assert!(what.starts_with(begins), "\"{what}\" stands where \"{begins}\" should");
        assert_eq!(&numbers(limit), wanted, "{what}: {limit}");
    }
    assert_eq!(found.len(), expected.len(), "{title}");
}

#[test]
fn the_manuals_limits_are_those_of_the_program() {
    check("Limits", &limits());
}

#[test]
fn the_manuals_shares_are_those_of_the_program() {
    check("What one client may take from others", &shares());
}

#[test]
fn numbers_are_read_with_their_units() {
    assert_eq!(numbers("80 a lane; clients"), [80]);
    assert_eq!(numbers("1 GiB (16 KiB, 1,024 bytes)"), [1 << 30, 16 << 10, 1024]);
    assert_eq!(numbers("60 s; its locks for 5 ms, if"), [60_000_000_000, 5_000_000]);
    assert_eq!(numbers("2^63 − 1 bytes"), [i64::MAX.unsigned_abs()]);
}

/// Options of all commands, and their defaults.
fn options() -> BTreeMap<String, Vec<String>> {
    let mut options = BTreeMap::new();
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        for option in command.get_arguments() {
            let defaults = option.get_default_values().iter().filter_map(|value| value.to_str());
            let known: &mut Vec<String> =
                options.entry(option.get_long().unwrap_or_default().to_owned()).or_default();
            known.extend(defaults.map(str::to_owned));
        }
        commands.extend(command.get_subcommands().cloned());
    }
    options
}

#[test]
fn options_of_the_manual_are_those_of_the_command_line() {
    /// Of cargo, systemctl and etcdutl, and what only a build with a feature has.
    const OTHERS: [&str; 9] = [
        "release",
        "path",
        "profile",
        "example",
        "features",
        "now",
        "bump-revision",
        "mark-compacted",
        "otlp",
    ];
    let options = options();
    let readme = include_str!("../../../README.md");
    let recovery = include_str!("../../../docs/recovery.md");
    let chores = recovery.find("cargo xtask").unwrap_or(recovery.len());
    for text in [MANUAL, readme, &recovery[..chores]] {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        for after in text.split("--").skip(1) {
            let name = after.split(|c| !is_of_name(c)).next().unwrap();
            let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
            let known = options.contains_key(name) || OTHERS.contains(&name);
            assert!(!begins || known, "--{name} of the manual is no option");
        }
    }
}

#[test]
fn defaults_of_the_manual_are_those_of_the_command_line() {
    let options = options();
    // As in `--recovery-soft` (10s).
    let mut count = 0;
    for after in MANUAL.replace('\n', " ").split("`--").skip(1) {
        let Some((name, rest)) = after.split_once("` (") else { continue };
        let value = rest.split([')', ',', ' ']).next().unwrap();
        let is_value = value.starts_with(|c: char| c.is_ascii_digit());
        if let (Some(defaults), true) = (options.get(name), is_value) {
            assert!(
                defaults.iter().any(|default| default == value),
                "--{name} ({value}): {defaults:?}"
            );
            count += 1;
        }
    }
    assert!(count >= 3, "the manual names some");
}
