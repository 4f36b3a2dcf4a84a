//! What the cache answers, and what ends that.
#![allow(clippy::unwrap_used)]

extern crate std;

mod removals;

use super::{Asked, Cache, CacheSize, TakenAnswer};
use crate::{Answer, Call, Create, Granted, GrantedAttributes, RecalledKey, Resize, Term};
use alloc::vec::Vec;
use interface::Mono;
use wire::{
    Attr, Caller, Dirent, FileKind, Groups, InodeNo, LaneId, List, Listing, Name, RenameHow, Rules,
    Status, Wire as _, Writer, attr_flag,
};

const DIR: InodeNo = InodeNo(5);
const FILE: InodeNo = InodeNo(77);
const HERE: LaneId = LaneId(0);
const THERE: LaneId = LaneId(1);
const UNTIL: Mono = Mono(1_000);
const NOW: Mono = Mono(10);
const CALLER: Caller<'static> = Caller { uid: 0, gid: 0, groups: Groups::Unknown };

fn cache() -> Cache {
    let size = CacheSize {
        name_count_max: 256,
        attributes_count_max: 256,
        directory_count_max: 64,
        slot_count: 65_536,
    };
    let cache = Cache::new([1, 2, 3], size, Rules::default());
    [HERE, THERE].iter().for_each(|lane| cache.set_term(*lane, Term { no: 1, until: UNTIL }));
    cache
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn attr(inode: InodeNo, kind: FileKind) -> Attr {
    Attr { kind, flags: 0, nlink: 1, layout: None, ..Attr::elsewhere(inode, kind) }
}

fn file() -> Attr {
    attr(FILE, FileKind::File)
}

fn lookup(text: &str) -> Call<'_> {
    Call::Lookup(wire::Lookup { caller: CALLER, parent: DIR, name: name(text) })
}

const fn getattr(inode: InodeNo) -> Call<'static> {
    Call::Getattr(wire::Getattr { inode })
}

fn unlink(text: &str) -> Call<'_> {
    Call::Unlink(wire::Unlink { caller: CALLER, parent: DIR, name: name(text), behind: None })
}

fn create(text: &str) -> Call<'_> {
    let (mode, umask, exclusive, open) = (0o644, 0, true, None);
    Call::Create(Create {
        caller: CALLER,
        parent: DIR,
        name: name(text),
        mode,
        umask,
        exclusive,
        open,
    })
}

const fn readdir(cookie: u64) -> Call<'static> {
    Call::Readdir(wire::Readdir {
        caller: CALLER,
        inode: DIR,
        cookie,
        listing_bytes_max: 4096,
        attrs: true,
        handle: None,
    })
}

fn mkdir(text: &str) -> Call<'_> {
    let (mode, umask) = (0o755, 0);
    Call::Mkdir(wire::Mkdir {
        caller: CALLER,
        parent: InodeNo::ROOT,
        name: name(text),
        mode,
        umask,
    })
}

const BOTH: Granted = Granted {
    writing: false,
    attributes: Some(UNTIL),
    attributes_no: wire::LeaseNo(0),
    name: Some(UNTIL),
    new_name: None,
    contents: None,
    entries: Some(UNTIL),
    named: None,
};

fn rename<'a>(old: &'a str, new: &'a str) -> Call<'a> {
    Call::Rename(wire::Rename {
        caller: CALLER,
        parent: DIR,
        name: name(old),
        new_parent: DIR,
        new_name: name(new),
        how: RenameHow::Replace,
    })
}

impl Cache {
    fn learns(&self, lane: LaneId, call: &Call<'_>, result: Result<Answer, Status>) {
        let asked = self.begin(NOW, lane, call);
        self.hears((NOW, asked), call, &result, &BOTH);
    }

    fn hears(
        &self,
        (now, asked): (Mono, Asked),
        call: &Call<'_>,
        result: &Result<Answer, Status>,
        granted: &Granted,
    ) {
        let taken = TakenAnswer { result, granted, further: &[], listing: None };
        self.learn((now, asked), call, &taken);
    }

