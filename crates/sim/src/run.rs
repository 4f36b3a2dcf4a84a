//! One run, from its seed to its verdict.

use crate::due::{Due, Verdict};
use crate::plan::{DiskBehaviour, Injection};
use crate::simulation::Simulation;
use wire::ClientUuid;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// A hash over every event of the run.
    pub run_hash: u64,
    /// The first violated invariant.
    pub violation: Option<String>,
    /// Simulated events.
    pub event_count: u64,
    /// Calls of the workload and of the audit.
    pub call_count: u64,
    /// Crashes of servers.
    pub crash_count: u64,
    /// Names that were changed early in directories at another shard than their parents.
    pub elsewhere_count: u64,
    /// Files that were opened, and written early.
    pub opened_count: u64,
}

/// Simulated time within which the system must come to rest after the last fault.
const REST_NS: u64 = 600_000_000_000;

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, injection: Option<Injection>) -> Outcome {
    outcome(Simulation::new(seed, injection)).0
}

/// Runs a seed and returns its event log too.
#[must_use]
pub fn run_logged(seed: u64, injection: Option<Injection>) -> (Outcome, Vec<String>) {
    let mut simulation = Simulation::new(seed, injection);
    let plan = format!("{:?}", simulation.plan);
    simulation.log = Some(vec![plan]);
    outcome(simulation)
}

fn outcome(mut simulation: Simulation) -> (Outcome, Vec<String>) {
    let violation = run_phases(&mut simulation).err();
    let outcome = Outcome {
        run_hash: simulation.run_hash.sum(),
        violation,
        event_count: simulation.event_count,
        call_count: crate::number::wide(simulation.calls.len()),
        crash_count: simulation.crash_count,
        elsewhere_count: simulation.mounts.iter().map(|mount| mount.early.elsewhere_count).sum(),
        opened_count: simulation.mounts.iter().map(|mount| mount.early.opened_count).sum(),
    };
    (outcome, simulation.log.unwrap_or_default())
}

fn run_phases(simulation: &mut Simulation) -> Verdict {
    simulation.start_servers();
    for lane_count in simulation.plan.client_lanes.clone() {
        let client = simulation.mount(lane_count, false, ClientUuid::NONE);
        for lane in 0..lane_count {
            simulation.schedule_in(simulation.plan.speeds.think_ns, Due::NextCall { client, lane });
        }
    }
    simulation.schedule_faults();
    simulation.schedule_malicious_frame();
    simulation.plan_rotation();
    simulation.begin_trace();
    let end_ns = simulation.now_ns + simulation.plan.faults_ns * 2;
    simulation.run_until(end_ns, |_| false);
    take_violation(simulation)?;
    stop_faults(simulation)?;
    if simulation.plan.last_crash {
        if simulation.plan.last_client_crash {
            let client = simulation.choose(simulation.mounts.len());
            simulation.crash_client(client);
        }
        simulation.crash_some();
    }
    simulation.schedule_starts();
    if !simulation.run_until(simulation.now_ns + REST_NS, Simulation::is_quiet) {
        return Err("the servers do not come to rest".to_owned());
    }
    take_violation(simulation)?;
    if !simulation.run_until(simulation.now_ns + REST_NS, Simulation::is_alarmed) {
        return Err(format!(
            "client {:?} raises no alarm although its store went back",
            simulation.unalarmed()
        ));
    }
    take_violation(simulation)?;
    simulation.begin_audit();
    let end_ns = simulation.now_ns + REST_NS;
    if !simulation.run_until(end_ns, Simulation::audit_is_over) {
        return Err("the audit does not end".to_owned());
    }
    take_violation(simulation)?;
    if simulation.lying_disk.is_any() {
        return Ok(()); // The tree without the lost batches is not known.
    }
    simulation.judge()
}

/// Stops the faults and waits until every call that had begun ends.
fn stop_faults(simulation: &mut Simulation) -> Verdict {
    simulation.faults_stopped = true;
    let now_ns = simulation.now_ns;
    for mount in &mut simulation.mounts {
        mount.partitioned_until_ns = mount.partitioned_until_ns.min(now_ns);
    }
    simulation.schedule_starts();
    if simulation.plan.faults.disk == DiskBehaviour::Failing {
        // A lane whose log failed replies but accepts no changes until the disk is mended and the
        // server restarted.
        if simulation.choose(2) == 0 {
            come_to_rest(simulation)?;
        }
        simulation.mended = true;
        (0..simulation.servers.len()).for_each(|server| simulation.crash_server(server));
    }
    come_to_rest(simulation)
}

/// Every call of a living client ends.
fn come_to_rest(simulation: &mut Simulation) -> Verdict {
    let end_ns = simulation.now_ns + REST_NS;
    let ended = simulation.run_until(end_ns, |simulation| {
        simulation.unanswered_count() == 0 && simulation.is_quiet()
    });
    take_violation(simulation)?;
    if ended {
        return Ok(());
    }
    let waiting = simulation.describe_waiting();
    simulation.log_line(|| waiting);
    let left: Vec<String> = simulation
        .calls
        .iter()
        .enumerate()
        .filter(|(_, call)| call.ended_ns.is_none() && simulation.mounts[call.client].alive)
        .map(|(index, call)| format!("{} {:?}", index + 1, call.spec))
        .collect();
    if left.is_empty() {
        return Err("liveness: all calls have ended, and a server goes on".to_owned());
    }
    Err(format!(
        "liveness: after {} events these calls never ended: {left:?}",
        simulation.event_count
    ))
}

fn take_violation(simulation: &mut Simulation) -> Verdict {
    simulation.violation.take().map_or(Ok(()), Err)
}
