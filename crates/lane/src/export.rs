//! Exports: the table of them, which every lane has, and what a connection is bound to.

use crate::config::Export;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::Mono;
use wire::{
    Bytes, EXPORT_DEFAULT, InodeNo, List, Op, Secret, Squash, SquashedIds, Wire, Writer,
    welcome_flag,
};

/// The export that a connection is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    /// The export's number in the table; 0 for none.
    pub(crate) export_no: u64,
    /// Requests are confined to this directory and what lies below it; `None`: not confined.
    pub(crate) top: Option<InodeNo>,
    pub(crate) squash: Squash,
    pub(crate) read_only: bool,
    /// It may define exports.
    pub(crate) administers: bool,
    /// The client runs on the server's host and has a credential for the whole store.
    pub(crate) own_host: bool,
}

impl Binding {
    pub(crate) const ADMINISTERS: Self = Self {
        export_no: 0,
        top: None,
        squash: Squash::NONE,
        read_only: false,
        administers: true,
        own_host: false,
    };

    pub(crate) fn root(&self) -> InodeNo {
        self.top.unwrap_or(InodeNo::ROOT)
    }

    pub(crate) const fn welcome_flags(&self) -> u32 {
        let trusted = if self.squash.trusts_root() { welcome_flag::ROOT_TRUSTED } else { 0 };
        let read_only = if self.read_only { welcome_flag::READ_ONLY } else { 0 };
        let all = matches!(self.squash.ids, SquashedIds::All);
        let replaced = if all { welcome_flag::IDS_REPLACED } else { 0 };
        trusted | read_only | replaced
    }

    /// Through a read-only export, a read does not update access times.
    pub(crate) fn touch_nothing(&self, op: Op, body: &mut [u8]) {
        if self.read_only
            && matches!(op, Op::Read | Op::ReadList)
            && let Some(accesses) = body.last_mut()
        {
            *accesses = 0;
        }
    }
}

/// The definition of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Defined {
    /// Its number in this lane's table; a redefinition retains it.
    pub(crate) no: u64,
    pub(crate) id: u64,
    pub(crate) name: Vec<u8>,
    /// The directory that is its root.
    pub(crate) root: InodeNo,
    path: Vec<u8>,
    pub(crate) read_only: bool,
    pub(crate) squash: Squash,
    pub(crate) closed: bool,
    /// It is recorded in the store.
    pub(crate) stored: bool,
    /// It is read-only since lately: what its clients had answered early is executed until then.
    behind_until: Mono,
}

impl Defined {
    pub(crate) fn of(no: u64, export: &wire::Export<'_>) -> Self {
        let wire::Export { id, name, root, path, read_only, squash, closed } = *export;
        let (name, path) = (name.0.to_vec(), path.0.to_vec());
        let (stored, behind_until) = (true, Mono(0));
        Self { no, id, name, root, path, read_only, squash, closed, stored, behind_until }
    }

    /// An export of the command line: the whole file system.
    fn whole(no: u64, name: &str, root_trusted: bool) -> Self {
        Self {
            no,
            id: 0,
            name: name.as_bytes().to_vec(),
            root: InodeNo::ROOT,
            path: b"/".to_vec(),
            read_only: false,
            squash: if root_trusted { Squash::NONE } else { Squash::ROOT },
            closed: false,
            stored: false,
            behind_until: Mono(0),
        }
    }

    pub(crate) fn export(&self) -> wire::Export<'_> {
        wire::Export {
            id: self.id,
            name: Bytes(&self.name),
            root: self.root,
            path: Bytes(&self.path),
            read_only: self.read_only,
            squash: self.squash,
            closed: self.closed,
        }
    }

    /// The export's own secret, for clients without the store's.
    pub(crate) fn secret(&self, store: &Secret) -> Secret {
        store.of_export(&self.name, self.id)
    }

    /// The binding of a connection to it. `own_host`: see [`Binding`].
    pub(crate) fn binding(&self, own_host: bool) -> Binding {
        // The default export without a definition. Such a client could define it itself anyway
        // (docs/decisions/first-path.md).
        let undefined = !self.stored && self.name == EXPORT_DEFAULT.as_bytes();
        Binding {
            export_no: self.no,
            // A stored definition confines even if its root is that of the file system.
            top: self.stored.then_some(self.root),
            squash: if own_host && undefined { Squash::NONE } else { self.squash },
            read_only: self.read_only,
            administers: false,
            own_host,
        }
    }
}

/// Most bytes of all definitions together: they are sent in one frame.
pub const EXPORTS_BYTES_MAX: usize = 256 * 1024;

/// All definitions: the same at every lane, except for their numbers.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Defined>,
    no_last: u64,
    /// What the server that records the definitions has said since its connection began.
    restated: Option<BTreeSet<Vec<u8>>>,
    /// That server has said them all, in this start.
    known: bool,
}

