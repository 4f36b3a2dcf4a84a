//! Lanes on io_uring and on epoll: which it is, who says so, and that a store does not care.

use crate::fixture::{Drivers, Fixture, Process, failure, kill, must, program, run};
use ring::forbidden::{FORBIDDEN, forbid_io_uring};
use ring::{DriverChoice, DriverKind};
use rustix::process::Signal;
use std::fs;
use std::os::fd::AsRawFd as _;

/// Does something on a thread to which, and to whose children, io_uring is forbidden.
fn without_io_uring<T: Send>(does: impl FnOnce() -> T + Send) -> T {
    let forbidden = || {
        forbid_io_uring().unwrap();
        does()
    };
    std::thread::scope(|scope| scope.spawn(forbidden).join().unwrap())
}

#[test]
fn server_mount_and_up_say_which_driver_they_are_on() {
    let Some(fixture) = Fixture::new("say_driver") else { return };
    let Drivers { server: on_server, mount: on_mount } = fixture.drivers;
    let mut server = fixture.serve("127.0.0.1:0");
    let mut mount = fixture.mount(&server.address, "other", &[]);
    let says = |text: &str, begin: &str, driver: DriverKind| {
        let line = text.lines().find(|line| line.starts_with(begin)).unwrap();
        assert!(line.contains(&format!("driver {}", driver.name())), "{line}: {driver:?}");
    };
    mount.process.signal(Signal::TERM);
    mount.process.end();
    says(&mount.process.said(), "mounted ", on_mount);
    server.process.signal(Signal::TERM);
    server.process.end();
    says(&server.process.said(), "listening ", on_server);
    let up = fixture.up(&[]).stop();
    says(&up, "driver ", on_server);
    says(&up, "mounted ", on_mount);
}

#[test]
fn the_mount_of_up_has_its_server_s_driver_by_default() {
    let Some(fixture) = Fixture::new("up_drivers") else { return };
    let mut command = fixture.lanefs(["up", "mnt", "--listen", "127.0.0.1:0", "--driver", "epoll"]);
    command.env_remove("LANEFS_MOUNT_DRIVER").current_dir(fixture.path(""));
    let mut up = Process::start(&mut command);
    assert!(up.line_with("mounted ").contains("driver epoll"), "as the server");
    up.signal(Signal::TERM);
    up.end();
    let found = DriverChoice::Auto.find().unwrap().kind;
    let said = fixture.up(&["--driver", "epoll", "--mount-driver", "auto"]).stop();
    assert!(said.contains("driver epoll\n"), "{said}");
    assert!(said.contains(&format!("driver {}, ", found.name())), "{said}");
}

/// `cargo xtask ci --long` runs all of this a second time so.
#[test]
fn a_run_without_io_uring_has_none() {
    let found = DriverChoice::Auto.find().unwrap();
    if std::env::var_os(FORBIDDEN).is_none() {
        // It may be missing on this machine as well, but then nobody promised anything.
        assert_eq!(found.why.is_some(), found.kind == DriverKind::Epoll);
        return;
    }
    assert_eq!(found.kind, DriverKind::Epoll);
    let wanted = DriverChoice::Only(DriverKind::IoUring).find().unwrap_err();
    assert_eq!(wanted.kind(), std::io::ErrorKind::PermissionDenied);
    let Some(Fixture { drivers, .. }) = &Fixture::new("without_io_uring") else { return };
    let both = Drivers { server: DriverKind::Epoll, mount: DriverKind::Epoll };
    assert_eq!(*drivers, both, "and what is tested here is on epoll");
}

#[test]
fn without_io_uring_everything_works_and_asking_for_it_fails() {
    let Some(fixture) = Fixture::new("forbidden") else { return };
    without_io_uring(|| {
        let up = fixture.up(&["--driver", "auto", "--mount-driver", "auto"]);
        fs::write(up.dir.join("file"), "text").unwrap();
        must(program("sync").arg(up.dir.join("file")));
        let listed = must(&mut fixture.lanefs(["ls", &up.url("/")]));
        assert_eq!(listed, "file\n", "the tools choose by themselves");
        let said = up.stop();
        let why = "driver epoll: io_uring is forbidden";
        assert_eq!(said.matches(why).count(), 1, "once, by the process that was started\n{said}");
        assert!(said.contains("over /dev/fuse, driver epoll"), "{said}");
        let store = fixture.path("store");
        let store = store.to_str().unwrap();
        for command in [&["up", "mnt2"][..], &["serve", "--store", store]] {
            let insists = [command, &["--driver", "io-uring"]].concat();
            let (code, said) =
                failure(&run(fixture.lanefs(&insists).current_dir(fixture.path(""))));
            assert_eq!(code, 1, "{said}");
            for part in ["forbidden", "seccomp profile", "--driver epoll"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    });
}

#[test]
fn a_store_goes_from_driver_to_driver_also_after_a_kill() {
    let Some(fixture) = Fixture::new("from_driver_to_driver") else { return };
    let mut drivers = vec!["epoll", "auto", "epoll"];
    if let Ok(found) = DriverChoice::Only(DriverKind::IoUring).find() {
        drivers.push(found.kind.text());
    }
    // A mount waits for the next server, on either driver.
    let mut server = fixture.serve_with("127.0.0.1:0", &["--driver", "epoll"]);
    let address = server.address.clone();
    let mount = fixture.mount(&address, "mnt", &["--export", "up", "--driver", "epoll"]);
    for (round, driver) in drivers.iter().enumerate() {
        for name in 0..=round {
            let path = mount.dir.join(name.to_string());
            if name == round {
                fs::write(path, format!("{round}").repeat(100_000)).unwrap();
            } else {
                assert_eq!(fs::read(path).unwrap().len(), 100_000);
            }
        }
        kill(server.process.pid());
        server.process.end();
        server = fixture.serve_with(&address, &["--driver", driver]);
    }
    let file = fs::File::open(mount.dir.join("0")).unwrap();
    assert!(file.as_raw_fd() >= 0 && file.metadata().unwrap().len() == 100_000);
    drop(file);
    mount.stop();
}

#[test]
fn queues_of_io_uring_need_lanes_on_it() {
    let Some(fixture) = Fixture::new("queues_need_lanes") else { return };
    for driver in ["--mount-driver", "--driver"] {
        let asked = ["up", "mnt", driver, "epoll", "--fuse", "uring"];
        let mut command = fixture.lanefs(asked);
        if driver == "--driver" {
            command.env_remove("LANEFS_MOUNT_DRIVER");
        }
        let (code, said) = failure(&run(command.current_dir(fixture.path(""))));
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("--fuse classic") && said.contains("--driver io-uring"), "{said}");
    }
}
