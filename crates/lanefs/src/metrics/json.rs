//! The counters as one JSON object: what the page asks for each second. Its rows are those of
//! `lanefs stats --json`.

use super::http::Body;
use crate::cluster::seen::Seen;
use crate::running::Entry;
use crate::{args, stats, why};
use anyhow::Result;
use library::counters::By;
use library::{Snapshot, Traces};
use serde_json::{Value as Json, json};
use std::time::{Duration, SystemTime};

/// What the page says of the server.
pub(crate) struct About {
    host: String,
    address: String,
    driver: String,
    leases: String,
    pid: u32,
    started: SystemTime,
    /// Its cluster, if it is in one.
    cluster: Option<Seen>,
}

impl About {
    /// The server that this entry is about.
    pub(crate) fn of(entry: &Entry, cluster: Option<Seen>) -> Self {
        Self {
            host: String::from_utf8_lossy(&library::host_name()).into_owned(),
            address: entry.address.clone().unwrap_or_default(),
            driver: entry.driver.clone().unwrap_or_default(),
            leases: entry.leases.clone().unwrap_or_default(),
            pid: entry.pid,
            started: SystemTime::now(),
            cluster,
        }
    }
}

/// All counters of all lanes, in their order.
pub(super) fn body(about: &About, lanes: &[Snapshot]) -> Result<Body> {
    let rows: Vec<Json> = By::ALL
        .into_iter()
        .flat_map(|by| {
            let rows = stats::rows(lanes, by);
            rows.iter().map(|row| Json::Object(stats::json::object((by, row)))).collect::<Vec<_>>()
        })
        .collect();
    let About { host, address, driver, leases, pid, started, cluster } = about;
    let seconds = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
    };
    let object = json!({
        "version": args::VERSION,
        "host": host,
        "address": address,
        "driver": driver,
        "leases": leases,
        "pid": pid,
        "lanes": lanes.len(),
        "started": seconds(*started),
        "time": seconds(SystemTime::now()),
        "cluster": cluster.as_ref().map(Seen::state),
        "rows": rows,
    });
    Ok(Body::json(serde_json::to_string(&object)?))
}

/// What is slow or waits, with names of files or without.
pub(super) fn requests(lanes: Vec<Traces>, has_names: bool) -> Result<Body> {
    let object = json!({ "names": has_names, "requests": why::objects_of(lanes, has_names) });
    Ok(Body::json(serde_json::to_string(&object)?))
}
