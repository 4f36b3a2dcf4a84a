//! The processes of requests. The kernel names the thread that made a request; /proc knows its process and the
//! name of that, as long as it runs.

use std::collections::BTreeMap;
use std::fs;

/// A process and its command name; `None`: it had ended when it was looked at.
type Found = Option<(u32, String)>;

/// Those that were seen, by thread.
#[derive(Default)]
pub(crate) struct Processes {
    threads: BTreeMap<u32, Found>,
}

impl Processes {
    /// Looks at a thread, once.
    pub(crate) fn see(&mut self, thread_id: u32) {
        self.threads.entry(thread_id).or_insert_with(|| find(thread_id));
    }

    /// The process of a thread, and its name.
    pub(crate) fn of(&self, thread_id: Option<u32>) -> (Option<u32>, String) {
        match thread_id {
            None => (None, "(others)".to_owned()),
            // Work that the kernel does for nobody in particular.
            Some(0) => (Some(0), "(kernel)".to_owned()),
            Some(thread_id) => match self.threads.get(&thread_id).cloned().flatten() {
                Some((pid, command)) => (Some(pid), command),
                None => (Some(thread_id), "(ended)".to_owned()),
            },
        }
    }
}

fn find(thread_id: u32) -> Found {
    let status = fs::read_to_string(format!("/proc/{thread_id}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, String::from_utf8_lossy(&command).trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut processes = Processes::default();
        processes.see(own);
        let (pid, command) = processes.of(Some(own));
        assert_eq!(pid, Some(std::process::id()));
        assert!(!command.is_empty() && !command.starts_with('('), "{command}");
        // There is none with this number.
        processes.see(u32::MAX);
        assert_eq!(processes.of(Some(u32::MAX)), (Some(u32::MAX), "(ended)".to_owned()));
        assert_eq!(processes.of(Some(0)).1, "(kernel)");
    }
}
