//! Logs that are applied to rows while a lane writes them, and kills at any moment. In a program of its own: a
//! starting child holds copies of its parent's descriptors for a moment, which other tests would see as a
//! store that is still open.
#![allow(clippy::unwrap_used, missing_docs)]

mod writer;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use store::RowStore;
use writer::{expected, found, lines, live, new_store};

#[test]
fn killed_at_any_moment_nothing_durable_is_missing() {
    const LIVE: &str = "LANEFS_TEST_LIVE";
    if let Some(path) = std::env::var_os(LIVE) {
        // The child: writes until it is killed.
        let mut out = std::io::stdout();
        live(Path::new(&path), 1 << 40, |lsn| {
            writeln!(out, "durable {lsn}").unwrap();
            out.flush().unwrap();
        });
        return;
    }
    let (_folder, path) = new_store();
    let (mut durable, mut dice) = (0, 0x9E37_79B9_7F4A_7C15_u64);
    for round in 0..12 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let batch_count = usize::try_from(dice >> 40).unwrap() % 120;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "killed_at_any_moment_nothing_durable_is_missing"])
            .env(LIVE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.map(Result::unwrap).filter_map(|line| {
            line.strip_prefix("durable ").map(|lsn| lsn.parse::<u64>().unwrap())
        });
        let told: Vec<u64> = told.take(batch_count + 1).collect();
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        let (Some(first), Some(last)) = (told.first(), told.last()) else {
            panic!("the child ended without a batch: {ended}, round {round}, {durable} durable")
        };
        assert!(*first > durable, "round {round}: {durable} was durable, the child said {told:?}");
        durable = *last;
    }
    let mut store = store::open(&path).unwrap();
    let cold = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&cold).unwrap();
    let (rows, lsn) = found(&cold);
    assert!(lsn >= durable, "{lsn} of {durable}");
    assert_eq!(rows, lines(&expected(&store, lsn)));
}
