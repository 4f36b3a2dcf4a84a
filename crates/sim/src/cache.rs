//! What the kernel of a client's host caches under leases: attributes, names, and contents that were
//! read. One cache for all lanes of a client.
//!
//! It answers calls for exactly as long as the client core permits, also while the client's process
//! is stopped. Calls of the client itself drop what they change when they begin, as a kernel does;
//! what they overlap with is not cached. Whether an entry is stale is for `cache_check`.

use crate::reply::ReplyBytes;
use crate::work::{CallRecord, CallSpec, CallState, NameNo, name_bytes};
use client::{Granted, GrantedAttributes, RecalledKey};
use interface::Mono;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Attr, InodeNo, LeaseNo, Status};

/// What a cached entry is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CacheKey {
    Attributes(InodeNo),
    /// The attributes of all inodes: a call changes those of one that its caller does not know.
    AllAttributes,
    Name(InodeNo, NameNo),
    Contents(InodeNo),
}

/// A cached entry.
#[derive(Clone, Debug)]
pub(crate) struct Cached<T> {
    pub(crate) value: T,
    /// When its call was answered.
    pub(crate) since_ns: u64,
    /// By the client's clock.
    until: Mono,
    /// What comes under a lower number is older.
    lease_no: LeaseNo,
}

/// What an answer says that may be cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer<'a> {
    pub(crate) granted: &'a Granted,
    pub(crate) further: &'a [GrantedAttributes],
    pub(crate) found: &'a ReplyBytes,
    pub(crate) now: Mono,
}

/// All names of a directory. They are known since it had none, as long as the lease of its
/// attributes is held without interruption.
#[derive(Clone, Debug)]
struct AllNames {
    names: BTreeSet<NameNo>,
    since_ns: u64,
    until: Mono,
}

impl<T> Cached<T> {
    /// What is known now, for a check.
    pub(crate) const fn now(value: T, since_ns: u64) -> Self {
        Self { value, since_ns, until: Mono(0), lease_no: LeaseNo(0) }
    }
}

/// A range of a file that was read.
#[derive(Clone, Debug)]
struct Page {
    spec: CallSpec,
    bytes: Vec<u8>,
}

/// The client's own changes of a key.
#[derive(Clone, Copy, Default, Debug)]
struct Own {
    in_flight_count: u32,
    ended_ns: u64,
}

/// What a process sees from the cache.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Attributes(Attr),
    Name(Cached<Option<InodeNo>>),
    /// That an inode has no extended attributes.
    NoXattrs,
    Bytes(Vec<u8>),
    /// Bytes of a mapping, whatever the size of the file is.
    Mapped(Vec<u8>),
}

/// The cache.
#[derive(Default, Debug)]
pub(crate) struct KernelCache {
    attributes: BTreeMap<InodeNo, Cached<Attr>>,
    names: BTreeMap<(InodeNo, NameNo), Cached<Option<InodeNo>>>,
    contents: BTreeMap<InodeNo, Cached<Vec<Page>>>,
    /// Pages under leases of their own, each until its end.
    pages: BTreeMap<InodeNo, Vec<(Page, Mono)>>,
    all_names: BTreeMap<InodeNo, AllNames>,
    own: BTreeMap<CacheKey, Own>,
}

