//! The names in the guide's table, in the dashboard and in the alert rules are those of metrics.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The metrics of the guide's table.
pub(crate) fn table() -> BTreeSet<String> {
    let page = read("distlock/src/guide/logs_metrics_alerts.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `distlock_"));
    let names = rows.map(|row| format!("distlock_{}", row.split('`').next().unwrap()));
    names.collect()
}

/// The words of a text that begin as metrics do, without the endings that Prometheus adds to histograms.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("distlock_"));
    let bare = |name: &str| {
        let endings = ["_bucket", "_count", "_sum"];
        let bare = endings.iter().find_map(|ending| name.strip_suffix(ending));
        bare.unwrap_or(name).to_owned()
    };
    names.map(bare).collect()
}

#[test]
fn dashboard_and_alerts_name_only_metrics_of_the_table() {
    let table = table();
    assert_eq!(table.len(), 12);
    for file in ["dashboard.json", "alerts.yml"] {
        let named = names(&read(&format!("examples/observability/{file}")));
        let unknown: Vec<_> = named.difference(&table).collect();
        assert!(
            !named.is_empty() && unknown.is_empty(),
            "{file}: {unknown:?}"
        );
    }
}

#[test]
fn dashboard_is_valid_and_shows_each_metric() {
    let text = read("examples/observability/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let shown = names(target["expr"].as_str().unwrap());
            assert_eq!(shown.len(), 1, "{target}");
        }
    }
    assert_eq!(names(&text), table());
}
