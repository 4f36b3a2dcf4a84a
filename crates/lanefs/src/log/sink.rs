//! Where lines of the log go: a queue with a thread behind it that writes them to stderr.
//!
//! ```text
//! lane ── try_send ──▶ 4096 lines ──▶ thread ──▶ stderr
//!              └ full: dropped and counted; the thread says how many
//! ```
//! Invariant: whoever logs never waits, least of all for a pipe that nobody reads.

use crate::out;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait at most.
const LINE_COUNT_MAX: usize = 4096;
/// How long the end of a process waits for its last lines.
const FLUSH: Duration = Duration::from_secs(1);
/// How often a full queue is tried meanwhile.
const FLUSH_STEP: Duration = Duration::from_millis(10);

/// Writes bytes for people.
pub(super) type WriteFn = Box<dyn Fn(&[u8]) + Send>;

enum Order {
    Line(Vec<u8>),
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
    pub(super) fn new() -> Self {
        let (sink, orders) = Self::queue(LINE_COUNT_MAX);
        let dropped_count = Arc::clone(&sink.dropped_count);
        let thread = std::thread::Builder::new().name("log".to_owned());
        let spawned = thread.spawn(move || write_all(&orders, &dropped_count, Box::new(to_stderr)));
        if let Err(error) = spawned {
            out::print_error_line(&format!("cannot start the thread of the log: {error}"));
        }
        sink
    }

    fn queue(count_max: usize) -> (Self, Receiver<Order>) {
        let (tell, orders) = sync_channel(count_max);
        (Self { orders: tell, dropped_count: Arc::default() }, orders)
    }

    pub(super) fn write_through(&self, write: WriteFn) {
        // It fails when the thread has ended or nobody reads: then nothing is written either way.
        let _unheard = self.orders.try_send(Order::Through(write));
    }

    /// Waits until what was logged is written, but not for ever.
    pub(super) fn flush(&self) {
        let deadline = Instant::now() + FLUSH;
        let (tell, told) = channel();
        let mut order = Order::Flush(tell);
        loop {
            order = match self.orders.try_send(order) {
                Ok(()) => break,
                Err(TrySendError::Full(order)) if Instant::now() < deadline => order,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return,
            };
            std::thread::sleep(FLUSH_STEP);
        }
        // Whatever comes of it, the process goes on to its end.
        let _written = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.orders.try_send(Order::Line(line.to_vec())).is_err() {
            self.dropped_count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(orders: &Receiver<Order>, dropped_count: &AtomicU64, mut write: WriteFn) {
    for order in orders {
        match order {
            Order::Line(line) => write(&line),
            // Whoever waited may have given up.
            Order::Flush(tell) => drop(tell.send(())),
            Order::Through(through) => write = through,
        }
        let count = dropped_count.swap(0, Ordering::Relaxed);
        if count > 0 {
            write(
                format!("{count} lines of this log were dropped: they came too fast\n").as_bytes(),
            );
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
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let (mut sink, orders) = Sink::queue(2);
        for number in 0..5 {
            sink.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        let dropped_count = Arc::clone(&sink.dropped_count);
        drop(sink);
        let written = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&written);
        let write = Box::new(move |line: &[u8]| to.lock().unwrap().extend_from_slice(line));
        write_all(&orders, &dropped_count, write);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("0"));
        assert!(lines.next().unwrap().starts_with("3 lines of this log were dropped"), "{text}");
        assert_eq!(lines.next(), Some("1"));
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn a_flush_that_nobody_takes_ends() {
        let (sink, _unread) = Sink::queue(1);
        sink.write_through(Box::new(|_| {}));
        sink.flush();
    }
}
