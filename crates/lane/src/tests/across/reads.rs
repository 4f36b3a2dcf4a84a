//! Reads during a cross-shard transaction: the first one after it counts.

use super::model::Act;
use super::mount::Mount;
use super::{ask, furnished, start, step, store};
use crate::test_server::TestServer;
use fastrand::Rng;
use wire::{InodeNo, RenameHow, Status};

/// Changes the file `f` in `from` while a reader reads at a random moment; then reads once more
/// after the reply.
fn change_and_read(
    server: &mut TestServer,
    mounts: &mut [Mount; 2],
    file: InodeNo,
    act: &Act,
    rng: &mut Rng,
) {
    let [changer, reader] = mounts;
    reader.read(server, file);
    reader.settle(server);
    let before = reader.attr(server, file).unwrap();
    assert!(before.atime > before.ctime, "{before:?}");
    changer.begin(act);
    changer.send(server);
    (0..rng.usize(..60)).for_each(|_| step(server));
    reader.read(server, file);
    let (status, _) = ask(server, changer, 0);
    assert_eq!(status, Status::Ok, "{act:?}");
    reader.read(server, file);
    reader.settle(server);
    let after = reader.attr(server, file).unwrap();
    assert!(after.ctime > before.ctime && after.atime > after.ctime, "{act:?}: {after:?}");
}

#[test]
fn the_first_read_after_a_change_counts_despite_a_concurrent_read() {
    for seed in 1..=60 {
        let mut server = store(seed, 4);
        let mut rng = Rng::with_seed(seed ^ 0xace);
        start(&mut server);
        let mut mounts = [Mount::new(&mut server, 1), Mount::new(&mut server, 2)];
        let (from, to) = furnished(&mut server, &mut mounts[0]);
        let named = |mounts: &mut [Mount; 2], server: &mut TestServer, dir, text| {
            let found = mounts[0].list(server, dir).unwrap();
            found.iter().find(|(name, _)| name == text).unwrap().1
        };
        let file = named(&mut mounts, &mut server, from, "f");
        for act in [
            Act::Link(file, to, "n"),
            Act::Rename((from, "f"), (to, "o"), RenameHow::NoReplace),
            Act::Unlink(to, "n"),
            Act::Rename((to, "o"), (from, "f"), RenameHow::NoReplace),
        ] {
            change_and_read(&mut server, &mut mounts, file, &act, &mut rng);
        }
    }
}

#[test]
fn a_read_of_a_locked_file_updates_its_access_time() {
    for seed in 1..=120 {
        let mut server = store(seed, 4);
        let mut rng = Rng::with_seed(seed ^ 0xbee);
        start(&mut server);
        let [mut changer, mut reader] = [Mount::new(&mut server, 1), Mount::new(&mut server, 2)];
        let (from, to) = furnished(&mut server, &mut changer);
        let found = changer.list(&mut server, from).unwrap();
        let file = found.iter().find(|(name, _)| name == "f").unwrap().1;
        reader.settle(&mut server);
        let made = reader.attr(&mut server, file).unwrap();
        changer.begin(&Act::Link(file, to, "n"));
        changer.send(&mut server);
        (0..rng.usize(..40)).for_each(|_| step(&mut server));
        reader.read(&mut server, file);
        let (status, _) = ask(&mut server, &mut changer, 0);
        assert_eq!(status, Status::Ok);
        reader.settle(&mut server);
        let linked = reader.attr(&mut server, file).unwrap();
        assert_eq!((made.atime, linked.nlink), (made.birth, 2));
        assert!(linked.atime > made.atime, "seed {seed}: {linked:?}");
    }
}
