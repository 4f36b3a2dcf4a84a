//! The space of several servers, each of which is asked by itself.

use anyhow::{Result, bail};
use library::{Space, Volume};

/// What each server says, in their order. All are asked at once: one that is away costs its time limit once.
pub(crate) fn of_each<A: AsRef<str> + Sync>(
    addresses: &[A],
    connect: impl Fn(&str) -> Result<Volume> + Sync,
) -> Vec<Result<Space>> {
    let ask = |address: &A| Ok(connect(address.as_ref())?.server_statfs()?);
    std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> =
            addresses.iter().map(|address| scope.spawn(move || ask(address))).collect();
        let answer = |thread: std::thread::ScopedJoinHandle<'_, Result<Space>>| match thread.join()
        {
            Ok(space) => space,
            Err(_) => bail!("the thread that asked it has panicked"),
        };
        asked.into_iter().map(answer).collect()
    })
}

/// That of two servers together.
pub(crate) const fn sum(one: Space, other: Space) -> Space {
    Space {
        total_bytes: one.total_bytes.saturating_add(other.total_bytes),
        free_bytes: one.free_bytes.saturating_add(other.free_bytes),
        available_bytes: one.available_bytes.saturating_add(other.available_bytes),
        inode_count: one.inode_count.saturating_add(other.inode_count),
        inode_free_count: one.inode_free_count.saturating_add(other.inode_free_count),
        lane_count: one.lane_count.saturating_add(other.lane_count),
    }
}