    fn says(&self, call: &Call<'_>) -> Option<Result<Answer, Status>> {
        self.answer(NOW, HERE, call).map(|(result, _)| result)
    }

    /// The directory is made, with a lease of its attributes.
    fn makes_directory(&self) {
        let made = Attr { flags: attr_flag::EMPTY, ..attr(DIR, FileKind::Directory) };
        self.learns(HERE, &mkdir("d"), Ok(Answer::Entry(made)));
    }

    fn lists(&self, asked: Asked, names: &[&str], (from, end): (u64, bool)) {
        let mut bytes = Vec::new();
        for (cookie, text) in (from + 1..).zip(names) {
            let (inode, kind) = (InodeNo(100 + cookie), FileKind::File);
            let attr = Some(attr(inode, kind));
            let dirent = Dirent { cookie, inode, kind, name: name(text), attr, granted: true };
            dirent.encode(&mut Writer::new(&mut bytes));
        }
        let entries = List::new(u32::try_from(names.len()).unwrap(), &bytes);
        let listing = Listing { parent: InodeNo::ROOT, end, entries }.to_bytes();
        let result = Ok(Answer::Listing(interface::Span::default()));
        let listing = Some(&listing[..]);
        let taken = TakenAnswer { result: &result, granted: &BOTH, further: &[], listing };
        self.learn((NOW, asked), &readdir(from), &taken);
    }
}

const ABSENT: Option<Result<Answer, Status>> = Some(Err(Status::NotFound));

#[test]
fn a_name_is_answered_with_its_attributes_until_the_lease_ends() {
    let cache = cache();
    assert_eq!(cache.says(&lookup("a")), None);
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    let entry = Ok(Answer::Entry(file()));
    let (result, granted) = cache.answer(NOW, HERE, &lookup("a")).unwrap();
    assert_eq!((result, granted.name, granted.attributes), (entry, Some(UNTIL), Some(UNTIL)));
    let (result, granted) = cache.answer(NOW, THERE, &lookup("a")).unwrap();
    assert_eq!((result, granted), (entry, Granted::default()), "it would not hear of the recall");
    assert_eq!(cache.answer(UNTIL, HERE, &lookup("a")), None);
    assert_eq!(cache.says(&lookup("b")), None);
    assert_eq!(cache.says(&getattr(FILE)), Some(entry));
}

#[test]
fn a_recall_ends_what_it_names_and_what_was_asked_before_it() {
    let cache = cache();
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    cache.recall(&RecalledKey::Attributes(FILE));
    assert_eq!(cache.says(&lookup("a")), None);
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(file())));
    assert!(cache.says(&lookup("a")).is_some());
    let asked = cache.begin(NOW, HERE, &lookup("a"));
    cache.recall(&RecalledKey::Name(DIR, b"a".to_vec()));
    assert_eq!(cache.says(&lookup("a")), None);
    let entry = Ok(Answer::Entry(file()));
    cache.hears((NOW, asked), &lookup("a"), &entry, &BOTH);
    assert_eq!(cache.says(&lookup("a")), None, "the answer is from before the recall");
    cache.learns(HERE, &lookup("a"), entry);
    assert!(cache.says(&lookup("a")).is_some());
    cache.recall(&RecalledKey::All);
    assert_eq!(cache.says(&getattr(FILE)), None);
}

fn resize(size_bytes: u64) -> Call<'static> {
    Call::Resize(Resize { caller: CALLER, inode: FILE, size_bytes, open_for_write: true })
}

