//! The output of `up`: plain lines, or one small screen that stays in place on a terminal.

use super::child::{ChildEvent, Role, own_address};
use super::place::Place;
use super::plan::{EXPORT, Plan};
use super::rates::Rates;
use crate::{address, log, out, secret};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use library::{ConnectOptions, DriverChoice, Identity, Stats, Volume};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tracing::info;
use wire::{LeaseCounts, ObjectCounts, PeerCounts, RecoveryCounts, ReplyGatingCounts};

/// The mouth of `up`.
pub(crate) struct Screen {
    /// On a terminal, the part that stays in place.
    live: Option<Live>,
    /// What happens goes to the log.
    in_background: bool,
}

struct Live {
    bar: ProgressBar,
    facts: Vec<(String, String)>,
    /// Of each server.
    rates: BTreeMap<String, Rates>,
}

impl Screen {
    /// A live one on a terminal, unless we run in the background.
    pub(crate) fn new(plan: &Plan) -> Self {
        let in_background = plan.log.is_some();
        if in_background || !std::io::stdout().is_terminal() {
            return Self { live: None, in_background };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        let above = bar.clone();
        log::write_through(move |line| {
            // There is no place left to say that stderr is closed.
            let _unread = above.suspend(|| std::io::stderr().lock().write_all(line));
        });
        Self { live: Some(Live { bar, facts: Vec::new(), rates: BTreeMap::new() }), in_background }
    }

    /// Whether rates are shown.
    pub(crate) const fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// A fact that stays true: printed once, or kept on the screen. A later one of the same name
    /// takes its place there.
    pub(crate) fn fact(&mut self, name: &str, value: &str) {
        let Some(live) = &mut self.live else {
            out::print_line(&format!("{name} {value}"));
            return;
        };
        match live.facts.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => live.facts.push((name.to_owned(), value.to_owned())),
        }
        live.draw();
    }

    /// Something that happened.
    pub(crate) fn say(&self, line: &str) {
        match &self.live {
            Some(live) => live.bar.suspend(|| out::print_line(line)),
            None if self.in_background => info!("{line}"),
            None => out::print_line(line),
        }
    }

    /// What a server does now.
    pub(crate) fn rates(&mut self, server: Role, rates: Rates) {
        if let Some(live) = &mut self.live {
            live.rates.insert(server.text(), rates);
            live.draw();
        }
    }

    /// Ends the live part, leaving what it shows.
    pub(crate) fn end(&mut self) {
        if let Some(live) = self.live.take() {
            live.bar.abandon();
        }
    }
}

impl Live {
    fn draw(&self) {
        let width = self.facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut lines: Vec<String> = Vec::with_capacity(self.facts.len() + 1);
        let head = |name: &str| format!("{name:width$}  ");
        lines.extend(self.facts.iter().map(|(name, value)| folded(&head(name), value, " ")));
        if let Some(rates) = self.rates.values().copied().reduce(Rates::and) {
            lines.push(folded(&head("now"), &rates_text(&rates), ", "));
        }
        self.bar.set_message(lines.join("\n"));
        self.bar.tick();
    }
}

/// Columns of a line on the screen, at most where a word fits there.
const COLUMN_COUNT_MAX: usize = 80;

/// `head` and `value`, which goes on below itself, behind a `separator`, where the line is full.
fn folded(head: &str, value: &str, separator: &str) -> String {
    let mut text = head.to_owned();
    let mut column_count = head.chars().count();
    for word in value.split_inclusive(separator) {
        let word_count = word.trim_end().chars().count();
        if column_count + word_count > COLUMN_COUNT_MAX && column_count > head.chars().count() {
            text.truncate(text.trim_end().len());
            text.push_str(&format!("\n{:1$}", "", head.chars().count()));
            column_count = head.chars().count();
        }
        text.push_str(word);
        column_count += word.chars().count();
    }
    text
}

fn rates_text(rates: &Rates) -> String {
    // The rates are small and not negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
    let bytes = |per_s: f64| HumanBytes(per_s as u64).to_string();
    format!(
        "{:.0} ops/s, {:.0} changes/s, read {}/s, written {}/s, {} inodes, {} lanes, \
         {:.0} % of a core",
        rates.requests_per_s,
        rates.changes_per_s,
        bytes(rates.read_bytes_per_s),
        bytes(rates.written_bytes_per_s),
        rates.inode_count,
        rates.lane_count,
        rates.cpu_percent,
    )
}

/// The command that mounts the same file system a second time.
pub(crate) fn second_mount(plan: &Plan) -> String {
    let program = program_text();
    let mut line =
        format!("{program} mount {} OTHER-DIR --export {EXPORT}", own_address(&plan.first));
    let usual = secret::path(None).ok();
    if usual.as_deref() != Some(plan.secret_file.as_path()) {
        line.push_str(&format!(" --secret-file {}", plan.secret_file.display()));
    }
    for text in plan.seal.texts() {
        line.push_str(&format!(" {text}"));
    }
    line
}