/// The keys that a call changes when it succeeds.
pub(crate) fn changed_by(spec: &CallSpec) -> Vec<CacheKey> {
    use CacheKey::{AllAttributes, Attributes, Contents, Name};
    match *spec {
        CallSpec::Create { parent, name, .. }
        | CallSpec::Mkdir { parent, name, .. }
        | CallSpec::Symlink { parent, name } => vec![Name(parent, name), Attributes(parent)],
        CallSpec::Link { inode, parent, name } => {
            vec![Name(parent, name), Attributes(parent), Attributes(inode)]
        }
        CallSpec::Unlink { parent, name } | CallSpec::Rmdir { parent, name } => {
            vec![Name(parent, name), AllAttributes]
        }
        CallSpec::Rename { from, to, .. } => {
            vec![Name(from.0, from.1), Name(to.0, to.1), AllAttributes]
        }
        CallSpec::Setattr { inode, .. }
        | CallSpec::ClearBits { inode }
        | CallSpec::Setxattr { inode, .. }
        | CallSpec::Removexattr { inode, .. } => vec![Attributes(inode)],
        CallSpec::Resize { inode, .. }
        | CallSpec::Write { inode, .. }
        | CallSpec::Allocate { inode, .. }
        | CallSpec::WriteList { inode, .. } => vec![Attributes(inode), Contents(inode)],
        CallSpec::Lookup { .. }
        | CallSpec::Getattr { .. }
        | CallSpec::Readdir { .. }
        | CallSpec::Readlink { .. }
        | CallSpec::Open { .. }
        | CallSpec::Close { .. }
        | CallSpec::Read { .. }
        | CallSpec::ReadList { .. }
        | CallSpec::Seek { .. }
        | CallSpec::Sync { .. }
        | CallSpec::Getxattr { .. }
        | CallSpec::Listxattr { .. } => Vec::new(),
    }
}

impl KernelCache {
    /// A call of this client begins.
    pub(crate) fn begin(&mut self, spec: &CallSpec) {
        for key in changed_by(spec) {
            self.own.entry(key).or_default().in_flight_count += 1;
            self.drop_key(key);
        }
    }

    /// A call of this client is answered: caches what is granted.
    pub(crate) fn end(&mut self, call: &CallRecord, now_ns: u64, offer: Offer<'_>) {
        let Offer { granted, further, found, now } = offer;
        let changed = changed_by(&call.spec);
        for key in &changed {
            self.own.entry(*key).or_default().in_flight_count -= 1;
        }
        // What the reply says is older than another change of this client that overlaps with it.
        let began_ns = call.began_ns;
        let may = |own: &BTreeMap<CacheKey, Own>, key: CacheKey| {
            own.get(&key).is_none_or(|own| own.in_flight_count == 0 && own.ended_ns < began_ns)
        };
        let has_attributes = |own: &BTreeMap<CacheKey, Own>, inode: InodeNo| {
            may(own, CacheKey::Attributes(inode)) && may(own, CacheKey::AllAttributes)
        };
        let attr = call.result().and_then(|result| result.attr);
        self.change_all_names(call);
        let shown = attr.zip(granted.attributes).map(|(attr, until)| {
            let lease_no = granted.attributes_no;
            GrantedAttributes { attr, until, lease_no }
        });
        for granted in shown.into_iter().chain(further.iter().copied()) {
            let GrantedAttributes { attr, until, lease_no } = granted;
            // No change of its names overlaps with the call that says that there are none.
            let is_alone =
                self.own.range(names_in(attr.inode)).all(|(key, _)| may(&self.own, *key));
            self.hold_all_names((&attr, is_alone), (now_ns, now), until);
            let known = self.attributes.get(&attr.inode).filter(|known| now < known.until);
            let is_newer = known.is_none_or(|known| known.lease_no < lease_no);
            if is_newer && has_attributes(&self.own, attr.inode) {
                let cached = Cached { value: attr, since_ns: now_ns, until, lease_no };
                self.attributes.insert(attr.inode, cached);
            }
        }
        for (key, value, until) in named(call, granted) {
            if may(&self.own, CacheKey::Name(key.0, key.1)) {
                let lease_no = LeaseNo(0);
                self.names.insert(key, Cached { value, since_ns: now_ns, until, lease_no });
            }
        }
        if let (CallSpec::Open { inode, .. }, Some(until)) = (call.spec, granted.contents)
            && may(&self.own, CacheKey::Contents(inode))
        {
            let (value, lease_no) = (Vec::new(), LeaseNo(0));
            self.contents.insert(inode, Cached { value, since_ns: now_ns, until, lease_no });
        }
        if let (CallSpec::Read { inode, .. }, Some(_)) = (call.spec, call.result())
            && may(&self.own, CacheKey::Contents(inode))
            && let Some(contents) = self.contents.get_mut(&inode)
            && contents.since_ns < began_ns
        {
            contents.value.push(Page { spec: call.spec, bytes: found.bytes.clone() });
        }
        if let (CallSpec::Read { inode, .. }, Some(_), Some(until)) =
            (call.spec, call.result(), granted.contents)
            && may(&self.own, CacheKey::Contents(inode))
        {
            let page = Page { spec: call.spec, bytes: found.bytes.clone() };
            self.pages.entry(inode).or_default().push((page, until));
        }
        for key in changed {
            self.own.entry(key).or_default().ended_ns = now_ns;
        }
    }

