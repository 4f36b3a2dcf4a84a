//! Reading the intact rows of a damaged file.
//!
//! The rows' tree is followed as far as its pages are valid; in a damaged leaf, every row with a
//! valid checksum is read. Where a branch is damaged, leaves are searched among all pages that
//! neither the tree nor the list of free pages names. Where that list cannot be read, such leaves
//! may be older ones that LMDB has not overwritten yet: their rows are [`Age::Unknown`]. Invariant:
//! each returned row has a valid checksum, and nothing is changed.

use super::{
    BIG, BRANCH, Bounds, Checked, DEPTH_MAX, HEAD_BYTES, Kind, LEAF, META_COUNT, Meta, NO_PAGE,
    NODE_HEAD_BYTES, Node, OVERFLOW, PAGE_BYTES, Page, WRITE_NO_KEY, Walk, check, in_order, meta,
    nodes, number, read, read_into, u16_at, u32_at, u64_at,
};
use crate::damage::Damage;
use crate::seal;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;

/// The most candidate roots when no meta page names the root.
const ROOT_COUNT_MAX: usize = 64;

/// The number of writes in a first leaf, and its page.
type FirstLeaf = (u64, u64);
/// All branches by their first child.
type Parents = HashMap<u64, Vec<u64>>;
/// From a key on, and before another one.
type KeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Whether a row is of the newest state of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    /// It is.
    Newest,
    /// It may be of an earlier state; another row with the same key may follow.
    Unknown,
}

/// A part of the file that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The damage.
    pub damage: Damage,
    /// Rows from this key on may be lost; `None`: from the first one on.
    pub from: Option<Vec<u8>>,
    /// Rows before this key; `None`: up to the last one.
    pub until: Option<Vec<u8>>,
    /// The number of lost rows, if known.
    pub row_count: Option<u64>,
}

/// The result of reading a damaged file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Salvaged {
    /// The number of rows read.
    pub row_count: u64,
    /// The number of rows in the table, if known.
    pub recorded_row_count: Option<u64>,
    /// The lost ranges of rows; empty if only other parts of the file are damaged.
    pub lost: Vec<Lost>,
    /// The rows may be of the state before the newest.
    pub is_previous_state: bool,
}

/// Called with a key, its value, and its age.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8], Age) -> io::Result<()> + 'a;

/// Reads every readable row. An intact file yields all its rows.
///
/// # Errors
/// The error of `visit`, and when the file's length cannot be read. Pages that cannot be read are
/// lost.
pub fn salvage(file: &File, visit: &mut Visit<'_>) -> io::Result<Salvaged> {
    let file_pages = file.metadata()?.len() / PAGE_BYTES as u64;
    let pages = Pages { file, file_pages };
    let state = pages.newest()?;
    let free = state.meta.as_ref().and_then(|meta| pages.free(meta));
    let page_no_end = match &state.meta {
        Some(meta) => file_pages.min(meta.page_no_last.saturating_add(1)),
        None => file_pages,
    };
    let used = free.as_ref().map_or_else(|| pages.no_bits(), |free| free.used.clone());
    let mut reading = Reading { pages, free, page_no_end, used, found: Found::default(), visit };
    match state.root {
        Some(root) => reading.page(root, Bounds::default())?,
        None => {
            reading.lose(Damage::file("no root of the rows can be found", 0), Bounds::default())
        }
    }
    let recorded_count = state.meta.map(|meta| meta.rows.entry_count);
    let is_all = |found: &Found| recorded_count == Some(found.entry_count);
    if !reading.found.subtrees.is_empty() || (reading.free.is_some() && !is_all(&reading.found)) {
        reading.unreachable_leaves()?;
    }
    let Found { entry_count, write_no_count, mut lost, .. } = reading.found;
    // If other pages account for all missing rows, everything below the damaged branches was found.
    let located_count: u64 = lost.iter().filter_map(|lost| lost.row_count).sum();
    if recorded_count == Some(entry_count + located_count) {
        lost.retain(|lost| lost.row_count.is_some());
    }
    let row_count = entry_count - write_no_count;
    let recorded_row_count = recorded_count.map(|count| count.saturating_sub(1));
    if recorded_row_count == Some(row_count) {
        lost.clear();
    }
    Ok(Salvaged { row_count, recorded_row_count, lost, is_previous_state: state.is_previous_state })
}

