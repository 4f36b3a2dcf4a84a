//! `lanefs top`: servers and mounts on a screen: what they do, for whom, and what is wrong.
//!
//! ```text
//! a thread a server: asks for counters ─┐
//! the keyboard's thread ────────────────┼─▶ this thread: judges, draws, writes the log
//! signals' thread ──────────────────────┘
//! ```
//! Invariant: whatever ends the program, the terminal is as it was before.

pub(crate) mod alerts;
mod app;
mod hot;
mod interval;
mod mount_tables;
mod poll;
mod record;
mod screen;
mod tables;
mod text;
mod update;

pub(crate) use alerts::{THRESHOLDS, Threshold, Thresholds};

use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Kind};
use crate::{args, control, out, signals, stats};
use anyhow::{Context as _, Result};
use app::{App, Next, Server};
use poll::{Target, Watch};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use record::Record;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use update::Update;

/// How often the screen is drawn although nothing has happened: ages rise.
const REDRAW: Duration = Duration::from_millis(500);
/// How long servers are waited for at the end, so that they forget this client at once.
const LEAVE: Duration = Duration::from_millis(500);
/// Columns of `--once` where the output is no terminal.
const ONCE_COLUMN_COUNT: usize = 160;

/// Runs the command.
pub(crate) fn run(args: &args::Top) -> Result<()> {
    if !args.once && !is_screen() {
        let line = "this needs a terminal: `lanefs top --once` prints one screen, and `lanefs stats \
                    --interval 1s` prints rates as lines";
        return Err(Exit::usage(line).into());
    }
    let record = args.log.as_deref().map(Record::open).transpose()?;
    let (sender, updates) = channel();
    let wants_hot = Arc::new(AtomicBool::new(args.once));
    let (servers, watches) = connect((args, &wants_hot), &sender, &updates)?;
    let app = App::new(servers, Thresholds::with(&args.alerts), args.interval, wants_hot);
    let mut top = Top { app, record, updates };
    let result = if args.once { top.once() } else { top.watch(&sender) };
    top.leave(watches);
    result
}

/// Whether there is a terminal that can show a screen.
fn is_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// Connects to all servers; the first that cannot be reached is an error.
fn connect(
    (args, wants_hot): (&args::Top, &Arc<AtomicBool>),
    sender: &Sender<Update>,
    updates: &Receiver<Update>,
) -> Result<(Vec<Server>, Vec<Watch>)> {
    let targets = targets(args)?;
    let mut watches = Vec::new();
    for target in targets.iter().cloned().enumerate() {
        let (sender, wants_hot) = (sender.clone(), Arc::clone(wants_hot));
        watches.push(poll::watch(target, args.interval, sender, wants_hot)?);
    }
    let mut connected_count = 0;
    while connected_count < targets.len() {
        match updates.recv().context("no thread asks")? {
            Update::Connected => connected_count += 1,
            Update::Lost(_, error) => return Err(error),
            // Another server is slow to connect.
            Update::Sample(..) | Update::Left | Update::Input(_) | Update::End => {}
        }
    }
    let now = Instant::now();
    let versions = running::all().unwrap_or_default();
    let version_of = |address: &String| {
        let mut here =
            versions.iter().map(|found| &found.entry).filter(|it| it.kind == Kind::Serve);
        here.find(|entry| stats::listens(entry).as_ref() == Some(address))?.version.clone()
    };
    let server = |target: Target| match target {
        Target::Server(args::Server { server: address, .. }) => {
            let version = version_of(&address);
            Server::new(address, version, now)
        }
        Target::Mount(mount) => {
            let Entry { dir, version, .. } = *mount;
            let server = Server::new(dir.unwrap_or_default(), version, now);
            Server { is_mount: true, ..server }
        }
    };
    Ok((targets.into_iter().map(server).collect(), watches))
}

/// The servers and mounts that are meant.
fn targets(args: &args::Top) -> Result<Vec<Target>> {
    let server = |server| Target::Server(args::Server { server, login: args.login.clone() });
    let (mut targets, mut names) = (Vec::new(), Vec::new());
    for name in &args.targets {
        if let Some(mount) = control::mount_at(name)? {
            targets.push(Target::Mount(Box::new(mount)));
        } else {
            names.push(name.clone());
        }
    }
    if !names.is_empty() || targets.is_empty() {
        targets.extend(addresses(&names)?.into_iter().map(server));
    }
    Ok(targets)
}