    /// An answer has granted a directory's attributes: all of its names are known, if it has none,
    /// and known for longer, if they were.
    fn hold_all_names(
        &mut self,
        (attr, is_alone): (&Attr, bool),
        (now_ns, now): (u64, Mono),
        until: Mono,
    ) {
        if let Some(all) = self.all_names.get_mut(&attr.inode).filter(|all| now < all.until) {
            all.until = all.until.max(until);
        } else if attr.is_empty_directory() && is_alone {
            let all = AllNames { names: BTreeSet::new(), since_ns: now_ns, until };
            self.all_names.insert(attr.inode, all);
        }
    }

    /// A call of this client has changed names, or may have.
    fn change_all_names(&mut self, call: &CallRecord) {
        let names = changed_by(&call.spec).into_iter().filter_map(|key| match key {
            CacheKey::Name(parent, name) => Some((parent, name)),
            _ => None,
        });
        let names: Vec<_> = names.collect();
        if call.result().is_none() {
            for (parent, _) in names.into_iter().filter(|_| call.may_have_happened()) {
                self.all_names.remove(&parent);
            }
            return;
        }
        let mut set = |(parent, name): (InodeNo, NameNo), exists: bool| {
            let Some(all) = self.all_names.get_mut(&parent) else { return };
            if exists {
                all.names.insert(name);
            } else {
                all.names.remove(&name);
            }
        };
        match call.spec {
            CallSpec::Unlink { parent, name } | CallSpec::Rmdir { parent, name } => {
                set((parent, name), false);
            }
            // With two names of one inode it leaves both.
            CallSpec::Rename { to, .. } => set(to, true),
            _ => names.into_iter().for_each(|key| set(key, true)),
        }
    }

    /// What answers a call without the server.
    pub(crate) fn answer(&self, spec: &CallSpec, now: Mono) -> Option<Seen> {
        match *spec {
            CallSpec::Getattr { inode } => self.attributes_of(inode, now).map(Seen::Attributes),
            CallSpec::Getxattr { inode, .. } | CallSpec::Listxattr { inode } => {
                let attr = self.attributes_of(inode, now)?;
                attr.has_no_xattrs().then_some(Seen::NoXattrs)
            }
            CallSpec::Lookup { parent, name } => self.name((parent, name), now).map(Seen::Name),
            CallSpec::Read { inode, .. } => {
                let contents = self.contents.get(&inode).filter(|cached| now < cached.until);
                let mut opened = contents.iter().flat_map(|contents| contents.value.iter().rev());
                let opened = opened.find(|page| page.spec == *spec);
                let opened = opened.map(|page| Seen::Bytes(page.bytes.clone()));
                let mut mapped = self.pages_of(inode, now).filter(|page| page.spec == *spec);
                opened.or_else(|| Some(Seen::Mapped(mapped.next()?.bytes.clone())))
            }
            _ => None,
        }
    }

    /// A name, as long as it may be used.
    pub(crate) fn name(
        &self,
        key: (InodeNo, NameNo),
        now: Mono,
    ) -> Option<Cached<Option<InodeNo>>> {
        let known = self.names.get(&key).filter(|cached| now < cached.until).cloned();
        known.or_else(|| self.absent_name(key, now))
    }

    /// A name that does not exist, because all names of its directory are known.
    fn absent_name(&self, key: (InodeNo, NameNo), now: Mono) -> Option<Cached<Option<InodeNo>>> {
        let all = self.all_names.get(&key.0).filter(|all| now < all.until)?;
        let own = self.own.get(&CacheKey::Name(key.0, key.1));
        let is_changing = own.is_some_and(|own| own.in_flight_count > 0);
        let AllNames { since_ns, until, .. } = *all;
        let absent = Cached { value: None, since_ns, until, lease_no: LeaseNo(0) };
        (!is_changing && !all.names.contains(&key.1)).then_some(absent)
    }

