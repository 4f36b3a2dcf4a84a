//! What README's first ten minutes say, command by command, and who may do what on a store that was
//! just made.

use crate::certificates::{Authority, shown};
use crate::fixture::{
    Fixture, Place, Process, Server, binary, failure, must, program, run, texts, wrap,
};
use crate::mount_namespace::{Private, User};
use crate::networks::Networks;
use crate::readme::blocks;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

/// An ordinary user, who is not whom a squashed root becomes.
const ORDINARY: u32 = 5001;

/// The user is known to the machine: fusermount3 asks for his name.
const KNOWN: &str = "cp /etc/passwd passwd; echo ordinary:x:5001:5001:::/bin/sh >>passwd
    mount --bind passwd /etc/passwd";

/// Runs as a user, in a folder of his with an empty home.
struct Walker<'p> {
    fixture: &'p Fixture,
    place: &'p Private,
    networks: &'p Networks,
    uid: u32,
}

impl Walker<'_> {
    /// A line of README, as a shell runs it.
    fn command(&self, line: &str) -> Command {
        let mut shell = program("sh");
        shell.args(["-c", &format!("cd \"$HOME/work\" && {line}")]);
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{path}", self.fixture.path("bin").display()));
        shell.env("HOME", self.fixture.path("home"));
        for name in ["XDG_CONFIG_HOME", "LANEFS_SECRET_FILE", "LANEFS_DRIVER"] {
            shell.env_remove(name);
        }
        let mut setpriv = program("setpriv");
        let ids = [format!("--reuid={}", self.uid), format!("--regid={}", self.uid)];
        setpriv.args(ids).arg("--clear-groups");
        let inside = self.place.inside(wrap(setpriv, shell));
        self.networks.near.inside(inside)
    }
}