#[test]
fn an_own_change_outdates_what_all_lanes_have_learned_or_asked() {
    let cache = cache();
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    let before = cache.begin(NOW, HERE, &getattr(FILE));
    let changing = cache.begin(NOW, THERE, &resize(9));
    assert_eq!(cache.says(&getattr(FILE)), None, "another client may have seen the change");
    let between = cache.begin(NOW, HERE, &getattr(FILE));
    let (older, larger) = (Ok(Answer::Entry(file())), Attr { size_bytes: 9, ..file() });
    cache.hears((NOW, between), &getattr(FILE), &older, &BOTH);
    assert_eq!(cache.says(&getattr(FILE)), None);
    cache.hears((NOW, changing), &resize(9), &Ok(Answer::Entry(larger)), &BOTH);
    assert_eq!(cache.says(&getattr(FILE)), Some(Ok(Answer::Entry(larger))));
    cache.hears((NOW, before), &getattr(FILE), &older, &BOTH);
    assert_eq!(cache.says(&getattr(FILE)), None, "the older attributes may not be used");
}

#[test]
fn a_change_that_fails_outdates_nothing_unless_it_may_have_been_executed() {
    let cache = cache();
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(file())));
    cache.learns(HERE, &resize(9), Err(Status::Access));
    assert!(cache.says(&getattr(FILE)).is_some());
    cache.learns(HERE, &resize(9), Err(Status::Interrupted));
    assert_eq!(cache.says(&getattr(FILE)), None);
}

#[test]
fn two_changes_at_a_time_leave_nothing_cached() {
    let cache = cache();
    let asked = [HERE, THERE].map(|lane| cache.begin(NOW, lane, &resize(9)));
    for asked in asked {
        cache.hears((NOW, asked), &resize(9), &Ok(Answer::Entry(file())), &BOTH);
        assert_eq!(cache.says(&getattr(FILE)), None, "which is the later one?");
    }
}

#[test]
fn a_new_directory_has_known_names() {
    let cache = cache();
    cache.makes_directory();
    assert_eq!(cache.says(&lookup("a")), ABSENT);
    cache.learns(
        HERE,
        &create("a"),
        Ok(Answer::Created { attr: file(), made: true, handle: None }),
    );
    assert_eq!(cache.says(&lookup("a")), Some(Ok(Answer::Entry(file()))));
    assert_eq!(cache.says(&lookup("b")), ABSENT);
    assert_eq!(cache.says(&getattr(DIR)), None, "its times have changed");
    cache.learns(THERE, &unlink("a"), Ok(Answer::Done));
    assert_eq!(cache.says(&lookup("a")), ABSENT);
    assert_eq!(cache.says(&getattr(FILE)), None);
}

#[test]
fn a_change_leaves_the_attributes_of_its_directory_known() {
    let cache = cache();
    cache.makes_directory();
    let asked = cache.begin(NOW, HERE, &create("a"));
    let result = Ok(Answer::Created { attr: file(), made: true, handle: None });
    let attr = attr(DIR, FileKind::Directory);
    let until = Mono(2_000);
    let further = [GrantedAttributes { attr, until, lease_no: wire::LeaseNo(1) }];
    let taken = TakenAnswer { result: &result, granted: &BOTH, further: &further, listing: None };
    cache.learn((NOW, asked), &create("a"), &taken);
    assert_eq!(cache.says(&getattr(DIR)), Some(Ok(Answer::Entry(attr))));
    assert_eq!(cache.says(&lookup("b")), ABSENT);
    cache.set_term(HERE, Term { no: 1, until });
    let found = cache.answer(Mono(1_500), HERE, &lookup("b")).unwrap();
    assert_eq!(found.0, Err(Status::NotFound), "the directory is held for longer");
}

#[test]
fn known_names_end_with_the_hold_of_the_directory() {
    let ends: [fn(&Cache); 3] = [
        |cache| cache.recall(&RecalledKey::Attributes(DIR)),
        |cache| cache.recall(&RecalledKey::All),
        Cache::clear,
    ];
    for end in ends {
        let cache = cache();
        cache.makes_directory();
        end(&cache);
        assert_eq!(cache.says(&lookup("a")), None);
        cache.learns(HERE, &getattr(DIR), Ok(Answer::Entry(attr(DIR, FileKind::Directory))));
        assert_eq!(cache.says(&lookup("a")), None, "another client may have made it meanwhile");
    }
    let cache = cache();
    cache.makes_directory();
    assert_eq!(cache.answer(UNTIL, HERE, &lookup("a")), None);
}

