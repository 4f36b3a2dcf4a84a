//! What clients, exports and jobs have used. An open connection has its own tally
//! ([`crate::connections::Served`]), which is added to the accounts when it ends.
//!
//! Invariant: the number of accounts is bounded. A new one takes the place of an idle one of the party
//! that has most of them, the one that has been idle for the longest time, which is added to the
//! others: so who invents names pushes out its own. While none is idle, the new one is itself counted
//! among the others.

use crate::connections::{Open, Used};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use interface::Party;
use wire::ClientUuid;
use wire::counters::{By, Label, Metric, OTHERS, Row, Tally};

/// Most clients with accounts of their own.
pub(crate) const CLIENT_COUNT_MAX: usize = 256;
/// Most exports with accounts of their own.
const EXPORT_COUNT_MAX: usize = 64;

/// Most jobs with accounts of their own.
const JOB_COUNT_MAX: usize = 64;

/// The labels of a row.
pub(super) type Labels = Vec<(Label, String)>;

/// Who a connection is, for people.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// The uuid that the client reports.
    pub(crate) client: ClientUuid,
    /// The name of its host.
    pub(crate) host: String,
    /// The export's name; empty for administration.
    pub(crate) export: String,
    /// What it is used for.
    pub(crate) job: String,
}

/// The accounts of a lane.
#[derive(Debug)]
pub(crate) struct Accounts {
    clients: Ledger<ClientUuid>,
    /// By number.
    exports: Ledger<u64>,
    jobs: Ledger<String>,
    /// Replies to connections that had ended.
    ended: Tally,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            clients: Ledger::new(Label::Client, CLIENT_COUNT_MAX),
            exports: Ledger::new(Label::Export, EXPORT_COUNT_MAX),
            jobs: Ledger::new(Label::Job, JOB_COUNT_MAX),
            ended: Tally::default(),
        }
    }
}

impl Accounts {
    /// A connection opens.
    pub(crate) fn open(&mut self, open: &Open, name: &Name) {
        let Name { client, host, export, job } = name;
        let uuid = format!("{:032x}", u128::from_be_bytes(client.0));
        let export = (Label::Export, export.clone());
        let of_job = (Label::Job, job.clone());
        let of_client = [(Label::Client, uuid), (Label::Host, host.clone())];
        self.clients.open(&open.client, open.party, || {
            of_client.into_iter().chain([export.clone(), of_job.clone()]).collect()
        });
        self.exports.open(&open.binding.export_no, open.party, || [export.clone()].into());
        self.jobs.open(job, open.party, || [of_job.clone()].into());
    }

    /// A connection ends.
    pub(crate) fn close(&mut self, Used { open, job, tally }: Used<'_>) {
        self.clients.close(&open.client, tally);
        self.exports.close(&open.binding.export_no, tally);
        self.jobs.close(job, tally);
    }

    /// The labels of a client that has an account of its own.
    pub(super) fn labels_of(&self, client: &ClientUuid) -> Option<&Labels> {
        self.clients.accounts.get(client).map(|account| &account.labels)
    }

    /// Adds to the rows of clients how many connections each has.
    pub(super) fn set_connections<'a>(
        &self,
        used: impl Iterator<Item = Used<'a>>,
        rows: &mut [Row],
    ) {
        let mut conn_counts: BTreeMap<&ClientUuid, u64> = BTreeMap::new();
        used.for_each(|used| *conn_counts.entry(&used.open.client).or_default() += 1);
        // Rows of clients are in the order of their accounts.
        for ((client, _), row) in self.clients.accounts.iter().zip(rows) {
            let conn_count = conn_counts.get(client).copied().unwrap_or(0);
            row.set_numbers(&[(Metric::Connections, conn_count)]);
        }
    }

    /// What a client's account says of it.
    pub(crate) fn label(&self, client: ClientUuid, label: Label) -> Option<&str> {
        let labels = &self.clients.accounts.get(&client)?.labels;
        labels.iter().find(|(at, _)| *at == label).map(|(_, text)| text.as_str())
    }

    /// Replies to connections that have ended.
    pub(crate) const fn ended(&mut self) -> &mut Tally {
        &mut self.ended
    }

    /// The rows of clients, exports and jobs, with what the open connections have used so far.
    pub(super) fn rows<'a>(
        &self,
        used: impl Iterator<Item = Used<'a>> + Clone,
    ) -> [(By, Vec<(Labels, Tally)>); 3] {
        let clients = used.clone().map(|used| (&used.open.client, used.tally));
        let exports = used.clone().map(|used| (&used.open.binding.export_no, used.tally));
        let jobs = used.map(|used| (used.job, used.tally));
        [
            (By::Client, self.clients.rows(clients, &self.ended)),
            (By::Export, self.exports.rows(exports, &self.ended)),
            (By::Job, self.jobs.rows(jobs, &self.ended)),
        ]
    }
}

/// An account.
#[derive(Debug)]
struct Account {
    labels: Labels,
    /// The first one that used it.
    party: Party,
    /// Of connections that have ended.
    tally: Tally,
    conn_count: usize,
    /// Rises with every connection that ends.
    left_no: u64,
}

/// Accounts of one kind.
#[derive(Debug)]
struct Ledger<K> {
    accounts: BTreeMap<K, Account>,
    others: Tally,
    others_label: Label,
    left_no_last: u64,
    count_max: usize,
}

