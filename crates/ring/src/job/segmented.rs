//! Jobs beyond the first segment of an object, which a thread of their own performs.

use super::{Job, JobKind, Step};
use crate::config::FaultPoint;
use crate::driver::Token;
use crate::objects::{FileState, Objects};
use crate::segments::{Outcome, SegmentTask, Segments, Task};
use crate::tools::Tools;
use interface::{Errno, Event, ObjectEvent, ObjectStat};
use rustix::fs::{AtFlags, statat};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

const IO: Errno = Errno(5);

impl JobKind {
    pub(super) const fn point(self) -> FaultPoint {
        match self {
            Self::Read { .. }
            | Self::Part { .. }
            | Self::Sum { .. }
            | Self::Stat { .. }
            | Self::Seek { .. } => FaultPoint::ObjectRead,
            Self::Write { .. } => FaultPoint::ObjectWrite,
            Self::Truncate { .. } => FaultPoint::ObjectTruncate,
            Self::Allocate { .. } => FaultPoint::ObjectAllocate,
            Self::Sync { .. } => FaultPoint::ObjectSync,
            Self::Remove { .. } => FaultPoint::ObjectRemove,
        }
    }
}

impl Job {
    /// Whether the job needs more than the first segment.
    pub(super) fn needs_segments(&self, objects: &mut Objects) -> bool {
        if self.kind.end() > objects.segment_bytes {
            return true;
        }
        let object = objects.slot(self.object_index).object;
        match self.kind {
            JobKind::Truncate { .. } | JobKind::Seek { .. } | JobKind::Sync { .. } => {
                objects.segmented.contains(&object)
            }
            // A stat reads the first file's size first, a remove checks when it begins.
            JobKind::Stat { .. } | JobKind::Remove { .. } => false,
            JobKind::Read { .. }
            | JobKind::Part { .. }
            | JobKind::Sum { .. }
            | JobKind::Write { .. }
            | JobKind::Allocate { .. } => false,
        }
    }

    /// Whether an object whose first file has this size may have further segments.
    pub(super) fn may_have_more(&self, found: ObjectStat, objects: &mut Objects) -> bool {
        let whole = found.size_bytes >= objects.segment_bytes;
        if whole {
            let object = objects.slot(self.object_index).object;
            objects.segmented.insert(object);
        }
        whole
    }

    /// Whether there are segments to remove. The core need not have asked for the object's size.
    pub(super) fn has_segments(&self, objects: &mut Objects, tools: &mut Tools) -> bool {
        let object = objects.slot(self.object_index).object;
        if objects.segmented.remove(&object) {
            return true;
        }
        tools.counters.syscall_count += 1;
        let found = statat(&*objects.dir, self.path.text(), AtFlags::empty());
        found.is_ok_and(|found| found.st_size.unsigned_abs() >= objects.segment_bytes)
    }

    /// Starts a thread for the job.
    pub(super) fn start_segment_task(
        &mut self,
        token: Token,
        objects: &mut Objects,
        tools: &mut Tools,
    ) -> bool {
        if let JobKind::Part { part, .. } = self.kind
            && tools.list_buf(part).is_none()
        {
            self.step = Step::Begin;
            objects.starve(token.index);
            return false;
        }
        if let JobKind::Read { read_bytes, .. } = self.kind {
            let space_bytes = read_bytes as usize;
            self.buf =
                if tools.pool.has_space(space_bytes) { tools.pool.take(space_bytes) } else { None };
            if self.buf.is_none() {
                self.step = Step::Begin;
                objects.starve(token.index);
                return false;
            }
        }
        if let Some(errno) = tools.inject(self.kind.point()) {
            return self.fail(errno, objects, tools);
        }
        let task = self.task(objects, tools);
        let (object, first) = {
            let slot = objects.slot(self.object_index);
            let first = match &slot.file {
                FileState::Open { file, .. } => Some(Arc::clone(file)),
                FileState::Unknown | FileState::Opening => None,
            };
            (slot.object, first)
        };
        if self.kind.creates() && self.refused.is_none() {
            objects.segmented.insert(object);
        }
        let segments = Segments::new(&objects.dir, first, &self.path, objects.segment_bytes);
        match SegmentTask::begin(segments, task) {
            Ok(segment_task) => {
                self.segment_task = Some(segment_task);
                self.go(Step::Segments, token, objects, tools)
            }
            Err(errno) => self.fail(errno, objects, tools),
        }
    }

