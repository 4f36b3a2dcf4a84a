//! What the screen shows: the servers as they were at their last intervals, and what was chosen by keys.

use super::alerts::{Finding, Thresholds, judge};
use super::interval::Interval;
use super::tables::Panel;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An alert stays on the screen for so long after it was last true.
const ALERT_STAYS: Duration = Duration::from_secs(10);

/// A server as it is shown.
#[derive(Clone)]
pub(super) struct Server {
    /// Of a mount, its directory.
    pub(super) address: String,
    pub(super) is_mount: bool,
    /// Its build; known of servers of this machine.
    pub(super) version: Option<String>,
    pub(super) interval: Option<Interval>,
    /// When it last answered.
    pub(super) answered_at: Instant,
    /// Why it does not answer, as far as that is known.
    pub(super) lost: Option<String>,
    pub(super) alerts: Vec<Alert>,
}

/// A finding that is true, or was not long ago.
#[derive(Clone)]
pub(super) struct Alert {
    pub(super) finding: Finding,
    pub(super) seen_at: Instant,
}

impl Server {
    pub(super) fn new(address: String, version: Option<String>, now: Instant) -> Self {
        let (interval, lost, alerts, is_mount) = (None, None, Vec::new(), false);
        Self { address, is_mount, version, interval, answered_at: now, lost, alerts }
    }

    /// It has answered.
    fn set(&mut self, interval: Interval, thresholds: &Thresholds, now: Instant) {
        for finding in judge(&interval, thresholds) {
            let is_same = |alert: &&mut Alert| {
                let known = &alert.finding;
                (known.cause, &known.about) == (finding.cause, &finding.about)
            };
            match self.alerts.iter_mut().find(is_same) {
                Some(known) => *known = Alert { finding, seen_at: now },
                None => self.alerts.push(Alert { finding, seen_at: now }),
            }
        }
        self.alerts.retain(|alert| now < alert.seen_at + ALERT_STAYS);
        (self.answered_at, self.lost, self.interval) = (now, None, Some(interval));
    }
}

/// What the screen shows.
pub(super) struct App {
    /// As they are now.
    fresh: Vec<Server>,
    /// As they were when the screen was frozen, and when that was, on the clock.
    frozen: Option<(Vec<Server>, Instant, String)>,
    thresholds: Thresholds,
    pub(super) interval: Duration,
    pub(super) selected: usize,
    pub(super) panel: Panel,
    /// Of each panel: the column, and whether the largest is first.
    orders: [(usize, bool); Panel::ALL.len()],
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    /// Rows above the first one that is shown.
    pub(super) scroll: usize,
    /// Hot directories and files are shown, and so asked for.
    wants_hot: Arc<AtomicBool>,
}

/// What follows a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    GoOn,
    Quit,
}

impl App {
    pub(super) fn new(
        fresh: Vec<Server>,
        thresholds: Thresholds,
        interval: Duration,
        wants_hot: Arc<AtomicBool>,
    ) -> Self {
        Self {
            fresh,
            frozen: None,
            thresholds,
            interval,
            selected: 0,
            panel: Panel::Lanes,
            orders: Panel::ALL.map(Panel::first_order),
            filter: String::new(),
            is_typing: false,
            has_help: false,
            scroll: 0,
            wants_hot,
        }
    }