/// The damage of a table's file; `None` if it is intact.
///
/// # Errors
/// As [`check`], for errors other than damage.
pub fn damage(file: &File) -> io::Result<Option<Damage>> {
    match check(file) {
        Ok(Checked { .. }) => Ok(None),
        Err(error) => match Damage::of(&error) {
            Some(damage) => Ok(Some(*damage)),
            None => Err(error),
        },
    }
}

// --- choosing the state --------------------------------------------------------------------------

/// The state to read.
#[derive(Default)]
struct State {
    meta: Option<Meta>,
    /// The root of the rows and the tree's depth.
    root: Option<(u64, u16)>,
    is_previous_state: bool,
}

/// A file, page by page.
#[derive(Clone, Copy)]
struct Pages<'f> {
    file: &'f File,
    file_pages: u64,
}

/// The free pages, and the pages of the free tree.
struct Free {
    /// Sorted.
    pages: Vec<u64>,
    used: Vec<u64>,
}

impl Pages<'_> {
    fn no_bits(&self) -> Vec<u64> {
        vec![0; usize::try_from(self.file_pages).unwrap_or(0) / 64 + 1]
    }

    fn walk(&self, meta: Meta) -> Walk<'_> {
        let (file, file_pages, used) = (self.file, self.file_pages, self.no_bits());
        Walk { file, file_pages, meta, used, free: Vec::new(), page_count: 0 }
    }

    /// The free pages, if all of them can be read.
    fn free(&self, meta: &Meta) -> Option<Free> {
        let mut walk = self.walk(*meta);
        walk.tree(&meta.free, &Kind::Free).ok()?;
        walk.free.sort_unstable();
        Some(Free { pages: walk.free, used: walk.used })
    }

    /// The number of writes of a state, from its first row.
    fn write_no(&self, meta: &Meta) -> Option<u64> {
        self.walk(*meta).write_no(&meta.rows).ok()
    }

    /// The newest state: the later of two meta pages. If one of them is damaged, the number of
    /// writes in the rows shows whether there is a state after the other.
    fn newest(&self) -> io::Result<State> {
        let of = |page_no| meta(self.file, page_no).ok();
        let state = |meta: Meta, is_previous_state| State {
            root: (meta.rows.root != NO_PAGE).then_some((meta.rows.root, meta.rows.depth)),
            meta: Some(meta),
            is_previous_state,
        };
        let known = match (of(0), of(1)) {
            (Some(even), Some(odd)) => {
                let numbers = match (self.write_no(&even), self.write_no(&odd)) {
                    (Some(even), Some(odd)) => (even, odd),
                    (None, _) | (_, None) => (even.txn_no, odd.txn_no),
                };
                return Ok(state(if numbers.0 > numbers.1 { even } else { odd }, false));
            }
            (Some(meta), None) | (None, Some(meta)) => Some(meta),
            (None, None) => None,
        };
        let write_no = known.as_ref().and_then(|meta| self.write_no(meta)).unwrap_or(0);
        let (first_leaf, parents) = self.first_leaf()?;
        match (first_leaf, known) {
            (Some((found_no, leaf)), known) if known.is_none() || found_no > write_no => {
                let root = self.root_above(leaf, &parents)?;
                // Without a meta page it is unknown whether a later state is lost.
                Ok(State { meta: None, root: Some(root), is_previous_state: known.is_none() })
            }
            (first, Some(known)) => {
                let is_newest = first.is_some_and(|(found_no, _)| found_no == write_no);
                Ok(state(known, !is_newest))
            }
            (_, None) => Ok(State { is_previous_state: true, ..State::default() }),
        }
    }

    /// The last written leaf with the first row, with the number of writes; and all branches by
    /// their first child.
    fn first_leaf(&self) -> io::Result<(Option<FirstLeaf>, Parents)> {
        let (mut newest, mut parents) = (None, Parents::new());
        for page_no in META_COUNT..self.file_pages {
            let Ok(page) = read(self.file, page_no) else { continue };
            let flags = u16_at(&page, 10);
            if u64_at(&page, 0) != page_no || ![BRANCH, LEAF].contains(&flags) {
                continue;
            }
            let Some(first) = nodes(&page, flags).and_then(|nodes| nodes.into_iter().next()) else {
                continue;
            };
            if flags == BRANCH {
                parents.entry(first.child).or_default().push(page_no);
            } else if first.key == WRITE_NO_KEY
                && first.flags == 0
                && let Ok(write_no) = seal::open(first.key, first.rest)
            {
                newest = newest.max(Some((number(write_no), page_no)));
            }
        }
        Ok((newest, parents))
    }

    /// The root of the tree with this first leaf: of all candidate branches, the one with the least
    /// damage below it, and of those the one with the most rows.
    fn root_above(&self, leaf: u64, parents: &Parents) -> io::Result<(u64, u16)> {
        let mut roots = vec![(leaf, 1)];
        let mut index = 0;
        while index < roots.len() && roots.len() < ROOT_COUNT_MAX {
            let (below, depth) = roots[index];
            index += 1;
            if depth < DEPTH_MAX {
                let above = parents.get(&below).into_iter().flatten();
                roots.extend(above.map(|page_no| (*page_no, depth + 1)));
            }
        }
        let (mut best, mut best_rank) = ((leaf, 1), None);
        for root in roots {
            let mut ignore = |_: &[u8], _: &[u8], _: Age| Ok(());
            let (used, found) = (self.no_bits(), Found::default());
            let page_no_end = self.file_pages;
            let mut reading =
                Reading { pages: *self, free: None, page_no_end, used, found, visit: &mut ignore };
            reading.page(root, Bounds::default())?;
            let found = reading.found;
            let rank = Some((std::cmp::Reverse(found.lost.len()), found.entry_count));
            if rank > best_rank {
                (best, best_rank) = (root, rank);
            }
        }
        Ok(best)
    }
}

