//! What processes see from the caches of their kernels, and whether they may.
//!
//! Every entry that may still be used must be the newest state that anybody was shown. It is looked at
//! when a process reads it (L2), and when another client's change is answered: that change was
//! executed while the entry was under a lease (L1). Changes that only a dead client could replay do
//! not count; attributes are compared by their versions, which a crash forgets.

use crate::bytes::Found;
use crate::cache::{CacheKey, Cached, Seen, changed_by};
use crate::due::Place;
use crate::early_names::NameLook;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, NameNo, Tag};
use std::collections::BTreeMap;
use wire::{Attr, FileKind, InodeNo};

/// What the clients were shown.
#[derive(Default, Debug)]
pub(crate) struct Shown {
    /// The attributes of the highest version of each inode since the last crash.
    attributes: BTreeMap<InodeNo, Attr>,
    /// The calls that may change a name.
    of_names: BTreeMap<(InodeNo, NameNo), Vec<Tag>>,
    /// The calls that may change extended attributes of an inode.
    of_xattrs: BTreeMap<InodeNo, Vec<Tag>>,
    /// With several names of a file, a rename may do nothing.
    has_links: bool,
}

impl Shown {
    /// A call begins.
    pub(crate) fn begin(&mut self, tag: Tag, spec: &CallSpec) {
        self.has_links |= matches!(spec, CallSpec::Link { .. });
        for key in changed_by(spec) {
            if let CacheKey::Name(parent, name) = key {
                self.of_names.entry((parent, name)).or_default().push(tag);
            }
        }
        if let CallSpec::Setxattr { inode, .. } | CallSpec::Removexattr { inode, .. } = *spec {
            self.of_xattrs.entry(inode).or_default().push(tag);
        }
    }

    /// The server crashes: what it has shown may be lost with dead clients.
    pub(crate) fn forget_attributes(&mut self) {
        self.attributes.clear();
    }
}

impl Simulation {
    /// A call that the cache answers, if it does: its caller sees this at once.
    pub(crate) fn is_answered_by_cache(&mut self, client: usize, spec: &CallSpec) -> bool {
        if !self.plan.leases {
            return false;
        }
        let now = self.now_at(Place::Client(client, 0)).mono;
        let Some(seen) = self.mounts[client].cache.answer(spec, now) else { return false };
        self.log_line(|| format!("client {client}: {spec:?} from its cache: {seen:?}"));
        self.check_seen(client, spec, seen);
        true
    }

    /// Checks what a process sees from a cache.
    pub(crate) fn check_seen(&mut self, client: usize, spec: &CallSpec, seen: Seen) {
        match (seen, *spec) {
            (Seen::Attributes(attr), _) => {
                self.check_attributes("L2", client, &attr);
                let has_size = attr.kind == FileKind::File && !attr.is_size_at_data();
                if has_size && !self.may_be_in_removal(&attr) {
                    let found = Found { from: attr.size_bytes, bytes: &[], at_end: true };
                    self.check_cached_bytes((client, attr.inode), &found);
                }
            }
            (Seen::Name(cached), CallSpec::Lookup { parent, name }) => {
                self.check_name("L2", Some(client), (parent, name), &cached);
            }
            (Seen::Bytes(bytes), CallSpec::Read { inode, file_offset, read_bytes }) => {
                let at_end = bytes.len() < crate::number::narrow(u64::from(read_bytes));
                let at_end = at_end && (!bytes.is_empty() || file_offset == 0);
                let found = Found { from: file_offset, bytes: &bytes, at_end };
                self.check_cached_bytes((client, inode), &found);
            }
            (Seen::Mapped(bytes), CallSpec::Read { inode, file_offset, read_bytes }) => {
                let is_short = bytes.len() < crate::number::narrow(u64::from(read_bytes));
                let is_end = is_short && (!bytes.is_empty() || file_offset == 0);
                // Where a file over several servers ends, other parts than that of the page decide.
                let at_end = is_end && !self.plan.spreads;
                let found = Found { from: file_offset, bytes: &bytes, at_end };
                self.check_cached_bytes((client, inode), &found);
            }
            (Seen::NoXattrs, CallSpec::Getxattr { inode, name }) => {
                self.check_no_xattrs("L2", client, (inode, Some(name)));
            }
            (Seen::NoXattrs, CallSpec::Listxattr { inode }) => {
                self.check_no_xattrs("L2", client, (inode, None));
            }
            (Seen::Name(_) | Seen::NoXattrs | Seen::Bytes(_) | Seen::Mapped(_), _) => {}
        }
    }

    /// Checks what a mount knows of a name now; it knows of all changes, or of all but those of this
    /// client.
    pub(crate) fn check_known_name(
        &mut self,
        rule: &str,
        other_than: Option<usize>,
        (key, value): ((InodeNo, NameNo), Option<InodeNo>),
    ) {
        let cached = Cached::now(value, self.now_ns);
        self.check_name(rule, other_than, key, &cached);
    }

