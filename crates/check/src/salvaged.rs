//! Findings about a damaged file of rows: the readable and the lost rows.

use crate::finding::{Finding, Kind};
use crate::names::number;
use disk::rows::{Range, table_name};
use std::path::Path;
use store::{DamagedRows, LostRows};
use wire::InodeNo;

/// The file, in the store.
const FILE: &str = "rows/data.mdb";
/// Tables named one by one; of more, the first and the last are.
const TABLE_COUNT_MAX: usize = 3;

/// What is wrong with a file of rows, the file itself first.
#[must_use]
pub fn rows_findings(damaged: &DamagedRows) -> Vec<Finding> {
    let DamagedRows { damage, row_count, undated_count, .. } = damaged;
    if damaged.is_in_logs {
        let what = format!("{damage}. The logs have all since the store was made");
        return vec![finding(Kind::RowsDamage, None, what)];
    }
    if damaged.is_empty() {
        let what = format!(
            "{damage}. Nothing can be read of it, names and attributes stand nowhere else, and the logs do \
             not go back to the making of the store"
        );
        return vec![finding(Kind::StoreDamage, None, what)];
    }
    let of = damaged.recorded_row_count.map_or(String::new(), |said| format!(" of {said}"));
    let what = format!("{damage}. {}{of} rows can be read", row_count + undated_count);
    let mut findings = vec![finding(Kind::RowsDamage, None, what)];
    findings.extend(rows_lost(damaged));
    findings
}

/// What of them is lost or may be older, whatever is made of the rest.
pub(crate) fn rows_lost(damaged: &DamagedRows) -> Vec<Finding> {
    let mut findings: Vec<Finding> = damaged.lost.iter().map(lost).collect();
    if damaged.undated_count > 0 {
        let what = format!(
            "{} rows were found without the pages that lead to them: some may be older, and what was \
             removed may be back",
            damaged.undated_count
        );
        findings.push(finding(Kind::RowsOlder, None, what));
    }
    if damaged.is_previous_state {
        let what = "the meta pages do not say which state is the newest: it may be the one before";
        findings.push(finding(Kind::RowsOlder, None, what.to_owned()));
    }
    if let Some(gap) = &damaged.log_gap {
        let what = format!("the logs do not go on where the rows end: {gap}");
        findings.push(finding(Kind::RowsOlder, None, what));
    }
    if damaged.left_out_count > 0 {
        let what = format!(
            "{} changes of the logs do not fit to the rows that are there",
            damaged.left_out_count
        );
        findings.push(finding(Kind::RowsLost, None, what));
    }
    findings
}

fn finding(kind: Kind, inode: Option<InodeNo>, what: String) -> Finding {
    let file = Some(Path::new(FILE).to_owned());
    Finding { kind, severity: kind.row().1, paths: Vec::new(), inode, file, what }
}

fn lost(lost: &LostRows) -> Finding {
    let (from, until) = (lost.from.as_deref(), lost.until.as_deref());
    let count = match lost.row_count {
        Some(1) => "1 row".to_owned(),
        Some(count) => format!("{count} rows"),
        None => "rows".to_owned(),
    };
    let tables = Range::tables(from, until);
    let names: Vec<&str> = tables.clone().map(table_name).collect();
    let names = match names.as_slice() {
        [first, .., last] if names.len() > TABLE_COUNT_MAX => format!("{first} to {last}"),
        names => names.join(", "),
    };
    let between = |key: Option<&[u8]>, none: &str| key.map_or(none.to_owned(), key_text);
    let what = format!(
        "{}: {count} of {names} between {} and {}",
        lost.damage,
        between(from, "the first"),
        between(until, "the last")
    );
    // Both ends in one directory or inode: that is what has lost something.
    let owner = |key: Option<&[u8]>| key.and_then(inode_of);
    let inode = owner(from).filter(|_| owner(from) == owner(until));
    finding(Kind::RowsLost, inode, what)
}

/// The inode or directory that a row hangs on, with its table.
fn inode_of(key: &[u8]) -> Option<InodeNo> {
    let (table, rest) = key.split_first()?;
    // Inodes, names, listings and inodes without a name.
    let of_inode = (1..=4).contains(table);
    let inode = rest.first_chunk().filter(|_| of_inode)?;
    Some(InodeNo(u64::from_be_bytes(*inode)))
}

fn key_text(key: &[u8]) -> String {
    let table = key.first().copied().unwrap_or(0);
    match inode_of(key) {
        Some(inode) => {
            format!("{} of inode {} (key {})", table_name(table), number(inode), hex::encode(key))
        }
        None => format!("{} (key {})", table_name(table), hex::encode(key)),
    }
}
