//! `completions` and `man`: what shells and `man` read about this program.

use clap::CommandFactory;
use clap_mangen::Man as Page;

use crate::args::{Cli, Completions, Man};
use crate::exit::{Failed, Status};
use crate::output;

/// Writes the completions of a shell.
pub(crate) fn completions(args: &Completions) -> Result<u8, Failed> {
    let mut written = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "distlock", &mut written);
    write(&written)
}

/// Writes the man page of the program, or of one command.
pub(crate) fn man(args: &Man) -> Result<u8, Failed> {
    let mut program = Cli::command();
    // Gives each command the name of its page, such as `distlock-run`.
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => return Err(Failed::usage(format!("there is no command {name:?}"))),
        },
    };
    let mut written = Vec::new();
    let rendered = Page::new(command).render(&mut written);
    rendered.map_err(|error| Failed::new(Status::Software, error))?;
    write(&written)
}

fn write(page: &[u8]) -> Result<u8, Failed> {
    output::text(&String::from_utf8_lossy(page)).map(|()| 0)
}