impl<K: Clone + Ord> Ledger<K> {
    fn new(others_label: Label, count_max: usize) -> Self {
        let (accounts, others) = (BTreeMap::new(), Tally::default());
        Self { accounts, others, others_label, left_no_last: 0, count_max }
    }

    fn open(&mut self, key: &K, party: Party, labels: impl FnOnce() -> Labels) {
        if !self.accounts.contains_key(key) {
            if self.accounts.len() >= self.count_max && !self.merge_idle() {
                return;
            }
            let (tally, conn_count, left_no) = (Tally::default(), 0, 0);
            let account = Account { labels: labels(), party, tally, conn_count, left_no };
            self.accounts.insert(key.clone(), account);
        }
        if let Some(account) = self.accounts.get_mut(key) {
            account.conn_count += 1;
        }
    }

    /// Of the party that has most accounts, and an idle one, adds the one that has been idle for the
    /// longest time to the others. Returns whether there was one.
    fn merge_idle(&mut self) -> bool {
        let mut counts: BTreeMap<Party, usize> = BTreeMap::new();
        self.accounts.values().for_each(|it| *counts.entry(it.party).or_default() += 1);
        let idle = self.accounts.iter().filter(|(_, account)| account.conn_count == 0);
        let first = idle.min_by_key(|(_, account)| {
            let count = counts.get(&account.party).copied().unwrap_or(0);
            (Reverse(count), account.left_no)
        });
        let first = first.map(|(key, _)| key.clone());
        let Some(account) = first.and_then(|key| self.accounts.remove(&key)) else {
            return false;
        };
        self.others.add(&account.tally);
        true
    }

    fn close(&mut self, key: &K, tally: &Tally) {
        self.left_no_last += 1;
        let Some(account) = self.accounts.get_mut(key) else { return self.others.add(tally) };
        account.tally.add(tally);
        // It may have been opened without an account.
        account.conn_count = account.conn_count.saturating_sub(1);
        account.left_no = self.left_no_last;
    }

    fn rows<'a>(
        &self,
        used: impl Iterator<Item = (&'a K, &'a Tally)>,
        ended: &Tally,
    ) -> Vec<(Labels, Tally)>
    where
        K: 'a,
    {
        let closed = self.accounts.iter().map(|(key, account)| (key, account.tally));
        let mut tallies: BTreeMap<&K, Tally> = closed.collect();
        let mut others = self.others;
        others.add(ended);
        for (key, tally) in used {
            tallies.get_mut(key).unwrap_or(&mut others).add(tally);
        }
        let labels = self.accounts.values().map(|account| account.labels.clone());
        let mut rows: Vec<_> = labels.zip(tallies.into_values()).collect();
        if others != Tally::default() {
            rows.push(([(self.others_label, String::from(OTHERS))].into(), others));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::string::ToString as _;

    const VICTIM: Party = Party(7);
    const ATTACKER: Party = Party(8);

    fn open(jobs: &mut Ledger<String>, job: &str, party: Party) {
        jobs.open(&job.to_string(), party, || [(Label::Job, job.to_string())].into());
    }

    fn close(jobs: &mut Ledger<String>, job: &str, request_count: u64) {
        jobs.close(&job.to_string(), &Tally { request_count, ..Tally::default() });
    }

    /// The requests of each row.
    fn counts(jobs: &Ledger<String>) -> BTreeMap<String, u64> {
        let rows = jobs.rows(core::iter::empty(), &Tally::default());
        rows.into_iter().map(|(labels, tally)| (labels[0].1.clone(), tally.request_count)).collect()
    }

    #[test]
    fn who_invents_ten_thousand_jobs_grows_nothing_and_pushes_out_nobody_elses() {
        let mut jobs = Ledger::new(Label::Job, JOB_COUNT_MAX);
        open(&mut jobs, "used", VICTIM);
        open(&mut jobs, "over", VICTIM);
        close(&mut jobs, "over", 5);
        for number in 0..10_000 {
            let job = format!("job{number}");
            open(&mut jobs, &job, ATTACKER);
            close(&mut jobs, &job, 1);
            assert!(jobs.accounts.len() <= JOB_COUNT_MAX);
        }
        close(&mut jobs, "used", 7);
        let counted = counts(&jobs);
        assert_eq!(counted.len(), JOB_COUNT_MAX + 1);
        assert_eq!((counted["over"], counted["used"]), (5, 7));
        let own_count = JOB_COUNT_MAX as u64 - 2;
        assert_eq!(counted[OTHERS], 10_000 - own_count);
        assert_eq!(counted.values().sum::<u64>(), 10_012);
    }

    #[test]
    fn while_all_are_in_use_a_new_one_is_counted_among_the_others() {
        let mut jobs = Ledger::new(Label::Job, JOB_COUNT_MAX);
        let names: Vec<String> = (0..10_000).map(|number| format!("job{number}")).collect();
        names.iter().for_each(|job| open(&mut jobs, job, ATTACKER));
        open(&mut jobs, "used", VICTIM);
        assert_eq!(jobs.accounts.len(), JOB_COUNT_MAX);
        close(&mut jobs, "used", 7);
        names.iter().for_each(|job| close(&mut jobs, job, 1));
        let counted = counts(&jobs);
        assert_eq!(counted[OTHERS], 10_007 - JOB_COUNT_MAX as u64);
        // There is an idle one for it now.
        open(&mut jobs, "used", VICTIM);
        close(&mut jobs, "used", 3);
        assert_eq!(counts(&jobs)["used"], 3);
    }
}
