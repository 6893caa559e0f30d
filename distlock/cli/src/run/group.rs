//! What a command has started: whether anything of its process group still runs, and what runs at the same terminal.

#[cfg(target_os = "linux")]
use std::collections::HashSet;

use rustix::io::{Errno, Result};
use rustix::process::{Pid, test_kill_process_group};

/// Makes this process the new parent of each process below it whose own parent ends. Otherwise the first process of the system would
/// become the parent, and nobody could tell who has started the orphan.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() {
    // Without it, as before Linux 3.4, what has lost its parent is not found.
    let _adopts = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() {}

/// The processes that ran below this one before the command, such as `tee` in `distlock run job -- ./build > >(tee log)`: a shell starts
/// it, and then becomes `distlock`. They and what they start are not of the command.
///
/// If one of them ends before what it has started, the rest becomes a child of this process, and counts as the command's from then on:
/// the system does not tell whose child it was.
#[derive(Default)]
pub(super) struct Earlier {
    /// The id of each and the time of its start: the id may be given again.
    #[cfg(target_os = "linux")]
    processes: HashSet<(i32, u64)>,
}

#[cfg(target_os = "linux")]
impl Earlier {
    /// Those that run now.
    pub(super) fn now() -> Self {
        let own = own_id();
        let below = processes().filter(|id| *id != own && Self::default().descends(*id, own));
        let known = below.filter_map(|id| Some((id, stat(id)?.started)));
        Self {
            processes: known.collect(),
        }
    }

    /// What the command has started, itself or by others, with the command, and what is still in the session of this process: not what
    /// has left the terminal, as a daemon does, and not the rest of a pipe or of a script that this process is a part of.
    pub(super) fn started_since(&self) -> Vec<Pid> {
        let own = own_id();
        let Some(session) = stat(own).map(|own| own.session) else {
            return Vec::new();
        };
        let is_here = |id: &i32| {
            *id != own && stat(*id).is_some_and(|one| one.is_alive && one.session == session)
        };
        let here = processes().filter(is_here);
        here.filter(|id| self.descends(*id, own))
            .filter_map(Pid::from_raw)
            .collect()
    }

    /// Whether the parents of a process lead to this ancestor, and not by one of these processes.
    fn descends(&self, process: i32, ancestor: i32) -> bool {
        (0..LOOKS).any(|_| self.leads_to(process, ancestor))
    }

    fn leads_to(&self, process: i32, ancestor: i32) -> bool {
        let mut id = process;
        while id != ancestor {
            match stat(id) {
                Some(one) if !self.processes.contains(&(id, one.started)) => id = one.parent,
                _ => return false,
            }
        }
        true
    }
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
impl Earlier {
    pub(super) fn now() -> Self {
        Self::default()
    }

    pub(super) fn started_since(&self) -> Vec<Pid> {
        Vec::new()
    }
}

#[cfg(target_os = "linux")]
fn own_id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// How often a line of parents is followed. A process of it that ends meanwhile breaks it: its children have another parent then.
#[cfg(target_os = "linux")]
const LOOKS: usize = 3;

#[cfg(target_os = "linux")]
fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// `None` for a process that has ended, and for one that the system hides.
#[cfg(target_os = "linux")]
fn stat(process: i32) -> Option<Stat> {
    parsed(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

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
    let of_group = |one: &Stat| one.group == group.as_raw_nonzero().get();
    let told = processes().filter_map(stat).filter(of_group);
    told.map(|one| one.is_alive)
        .reduce(|one, other| one || other)
}

#[cfg(not(target_os = "linux"))]
fn has_living(_: Pid) -> Option<bool> {
    None
}

/// What `/proc/PID/stat` tells of a process.
#[cfg(any(target_os = "linux", test))]
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Whether it has not ended.
    is_alive: bool,
    parent: i32,
    group: i32,
    session: i32,
    /// When it was started, in ticks since the start of the system.
    started: u64,
}

/// Reads `1 (sh) S 0 1 1 ..`, which has many more fields. The name may have blanks and brackets.
#[cfg(any(target_os = "linux", test))]
fn parsed(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Stat {
        is_alive: !matches!(state, "Z" | "X"),
        parent: number()?,
        group: number()?,
        session: number()?,
        // Field 22, counted from the id.
        started: fields.nth(15)?.parse().ok()?,
    })
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

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_started_is_found_by_its_parents_and_nothing_else_is() {
        use rustix::process::{getpid, getppid};
        let mut child = sleeper();
        let started = Earlier::default().started_since();
        end(&mut child);
        assert!(started.contains(&id(&child)), "{started:?}");
        assert!(!started.contains(&getpid()) && !started.contains(&getppid().unwrap()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_ran_before_and_what_is_below_it_does_not_count() {
        use std::io::Read;
        use std::process::{Command, Stdio};
        let script = "read line; sleep 60 & echo $!; wait";
        let mut before = Command::new("sh");
        before.args(["-c", script]).stdin(Stdio::piped());
        let mut before = before.stdout(Stdio::piped()).spawn().unwrap();
        let earlier = Earlier::now();
        // Its end has the shell go on.
        drop(before.stdin.take());
        let mut line = Vec::new();
        let mut output = before.stdout.take().unwrap();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        let below = str::from_utf8(&line).unwrap().trim().parse().unwrap();
        let below = Pid::from_raw(below).unwrap();
        let mut since = sleeper();
        let (started, all) = (earlier.started_since(), Earlier::default().started_since());
        let _killed = rustix::process::kill_process(below, rustix::process::Signal::KILL);
        end(&mut before);
        end(&mut since);
        assert!(started.contains(&id(&since)), "{started:?}");
        for one in [id(&before), below] {
            assert!(all.contains(&one), "{all:?}");
            assert!(!started.contains(&one), "{started:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_that_has_the_id_of_an_earlier_one_counts() {
        let mut child = sleeper();
        let number = child.id().cast_signed();
        let started = stat(number).unwrap().started;
        let counts = |started| {
            let processes = HashSet::from([(number, started)]);
            let since = Earlier { processes }.started_since();
            since.contains(&id(&child))
        };
        let found = (counts(started), counts(started - 1));
        end(&mut child);
        assert_eq!(found, (false, true));
    }

    #[cfg(target_os = "linux")]
    fn sleeper() -> std::process::Child {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("60").spawn().unwrap()
    }

    #[cfg(target_os = "linux")]
    fn id(child: &std::process::Child) -> Pid {
        Pid::from_raw(child.id().cast_signed()).unwrap()
    }

    #[cfg(target_os = "linux")]
    fn end(child: &mut std::process::Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn zombies_do_not_live_and_names_may_have_brackets() {
        let told = |is_alive| Stat {
            is_alive,
            parent: 1,
            group: 7,
            session: 5,
            started: 22,
        };
        let line = |state| {
            format!("12 (a) Z b) {state} 1 7 5 0 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n")
        };
        assert_eq!(parsed(&line("S")), Some(told(true)));
        assert_eq!(parsed(&line("Z")), Some(told(false)));
        assert_eq!(parsed("cpu 1 2 3\n"), None);
    }
}
