//! A headless Chromium, and what it reports after a test.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::Stdio;
use std::time::{Duration, Instant};

use fantoccini::wd::{TimeoutConfiguration, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use futures_util::FutureExt as _;
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long a test waits for the page: much longer than the two seconds between two looks.
const DEADLINE: Duration = Duration::from_secs(60);

/// A page in a browser that a test has for itself.
#[derive(Debug)]
pub(crate) struct Page {
    client: Client,
}

/// A command that WebDriver does not define and ChromeDriver has.
#[derive(Debug)]
struct OfChrome {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for OfChrome {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// Runs a test in a browser. The browser must have reported no error, and must have asked only the hosts that the test
/// opened.
pub(crate) async fn browse(test: impl AsyncFnOnce(&Page)) {
    let reported = reported_by(test).await;
    assert!(reported.is_empty(), "{reported:#?}");
}

/// Runs a test in which the console does not answer some requests, of which the browser reports an error each.
pub(crate) async fn browse_with_failures(test: impl AsyncFnOnce(&Page)) {
    let mut reported = reported_by(test).await;
    reported.retain(|text| !text.contains("Failed to load resource"));
    assert!(reported.is_empty(), "{reported:#?}");
}

/// Runs a test, and returns what the browser has reported.
async fn reported_by(test: impl AsyncFnOnce(&Page)) -> Vec<String> {
    let (mut driver, port) = driver().await;
    let profile = TempDir::new().unwrap();
    let page = Page {
        client: session(port, &profile).await,
    };
    let passed = AssertUnwindSafe(test(&page)).catch_unwind().await;
    let reported = match passed {
        Ok(()) => page.reported().await,
        Err(_) => Vec::new(),
    };
    // Also after a failure: nothing else ends the browser.
    page.client.clone().close().await.unwrap();
    driver.kill().await.unwrap();
    if let Err(panic) = passed {
        resume_unwind(panic);
    }
    reported
}

/// Starts a driver, and returns its port.
async fn driver() -> (Child, u16) {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| {
            panic!("chromedriver: {error}; `.ci/browser --install` installs it")
        });
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            let port = port.trim_end_matches('.').parse().unwrap();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (driver, port);
        }
    }
    panic!("chromedriver ended without a port");
}

async fn session(port: u16, profile: &TempDir) -> Client {
    let profile = format!("--user-data-dir={}", profile.path().display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
        &profile,
    ];
    let capabilities = json!({
        "goog:chromeOptions": { "args": arguments },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
    });
    let capabilities: Map<String, Value> = serde_json::from_value(capabilities).unwrap();
    let client = ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities)
        .connect(&format!("http://127.0.0.1:{port}"))
        .await
        .unwrap();
    let timeouts = TimeoutConfiguration::new(Some(DEADLINE), Some(DEADLINE), None);
    client.update_timeouts(timeouts).await.unwrap();
    client
}

impl Page {
    pub(crate) async fn open(&self, url: &str) {
        // An address that differs from the last one by its fragment alone would load nothing.
        self.client.goto("about:blank").await.unwrap();
        self.client.goto(url).await.unwrap();
    }

    /// Waits until the element has the text and is visible.
    pub(crate) async fn shows(&self, css: &str, text: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            let seen = self.text(css).await;
            if seen.contains(text) {
                return;
            }
            assert!(
                Instant::now() < until,
                "{css} does not show {text:?}, but {seen:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until there is such an element.
    pub(crate) async fn has(&self, css: &str) {
        let wait = self.client.wait().at_most(DEADLINE);
        wait.for_element(Locator::Css(css)).await.unwrap();
    }

    /// The text that people see in an element.
    async fn text(&self, css: &str) -> String {
        let script = "const found = document.querySelector(arguments[0]); \
            return found?.checkVisibility() ? found.innerText : ''";
        let text = self.client.execute(script, vec![json!(css)]).await.unwrap();
        text.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Clicks on an element. A row may be replaced between the moment when it is found and the click, or move away.
    pub(crate) async fn click(&self, css: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            let clicked = match self.client.find(Locator::Css(css)).await {
                Ok(element) => element.click().await,
                Err(error) => Err(error),
            };
            let Err(error) = clicked else { return };
            assert!(Instant::now() < until, "{css} cannot be clicked: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn type_into(&self, css: &str, text: &str) {
        let element = self.client.find(Locator::Css(css)).await.unwrap();
        element.send_keys(text).await.unwrap();
    }

    pub(crate) async fn clear(&self, css: &str) {
        let element = self.client.find(Locator::Css(css)).await.unwrap();
        element.clear().await.unwrap();
        self.run("document.getElementById('search').dispatchEvent(new Event('input'))")
            .await;
    }

    /// Presses keys, wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let focused = self.client.active_element().await.unwrap();
        focused.send_keys(keys).await.unwrap();
    }

    /// How the page looks.
    pub(crate) async fn picture(&self, width: u32, height: u32, scheme: &str) -> Vec<u8> {
        let emulate = async |command: &str, parameters: Value| {
            let body = json!({ "cmd": command, "params": parameters });
            self.chrome("goog/cdp/execute", body).await;
        };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        emulate("Emulation.setEmulatedMedia", media).await;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        emulate("Emulation.setDeviceMetricsOverride", size).await;
        self.client.screenshot().await.unwrap()
    }

    async fn chrome(&self, path: &'static str, body: Value) -> Value {
        self.client
            .issue_cmd(OfChrome { path, body })
            .await
            .unwrap()
    }

    /// The errors that the browser has logged, and the requests to hosts that no test opens.
    async fn reported(&self) -> Vec<String> {
        let log = self.chrome("se/log", json!({ "type": "browser" })).await;
        let log = log.as_array().unwrap().iter();
        let errors =
            log.filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        let mut reported: Vec<String> = errors.map(Value::to_string).collect();

        let network = self
            .chrome("se/log", json!({ "type": "performance" }))
            .await;
        let messages = network.as_array().unwrap().iter();
        let messages = messages.map(|entry| entry["message"].as_str().unwrap().to_owned());
        let messages = messages.map(|text| serde_json::from_str::<Value>(&text).unwrap());
        let mut asked = 0;
        for message in messages {
            let message = &message["message"];
            if message["method"] != "Network.requestWillBeSent" {
                continue;
            }
            let (page, request) = (
                &message["params"]["documentURL"],
                &message["params"]["request"],
            );
            let is_ours = |url: &Value| url.as_str().unwrap().starts_with("http://127.0.0.1:");
            // The browser has pages of its own.
            if !is_ours(page) {
                continue;
            }
            asked += 1;
            let url = &request["url"];
            if !is_ours(url) {
                reported.push(format!("a request to {url}"));
            }
        }
        assert!(asked > 3, "the browser told of {asked} requests");
        reported
    }
}
