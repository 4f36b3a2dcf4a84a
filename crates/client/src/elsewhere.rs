//! Replies that name an inode of another shard and leave the rest to that.

use crate::client::Client;
use crate::plan::begin::{Begun, Target};
use crate::plan::{Body, Elsewhere, Found, Got, Plan};
use wire::{Created, Status, Writer, attr_flag};

/// How often a name is looked up anew because what it named was gone.
const AGAIN_COUNT_MAX: u8 = 8;

/// The inode that a reply names and leaves to another shard.
pub(crate) fn elsewhere(got: &Got) -> Option<Found> {
    let (Ok(Body::Entry(attr)) | Ok(Body::Created(Created { attr, .. }))) = got.outcome else {
        return None;
    };
    let found = Found { inode: attr.inode };
    (attr.flags & attr_flag::ELSEWHERE != 0).then_some(found)
}

impl Client {
    /// Asks the shard that has the inode for the rest.
    pub(crate) fn go_elsewhere(&mut self, job_id: usize, found: Found) {
        let mut body = self.spare_bodies.pop().unwrap_or_default();
        let first = self.jobs.get_mut(job_id).and_then(|job| job.first.as_ref());
        let begun = first.and_then(|first| {
            let (plan, ask) = Elsewhere::begin(first.op, &first.body, found)?;
            ask.encode(&first.body, &mut Writer::new(&mut body));
            let (plan, target) = (Plan::Elsewhere(plan), Target::Inode(found.inode));
            Some(Begun { plan, op: ask.op(), target, bulk: None, sync: false })
        });
        match begun {
            Some(begun) => self.submit(job_id, begun, body),
            None => self.finish(job_id, Err(Status::Protocol)),
        }
    }

    /// What was found is gone: looks once more what stands under the name.
    pub(crate) fn ask_again(&mut self, job_id: usize) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let plan = if let Plan::Elsewhere(plan) = job.plan {
            plan.first()
        } else if let Plan::Create(plan) = job.plan {
            plan.first()
        } else {
            return;
        };
        let first = job.first.as_mut().filter(|first| first.again_count < AGAIN_COUNT_MAX);
        let Some(first) = first else { return self.finish(job_id, Err(Status::Stale)) };
        let body = first.body.clone();
        let begun = Begun { plan, op: first.op, target: first.target, bulk: None, sync: false };
        self.submit(job_id, begun, body);
    }
}
