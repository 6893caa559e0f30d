//! Whether anything of a process group still runs.

use rustix::process::{Pid, test_kill_process_group};

/// Whether a process of the group runs. A process that has ended and whose parent has not asked how (a zombie) does not, though
/// the kernel counts it as one of the group. `untold`: whether one of which the system does not tell that runs.
pub(super) fn runs(group: Pid, untold: bool) -> bool {
    test_kill_process_group(group).is_ok() && has_living(group).unwrap_or(untold)
}

/// `None` if the system does not tell.
#[cfg(target_os = "linux")]
fn has_living(group: Pid) -> Option<bool> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut is_any_told = false;
    for process in processes.flatten() {
        // Those that end at this moment, and what is no process, have none.
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        if let Some((is_alive, of_group)) = state(&stat) {
            is_any_told = true;
            if is_alive && of_group == group.as_raw_nonzero().get() {
                return Some(true);
            }
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
    fn zombies_do_not_live_and_names_may_have_brackets() {
        assert_eq!(state("12 (a) Z b) S 1 7 7 0\n"), Some((true, 7)));
        assert_eq!(state("12 (sh) Z 1 7 7 0\n"), Some((false, 7)));
        assert_eq!(state("cpu 1 2 3\n"), None);
    }
}