// --- reading -------------------------------------------------------------------------------------

/// What was read and what is lost.
#[derive(Default)]
struct Found {
    /// Rows, including the number of writes.
    entry_count: u64,
    write_no_count: u64,
    lost: Vec<Lost>,
    /// Possible overflow pages.
    runs: Vec<(u64, u64)>,
    /// Ranges of keys whose leaves cannot be reached.
    subtrees: Vec<KeyRange>,
}

struct Reading<'r, 'f> {
    pages: Pages<'f>,
    free: Option<Free>,
    /// The end of the search for unreachable leaves.
    page_no_end: u64,
    /// A bit for each page that was reached.
    used: Vec<u64>,
    found: Found,
    visit: &'r mut Visit<'r>,
}

impl Reading<'_, '_> {
    fn lose(&mut self, damage: Damage, bounds: Bounds<'_>) {
        let range = (bounds.from.map(<[u8]>::to_vec), bounds.until.map(<[u8]>::to_vec));
        let (from, until) = range.clone();
        self.found.lost.push(Lost { damage, from, until, row_count: None });
        self.found.subtrees.push(range);
    }

    fn is_used(&self, page_no: u64) -> bool {
        let bits = usize::try_from(page_no / 64).ok().and_then(|index| self.used.get(index));
        bits.is_some_and(|bits| bits & (1 << (page_no % 64)) != 0)
    }

    fn mark(&mut self, page_no: u64, count: u64) {
        for page_no in page_no..page_no.saturating_add(count).min(self.pages.file_pages) {
            self.used[usize::try_from(page_no / 64).unwrap_or(0)] |= 1 << (page_no % 64);
        }
    }

    fn is_free(&self, page_no: u64) -> bool {
        self.free.as_ref().is_some_and(|free| free.pages.binary_search(&page_no).is_ok())
    }

    /// Reads a page and its subtree of `depth` levels.
    fn page(&mut self, (page_no, depth): (u64, u16), bounds: Bounds<'_>) -> io::Result<()> {
        let damage = |what| Damage::page(what, page_no);
        if page_no < META_COUNT
            || page_no >= self.pages.file_pages
            || depth == 0
            || depth > DEPTH_MAX
        {
            self.lose(damage("a page that is not in the file"), bounds);
            return Ok(());
        }
        if self.is_used(page_no) || self.is_free(page_no) {
            self.lose(damage("a page that is used twice, or free"), bounds);
            return Ok(());
        }
        let Ok(page) = read(self.pages.file, page_no) else {
            self.lose(damage("a page that cannot be read"), bounds);
            return Ok(());
        };
        let flags = if depth == 1 { LEAF } else { BRANCH };
        let is_itself = (u64_at(&page, 0), u16_at(&page, 10)) == (page_no, flags);
        match nodes(&page, flags).filter(|_| is_itself) {
            // A page of another place, or the keys above it are damaged.
            Some(nodes)
                if is_ordered(&nodes, flags) && !in_order(&nodes, bounds, &Kind::Rows, flags) =>
            {
                self.lose(damage("a page whose keys differ from those above it"), bounds);
                Ok(())
            }
            Some(nodes) if is_ordered(&nodes, flags) => {
                self.mark(page_no, 1);
                self.valid_page(&nodes, (page_no, depth), bounds)
            }
            Some(_) | None if depth == 1 => {
                self.mark(page_no, 1);
                self.damaged_leaf(&page, page_no, bounds)
            }
            Some(_) | None => {
                self.lose(damage("a branch of the tree that is damaged"), bounds);
                Ok(())
            }
        }
    }