impl Table {
    pub(crate) fn new(started_with: &[Export], stored: &[Vec<u8>]) -> Self {
        let restated = Some(BTreeSet::new());
        let mut table = Self { rows: Vec::new(), no_last: 0, restated, known: false };
        if let Some(first) = started_with.first() {
            table.add(|no| Defined::whole(no, EXPORT_DEFAULT, first.root_trusted));
        }
        for export in started_with.iter().filter(|export| !export.name.is_empty()) {
            table.add(|no| Defined::whole(no, &export.name, export.root_trusted));
        }
        for export in stored {
            if let Ok(export) = wire::Export::decode_all(export) {
                table.put(&export, Mono(0));
            }
        }
        table
    }

    fn add(&mut self, of: impl FnOnce(u64) -> Defined) {
        self.no_last += 1;
        let defined = of(self.no_last);
        match self.rows.iter_mut().find(|row| row.name == defined.name) {
            Some(row) => *row = Defined { no: row.no, ..defined },
            None => self.rows.push(defined),
        }
        self.rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }

    /// Adds or replaces a definition. If that makes an export read-only, what its clients have
    /// answered early is executed until `behind_until`.
    pub(crate) fn put(&mut self, export: &wire::Export<'_>, behind_until: Mono) {
        let before = self.rows.iter().find(|row| row.name == export.name.0);
        let behind_until = match before {
            Some(before) if before.read_only => before.behind_until,
            Some(_) if export.read_only => behind_until,
            Some(_) | None => Mono(0),
        };
        self.add(|no| Defined { behind_until, ..Defined::of(no, export) });
    }

    /// Whether a read-only export executes what was answered early and has arrived then.
    pub(crate) fn executes_behind(&self, no: u64, arrived: Mono) -> bool {
        self.numbered(no).is_some_and(|row| arrived < row.behind_until)
    }

    /// Changes have waited since then: so do these.
    pub(crate) fn prolong_behind(&mut self, since: Mono, until: Mono) {
        for row in self.rows.iter_mut().filter(|row| row.behind_until > since) {
            row.behind_until = row.behind_until.max(until);
        }
    }

    /// Removes a definition.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.rows.retain(|row| row.name != name);
    }

    /// The open export of this name; of an empty name, the default.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Defined> {
        let name = if name.is_empty() { EXPORT_DEFAULT.as_bytes() } else { name };
        self.rows.iter().find(|row| row.name == name && !row.closed)
    }

    pub(crate) fn numbered(&self, no: u64) -> Option<&Defined> {
        self.rows.iter().find(|row| row.no == no && !row.closed)
    }

    /// Whether any export is recorded in the store, so that connections may be confined.
    pub(crate) fn has_stored(&self) -> bool {
        self.rows.iter().any(|row| row.stored)
    }

    /// The recorded definitions, each as it is encoded.
    pub(crate) fn stored_rows(&self) -> Vec<Vec<u8>> {
        let stored = self.rows.iter().filter(|row| row.stored);
        stored.map(|row| row.export().to_bytes()).collect()
    }

    /// The server that records the definitions will say them all again.
    pub(crate) fn restates(&mut self) {
        self.restated = Some(BTreeSet::new());
    }

    /// That server says this one. Returns whether it is known.
    pub(crate) fn restated(&mut self, export: &wire::Export<'_>) -> bool {
        self.restated.iter_mut().for_each(|names| {
            names.insert(export.name.0.to_vec());
        });
        self.rows.iter().any(|row| row.stored && row.export() == *export)
    }

    /// That server has said them all: the names of those that it has not.
    pub(crate) fn not_restated(&mut self) -> Vec<Vec<u8>> {
        self.known = true;
        let Some(restated) = self.restated.take() else { return Vec::new() };
        let rows = self.rows.iter().filter(|row| row.stored && !restated.contains(&row.name));
        rows.map(|row| row.name.clone()).collect()
    }

    /// Whether it has said them all since this start.
    pub(crate) const fn are_known(&self) -> bool {
        self.known
    }

    /// Encodes all open exports as a message.
    pub(crate) fn encode(&self, reply: &mut Vec<u8>) {
        let mut rows = Vec::new();
        let mut count = 0;
        for row in self.rows.iter().filter(|row| !row.closed) {
            let row = wire::ExportRow { export: row.export(), stored: row.stored };
            Writer::new(&mut rows).write(&row);
            count += 1;
        }
        Writer::new(reply).write(&wire::Exports { rows: List::new(count, &rows) });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::string::String;

    #[test]
    fn root_of_the_servers_host_is_root_on_an_undefined_default_export() {
        let started_with =
            ["", "named"].map(|name| Export { name: String::from(name), root_trusted: false });
        let mut table = Table::new(&started_with, &[]);
        let squash = |table: &Table, name: &[u8], own_host| {
            table.find(name).unwrap().binding(own_host).squash
        };
        assert_eq!(squash(&table, b"", true), Squash::NONE);
        assert_eq!(squash(&table, b"", false), Squash::ROOT);
        assert_eq!(squash(&table, b"named", true), Squash::ROOT);
        let mut defined = table.find(b"").unwrap().clone();
        defined.id = 1;
        table.put(&defined.export(), Mono(0));
        assert_eq!(squash(&table, b"", true), Squash::ROOT);
    }
}
