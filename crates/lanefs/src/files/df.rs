//! `lanefs df [-h]`: a line for the only server, or one for each server of a cluster and their sum.

use super::json::{self, SpaceRow};
use super::show::human;
use super::{Session, connect, urls};
use crate::address::Url;
use crate::{args, out, space};
use anyhow::Result;
use library::Space;
use wire::{Map, ServerAddress, ServerId};

/// What is shown of a server, or of all.
struct Row {
    name: String,
    server: Option<ServerId>,
    space: Space,
}

/// Runs the command.
pub(crate) fn run(args: &args::Df) -> Result<()> {
    let mut session = Session::new("df", &args.access);
    let mut rows = Vec::new();
    for url in urls(&args.paths)? {
        let volume = session.volume(&url)?;
        let name = format!("lanefs://{}", url.address);
        match volume.map().as_ref().map(Map::servers) {
            Some(servers @ [_, _, ..]) => {
                let places = servers.iter().filter_map(|server| match server.address {
                    ServerAddress::At(at) => Some((server.id, at.to_string())),
                    ServerAddress::Initial => None,
                });
                let places: Vec<_> = places.collect();
                rows.extend(each(&mut session, &url, &places));
            }
            Some([]) | Some([_]) | None => {
                let space = volume.statfs();
                if let Some(space) = session.report(&url.text(), space.map_err(Into::into))? {
                    rows.push(Row { name, server: None, space });
                }
            }
        }
    }
    if args.json.json {
        for Row { name, server, space } in &rows {
            json::put(&SpaceRow::new(name, *server, space))?;
        }
    } else if !rows.is_empty() {
        out::print_bytes(table(&rows, args.human).as_bytes())?;
    }
    session.end()
}

/// The servers of a cluster that answer, and their sum.
fn each(session: &mut Session, url: &Url, places: &[(ServerId, String)]) -> Vec<Row> {
    let access = session.access_to(&url.address);
    let addresses: Vec<&str> = places.iter().map(|(_, address)| address.as_str()).collect();
    let spaces = space::of_each(&addresses, |address| connect(&access, address));
    let mut rows = Vec::new();
    let mut sum: Option<Space> = None;
    for ((server, address), space) in places.iter().zip(spaces) {
        match space {
            Ok(space) => {
                sum = Some(sum.map_or(space, |sum| space::sum(sum, space)));
                rows.push(Row {
                    name: format!("lanefs://{address}"),
                    server: Some(*server),
                    space,
                });
            }
            Err(error) => {
                session.report_error(&format!("server {server} is not in the sum: {error:#}"));
            }
        }
    }
    let sum = sum.map(|space| Row { name: "total".to_owned(), server: None, space });
    rows.extend(sum);
    rows
}

fn table(rows: &[Row], human_sizes: bool) -> String {
    let size = |bytes: u64| match human_sizes {
        true => human(bytes),
        false => bytes.div_ceil(1024).to_string(),
    };
    let title = if human_sizes { "Size" } else { "1K-blocks" };
    let mut lines =
        vec![["Filesystem", title, "Used", "Available", "Use%", "Inodes"].map(str::to_owned)];
    for Row { name, space, .. } in rows {
        let used_bytes = space.total_bytes.saturating_sub(space.free_bytes);
        // As df has it: of what is there for everybody, how much is used, rounded up.
        let usable_bytes = used_bytes.saturating_add(space.available_bytes).max(1);
        let percent = (u128::from(used_bytes) * 100).div_ceil(u128::from(usable_bytes));
        lines.push([
            name.clone(),
            size(space.total_bytes),
            size(used_bytes),
            size(space.available_bytes),
            format!("{percent}%"),
            space.inode_count.to_string(),
        ]);
    }
    aligned(&lines)
}

/// Columns as wide as they have to be, the first one to the left.
fn aligned<const COUNT: usize>(lines: &[[String; COUNT]]) -> String {
    let widths: [usize; COUNT] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in lines {
        for (column, (field, width)) in line.iter().zip(widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{field:<width$}")),
                _ => text.push_str(&format!(" {field:>width$}")),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_in_use_is_rounded_up() {
        let space = Space {
            total_bytes: 1000 * 1024,
            free_bytes: 999 * 1024,
            available_bytes: 900 * 1024,
            inode_count: 7,
            inode_free_count: 0,
            lane_count: 1,
        };
        let text = table(&[Row { name: "lanefs://h:1".to_owned(), server: None, space }], false);
        let row = text.lines().last().unwrap_or_default();
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(fields, ["lanefs://h:1", "1000", "1", "900", "1%", "7"]);
    }

    #[test]
    fn a_store_of_64_tib_fits_80_columns() {
        let space = Space {
            total_bytes: 1 << 46,
            free_bytes: 1 << 45,
            available_bytes: 1 << 45,
            inode_count: 100_000_000,
            inode_free_count: 0,
            lane_count: 64,
        };
        for human_sizes in [false, true] {
            let name = "lanefs://192.168.100.100:7117".to_owned();
            let text = table(&[Row { name, server: None, space }], human_sizes);
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }
}
