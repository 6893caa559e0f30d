#![doc = include_str!("../README.md")]
// They panic if nothing can be written. The module `output` has what does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(not(unix))]
compile_error!(
    "the command line `distlock` needs Unix, for process groups and signals; the library does not"
);

mod args;
mod connect;
mod doctor;
mod exit;
mod help;
mod look;
mod ls;
mod output;
mod pages;
mod release;
mod report;
mod run;
mod settings;
mod signals;
mod terminal;
mod watch;

use std::env;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use crate::args::{Cli, Command};
use crate::connect::{connect, max_hold};
use crate::exit::{Failed, Status};

fn main() -> ExitCode {
    // Before the command line is parsed: these words are those of another program.
    if let Some(not) = run::become_command(env::args_os()) {
        return run::cannot_run(&not.program.display().to_string(), &not.error).told(not.json);
    }
    let mut cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    // `run` keeps this time by itself, also that of the URL.
    if let Command::Run(run) = &mut cli.command {
        run.max_hold = run.max_hold.or_else(|| max_hold(&cli.server));
    }
    // One thread: the kernel ends a command with the thread that has started it.
    let runtime = Builder::new_current_thread().enable_all().build();
    let failed = match runtime {
        Ok(runtime) => return block_on(runtime, told(&cli)),
        Err(error) => Failed::new(Status::Software, error),
    };
    failed.told(cli.server.json)
}

/// Executes the command, and writes what went wrong. Returns the exit status.
async fn told(cli: &Cli) -> ExitCode {
    let status = match execute(cli).await {
        Ok(status) => ExitCode::from(status),
        Err(failed) => failed.told(cli.server.json),
    };
    output::noted().await;
    status
}

/// Executes a future, and returns when it is ready. The drop of the runtime would wait for its threads, and the look-up of a name
/// blocks one of them until all name servers have answered or timed out.
fn block_on<F: Future>(runtime: Runtime, work: F) -> F::Output {
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Writes the help that was asked for, or what is wrong with the command line. Returns the exit status.
fn not_parsed(error: &clap::Error) -> ExitCode {
    // What follows `--` are words of the command.
    let mut own = env::args_os().take_while(|word| word != "--");
    if error.use_stderr() && own.any(|word| word == "--json") {
        let message = error.render().to_string();
        return Failed::usage(message.trim_start_matches("error: ").trim_end()).told(true);
    }
    // Nobody listens any more where this fails.
    let _written = error.print();
    if error.use_stderr() {
        ExitCode::from(Status::Usage.code())
    } else {
        ExitCode::SUCCESS
    }
}

/// Executes the command. Returns the exit status.
async fn execute(cli: &Cli) -> Result<u8, Failed> {
    let server = &cli.server;
    match &cli.command {
        Command::Run(run) => {
            let connecting = connect(server, |builder| match run.lease {
                Some(lease) => builder.watchdog_timeout(lease),
                None => builder,
            });
            run::run(connecting, run, server.json).await
        }
        Command::Ls(args) => {
            ls::list(
                &connect(server, |builder| builder).await?,
                args,
                server.json,
            )
            .await
        }
        Command::Who(args) => {
            ls::who(
                &connect(server, |builder| builder).await?,
                args,
                server.json,
            )
            .await
        }
        Command::Watch(args) => {
            watch::watch(
                &connect(server, |builder| builder).await?,
                args,
                server.json,
            )
            .await
        }
        Command::Doctor(args) => doctor::doctor(server, args).await,
        Command::Completions(args) => pages::completions(args),
        Command::Man(args) => pages::man(args),
        Command::Release(release) => {
            let client = connect(server, |builder| builder).await?;
            release::release(&client, release, server.json).await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn end_does_not_wait_for_a_thread_that_blocks() {
        let (unblock, blocked) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().unwrap();
            let done = block_on(runtime, async move {
                // Like the look-up of a name.
                tokio::task::spawn_blocking(move || {
                    begun.send(()).unwrap();
                    blocked.recv()
                });
                has_begun.recv().unwrap();
                7
            });
            end.send(done)
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(7));
        drop(unblock);
    }
}
