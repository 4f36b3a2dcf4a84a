//! Applying logs to rows while a lane writes them, with kills at any moment. In a program of its
//! own: for a moment a new child process has copies of its parent's descriptors, which other tests
//! would see as an open store.
#![allow(clippy::unwrap_used, missing_docs)]

mod writer;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use store::RowStore;
use writer::{expected, found, lines, live, new_store};

#[test]
fn after_a_kill_at_any_moment_no_durable_record_is_missing() {
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
    let (mut durable, mut rng) = (0, fastrand::Rng::with_seed(5));
    for round in 0..12 {
        let batch_count = rng.usize(..120);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "after_a_kill_at_any_moment_no_durable_record_is_missing",
            ])
            .env(LIVE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reported = lines.map(Result::unwrap).filter_map(|line| {
            line.strip_prefix("durable ").map(|lsn| lsn.parse::<u64>().unwrap())
        });
        let reported: Vec<u64> = reported.take(batch_count + 1).collect();
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        let (Some(first), Some(last)) = (reported.first(), reported.last()) else {
            panic!("the child ended without a batch: {ended}, round {round}, {durable} durable")
        };
        assert!(
            *first > durable,
            "round {round}: {durable} was durable, the child reported {reported:?}"
        );
        durable = *last;
    }
    let mut store = store::open(&path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&row_store).unwrap();
    let (rows, lsn) = found(&row_store);
    assert!(lsn >= durable, "{lsn} of {durable}");
    assert_eq!(rows, lines(&expected(&store, lsn)));
}
