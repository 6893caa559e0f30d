//! The programs of the READMEs and of the guide name the crates that they need, and end as programs in production have to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Error, MemoryServer};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The lines of an orderly end, in this order: both signals, no more connections, a bound on the requests under way, and the locks.
const ORDERLY_END: [&str; 5] = [
    "signal(SignalKind::terminate())?",
    "ctrl_c()",
    "drop(stop)",
    "timeout(Duration::from_secs(5), server).await",
    "client.close(Duration::from_secs(5)).await",
];

/// What is in the standard library, or in the language.
const BUILT_IN: [&str; 6] = ["std", "core", "crate", "self", "super", "alloc"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The blocks of a page that are Rust, without the lines that do not show.
fn programs(page: &str) -> Vec<String> {
    let mut programs = Vec::new();
    let mut rest = page;
    while let Some((_, opened)) = rest.split_once("```") {
        let (language, block) = opened.split_once('\n').unwrap();
        let (block, after) = block.split_once("```").unwrap();
        let language = language.split(',').next().unwrap();
        if matches!(language, "" | "rust" | "no_run" | "ignore") {
            let shown = block.lines().filter(|line| {
                !line.trim_start().starts_with('#') || line.trim_start().starts_with("#[")
            });
            programs.push(shown.map(|line| format!("{line}\n")).collect());
        }
        rest = after;
    }
    programs
}

/// The crates that a program names: by `use`, and before `::` where the name is no module that it has imported.
fn crates(program: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code: String = program
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c| !is_part(c));
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (uses, others): (Vec<_>, Vec<_>) = code
        .split(';')
        .map(str::trim)
        .partition(|item| item.starts_with("use "));
    let imported: BTreeSet<String> = uses.iter().flat_map(|item| names(item)).collect();
    let mut found = BTreeSet::new();
    for item in &uses {
        let path = item.trim_start_matches("use ");
        found.extend(path.split("::").next().map(str::to_owned));
    }
    for item in others {
        for (at, _) in item.match_indices("::") {
            let before = &item[..at];
            let name = &before[before.rfind(|c| !is_part(c)).map_or(0, |end| end + 1)..];
            let is_inner = before[..before.len() - name.len()].ends_with(':');
            let is_type = !name.starts_with(|c: char| c.is_ascii_lowercase());
            if !is_inner && !is_type && !imported.contains(name) {
                found.insert(name.to_owned());
            }
        }
    }
    found.retain(|name| !BUILT_IN.contains(&name.as_str()));
    found
}

/// The crates of the lines `cargo add ..` of a page, as programs name them.
fn added(page: &str) -> BTreeSet<String> {
    let mut added = BTreeSet::new();
    for (_, line) in page
        .match_indices("cargo add ")
        .map(|(at, _)| page[at..].split_at(10))
    {
        let line = line
            .lines()
            .next()
            .unwrap()
            .split(['`', '#'])
            .next()
            .unwrap();
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "--features" => _ = words.next(),
                word if word.starts_with("--") => {}
                word => _ = added.insert(word.rsplit('/').next().unwrap().replace('-', "_")),
            }
        }
    }
    added
}

#[test]
fn each_crate_that_a_program_of_a_readme_names_is_in_a_line_cargo_add_of_that_page() {
    let mut seen = 0;
    for name in [
        "README.md",
        "distlock/README.md",
        "distlock-macros/README.md",
        "distlock-tower/README.md",
        "distlock/src/guide/quick_start.md",
    ] {
        let page = page(name);
        let added = added(&page);
        for program in programs(&page) {
            seen += 1;
            let named = crates(&program);
            let missing: Vec<_> = named.difference(&added).collect();
            assert!(missing.is_empty(), "{name}: {missing:?} of\n{program}");
        }
    }
    assert!(seen >= 12, "only {seen} programs were found");
}