#[test]
fn a_hold_goes_on_with_the_lease_of_another_lane() {
    let cache = cache();
    cache.makes_directory();
    let asked = cache.begin(NOW, THERE, &getattr(DIR));
    let entry = Ok(Answer::Entry(attr(DIR, FileKind::Directory)));
    cache.hears((Mono(900), asked), &getattr(DIR), &entry, &BOTH);
    cache.set_term(THERE, Term { no: 1, until: Mono(2_000) });
    assert_eq!(cache.answer(Mono(1_500), HERE, &lookup("a")).unwrap().0, Err(Status::NotFound));
    cache.set_term(THERE, Term { no: 2, until: Mono(3_000) });
    let later = Granted { attributes: Some(Mono(3_000)), ..Granted::default() };
    cache.hears((Mono(2_100), asked), &getattr(DIR), &entry, &later);
    assert_eq!(cache.answer(Mono(2_100), HERE, &lookup("b")), None, "it had ended");
}

#[test]
fn what_was_learned_lasts_as_long_as_the_term_is_renewed_and_does_not_come_back() {
    let cache = cache();
    cache.learns(HERE, &lookup("a"), Ok(Answer::Entry(file())));
    let later = Mono(5_000);
    let says = |now| cache.answer(now, HERE, &lookup("a")).map(|(_, granted)| granted.name);
    assert_eq!(says(UNTIL), None);
    cache.set_term(HERE, Term { no: 1, until: later });
    assert_eq!(says(UNTIL), Some(Some(later)), "the kernel gets the rest of the term");
    cache.set_term(HERE, Term { no: 2, until: Mono(9_000) });
    assert_eq!(says(UNTIL), None, "the first term is over");
}

#[test]
fn an_absent_name_that_is_asked_for_again_and_again_gets_a_lease() {
    let cache = cache();
    cache.makes_directory();
    for _ in 0..6 {
        assert_eq!(cache.says(&lookup("a")), ABSENT);
    }
    assert_eq!(cache.says(&lookup("a")), None);
    cache.learns(HERE, &lookup("a"), Err(Status::NotFound));
    assert_eq!(cache.says(&lookup("a")), ABSENT);
    assert_eq!(cache.answer(NOW, HERE, &lookup("a")).unwrap().1.name, Some(UNTIL));
}

#[test]
fn a_listing_from_start_to_end_under_a_lease_makes_names_known() {
    let cache = cache();
    let dir = Ok(Answer::Entry(attr(DIR, FileKind::Directory)));
    // Not the one that began before the directory was held.
    let early = cache.begin(NOW, HERE, &readdir(0));
    cache.learns(HERE, &getattr(DIR), dir);
    cache.lists(early, &["a"], (0, true));
    assert_eq!(cache.says(&lookup("x")), None);
    // Nor one that began in the middle.
    let asked = |lane| cache.begin(NOW, lane, &readdir(0));
    cache.lists(asked(HERE), &["b"], (1, true));
    assert_eq!(cache.says(&lookup("x")), None);
    cache.lists(asked(HERE), &["a", "b"], (0, false));
    assert_eq!(cache.says(&lookup("x")), None);
    cache.lists(asked(THERE), &["c"], (2, true));
    assert_eq!(cache.says(&lookup("x")), ABSENT);
    let c = Ok(Answer::Entry(attr(InodeNo(103), FileKind::File)));
    assert_eq!(cache.says(&lookup("c")), Some(c));
    // A listed name that is cached no longer is not absent.
    cache.recall(&RecalledKey::Name(DIR, b"c".to_vec()));
    assert_eq!(cache.says(&lookup("c")), None);
}

