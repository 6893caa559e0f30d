#![doc = include_str!("../README.md")]

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

use crate::args::{Cli, Command};
use crate::connect::connect;
use crate::exit::{Failed, Status};

fn main() -> ExitCode {
    // Before the command line is parsed: these words are those of another program.
    if let Some(not) = run::become_command(env::args_os()) {
        return run::cannot_run(&not.program.display().to_string(), &not.error).told(not.json);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    // One thread: the kernel ends a command with the thread that has started it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(execute(&cli)),
        Err(error) => Err(Failed::new(Status::Software, error)),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(failed) => failed.told(cli.server.json),
    }
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
            let client = connect(server, |builder| match run.lease {
                Some(lease) => builder.watchdog_timeout(lease),
                None => builder,
            })
            .await?;
            run::run(&client, run, server.json).await
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