    /// The panels of what is selected, in the order of their keys.
    pub(super) fn panels(&self) -> &'static [Panel] {
        let is_mount = self.servers().get(self.selected).is_some_and(|server| server.is_mount);
        if is_mount { Panel::OF_MOUNT } else { Panel::OF_SERVER }
    }

    /// The servers that are shown.
    pub(super) fn servers(&self) -> &[Server] {
        self.frozen.as_ref().map_or(&self.fresh, |(servers, ..)| servers)
    }

    /// When the screen was frozen, if it is.
    pub(super) fn frozen_at(&self) -> Option<(Instant, &str)> {
        self.frozen.as_ref().map(|(_, at, clock)| (*at, clock.as_str()))
    }

    /// A server has answered. Returns what is wrong with it.
    pub(super) fn on_sample(
        &mut self,
        index: usize,
        interval: Interval,
        now: Instant,
    ) -> Vec<Finding> {
        let Some(server) = self.fresh.get_mut(index) else { return Vec::new() };
        server.set(interval, &self.thresholds, now);
        let alerts = server.alerts.iter().filter(|alert| alert.seen_at == now);
        alerts.map(|alert| alert.finding.clone()).collect()
    }

    /// A server is lost.
    pub(super) fn on_lost(&mut self, index: usize, why: String) {
        if let Some(server) = self.fresh.get_mut(index) {
            server.lost = Some(why);
        }
    }

    /// The order of a panel.
    pub(super) fn order(&self, panel: Panel) -> (usize, bool) {
        self.orders[panel as usize]
    }

    /// A key was pressed; `clock`: the time of day.
    pub(super) fn on_key(&mut self, key: KeyEvent, now: Instant, clock: &str) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::GoOn;
        }
        let controlled = key.modifiers.contains(KeyModifiers::CONTROL);
        if controlled && matches!(key.code, KeyCode::Char('c')) {
            return Next::Quit;
        }
        if self.is_typing {
            self.on_filter_key(key.code);
            return Next::GoOn;
        }
        if std::mem::take(&mut self.has_help) {
            return Next::GoOn;
        }
        self.on_command_key(key.code, now, clock)
    }

    fn on_filter_key(&mut self, code: KeyCode) {
        self.scroll = 0;
        // Other keys do nothing here.
        #[expect(clippy::wildcard_enum_match_arm, reason = "a keyboard has many keys")]
        match code {
            KeyCode::Char(typed) => self.filter.push(typed),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }

    fn on_command_key(&mut self, code: KeyCode, now: Instant, clock: &str) -> Next {
        let index = self.panel as usize;
        let panels = self.panels();
        let at = panels.iter().position(|panel| *panel == self.panel).unwrap_or(0);
        let step = |by: usize| panels[(at + by) % panels.len()];
        #[expect(clippy::wildcard_enum_match_arm, reason = "a keyboard has many keys")]
        match code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Tab => self.show(step(1)),
            KeyCode::BackTab => self.show(step(panels.len() - 1)),
            KeyCode::Char(digit @ '1'..='9') => {
                let number = digit.to_digit(10).and_then(|it| usize::try_from(it).ok());
                let panel = panels.get(number.unwrap_or(1) - 1);
                self.show(*panel.unwrap_or(&self.panel));
            }
            // The screen knows how many columns there are.
            KeyCode::Char('s') => self.orders[index] = (self.orders[index].0 + 1, true),
            KeyCode::Char('r') => self.orders[index].1 = !self.orders[index].1,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char(' ') => {
                self.frozen = match self.frozen {
                    None => Some((self.fresh.clone(), now, clock.to_owned())),
                    Some(_) => None,
                };
            }
            KeyCode::Right => self.select((self.selected + 1) % self.fresh.len().max(1)),
            KeyCode::Left => {
                let count = self.fresh.len().max(1);
                self.select((self.selected + count - 1) % count);
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        Next::GoOn
    }

    fn show(&mut self, panel: Panel) {
        (self.panel, self.scroll) = (panel, 0);
        self.wants_hot.store(panel == Panel::Hot, Ordering::Relaxed);
    }

    fn select(&mut self, index: usize) {
        self.selected = index;
        if !self.panels().contains(&self.panel) {
            self.show(Panel::Lanes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use library::Snapshot;
    use library::counters::{By, Label, Metric, Row, Value};

    fn app(now: Instant) -> App {
        let servers = ["a:1", "b:1"].map(|at| Server::new(at.to_owned(), None, now));
        let second = Duration::from_secs(1);
        App::new(servers.into(), Thresholds::with(&[]), second, Arc::default())
    }

    fn press(app: &mut App, now: Instant, codes: impl IntoIterator<Item = KeyCode>) -> Next {
        let mut next = Next::GoOn;
        for code in codes {
            next = app.on_key(KeyEvent::new(code, KeyModifiers::NONE), now, "12:00:00");
        }
        next
    }

    fn failed_disk() -> Interval {
        let mut row = Row { labels: vec![(Label::Lane, "0".to_owned())], values: Vec::new() };
        row.set(Metric::LogFailed, Value::Number(1));
        let mut now = Snapshot::default();
        now.section_mut(By::Lane).rows.push(row);
        Interval::between(&[], &[now], Duration::from_secs(1))
    }

    fn nothing() -> Interval {
        Interval::between(&[], &[], Duration::from_secs(1))
    }

    #[test]
    fn an_alert_stays_for_a_while() {
        let begin = Instant::now();
        let mut app = app(begin);
        assert_eq!(app.on_sample(0, failed_disk(), begin).len(), 1);
        let soon = begin + Duration::from_secs(1);
        assert_eq!(app.on_sample(0, nothing(), soon), []);
        assert_eq!((app.servers()[0].alerts.len(), app.servers()[1].alerts.len()), (1, 0));
        app.on_sample(0, nothing(), begin + ALERT_STAYS);
        assert!(app.servers()[0].alerts.is_empty());
    }

    #[test]
    fn a_frozen_screen_shows_what_was_until_it_goes_on() {
        let now = Instant::now();
        let mut app = app(now);
        press(&mut app, now, [KeyCode::Char(' ')]);
        app.on_sample(0, failed_disk(), now);
        app.on_lost(1, "away".to_owned());
        assert!(app.servers()[0].interval.is_none() && app.servers()[1].lost.is_none());
        press(&mut app, now, [KeyCode::Char(' ')]);
        assert!(app.servers()[0].interval.is_some() && app.servers()[1].lost.is_some());
    }

    #[test]
    fn a_filter_takes_all_keys_until_it_is_entered_or_left() {
        let now = Instant::now();
        let mut app = app(now);
        let typed = ['/', 'q', 's', '1', 'x'].map(KeyCode::Char);
        assert_eq!(press(&mut app, now, typed), Next::GoOn);
        press(&mut app, now, [KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((app.filter.as_str(), app.is_typing), ("qs1", false));
        press(&mut app, now, [KeyCode::Char('/'), KeyCode::Esc]);
        assert_eq!((app.filter.as_str(), app.is_typing), ("", false));
        assert_eq!(press(&mut app, now, [KeyCode::Char('q')]), Next::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        app.is_typing = true;
        assert_eq!(app.on_key(interrupt, now, ""), Next::Quit);
    }

    #[test]
    fn a_mount_has_panels_of_its_own_and_what_is_hot_is_asked_for_while_it_is_shown() {
        let now = Instant::now();
        let mut app = app(now);
        app.fresh[1].is_mount = true;
        press(&mut app, now, [KeyCode::Char('3')]);
        assert_eq!(app.panel, Panel::Clients);
        press(&mut app, now, [KeyCode::Right]);
        assert_eq!(app.panel, Panel::Lanes, "a mount has no clients");
        press(&mut app, now, [KeyCode::Char('5')]);
        assert!(app.panel == Panel::Hot && app.wants_hot.load(Ordering::Relaxed));
        press(&mut app, now, [KeyCode::Char('3')]);
        assert!(app.panel == Panel::Exchanges && !app.wants_hot.load(Ordering::Relaxed));
        press(&mut app, now, [KeyCode::Char('9')]);
        assert_eq!(app.panel, Panel::Exchanges, "there is no ninth");
    }

    #[test]
    fn panels_orders_and_servers_are_chosen_by_keys() {
        let now = Instant::now();
        let mut app = app(now);
        press(&mut app, now, [KeyCode::Char('3')]);
        assert_eq!(app.panel, Panel::Clients);
        press(&mut app, now, [KeyCode::Char('s'), KeyCode::Char('r')]);
        assert_eq!(app.order(Panel::Clients), (4, false));
        press(&mut app, now, [KeyCode::Tab, KeyCode::Right]);
        assert_eq!((app.panel, app.selected), (Panel::Exports, 1));
        press(&mut app, now, [KeyCode::Right, KeyCode::Left, KeyCode::BackTab]);
        assert_eq!((app.panel, app.selected), (Panel::Clients, 1));
        // The key that ends the help does nothing else.
        press(&mut app, now, [KeyCode::Char('?'), KeyCode::Char('q')]);
        assert!(!app.has_help);
    }
}