    /// A file without a name that nobody has open: the server removes its contents before its inode,
    /// and in between shows that it has none.
    pub(crate) fn may_be_in_removal(&self, attr: &Attr) -> bool {
        let mut handles = self.mounts.iter().flat_map(|mount| &mount.handles);
        attr.nlink == 0 && !handles.any(|(_, opened, _)| *opened == attr.inode)
    }

    fn check_cached_bytes(&mut self, (client, inode): (usize, InodeNo), found: &Found<'_>) {
        let changes = self.changes_of(inode, self.now_ns);
        self.explain_read((client, inode), &changes, std::slice::from_ref(found));
    }

    /// A call is answered: no other client may go on using what it has changed.
    pub(crate) fn check_caches(&mut self, call: &CallRecord) {
        self.see_modes(call);
        self.see_names(call);
        if let Some(attr) = call.result().and_then(|result| result.attr)
            && has_version(&call.spec, attr.inode)
            && self.was_answered_since_the_last_crash(call, attr.inode)
        {
            let known = self.shown.attributes.entry(attr.inode).or_insert(attr);
            if known.version < attr.version {
                *known = attr;
            }
        }
        let is_change = call.result().is_some() && !changed_by(&call.spec).is_empty();
        if !self.plan.leases || !is_change {
            return;
        }
        for client in 0..self.mounts.len() {
            let mount = &self.mounts[client];
            if client == call.client || !mount.alive {
                continue;
            }
            let now = self.now_at(Place::Client(client, 0)).mono;
            let contents = changed_by(&call.spec).into_iter().filter_map(|key| match key {
                CacheKey::Contents(inode) => Some(inode),
                _ => None,
            });
            for inode in contents.collect::<Vec<_>>() {
                for (spec, seen) in self.mounts[client].cache.mapped(inode, now) {
                    self.check_seen(client, &spec, seen);
                }
            }
            let mount = &self.mounts[client];
            let names = changed_by(&call.spec).into_iter().filter_map(|key| match key {
                CacheKey::Name(parent, name) => Some((parent, name)),
                _ => None,
            });
            let keys: Vec<_> = names.collect();
            let names: Vec<_> =
                keys.iter().filter_map(|key| Some((*key, mount.cache.name(*key, now)?))).collect();
            let known: Vec<_> =
                keys.iter().filter_map(|key| Some((*key, mount.known_name(now, *key)?))).collect();
            let mut attributes = mount.cache.all_attributes(now);
            attributes.extend(mount.known.all_attributes(now));
            for attr in attributes {
                self.check_attributes("L1", client, &attr);
                if attr.has_no_xattrs() {
                    self.check_no_xattrs("L1", client, (attr.inode, None));
                }
            }
            for (key, cached) in names {
                self.check_name("L1", Some(client), key, &cached);
            }
            for (key, value) in known {
                self.check_known_name("L1", Some(client), (key, value));
            }
        }
    }

    /// Whether the process that serves the inode now has answered the call. What an earlier one sent
    /// may arrive after its crash, and is lost with its client.
    fn was_answered_since_the_last_crash(&self, call: &CallRecord, inode: InodeNo) -> bool {
        let server = self.server_of(inode.shard());
        call.began_lives[server] == self.lives()[server]
    }

    fn check_attributes(&mut self, rule: &str, client: usize, attr: &Attr) {
        let Some(shown) = self.shown.attributes.get(&attr.inode).copied() else { return };
        // An open for writing of the same client is a new version with the same attributes.
        let seen = |attr: &Attr| (attr.mode, attr.nlink, attr.uid, attr.gid);
        if attr.version < shown.version && seen(attr) != seen(&shown) {
            let Attr { inode, version, .. } = attr;
            self.violates(format!(
                "{rule}: client {client} has attributes of inode {inode} of version {version:?}, \
                 and {:?} was shown",
                shown.version
            ));
        }
    }

    /// That an inode has no extended attributes, or not this one, is stale if an answered call has
    /// set one, and no call can have removed it since.
    fn check_no_xattrs(
        &mut self,
        rule: &str,
        client: usize,
        (inode, name): (InodeNo, Option<NameNo>),
    ) {
        let tags = self.shown.of_xattrs.get(&inode).map_or(&[][..], Vec::as_slice);
        let calls = || tags.iter().filter_map(|tag| Some((*tag, self.call_of(*tag)?)));
        let is_set = |set: &CallRecord, number: NameNo| {
            let is_over = set.ended_ns.is_some_and(|ended_ns| ended_ns <= self.now_ns);
            let removes = |call: &CallRecord| {
                matches!(call.spec, CallSpec::Removexattr { name, .. } if name % 2 == number % 2)
                    && call.may_have_happened()
                    && call.ended_ns.is_none_or(|ended_ns| ended_ns > set.began_ns)
            };
            is_over && self.is_certain(set) && !calls().any(|(_, call)| removes(call))
        };
        let found = calls().find(|(_, call)| match call.spec {
            CallSpec::Setxattr { name: number, .. } => {
                name.is_none_or(|name| name % 2 == number % 2) && is_set(call, number)
            }
            _ => false,
        });
        let Some((tag, _)) = found else { return };
        self.violates(format!(
            "{rule}: client {client} knows that inode {inode} has no extended attribute {name:?}, \
             and call {tag} has set it"
        ));
    }

