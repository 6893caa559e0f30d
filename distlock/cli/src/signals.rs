//! The signals that end this program, and that a command under a lock gets instead.

use std::future::poll_fn;
use std::task::Poll;
use std::{fs, io};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those that are passed on. SIGKILL and SIGSTOP cannot be.
const PASSED_ON: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// The signals of this process, from now on. They do not end it any more.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// # Errors
    /// The system has no room for a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        // Of `nohup`, for one, or of a shell without job control, for its jobs in the background. The command inherits it.
        let ignored = fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
        let heard = PASSED_ON
            .into_iter()
            .filter(|signal| ignored & bit(*signal) == 0);
        let listen = |signal: Signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        };
        heard.map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that a process ignores, by the kernel's description of it.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn bit(signal: Signal) -> u64 {
    // The first bit is that of signal 1.
    1 << (signal.as_raw() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let of_nohup = "Name:\tsh\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\n";
        assert_eq!(ignored(of_nohup) & bit(Signal::HUP), 1);
        assert_eq!(ignored(of_nohup) & bit(Signal::TERM), 0);
        assert_eq!(ignored("Name:\tsh\n"), 0);
    }
}
