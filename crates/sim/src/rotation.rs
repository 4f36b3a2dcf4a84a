//! Rotates the secret during a run as documented: rotate at the server, distribute to the clients,
//! retire the earlier secret. No client loses anything.

use crate::due::{Due, Place, RotationStep};
use crate::simulation::Simulation;
use interface::Event;
use test_runtime::{Incoming, Prng};
use wire::{Secret, Secrets};

/// The secret files.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Its own generator, so that runs without rotation draw the same numbers.
    prng: Prng,
    happens: bool,
    /// In the server's file.
    pub(crate) server_secrets: Secrets,
    /// In the clients' file.
    pub(crate) client_secrets: Secrets,
}

impl Rotation {
    pub(crate) fn new(seed: u64, secret: Secret) -> Self {
        let (server_secrets, client_secrets) = (secret.into(), secret.into());
        Self {
            prng: Prng::new(seed.rotate_left(32)),
            happens: seed % 3 == 1,
            server_secrets,
            client_secrets,
        }
    }
}

impl Simulation {
    /// Begins the rotation, in some runs.
    pub(crate) fn plan_rotation(&mut self) {
        if self.rotation.happens && self.plan.injection.is_none() {
            self.schedule_step(RotationStep::Rotate);
        }
    }

    fn schedule_step(&mut self, step: RotationStep) {
        let at_ns = self.now_ns + self.rotation.prng.number() % (self.plan.faults_ns + 1);
        self.schedule_at(at_ns, Due::Rotation(step));
    }

    pub(crate) fn step_rotation(&mut self, step: RotationStep) {
        // A step waits until every lane has received the secrets of the step before.
        if self.secrets_are_being_delivered() {
            return self.schedule_step(step);
        }
        self.log_line(|| format!("secret: {step:?}"));
        let Rotation { prng, server_secrets, client_secrets, .. } = &mut self.rotation;
        match step {
            RotationStep::Rotate => {
                let current = Secret::new(prng.bytes());
                *server_secrets = Secrets { current, earlier: Some(server_secrets.current) };
            }
            RotationStep::Distribute => *client_secrets = server_secrets.current.into(),
            RotationStep::Retire => *server_secrets = server_secrets.current.into(),
        }
        let server_secrets = *server_secrets;
        if step != RotationStep::Distribute {
            for (server, lane) in self.server_lanes() {
                self.deliver(Place::Server(server, lane), Event::Secrets(Some(server_secrets)));
            }
        }
        match step {
            RotationStep::Rotate => self.schedule_step(RotationStep::Distribute),
            RotationStep::Distribute => self.schedule_step(RotationStep::Retire),
            RotationStep::Retire if self.faults_stopped => {}
            RotationStep::Retire => self.schedule_step(RotationStep::Rotate),
        }
    }

    fn secrets_are_being_delivered(&self) -> bool {
        let is = |incoming: &Incoming| matches!(incoming.event, Event::Secrets(_));
        let mut lanes = self.servers.iter().flat_map(|server| &server.lanes);
        lanes.any(|sim_lane| sim_lane.state.inbox.iter().any(is))
    }

    /// A client lane reads its secret file.
    pub(crate) fn read_secrets(&mut self, place: Place) {
        let client_secrets = self.rotation.client_secrets;
        self.deliver(place, Event::Secrets(Some(client_secrets)));
    }
}
