//! Searches of a directory match the naive file system, in pieces of any size.

use super::Node;
use crate::tests::{Harness, root};
use alloc::collections::BTreeMap;
use alloc::string::String;
use test_runtime::Prng;
use wire::{
    FileKind, Find, Found, InodeNo, Kinds, Op, Pattern, Predicate, Timestamp, Verdict, attr_flag,
};

/// A pattern, and an independent implementation of its meaning.
type Meant = (&'static str, fn(&str) -> bool);

const PATTERNS: [Meant; 5] = [
    ("*", |_| true),
    ("n1*", |name| name.starts_with("n1")),
    ("?[0-4]", |name| name.len() == 2 && name.as_bytes()[1] < b'5'),
    ("*[!1]", |name| !name.ends_with('1')),
    ("n", |name| name == "n"),
];

/// A search.
struct Search {
    pattern: Option<Meant>,
    directories_only: bool,
    size_bytes_max: Option<u64>,
    mtime_after: Option<Timestamp>,
    /// Include all directories.
    down: bool,
}

impl Search {
    fn random(rng: &mut Prng) -> Self {
        Self {
            pattern: rng.per_mille(700).then(|| rng.pick(&PATTERNS).unwrap()),
            directories_only: rng.per_mille(200),
            size_bytes_max: rng.per_mille(300).then(|| u64::try_from(rng.below(3)).unwrap()),
            mtime_after: rng.per_mille(300).then(|| {
                let secs = 100 + i64::try_from(rng.below(500)).unwrap();
                Timestamp { secs, nanos: 0 }
            }),
            down: rng.per_mille(500),
        }
    }

    fn predicate(&self) -> Predicate<'static> {
        let name = self.pattern.map(|(text, _)| Pattern::new(text.as_bytes()).unwrap());
        let kinds = self.directories_only.then(|| Kinds::default().with(FileKind::Directory));
        let Self { size_bytes_max, mtime_after, .. } = *self;
        Predicate { name, kinds, size_bytes_max, mtime_after, ..Predicate::ANY }
    }

    /// The expected verdict of a directory's shard for an entry.
    fn verdict(&self, name: &str, node: &Node, known: bool) -> Verdict {
        let directory = node.kind == FileKind::Directory;
        let kind_fits = directory || !self.directories_only;
        if !kind_fits || self.pattern.is_some_and(|(_, fits)| !fits(name)) {
            return Verdict::No;
        }
        if self.size_bytes_max.is_none() && self.mtime_after.is_none() {
            return Verdict::Yes;
        }
        if !known {
            return Verdict::Undecided;
        }
        let size_fits = self.size_bytes_max.is_none_or(|max| node.size_bytes <= max);
        let time_fits = self.mtime_after.is_none_or(|after| node.mtime > after);
        if size_fits && time_fits { Verdict::Yes } else { Verdict::No }
    }
}

pub(super) fn check(
    harness: &mut Harness,
    rng: &mut Prng,
    nodes: &BTreeMap<InodeNo, Node>,
    dir: InodeNo,
) {
    let search = Search::random(rng);
    let attrs = rng.per_mille(500);
    let mut expected = BTreeMap::new();
    for (name, inode) in &nodes[&dir].entries {
        let node = &nodes[inode];
        let known = inode.shard() == dir.shard() && !node.at_data;
        let verdict = search.verdict(name, node, known);
        if verdict != Verdict::No || (search.down && node.kind == FileKind::Directory) {
            let shown = attrs && known && verdict == Verdict::Yes;
            expected.insert(name.clone(), (*inode, node.kind, verdict, shown));
        }
    }
    let mut args = Find {
        caller: root(),
        inode: dir,
        cookie: 0,
        listing_bytes_max: rng.pick(&[512, 4096, 131_072]).unwrap(),
        attrs,
        directories: search.down,
        predicate: search.predicate(),
    };
    let mut listed = BTreeMap::new();
    loop {
        let found: Found<'_> = harness.answer(Op::Find, &args);
        for entry in found.entries.iter() {
            let name = String::from_utf8(entry.name.bytes().into()).unwrap();
            if let Some(attr) = entry.attr {
                assert_eq!((attr.inode, attr.kind), (entry.inode, entry.kind));
                assert_eq!(attr.flags & attr_flag::SIZE_AT_DATA, 0);
            }
            let row = (entry.inode, entry.kind, entry.verdict, entry.attr.is_some());
            assert_eq!(listed.insert(name, row), None, "listed twice");
        }
        if found.end {
            break;
        }
        assert!(found.cookie > args.cookie, "every piece goes on");
        args.cookie = found.cookie;
        if harness.row_store.is_some() {
            harness.churn();
        }
    }
    assert_eq!(listed, expected);
}
