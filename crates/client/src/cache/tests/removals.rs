//! What removals and renames outdate, of names that are known or not.

use super::*;
use wire::NamedInodes;

/// The reply says that these were changed.
fn naming(named: [Option<InodeNo>; 2]) -> Granted {
    Granted { named: Some(NamedInodes(named)), ..BOTH }
}

#[test]
fn the_removal_of_an_unknown_name_outdates_all_attributes() {
    let cache = cache();
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(file())));
    cache.learns(HERE, &unlink("link"), Ok(Answer::Done));
    assert_eq!(cache.says(&getattr(FILE)), None);
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    cache.learns(HERE, &unlink("other"), Err(Status::Access));
    assert!(cache.says(&getattr(FILE)).is_some(), "nothing has changed");
    cache.learns(HERE, &unlink("a"), Err(Status::Interrupted));
    assert_eq!(cache.says(&getattr(FILE)), None, "it may have been executed");
}

const OTHER: InodeNo = InodeNo(78);
const MOVED: InodeNo = InodeNo(79);

/// A cache that has the attributes of three files.
fn cache_of_three() -> Cache {
    let cache = cache();
    for inode in [FILE, OTHER, MOVED] {
        cache.learns(HERE, &getattr(inode), Ok(Answer::Entry(attr(inode, FileKind::File))));
    }
    cache
}

fn known(cache: &Cache) -> [bool; 3] {
    [FILE, OTHER, MOVED].map(|inode| cache.says(&getattr(inode)).is_some())
}

const RENAMED: Result<Answer, Status> =
    Ok(Answer::Renamed(wire::Renamed { moved: None, exchanged: None }));

#[test]
fn the_removal_of_an_unknown_name_outdates_what_the_reply_names() {
    let cache = cache_of_three();
    let asked = cache.begin(NOW, HERE, &unlink("x"));
    assert_eq!(known(&cache), [false; 3], "the server may have removed any of them");
    cache.hears((NOW, asked), &unlink("x"), &Ok(Answer::Done), &naming([Some(FILE), None]));
    assert_eq!(known(&cache), [false, true, true]);
    let cache = cache_of_three();
    let asked = cache.begin(NOW, HERE, &rename("x", "y"));
    let named = naming([Some(MOVED), Some(FILE)]);
    cache.hears((NOW, asked), &rename("x", "y"), &RENAMED, &named);
    assert_eq!(known(&cache), [false, true, false]);
    // It has left both names of a file.
    let asked = cache.begin(NOW, HERE, &rename("x", "y"));
    cache.hears((NOW, asked), &rename("x", "y"), &RENAMED, &naming([None; 2]));
    assert_eq!(known(&cache), [false, true, false]);
}

#[test]
fn what_a_reply_names_is_outdated_whatever_its_name_was_known_to_name() {
    let ends: [fn(&Cache); 3] = [
        |cache| cache.recall(&RecalledKey::Name(DIR, b"a".to_vec())),
        |cache| cache.recall(&RecalledKey::Attributes(DIR)),
        |_| {},
    ];
    for end in ends {
        let cache = cache_of_three();
        cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
        let asked = cache.begin(NOW, HERE, &unlink("a"));
        end(&cache);
        let named = naming([Some(OTHER), None]);
        cache.hears((NOW, asked), &unlink("a"), &Ok(Answer::Done), &named);
        assert_eq!(known(&cache), [false, false, true]);
    }
    let cache = cache_of_three();
    cache.makes_directory();
    let asked = cache.begin(NOW, HERE, &unlink("absent"));
    let named = naming([Some(OTHER), None]);
    cache.hears((NOW, asked), &unlink("absent"), &Ok(Answer::Done), &named);
    assert_eq!(known(&cache), [true, false, true], "another client had made it");
}

#[test]
fn attributes_that_were_asked_for_before_the_reply_named_their_inode_are_not_used() {
    let cache = cache_of_three();
    let removing = cache.begin(NOW, THERE, &unlink("x"));
    let looks = [FILE, OTHER].map(|inode| (inode, cache.begin(NOW, HERE, &getattr(inode))));
    let named = naming([Some(FILE), None]);
    cache.hears((NOW, removing), &unlink("x"), &Ok(Answer::Done), &named);
    for (inode, asked) in looks {
        let entry = Ok(Answer::Entry(attr(inode, FileKind::File)));
        cache.hears((NOW, asked), &getattr(inode), &entry, &BOTH);
    }
    assert_eq!(known(&cache), [false, true, true]);
}

#[test]
fn an_inode_that_was_unknown_and_has_other_names_is_known_as_the_reply_leaves_it() {
    let left = Attr { nlink: 2, ..file() };
    let (until, lease_no) = (UNTIL, wire::LeaseNo(1));
    let further = [GrantedAttributes { attr: left, until, lease_no }];
    for disturbed in [false, true] {
        let cache = cache_of_three();
        let asked = cache.begin(NOW, HERE, &unlink("x"));
        if disturbed {
            cache.learns(THERE, &resize(9), Ok(Answer::Entry(file())));
        }
        let (result, granted) = (Ok(Answer::Done), naming([Some(FILE), None]));
        let (result, granted, further) = (&result, &granted, &further[..]);
        let taken = TakenAnswer { result, granted, further, listing: None };
        cache.learn((NOW, asked), &unlink("x"), &taken);
        let found = Some(Ok(Answer::Entry(left))).filter(|_| !disturbed);
        assert_eq!(cache.says(&getattr(FILE)), found, "which is the later one?");
        assert_eq!(known(&cache), [!disturbed, true, true]);
    }
}

