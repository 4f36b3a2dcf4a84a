//! The secret is changed during a run, in the documented order: rotate, give the new secret to the clients, retire
//! the earlier one. No client loses anything by that.

use crate::desk::Coming;
use crate::dice::Dice;
use crate::world::{Due, Place, World};
use interface::Event;
use wire::{Secret, Secrets};

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Rotate,
    Give,
    Retire,
}

/// The files.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Of its own, so that runs without it stay what they were.
    dice: Dice,
    happens: bool,
    /// What the server's says.
    pub(crate) kept: Secrets,
    /// What the clients' say.
    pub(crate) given: Secrets,
}

impl Rotation {
    pub(crate) fn new(seed: u64, secret: Secret) -> Self {
        let (kept, given) = (secret.into(), secret.into());
        Self { dice: Dice::new(seed.rotate_left(32)), happens: seed % 3 == 1, kept, given }
    }
}

impl World {
    /// Begins, in some runs.
    pub(crate) fn plan_rotation(&mut self) {
        if self.rotation.happens && self.plan.planted.is_none() {
            self.put_step(Step::Rotate);
        }
    }

    fn put_step(&mut self, step: Step) {
        let at_ns = self.now_ns + self.rotation.dice.throw() % (self.plan.faults_ns + 1);
        self.put(at_ns, Due::Rotation(step));
    }

    pub(crate) fn step_rotation(&mut self, step: Step) {
        // Each waits until every lane goes by the one before.
        if self.secrets_are_under_way() {
            return self.put_step(step);
        }
        self.tell(|| format!("secret: {step:?}"));
        let Rotation { dice, kept, given, .. } = &mut self.rotation;
        match step {
            Step::Rotate => {
                let current = Secret::new(dice.bytes());
                *kept = Secrets { current, earlier: Some(kept.current) };
            }
            Step::Give => *given = kept.current.into(),
            Step::Retire => *kept = kept.current.into(),
        }
        let kept = *kept;
        if step != Step::Give {
            for lane in 0..self.server.seats.len() {
                self.bring(Place::Server(lane), Coming::Plain(Event::Secrets(Some(kept))));
            }
        }
        match step {
            Step::Rotate => self.put_step(Step::Give),
            Step::Give => self.put_step(Step::Retire),
            Step::Retire if self.calm => {}
            Step::Retire => self.put_step(Step::Rotate),
        }
    }

    fn secrets_are_under_way(&self) -> bool {
        let is = |coming: &Coming| matches!(coming, Coming::Plain(Event::Secrets(_)));
        self.server.seats.iter().any(|seat| seat.desk.inbox.iter().any(is))
    }

    /// A client lane reads its file.
    pub(crate) fn read_secrets(&mut self, place: Place) {
        let given = self.rotation.given;
        self.bring(place, Coming::Plain(Event::Secrets(Some(given))));
    }
}
