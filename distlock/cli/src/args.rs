//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use distlock::{Mode, Settings};

use crate::exit::Status;
use crate::help;
use crate::settings::{SettingArgs, wrong};

/// Distributed locks in Redis or Valkey: run commands under them, see who holds them, check the server.
#[derive(Debug, Parser)]
#[command(name = "distlock", version, max_term_width = 100, after_long_help = help::ALL)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The server, for every command.
#[derive(Args, Debug)]
pub(crate) struct Server {
    /// The lock server: redis://, rediss://, redis+sentinel://, redis+cluster:// or redis+unix://. Other users of the machine
    /// see arguments: give a URL with a password by the environment.
    #[arg(long, global = true, env = "REDIS_URL", hide_env_values = true)]
    url: Option<String>,

    /// The library's settings, each by an option of its own.
    #[command(flatten)]
    pub(crate) settings: SettingArgs,

    /// Write JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Server {
    /// The URL, if there is one that is not empty.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while this process holds a lock.
    #[command(after_long_help = help::RUN)]
    Run(Run),
    /// Free a lock, a semaphore or a latch that others use.
    #[command(after_long_help = help::RELEASE)]
    Release(Release),
    /// List the locks under a pattern, with their holders.
    #[command(after_long_help = help::LS)]
    Ls(List),
    /// Show who holds a lock, and who waits for it.
    #[command(after_long_help = help::WHO)]
    Who(Who),
    /// Show the locks under a pattern, again and again.
    #[command(after_long_help = help::WATCH)]
    Watch(Watch),
    /// Check the server: what may cost locks, and what to do about it.
    #[command(after_long_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Write the completions of a shell to stdout.
    #[command(after_long_help = help::COMPLETIONS)]
    Completions(Completions),
    /// Write a man page to stdout.
    #[command(after_long_help = help::MAN)]
    Man(Man),
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The names of the locks in the server. Several are taken together, all of them or none, in any order.
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,

    /// How long to wait for the lock, e.g. 5s; 0 tries once. Without it the wait has no limit, unless the URL or
    /// --default-wait has one.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// The lease, 30s unless the URL has another one (watchdog_timeout). It is renewed while the command runs, unlike the lease
    /// that a program gives to a single acquisition, and frees the lock this long after a crash.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) lease: Option<Duration>,

    /// Keep the lock taken for at least this long, also if the command ends sooner or fails.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) hold_at_least: Option<Duration>,

    /// End the command after it has held the lock for this long. The lock stays held until the command has ended, which may take
    /// --kill-after in addition. Without it the time is the max_hold of the URL, if there is one.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// How long a command may take to end after it got SIGTERM because the lock is lost or --max-hold is over. Then it gets SIGKILL. A
    /// signal that is passed on to the command has no such limit.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) kill_after: Duration,

    /// The kind of lock.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kind: Kind,

    /// Let so many commands of this key run at the same time, with a semaphore in place of a lock.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["kind", "hold_at_least"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) permits: Option<u32>,

    /// The exit status if the lock is still taken when the wait is over.
    #[arg(long, value_name = "STATUS", default_value_t = Status::Busy.code())]
    pub(crate) busy_status: u8,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A kind of lock, by the name that the library's constructors have.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Kind {
    /// One owner at a time. Java's RLock.
    #[default]
    Lock,
    /// One owner at a time, in the order of arrival. Java's RFairLock.
    Fair,
    /// One owner at a time, with a token that grows. The command finds it in DISTLOCK_TOKEN. Java's RFencedLock.
    Fenced,
    /// Many readers, if there is no writer. Java's RReadWriteLock.
    Read,
    /// One writer, if there are no readers.
    Write,
    /// One owner at a time; waiters poll and need no right to subscribe.
    Spin,
}

impl From<Kind> for Mode {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Lock => Self::Reentrant,
            Kind::Fair => Self::Fair,
            Kind::Fenced => Self::Fenced,
            Kind::Read => Self::Read,
            Kind::Write => Self::Write,
            Kind::Spin => Self::Spin,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The name of the lock, the semaphore or the latch in the server.
    pub(crate) key: String,

    /// Release without asking.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// What `ls` and `watch` look at.
#[derive(Args, Clone, Debug)]
pub(crate) struct Looked {
    /// The pattern of the keys, as of SCAN: * for any text, ? for one character.
    #[arg(default_value = "*")]
    pub(crate) pattern: String,

    /// Show each number, also if nobody has a permit of it or listens to it: semaphores and latches that are not in use, and
    /// the counters of other programs.
    #[arg(long)]
    pub(crate) all: bool,

    /// How many keys to look at, at most: those under the pattern that are of the type of a lock, a semaphore or a latch.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_keys: u64,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) looked: Looked,

    /// How many locks to show at most.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) limit: usize,

    /// Show long keys and names as a whole. Without it they are cut to the width of the terminal.
    #[arg(long)]
    pub(crate) wide: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Who {
    /// The name of the lock in the server.
    pub(crate) key: String,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) looked: Looked,

    /// How many locks to look at.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pub(crate) limit: usize,

    /// How often to look: at least every 100ms.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub(crate) interval: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The prefix of the keys for which the user's rights are checked, e.g. shop:
    #[arg(long)]
    pub(crate) prefix: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The command that the page is of, e.g. run. Without it the page is of the program.
    pub(crate) command: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(100) {
        Err("a shorter interval than 100ms would load the server".to_owned())
    } else {
        Ok(interval)
    }
}

/// Reads a time as the library reads it: `500ms`, `5s`, `1m30s` or `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let mut settings = Settings::default();
    // The library reads all times in the same way, and this one has no bound of its own.
    settings.set("default_wait", text).map_err(wrong)?;
    let read = settings.default_wait.filter(|time| *time <= LONGEST);
    read.ok_or_else(|| "longer than 365d".to_owned())
}

/// The longest time of an option. Clocks overflow with much longer ones, and the library takes no longer waits and leases.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn units_of_durations_are_ms_s_m_h_d() {
        for (text, millis) in [
            ("0", 0),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, says) in [
            ("", "1m30s"),
            ("5", "`5` has no unit; write `5s`"),
            ("1M", "write `1m` for minutes"),
            ("1w", "1m30s"),
            ("-5s", "1m30s"),
            ("soon", "1m30s"),
        ] {
            let said = duration(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn times_longer_than_a_year_are_refused() {
        assert_eq!(duration("8760h"), Ok(LONGEST));
        assert_eq!(duration("365d"), Ok(LONGEST));
        for text in ["8760h1ms", "999999999999999s", "unlimited"] {
            assert_eq!(duration(text), Err("longer than 365d".to_owned()), "{text}");
        }
        // humantime panics for it.
        assert!(duration("18446744073709551615s1000ms").is_err());
    }

    #[test]
    fn options_of_the_command_stay_with_the_command() {
        let cli = Cli::try_parse_from(["distlock", "run", "k", "--", "ls", "--json"]).unwrap();
        let Command::Run(run) = cli.command else {
            panic!("not `run`");
        };
        assert_eq!(run.command, ["ls", "--json"]);
        assert!(!cli.server.json);
    }
}