/// The servers that are meant: without a target, all of this user.
fn addresses(targets: &[String]) -> Result<Vec<String>> {
    if !targets.is_empty() {
        let mut addresses = Vec::new();
        for target in targets {
            let address = stats::server_of(Some(target))?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        return Ok(addresses);
    }
    let is_server = |entry: &&Entry| entry.kind == Kind::Serve;
    let all = running::all()?;
    let entries = all.iter().map(|found| &found.entry).filter(is_server);
    let addresses: Vec<String> = entries.filter_map(stats::listens).collect();
    if addresses.is_empty() {
        let line =
            "no server runs here, as far as this user can see: name one, as `lanefs top HOST:PORT`";
        return Err(Exit::new(Code::Failed, line).into());
    }
    Ok(addresses)
}

struct Top {
    app: App,
    record: Option<Record>,
    updates: Receiver<Update>,
}

impl Top {
    /// The first interval of each server, as text.
    fn once(&mut self) -> Result<()> {
        while self.app.servers().iter().any(|server| server.interval.is_none()) {
            match self.updates.recv().context("no thread asks")? {
                Update::Lost(_, error) => return Err(error),
                update @ (Update::Sample(..)
                | Update::Connected
                | Update::Left
                | Update::Input(_)
                | Update::End) => {
                    self.on_update(update)?;
                }
            }
        }
        let size = ratatui::crossterm::terminal::size().ok();
        let size = size.filter(|_| std::io::stdout().is_terminal());
        let width = size.map_or(ONCE_COLUMN_COUNT, |(columns, _)| usize::from(columns));
        let servers = self.app.servers().len();
        let mut text = String::new();
        for index in 0..servers {
            self.app.selected = index;
            if index > 0 {
                text.push('\n');
            }
            text.push_str(&screen::text_of(&self.app, width, (Instant::now(), &clock())));
        }
        out::print_bytes(text.as_bytes())
    }

    /// On the terminal, until a key or signal ends it.
    fn watch(&mut self, sender: &Sender<Update>) -> Result<()> {
        let ends = sender.clone();
        signals::on_ending(move |_| {
            // Nobody receives it after the end.
            let _ended = ends.send(Update::End);
        })?;
        let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
        let result = read_keys(sender.clone()).and_then(|()| self.show(&mut terminal));
        let restored = ratatui::try_restore().context("cannot restore the terminal");
        result.and(restored)
    }

    fn show(&mut self, terminal: &mut DefaultTerminal) -> Result<()> {
        loop {
            let clock = clock();
            let at = (Instant::now(), clock.as_str());
            let drawn = terminal.draw(|frame| screen::draw(&self.app, frame.buffer_mut(), at));
            drawn.context("cannot write to the terminal")?;
            let mut update = match self.updates.recv_timeout(REDRAW) {
                Ok(update) => Some(update),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // All that has come meanwhile is drawn at once.
            while let Some(now) = update {
                if self.on_update(now)? == Next::Quit {
                    return Ok(());
                }
                update = self.updates.try_recv().ok();
            }
        }
    }

    fn on_update(&mut self, update: Update) -> Result<Next> {
        let now = Instant::now();
        match update {
            Update::Sample(index, interval) => {
                let findings = self.app.on_sample(index, (*interval).clone(), now);
                if let (Some(record), Some(server)) =
                    (&mut self.record, self.app.servers().get(index))
                {
                    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                    let at = (server.address.as_str(), time.unwrap_or_default());
                    record.put(at, &interval, &findings)?;
                }
            }
            Update::Lost(index, error) => self.app.on_lost(index, format!("{error:#}")),
            Update::Input(Event::Key(key)) => return Ok(self.app.on_key(key, now, &clock())),
            Update::End => return Ok(Next::Quit),
            // The next drawing finds another size of the terminal by itself.
            Update::Connected | Update::Left | Update::Input(_) => {}
        }
        Ok(Next::GoOn)
    }

    /// Ends the connections in order, unless a server does not answer.
    fn leave(self, watches: Vec<Watch>) {
        let mut left_count = watches.len();
        drop(watches);
        let until = Instant::now() + LEAVE;
        while left_count > 0 {
            match self.updates.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Update::Left) => left_count -= 1,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

/// Reads keys until the process ends.
fn read_keys(sender: Sender<Update>) -> Result<()> {
    let thread = std::thread::Builder::new().name("keys".to_owned());
    let read = move || {
        while let Ok(event) = event::read() {
            if sender.send(Update::Input(event)).is_err() {
                return;
            }
        }
        // The terminal is closed.
        let _ended = sender.send(Update::End);
    };
    thread.spawn(read).map(drop).context("cannot start a thread")
}

/// The time of day.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}