fn walk(test: &str, uid: u32) {
    let Some(fixture) = Fixture::new(test) else { return };
    let place = Private::new(&fixture, KNOWN);
    let networks = Networks::new();
    let walker = Walker { fixture: &fixture, place: &place, networks: &networks, uid };
    symlink(binary(), fixture.make_dir("bin").join("lanefs")).unwrap();
    for name in ["home", "home/work"] {
        chown(fixture.make_dir(name), Some(uid), Some(uid)).unwrap();
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let blocks = blocks(&readme, "First ten minutes").unwrap();
    let (server, lines) = blocks.split_first().unwrap();
    let [serve] = &server[..] else { panic!("one command starts the server: {server:?}") };
    let mut server = Process::start(&mut walker.command(&format!("exec {serve}")));
    server.line_with("listening on ");
    let mut said = String::new();
    for line in lines.iter().flatten() {
        let output = run(&mut walker.command(line));
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{line}: {}\n{stdout}{stderr}", output.status);
        assert!(!stderr.contains("lanefs"), "{line}: {stderr}");
        said.push_str(&stdout);
    }
    for part in ["a picture\n", " one\n"] {
        assert!(said.contains(part), "{part:?}: {said}");
    }
    for dir in ["mnt", "projects"] {
        assert_eq!(place.mounted(&fixture.path("home/work").join(dir)), None);
    }
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn readme_s_first_ten_minutes_work_for_root() {
    walk("first_root", 0);
}

#[test]
fn readme_s_first_ten_minutes_work_for_an_ordinary_user() {
    walk("first_user", ORDINARY);
}

/// `lanefs` as it is run on a server's host, to its end.
fn here(fixture: &Fixture, uid: u32, arguments: &[&str]) -> Command {
    let mut setpriv = program("setpriv");
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    setpriv.args(ids).arg("--clear-groups");
    wrap(setpriv, fixture.lanefs(arguments))
}

/// The secret's folder for others, too, as if each had a copy of it.
fn share_secret(fixture: &Fixture, uid: u32) -> String {
    let copy = fixture.path(&format!("secret-{uid}"));
    fs::copy(fixture.path("config/lanefs/secret"), &copy).unwrap();
    chown(&copy, Some(uid), Some(uid)).unwrap();
    copy.to_str().unwrap().to_owned()
}

fn stop(server: Server) {
    server.process.signal(rustix::process::Signal::TERM);
    let mut process = server.process;
    assert_eq!(process.end().code(), Some(0), "{}", process.said());
}

#[test]
fn a_store_that_root_makes_is_for_all_and_root_of_its_host_administers() {
    let Some(fixture) = Fixture::new("first_store") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let url = |path: &str| format!("lanefs://{}{path}", server.address);
    let root = |arguments: &[&str]| must(&mut here(&fixture, 0, arguments));
    let secret = share_secret(&fixture, ORDINARY);
    let user = |command: &str, path: &str| {
        run(&mut here(&fixture, ORDINARY, &[command, "--secret-file", &secret, &url(path)]))
    };
    assert!(root(&["stat", &url("/")]).contains("1777"));
    assert!(user("mkdir", "/his").status.success());
    root(&["mkdir", "-p", &url("/srv/mine")]);
    root(&["chown", "5002:5003", &url("/srv/mine")]);
    let attr = root(&["stat", "--json", &url("/srv/mine")]);
    assert!(attr.contains("\"uid\":5002,\"gid\":5003"), "{attr}");
    // A sticky root directory keeps names of others.
    let (code, said) = failure(&run(&mut here(
        &fixture,
        ORDINARY,
        &["rm", "-r", "--secret-file", &secret, &url("/srv")],
    )));
    assert_eq!(code, 1, "{said}");
    let (code, said) = failure(&user("mkdir", "/srv/mine/his"));
    assert_eq!(code, 1);
    for part in [
        "permission denied: /srv/mine belongs to 5002:5003 and has mode 0755; you came as 5001:5001",
        "`lanefs chmod` or `lanefs chown`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let mount = fixture.mount(&server.address, "m", &[]);
    chown(mount.dir.join("his"), Some(0), Some(0)).unwrap();
    mount.stop();
    // A secret that opens the export alone makes nobody root.
    let of_default = fixture.path("secret-default");
    fs::write(&of_default, root(&["export", "secret", &server.address, "default"])).unwrap();
    fs::set_permissions(&of_default, fs::Permissions::from_mode(0o600)).unwrap();
    let with = ["--secret-file", of_default.to_str().unwrap()];
    let made = ["mkdir", with[0], with[1], &url("/srv/no")];
    let (code, said) = failure(&run(&mut here(&fixture, 0, &made)));
    assert!(code == 1 && said.contains("root is nobody on the export default"), "{said}");
    // A defined export counts over loopback as well.
    root(&["export", "add", &server.address, "default", "/"]);
    let (code, said) = failure(&run(&mut here(&fixture, 0, &["mkdir", &url("/srv/no")])));
    let why = "permission denied: /srv belongs to 0:0 and has mode 0755; root is nobody on the export default";
    assert!(code == 1 && said.contains(why), "{said}");
    stop(server);
}

#[test]
fn root_of_another_host_is_squashed_and_the_error_explains_it() {
    let Some(fixture) = Fixture::new("first_far") else { return };
    let networks = Networks::new();
    let mut serve = fixture.lanefs(["serve", "--listen", "0.0.0.0:7117", "--store"]);
    serve.arg(fixture.path("store"));
    let mut server = Process::start(&mut networks.near.inside(serve));
    server.line_with("listening on ");
    let from = |place: &dyn Fn(Command) -> Command, arguments: &[&str]| {
        run(&mut place(fixture.lanefs(arguments)))
    };
    let near = |command| networks.near.inside(command);
    let far = |command| networks.far.inside(command);
    let address = format!("lanefs://{}", Networks::NEAR);
    let url = |path: &str| format!("{address}{path}");
    assert!(from(&near, &["mkdir", "lanefs://localhost/roots"]).status.success());
    assert!(from(&far, &["mkdir", &url("/nobodys")]).status.success());
    let listed = texts(&from(&far, &["stat", "--json", &url("/nobodys")])).0;
    assert!(listed.contains("\"uid\":65534"), "{listed}");
    // Not by the network's address either: a connection has to come over loopback.
    for place in [&far as &dyn Fn(Command) -> Command, &near] {
        let (code, said) = failure(&from(place, &["mkdir", &url("/roots/no")]));
        assert_eq!(code, 1, "{said}");
        for part in [
            "/roots belongs to 0:0",
            "root is nobody on the export default: run it on the server's host",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn the_root_directory_of_a_new_store_follows_the_options() {
    let Some(fixture) = Fixture::new("first_options") else { return };
    let serve = |options: &[&str]| fixture.serve_with("127.0.0.1:0", options);
    let attr_of = |server: &Server| {
        let url = format!("lanefs://{}/", server.address);
        must(&mut here(&fixture, 0, &["stat", "--json", &url]))
    };
    let asked = ["--root-owner", "5002:5003", "--root-mode", "2770"];
    let server = serve(&asked);
    let attr = attr_of(&server);
    for part in ["\"mode\":\"2770\"", "\"uid\":5002", "\"gid\":5003"] {
        assert!(attr.contains(part), "{attr}");
    }
    stop(server);
    // The same command line goes on as it is; another one is said to change nothing.
    let line = "--root-owner and --root-mode are for a store that is made";
    for (options, complains) in [(&asked[..], false), (&["--root-mode", "0755"][..], true)] {
        let mut server = serve(options);
        assert!(attr_of(&server).contains("\"mode\":\"2770\""));
        server.process.signal(rustix::process::Signal::TERM);
        server.process.end();
        assert_eq!(server.process.said().contains(line), complains, "{}", server.process.said());
    }
    let wrong = fixture.run(["serve", "--store", "x", "--root-mode", "9"]);
    assert_eq!(failure(&wrong).0, 2);
}

#[test]
fn a_store_that_an_ordinary_user_makes_is_his() {
    let Some(fixture) = Fixture::new("first_his") else { return };
    crate::mount_namespace::prepare_for_user(&fixture);
    let place = Private::new(&fixture, "");
    let up = fixture.up_in(&User(&place), "mnt", &["--listen", "127.0.0.1:0"]);
    let stat = fixture.lanefs(["stat", "--json", &up.url("/")]);
    let attr = must(&mut User(&place).inside(stat));
    let user = crate::mount_namespace::USER;
    for part in ["\"mode\":\"0755\"".to_owned(), format!("\"uid\":{user}")] {
        assert!(attr.contains(&part), "{attr}");
    }
    assert_eq!(fs::metadata(fixture.path("mnt.lanefs")).unwrap().uid(), user);
    up.stop();
}

#[test]
fn an_export_of_a_missing_directory_names_the_remedy() {
    let Some(fixture) = Fixture::new("first_export") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let add = ["export", "add", &server.address, "projects", "/srv/projects"];
    let (code, said) = failure(&fixture.run(add));
    assert_eq!(code, 1);
    for part in ["/srv/projects: no such file or directory", "--create", "`lanefs mkdir -p`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let create: Vec<&str> = add.iter().copied().chain(["--create"]).collect();
    must(&mut fixture.lanefs(&create));
    // Once more, of a directory that is there.
    let again: Vec<&str> = create.iter().copied().chain(["--replace"]).collect();
    must(&mut fixture.lanefs(&again));
    let url = format!("lanefs://{}/srv/projects", server.address);
    let attr = must(&mut fixture.lanefs(["stat", "--json", &url]));
    assert!(attr.contains("\"mode\":\"0755\"") && attr.contains("\"uid\":0"), "{attr}");
    let file = format!("lanefs://{}/file", server.address);
    let source = fixture.path("source");
    fs::write(&source, "x").unwrap();
    must(fixture.lanefs(["cp"]).arg(&source).arg(&file));
    let not = ["export", "add", &server.address, "file", "/file", "--create"];
    assert!(failure(&fixture.run(not)).1.contains("cannot create directory '/file'"));
    stop(server);
}

#[test]
fn a_certificate_for_the_store_makes_root_root_here_as_the_secret_does() {
    let Some(fixture) = Fixture::new("first_certified") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    authority.make(&fixture, &["client"], &["bob", "--export", "default"]);
    let server = authority.serve(&fixture, &[]);
    let url = |path: &str| format!("lanefs://{}{path}", server.address);
    let by = |name: &str, arguments: &[&str]| {
        run(&mut shown(&fixture, &authority.show(name), arguments))
    };
    assert!(by("alice", &["mkdir", &url("/roots")]).status.success());
    let owned = by("alice", &["chown", "5002", &url("/roots")]);
    assert!(owned.status.success(), "{:?}", failure(&owned));
    let (code, said) = failure(&by("bob", &["mkdir", &url("/roots/no")]));
    assert!(code == 1 && said.contains("root is nobody on the export default"), "{said}");
    stop(server);
}
