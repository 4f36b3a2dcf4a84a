//! What the kernel of a client's host caches under leases: attributes, names, and contents that were
//! read. One cache for all lanes of a client.
//!
//! It answers calls for exactly as long as the client core permits, also while the client's process
//! is stopped. Calls of the client itself drop what they change when they begin, as a kernel does;
//! what they overlap with is not cached. Whether an entry is stale is for `cache_check`.

use crate::reply::ReplyBytes;
use crate::work::{CallRecord, CallSpec, CallState, NameNo, name_bytes};
use client::{Granted, RecalledKey};
use interface::Mono;
use std::collections::BTreeMap;
use wire::{Attr, InodeNo, Status};

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
}

/// The cache.
#[derive(Default, Debug)]
pub(crate) struct KernelCache {
    attributes: BTreeMap<InodeNo, Cached<Attr>>,
    names: BTreeMap<(InodeNo, NameNo), Cached<Option<InodeNo>>>,
    contents: BTreeMap<InodeNo, Cached<Vec<Page>>>,
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
        | CallSpec::Setxattr { inode, .. }
        | CallSpec::Removexattr { inode, .. } => vec![Attributes(inode)],
        CallSpec::Resize { inode, .. }
        | CallSpec::Write { inode, .. }
        | CallSpec::WriteList { inode, .. } => vec![Attributes(inode), Contents(inode)],
        CallSpec::Lookup { .. }
        | CallSpec::Getattr { .. }
        | CallSpec::Readdir { .. }
        | CallSpec::Readlink { .. }
        | CallSpec::Open { .. }
        | CallSpec::Close { .. }
        | CallSpec::Read { .. }
        | CallSpec::ReadList { .. }
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
    pub(crate) fn end(
        &mut self,
        call: &CallRecord,
        now_ns: u64,
        (granted, found): (&Granted, &ReplyBytes),
    ) {
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
        if let (Some(attr), Some(until)) = (attr, granted.attributes)
            && has_attributes(&self.own, attr.inode)
        {
            let cached = Cached { value: attr, since_ns: now_ns, until };
            self.attributes.insert(attr.inode, cached);
        }
        for (key, value, until) in named(call, granted) {
            if may(&self.own, CacheKey::Name(key.0, key.1)) {
                self.names.insert(key, Cached { value, since_ns: now_ns, until });
            }
        }
        if let (CallSpec::Open { inode, .. }, Some(until)) = (call.spec, granted.contents)
            && may(&self.own, CacheKey::Contents(inode))
        {
            self.contents.insert(inode, Cached { value: Vec::new(), since_ns: now_ns, until });
        }
        if let (CallSpec::Read { inode, .. }, Some(_)) = (call.spec, call.result())
            && may(&self.own, CacheKey::Contents(inode))
            && let Some(contents) = self.contents.get_mut(&inode)
            && contents.since_ns < began_ns
        {
            contents.value.push(Page { spec: call.spec, bytes: found.bytes.clone() });
        }
        for key in changed {
            self.own.entry(key).or_default().ended_ns = now_ns;
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
                let contents = self.contents.get(&inode).filter(|cached| now < cached.until)?;
                let page = contents.value.iter().rev().find(|page| page.spec == *spec)?;
                Some(Seen::Bytes(page.bytes.clone()))
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
        self.names.get(&key).filter(|cached| now < cached.until).cloned()
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
                RecalledKey::Attributes(inode) => self.drop_key(CacheKey::Attributes(*inode)),
                RecalledKey::Contents(inode) => self.drop_key(CacheKey::Contents(*inode)),
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
    }

    fn drop_key(&mut self, key: CacheKey) {
        match key {
            CacheKey::Attributes(inode) => drop(self.attributes.remove(&inode)),
            CacheKey::AllAttributes => self.attributes.clear(),
            CacheKey::Name(parent, name) => drop(self.names.remove(&(parent, name))),
            CacheKey::Contents(inode) => drop(self.contents.remove(&inode)),
        }
    }
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
        (CallSpec::Rename { from, to, .. }, Some(until)) if from != to && found.is_some() => {
            vec![(from, None, until)]
        }
        _ => Vec::new(),
    }
}
