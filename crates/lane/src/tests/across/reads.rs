//! Reads beside a change over several shards: the first one after it counts.

use super::model::Act;
use super::mount::Mount;
use super::{ask, furnished, start, step, store};
use crate::toy::{Dice, Toy};
use wire::{InodeNo, RenameHow, Status};

/// Changes the file `f` in `from`, beside a reader who begins wherever the change is; and reads once
/// more when it is answered.
fn change_and_read(
    toy: &mut Toy,
    mounts: &mut [Mount; 2],
    file: InodeNo,
    act: &Act,
    dice: &mut Dice,
) {
    let [changer, reader] = mounts;
    reader.read(toy, file);
    reader.settle(toy);
    let before = reader.attr(toy, file).unwrap();
    assert!(before.atime > before.ctime, "{before:?}");
    changer.begin(act);
    changer.send(toy);
    (0..dice.below(60)).for_each(|_| step(toy));
    reader.read(toy, file);
    let (status, _) = ask(toy, changer, 0);
    assert_eq!(status, Status::Ok, "{act:?}");
    reader.read(toy, file);
    reader.settle(toy);
    let after = reader.attr(toy, file).unwrap();
    assert!(after.ctime > before.ctime && after.atime > after.ctime, "{act:?}: {after:?}");
}

#[test]
fn the_first_read_after_a_change_counts_wherever_one_before_met_it() {
    for seed in 1..=60 {
        let mut toy = store(seed, 4);
        let mut dice = Dice(seed ^ 0xace);
        start(&mut toy);
        let mut mounts = [Mount::new(&mut toy, 1), Mount::new(&mut toy, 2)];
        let (from, to) = furnished(&mut toy, &mut mounts[0]);
        let named = |mounts: &mut [Mount; 2], toy: &mut Toy, dir, text| {
            let found = mounts[0].list(toy, dir).unwrap();
            found.iter().find(|(name, _)| name == text).unwrap().1
        };
        let file = named(&mut mounts, &mut toy, from, "f");
        for act in [
            Act::Link(file, to, "n"),
            Act::Rename((from, "f"), (to, "o"), RenameHow::NoReplace),
            Act::Unlink(to, "n"),
            Act::Rename((to, "o"), (from, "f"), RenameHow::NoReplace),
        ] {
            change_and_read(&mut toy, &mut mounts, file, &act, &mut dice);
        }
    }
}

#[test]
fn a_read_counts_though_a_change_has_its_file_locked() {
    for seed in 1..=120 {
        let mut toy = store(seed, 4);
        let mut dice = Dice(seed ^ 0xbee);
        start(&mut toy);
        let [mut changer, mut reader] = [Mount::new(&mut toy, 1), Mount::new(&mut toy, 2)];
        let (from, to) = furnished(&mut toy, &mut changer);
        let found = changer.list(&mut toy, from).unwrap();
        let file = found.iter().find(|(name, _)| name == "f").unwrap().1;
        reader.settle(&mut toy);
        let made = reader.attr(&mut toy, file).unwrap();
        changer.begin(&Act::Link(file, to, "n"));
        changer.send(&mut toy);
        (0..dice.below(40)).for_each(|_| step(&mut toy));
        reader.read(&mut toy, file);
        let (status, _) = ask(&mut toy, &mut changer, 0);
        assert_eq!(status, Status::Ok);
        reader.settle(&mut toy);
        let linked = reader.attr(&mut toy, file).unwrap();
        assert_eq!((made.atime, linked.nlink), (made.birth, 2));
        assert!(linked.atime > made.atime, "seed {seed}: {linked:?}");
    }
}
