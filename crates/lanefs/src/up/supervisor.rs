//! Runs the servers and a mount, restarts them, and ends them in the right order.
//!
//! ```text
//! Idle ─▶ Running ─▶ (ended) ─▶ Due at a time ─▶ Running ...
//!            └ ended too often, in order, or permanently ─▶ Over
//! ```
//! Invariant: the mount ends before the servers, so that they receive all its changes.

use super::child::{self, Child, ChildEvent, Role};
use super::plan::Plan;
use super::screen::{Screen, second_mount, watch_rates};
use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Kind, Running};
use crate::{background, driver, log, mounts, notify, signals};
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use signal_hook::consts::SIGHUP;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use wire::ClientUuid;

/// Starts in a row that came to nothing, that are too many.
const FAILURE_COUNT_MAX: u32 = 6;
/// A child that did its work this long is started again at once, a shorter-lived one after a pause.
const SETTLED: Duration = Duration::from_secs(5);
/// First pause; doubled with each short life.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause: a child that was ready once is restarted for ever.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the mount may take to end when asked: longer than its own patience, so that it says
/// itself what was not made durable.
const MOUNT_END: Duration = Duration::from_secs(130);
/// How long it may take if there is no server for it.
const MOUNT_END_ALONE: Duration = Duration::from_secs(15);
/// How long a child may take that is asked to give up or was killed.
const GIVE_UP: Duration = Duration::from_secs(5);
/// How long the server may take to end when asked.
const SERVER_END: Duration = Duration::from_secs(60);

/// Where a child stands.
enum State {
    /// Not wanted yet.
    Idle,
    /// Running.
    Running(Child),
    /// To be started then.
    Due(Instant),
    /// Not started any more.
    Over,
}

struct Post {
    state: State,
    /// Starts in a row that never got ready.
    failure_count: u32,
    /// Short lives in a row.
    short_count: u32,
    last_words: String,
}

impl Post {
    const fn new() -> Self {
        let state = State::Idle;
        Self { state, failure_count: 0, short_count: 0, last_words: String::new() }
    }

    const fn running(&self) -> Option<&Child> {
        match &self.state {
            State::Running(child) => Some(child),
            State::Idle | State::Due(_) | State::Over => None,
        }
    }
}

struct Supervisor<'p> {
    plan: &'p Plan,
    screen: Screen,
    events: Receiver<ChildEvent>,
    sender: Sender<ChildEvent>,
    /// The only one, or all.
    servers: Vec<Post>,
    mount: Post,
    /// What the mount that was started last is called at the server,
    client: ClientUuid,
    /// and the one that ran last, whose place the next one takes.
    predecessor: ClientUuid,
    /// The address and the store have been printed.
    announced: bool,
    /// The file system that was served first: no other takes its place, least of all a new one.
    fs: Option<String>,
    /// So was all the rest.
    all_told: bool,
    /// What others find.
    running: Option<Running>,
    /// The mount was unmounted: nothing is left to be kept up.
    unmounted: bool,
    /// Signals that came while it was ending.
    extra_signal_count: u32,
}

/// Runs until a signal asks for the end or nothing can be kept running.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let (sender, events) = channel();
    let on_signal = sender.clone();
    let reloads = !signals::has_terminal();
    signals::on_ending(move |signal| {
        let event =
            if signal == SIGHUP && reloads { ChildEvent::Reload } else { ChildEvent::Signal };
        // Nobody listens any more when everything has ended.
        let _unheard = on_signal.send(event);
    })?;
    let mut supervisor = Supervisor {
        plan,
        screen: Screen::new(plan),
        events,
        sender,
        servers: plan.servers().map(|_| Post::new()).collect(),
        mount: Post::new(),
        client: ClientUuid::NONE,
        predecessor: ClientUuid::NONE,
        announced: false,
        fs: None,
        all_told: false,
        running: None,
        unmounted: false,
        extra_signal_count: 0,
    };
    let outcome = supervisor.keep_running();
    notify::stopping();
    supervisor.end();
    supervisor.screen.end();
    outcome
}

