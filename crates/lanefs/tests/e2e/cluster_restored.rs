//! A cluster whose etcd is restored from a copy of before a drain, as `docs/operations.md` says.

use crate::cluster::{Cluster, ask_etcd, check, fill, server_of, stop};
use crate::fixture::{Mount, Server, failure, must, own_address, program, run, until};
use registry::LocalEtcd;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Two servers, of which the second one was drained behind a copy of etcd, and files of since then.
struct Drained {
    cluster: Cluster,
    servers: [Server; 2],
    mount: Mount,
}

impl Drained {
    fn new(test: &str) -> Option<Self> {
        let mut cluster = Cluster::new(test)?;
        cluster.init();
        let servers = [cluster.serve("one", &own_address(), &[]), cluster.join("two")];
        let mount = cluster.mount(&servers[0], "mnt");
        until("both are alive", || cluster.up_servers() == [1, 2]);
        cluster.stop_etcd();
        must(program("cp").arg("-a").args([etcd_data(&cluster), copy(&cluster)]));
        cluster.start_etcd();
        must(&mut cluster.fixture.lanefs(["drain", "2", "--new-only", &cluster.url()]));
        until("nothing new is made at server 2", || {
            (0..32).all(|number| {
                let probe = mount.dir.join(format!("probe{number}"));
                fs::create_dir(&probe).unwrap();
                let server = server_of(&probe);
                fs::remove_dir(&probe).unwrap();
                server == 1
            })
        });
        fill(&mount.dir, 1);
        Some(Self { cluster, servers, mount })
    }

    /// What `lanefs cluster status` says, asked by a server's store.
    fn status(&self) -> String {
        let mut command = self.cluster.fixture.lanefs(["cluster", "status"]);
        let output = run(command.arg(self.cluster.fixture.path("one")));
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
    }
}

fn etcd_data(cluster: &Cluster) -> PathBuf {
    cluster.fixture.path("etcd")
}

fn copy(cluster: &Cluster) -> PathBuf {
    cluster.fixture.path("etcd-copy")
}

/// etcd has the data of the copy, with higher revisions than it had: this version has no tool that raises them.
fn restore(cluster: &mut Cluster) {
    const MORE_COUNT: usize = 64;
    cluster.stop_etcd();
    let data = etcd_data(cluster);
    fs::remove_dir_all(&data).unwrap();
    must(program("cp").arg("-a").args([copy(cluster), data.clone()]));
    // At other ports, where no server asks it before its revisions are higher.
    let url = cluster.url();
    let usual: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let at = [2381, 2382].map(|port| SocketAddr::new(usual.ip(), port));
    let etcd = LocalEtcd::start(&data, at[0], at[1]).unwrap();
    for _ in 0..MORE_COUNT {
        let put = ask_etcd(at[0], "kv/put", &serde_json::json!({ "key": "bW9yZQ==" }));
        assert!(put["error"].is_null(), "{put}");
    }
    drop(etcd);
    cluster.start_etcd();
}

/// A new mount sees all files, each with its contents.
fn check_by_new_mount(cluster: &Cluster, server: &Server, name: &str) {
    let mount = cluster.mount(server, name);
    check(&mount.dir, 1);
    mount.stop();
}

#[test]
fn running_servers_put_back_the_drain_that_a_restored_etcd_has_lost() {
    let Some(mut drained) = Drained::new("cluster_restored_running") else { return };
    restore(&mut drained.cluster);
    until("the drain is there again", || {
        let status = drained.status();
        status.contains("generation 2") && status.matches("up, draining").count() == 1
    });
    let Drained { cluster, servers: [one, mut two], mount } = drained;
    check_by_new_mount(&cluster, &one, "again");
    // What is drained or taken back now is another generation, and servers that start know all of them.
    must(&mut cluster.fixture.lanefs(["drain", "2", "--undo", &cluster.url()]));
    two.process.signal(rustix::process::Signal::TERM);
    assert_eq!(two.process.end().code(), Some(0));
    let mut said = two.process.said();
    let _two = cluster.serve("two", &own_address(), &[]);
    check_by_new_mount(&cluster, &one, "behind");
    check(&mount.dir, 1);
    mount.stop();
    let status = must(cluster.fixture.lanefs(["cluster", "status"]).arg(cluster.url()));
    assert!(status.contains("generation 3") && !status.contains("draining"), "{status}");
    let mut one = one;
    one.process.signal(rustix::process::Signal::TERM);
    assert_eq!(one.process.end().code(), Some(0));
    said.push_str(&one.process.said());
    let told = "etcd was restored from an older copy: it has lost generation 2";
    assert_eq!(said.matches(told).count(), 1, "{said}");
}

#[test]
fn servers_that_start_put_back_the_drain_that_a_restored_etcd_has_lost() {
    let Some(drained) = Drained::new("cluster_restored_down") else { return };
    let Drained { mut cluster, servers, mount } = drained;
    mount.stop();
    servers.into_iter().for_each(stop);
    restore(&mut cluster);
    // A drain would give a number away that files have.
    let store = cluster.fixture.path("one");
    let mut drain = cluster.fixture.lanefs(["drain", "1", "--new-only"]);
    let (code, said) = failure(&run(drain.arg(store)));
    assert!(code == 1 && said.contains("it has lost generation 2"), "{code} {said}");
    let one = cluster.serve("one", &own_address(), &[]);
    let two = cluster.serve("two", &own_address(), &[]);
    check_by_new_mount(&cluster, &one, "again");
    let status = must(cluster.fixture.lanefs(["cluster", "status"]).arg(cluster.url()));
    assert!(status.contains("generation 2"), "{status}");
    assert_eq!(status.matches("up, draining").count(), 1, "{status}");
    let told = "it has lost generation 2. This server has put that back";
    assert!(one.process.said().contains(told), "{}", one.process.said());
    [one, two].into_iter().for_each(stop);
    // Who drains nevertheless, without any server's word, is told by those that know better.
    restore(&mut cluster);
    must(&mut cluster.fixture.lanefs(["drain", "1", "--new-only", &cluster.url()]));
    let (code, said) = cluster.refused("one", &[]);
    let told = "generation 2 of the registry is not the one with which this server has made files";
    assert!(
        code == 1 && said.contains(told) && said.contains("It does not start"),
        "{code} {said}"
    );
}
