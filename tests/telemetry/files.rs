//! The names in the guide's table, in the dashboard and in the alert rules are those of metrics.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub(crate) fn read(path: &str) -> String {
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

#[test]
fn dashboard_filters_by_its_variables_and_has_units_and_thresholds_on_its_first_row() {
    let text = read("examples/observability/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["datasource", "job", "instance", "kind"]);
    for panel in dashboard["panels"].as_array().unwrap() {
        let defaults = &panel["fieldConfig"]["defaults"];
        assert!(defaults["unit"].is_string(), "{panel}");
        if panel["gridPos"]["y"] == 0 {
            let steps = defaults["thresholds"]["steps"].as_array();
            assert!(
                panel["type"] == "stat" && steps.is_some_and(|steps| steps.len() > 1),
                "{panel}"
            );
        }
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            // Each metric of an expression is filtered.
            for series in expr.split("distlock_").skip(1) {
                let selector = series
                    .split_once('{')
                    .map(|(_, rest)| rest.split('}').next().unwrap());
                let selector = selector.unwrap_or_default();
                assert!(
                    selector.contains("job=~\"$job\",instance=~\"$instance\""),
                    "{expr}"
                );
                let has_kind = !["connected", "re", "tower"]
                    .iter()
                    .any(|name| series.starts_with(name));
                assert_eq!(selector.contains("kind=~\"$kind\""), has_kind, "{expr}");
            }
        }
    }
}

/// What Grafana offers as types of panels and as units, of what the dashboard uses.
const PANELS: [&str; 2] = ["stat", "timeseries"];
const UNITS: [&str; 6] = ["none", "short", "s", "ops", "reqps", "percentunit"];

/// The columns of a dashboard.
const COLUMNS: u64 = 24;

/// Grafana drops what it does not know, so that a wrong word leaves an empty panel and no error.
#[test]
fn panels_have_a_place_a_type_a_unit_and_variables_that_grafana_knows() {
    let text = read("examples/observability/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables = variables.iter().map(|it| it["name"].as_str().unwrap());
    let known: BTreeSet<_> = variables.chain(["__range", "__rate_interval"]).collect();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let (x, y) = (place("x"), place("y"));
        assert!(x + place("w") <= COLUMNS, "{panel}");
        for column in x..x + place("w") {
            for row in y..y + place("h") {
                assert!(
                    taken.insert((column, row)),
                    "two panels at {column} {row}: {panel}"
                );
            }
        }
        assert!(PANELS.contains(&panel["type"].as_str().unwrap()), "{panel}");
        let defaults = &panel["fieldConfig"]["defaults"];
        assert!(
            UNITS.contains(&defaults["unit"].as_str().unwrap()),
            "{panel}"
        );
        if let Some(steps) = defaults["thresholds"]["steps"].as_array() {
            assert!(
                steps[0]["value"].is_null(),
                "the first step is the base: {panel}"
            );
            let values: Vec<_> = steps[1..]
                .iter()
                .map(|it| it["value"].as_f64().unwrap())
                .collect();
            assert!(values.is_sorted(), "{panel}");
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        let ids: BTreeSet<_> = targets
            .iter()
            .map(|it| it["refId"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), targets.len(), "{panel}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            for after in expression.split('$').skip(1) {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &after[..end.unwrap_or(after.len())];
                assert!(known.contains(name), "no variable {name}: {expression}");
            }
        }
    }
}

/// Nothing is acquired at night, and the page that people look at first should not say "NaN" then.
#[test]
fn first_row_has_a_number_or_words_while_nothing_is_acquired() {
    let text = read("examples/observability/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let mut seen = [0; 2];
    for panel in panels.filter(|panel| panel["gridPos"]["y"] == 0) {
        let expression = panel["targets"][0]["expr"].as_str().unwrap();
        if let Some((_, divisor)) = expression.split_once(" / ") {
            assert!(divisor.starts_with("clamp_min("), "0 / 0: {expression}");
            seen[0] += 1;
        }
        if expression.starts_with("histogram_quantile(") {
            let words = &panel["fieldConfig"]["defaults"]["mappings"][0]["options"];
            assert_eq!(words["match"], "nan", "{panel}");
            assert!(words["result"]["text"].is_string(), "{panel}");
            seen[1] += 1;
        }
    }
    assert_eq!(seen, [1, 1]);
}

#[test]
fn each_alert_has_a_severity_and_a_runbook_that_is_a_page_of_the_guide() {
    let alerts = read("examples/observability/alerts.yml");
    let alerts: Vec<_> = alerts.split("- alert: ").skip(1).collect();
    assert_eq!(alerts.len(), 6);
    for alert in alerts {
        let value = |name: &str| {
            let line = alert
                .lines()
                .find_map(|line| line.trim().strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {alert}"))
                .trim()
                .to_owned()
        };
        assert!(
            ["page", "warning"].contains(&&*value("severity:")),
            "{alert}"
        );
        let url = value("runbook_url:");
        let page = url
            .strip_prefix("https://docs.rs/distlock/latest/distlock/guide/")
            .unwrap();
        let (page, place) = page.split_once("/index.html").unwrap();
        let text = read(&format!("distlock/src/guide/{page}.md"));
        if let Some(heading) = place.strip_prefix('#') {
            let heads = text.lines().filter_map(|line| line.strip_prefix("# "));
            let mut anchors = heads.map(|head| head.to_lowercase().replace(' ', "-"));
            assert!(anchors.any(|anchor| anchor == heading), "{url}");
        }
    }
}

#[test]
fn versions_of_the_facade_and_the_exporter_in_the_guide_are_those_of_the_workspace() {
    let (guide, manifest) = (
        read("distlock/src/guide/logs_metrics_alerts.md"),
        read("Cargo.toml"),
    );
    let minor = |name: &str| {
        let line = manifest
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")));
        let version = line.unwrap().split('"').nth(1).unwrap();
        version.split('.').take(2).collect::<Vec<_>>().join(".")
    };
    let facade = format!("by version {} of `metrics`", minor("metrics"));
    let exporter = minor("metrics-exporter-prometheus");
    let exporter = format!("`metrics-exporter-prometheus`, version {exporter} is the right one");
    let guide = guide.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [facade, exporter] {
        assert!(guide.contains(&text), "the guide does not say: {text}");
    }
}
