#![doc = include_str!("../README.md")]

mod args;
mod connect;
mod doctor;
mod exit;
mod ls;
mod output;
mod release;
mod report;
mod run;
mod settings;
mod signals;
mod watch;

use std::env;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::connect::connect;
use crate::exit::{Failed, Status};

fn main() -> ExitCode {
    if let Some((program, error)) = run::become_command(env::args_os()) {
        return failed(&run::cannot_run(&program.display().to_string(), &error));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody listens any more where this fails.
            let _written = error.print();
            return if error.use_stderr() {
                Status::Usage.into()
            } else {
                ExitCode::SUCCESS
            };
        }
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
        Err(error) => failed(&error),
    }
}

/// Executes the command. Returns the exit status.
async fn execute(cli: &Cli) -> Result<u8, Failed> {
    let server = &cli.server;
    match &cli.command {
        Command::Run(run) => {
            let client = connect(server, |builder| builder.watchdog_timeout(run.lease)).await?;
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
        Command::Release(release) => {
            let client = connect(server, |builder| builder).await?;
            release::release(&client, release, server.json).await
        }
    }
}

fn failed(failed: &Failed) -> ExitCode {
    eprintln!("distlock: {failed}");
    failed.status.into()
}