impl Supervisor<'_> {
    fn keep_running(&mut self) -> Result<()> {
        for role in self.server_roles() {
            self.start(role)?;
        }
        while !self.unmounted {
            match self.next()? {
                Some(ChildEvent::Signal) => return Ok(()),
                Some(ChildEvent::Reload) => self.reload(),
                Some(ChildEvent::Line(role, line)) => self.on_line(role, &line)?,
                Some(ChildEvent::Complaint(role, line)) => self.on_complaint(role, &line),
                Some(ChildEvent::Ended(role, status)) => self.on_ended(role, status)?,
                Some(ChildEvent::Rates(role, rates)) => self.screen.rates(role, rates),
                None => self.start_due()?,
            }
        }
        Ok(())
    }

    /// One that is started reads its secret anyway.
    fn reload(&self) {
        notify::reloading();
        for (role, server) in self.server_roles().zip(&self.servers) {
            let Some(server) = server.running() else { continue };
            info!("the {} is asked to read its secret and certificates again", role.text());
            server.signal(Signal::HUP);
        }
        notify::ready_again();
    }

    /// The next event, or `None` when a child is due.
    fn next(&self) -> Result<Option<ChildEvent>> {
        let posts = self.servers.iter().chain([&self.mount]);
        let due = posts.filter_map(|post| match post.state {
            State::Due(at) => Some(at),
            State::Idle | State::Running(_) | State::Over => None,
        });
        let Some(due) = due.min() else { return Ok(Some(self.events.recv()?)) };
        match self.events.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error @ RecvTimeoutError::Disconnected) => Err(error.into()),
        }
    }

    fn post(&mut self, role: Role) -> &mut Post {
        match role {
            Role::Server(number) => &mut self.servers[index(number)],
            Role::Mount => &mut self.mount,
        }
    }

    /// All servers, in order.
    fn server_roles(&self) -> impl Iterator<Item = Role> + use<> {
        let first = u16::from(self.plan.cluster.is_some());
        (first..).zip(0..self.servers.len()).map(|(number, _)| Role::Server(number))
    }

    fn all_serve(&self) -> bool {
        self.servers.iter().all(|server| server.running().is_some_and(|child| child.ready))
    }

    fn start(&mut self, role: Role) -> Result<()> {
        if role == Role::Mount {
            self.clear_stale_mount()?;
        }
        let command = match role {
            Role::Server(number) => {
                let place = self.plan.servers().nth(index(number)).context("no such server")?;
                child::server_command(self.plan, place, self.fs.as_deref())?
            }
            Role::Mount => {
                self.client = ClientUuid(library::random()?);
                child::mount_command(self.plan, self.client, self.predecessor)
            }
        };
        let child = Child::start(role, command, &self.sender)?;
        let post = self.post(role);
        post.state = State::Running(child);
        post.last_words.clear();
        Ok(())
    }

    fn start_due(&mut self) -> Result<()> {
        let now = Instant::now();
        for role in self.server_roles().chain([Role::Mount]) {
            if matches!(self.post(role).state, State::Due(at) if at <= now) {
                self.start(role)?;
            }
        }
        Ok(())
    }

    /// A mount whose process was killed stays in the tree and answers ENOTCONN.
    fn clear_stale_mount(&self) -> Result<()> {
        while mounts::at(&self.plan.dir)?.is_some_and(|mounted| mounted.is_lanefs()) {
            mounts::detach(&self.plan.dir)?;
        }
        Ok(())
    }

    fn on_line(&mut self, role: Role, line: &str) -> Result<()> {
        let post = self.post(role);
        if let State::Running(child) = &mut post.state {
            child.ready = true;
        }
        match role {
            Role::Server(_) => self.on_server_ready(role, line),
            Role::Mount => self.on_mounted(line),
        }
    }

    fn on_server_ready(&mut self, role: Role, line: &str) -> Result<()> {
        if self.announced {
            self.say_again(&role.text(), line);
            return Ok(());
        }
        if !self.all_serve() {
            return Ok(());
        }
        self.announced = true;
        let first = &self.plan.first;
        self.fs = Some(hex::encode(store::identity(&first.store)?.0));
        self.screen.fact("address", &first.address.to_string());
        self.screen.fact("store", &first.store.display().to_string());
        if let Some(cluster) = &self.plan.cluster {
            let addresses: Vec<String> =
                self.plan.servers().map(|server| server.address.to_string()).collect();
            let line = format!("{} at {}", addresses.len(), addresses.join(", "));
            self.screen.fact("servers", &line);
            self.screen.fact("etcd", &cluster.url);
        }
        let lanes = line.rsplit_once(", ").map_or(line, |(_, lanes)| lanes);
        self.screen.fact("lanes", lanes.trim_end_matches(" lanes").trim_end_matches(" lane"));
        self.screen.fact("driver", &driver::text(&self.plan.driver));
        if let Some(at) = &self.plan.metrics.metrics {
            self.screen.fact("page", &format!("http://{at}/"));
        }
        if self.screen.is_live() {
            for server in self.server_roles().zip(self.plan.servers()) {
                watch_rates(server, self.plan, self.sender.clone());
            }
        }
        match &self.plan.obstacle {
            Some(obstacle) => {
                let obstacle = obstacle.clone();
                self.go_without_mount(&obstacle)
            }
            None => self.start(Role::Mount),
        }
    }

    fn say_again(&self, who: &str, line: &str) {
        let line = format!("{who} running again: {line}");
        self.screen.say(&line);
        notify::status(&line);
    }

    fn on_mounted(&mut self, line: &str) -> Result<()> {
        self.predecessor = self.client;
        self.change_mounted(true);
        if self.all_told {
            self.say_again("mount", line);
            return Ok(());
        }
        let where_and_how = line.strip_prefix("mounted ").unwrap_or(line);
        self.screen.fact("mounted", where_and_how);
        self.everything_runs()
    }

    fn go_without_mount(&mut self, why: &str) -> Result<()> {
        self.mount.state = State::Over;
        self.screen.fact("mounted", &format!("nowhere: {why}"));
        let url = format!("lanefs ls lanefs://{}/", super::child::own_address(&self.plan.first));
        self.screen.fact("without", &format!("a mount: {url}"));
        self.everything_runs()
    }

    fn everything_runs(&mut self) -> Result<()> {
        if self.all_told {
            return Ok(());
        }
        self.all_told = true;
        let is_mounted = matches!(self.mount.state, State::Running(_));
        self.screen.fact("second mount:", &second_mount(self.plan));
        let pid = std::process::id();
        let dir = self.plan.dir.display();
        if let Some(log) = &self.plan.log {
            self.screen.fact("log", &log.display().to_string());
            self.screen.fact("stop", &format!("with `lanefs down {dir}` or `kill {pid}`"));
        } else {
            self.screen.fact("stop", &format!("with Ctrl-C or `kill {pid}`"));
        }
        self.running = Some(Running::begin(Entry {
            address: Some(self.plan.first.address.to_string()),
            store: Some(running::text_of(&self.plan.first.store)),
            dir: Some(running::text_of(&self.plan.dir)),
            mounted: is_mounted,
            log: self.plan.log.as_deref().map(running::text_of),
            ..Entry::of(Kind::Up, None)
        }));
        let mounted = if is_mounted { format!(", mounted on {dir}") } else { String::new() };
        notify::ready(&format!("serving on {}{mounted}", self.plan.first.address));
        if let Some(log) = &self.plan.log {
            background::ready(log, (!is_mounted).then_some(Code::Unreachable))?;
            // A background process must not keep a folder busy.
            std::env::set_current_dir("/")?;
        }
        Ok(())
    }

    /// Publishes whether there is a mount.
    fn change_mounted(&mut self, mounted: bool) {
        if let Some(running) = &mut self.running {
            running.update(|entry| entry.mounted = mounted);
        }
    }

    fn on_complaint(&mut self, role: Role, line: &str) {
        self.post(role).last_words = log::say_again(&role.text(), line);
    }

    fn on_ended(&mut self, role: Role, status: ExitStatus) -> Result<()> {
        let post = self.post(role);
        let (was_ready, lived) = post
            .running()
            .map_or((false, Duration::ZERO), |child| (child.ready, child.started.elapsed()));
        post.failure_count = if was_ready { 0 } else { post.failure_count + 1 };
        post.short_count = if was_ready && lived >= SETTLED { 0 } else { post.short_count + 1 };
        let (failure_count, short_count) = (post.failure_count, post.short_count);
        let code = status.code();
        if role == Role::Mount && code == Some(i32::from(Code::CannotMount.number())) {
            let why = post.last_words.clone();
            return self.go_without_mount(&why);
        }
        if role == Role::Mount && code == Some(0) {
            post.state = State::Over;
            self.unmounted = true;
            self.change_mounted(false);
            self.screen.fact("mounted", "nowhere: it was unmounted; the server ends");
            return Ok(());
        }
        if role == Role::Mount {
            self.change_mounted(false);
        }
        let post = self.post(role);
        // A refusal at the very first start (store in use, unknown version) will not mend itself.
        let refused = !was_ready && failure_count == 1 && code.is_some() && role != Role::Mount;
        if refused || failure_count >= FAILURE_COUNT_MAX {
            return Err(self.give_up(role, status, failure_count));
        }
        // A first death is no row.
        let at_once = was_ready && short_count <= 1;
        let pause = PAUSE.saturating_mul(2_u32.saturating_pow(short_count)).min(PAUSE_MAX);
        let pause = if at_once { Duration::ZERO } else { pause };
        post.state = State::Due(Instant::now() + pause);
        let line = format!("{} {}; starting it again", role.text(), end_text(status));
        warn!("{line}");
        notify::status(&line);
        Ok(())
    }

    fn give_up(&mut self, role: Role, status: ExitStatus, failure_count: u32) -> anyhow::Error {
        let post = self.post(role);
        post.state = State::Over;
        let name = role.text();
        let line = if failure_count == 1 {
            format!("the {name} did not start: {}", post.last_words)
        } else {
            let end = end_text(status);
            format!("the {name} {end} {failure_count} times in a row; giving up")
        };
        Exit::new(Code::Failed, line).into()
    }

    /// Ends the mount, then the server: until the mount has heard that all is durable, it needs the
    /// server, even one that has just died.
    fn end(&mut self) {
        if self.mount.running().is_some() {
            for role in self.server_roles() {
                if matches!(self.post(role).state, State::Due(_)) {
                    self.start_for_mount(role);
                }
            }
        }
        if !self.end_child(Role::Mount, MOUNT_END) {
            error!("the mount did not end in time: killed, and detached");
        }
        if let Err(error) = self.clear_stale_mount() {
            error!("{error:#}");
        }
        // All are asked before one is waited for.
        self.servers.iter().filter_map(Post::running).for_each(|child| child.signal(Signal::TERM));
        for role in self.server_roles() {
            if !self.end_child(role, SERVER_END) {
                let name = role.text();
                error!(
                    "the {name} did not end in time: killed; its log is replayed at the next start"
                );
            }
        }
    }

    fn start_for_mount(&mut self, role: Role) {
        warn!("the {} had ended; starting it again for the end of the mount", role.text());
        if let Err(error) = self.start(role) {
            error!("{error:#}");
        }
    }

    /// Returns whether the child ended without being killed: it is asked; after `patience` a mount
    /// is asked to give up, for which it says what that means; then it is killed. The second further
    /// signal to us, and each after it, ends one of these waits.
    fn end_child(&mut self, role: Role, patience: Duration) -> bool {
        let asked = (Signal::TERM, patience);
        let steps: &[_] = match role {
            Role::Mount => &[asked, (Signal::TERM, GIVE_UP), (Signal::KILL, GIVE_UP)],
            Role::Server(_) => &[asked, (Signal::KILL, GIVE_UP)],
        };
        for &(signal, patience) in steps {
            let Some(child) = self.post(role).running() else { return true };
            child.signal(signal);
            if self.await_end(role, patience) {
                return signal != Signal::KILL;
            }
        }
        false
    }

    /// Returns whether the child ended within `patience`. A mount has less of it when no server is
    /// coming.
    fn await_end(&mut self, role: Role, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut alone_until = Instant::now() + MOUNT_END_ALONE;
        let all_run = |servers: &[Post]| servers.iter().all(|server| server.running().is_some());
        let mut starts_again = role == Role::Mount && all_run(&self.servers);
        loop {
            let alone = role == Role::Mount && !all_run(&self.servers);
            let until = if alone { until.min(alone_until) } else { until };
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(ChildEvent::Ended(ended, _)) => {
                    self.post(ended).state = State::Over;
                    if ended == role {
                        return true;
                    }
                    alone_until = Instant::now() + MOUNT_END_ALONE;
                    if core::mem::take(&mut starts_again) {
                        self.start_for_mount(ended);
                    }
                }
                Ok(ChildEvent::Complaint(role, line)) => self.on_complaint(role, &line),
                Ok(ChildEvent::Signal) => {
                    // A terminal, a shell and a service manager may each send theirs for one wish.
                    self.extra_signal_count += 1;
                    if self.extra_signal_count > 1 {
                        return false;
                    }
                    let what = role.text();
                    info!(
                        "ending: the {what} makes durable what was answered; a further signal gives that up"
                    );
                }
                Err(_) => return false,
                Ok(ChildEvent::Line(..) | ChildEvent::Rates(..) | ChildEvent::Reload) => {}
            }
        }
    }
}

/// Where the post of a server is.
fn index(number: u16) -> usize {
    usize::from(number.saturating_sub(1))
}

fn end_text(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