#[test]
fn a_listing_may_hold_its_directory_itself() {
    let cache = cache();
    let listing = Listing { parent: InodeNo::ROOT, end: true, entries: List::new(0, &[]) };
    let (asked, listing) = (cache.begin(NOW, HERE, &readdir(0)), listing.to_bytes());
    let (attr, until) = (attr(DIR, FileKind::Directory), UNTIL);
    let further = [GrantedAttributes { attr, until, lease_no: wire::LeaseNo(1) }];
    let result = Ok(Answer::Listing(interface::Span::default()));
    let listing = Some(&listing[..]);
    let taken = TakenAnswer { result: &result, granted: &BOTH, further: &further, listing };
    cache.learn((NOW, asked), &readdir(0), &taken);
    assert_eq!(cache.says(&lookup("x")), ABSENT);
}

#[test]
fn names_that_change_while_they_are_listed_are_not_absent() {
    let cache = cache();
    cache.learns(HERE, &getattr(DIR), Ok(Answer::Entry(attr(DIR, FileKind::Directory))));
    let listing = cache.begin(NOW, HERE, &readdir(0));
    let creating = cache.begin(NOW, THERE, &create("new"));
    assert_eq!(cache.says(&lookup("new")), None);
    let created = Ok(Answer::Created { attr: file(), made: true, handle: None });
    cache.hears((NOW, creating), &create("new"), &created, &Granted::default());
    cache.lists(listing, &["a"], (0, true));
    assert_ne!(cache.says(&lookup("new")), ABSENT);
    assert_eq!(cache.says(&lookup("x")), ABSENT);
}

#[test]
fn a_rename_moves_what_is_known() {
    let cache = cache();
    cache.makes_directory();
    cache.learns(
        HERE,
        &create("a"),
        Ok(Answer::Created { attr: file(), made: true, handle: None }),
    );
    let rename = rename("a", "b");
    let renamed = wire::Renamed { moved: None, exchanged: None };
    cache.learns(THERE, &rename, Ok(Answer::Renamed(renamed)));
    assert_eq!(cache.says(&lookup("a")), ABSENT);
    assert_eq!(cache.says(&lookup("b")), None, "the attributes have changed");
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(file())));
    assert_eq!(cache.says(&lookup("b")), Some(Ok(Answer::Entry(file()))));
}

#[test]
fn only_an_inode_without_extended_attributes_answers_for_them() {
    let cache = cache();
    let getxattr = |text: &'static str| {
        let name = wire::Bytes(text.as_bytes());
        Call::Getxattr(wire::Getxattr { caller: CALLER, inode: FILE, name })
    };
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(file())));
    for text in ["security.capability", "system.posix_acl_access"] {
        assert_eq!(cache.says(&getxattr(text)), Some(Err(Status::NoData)));
    }
    for text in ["user.x", "trusted.x", "other", "security."] {
        assert_eq!(cache.says(&getxattr(text)), None, "the server may refuse it otherwise");
    }
    let some = Attr { flags: attr_flag::XATTRS, ..file() };
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(some)));
    assert_eq!(cache.says(&getxattr("security.capability")), None);
}

#[test]
fn sizes_that_the_data_shard_has_are_not_cached() {
    let cache = cache();
    let unsettled = Attr { flags: attr_flag::SIZE_AT_DATA, ..file() };
    cache.learns(HERE, &getattr(FILE), Ok(Answer::Entry(unsettled)));
    assert_eq!(cache.says(&getattr(FILE)), None);
}

#[test]
fn a_new_file_is_empty_although_the_data_shard_has_its_size() {
    let cache = cache();
    let attr = Attr { flags: attr_flag::SIZE_AT_DATA, ..file() };
    cache.learns(HERE, &create("a"), Ok(Answer::Created { attr, made: true, handle: None }));
    assert_eq!(cache.says(&getattr(FILE)), Some(Ok(Answer::Entry(file()))));
}