/// `lanefs` where the shell finds this program by that name, else its path.
fn program_text() -> String {
    let Ok(me) = std::env::current_exe() else { return "lanefs".to_owned() };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("lanefs"));
    let on_path = found.into_iter().find(|path| path.exists());
    let same = on_path.and_then(|path| path.canonicalize().ok()).is_some_and(|path| path == me);
    if same { "lanefs".to_owned() } else { me.display().to_string() }
}

/// Reads a server's counters once a second, on a thread of its own, until the receiver is dropped.
pub(crate) fn watch_rates((role, place): (Role, &Place), plan: &Plan, events: Sender<ChildEvent>) {
    let Ok(address) = address::resolve(&own_address(place)) else { return };
    let Ok(secret) = secret::read(&plan.secret_file) else { return };
    let options = ConnectOptions {
        address,
        secret,
        secret_file: Some(plan.secret_file.clone()),
        export: EXPORT.to_owned(),
        purpose: library::Purpose::Use,
        identity: Identity::of_process(),
        connect_timeout: Duration::from_secs(5),
        driver: DriverChoice::Auto,
        sealing: plan.seal.sealing(),
        certificates: None,
    };
    let thread = std::thread::Builder::new().name("rates".to_owned());
    // Without the thread there are no rates, and nothing else is lost.
    let _no_rates = thread.spawn(move || watch(role, &options, &events));
}