    fn valid_page(
        &mut self,
        nodes: &[Node<'_>],
        (page_no, depth): (u64, u16),
        bounds: Bounds<'_>,
    ) -> io::Result<()> {
        if depth == 1 {
            return self.rows(nodes, page_no, bounds);
        }
        for (index, node) in nodes.iter().enumerate() {
            let from = if index == 0 { bounds.from } else { Some(node.key) };
            let until = nodes.get(index + 1).map(|next| next.key).or(bounds.until);
            self.page((node.child, depth - 1), Bounds { from, until })?;
        }
        Ok(())
    }

    /// Reads the rows of a valid leaf. A row with a wrong checksum is lost; its key may be the
    /// damaged part, so the lost range is everything between the adjacent rows.
    fn rows(&mut self, nodes: &[Node<'_>], page_no: u64, bounds: Bounds<'_>) -> io::Result<()> {
        for (index, node) in nodes.iter().enumerate() {
            if let Some(sealed) = self.value(node)
                && let Ok(value) = seal::open(node.key, &sealed)
            {
                self.emit(node.key, value, Age::Newest)?;
                continue;
            }
            let damage = Damage::page("a row whose checksum does not fit", page_no);
            let before = index.checked_sub(1).map(|index| [nodes[index].key, &[0]].concat());
            let from = before.or(bounds.from.map(<[u8]>::to_vec));
            let until = nodes.get(index + 1).map(|next| next.key).or(bounds.until);
            let until = until.map(<[u8]>::to_vec);
            self.found.lost.push(Lost { damage, from, until, row_count: Some(1) });
        }
        Ok(())
    }

    fn emit(&mut self, key: &[u8], value: &[u8], age: Age) -> io::Result<()> {
        self.found.entry_count += 1;
        if key == WRITE_NO_KEY {
            self.found.write_no_count += 1;
            return Ok(());
        }
        (self.visit)(key, value, age)
    }

    /// The bytes of a value, inline or on overflow pages, if they can be read.
    fn value(&mut self, node: &Node<'_>) -> Option<Vec<u8>> {
        if node.flags != BIG {
            return Some(node.rest.to_vec());
        }
        let (first, count) = run(node);
        if first < META_COUNT || first.checked_add(count)? > self.pages.file_pages {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(count).ok()? * PAGE_BYTES];
        read_into(self.pages.file, first, &mut bytes).ok()?;
        // If the head is damaged, the page number in the leaf may be the damaged part.
        if (u64_at(&bytes, 0), u16_at(&bytes, 10)) == (first, OVERFLOW) {
            self.mark(first, count);
        } else {
            self.found.runs.push((first, count));
        }
        Some(bytes[HEAD_BYTES..HEAD_BYTES + node.value_bytes].to_vec())
    }

    /// Reads the rows of a damaged leaf that have valid checksums and are within the bounds.
    fn damaged_leaf(&mut self, page: &Page, page_no: u64, bounds: Bounds<'_>) -> io::Result<()> {
        let (nodes, count) = possible_nodes(page);
        let mut emitted = BTreeSet::new();
        for node in nodes {
            let belongs = bounds.from.is_none_or(|from| from <= node.key)
                && bounds.until.is_none_or(|until| node.key < until);
            if belongs
                && !emitted.contains(node.key)
                && let Some(sealed) = self.value(&node)
                && let Ok(value) = seal::open(node.key, &sealed)
            {
                emitted.insert(node.key.to_vec());
                self.emit(node.key, value, Age::Newest)?;
            }
        }
        let row_count = count.and_then(|count| count.checked_sub(emitted.len() as u64));
        let damage = Damage::page("a page of rows that is damaged", page_no);
        let (from, until) = (bounds.from.map(<[u8]>::to_vec), bounds.until.map(<[u8]>::to_vec));
        self.found.lost.push(Lost { damage, from, until, row_count });
        Ok(())
    }

    // --- unreachable leaves ---

    /// Reads the leaves that no branch leads to. This takes two passes over all pages: overflow
    /// pages may look like a leaf, so they are marked before any leaf is read.
    fn unreachable_leaves(&mut self) -> io::Result<()> {
        for (first, count) in std::mem::take(&mut self.found.runs) {
            self.mark(first, count);
        }
        self.each_unreachable_leaf(|reading, nodes, _| {
            for node in nodes.iter().filter(|node| node.flags == BIG) {
                let (first, count) = run(node);
                reading.mark(first, count);
            }
            Ok(())
        })?;
        let age = if self.free.is_some() { Age::Newest } else { Age::Unknown };
        let subtrees = self.found.subtrees.clone();
        self.each_unreachable_leaf(|reading, nodes, page_no| {
            if age == Age::Newest {
                return reading.rows(nodes, page_no, Bounds::default());
            }
            for node in nodes {
                let is_within = |(from, until): &KeyRange| {
                    from.as_ref().is_none_or(|from| from.as_slice() <= node.key)
                        && until.as_ref().is_none_or(|until| node.key < until.as_slice())
                };
                if subtrees.iter().any(is_within)
                    && let Some(sealed) = reading.value(node)
                    && let Ok(value) = seal::open(node.key, &sealed)
                {
                    reading.emit(node.key, value, age)?;
                }
            }
            Ok(())
        })
    }

    fn each_unreachable_leaf(
        &mut self,
        mut visit: impl FnMut(&mut Self, &[Node<'_>], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut page_no = META_COUNT;
        while page_no < self.page_no_end {
            let this = page_no;
            page_no += 1;
            if self.is_used(this) || self.is_free(this) {
                continue;
            }
            let Ok(page) = read(self.pages.file, this) else { continue };
            if u64_at(&page, 0) != this {
                continue;
            }
            let flags = u16_at(&page, 10);
            if flags == OVERFLOW {
                page_no = this.saturating_add(u64::from(u32_at(&page, 12)).max(1));
            }
            if flags != LEAF {
                continue;
            }
            if let Some(nodes) = nodes(&page, LEAF).filter(|nodes| is_ordered(nodes, LEAF)) {
                visit(self, &nodes, this)?;
            }
        }
        Ok(())
    }
}

fn is_ordered(nodes: &[Node<'_>], flags: u16) -> bool {
    in_order(nodes, Bounds::default(), &Kind::Rows, flags)
}

/// The first overflow page of a value, and the number of pages.
fn run(node: &Node<'_>) -> (u64, u64) {
    (number(node.rest), (HEAD_BYTES + node.value_bytes).div_ceil(PAGE_BYTES) as u64)
}

/// All possible nodes of a damaged leaf, and their number, if the head has it. Offsets beyond the
/// head's count are tried as well, for nodes in the node area.
fn possible_nodes(page: &Page) -> (Vec<Node<'_>>, Option<u64>) {
    let (lower, upper) = (usize::from(u16_at(page, 12)), usize::from(u16_at(page, 14)));
    let is_valid = (HEAD_BYTES..=PAGE_BYTES).contains(&lower) && lower.is_multiple_of(2);
    let count = if is_valid { (lower - HEAD_BYTES) / 2 } else { 0 };
    let places_end = upper.max(lower).min(PAGE_BYTES);
    let place_count = places_end.saturating_sub(HEAD_BYTES) / 2;
    let mut starts = BTreeSet::new();
    let mut found = Vec::new();
    for index in 0..place_count.max(count) {
        let start = usize::from(u16_at(page, HEAD_BYTES + 2 * index));
        let start_min = if index < count { HEAD_BYTES } else { upper };
        if start >= start_min
            && starts.insert(start)
            && let Some(node) = possible_node(page, start)
        {
            found.push(node);
        }
    }
    (found, is_valid.then_some(count as u64))
}

fn possible_node(page: &Page, start: usize) -> Option<Node<'_>> {
    let head = page.get(start..start + NODE_HEAD_BYTES)?;
    let value_bytes = usize::from(u16_at(head, 0)) | usize::from(u16_at(head, 2)) << 16;
    let flags = u16_at(head, 4);
    let rest_bytes = match flags {
        0 => value_bytes,
        BIG => 8,
        _ => return None,
    };
    let key_start = start + NODE_HEAD_BYTES;
    let key_end = key_start + usize::from(u16_at(head, 6));
    let (key, rest) = (page.get(key_start..key_end)?, page.get(key_end..key_end + rest_bytes)?);
    (!key.is_empty()).then_some(Node { key, flags, value_bytes, rest, child: 0 })
}