#[test]
fn a_full_cache_forgets_and_never_errs() {
    let cache = cache();
    cache.makes_directory();
    let names: Vec<std::string::String> =
        (0..2_000).map(|number| std::format!("f{number}")).collect();
    for (inode, text) in (1_000..).map(InodeNo).zip(&names) {
        let created =
            Answer::Created { attr: attr(inode, FileKind::File), made: true, handle: None };
        cache.learns(HERE, &create(text), Ok(created));
    }
    let mut known_count = 0;
    for (inode, text) in (1_000..).map(InodeNo).zip(&names) {
        let found = cache.says(&lookup(text));
        known_count += usize::from(found.is_some());
        let entry = Some(Ok(Answer::Entry(attr(inode, FileKind::File))));
        assert!(found.is_none() || found == entry, "{text}: {found:?}");
    }
    assert!((100..=256).contains(&known_count), "{known_count}");
    let absent = (0..1_000).map(|number| std::format!("g{number}"));
    let absent_count = absent.filter(|text| cache.says(&lookup(text)) == ABSENT).count();
    assert!(absent_count > 900, "{absent_count}");
}

#[test]
fn lanes_that_change_and_read_at_the_same_time_never_read_what_is_outdated() {
    use std::sync::atomic::{AtomicU64, Ordering};
    // The "server" is a number; a change raises it and then outdates.
    let (cache, server) = (cache(), AtomicU64::new(1));
    let answered = AtomicU64::new(1);
    let entry = |size_bytes| Ok(Answer::Entry(Attr { size_bytes, ..file() }));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2..20_000 {
                let asked = cache.begin(NOW, THERE, &resize(number));
                server.store(number, Ordering::SeqCst);
                cache.hears((NOW, asked), &resize(number), &entry(number), &BOTH);
                answered.store(number, Ordering::SeqCst);
            }
        });
        for lane in [HERE, THERE] {
            let (cache, server, answered) = (&cache, &server, &answered);
            scope.spawn(move || {
                while answered.load(Ordering::SeqCst) < 19_999 {
                    let before = answered.load(Ordering::SeqCst);
                    match cache.answer(NOW, lane, &getattr(FILE)) {
                        Some((Ok(Answer::Entry(attr)), _)) => assert!(attr.size_bytes >= before),
                        _ => {
                            let asked = cache.begin(NOW, lane, &getattr(FILE));
                            let result = entry(server.load(Ordering::SeqCst));
                            cache.hears((NOW, asked), &getattr(FILE), &result, &BOTH);
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_part_that_was_asked_for_before_a_listing_began_does_not_continue_it() {
    let cache = cache();
    cache.makes_directory();
    cache.lists(cache.begin(NOW, HERE, &readdir(0)), &["a"], (0, false));
    let late = cache.begin(NOW, HERE, &readdir(1));
    // Made behind "a" meanwhile, and forgotten by the table of names, which may forget everything.
    let made = cache.begin(NOW, HERE, &create("b"));
    cache.end_unlearned(made);
    cache.lists(cache.begin(NOW, HERE, &readdir(0)), &["a"], (0, false));
    cache.lists(late, &[], (1, true));
    assert_eq!(cache.answer(NOW, HERE, &lookup("b")), None);
}

#[test]
fn the_names_of_a_directory_are_lost_until_it_is_listed_again() {
    let cache = cache();
    assert!(!cache.has_lost_names(NOW, DIR), "they were never known");
    cache.makes_directory();
    assert!(!cache.has_lost_names(NOW, DIR));
    cache.set_term(HERE, Term { no: 2, until: UNTIL });
    assert!(cache.has_lost_names(NOW, DIR));
    cache.learns(HERE, &getattr(DIR), Ok(Answer::Entry(attr(DIR, FileKind::Directory))));
    assert!(cache.has_lost_names(NOW, DIR), "it is held, but its names are not known");
    cache.lists(cache.begin(NOW, HERE, &readdir(0)), &["a"], (0, true));
    assert!(!cache.has_lost_names(NOW, DIR));
}
