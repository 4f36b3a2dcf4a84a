//! Learning from answers: what a client's own changes outdate, and what may be cached.
//!
//! A change outdates what it concerns when it was answered, and before its caller hears of it. What
//! the answer says of it is cached if no other change or recall came in between.

use super::changes::Changed;
use super::entries::{
    AttributesEntry, DIRECTORY_WORDS, DirectoryEntry, Lease, ListingSoFar, NameEntry,
};
use super::stamps::{Outdated, Stamp};
use super::{Asked, Cache, KNOWN_NAME_COUNT_MAX};
use crate::{Answer, Call, Granted, GrantedAttributes};
use interface::Mono;
use wire::{Attr, FileKind, InodeNo, LaneId, Listing, Name, RenameHow, Status, Wire as _};

/// An answer that a frontend has taken, and what came with it.
#[derive(Clone, Copy, Debug)]
pub struct TakenAnswer<'a> {
    /// The answer.
    pub result: &'a Result<Answer, Status>,
    /// What it grants.
    pub granted: &'a Granted,
    /// The same of further inodes.
    pub further: &'a [GrantedAttributes],
    /// Its listing.
    pub listing: Option<&'a [u8]>,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    dir: InodeNo,
    name: Name<'a>,
}

/// When an answer is true.
#[derive(Clone, Copy, Debug)]
struct Answered {
    now: Mono,
    lane: LaneId,
    /// Its request was sent behind this stamp.
    sent: Stamp,
    /// What it says is true from this one on.
    stamp: Stamp,
}

impl Answered {
    /// What was changed is true from the end of the change on, unless something came in between.
    fn behind(self, outdated: Option<Outdated>) -> Self {
        match outdated {
            Some(Outdated { now, .. }) if !self.is_disturbed(outdated) => {
                Self { stamp: now, ..self }
            }
            Some(_) | None => self,
        }
    }

    /// Whether something came in between.
    fn is_disturbed(self, outdated: Option<Outdated>) -> bool {
        outdated.is_some_and(|outdated| outdated.before > self.sent)
    }
}

impl Cache {
    /// A call of this client was answered. To be called before the caller gets the answer.
    pub fn learn(&self, (now, asked): (Mono, Asked), call: &Call<'_>, taken: &TakenAnswer<'_>) {
        let TakenAnswer { result, granted, further, listing } = *taken;
        let asked = asked.naming(granted.named.filter(|_| result.is_ok()));
        let Asked { lane, sent, .. } = asked;
        let answered = Answered { now, lane, sent, stamp: sent };
        let is_opened = matches!(result, Ok(Answer::Created { made: false, .. }));
        let is_unchanged = is_opened || result.is_err_and(has_changed_nothing);
        let changed = if is_unchanged {
            self.cancel(asked);
            Changed::default()
        } else {
            self.end(asked)
        };
        for GrantedAttributes { attr, until, .. } in further {
            let answered = answered.behind(changed.inode(attr.inode));
            self.learn_attributes(answered, *attr, Some(*until));
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other calls change no names")]
        match call {
            _ if is_unchanged => {
                self.learn_unchanged(answered, call, result, granted);
            }
            Call::Create(crate::Create { parent, name, .. })
            | Call::CreateBehind(crate::MakeBehind { parent, name, .. })
            | Call::Mkdir(wire::Mkdir { parent, name, .. })
            | Call::Symlink(wire::Symlink { parent, name, .. })
            | Call::Mknod(wire::Mknod { parent, name, .. })
            | Call::Link(wire::Link { parent, name, .. }) => {
                let place = Place { dir: *parent, name: *name };
                self.learn_made((answered, &changed), place, result, granted);
            }
            Call::UnlinkBehind(wire::Unlink { parent, name, .. }) => {
                if result.is_ok() {
                    let place = Place { dir: *parent, name: *name };
                    let named = answered.behind(changed.names[0]);
                    self.learn_name(named, place, None, granted.name);
                }
            }
            Call::Unlink(wire::Unlink { parent, name, .. })
            | Call::Rmdir(wire::Rmdir { parent, name, .. }) => {
                let place = Place { dir: *parent, name: *name };
                let until = result.is_ok().then_some(granted.name);
                self.learn_removed((answered, &changed), asked, place, until);
            }
            Call::Rename(args) => {
                self.learn_renamed((answered, &changed), asked, args, result.is_ok());
            }
            Call::Setattr(wire::Setattr { inode, .. })
            | Call::SetattrBehind(wire::Setattr { inode, .. })
            | Call::Resize(crate::Resize { inode, .. }) => {
                let answered = answered.behind(changed.inode(*inode));
                self.learn_entry(answered, None, result, granted);
            }
            Call::Readdir(args) => {
                let listing = listing.and_then(|bytes| Listing::decode_all(bytes).ok());
                // The first reply may be what holds the directory.
                let is_held = further.iter().any(|further| further.attr.inode == args.inode);
                if let Some(listing) = listing {
                    self.learn_listing((answered, is_held), args, &listing, granted);
                }
            }
            _ => self.learn_unchanged(answered, call, result, granted),
        }
        if !is_unchanged {
            self.end_guard(asked);
        }
    }

    /// The call was answered in parts, or differs from what began: what it may have changed is
    /// outdated.
    pub fn end_unlearned(&self, asked: Asked) {
        self.end(asked);
        if asked.changing.is_guarded {
            self.outdate_unknown();
        }
        self.end_guard(asked);
    }

    fn learn_unchanged(
        &self,
        answered: Answered,
        call: &Call<'_>,
        result: &Result<Answer, Status>,
        granted: &Granted,
    ) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other answer has attributes")]
        match call {
            Call::Lookup(wire::Lookup { parent, name, .. })
            | Call::Create(crate::Create { parent, name, .. }) => {
                let place = Place { dir: *parent, name: *name };
                if *result == Err(Status::NotFound) {
                    self.learn_name(answered, place, None, granted.name);
                } else {
                    self.learn_entry(answered, Some(place), result, granted);
                }
            }
            Call::Getattr(_) | Call::Open(_) | Call::Tmpfile(_) => {
                self.learn_entry(answered, None, result, granted);
            }
            _ => {}
        }
    }

