//! What servers and mounts ask of etcd: nothing on the way of a request.

use crate::cluster::{Cluster, check, fill};
use crate::fixture::{must, own_address, until};
use crate::metrics::ask;
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// What keeps servers alive, and their view of the entries, while nothing changes.
const STANDING: [&str; 2] = ["LeaseKeepAlive", "Watch"];

/// How long a watch lasts. Its server then reads the entries once, and watches again.
const WATCH_S: u64 = 30;

/// How often etcd has answered each method.
#[track_caller]
fn calls(cluster: &Cluster) -> BTreeMap<String, u64> {
    let url = cluster.url();
    let address = url.strip_prefix("http://").unwrap();
    let (_, body) = ask(address, "GET /metrics HTTP/1.0\r\nHost: localhost");
    let mut calls = BTreeMap::new();
    for line in body.lines() {
        let Some(rest) = line.strip_prefix("grpc_server_handled_total{") else { continue };
        let (labels, count) = rest.split_once("} ").unwrap();
        let method = labels.split('"').skip_while(|part| !part.ends_with("grpc_method=")).nth(1);
        let method = method.unwrap().to_owned();
        if !STANDING.contains(&method.as_str()) {
            *calls.entry(method).or_default() += count.parse::<u64>().unwrap();
        }
    }
    calls
}

#[test]
fn no_request_asks_etcd() {
    let Some(cluster) = Cluster::new("cluster_calls") else { return };
    cluster.init();
    let one = cluster.serve("one", &own_address(), &[]);
    let _others = ["two", "three", "four"].map(|store| cluster.join(store));
    until("all are alive", || cluster.up_servers().len() == 4);
    let mount = cluster.mount(&one, "mnt");
    let (before, began) = (calls(&cluster), Instant::now());
    assert!(before.get("Txn").is_some_and(|count| *count >= 4), "{before:?}");
    assert!(before.get("Range").is_some_and(|count| *count > 0), "{before:?}");

    let dirs = fill(&mount.dir, 4);
    assert!(dirs.iter().all(|dirs| !dirs.is_empty()), "{dirs:?}");
    check(&mount.dir, 4);
    // A file over all servers, names that go from one to another, and a mount that comes and goes.
    let wide = mount.dir.join("wide");
    fs::create_dir(&wide).unwrap();
    must(cluster.fixture.lanefs(["layout", "set", "--count", "all"]).arg(&wide));
    fs::write(wide.join("file"), vec![7; 6 << 20]).unwrap();
    for pair in dirs.windows(2) {
        fs::rename(pair[0][0].join("file5000"), pair[1][0].join("moved")).unwrap();
    }
    let other = cluster.mount(&one, "other");
    assert!(fs::read(other.dir.join("wide/file")).unwrap() == vec![7; 6 << 20]);
    other.stop();
    fs::remove_dir_all(&wide).unwrap();
    mount.stop();
    let mut after = calls(&cluster);
    let renewal_count = 4 * (began.elapsed().as_secs() / WATCH_S + 1);
    let read_count = after.insert("Range".to_owned(), before["Range"]).unwrap() - before["Range"];
    assert!(read_count <= renewal_count, "{read_count} reads, {renewal_count} watches");
    assert_eq!(after, before);
}
