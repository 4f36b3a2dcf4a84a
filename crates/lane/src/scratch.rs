//! Buffers that are used again, so that a request allocates none.

use alloc::vec::Vec;

/// The outcome of what a shard executed last, and spare buffers.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The body of the reply.
    reply: Vec<u8>,
    /// The changes to record.
    changes: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Scratch {
    /// Removes the last outcome; returns the buffers of the next one, for the body of its reply and
    /// its changes.
    pub(crate) fn begin(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        self.reply.clear();
        self.changes.clear();
        (&mut self.reply, &mut self.changes)
    }

    /// The body of the reply.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// The changes.
    pub(crate) fn changes(&self) -> &[u8] {
        &self.changes
    }

    /// The size of the outcome.
    pub(crate) const fn outcome_bytes(&self) -> usize {
        self.changes.len() + self.reply.len()
    }

    /// The buffer of another body of the reply.
    pub(crate) fn new_reply(&mut self) -> &mut Vec<u8> {
        self.reply.clear();
        &mut self.reply
    }

    /// Takes the body of the reply, to be returned once it is sent.
    pub(crate) fn take_reply(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.reply)
    }

    /// Returns the buffer of a reply.
    pub(crate) fn return_reply(&mut self, reply: Vec<u8>) {
        self.reply = reply;
    }

    /// Takes the changes, to be returned once they are recorded.
    pub(crate) fn take_changes(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.changes)
    }

    /// Returns the buffer of changes.
    pub(crate) fn return_changes(&mut self, changes: Vec<u8>) {
        self.changes = changes;
    }

    /// An empty buffer, to be recycled.
    pub(crate) fn empty(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Makes a buffer of [`Self::empty`] a spare one.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}
