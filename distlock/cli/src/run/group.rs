//! Whether anything of a process group still runs.

use rustix::io::{Errno, Result};
use rustix::process::{Pid, test_kill_process_group};

/// Whether a process of the group runs. A process that has ended and whose parent has not asked how (a zombie) does not, though
/// the kernel counts it as one of the group. `untold`: whether one of which the system does not tell that runs.
pub(super) fn runs(group: Pid, untold: bool) -> bool {
    counts(test_kill_process_group(group), untold, || has_living(group))
}

/// Whether a process of the group runs, by what the kernel answers to a signal for the group, and by what the system tells.
fn counts(answer: Result<()>, untold: bool, told: impl FnOnce() -> Option<bool>) -> bool {
    match answer {
        Ok(()) => told().unwrap_or(untold),
        // All that is left has another user, as under `sudo`. Nothing that was sent to it has ended it. Systems other than Linux may
        // answer the same if only zombies are left, which would be waited for without an end.
        Err(Errno::PERM) => told().unwrap_or(untold || cfg!(target_os = "linux")),
        Err(_) => false,
    }
}

/// `None` if the system does not tell. It may also hide the processes of other users (`hidepid`), and then shows none of the group.
#[cfg(target_os = "linux")]
fn has_living(group: Pid) -> Option<bool> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut is_any_told = false;
    for process in processes.flatten() {
        // Those that end at this moment, and what is no process, have none.
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        if let Some((is_alive, of_group)) = state(&stat)
            && of_group == group.as_raw_nonzero().get()
        {
            if is_alive {
                return Some(true);
            }
            is_any_told = true;
        }
    }
    is_any_told.then_some(false)
}

#[cfg(not(target_os = "linux"))]
fn has_living(_: Pid) -> Option<bool> {
    None
}

/// Whether a process lives, and its group, by `/proc/PID/stat`: `1 (sh) S 0 1 ..`. The name may have blanks and brackets.
#[cfg(any(target_os = "linux", test))]
fn state(stat: &str) -> Option<(bool, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let _parent = fields.next()?;
    let group = fields.next()?;
    Some((!matches!(state, "Z" | "X"), group.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_that_may_not_be_signalled_runs_until_the_system_tells_that_it_has_ended() {
        for untold in [true, false] {
            let runs = |answer, told| counts(answer, untold, || told);
            assert!(runs(Err(Errno::PERM), Some(true)));
            let is_linux = cfg!(target_os = "linux");
            assert_eq!(runs(Err(Errno::PERM), None), untold || is_linux);
            assert!(!runs(Err(Errno::PERM), Some(false)));
            assert!(runs(Ok(()), Some(true)));
            assert_eq!(runs(Ok(()), None), untold);
            assert!(!runs(Ok(()), Some(false)));
            assert!(!runs(Err(Errno::SRCH), Some(true)));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn system_tells_nothing_of_a_group_of_which_it_shows_no_process() {
        assert_eq!(has_living(rustix::process::getpgrp()), Some(true));
        // Higher than any process may have.
        let hidden = Pid::from_raw(i32::MAX).unwrap();
        assert_eq!(has_living(hidden), None);
    }

    #[test]
    fn zombies_do_not_live_and_names_may_have_brackets() {
        assert_eq!(state("12 (a) Z b) S 1 7 7 0\n"), Some((true, 7)));
        assert_eq!(state("12 (sh) Z 1 7 7 0\n"), Some((false, 7)));
        assert_eq!(state("cpu 1 2 3\n"), None);
    }
}
