//! Checking a table's file page by page before it is mapped.
//!
//! LMDB trusts its pages; none has a checksum, and a damaged one can hide rows or point outside the
//! mapping. So both trees of the newest state, the rows' and that of the free pages, are walked
//! with plain reads. Invariant: a file that passes this check can be mapped and read to its last
//! row without leaving it, and has as many rows as were written.
//!
//! ```text
//! page:  number 8, pad 2, flags 2, lower 2, upper 2 (or pages of a run 4), then offsets of nodes
//! meta:  page head, magic 4, version 4, address 8, map_bytes 8, free tree 48, rows' tree 48,
//!        last page 8, transaction 8
//! tree:  pad 4 (of the free tree: bytes of a page), flags 2, depth 2, branch, leaf and overflow
//!        pages 3 x 8, entries 8, root 8
//! node:  low 2, high 2, flags 2, key bytes 2, key, value; in a branch low, high and flags are a page
//! ```

use crate::damage::Damage;
use crate::seal;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

mod salvage;

pub use salvage::{Age, Lost, Salvaged, Visit, damage, salvage};

const PAGE_BYTES: usize = 4096;
const HEAD_BYTES: usize = 16;
const NODE_HEAD_BYTES: usize = 8;
const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const META: u16 = 8;
/// The node's value is on overflow pages.
const BIG: u16 = 1;
/// The keys of the free tree are numbers.
const INTEGER_KEY: u16 = 8;
const NO_PAGE: u64 = u64::MAX;
const META_COUNT: u64 = 2;
const DEPTH_MAX: u16 = 32;

/// The first key: the number of writes. It tells the two meta pages apart.
pub(crate) const WRITE_NO_KEY: [u8; 1] = [0];

type Page = [u8; PAGE_BYTES];

/// Counts of a file's newest state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The number of rows.
    pub row_count: u64,
    /// The number of pages read.
    pub page_count: u64,
}

/// Checks the file of a table.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] with a [`Damage`] when something is wrong; else the error of the
/// read.
pub fn check(file: &File) -> io::Result<Checked> {
    let file_pages = file.metadata()?.len() / PAGE_BYTES as u64;
    if file_pages < META_COUNT {
        let bytes = file.metadata()?.len();
        return Err(Damage::file("a table without its two meta pages", 0)
            .numbers(META_COUNT * PAGE_BYTES as u64, bytes)
            .into());
    }
    let (before, meta) = metas(file)?;
    let used = vec![0_u64; usize::try_from(file_pages).unwrap_or(0) / 64 + 1];
    let mut walk = Walk { file, file_pages, meta, used, free: Vec::new(), page_count: META_COUNT };
    walk.mark(0, META_COUNT)?;
    // LMDB does not change the pages of the previous state before there is one after the newest.
    let (write_no_before, write_no) = (walk.write_no(&before.rows)?, walk.write_no(&meta.rows)?);
    if write_no != write_no_before + 1 {
        let fault = Damage::file("the meta pages' transactions do not match their rows'", 0);
        return Err(fault.numbers(write_no_before + 1, write_no).into());
    }
    walk.tree(&meta.rows, &Kind::Rows)?;
    walk.tree(&meta.free, &Kind::Free)?;
    walk.expect_free()?;
    Ok(Checked { row_count: meta.rows.entry_count - 1, page_count: walk.page_count })
}

// --- the two meta pages --------------------------------------------------------------------------

#[derive(Clone, Copy)]
struct Tree {
    flags: u16,
    depth: u16,
    branch_count: u64,
    leaf_count: u64,
    overflow_count: u64,
    entry_count: u64,
    root: u64,
}

#[derive(Clone, Copy)]
struct Meta {
    free: Tree,
    rows: Tree,
    page_no_last: u64,
    txn_no: u64,
}

/// The previous state and the newest.
fn metas(file: &File) -> io::Result<(Meta, Meta)> {
    let (even, odd) = (meta(file, 0)?, meta(file, 1)?);
    // They are written alternately. If the numbers do not follow each other, either may be damaged.
    if even.txn_no.abs_diff(odd.txn_no) != 1 || even.txn_no % 2 != 0 {
        let fault = Damage::file("the meta pages' transactions do not follow each other", 0);
        return Err(fault.numbers(even.txn_no, odd.txn_no).into());
    }
    Ok(if even.txn_no > odd.txn_no { (odd, even) } else { (even, odd) })
}