#[test]
fn a_failed_removal_and_one_that_names_nothing_outdate_all_as_before() {
    for result in [Err(Status::Interrupted), Ok(Answer::Done)] {
        let cache = cache_of_three();
        let asked = cache.begin(NOW, HERE, &unlink("x"));
        let granted = if result.is_ok() { BOTH } else { naming([Some(FILE), None]) };
        cache.hears((NOW, asked), &unlink("x"), &result, &granted);
        assert_eq!(known(&cache), [false; 3]);
        // The removal is over: what is learned now is used.
        cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(file())));
        assert_eq!(known(&cache), [true, false, false]);
    }
}

#[test]
fn while_a_known_name_is_removed_the_other_attributes_stay_known() {
    let cache = cache_of_three();
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    let removing = cache.begin(NOW, HERE, &unlink("a"));
    assert_eq!(known(&cache), [false, true, true]);
    cache.hears((NOW, removing), &unlink("a"), &Ok(Answer::Done), &BOTH);
    assert_eq!(known(&cache), [false, true, true]);
    // Also of names that are known to be absent.
    cache.makes_directory();
    let removing = cache.begin(NOW, HERE, &unlink("absent"));
    assert_eq!(known(&cache), [false, true, true]);
    cache.hears((NOW, removing), &unlink("absent"), &Err(Status::NotFound), &BOTH);
    assert_eq!(known(&cache), [false, true, true]);
}

type Loss = (&'static str, fn(&Cache));

/// What leaves unknown what a name names that was `a`, while it is being removed.
fn losses() -> [Loss; 6] {
    [
        ("a recall of it", |cache| cache.recall(&RecalledKey::Name(DIR, b"a".to_vec()))),
        ("a recall of its directory", |cache| cache.recall(&RecalledKey::Attributes(DIR))),
        ("a recall of all", |cache| cache.recall(&RecalledKey::All)),
        ("a drop", Cache::clear),
        ("a rename over it", |cache| {
            cache.learns(THERE, &rename("other", "a"), RENAMED);
        }),
        ("a create in its place", |cache| {
            let created = Answer::Created { attr: file(), made: true, handle: None };
            cache.learns(THERE, &create("a"), Ok(created));
        }),
    ]
}

#[test]
fn a_name_that_is_lost_while_it_is_removed_may_name_any_inode() {
    for (what, lose) in losses() {
        let cache = cache_of_three();
        cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
        let removing = cache.begin(NOW, HERE, &unlink("a"));
        lose(&cache);
        // It is looked at now, and may be removed under that name later.
        let moved = attr(MOVED, FileKind::File);
        cache.learns(THERE, &getattr(MOVED), Ok(Answer::Entry(moved)));
        assert_eq!(known(&cache), [false; 3], "{what}");
        cache.hears((NOW, removing), &unlink("a"), &Ok(Answer::Done), &BOTH);
        assert_eq!(known(&cache), [false; 3], "{what}");
        cache.learns(THERE, &getattr(MOVED), Ok(Answer::Entry(moved)));
        assert_eq!(known(&cache), [false, false, true], "it is over: {what}");
    }
}

#[test]
fn a_name_that_two_calls_change_at_a_time_may_name_any_inode() {
    for calls in [[unlink("a"), create("a")], [create("a"), unlink("a")]] {
        let cache = cache_of_three();
        cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
        let asked = calls.each_ref().map(|call| cache.begin(NOW, HERE, call));
        cache.learns(THERE, &getattr(MOVED), Ok(Answer::Entry(attr(MOVED, FileKind::File))));
        assert_eq!(known(&cache), [false; 3], "the created file, if it was created first");
        for (call, asked) in calls.iter().zip(asked) {
            cache.hears((NOW, asked), call, &Err(Status::Access), &BOTH);
        }
        assert_eq!(known(&cache), [true; 3]);
    }
}

#[test]
fn a_name_whose_lease_ends_while_it_is_removed_may_name_any_inode() {
    let (cache, later) = (cache(), Mono(UNTIL.0 + 5_000));
    cache.set_term(HERE, Term { no: 1, until: later });
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    let removing = cache.begin(NOW, HERE, &unlink("a"));
    // Another lane has a longer term.
    let until = Mono(2 * later.0);
    cache.set_term(THERE, Term { no: 2, until });
    let asked = cache.begin(NOW, THERE, &getattr(OTHER));
    let (entry, granted) = (
        Ok(Answer::Entry(attr(OTHER, FileKind::File))),
        Granted { attributes: Some(until), ..Granted::default() },
    );
    cache.hears((NOW, asked), &getattr(OTHER), &entry, &granted);
    let knows = |now| cache.attributes(now, OTHER).is_some();
    assert_eq!([NOW, later].map(knows), [true, false]);
    cache.hears((later, removing), &unlink("a"), &Err(Status::NotFound), &BOTH);
    assert!(knows(later), "nothing was removed");
}

#[test]
fn changes_of_other_names_leave_known_what_a_name_names() {
    let cache = cache_of_three();
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    cache.learns(HERE, &lookup("b"), Ok(Answer::Entry(attr(MOVED, FileKind::File))));
    let removing = cache.begin(NOW, HERE, &unlink("a"));
    cache.recall(&RecalledKey::Name(DIR, b"other".to_vec()));
    cache.recall(&RecalledKey::Attributes(InodeNo(6)));
    cache.learns(THERE, &unlink("b"), Ok(Answer::Done));
    assert_eq!(known(&cache), [false, true, false]);
    cache.hears((NOW, removing), &unlink("a"), &Ok(Answer::Done), &BOTH);
    assert_eq!(known(&cache), [false, true, false]);
}
