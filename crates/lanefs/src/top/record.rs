//! `--log FILE`: each interval of each server as a line of JSON.

use super::alerts::Finding;
use super::interval::Interval;
use crate::stats;
use anyhow::{Context as _, Result};
use library::counters::By;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file.
pub(super) struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Appends to a file, made if missing.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Adds a line. `now`: since 1970.
    pub(super) fn put(
        &mut self,
        (server, now): (&str, Duration),
        interval: &Interval,
        findings: &[Finding],
    ) -> Result<()> {
        let line = format!("{}\n", line((server, now), interval, findings));
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn line((server, now): (&str, Duration), interval: &Interval, findings: &[Finding]) -> Json {
    let alert = |finding: &Finding| {
        let Finding { cause, sentence, .. } = finding;
        json!({"cause": cause, "sentence": sentence})
    };
    let lanes = interval.lane_rows().map(|row| (By::Lane, row));
    let others = By::ALL.into_iter().filter(|by| *by != By::Lane);
    let others = others.flat_map(|by| interval.total.rows(by).iter().map(move |row| (by, row)));
    let rows: Vec<Json> =
        lanes.chain(others).map(|row| Json::Object(stats::json::object(row))).collect();
    json!({
        "time": now.as_secs_f64(),
        "server": server,
        "interval_s": interval.elapsed.as_secs_f64(),
        "alerts": findings.iter().map(alert).collect::<Vec<_>>(),
        "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use library::Snapshot;
    use library::counters::{Label, Metric, Row, Value};

    #[test]
    fn an_interval_is_a_line_with_all_rows_and_alerts() {
        let mut now = Snapshot::default();
        let mut row = Row { labels: vec![(Label::Lane, "0".to_owned())], values: Vec::new() };
        row.set(Metric::Requests, Value::Number(7));
        now.section_mut(By::Lane).rows.push(row);
        let interval = Interval::between(&[], &[now], Duration::from_secs(2));
        let finding =
            Finding { cause: "disk", about: String::new(), sentence: "disk: slow".to_owned() };
        let found = line(("h:1", Duration::from_millis(1500)), &interval, &[finding]);
        let expected = json!({
            "time": 1.5, "server": "h:1", "interval_s": 2.0,
            "alerts": [{"cause": "disk", "sentence": "disk: slow"}],
            "rows": [{"by": "lane", "lane": "0", "requests": 7}],
        });
        assert_eq!(found, expected);
    }
}