#[test]
fn each_server_of_a_readme_bounds_the_time_for_its_requests_and_then_closes_its_client() {
    let mut servers = 0;
    for name in [
        "distlock-tower/README.md",
        "distlock/src/guide/quick_start.md",
    ] {
        for program in programs(&page(name)) {
            if !program.contains("axum::serve(") {
                continue;
            }
            servers += 1;
            let mut rest = program.as_str();
            for step in ORDERLY_END {
                let found = rest.split_once(step);
                rest = found
                    .unwrap_or_else(|| panic!("{name}: {step} is missing, or comes too late"))
                    .1;
            }
        }
    }
    assert_eq!(servers, 2);
}

/// How many reports the task in the background has written.
static REPORTS: AtomicUsize = AtomicUsize::new(0);

async fn write_reports() {
    loop {
        sleep(Duration::from_secs(60)).await;
        REPORTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes reports while this replica leads, until `stopped` is true. The caller awaits it before `Client::close`.
async fn work(client: Client, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
    let leader = client.leader("report");
    let campaign = leader.run(|_term| write_reports());
    tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => Ok(()), // drops the work, and gives the lead back
        ended = campaign => ended.map(drop), // an error that lasts, such as a login that stays refused: the program ends
    }
}

#[test]
fn task_in_the_background_is_that_of_the_guide() {
    let this = include_str!("samples.rs");
    let program = &this[this.find("/// Writes reports").unwrap()..];
    let (program, _) = program.split_once("\n}\n").unwrap();
    let guide = page("distlock/src/guide/leader.md");
    assert!(guide.contains(program), "{program}");
}

#[tokio::test(start_paused = true)]
async fn task_in_the_background_works_again_after_an_outage_that_is_longer_than_its_lease() {
    let server = MemoryServer::new();
    let clients = [(); 2].map(|()| Client::builder().in_memory(&server).unwrap());
    let (stop, stopped) = watch::channel(false);
    let replicas = clients
        .clone()
        .map(|client| tokio::spawn(work(client, stopped.clone())));
    sleep(Duration::from_secs(70)).await;
    assert_eq!(REPORTS.load(Ordering::Relaxed), 1, "one replica works");

    server.take_down();
    sleep(Duration::from_secs(600)).await;
    let before = REPORTS.load(Ordering::Relaxed);
    assert_eq!(before, 1, "nobody works without a lock");
    server.bring_up();
    sleep(Duration::from_secs(300)).await;
    assert!(REPORTS.load(Ordering::Relaxed) > before);

    stop.send_replace(true);
    for replica in replicas {
        let ended = timeout(Duration::from_secs(1), replica).await;
        ended.expect("it ends").unwrap().unwrap();
    }
    for client in clients {
        client.close(Duration::from_secs(5)).await.unwrap();
    }
}

#[test]
fn each_page_of_the_guide_is_in_the_tables_of_the_readme_and_of_the_guide() {
    let guide = root().join("distlock/src/guide");
    let tables = [page("README.md"), page("distlock/src/guide/mod.rs")];
    let mut pages = 0;
    for entry in fs::read_dir(guide).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        pages += 1;
        let name = path.file_stem().unwrap().to_str().unwrap();
        let [root, guide] = &tables;
        assert!(
            root.contains(&format!("(distlock/src/guide/{name}.md) |")),
            "{name}"
        );
        assert!(guide.contains(&format!("| [`{name}`] |")), "{name}");
    }
    assert!(pages > 20, "only {pages} pages were found");
}

#[test]
fn crates_and_lines_of_cargo_add_are_read_as_people_read_them() {
    let program = "use axum::{Router, routing};\nfn main() {\n    routing::get(a::b::c()); // d::e\n    Router::new();\n}";
    assert_eq!(
        crates(program).into_iter().collect::<Vec<_>>(),
        ["a", "axum"]
    );
    let page = "cargo add --path ../x/distlock-tower --features console  # the page\nalso `cargo add serde --features derive`.";
    let names = added(page);
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["distlock_tower", "serde"]
    );
}