    /// The kernel refused an allocation: a thread first frees what it allocated before, which may
    /// take long.
    pub(super) fn on_refused(
        &mut self,
        errno: Errno,
        token: Token,
        objects: &mut Objects,
        tools: &mut Tools,
    ) -> bool {
        self.refused = Some(errno);
        self.start_segment_task(token, objects, tools)
    }

    fn task(&self, objects: &mut Objects, tools: &mut Tools) -> Task {
        match self.kind {
            JobKind::Read { offset, read_bytes, .. } | JobKind::Part { offset, read_bytes, .. } => {
                Task::Read { offset, read_bytes: read_bytes as usize }
            }
            JobKind::Sum { sums, .. } => Task::Sum { ranges: tools.sum_jobs.ranges(sums).to_vec() },
            JobKind::Write { offset, bulk, .. } => {
                self.load_file_ranges(offset..self.kind.end(), objects, tools);
                Task::Write { offset, bytes: tools.bulk_bytes(bulk).to_vec() }
            }
            JobKind::Truncate { size_bytes, .. } => {
                self.load_file_ranges(size_bytes..u64::MAX, objects, tools);
                Task::Truncate { size_bytes }
            }
            JobKind::Allocate { offset, range_bytes, .. } if self.refused.is_some() => {
                Task::GiveBack { offset, range_bytes, size_bytes: self.before_bytes }
            }
            JobKind::Allocate { offset, range_bytes, mode, .. } => {
                self.load_file_ranges(offset..self.kind.end(), objects, tools);
                Task::Allocate { offset, range_bytes, mode }
            }
            JobKind::Seek { offset, hole, .. } => Task::Seek { offset, hole },
            JobKind::Stat { .. } => Task::Stat,
            JobKind::Sync { .. } => Task::Sync,
            JobKind::Remove { .. } => Task::Remove,
        }
    }

    /// The thread is done.
    pub(super) fn on_segment_task(
        &mut self,
        rung: Result<u32, Errno>,
        token: Token,
        objects: &mut Objects,
        tools: &mut Tools,
    ) -> bool {
        if let Some(segment_task) = &self.segment_task {
            tools.driver.forget(segment_task.done_event.as_raw_fd());
        }
        let outcome = self.segment_task.take().map_or(Err(IO), SegmentTask::end);
        if let Some(errno) = self.refused {
            return self.fail(errno, objects, tools);
        }
        let outcome = match rung.and(outcome) {
            Ok(outcome) => outcome,
            Err(errno) => return self.fail(errno, objects, tools),
        };
        match (self.kind, outcome) {
            (JobKind::Read { .. }, Outcome::Bytes(bytes)) => {
                if let Some(buf) = self.buf {
                    tools.pool.bytes_mut(buf, 0, bytes.len()).copy_from_slice(&bytes);
                }
                self.moved_bytes = bytes.len();
                self.done(tools)
            }
            (JobKind::Part { part, .. }, Outcome::Bytes(bytes)) => {
                if let Some(buf) = tools.list_buf(part) {
                    tools.pool.bytes_mut(buf, part.start, bytes.len()).copy_from_slice(&bytes);
                }
                self.moved_bytes = bytes.len();
                self.done(tools)
            }
            (JobKind::Sum { sums, .. }, Outcome::Bytes(found)) => {
                tools.end_segment_sums(sums, &found);
                true
            }
            (JobKind::Seek { ticket, .. }, Outcome::Place(place)) => {
                tools.events.push(Event::Object(ObjectEvent::Sought { ticket, result: Ok(place) }));
                true
            }
            (JobKind::Stat { ticket }, Outcome::Stat(found)) => {
                tools
                    .events
                    .push(Event::Object(ObjectEvent::Stat { ticket, result: Ok(Some(found)) }));
                true
            }
            (JobKind::Sync { .. }, _) => self.go(Step::Sync, token, objects, tools),
            (JobKind::Remove { .. }, _) => self.go(Step::Unlink, token, objects, tools),
            _ => self.done(tools),
        }
    }
}
