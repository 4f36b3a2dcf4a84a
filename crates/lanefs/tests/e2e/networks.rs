//! Two hosts, as far as a network knows them: two network namespaces and a wire between them.

use crate::fixture::{Place, must, program, run, wrap};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Both are removed when dropped, and the wire with them.
pub(crate) struct Networks {
    pub(crate) near: Network,
    pub(crate) far: Network,
}

impl Networks {
    /// The address of the near one.
    pub(crate) const NEAR: &str = "10.0.0.1";

    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let [near, far] = ["near", "far"].map(|side| {
            let name = format!("lanefs-{pid}-{number}-{side}");
            must(program("ip").args(["netns", "add", &name]));
            Network { name }
        });
        let wire = ["link", "add", "wire", "netns", &near.name, "type", "veth"];
        must(program("ip").args(wire).args(["peer", "name", "wire", "netns", &far.name]));
        for (network, address) in [(&near, Self::NEAR), (&far, "10.0.0.2")] {
            let address = format!("{address}/24");
            must(network.ip().args(["address", "add", &address, "dev", "wire"]));
            must(network.ip().args(["link", "set", "lo", "up"]));
            must(network.ip().args(["link", "set", "wire", "up"]));
        }
        Self { near, far }
    }
}

pub(crate) struct Network {
    name: String,
}

impl Network {
    fn ip(&self) -> Command {
        let mut command = program("ip");
        command.args(["-n", &self.name]);
        command
    }
}

impl Place for Network {
    fn inside(&self, command: Command) -> Command {
        let mut moved = program("nsenter");
        moved.arg(format!("--net=/run/netns/{}", self.name));
        wrap(moved, command)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        run(program("ip").args(["netns", "delete", &self.name]));
    }
}