fn meta(file: &File, page_no: u64) -> io::Result<Meta> {
    let page = read(file, page_no)?;
    let fault = |what| Damage::page(what, page_no);
    if (u64_at(&page, 0), u16_at(&page, 10)) != (page_no, META) {
        return Err(fault("not a meta page").into());
    }
    if (u32_at(&page, 16), u32_at(&page, 20)) != (MAGIC, VERSION) {
        return Err(fault("a meta page of something else or another version").into());
    }
    if u32_at(&page, 40) as usize != PAGE_BYTES {
        return Err(fault("a meta page with another page size").into());
    }
    let (free, rows) = (tree(&page, 40), tree(&page, 88));
    if (free.flags, rows.flags) != (INTEGER_KEY, 0) {
        return Err(fault("a meta page with unknown flags").into());
    }
    let (page_no_last, txn_no) = (u64_at(&page, 136), u64_at(&page, 144));
    Ok(Meta { free, rows, page_no_last, txn_no })
}

fn tree(page: &Page, at: usize) -> Tree {
    Tree {
        flags: u16_at(page, at + 4),
        depth: u16_at(page, at + 6),
        branch_count: u64_at(page, at + 8),
        leaf_count: u64_at(page, at + 16),
        overflow_count: u64_at(page, at + 24),
        entry_count: u64_at(page, at + 32),
        root: u64_at(page, at + 40),
    }
}

// --- the trees -----------------------------------------------------------------------------------

/// The kinds of tree.
enum Kind {
    Rows,
    Free,
}

impl Kind {
    fn is_less(&self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Rows => one < other,
            Self::Free => number(one) < number(other),
        }
    }
}

/// From this key on, and before that one.
#[derive(Clone, Copy, Default)]
struct Bounds<'a> {
    from: Option<&'a [u8]>,
    until: Option<&'a [u8]>,
}

/// Counts of a tree.
#[derive(Default, PartialEq, Eq)]
struct Counts {
    branch: u64,
    leaf: u64,
    overflow: u64,
    entry: u64,
}

struct Walk<'f> {
    file: &'f File,
    file_pages: u64,
    meta: Meta,
    /// A bit for each page of the file that was visited.
    used: Vec<u64>,
    /// Pages that the free tree lists.
    free: Vec<u64>,
    page_count: u64,
}

struct Node<'a> {
    key: &'a [u8],
    flags: u16,
    /// The length of the value.
    value_bytes: usize,
    /// The bytes after the key: the value, or its page number.
    rest: &'a [u8],
    /// The child of a branch node.
    child: u64,
}

