//! Where lines of the log go: a queue with a thread behind it that writes them to stderr.
//!
//! ```text
//! lane ── try_send ──▶ 4096 lines ──▶ thread: limit repeated lines ──▶ stderr
//!              └ full: dropped and counted; the thread says how many
//! ```
//! Invariant: logging never blocks, also if nothing reads the pipe.

use super::line::{Form, Line};
use super::repeats::Repeats;
use crate::out;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::{Duration, Instant};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Lines that wait at most.
const LINE_COUNT_MAX: usize = 4096;
/// How long the end of a process waits for its last lines.
const FLUSH: Duration = Duration::from_secs(1);
/// How often a full queue is tried meanwhile.
const FLUSH_STEP: Duration = Duration::from_millis(10);

/// Writes bytes for people.
pub(super) type WriteFn = Box<dyn Fn(&[u8]) + Send>;

enum Order {
    Line(Line),
    /// Say so when all before it is written.
    Flush(std::sync::mpsc::Sender<()>),
    /// Write with this from here on.
    Through(WriteFn),
}

/// The near end; each event is written to it at once, as one line.
#[derive(Clone)]
pub(super) struct Sink {
    orders: SyncSender<Order>,
    dropped_count: Arc<AtomicU64>,
}

impl Sink {
    /// With its thread; where that cannot be had, all lines are dropped.
    pub(super) fn new(form: Form) -> Self {
        let (sink, orders) = Self::queue(LINE_COUNT_MAX);
        let dropped_count = Arc::clone(&sink.dropped_count);
        let thread = std::thread::Builder::new().name("log".to_owned());
        let spawned =
            thread.spawn(move || write_all(&orders, &dropped_count, form, Box::new(to_stderr)));
        if let Err(error) = spawned {
            out::print_error_line(&format!("cannot start the thread of the log: {error}"));
        }
        sink
    }

    fn queue(count_max: usize) -> (Self, Receiver<Order>) {
        let (sender, orders) = sync_channel(count_max);
        (Self { orders: sender, dropped_count: Arc::default() }, orders)
    }

    pub(super) fn write_through(&self, write: WriteFn) {
        // It fails when the thread has ended: then nothing is written either way.
        let _unheard = self.orders.try_send(Order::Through(write));
    }

    pub(super) fn put(&self, line: Line) {
        if self.orders.try_send(Order::Line(line)).is_err() {
            self.dropped_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the queued lines are written, for a limited time.
    pub(super) fn flush(&self) {
        let deadline = Instant::now() + FLUSH;
        let (sender, flushed) = channel();
        let mut order = Order::Flush(sender);
        loop {
            order = match self.orders.try_send(order) {
                Ok(()) => break,
                Err(TrySendError::Full(order)) if Instant::now() < deadline => order,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return,
            };
            std::thread::sleep(FLUSH_STEP);
        }
        // The process ends whether or not the lines are written.
        let _written = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl<S: Subscriber> Layer<S> for Sink {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        self.put(Line::of(event));
    }
}

fn write_all(orders: &Receiver<Order>, dropped_count: &AtomicU64, form: Form, mut write: WriteFn) {
    let mut repeats = Repeats::default();
    loop {
        let order = match repeats.due_at() {
            Some(at) => orders.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => orders.recv().map_err(RecvTimeoutError::from),
        };
        let now = Instant::now();
        // The last lines are to be complete.
        let ends = matches!(order, Ok(Order::Flush(_)) | Err(RecvTimeoutError::Disconnected));
        let mut lines = if ends { repeats.end() } else { repeats.pass(now) };
        let (mut flushed, mut is_over) = (None, false);
        match order {
            Ok(Order::Line(line)) => lines.extend(repeats.admits(&line, now).then_some(line)),
            Ok(Order::Through(through)) => write = through,
            Ok(Order::Flush(sender)) => flushed = Some(sender),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => is_over = true,
        }
        let count = dropped_count.swap(0, Ordering::Relaxed);
        if count > 0 {
            let message = format!("{count} lines of this log were dropped: they came too fast");
            lines.push(Line::new(Level::WARN, "lanefs::log", message));
        }
        lines.iter().for_each(|line| write(line.written_as(form).as_bytes()));
        // The waiting thread may have given up.
        let _unread = flushed.map(|sender| sender.send(()));
        if is_over {
            return;
        }
    }
}

fn to_stderr(line: &[u8]) {
    // There is no place left to say that stderr is closed.
    let _unread = io::stderr().lock().write_all(line);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::repeats::EQUAL_COUNT_MAX;
    use super::*;
    use std::sync::Mutex;
    use tracing_subscriber::layer::SubscriberExt as _;

    fn line(message: &str) -> Line {
        Line::new(Level::INFO, "lanefs", message.to_owned())
    }

    /// The lines that a queue comes to.
    fn written(sink: Sink, orders: &Receiver<Order>) -> Vec<String> {
        let dropped_count = Arc::clone(&sink.dropped_count);
        drop(sink);
        let written = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&written);
        let write = Box::new(move |line: &[u8]| to.lock().unwrap().extend_from_slice(line));
        write_all(orders, &dropped_count, Form::Priority, write);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let (sink, orders) = Sink::queue(2);
        for number in 0..5 {
            sink.put(line(&number.to_string()));
        }
        let dropped = "<4>3 lines of this log were dropped: they came too fast";
        assert_eq!(written(sink, &orders), ["<6>0", dropped, "<6>1"]);
    }

    #[test]
    fn an_event_is_a_line_with_its_fields() {
        let (sink, orders) = Sink::queue(2);
        let subscriber = tracing_subscriber::registry().with(sink.clone());
        tracing::subscriber::with_default(subscriber, || {
            super::super::of_lane(3)(interface::LogLevel::Alarm, "lost");
        });
        let Ok(Order::Line(line)) = orders.try_recv() else { panic!("a line") };
        let written: serde_json::Value =
            serde_json::from_str(&line.written_as(Form::Json)).unwrap();
        let expected = serde_json::json!({
            "timestamp": written["timestamp"], "level": "ERROR", "target": "lanefs::lane",
            "message": "ALARM: lost", "lane": 3, "alarm": true
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn what_repeated_lines_come_to_is_written_at_the_end() {
        let (sink, orders) = Sink::queue(100);
        for _ in 0..EQUAL_COUNT_MAX + 5 {
            sink.put(line("again"));
        }
        let lines = written(sink, &orders);
        assert_eq!(lines.len() as u64, EQUAL_COUNT_MAX + 1);
        assert_eq!(lines.last().unwrap(), "<4>5 more lines were not written: again");
    }

    #[test]
    fn a_flush_without_a_reader_ends() {
        let (sink, _unread) = Sink::queue(1);
        sink.write_through(Box::new(|_| {}));
        sink.flush();
    }
}
