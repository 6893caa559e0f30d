//! The child processes of a run: their start, what they say, and their end.

use std::sync::atomic::Ordering;

use distlock_tests::process::Process;
use tokio::task::JoinHandle;

use super::child::ChildConfig;
use super::{NEVER, RedisRun};

pub(super) struct Child {
    pub(super) process: Process,
    pub(super) number: u32,
    /// Returns the lines that were not events.
    reader: JoinHandle<Vec<String>>,
}

impl Child {
    /// The unexpected output of a child that has ended. The last line of one that was killed may be incomplete.
    pub(super) async fn unexpected_output(self, killed: bool) -> Option<String> {
        let lines = self.reader.await.unwrap_or_default();
        let said = self.process.stderr();
        if said.is_empty() && lines.len() <= usize::from(killed) {
            return None;
        }
        let number = self.number;
        Some(format!("process {number} said {lines:?} and {said:?}"))
    }
}

impl RedisRun {
    pub(super) fn start_child(&self) -> Child {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let config = ChildConfig {
            urls: self.urls.clone(),
            resource: self.served.addr(),
            process: number,
            seed: self.context.seed,
            tasks: self.config.scale.tasks_of_a_child,
            end: self.end,
            workload: self.context.workload.clone(),
        };
        let mut process = config.start(&self.config.binary);
        let (mut lines, history) = (process.take_output(), self.history.clone());
        let reader = tokio::spawn(async move {
            let mut odd = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(event) => history.add(event),
                    Err(_) => odd.push(line),
                }
            }
            odd
        });
        Child {
            process,
            number,
            reader,
        }
    }

    /// Waits for the children. Returns what was unexpected of any child of the run.
    pub(super) async fn children_end(&self) -> Vec<String> {
        let mut odd = std::mem::take(&mut *self.odd.lock().await);
        for mut child in self.children.lock().await.drain(..) {
            let ended = child.process.wait(NEVER);
            match self.pulse.timeout(self.hangs_after(), ended).await {
                Ok(status) if status.success() => {}
                Ok(status) => odd.push(format!("process {}: {status}", child.number)),
                Err(_) => {
                    odd.push(format!("process {} never ended", child.number));
                    child.process.kill();
                }
            }
            odd.extend(child.unexpected_output(false).await);
        }
        odd
    }
}