    /// A name is stale if an answered change has given it another meaning and no call can have given
    /// it this one again before the call that the entry is from was answered.
    fn check_name(
        &mut self,
        rule: &str,
        other_than: Option<usize>,
        key: (InodeNo, NameNo),
        cached: &Cached<Option<InodeNo>>,
    ) {
        let calls = |tag: &Tag| self.call_of(*tag).map(|call| (*tag, call));
        let tags = self.shown.of_names.get(&key).map_or(&[][..], Vec::as_slice);
        let renames = !self.shown.has_links;
        let is_other = |tag: Tag, call: &CallRecord| {
            let is_over = call.ended_ns.is_some_and(|ended_ns| ended_ns <= self.now_ns);
            !self.has_early_failed(tag)
                && other_than != Some(call.client)
                && is_over
                && self.is_certain(call)
                && contradicts(call, key, cached.value, renames)
        };
        let is_same = |change: &CallRecord| {
            tags.iter().filter_map(calls).any(|(_, call)| {
                // With such a change a lying disk has lost who holds leases: nobody is recalled.
                let may_be_lost = self.lying_disk.may_have_lost(call.client, call.began_ns);
                call.may_have_happened()
                    && call.began_ns < cached.since_ns
                    && (call.ended_ns.is_none_or(|ended_ns| ended_ns > change.began_ns)
                        || may_be_lost)
                    && may_mean(call, key, cached.value)
            })
        };
        let found = tags.iter().filter_map(calls);
        let mut found = found.filter(|(tag, call)| is_other(*tag, call) && !is_same(call));
        let Some((tag, _)) = found.next() else { return };
        self.violates(format!(
            "{rule}: a client has name {key:?} as {:?} since {} us, and call {tag} changed it",
            cached.value,
            cached.since_ns / 1000
        ));
    }
}

impl Simulation {
    /// Whether a lookup has found another meaning of a name than a change gave it that was answered
    /// before, and no other call can have given it that one.
    pub(crate) fn is_name_stale(&self, look: NameLook, change: Tag) -> bool {
        let NameLook { key, value, ended_ns, .. } = look;
        let tags = self.shown.of_names.get(&key).map_or(&[][..], Vec::as_slice);
        let Some(changed) = self.call_of(change) else { return false };
        let explains = |tag: &Tag| {
            self.call_of(*tag).is_some_and(|call| {
                *tag != change
                    && call.may_have_happened()
                    && call.began_ns < ended_ns
                    && call.ended_ns.is_none_or(|ended_ns| ended_ns > changed.began_ns)
                    && may_mean(call, key, value)
            })
        };
        tags.contains(&change)
            && contradicts(changed, key, value, !self.shown.has_links)
            && !tags.iter().any(explains)
    }
}

/// Whether the reply to a call has the version of the inode: over several shards it is the number of
/// the coordinator's change.
fn has_version(spec: &CallSpec, inode: InodeNo) -> bool {
    match *spec {
        CallSpec::Create { parent, .. }
        | CallSpec::Mkdir { parent, .. }
        | CallSpec::Symlink { parent, .. }
        | CallSpec::Link { parent, .. } => parent.shard() == inode.shard(),
        _ => true,
    }
}

/// Whether a call that succeeded gave a name another meaning than this.
fn contradicts(
    call: &CallRecord,
    key: (InodeNo, NameNo),
    value: Option<InodeNo>,
    renames: bool,
) -> bool {
    let Some(result) = call.result() else { return false };
    match call.spec {
        CallSpec::Create { .. } => result.made && result.inode != value,
        CallSpec::Mkdir { .. } | CallSpec::Symlink { .. } | CallSpec::Link { .. } => {
            result.inode != value
        }
        CallSpec::Unlink { .. } | CallSpec::Rmdir { .. } => value.is_some(),
        CallSpec::Rename { from, to, .. } if renames && from != to => {
            if key == from {
                value.is_some()
            } else {
                value.is_none()
            }
        }
        _ => false,
    }
}

/// Whether a call may have given a name this meaning.
fn may_mean(call: &CallRecord, key: (InodeNo, NameNo), value: Option<InodeNo>) -> bool {
    match (call.spec, value) {
        (CallSpec::Unlink { .. } | CallSpec::Rmdir { .. }, None) => true,
        (CallSpec::Rename { from, .. }, None) => from == key,
        (CallSpec::Rename { to, .. }, Some(_)) => to == key,
        (CallSpec::Link { inode, .. }, Some(value)) => inode == value,
        (
            CallSpec::Create { .. } | CallSpec::Mkdir { .. } | CallSpec::Symlink { .. },
            Some(value),
        ) => call.result().is_none_or(|result| result.inode == Some(value)),
        _ => false,
    }
}