impl Walk<'_> {
    fn tree(&mut self, tree: &Tree, kind: &Kind) -> io::Result<()> {
        let mut counts = Counts::default();
        if tree.root != NO_PAGE {
            if tree.depth == 0 || tree.depth > DEPTH_MAX {
                return Err(Damage::file("a tree of an impossible depth", 0)
                    .numbers(0, u64::from(tree.depth))
                    .into());
            }
            self.page((tree.root, tree.depth), Bounds::default(), kind, &mut counts)?;
        }
        let recorded = Counts {
            branch: tree.branch_count,
            leaf: tree.leaf_count,
            overflow: tree.overflow_count,
            entry: tree.entry_count,
        };
        if counts != recorded {
            let fault = Damage::file("the number of entries differs from the meta page", 0);
            return Err(fault.numbers(recorded.entry, counts.entry).into());
        }
        Ok(())
    }

    /// The number of writes, from the first row; 0 without rows.
    fn write_no(&self, tree: &Tree) -> io::Result<u64> {
        if tree.root == NO_PAGE {
            return Ok(0);
        }
        let (mut page_no, mut depth) = (tree.root, tree.depth);
        loop {
            let fault = || Damage::page("a page on the way to the first row is damaged", page_no);
            if page_no >= self.file_pages || depth == 0 || depth > DEPTH_MAX {
                return Err(fault().into());
            }
            let page = read(self.file, page_no)?;
            let flags = if depth == 1 { LEAF } else { BRANCH };
            let nodes = nodes(&page, flags).filter(|_| u16_at(&page, 10) == flags);
            let nodes = nodes.ok_or_else(fault)?;
            if depth == 1 {
                let first =
                    nodes.first().filter(|node| node.key == WRITE_NO_KEY && node.flags == 0);
                let first = first.ok_or_else(fault)?;
                return Ok(number(seal::open(first.key, first.rest)?));
            }
            let first = nodes.first().ok_or_else(fault)?;
            (page_no, depth) = (first.child, depth - 1);
        }
    }

    /// Checks a page and its subtree of `depth` levels.
    fn page(
        &mut self,
        (page_no, depth): (u64, u16),
        bounds: Bounds<'_>,
        kind: &Kind,
        counts: &mut Counts,
    ) -> io::Result<()> {
        self.mark(page_no, 1)?;
        let page = read(self.file, page_no)?;
        let fault = |what| Damage::page(what, page_no);
        let flags = if depth == 1 { LEAF } else { BRANCH };
        if u64_at(&page, 0) != page_no {
            return Err(fault("a page with the number of another")
                .numbers(page_no, u64_at(&page, 0))
                .into());
        }
        if u16_at(&page, 10) != flags {
            return Err(fault("a page of the wrong kind").into());
        }
        let nodes =
            nodes(&page, flags).ok_or_else(|| fault("a page whose entries do not fit it"))?;
        if !in_order(&nodes, bounds, kind, flags) {
            return Err(fault("a page whose keys are out of order").into());
        }
        if flags == LEAF {
            counts.leaf += 1;
            counts.entry += nodes.len() as u64;
            return nodes.iter().try_for_each(|node| self.leaf(node, page_no, kind, counts));
        }
        counts.branch += 1;
        for (index, node) in nodes.iter().enumerate() {
            let from = if index == 0 { bounds.from } else { Some(node.key) };
            let until = nodes.get(index + 1).map(|next| next.key).or(bounds.until);
            self.page((node.child, depth - 1), Bounds { from, until }, kind, counts)?;
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        node: &Node<'_>,
        page_no: u64,
        kind: &Kind,
        counts: &mut Counts,
    ) -> io::Result<()> {
        let run;
        let value = if node.flags == BIG {
            run = self.run(node, page_no, counts)?;
            &run[HEAD_BYTES..HEAD_BYTES + node.value_bytes]
        } else {
            node.rest
        };
        match kind {
            Kind::Rows => seal::open(node.key, value).map(drop).map_err(io::Error::from),
            Kind::Free => self.list(node.key, value, page_no),
        }
    }

    /// Reads the overflow pages of a value.
    fn run(&mut self, node: &Node<'_>, page_no: u64, counts: &mut Counts) -> io::Result<Vec<u8>> {
        let first = number(node.rest);
        let count = (HEAD_BYTES + node.value_bytes).div_ceil(PAGE_BYTES) as u64;
        self.mark(first, count)?;
        counts.overflow += count;
        let mut run = vec![0; usize::try_from(count).unwrap_or(0) * PAGE_BYTES];
        read_into(self.file, first, &mut run)?;
        let head = (u64_at(&run, 0), u16_at(&run, 10), u64::from(u32_at(&run, 12)));
        if head != (first, OVERFLOW, count) {
            return Err(Damage::page("a long value that is not where it should be", page_no).into());
        }
        Ok(run)
    }

    /// Adds a list of pages that a transaction has freed.
    fn list(&mut self, key: &[u8], value: &[u8], page_no: u64) -> io::Result<()> {
        let fault = || Damage::page("an impossible list of free pages", page_no);
        let listed = value.get(8..).unwrap_or_default().as_chunks().0;
        let count = usize::try_from(number(value)).unwrap_or(usize::MAX);
        if key.len() != 8
            || value.len() < 8
            || number(key) > self.meta.txn_no
            || count > listed.len()
        {
            return Err(fault().into());
        }
        for page in listed[..count].iter().map(|page| u64::from_le_bytes(*page)) {
            if page < META_COUNT || page > self.meta.page_no_last {
                return Err(fault().into());
            }
            self.free.push(page);
        }
        Ok(())
    }

    /// Marks pages as used; each page is used once, and is in the file.
    fn mark(&mut self, page_no: u64, count: u64) -> io::Result<()> {
        let end = page_no.checked_add(count);
        if end.is_none_or(|end| end > self.file_pages || end > self.meta.page_no_last + 1) {
            let fault = Damage::file("the file ends before one of its pages", page_no);
            return Err(fault.numbers(self.file_pages, page_no).into());
        }
        self.page_count += count;
        (page_no..page_no + count).try_for_each(|page_no| {
            let visited = self.is_used(page_no);
            self.used[usize::try_from(page_no / 64).unwrap_or(0)] |= 1 << (page_no % 64);
            if visited {
                Err(Damage::page("a page that is used twice", page_no).into())
            } else {
                Ok(())
            }
        })
    }

    fn is_used(&self, page_no: u64) -> bool {
        let bits = usize::try_from(page_no / 64).ok().and_then(|index| self.used.get(index));
        bits.is_some_and(|bits| bits & (1 << (page_no % 64)) != 0)
    }

    /// Checks that free pages are not used, and that all pages beyond the end of the file are free.
    fn expect_free(&mut self) -> io::Result<()> {
        self.free.sort_unstable();
        if let Some(pair) = self.free.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Damage::page("a page that is free twice", pair[0]).into());
        }
        if let Some(page_no) = self.free.iter().find(|page_no| self.is_used(**page_no)) {
            return Err(Damage::page("a page that is used and free", *page_no).into());
        }
        let behind = self.free.iter().filter(|page_no| **page_no >= self.file_pages).count() as u64;
        let wanted = self.meta.page_no_last.saturating_add(1).saturating_sub(self.file_pages);
        if behind != wanted {
            let fault = Damage::file("the file is shorter than its meta page says", 0);
            return Err(fault
                .numbers(
                    (self.meta.page_no_last.saturating_add(1)).saturating_mul(PAGE_BYTES as u64),
                    self.file_pages * PAGE_BYTES as u64,
                )
                .into());
        }
        Ok(())
    }
}