    /// The answer shows an inode, and what a name names.
    fn learn_entry(
        &self,
        answered: Answered,
        place: Option<Place<'_>>,
        result: &Result<Answer, Status>,
        granted: &Granted,
    ) {
        let Some(attr) = shown(result) else { return };
        if let Some(place) = place {
            self.learn_name(answered, place, Some(attr.inode), granted.name);
        }
        self.learn_attributes(answered, attr, granted.attributes);
    }

    fn learn_made(
        &self,
        (answered, changed): (Answered, &Changed),
        place: Place<'_>,
        result: &Result<Answer, Status>,
        granted: &Granted,
    ) {
        let Some(attr) = shown(result) else { return };
        let named = answered.behind(changed.names[0]);
        self.learn_name(named, place, Some(attr.inode), granted.name);
        // Another change of the name, which came in between, may have removed the inode already.
        if named.is_disturbed(changed.names[0]) {
            return;
        }
        let shown_at = answered.behind(changed.inode(attr.inode));
        self.learn_attributes(shown_at, attr, granted.attributes);
    }

    fn learn_removed(
        &self,
        (answered, changed): (Answered, &Changed),
        asked: Asked,
        place: Place<'_>,
        removed_until: Option<Option<Mono>>,
    ) {
        let named = answered.behind(changed.names[0]);
        // Another change may have come in between: it is not known what the name named.
        let may_be_any = named.is_disturbed(changed.names[0])
            || self.has_lost(answered.now, asked, place.dir)
            || (removed_until.is_some() && asked.changing.is_absent);
        if may_be_any && !asked.is_named() {
            self.outdate_unknown();
        }
        if let Some(until) = removed_until {
            self.learn_name(named, place, None, until);
        }
    }

    fn learn_renamed(
        &self,
        (answered, changed): (Answered, &Changed),
        asked: Asked,
        args: &wire::Rename<'_>,
        is_done: bool,
    ) {
        let from = Place { dir: args.parent, name: args.name };
        let to = Place { dir: args.new_parent, name: args.new_name };
        let [old, new] = changed.names.map(|outdated| answered.behind(outdated));
        let is_disturbed = old.is_disturbed(changed.names[0])
            || new.is_disturbed(changed.names[1])
            || [from.dir, to.dir].iter().any(|dir| self.has_lost(answered.now, asked, *dir));
        if (is_disturbed || (is_done && asked.changing.is_absent)) && !asked.is_named() {
            self.outdate_unknown();
        }
        let is_move = matches!(args.how, RenameHow::Replace | RenameHow::NoReplace);
        if let Some(moved) = asked.changing.moved
            && is_done
            && is_move
            && !is_disturbed
            && !answered.is_disturbed(changed.inode(moved))
        {
            self.learn_name(old, from, None, None);
            self.learn_name(new, to, Some(moved), None);
        }
    }

    /// Caches what a name names, or that it does not exist.
    fn learn_name(
        &self,
        answered: Answered,
        place: Place<'_>,
        inode: Option<InodeNo>,
        until: Option<Mono>,
    ) {
        let Answered { now, lane, sent, stamp } = answered;
        let lease = until.filter(|until| now < *until).map(|_| self.terms.lease_of(lane));
        // Another client may have changed the name between this answer and the hold.
        let is_held = || self.hold(now, place.dir).is_some_and(|held| held.since <= sent);
        if lease.is_none() && !is_held() {
            return;
        }
        let hash = self.name_hash(place.dir, place.name.bytes());
        let entry = NameEntry { dir: place.dir, hash, inode, stamp, lease };
        let is_same = |words: &_| {
            let known = NameEntry::of(words);
            known.dir == place.dir && known.hash == hash
        };
        self.names.put(hash.place, is_same, entry.words());
    }