    /// The newest pages first.
    fn pages_of(&self, inode: InodeNo, now: Mono) -> impl Iterator<Item = &Page> {
        let pages = self.pages.get(&inode).into_iter().flatten().rev();
        pages.filter(move |(_, until)| now < *until).map(|(page, _)| page)
    }

    /// The pages of a file that a mapping shows: what was read, and its bytes.
    pub(crate) fn mapped(&self, inode: InodeNo, now: Mono) -> Vec<(CallSpec, Seen)> {
        let pages = self.pages_of(inode, now);
        pages.map(|page| (page.spec, Seen::Mapped(page.bytes.clone()))).collect()
    }

    fn attributes_of(&self, inode: InodeNo, now: Mono) -> Option<Attr> {
        self.attributes.get(&inode).filter(|cached| now < cached.until).map(|cached| cached.value)
    }

    /// All attributes that may be used.
    pub(crate) fn all_attributes(&self, now: Mono) -> Vec<Attr> {
        let valid = self.attributes.values().filter(|cached| now < cached.until);
        valid.map(|cached| cached.value).collect()
    }

    /// The client core recalls these.
    pub(crate) fn recall(&mut self, keys: &[RecalledKey]) {
        for key in keys {
            match key {
                RecalledKey::Attributes(inode) => {
                    self.drop_key(CacheKey::Attributes(*inode));
                    self.all_names.remove(inode);
                }
                RecalledKey::Contents(inode) => drop(self.contents.remove(inode)),
                RecalledKey::Pages(inode) => drop(self.pages.remove(inode)),
                RecalledKey::Writing(_) => {}
                RecalledKey::Name(dir, bytes) => {
                    self.names.retain(|(parent, name), _| {
                        (*parent, name_bytes(*name)) != (*dir, &bytes[..])
                    });
                }
                RecalledKey::All => self.clear(),
            }
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.attributes.clear();
        self.names.clear();
        self.contents.clear();
        self.pages.clear();
        self.all_names.clear();
    }

    fn drop_key(&mut self, key: CacheKey) {
        match key {
            CacheKey::Attributes(inode) => drop(self.attributes.remove(&inode)),
            CacheKey::AllAttributes => self.attributes.clear(),
            CacheKey::Name(parent, name) => drop(self.names.remove(&(parent, name))),
            CacheKey::Contents(inode) => {
                self.contents.remove(&inode);
                self.pages.remove(&inode);
            }
        }
    }
}

/// The keys of all names in a directory.
const fn names_in(dir: InodeNo) -> core::ops::RangeInclusive<CacheKey> {
    CacheKey::Name(dir, NameNo::MIN)..=CacheKey::Name(dir, NameNo::MAX)
}

/// The names of which a call's answer says what they name.
fn named(call: &CallRecord, granted: &Granted) -> Vec<((InodeNo, NameNo), Option<InodeNo>, Mono)> {
    let found = call.result().map(|result| result.inode);
    let absent = call.ended == CallState::Failed(Status::NotFound);
    match (call.spec, granted.name) {
        (CallSpec::Lookup { parent, name }, Some(until)) if absent => {
            vec![((parent, name), None, until)]
        }
        (
            CallSpec::Lookup { parent, name }
            | CallSpec::Create { parent, name, .. }
            | CallSpec::Mkdir { parent, name, .. }
            | CallSpec::Symlink { parent, name }
            | CallSpec::Link { parent, name, .. },
            Some(until),
        ) => {
            found.flatten().map(|inode| ((parent, name), Some(inode), until)).into_iter().collect()
        }
        (CallSpec::Unlink { parent, name } | CallSpec::Rmdir { parent, name }, Some(until))
            if found.is_some() =>
        {
            vec![((parent, name), None, until)]
        }
        (CallSpec::Rename { from, to, .. }, Some(until)) if from != to && found.is_some() => {
            vec![(from, None, until)]
        }
        _ => Vec::new(),
    }
}
