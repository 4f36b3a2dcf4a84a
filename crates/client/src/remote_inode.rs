//! Replies that name an inode of another shard: the client asks that shard for the attributes.

use crate::client::Client;
use crate::grants::JobGrants;
use crate::plan::{Body, NewRequest, Plan, PlanReply, RemoteInode, RemoteRef, Target};
use wire::{Created, Status, Writer, attr_flag};

/// The most lookups of one name when the inode it named was removed meanwhile.
const RETRY_COUNT_MAX: u8 = 8;

/// The inode of another shard that a reply names, if the plan needs its attributes.
pub(crate) fn remote_inode(plan: &Plan, reply: &PlanReply) -> Option<RemoteRef> {
    if matches!(plan, Plan::Direct) {
        return None;
    }
    let (Ok(Body::Entry(attr)) | Ok(Body::Created(Created { attr, .. }))) = reply.outcome else {
        return None;
    };
    let found = RemoteRef { inode: attr.inode };
    (attr.flags & attr_flag::ELSEWHERE != 0).then_some(found)
}

impl Client {
    /// Asks the inode's shard for its attributes.
    pub(crate) fn follow_remote_inode(&mut self, job_id: usize, found: RemoteRef) {
        let mut body = self.requests.take_body();
        let first = self.jobs.get_mut(job_id).and_then(|job| job.first.as_ref());
        let request = first.and_then(|first| {
            let (plan, follow_up) = RemoteInode::begin(first.op, &first.body, found)?;
            follow_up.encode(&first.body, &mut Writer::new(&mut body));
            let (plan, target) = (Plan::RemoteInode(plan), Target::Inode(found.inode));
            Some(NewRequest::new(plan, follow_up.op(), target))
        });
        match request {
            Some(request) => self.submit(job_id, request, body),
            None => self.finish(job_id, Err(Status::Protocol)),
        }
    }

    /// The inode was removed meanwhile: sends the call's first request again.
    pub(crate) fn retry_first(&mut self, job_id: usize) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let plan = if let Plan::RemoteInode(plan) = job.plan {
            plan.first()
        } else if let Plan::Create(plan) = job.plan {
            plan.first()
        } else {
            return;
        };
        let first = job.first.as_mut().filter(|first| first.retry_count < RETRY_COUNT_MAX);
        let Some(first) = first else { return self.finish(job_id, Err(Status::Stale)) };
        let body = first.body.clone();
        let request = NewRequest::new(plan, first.op, first.target);
        job.grants = JobGrants::default();
        self.submit(job_id, request, body);
    }
}