    /// Caches attributes, and holds a directory.
    fn learn_attributes(&self, answered: Answered, attr: Attr, until: Option<Mono>) {
        const UNSETTLED: u32 = wire::attr_flag::SIZE_AT_DATA | wire::attr_flag::ELSEWHERE;
        let Answered { now, lane, stamp, .. } = answered;
        if until.is_none_or(|until| until <= now) {
            return;
        }
        if attr.flags & UNSETTLED != 0 {
            return;
        }
        let lease = self.terms.lease_of(lane);
        let entry = AttributesEntry { attr, stamp, lease };
        let hash = self.inode_hash(attr.inode);
        self.attributes.put(hash, |words| words[0] == attr.inode.0, entry.words());
        if attr.kind == FileKind::Directory {
            self.update_hold(answered, &attr, lease);
        }
    }

    /// The attributes of a directory were granted: begins its hold, or prolongs it.
    fn update_hold(&self, answered: Answered, attr: &Attr, lease: Lease) {
        let dir = attr.inode;
        let hash = self.inode_hash(dir);
        let is_same = |words: &[u64; DIRECTORY_WORDS]| words[0] == dir.0;
        self.directories.update(hash, is_same, |words| {
            let known = words.map(|words| DirectoryEntry::of(&words));
            let mut held = match known.filter(|known| self.lasts(answered.now, known)) {
                Some(held) => DirectoryEntry { lease, ..held },
                None if self.is_outdated(answered.sent, self.hold_slots.get(hash)) => return None,
                None => {
                    // What was asked before now may have been answered before the hold began.
                    let since = self.clock.next();
                    let was_known =
                        known.is_some_and(|held| held.was_known || held.known_at.is_some());
                    DirectoryEntry { was_known, ..DirectoryEntry::new(dir, since, lease) }
                }
            };
            if attr.is_empty_directory() {
                held.known_at = held.known_at.max(Some(answered.sent));
            }
            Some(held.words())
        });
    }

    fn learn_listing(
        &self,
        (answered, is_held): (Answered, bool),
        args: &wire::Readdir<'_>,
        listing: &Listing<'_>,
        granted: &Granted,
    ) {
        let dir = args.inode;
        let listed_at = self.clock.next();
        let (mut count, mut cookie) = (0, args.cookie);
        for entry in listing.entries.iter() {
            let until = granted.entries.filter(|_| entry.granted);
            let place = Place { dir, name: entry.name };
            self.learn_name(answered, place, Some(entry.inode), until);
            if let Some(attr) = entry.attr {
                self.learn_attributes(answered, attr, until);
            }
            let hash = self.name_hash(dir, entry.name.bytes());
            self.listed.raise(hash.place, listed_at);
            (count, cookie) = (count + 1, entry.cookie);
        }
        let is_same = |words: &[u64; DIRECTORY_WORDS]| words[0] == dir.0;
        self.directories.update(self.inode_hash(dir), is_same, |words| {
            let held = DirectoryEntry::of(&words?);
            if !self.lasts(answered.now, &held) {
                return None;
            }
            let begins = args.cookie == 0 && (is_held || held.since <= answered.sent);
            let so_far = if begins {
                Some(ListingSoFar { began_at: answered.sent, cookie: 0, count: 0 })
            } else {
                // Another listing may have begun at the start after this part of one was asked for.
                held.listing.filter(|listing| {
                    args.cookie == listing.cookie && listing.began_at <= answered.sent
                })
            };
            let so_far = ListingSoFar { cookie, count: so_far?.count + count, ..so_far? };
            let fits = so_far.count <= KNOWN_NAME_COUNT_MAX;
            let entry = match listing.end {
                true if fits => {
                    DirectoryEntry { known_at: Some(so_far.began_at), listing: None, ..held }
                }
                true => DirectoryEntry { listing: None, ..held },
                false => DirectoryEntry { listing: Some(so_far), ..held },
            };
            Some(entry.words())
        });
    }
}

/// The attributes that an answer shows. A new file is empty, whoever has its size from now on.
fn shown(result: &Result<Answer, Status>) -> Option<Attr> {
    match result {
        Ok(Answer::Created { attr, made: true, .. }) => {
            Some(Attr { flags: attr.flags & !wire::attr_flag::SIZE_AT_DATA, ..*attr })
        }
        Ok(Answer::Entry(attr) | Answer::Created { attr, .. } | Answer::Opened { attr, .. }) => {
            Some(*attr)
        }
        _ => None,
    }
}

/// Whether a call that failed so was certainly not executed. An interrupted one may be.
const fn has_changed_nothing(status: Status) -> bool {
    matches!(
        status,
        Status::NotFound
            | Status::Exists
            | Status::NotEmpty
            | Status::Access
            | Status::NotPermitted
            | Status::NotDirectory
            | Status::IsDirectory
            | Status::Invalid
            | Status::NeedGroups
            | Status::NeedClearPrivileges
    )
}
