//! One run, from its seed to its verdict.

use crate::plan::{DiskMood, Planted};
use crate::world::{Due, Verdict, World};
use wire::ClientUuid;

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// A hash over everything that happened.
    pub trace: u64,
    /// What was violated.
    pub violation: Option<String>,
    /// Events that happened.
    pub event_count: u64,
    /// Calls that were made.
    pub call_count: u64,
    /// Times that a server died.
    pub crash_count: u64,
}

/// After the last fault everything has to end within this time.
const REST_NS: u64 = 600_000_000_000;

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    outcome(World::new(seed, planted)).0
}

/// Runs a seed and tells what happened, line by line.
#[must_use]
pub fn run_told(seed: u64, planted: Option<Planted>) -> (Outcome, Vec<String>) {
    let mut world = World::new(seed, planted);
    let plan = format!("{:?}", world.plan);
    world.log = Some(vec![plan]);
    outcome(world)
}

fn outcome(mut world: World) -> (Outcome, Vec<String>) {
    let violation = whole(&mut world).err();
    let outcome = Outcome {
        trace: world.trace.sum(),
        violation,
        event_count: world.event_count,
        call_count: crate::number::wide(world.asked.len()),
        crash_count: world.crash_count,
    };
    (outcome, world.log.unwrap_or_default())
}

fn whole(world: &mut World) -> Verdict {
    world.start_server();
    for lane_count in world.plan.client_lanes.clone() {
        let client = world.mount(lane_count, false, ClientUuid::NONE);
        for lane in 0..lane_count {
            world.put_in(world.plan.speeds.think_ns, Due::Think { client, lane });
        }
    }
    world.plan_mishaps();
    world.plan_lie();
    world.plan_rotation();
    world.begin_story();
    let end_ns = world.now_ns + world.plan.faults_ns * 2;
    world.run_until(end_ns, |_| false);
    broken(world)?;
    calm_down(world)?;
    if world.plan.last_crash {
        if world.plan.last_client_crash {
            let client = world.choose(world.mounts.len());
            world.crash_client(client);
        }
        world.crash_server();
    }
    world.put(world.now_ns, Due::Start);
    if !world.run_until(world.now_ns + REST_NS, World::is_quiet) {
        return Err("the server does not come to rest".to_owned());
    }
    broken(world)?;
    if !world.run_until(world.now_ns + REST_NS, World::is_alarmed) {
        return Err(format!(
            "client {:?} does not notice that its store went back",
            world.unalarmed()
        ));
    }
    broken(world)?;
    world.begin_audit();
    let end_ns = world.now_ns + REST_NS;
    if !world.run_until(end_ns, World::audit_is_over) {
        return Err("the audit does not end".to_owned());
    }
    broken(world)?;
    if world.lies.is_any() {
        return Ok(()); // What is left is what it is.
    }
    world.judge()
}

/// The faults stop, and everything that was begun comes to its end.
fn calm_down(world: &mut World) -> Verdict {
    world.calm = true;
    let now_ns = world.now_ns;
    for mount in &mut world.mounts {
        mount.parted_until_ns = mount.parted_until_ns.min(now_ns);
    }
    world.put(world.now_ns, Due::Start);
    if world.plan.faults.disk == DiskMood::Failing {
        // A lane whose log failed answers, but takes nothing more in until somebody has mended the
        // disk and started it again.
        if world.choose(2) == 0 {
            come_to_rest(world)?;
        }
        world.mended = true;
        world.crash_server();
    }
    come_to_rest(world)
}

/// Every call of a living client ends.
fn come_to_rest(world: &mut World) -> Verdict {
    let end_ns = world.now_ns + REST_NS;
    let ended = world.run_until(end_ns, |world| world.unanswered_count() == 0 && world.is_quiet());
    broken(world)?;
    if ended {
        return Ok(());
    }
    let waiting = world.describe_waiting();
    world.tell(|| waiting);
    let left: Vec<String> = world
        .asked
        .iter()
        .enumerate()
        .filter(|(_, asked)| asked.ended_ns.is_none() && world.mounts[asked.client].alive)
        .map(|(index, asked)| format!("{} {:?}", index + 1, asked.wish))
        .collect();
    Err(format!("liveness: after {} events these calls never ended: {left:?}", world.event_count))
}

fn broken(world: &mut World) -> Verdict {
    world.broken.take().map_or(Ok(()), Err)
}