fn watch(role: Role, options: &ConnectOptions, events: &Sender<ChildEvent>) {
    loop {
        if let Ok(mut volume) = Volume::connect(options)
            && !watch_volume(role, &mut volume, events)
        {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns whether the receiver still exists.
fn watch_volume(role: Role, volume: &mut Volume, events: &Sender<ChildEvent>) -> bool {
    let mut before: Option<(Instant, Stats)> = None;
    let mut asked_count = 0;
    while let Ok(lanes) = volume.stats() {
        let now = Instant::now();
        // Our own question, one to each lane, is not what people want to see.
        asked_count += lanes.len() as u64;
        let mut sum = sum(&lanes);
        sum.request_count = sum.request_count.saturating_sub(asked_count);
        if let Some((then, old)) = before {
            let rates = rates_between(&old, &sum, now.duration_since(then), lanes.len());
            if events.send(ChildEvent::Rates(role, rates)).is_err() {
                return false;
            }
        }
        before = Some((now, sum));
        std::thread::sleep(Duration::from_secs(1));
    }
    true
}

fn rates_between(old: &Stats, new: &Stats, elapsed: Duration, lane_count: usize) -> Rates {
    let per_s = |old: u64, new: u64| {
        // A server that was started again counts from 0.
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let count = new.saturating_sub(old) as f64;
        count / elapsed.as_secs_f64().max(0.001)
    };
    Rates {
        lane_count,
        requests_per_s: per_s(old.request_count, new.request_count),
        changes_per_s: per_s(old.change_count, new.change_count),
        read_bytes_per_s: per_s(old.read_bytes, new.read_bytes),
        written_bytes_per_s: per_s(old.written_bytes, new.written_bytes),
        inode_count: new.inode_count,
        cpu_percent: per_s(old.cpu_ns, new.cpu_ns) * 100.0 / 1e9,
    }
}

/// The lanes' counters together.
fn sum(lanes: &[Stats]) -> Stats {
    let sum = |field: fn(&Stats) -> u64| lanes.iter().map(field).sum();
    // Each lane reports the usage of the whole process; the last reply is the latest.
    let last = |field: fn(&Stats) -> u64| lanes.last().map_or(0, field);
    Stats {
        request_count: sum(|lane| lane.request_count),
        change_count: sum(|lane| lane.change_count),
        batch_count: sum(|lane| lane.batch_count),
        deferred_count: sum(|lane| lane.deferred_count),
        from_slot_count: sum(|lane| lane.from_slot_count),
        turn_count: sum(|lane| lane.turn_count),
        read_bytes: sum(|lane| lane.read_bytes),
        written_bytes: sum(|lane| lane.written_bytes),
        conn_count: sum(|lane| lane.conn_count),
        protocol_error_count: sum(|lane| lane.protocol_error_count),
        inode_count: sum(|lane| lane.inode_count),
        cpu_ns: last(|lane| lane.cpu_ns),
        voluntary_switch_count: last(|lane| lane.voluntary_switch_count),
        involuntary_switch_count: last(|lane| lane.involuntary_switch_count),
        syscall_count: sum(|lane| lane.syscall_count),
        clock_read_count: sum(|lane| lane.clock_read_count),
        message_out_count: sum(|lane| lane.message_out_count),
        send_count: sum(|lane| lane.send_count),
        spin_count: sum(|lane| lane.spin_count),
        spin_hit_count: sum(|lane| lane.spin_hit_count),
        turn_ns_max: lanes.iter().map(|lane| lane.turn_ns_max).max().unwrap_or(0),
        reply_gating: gates(lanes),
        recovery: recovery(lanes),
        objects: objects(lanes),
        peers: peers(lanes),
        leases: leases(lanes),
    }
}

/// The lanes' counters of leases together.
pub(crate) fn leases(lanes: &[Stats]) -> LeaseCounts {
    let sum = |field: fn(&LeaseCounts) -> u64| lanes.iter().map(|lane| field(&lane.leases)).sum();
    LeaseCounts {
        held_count: sum(|leases| leases.held_count),
        granted_count: sum(|leases| leases.granted_count),
        recalled_count: sum(|leases| leases.recalled_count),
        expired_count: sum(|leases| leases.expired_count),
        refused_hot_count: sum(|leases| leases.refused_hot_count),
        refused_share_count: sum(|leases| leases.refused_share_count),
        ping_count: sum(|leases| leases.ping_count),
        wait_count: sum(|leases| leases.wait_count),
    }
}

fn peers(lanes: &[Stats]) -> PeerCounts {
    let sum = |field: fn(&PeerCounts) -> u64| lanes.iter().map(|lane| field(&lane.peers)).sum();
    PeerCounts {
        sent_count: sum(|peers| peers.sent_count),
        resent_count: sum(|peers| peers.resent_count),
        repeated_count: sum(|peers| peers.repeated_count),
        refused_count: sum(|peers| peers.refused_count),
    }
}

/// What was under way at a time is each lane's own.
fn objects(lanes: &[Stats]) -> ObjectCounts {
    let each = || lanes.iter().map(|lane| lane.objects);
    let sum = |field: fn(&ObjectCounts) -> u64| each().map(|lane| field(&lane)).sum();
    let most = |field: fn(&ObjectCounts) -> u64| each().map(|lane| field(&lane)).max();
    ObjectCounts {
        handed_count: sum(|lane| lane.handed_count),
        thread_count: sum(|lane| lane.thread_count),
        under_way_max: most(|lane| lane.under_way_max).unwrap_or(0),
        under_way_one_max: most(|lane| lane.under_way_one_max).unwrap_or(0),
        damage_count: sum(|objects| objects.damage_count),
    }
}

fn gates(lanes: &[Stats]) -> ReplyGatingCounts {
    let sum = |field: fn(&ReplyGatingCounts) -> u64| {
        lanes.iter().map(|lane| field(&lane.reply_gating)).sum()
    };
    ReplyGatingCounts {
        deferred_own_count: sum(|gates| gates.deferred_own_count),
        deferred_foreign_count: sum(|gates| gates.deferred_foreign_count),
        deferred_strict_count: sum(|gates| gates.deferred_strict_count),
        deferred_self_count: sum(|gates| gates.deferred_self_count),
        released_count: sum(|gates| gates.released_count),
        token_count: sum(|gates| gates.token_count),
        commit_notification_count: sum(|gates| gates.commit_notification_count),
    }
}

/// Lanes recover side by side, so together they take as long as the slowest.
fn recovery(lanes: &[Stats]) -> RecoveryCounts {
    let each = || lanes.iter().map(|lane| lane.recovery);
    let sum = |field: fn(&RecoveryCounts) -> u64| each().map(|lane| field(&lane)).sum();
    RecoveryCounts {
        known_count: sum(|lane| lane.known_count),
        returned_count: sum(|lane| lane.returned_count),
        evicted_count: sum(|lane| lane.evicted_count),
        replayed_count: sum(|lane| lane.replayed_count),
        already_durable_count: sum(|lane| lane.already_durable_count),
        rejected_count: sum(|lane| lane.rejected_count),
        forged_count: sum(|lane| lane.forged_count),
        lost_durable_count: sum(|lane| lane.lost_durable_count),
        recovery_ms: each().map(|lane| lane.recovery_ms).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_does_fits_eighty_columns() {
        let rates = Rates {
            lane_count: 64,
            requests_per_s: 12_345_678.0,
            changes_per_s: 12_345_678.0,
            read_bytes_per_s: 1e12,
            written_bytes_per_s: 1e12,
            inode_count: u64::MAX,
            cpu_percent: 6400.0,
        };
        for head in ["now  ", "now            "] {
            let text = folded(head, &rates_text(&rates), ", ");
            assert!(text.lines().all(|line| line.chars().count() <= COLUMN_COUNT_MAX), "{text}");
            assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
            assert!(text.contains("12345678 ops/s") && text.ends_with("of a core"), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_longer_is_shown_whole() {
        let path = format!("/{}", "long".repeat(30));
        assert_eq!(folded("store  ", &path, " "), format!("store  {path}"));
        let text = folded("mounted  ", &format!("{path} over /dev/fuse"), " ");
        assert_eq!(text, format!("mounted  {path}\n         over /dev/fuse"));
    }
}
