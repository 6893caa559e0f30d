//! The options of the library's settings: one for each row of its table, `--response-timeout` for `response_timeout`.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind};
use distlock::{SettingWord, Settings};

/// What `run` sets by an option of its own, and the other commands do not need, with the name of that option.
const OF_RUN: [(&str, &str); 2] = [("max_hold", "max-hold"), ("watchdog_timeout", "lease")];

/// The name of the option that sets what this word of the library means.
pub(crate) fn option_of(word: &str) -> String {
    let of_run = OF_RUN.iter().find(|(known, _)| *known == word);
    of_run.map_or_else(
        || word.replace('_', "-"),
        |(_, option)| (*option).to_owned(),
    )
}

/// The settings that the command line has.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingArgs(pub(crate) Settings);

/// What is wrong with the text of a setting, without the name that the setting has in the library.
pub(crate) fn wrong(error: distlock::Error) -> String {
    match error {
        distlock::Error::InvalidConfig { value, .. } => value,
        other => other.to_string(),
    }
}

fn rows() -> impl Iterator<Item = &'static SettingWord> {
    let rows = Settings::words().iter();
    rows.filter(|row| OF_RUN.iter().all(|(word, _)| *word != row.word))
}

/// The option of a row. The short help, `-h`, leaves it out.
fn option(row: &SettingWord) -> Arg {
    Arg::new(row.word)
        .long(option_of(row.word))
        .value_name(row.value)
        .help(row.about)
        .help_heading("Settings")
        .global(true)
        .hide_short_help(true)
}

impl Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        rows().map(option).fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut settings = Self::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for row in rows() {
            if let Some(text) = matches.get_one::<String>(row.word) {
                row.set(&mut self.0, text).map_err(|error| {
                    let option = option_of(row.word);
                    let wrong = wrong(error);
                    Error::raw(ErrorKind::ValueValidation, format!("--{option}: {wrong}\n"))
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn each_setting_is_an_option_of_run() {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").unwrap();
        for row in Settings::words() {
            let option = option_of(row.word);
            let mut longs = run.get_arguments().filter_map(Arg::get_long);
            assert!(longs.any(|long| long == option), "no --{option}");
        }
    }

    #[test]
    fn settings_are_read_before_and_after_the_command() {
        let cli = [
            "distlock",
            "--connect-timeout",
            "1s",
            "who",
            "k",
            "--name",
            "n",
        ];
        let cli = Cli::try_parse_from(cli).unwrap();
        let settings = cli.server.settings.0;
        assert_eq!(settings.connect_timeout.unwrap().as_secs(), 1);
        assert_eq!(settings.name.as_deref(), Some("n"));
        let wrong = Cli::try_parse_from(["distlock", "who", "k", "--response-timeout", "5"]);
        let wrong = wrong.unwrap_err().to_string();
        assert!(
            wrong.contains("--response-timeout: `5` has no unit; write `5s`"),
            "{wrong}"
        );
    }
}
