//! What `compose.yaml` says. It is not started here: that needs Docker.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// A file of this folder, or of one beside it.
fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn words(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect()
}

#[test]
fn compose_file_has_at_most_40_lines_and_starts_two_replicas_beside_redis_prometheus_and_grafana() {
    let file = text("compose.yaml");
    assert!(file.lines().count() <= 40);
    let compose = yaml(&file);
    let services = compose["services"].as_object().unwrap();
    let names: Vec<_> = services.keys().map(String::as_str).collect();
    for name in ["redis", "shop", "prometheus", "grafana"] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    assert_eq!(
        (
            names.len(),
            &compose["services"]["shop"]["deploy"]["replicas"]
        ),
        (4, &2.into())
    );
}

#[test]
fn replicas_are_told_of_redis_and_each_option_is_one_that_the_program_has() {
    let compose = yaml(&text("compose.yaml"));
    let shop = &compose["services"]["shop"];
    let command = words(&shop["command"]);
    assert!(
        command
            .windows(2)
            .any(|pair| pair == ["--redis", "redis://redis:6379"])
    );
    // Each option is a field of the program's arguments.
    let program = text("../order_service/src/main.rs");
    for option in command.iter().filter_map(|word| word.strip_prefix("--")) {
        let field = format!("    {}: ", option.replace('-', "_"));
        assert!(program.contains(&field), "no option --{option}");
    }
    let dockerfile = shop["build"]["dockerfile_inline"].as_str().unwrap();
    let manifest = text("../order_service/Cargo.toml");
    for feature in ["redis", "metrics"] {
        assert!(dockerfile.contains(feature) && manifest.contains(&format!("\n{feature} = ")));
    }
}

#[test]
fn console_of_each_replica_has_a_port_of_its_own_on_this_machine() {
    let compose = yaml(&text("compose.yaml"));
    let shop = &compose["services"]["shop"];
    let [published] = words(&shop["ports"])[..] else {
        panic!("{shop}")
    };
    let parts: Vec<&str> = published.split(':').collect();
    let [address, range, inside] = parts[..] else {
        panic!("{published}")
    };
    let (first, last) = range.split_once('-').unwrap();
    let [first, last] = [first, last].map(|port| port.parse::<u64>().unwrap());
    // Nobody else's machine can read the consoles, which have no authentication.
    assert_eq!(address, "127.0.0.1");
    assert_eq!(shop["deploy"]["replicas"], last - first + 1);
    assert!(words(&shop["command"]).contains(&&*format!("0.0.0.0:{inside}")));
}

#[test]
fn prometheus_asks_each_replica_for_its_metrics_and_grafana_asks_prometheus() {
    let compose = yaml(&text("compose.yaml"));
    let config = |name: &str| yaml(compose["configs"][name]["content"].as_str().unwrap());
    let target = &config("scrape")["scrape_configs"][0]["dns_sd_configs"][0];
    assert_eq!(target["names"][0], "shop");
    let port = format!("0.0.0.0:{}", target["port"]);
    assert!(words(&compose["services"]["shop"]["command"]).contains(&port.as_str()));
    assert_eq!(
        config("data")["datasources"][0]["url"],
        "http://prometheus:9090"
    );
    assert_eq!(
        config("dashboards")["providers"][0]["options"]["path"],
        "/dashboards"
    );
    for service in ["prometheus", "grafana"] {
        let service = &compose["services"][service];
        for mounted in words(&service["volumes"]) {
            let (file, _) = mounted.split_once(':').unwrap();
            assert!(!text(file).is_empty());
        }
        let sources = service["configs"].as_array().unwrap();
        assert!(
            sources
                .iter()
                .all(|one| !compose["configs"][one["source"].as_str().unwrap()].is_null())
        );
    }
}

#[test]
fn folder_that_is_sent_to_docker_has_no_compiled_programs() {
    let ignored = text("../../.dockerignore");
    let lines: Vec<_> = ignored.lines().collect();
    // Some GB, of this workspace and of the cookbook.
    assert!(lines.contains(&"**/target"), "{lines:?}");
}
