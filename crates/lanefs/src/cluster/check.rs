//! `lanefs check` of the stores of a cluster's servers: one alone, some of them, or all.
//!
//! No server may have them open. What lies on servers whose stores are not named is not judged, and that is said.

use crate::address::StorePlace;
use crate::check::{Stdout, as_finding, print_outcome, sum_up};
use crate::exit::{Code, Exit};
use crate::progress::Progress;
use crate::{args, out};
use anyhow::{Result, bail};
use check::{Depth, Finding, Outcome, Severity, check_part};
use disk::{Member, Superblock};
use std::path::{Path, PathBuf};
use store::View;

/// A store, and whose it is.
struct MemberStore {
    path: PathBuf,
    superblock: Superblock,
    member: Member,
}

/// Whether such stores are meant.
pub(crate) fn is_meant(args: &args::Check) -> bool {
    let is_member = |path: &Path| {
        store::superblock_and_key(path).is_ok_and(|(superblock, _)| superblock.member.is_some())
    };
    args.cluster || !args.more.is_empty() || is_member(&args.store)
}

/// Checks the stores that were named.
pub(crate) fn run(args: &args::Check) -> Result<()> {
    if args.repair {
        let line = "--repair mends the store of a whole file system; that of a server in a cluster is checked only";
        bail!(Exit::usage(line));
    }
    let stores = stores(args)?;
    let depth = if args.skip_contents { Depth::Metadata } else { Depth::Contents };
    let mut progress = Progress::new();
    let checked = look(&stores, depth, args.cluster, &mut progress);
    progress.end();
    let outcome = checked.or_else(|(error, path)| as_finding(error, &path))?;
    if args.cluster && outcome.elsewhere_count > 0 {
        bail!(
            "{} names lead to servers whose stores were not named: --cluster needs those of all servers",
            outcome.elsewhere_count
        );
    }
    let mut out = Stdout;
    print_outcome(&outcome, args.json, &mut out)?;
    sum_up(&outcome, &[], args.json, &mut out)?;
    if !args.cluster {
        out::print_error_line(&not_judged(&stores, &outcome));
    }
    let wrong = |finding: &Finding| finding.severity > Severity::Info;
    match outcome.findings.iter().any(wrong) {
        true => Err(Exit::said(Code::Damaged).into()),
        false => Ok(()),
    }
}

fn stores(args: &args::Check) -> Result<Vec<MemberStore>> {
    let mut stores = Vec::new();
    for path in std::iter::once(&args.store).chain(&args.more) {
        let StorePlace::Dir(path) = StorePlace::read(path)? else {
            let line = format!(
                "{} is no directory: several stores are checked where they are",
                path.display()
            );
            bail!(Exit::usage(line));
        };
        let (superblock, _) = store::superblock_and_key(&path)?;
        let Some(member) = superblock.member else {
            let line = format!("{} is no store of a cluster: it is checked alone", path.display());
            bail!(Exit::usage(line));
        };
        stores.push(MemberStore { path, superblock, member });
    }
    stores.sort_by_key(|store| store.member.server);
    for pair in stores.windows(2) {
        let [one, other] = pair else { continue };
        let (shown, other_shown) = (one.path.display(), other.path.display());
        if one.superblock.fs != other.superblock.fs {
            bail!("{shown} and {other_shown} are of different file systems");
        }
        if one.member.server == other.member.server {
            bail!("{shown} and {other_shown} are both of server {}", one.member.server);
        }
    }
    if args.cluster {
        check_whole(&stores)?;
    }
    Ok(stores)
}

/// Servers have their shards in the order in which they joined.
fn check_whole(stores: &[MemberStore]) -> Result<()> {
    let mut next = (0, 0);
    for store in stores {
        let Member { server, first_meta, first_data, .. } = store.member;
        if (first_meta, first_data) != next {
            bail!(
                "a server before server {server} has shards that are in none of these stores: --cluster \
                 needs those of all servers"
            );
        }
        let counts = store.superblock.shard_counts();
        next = (first_meta.saturating_add(counts.meta), first_data.saturating_add(counts.data));
    }
    Ok(())
}

/// An error comes with the store that it is about.
fn look(
    stores: &[MemberStore],
    depth: Depth,
    is_whole: bool,
    progress: &mut Progress,
) -> Result<Outcome, (anyhow::Error, PathBuf)> {
    let mut views = Vec::new();
    for MemberStore { path, .. } in stores {
        let failed = |error: store::StoreError| (error.into(), path.clone());
        let view = View::open_member(path).map_err(failed)?;
        view.check_parts().map_err(failed)?;
        views.push(view);
    }
    let first = views.remove(0);
    let path = first.path().to_owned();
    let view = first.with_others(views);
    check_part(&view, depth, is_whole, progress).map_err(|error| (error.into(), path))
}

/// What those who read the findings must know.
fn not_judged(stores: &[MemberStore], outcome: &Outcome) -> String {
    let servers: Vec<String> = stores.iter().map(|store| store.member.server.to_string()).collect();
    format!(
        "of the cluster's servers only {} {} checked: not judged were {} names of what is on others, and names, \
         links and contents that others have of what is here. With the stores of all servers on one host: \
         lanefs check --cluster STORE...",
        servers.join(", "),
        if servers.len() == 1 { "was" } else { "were" },
        outcome.elsewhere_count
    )
}
