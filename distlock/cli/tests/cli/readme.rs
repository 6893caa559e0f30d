//! The documentation is true: the options and the exit statuses of the README, and the command lines of all pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

const COMMANDS: [&str; 8] = [
    "run",
    "release",
    "ls",
    "who",
    "watch",
    "doctor",
    "completions",
    "man",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    fs::read_to_string(root().join("distlock/cli/README.md")).unwrap()
}

async fn help(command: &[&str]) -> String {
    let words = command.iter().copied().chain(["--help"]);
    stdout(&plain_output(words).await)
}

/// The words `--name` of a text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let names =
        words.filter(|word| word.starts_with("--") && word[2..].starts_with(char::is_alphabetic));
    names.map(str::to_owned).collect()
}

/// The options in a help, each with its text.
fn entries(help: &str) -> Vec<(String, String)> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in help.lines().map(str::trim_start) {
        let option = line.split([' ', ',']).find(|word| word.starts_with("--"));
        match (option, entries.last_mut()) {
            (Some(option), _) if line.starts_with('-') => {
                entries.push((option.to_owned(), line.to_owned()));
            }
            (_, Some((_, text))) => *text += line,
            _ => {}
        }
    }
    entries
}

#[tokio::test]
async fn options_of_the_readme_are_those_of_the_help() {
    let readme = readme();
    let general = options(&help(&[]).await);
    let mut all: BTreeSet<_> = general.clone();
    for command in COMMANDS {
        let of_command = options(&help(&[command]).await);
        for option in of_command.difference(&general) {
            let begins = format!("## `distlock {command}`");
            let heading = readme.lines().find(|line| {
                line.starts_with(&begins)
                    || line.starts_with("## ") && line.contains(&format!("`{command}`"))
            });
            let heading = heading.unwrap_or_else(|| panic!("no section of {command}"));
            let (_, section) = readme.split_once(heading).unwrap();
            let section = section.split("\n## ").next().unwrap();
            assert!(
                options(section).contains(option),
                "{command}: {option} is not in its section"
            );
        }
        all.extend(of_command);
    }
    let documented = options(&readme);
    // `--help` and `--version` need no words, and `--all`, `--path` and `--token` are of other programs.
    let known = ["--help", "--version", "--all", "--path", "--token"].map(str::to_owned);
    // The README names these by the table that `--help` shows.
    let settings = distlock::Settings::words().iter();
    let settings: BTreeSet<_> = settings
        .map(|row| format!("--{}", row.word.replace('_', "-")))
        .collect();
    let missing: Vec<_> = all
        .difference(&documented)
        .filter(|one| !known.contains(one) && !settings.contains(*one))
        .collect();
    assert!(missing.is_empty(), "not in the README: {missing:?}");
    let unknown: Vec<_> = documented
        .difference(&all)
        .filter(|one| !known.contains(one))
        .collect();
    assert!(unknown.is_empty(), "no options: {unknown:?}");
}

