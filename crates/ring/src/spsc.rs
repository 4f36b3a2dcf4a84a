//! A queue with one writer and one reader, bounded, without locks.
//!
//! Invariant: slots from `head` to `tail` hold letters and belong to the reader, the others are
//! empty and belong to the writer. Only the reader moves `head`, only the writer moves `tail`.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alone in its cache lines, so that writer and reader do not disturb each other.
#[repr(align(128))]
struct Alone(AtomicUsize);

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    head: Alone,
    tail: Alone,
}

// SAFETY: values move from one thread to another, never are they seen by two (see the invariant),
// so `T: Send` is enough.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = *self.tail.0.get_mut();
        let mut index = *self.head.0.get_mut();
        while index != tail {
            let mask = self.slots.len() - 1;
            // SAFETY: slots from head to tail hold values, and nobody else is left to take them.
            unsafe { self.slots[index & mask].get_mut().assume_init_drop() };
            index = index.wrapping_add(1);
        }
    }
}

/// The writing end.
pub(crate) struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// `head` as last seen: it only rises, so an old one is safe.
    head_seen: usize,
}

/// The reading end.
pub(crate) struct Consumer<T> {
    shared: Arc<Shared<T>>,
    tail_seen: usize,
}

/// A queue of `count_max` values, a power of two.
pub(crate) fn queue<T: Send>(count_max: usize) -> (Producer<T>, Consumer<T>) {
    assert!(count_max.is_power_of_two(), "positions are masked");
    let slots = (0..count_max).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let (head, tail) = (Alone(AtomicUsize::new(0)), Alone(AtomicUsize::new(0)));
    let shared = Arc::new(Shared { slots, head, tail });
    (Producer { shared: Arc::clone(&shared), head_seen: 0 }, Consumer { shared, tail_seen: 0 })
}

impl<T> Producer<T> {
    /// Puts a value in, or gives it back when the queue is full.
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        let shared = &*self.shared;
        let tail = shared.tail.0.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.head_seen) == shared.slots.len() {
            self.head_seen = shared.head.0.load(Ordering::Acquire);
            if tail.wrapping_sub(self.head_seen) == shared.slots.len() {
                return Err(value);
            }
        }
        let slot = shared.slots[tail & (shared.slots.len() - 1)].get();
        // SAFETY: the slot at `tail` is empty and the writer's; there is one writer, `&mut self`.
        unsafe { slot.write(MaybeUninit::new(value)) };
        shared.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest value.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let shared = &*self.shared;
        let head = shared.head.0.load(Ordering::Relaxed);
        let slot = shared.slots[head & (shared.slots.len() - 1)].get();
        // SAFETY: the slot at `head` holds a value and is the reader's; there is one reader.
        let value = unsafe { slot.read() };
        // SAFETY: the writer had initialised it before it moved `tail` past it.
        let value = unsafe { value.assume_init() };
        shared.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// Whether there is nothing to take.
    pub(crate) fn is_empty(&mut self) -> bool {
        let head = self.shared.head.0.load(Ordering::Relaxed);
        if head == self.tail_seen {
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        }
        head == self.tail_seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_in_order_and_a_full_queue_gives_them_back() {
        let (mut producer, mut consumer) = queue(4);
        for round in 0..3 {
            for value in 0..4 {
                assert_eq!(producer.push(Box::new(round * 4 + value)), Ok(()));
            }
            assert_eq!(producer.push(Box::new(99)), Err(Box::new(99)));
            for value in 0..4 {
                assert_eq!(consumer.pop(), Some(Box::new(round * 4 + value)));
            }
            assert_eq!(consumer.pop(), None);
        }
    }

    #[test]
    fn what_is_left_inside_is_dropped() {
        let witness = Arc::new(());
        let (mut producer, mut consumer) = queue(8);
        (0..5).for_each(|_| assert!(producer.push(Arc::clone(&witness)).is_ok()));
        assert!(consumer.pop().is_some());
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn two_threads_see_every_value_once_and_in_order() {
        // A small queue is often full and often empty; each time may cost a turn of the scheduler.
        pass_between_threads(16, if cfg!(miri) { 300 } else { 10_000 });
        pass_between_threads(1024, if cfg!(miri) { 300 } else { 200_000 });
    }

    fn pass_between_threads(queue_count: usize, count: u32) {
        let (mut producer, mut consumer) = queue(queue_count);
        let writer = std::thread::spawn(move || {
            for mut value in 0..count {
                while let Err(back) = producer.push(value) {
                    value = back;
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < count {
            match consumer.pop() {
                Some(value) => {
                    assert_eq!(value, next);
                    next += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        assert!(writer.join().is_ok());
        assert_eq!(consumer.pop(), None);
    }
}
