//! `create` (seeds 000 and 003): new files in the clients' own directories and in one, beside
//! `getattr`, log and memory without a network, and this disk's flush.

use crate::getattr::refuse_hops;
use crate::load::Work;
use crate::new_files::create;
use crate::plan::Dirs;
use crate::race::{Race, hold_against_best};
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use crate::{flush, wired};
use anyhow::{Result, ensure};
use disk::Share;
use wire::InodeNo;

pub(crate) const NAME: &str = "create";
pub(crate) const SHARE_NAME: &str = "share";
const SHARE_SHAPES: [(u32, u32); 2] = [(16, 1), (16, 16)];
const SHAPES: [(u32, u32); 5] = [(1, 1), (4, 1), (16, 1), (64, 1), (256, 1)];

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    if options.shares.len() > 1 {
        return shares(home, NAME);
    }
    let shapes = options.shapes(&SHAPES);
    let server = home.server(NAME)?;
    let mut rows = Vec::new();
    if options.remote.is_none() {
        rows.push(flush::run(home, NAME)?);
        rows.push(wired::run(home, NAME)?);
    }
    let dirs = options.dirs.map_or(vec![Dirs::Own, Dirs::Shared], |dirs| vec![dirs]);
    for dirs in dirs {
        let parent_count = match dirs {
            Dirs::Own => shapes.iter().map(|shape| shape.0).max().unwrap_or(1),
            Dirs::Shared => 1,
        };
        let parents = make_dirs(&server, dirs, parent_count)?;
        let mut race = Race::new(home);
        for shape in &shapes {
            let name = |who: &str| Row::new(NAME, format!("{who} {}", dirs.text()));
            let inode = parents[0];
            let limit =
                race.enter(&server, name("getattr"), *shape, |_| Ok(Work::Getattr { inode }))?;
            let ours = race.enter(&server, name("create"), *shape, |_| Ok(create(&parents)))?;
            race.hold(ours, limit, Compare::ops(shape.0));
        }
        let mut raced = race.run(&Progress::new(NAME))?;
        refuse_hops(&raced)?;
        hold_against_best(&mut raced, |row| row.ops_per_s.filter(|_| row.row.starts_with(NAME)));
        rows.extend(raced);
    }
    Ok(rows)
}

/// The requested sharing modes, or all, compared with `off`; and what they cost clients whose
/// changes depend on each other.
///
/// Pair by pair (seed 003's tests 3a and 3b), on servers of their own.
///
/// # Errors As [`run`].
pub(crate) fn shares(home: &Home, bench: &'static str) -> Result<Vec<Row>> {
    let options = &home.options;
    let shapes = options.shapes(&SHARE_SHAPES);
    let mut modes = options.shares.clone();
    modes.retain(|mode| *mode != Share::Off);
    if modes.is_empty() {
        modes.extend([Share::Write, Share::Strict]);
    }
    modes.insert(0, Share::Off);
    let servers: Result<Vec<Server>> = modes.iter().map(|mode| home.sharing(*mode)).collect();
    let servers = servers?;
    let mut rows = Vec::new();
    for dirs in options.dirs.map_or(vec![Dirs::Own, Dirs::Shared], |dirs| vec![dirs]) {
        let dir_count = match dirs {
            Dirs::Own => shapes.iter().map(|shape| shape.0).max().unwrap_or(1),
            Dirs::Shared => 1,
        };
        let mut race = Race::new(home);
        let parents: Result<Vec<_>> =
            servers.iter().map(|server| make_dirs(server, dirs, dir_count)).collect();
        let parents = parents?;
        for shape in &shapes {
            let mut off = None;
            for (index, mode) in modes.iter().enumerate() {
                let row = Row::new(bench, format!("{} share={}", dirs.text(), mode.text()));
                let work = |_: &mut ring::Ring| Ok(create(&parents[index]));
                let entrant = race.enter(&servers[index], row, *shape, work)?;
                match off {
                    Some(off) => race.hold(entrant, off, Compare::Rate),
                    None => off = Some(entrant),
                }
            }
        }
        rows.extend(race.run(&Progress::new(bench))?);
    }
    rows.iter().filter(|row| row.row.ends_with(Share::Write.text())).try_for_each(refuse_held)?;
    if bench == SHARE_NAME {
        rows.extend(groups(home, &modes, &servers)?);
    }
    Ok(rows)
}

/// Clients in groups that change one inode, so that their changes depend on each other: from groups
/// of one to one group of all.
fn groups(home: &Home, modes: &[Share], servers: &[Server]) -> Result<Vec<Row>> {
    const CLIENTS: (u32, u32) = (16, 1);
    const SIZES: [u32; 4] = [1, 2, 4, 16];
    let mut race = Race::new(home);
    for size in SIZES {
        let mut off = None;
        for (mode, server) in modes.iter().zip(servers) {
            let name = format!("groups of {size} share={}", mode.text());
            // New inodes: changes of inodes of another group would depend on that group.
            let inodes = make_dirs_in(server, &format!("groups-of-{size}"), CLIENTS.0 / size)?;
            let row = Row::new(SHARE_NAME, name);
            let entrant = race.enter(server, row, CLIENTS, |_| Ok(Work::Chmod { inodes }))?;
            match off {
                Some(off) => race.hold(entrant, off, Compare::Rate),
                None => off = Some(entrant),
            }
        }
    }
    let rows = race.run(&Progress::new(SHARE_NAME))?;
    rows.iter().filter(|row| row.row == "groups of 1 share=write").try_for_each(refuse_held)?;
    Ok(rows)
}

/// Independent clients do not wait for each other. But the first change of a session waits until
/// the session is durable, which may fall into a short measured time.
fn refuse_held(row: &Row) -> Result<()> {
    let first_count = f64::from(row.clients.unwrap_or(0) * row.depth.unwrap_or(0));
    let deferred_count = row.held_replies.unwrap_or(f64::NAN);
    ensure!(
        deferred_count <= first_count,
        "{}: {deferred_count} replies of independent clients waited for a commit",
        row.row
    );
    Ok(())
}

/// Makes the directories for the files: one, or as many as clients.
///
/// # Errors When they cannot be made.
pub(crate) fn make_dirs(server: &Server, dirs: Dirs, count: u32) -> Result<Vec<InodeNo>> {
    match dirs {
        Dirs::Shared => {
            let mut volume = server.volume()?;
            let folder = server.folder(&mut volume)?.join(dirs.text());
            Ok(vec![volume.mkdir(&folder, 0o755)?.inode])
        }
        Dirs::Own => make_dirs_in(server, dirs.text(), count),
    }
}

/// Makes so many directories in a new one.
fn make_dirs_in(server: &Server, name: &str, count: u32) -> Result<Vec<InodeNo>> {
    let mut volume = server.volume()?;
    let folder = server.folder(&mut volume)?.join(name);
    volume.mkdir(&folder, 0o755)?;
    let made: Result<Vec<InodeNo>> = (0..count)
        .map(|index| Ok(volume.mkdir(&folder.join(index.to_string()), 0o755)?.inode))
        .collect();
    // Durable, so that their users depend on no other client.
    volume.sync()?;
    made
}