#[tokio::test]
async fn defaults_of_the_readme_are_those_of_the_help() {
    let readme = readme();
    let mut compared = 0;
    for command in [&[] as &[&str], &["run"]] {
        let help = help(command).await;
        for (option, text) in entries(&help) {
            let Some((_, default)) = text.split_once("[default: ") else {
                continue;
            };
            let default = default.split(']').next().unwrap();
            let row = readme
                .lines()
                .find(|line| line.starts_with(&format!("| `{option} ")));
            let row = row.unwrap_or_else(|| panic!("no row of {option}"));
            let is_told = row.contains(&format!("`{default}`"));
            assert!(
                is_told,
                "{option}: the default is {default}, and the README says {row}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 3, "only {compared} defaults were found");
}

fn statuses_of_the_readme() -> BTreeSet<u8> {
    let readme = readme();
    let (_, table) = readme.split_once("## Exit statuses").unwrap();
    let table = table.split("\n\n").nth(1).unwrap();
    let cells = table.lines().filter_map(|line| line.split('|').nth(1));
    let numbers = cells.flat_map(|cell| cell.split(','));
    numbers
        .filter_map(|cell| cell.trim().parse().ok())
        .collect()
}

#[test]
fn exit_statuses_of_the_readme_are_those_of_the_code() {
    let code = fs::read_to_string(root().join("distlock/cli/src/exit.rs")).unwrap();
    let variants = code.lines().filter_map(|line| {
        let (_, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        number.parse::<u8>().ok()
    });
    let mut in_code: BTreeSet<u8> = variants.collect();
    assert!(in_code.len() > 5, "{in_code:?}");
    in_code.insert(0);
    assert_eq!(statuses_of_the_readme(), in_code);
}

/// The numbers that a help has below "Exit status".
fn statuses(help: &str) -> BTreeSet<u8> {
    let (_, statuses) = help.split_once("Exit status").unwrap();
    let words = statuses
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    words
        .filter_map(|word| word.trim_end_matches(',').parse().ok())
        .collect()
}

#[tokio::test]
async fn each_help_has_examples_and_the_exit_statuses_of_the_readme() {
    let mut all = BTreeSet::new();
    for command in COMMANDS {
        let help = help(&[command]).await;
        assert!(help.contains("Examples:\n  distlock "), "{help}");
        all.extend(statuses(&help));
    }
    // What each command that asks a server may end with, `run` in particular.
    for command in ["run", "release", "ls", "who", "watch", "doctor"] {
        assert!(
            statuses(&help(&[command]).await).is_superset(&[64, 69, 70, 77, 78].into()),
            "{command}"
        );
    }
    assert!(statuses(&help(&["run"]).await).is_superset(&[75, 79, 126, 127].into()));
    assert_eq!(all, statuses_of_the_readme());
}

/// The members of a JSON value: each path, without the numbers of elements.
fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = format!("{path}.{name}");
                members(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|one| members(one, path, found)),
        _ => {}
    }
}

fn members_of(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    members(value, "", &mut found);
    found
}

async fn held_key(server: &RedisServer, key: &str) -> Process {
    let command = "echo running; read line";
    let mut held = start(server, &["run", key, "--", "sh", "-c", command]);
    held.expect("running", SOON).await;
    held
}

#[tokio::test]
async fn json_of_the_readme_has_the_members_of_the_output() {
    let readme = readme();
    let (_, block) = readme.split_once("```json\n").unwrap();
    let shown: Vec<Value> = block
        .split("```")
        .next()
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let server = RedisServer::start().await;
    let fenced = [
        "run", "job", "--kind", "fenced", "--json", "--", "sh", "-c", "exit 3",
    ];
    let run = stderr(&output(&server, &fenced).await);
    let _held = held_key(&server, "order:42").await;
    let ls = stdout(&output(&server, &["ls", "order:*", "--json"]).await);
    let release = stdout(&output(&server, &["release", "order:42", "--yes", "--json"]).await);
    let doctor = stdout(&output(&server, &["doctor", "--json"]).await);
    let _held = held_key(&server, "order:42").await;
    let busy = ["run", "order:42", "--wait", "0", "--json", "--", "true"];
    let busy = stderr(&output(&server, &busy).await);
    for (shown, said) in shown.iter().zip([run, release, ls, doctor, busy]) {
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(members_of(shown), members_of(&said), "{said}");
    }
    assert_eq!(shown.len(), 5);
}

/// The command lines of a page that call the program, without what makes them a script.
fn command_lines(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for block in page.split("```sh\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let own = block.lines().filter(|line| line.starts_with("distlock "));
        lines.extend(own.map(str::to_owned));
    }
    lines
}

/// All pages for users, by name.
fn pages() -> BTreeMap<String, String> {
    let mut files = vec![root().join("README.md"), root().join("distlock/README.md")];
    files.push(root().join("distlock/cli/README.md"));
    let guide = fs::read_dir(root().join("distlock/src/guide")).unwrap();
    files.extend(guide.map(|entry| entry.unwrap().path()));
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    let page = |file: PathBuf| {
        (
            file.display().to_string(),
            fs::read_to_string(&file).unwrap(),
        )
    };
    files.into_iter().map(page).collect()
}

/// A folder with what the pages call: the program, and scripts that do nothing.
fn folder(server: &RedisServer) -> PathBuf {
    let folder = server.dir().join("shell");
    fs::create_dir(&folder).unwrap();
    symlink(PROGRAM, folder.join("distlock")).unwrap();
    for name in ["report.sh", "write", "service"] {
        let file = folder.join(name);
        fs::write(&file, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Whether `doctor` has found slow answers, and nothing else that is bad.
fn found_only_latency(output: &Output) -> bool {
    let said = stdout(output);
    let mut bad = said
        .lines()
        .filter(|line| line.trim_start().starts_with("BAD "));
    output.status.code() == Some(1)
        && bad.next().is_some_and(|line| line.contains(" latency "))
        && bad.next().is_none()
}

#[tokio::test]
async fn command_lines_of_all_pages_work() {
    let server = RedisServer::builder().appendonly(true).start().await;
    let folder = folder(&server);
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut played = 0;
    for (page, text) in pages() {
        for line in command_lines(&text) {
            // The key that the pages look at and free.
            let held = held_key(&server, "order:42").await;
            let run = async || {
                let mut command = program("sh");
                command
                    .args(["-c", &line])
                    .current_dir(&folder)
                    .env("PATH", &path);
                command.env("REDIS_URL", server.url()).kill_on_drop(true);
                command.stdin(std::process::Stdio::null());
                let output = tokio::time::timeout(SOON, command.output()).await;
                output.expect("the line ends").unwrap()
            };
            let mut output = run().await;
            // As in `doctor_output`: the machine may stand still for a moment.
            for _ in 1..5 {
                if line.starts_with("distlock doctor") && found_only_latency(&output) {
                    output = run().await;
                }
            }
            // Without a terminal `release` needs `--yes`.
            let wanted = if line.starts_with("distlock release") && !line.contains("--yes") {
                64
            } else {
                0
            };
            let (said, logged) = (stdout(&output), stderr(&output));
            assert_eq!(
                output.status.code(),
                Some(wanted),
                "{page}: {line}: {said}{logged}"
            );
            drop(held);
            server.cli(&["FLUSHALL"]).await;
            played += 1;
        }
    }
    assert!(played >= 14, "only {played} command lines were found");
}
