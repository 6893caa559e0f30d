//! The figures in the READMEs and in the guide are those of the code.
//!
//! Beside each time in the prose stands a comment that does not show on the page, at most [`NEAR`] lines below it:
//! `<!-- 30 s: WATCHDOG_TIMEOUT -->`. It names what holds the figure: a constant of `distlock/src/config/constants.rs` or of its
//! folder, whose value is compared; or a test, which must exist; or another library, as in `<!-- 100 ms: of lock4j -->`.
//! A comment may also be about words, such as `a third`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many lines below its figure a comment may stand.
const NEAR: usize = 4;

/// The words that comments are about, and the numbers that they stand for.
const WORDS: [(&str, Value); 1] = [("a third", Value::Count(3))];

/// The pages of the guide that are not read. The times in `testing` are those of its own examples.
const NOT_READ: [&str; 1] = ["testing.md"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Time(Duration),
    Count(u64),
}

/// A comment that says what holds a figure.
#[derive(Debug)]
struct Comment {
    line: usize,
    figure: String,
    holder: String,
}

/// `30 s` or a word of the list.
fn value(figure: &str) -> Option<Value> {
    if let Some((_, value)) = WORDS.iter().find(|(word, _)| *word == figure) {
        return Some(*value);
    }
    let (number, unit) = figure.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" | "second" | "seconds" => number,
        "min" | "minute" | "minutes" => number * 60.0,
        "h" | "hour" | "hours" => number * 3_600.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    Some(Value::Time(time))
}

/// The lines of a page without its code and comments, and the comments that say what holds a figure.
fn read(page: &str) -> (Vec<String>, Vec<Comment>) {
    let (mut prose, mut comments, mut in_code) = (Vec::new(), Vec::new(), false);
    for (line, text) in page.lines().enumerate() {
        let is_fence = text.trim_start().starts_with("```");
        in_code ^= is_fence;
        if is_fence || in_code {
            prose.push(String::new());
            continue;
        }
        let mut text = text.to_owned();
        while let Some((before, rest)) = text.split_once("<!--") {
            let (comment, after) = rest.split_once("-->").unwrap_or((rest, ""));
            if let Some((figure, holder)) = comment.trim().split_once(": ")
                && value(figure).is_some()
            {
                let (figure, holder) = (figure.to_owned(), holder.to_owned());
                comments.push(Comment {
                    line,
                    figure,
                    holder,
                });
            }
            text = format!("{before}{after}");
        }
        // Every second part is between backticks.
        prose.push(text.split('`').step_by(2).collect::<Vec<_>>().join(" "));
    }
    (prose, comments)
}

/// The times in the prose, each with the line in which it begins. A number and its unit may be in two lines.
fn figures(prose: &[String]) -> Vec<(usize, String)> {
    let words: Vec<(usize, &str)> = prose
        .iter()
        .enumerate()
        .flat_map(|(line, text)| text.split_whitespace().map(move |word| (line, word)))
        .collect();
    let bare = |word: &'_ str| -> String {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        word.replace(',', "")
    };
    let figure = |pair: &[(usize, &str)]| {
        let figure = format!("{} {}", bare(pair[0].1), bare(pair[1].1));
        let is_time = matches!(value(&figure), Some(Value::Time(_)));
        is_time.then_some((pair[0].0, figure))
    };
    words.windows(2).filter_map(figure).collect()
}

/// Whether the comment stands near enough to a line.
fn is_near(comment: &Comment, line: usize) -> bool {
    (line..=line + NEAR).contains(&comment.line)
}

