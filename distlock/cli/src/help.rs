//! What `--help` says after the options: examples, and the exit statuses. A test compares the statuses with the README.

/// The end of each list.
macro_rules! of_every_server {
    () => {
        "\
  64   the command line, a key or the URL is wrong
  69   the server does not answer
  70   the server's answer cannot be understood
  77   the server refuses the user, the password or a command
  78   the server cannot be used for locks"
    };
}

pub(crate) const ALL: &str = "\
Examples:
  export REDIS_URL=redis://127.0.0.1:6379
  distlock run job:nightly --wait 5s -- ./report.sh
  distlock ls 'order:*'
  distlock who order:42
  distlock doctor

`distlock COMMAND --help` has the examples and the exit statuses of a command.

Environment:
  REDIS_URL   the server, unless --url names it
  NO_COLOR    if it is set and not empty, there are no colours on a terminal either";

pub(crate) const RUN: &str = concat!(
    "\
Examples:
  distlock run job:nightly --wait 5s -- ./report.sh --all
  distlock run job:nightly --wait 0 --busy-status 0 --max-hold 6h -- ./report.sh
  distlock run cart:7 stock:7 -- ./ship.sh
  distlock run export --permits 3 -- ./export.sh
  distlock run store:7 --kind fenced -- sh -c 'exec ./write --token \"$DISTLOCK_TOKEN\"'

A `run` inside the command of another one must take another key. If two pairs of nested runs take the same keys in different \
     orders, each waits for the other: take several keys in one `run` instead.

Exit status: that of the command, or
  n    128 + the signal that ended the command, or came before its start
",
    of_every_server!(),
    "
  69   also if the lock was lost before the command was started
  70   also if a key holds other data; for a hash, only if the user may look at it, as `who` does
  75   the lock was still taken when the wait was over, see --busy-status
  79   the lock was lost while the command ran, or the command was ended after --max-hold
  126  the command cannot be run
  127  there is no such command"
);

pub(crate) const RELEASE: &str = concat!(
    "\
Examples:
  distlock release order:42
  distlock release order:42 --yes

A semaphore or a latch is deleted: nobody gets a permit until the number is set again, and whoever waits for the latch goes on.

Exit status:
  0    the lock is free, or the semaphore or the latch is deleted
  1    nobody held it, it has another holder or number by now, or the answer was not yes
",
    of_every_server!(),
    "
  64   also if the key is data of another program"
);

pub(crate) const LS: &str = concat!(
    "\
Examples:
  distlock ls
  distlock ls 'order:*' --json
  distlock ls --wide

Exit status:
  0    also if there is no lock
",
    of_every_server!()
);

pub(crate) const WHO: &str = concat!(
    "\
Examples:
  distlock who order:42
  distlock who order:42 --json

Exit status:
  0    somebody holds it
  1    nobody holds it
",
    of_every_server!()
);

pub(crate) const WATCH: &str = concat!(
    "\
Examples:
  distlock watch 'order:*'
  distlock watch --interval 500ms

Exit status:
  0    it was ended by q or Ctrl-C
  n    128 + another signal that ended it
",
    of_every_server!()
);

pub(crate) const DOCTOR: &str = concat!(
    "\
Examples:
  distlock doctor
  distlock doctor --prefix shop: --json

Exit status:
  0    no line is BAD
  1    a line is BAD
",
    of_every_server!()
);

pub(crate) const COMPLETIONS: &str = "\
Examples:
  distlock completions bash > ~/.local/share/bash-completion/completions/distlock
  distlock completions zsh > ~/.zfunc/_distlock
  distlock completions fish > ~/.config/fish/completions/distlock.fish

Exit status:
  0    it was written
  64   the command line is wrong";

pub(crate) const MAN: &str = "\
Examples:
  distlock man > distlock.1
  distlock man run > distlock-run.1

Exit status:
  0    it was written
  64   the command line is wrong";
