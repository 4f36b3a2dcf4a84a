//! What the manual says of the way from one server to several, line by line, on two hosts as far as a network
//! knows them.

use crate::fixture::{
    Fixture, Mount, Place, Process, binary, must, program, run, skip, texts, until,
};
use crate::networks::{Network, Networks};
use crate::readme::blocks;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// A host: its network, and its files.
struct Host<'f> {
    fixture: &'f Fixture,
    network: &'f Network,
    name: &'f str,
}

impl Host<'_> {
    /// A line of the manual, as a shell runs it.
    fn command(&self, line: &str) -> Command {
        let home = self.fixture.make_dir(self.name);
        let mut shell = program("sh");
        shell.args(["-c", &format!("cd \"$HOME\" && exec {line}")]).env("HOME", home);
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{path}", self.fixture.path("bin").display()));
        shell.env("LANEFS_RUN_DIR", self.fixture.make_dir(&format!("{}/run", self.name)));
        for name in ["XDG_CONFIG_HOME", "LANEFS_SECRET_FILE", "LANEFS_DRIVER"] {
            shell.env_remove(name);
        }
        self.network.inside(shell)
    }

    fn must(&self, line: &str) -> String {
        must(&mut self.command(line))
    }

    fn serve(&self, line: &str) -> Process {
        let mut server = Process::start(&mut self.command(line));
        server.line_with("listening on ");
        server
    }
}

/// An etcd at the address that the manual gives it, by the variables that it names.
fn etcd(host: &Host<'_>) -> Process {
    let url = "http://10.0.0.1:2379";
    let line = format!(
        "env ETCD_LISTEN_CLIENT_URLS={url} ETCD_ADVERTISE_CLIENT_URLS={url} \
         ETCD_UNSUPPORTED_ARCH=$(uname -m | sed 's/aarch64/arm64/;s/x86_64/amd64/') \
         setpriv --pdeathsig KILL etcd --data-dir etcd"
    );
    let mut etcd = Process::start(&mut host.command(&line));
    etcd.line_with("insecure");
    etcd
}

#[test]
fn the_manual_leads_from_one_server_to_several() {
    let test = "cluster_manual";
    let Some(fixture) = Fixture::new(test) else { return };
    if program("etcd").arg("--version").output().is_err() {
        return skip(test, "needs etcd (Debian's etcd-server)");
    }
    let networks = Networks::new();
    let near = Host { fixture: &fixture, network: &networks.near, name: "near" };
    let far = Host { fixture: &fixture, network: &networks.far, name: "far" };
    symlink(binary(), fixture.make_dir("bin").join("lanefs")).unwrap();
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let manual = fs::read_to_string(manual).unwrap();
    let blocks = blocks(&manual, "From one server to several").unwrap();
    let [first, token, further] = &blocks[..] else { panic!("three blocks: {blocks:?}") };
    let [init, serve] = &first[..] else { panic!("two commands: {first:?}") };
    let _etcd = etcd(&near);
    // The only server so far.
    let mut alone = near.serve(serve);
    alone.signal(Signal::TERM);
    assert_eq!(alone.end().code(), Some(0));
    assert!(near.must(init).contains("server 1 of cluster"));
    let _one = near.serve(serve);
    let token = near.must(&token[0]);
    let mut two = far.serve(&further[0].replace("TOKEN", token.trim()));
    // The words behind it.
    let said = |line: &str| {
        assert!(manual.contains(&format!("`{line}`")), "the manual does not say: {line}");
        line.to_owned()
    };
    fs::create_dir(fixture.path("near/mnt")).unwrap();
    let mount_dir = fixture.path("near/mnt");
    let mut mount =
        Process::start(&mut near.command(&said("lanefs mount 10.0.0.1,10.0.0.2 ./mnt")));
    mount.line_with("mounted ");
    let mount = Mount { process: mount, dir: mount_dir };
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 0);
    let servers = near.must(&said("lanefs servers"));
    assert_eq!(servers.matches(" up ").count(), 2, "{servers}");
    let df = near.must(&said("lanefs df lanefs://10.0.0.1"));
    assert!(df.contains("lanefs://10.0.0.2:7117") && df.contains("total"), "{df}");
    near.must(&said("lanefs drain 2 --new-only"));
    let status = near.must(&said("lanefs cluster status"));
    assert_eq!(status.matches("up, draining").count(), 1, "{status}");
    near.must("lanefs drain 2 --undo");
    // From the next start on its line is shorter; the host has the clients' secret by the token.
    two.signal(Signal::TERM);
    assert_eq!(two.end().code(), Some(0), "{}", two.said());
    let _two = far.serve(&said("lanefs serve --store ./store --listen 10.0.0.2:7117"));
    until("both are there", || {
        let (said, _) = texts(&run(&mut far.command("lanefs servers")));
        said.matches(" up ").count() == 2
    });
    let df = far.must("lanefs df lanefs://10.0.0.2");
    assert!(df.contains("total"), "{df}");
    mount.stop();
}