/// The prose in which a comment looks for its figure.
fn above(prose: &[String], comment: &Comment) -> String {
    let first = comment.line.saturating_sub(NEAR);
    let lines = prose[first..=comment.line].join(" ");
    lines.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is wrong with the figures of one page.
fn wrong_figures(page: &str, constants: &HashMap<String, Value>, code: &str) -> Vec<String> {
    let (prose, comments) = read(page);
    let mut wrong = Vec::new();
    for (line, figure) in figures(&prose) {
        let mut held = comments.iter().filter(|one| is_near(one, line));
        if !held.any(|one| one.figure == figure) {
            wrong.push(format!(
                "line {}: no comment says what holds {figure}",
                line + 1
            ));
        }
    }
    for comment in &comments {
        let Comment {
            line,
            figure,
            holder,
        } = comment;
        if !above(&prose, comment).contains(figure.as_str()) {
            wrong.push(format!("line {}: {figure} is not in the text", line + 1));
        }
        let is_held = match constants.get(holder) {
            Some(constant) => value(figure) == Some(*constant),
            None => holder.starts_with("of ") || code.contains(&format!("fn {holder}(")),
        };
        if !is_held {
            let constant = constants.get(holder);
            wrong.push(format!(
                "line {}: {figure} is not {holder} ({constant:?})",
                line + 1
            ));
        }
    }
    wrong
}

/// The constants of a source file that are times or numbers.
fn constants(source: &str) -> HashMap<String, Value> {
    let mut constants = HashMap::new();
    for item in source.split("const ").skip(1) {
        let Some((declared, rest)) = item.split_once(" = ") else {
            continue;
        };
        let (Some((name, _)), Some((expression, _))) =
            (declared.split_once(':'), rest.split_once(';'))
        else {
            continue;
        };
        if let Some(value) = constant(expression, &constants) {
            constants.insert(name.to_owned(), value);
        }
    }
    constants
}

/// The value of `Duration::from_secs(30)`, `3`, `OTHER` or `OTHER.saturating_mul(2)`.
fn constant(expression: &str, known: &HashMap<String, Value>) -> Option<Value> {
    let argument = |function: &str| -> Option<u64> {
        let argument = expression.strip_prefix(function)?.strip_suffix(')')?;
        argument.replace('_', "").parse().ok()
    };
    if let Some(seconds) = argument("Duration::from_secs(") {
        return Some(Value::Time(Duration::from_secs(seconds)));
    }
    if let Some(millis) = argument("Duration::from_millis(") {
        return Some(Value::Time(Duration::from_millis(millis)));
    }
    if let Some((other, factor)) = expression.split_once(".saturating_mul(") {
        let Some(Value::Time(other)) = known.get(other) else {
            return None;
        };
        let factor = factor.strip_suffix(')')?.parse().ok()?;
        return Some(Value::Time(other.saturating_mul(factor)));
    }
    let count = expression.replace('_', "").parse().ok().map(Value::Count);
    count.or_else(|| known.get(expression).copied())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found
}

#[test]
fn times_in_the_readmes_and_the_guide_are_those_of_the_code() {
    let config = [
        "distlock/src/config/constants.rs",
        "distlock/src/config/constants/redis.rs",
        "distlock-tower/src/settings.rs",
    ];
    let config = config.map(|file| fs::read_to_string(root().join(file)).unwrap());
    let constants = constants(&config.concat());
    let code: String = ["tests", "distlock-tower/tests"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), "rs"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let readmes = [
        "README.md",
        "distlock/README.md",
        "distlock-macros/README.md",
    ];
    let mut pages: Vec<_> = readmes.iter().map(|name| root().join(name)).collect();
    pages.extend(files(&root().join("distlock/src/guide"), "md"));
    pages.retain(|page| !NOT_READ.iter().any(|name| page.ends_with(name)));
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        compared += read(&text).1.len();
        let of_page = wrong_figures(&text, &constants, &code).into_iter();
        wrong.extend(of_page.map(|what| format!("{}, {what}", page.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 10, "only {compared} figures were found");
}

#[test]
fn count_of_failures_with_a_test_on_a_real_server_is_that_of_the_table() {
    let table = fs::read_to_string(root().join("tests/FAILURES.md")).unwrap();
    let is_row = |line: &&str| {
        let number = line
            .strip_prefix("| ")
            .and_then(|row| row.split(' ').next());
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let has_own = |line: &&str| {
        let number: u32 = line[2..].split(' ').next().unwrap().parse().unwrap();
        line.contains(&format!("`f{number:02}_"))
    };
    let rows: Vec<_> = table.lines().filter(is_row).collect();
    let own = rows.iter().filter(|line| has_own(line)).count();
    let readme = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let sentence = format!("{own} of the {} failure modes", rows.len());
    assert!(readme.contains(&sentence), "tests/README.md: {sentence}");
}

#[test]
fn figure_without_a_holder_or_with_another_value_is_found() {
    let source = "const LEASE: Duration = Duration::from_secs(30);\nconst PART: u32 = 3;\n\
                  const TWICE: Duration = LEASE.saturating_mul(2);\nconst SAME: Duration = LEASE;";
    let constants = constants(source);
    let wrong = |page: &str| wrong_figures(page, &constants, "fn a_test() {}").len();
    for right in [
        "A lease of 30 s. <!-- 30 s: LEASE -->",
        "A lease of\n30\ns, renewed after a third.\n<!-- 30 s: LEASE --> <!-- a third: PART -->",
        "| a lease (60 s) | <!-- 60 s: TWICE --> |",
        "30 s, 1 min. <!-- 30 s: SAME --> <!-- 1 min: TWICE -->",
        "After 0.1 s or 7 ms. <!-- 0.1 s: of lock4j --> <!-- 7 ms: a_test -->",
        "`30 s`\n```\n30 s\n```\nRust 1.88, 30 servers",
    ] {
        assert_eq!(wrong(right), 0, "{right}");
    }
    for one_mistake in [
        "A lease of 30 s.",
        "A lease of 31 s. <!-- 31 s: LEASE -->",
        "A lease. <!-- 30 s: LEASE -->",
        "After a third. <!-- a third: LEASE -->",
        "7 ms <!-- 7 ms: no_test -->",
        "30 s\n\n\n\n\n\n30 s <!-- 30 s: LEASE -->",
    ] {
        assert_eq!(wrong(one_mistake), 1, "{one_mistake}");
    }
}