/// The nodes of a page, if they fill it from `upper` to its end without a gap.
fn nodes(page: &Page, flags: u16) -> Option<Vec<Node<'_>>> {
    let (lower, upper) = (usize::from(u16_at(page, 12)), usize::from(u16_at(page, 14)));
    if lower < HEAD_BYTES || lower % 2 != 0 || lower > upper || upper > PAGE_BYTES {
        return None;
    }
    let count = (lower - HEAD_BYTES) / 2;
    if count == 0 || (flags == BRANCH && count < 2) {
        return None;
    }
    let (mut nodes, mut places) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for index in 0..count {
        let start = usize::from(u16_at(page, HEAD_BYTES + 2 * index));
        let head = page.get(start..start + NODE_HEAD_BYTES)?;
        let (low, high, bits) = (u16_at(head, 0), u16_at(head, 2), u16_at(head, 4));
        let value_bytes = usize::from(low) | usize::from(high) << 16;
        let rest_bytes = match (flags, bits) {
            (BRANCH, _) => 0,
            (LEAF, 0) => value_bytes,
            (LEAF, BIG) => 8,
            _ => return None,
        };
        let key_start = start + NODE_HEAD_BYTES;
        let key_end = key_start + usize::from(u16_at(head, 6));
        let end = key_end.checked_add(rest_bytes)?;
        let (key, rest) = (page.get(key_start..key_end)?, page.get(key_end..end)?);
        places.push((start, end.next_multiple_of(2)));
        let child = u64::from(low) | u64::from(high) << 16 | u64::from(bits) << 32;
        nodes.push(Node { key, flags: bits, value_bytes, rest, child });
    }
    places.sort_unstable();
    let mut end = upper;
    for (start, next) in places {
        if start != end {
            return None;
        }
        end = next;
    }
    (end == PAGE_BYTES).then_some(nodes)
}

/// Whether keys ascend, within the bounds of the branches above.
fn in_order(nodes: &[Node<'_>], bounds: Bounds<'_>, kind: &Kind, flags: u16) -> bool {
    // The first key of a branch stands for all keys less than the second.
    let nodes = if flags == BRANCH { nodes.get(1..).unwrap_or_default() } else { nodes };
    let is_valid = |key: &[u8]| match kind {
        Kind::Rows => !key.is_empty(),
        Kind::Free => key.len() == 8,
    };
    let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return false };
    nodes.iter().all(|node| is_valid(node.key))
        && nodes.windows(2).all(|pair| kind.is_less(pair[0].key, pair[1].key))
        && bounds.from.is_none_or(|from| !kind.is_less(first.key, from))
        && bounds.until.is_none_or(|until| kind.is_less(last.key, until))
}

// --- bytes ---------------------------------------------------------------------------------------

fn read(file: &File, page_no: u64) -> io::Result<Page> {
    let mut page = [0; PAGE_BYTES];
    read_into(file, page_no, &mut page)?;
    Ok(page)
}

/// Reads consecutive pages. An error of the medium is damage.
fn read_into(file: &File, page_no: u64, pages: &mut [u8]) -> io::Result<()> {
    let read = file.read_exact_at(pages, page_no * PAGE_BYTES as u64);
    read.map_err(|error| match error.raw_os_error() {
        Some(libc::EIO) => Damage::page("a page that the disk does not give", page_no).into(),
        Some(_) | None => error,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The number at the front; 0 if there are too few bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
