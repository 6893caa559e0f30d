//! Names that are long or invisible, what the head of the page says, and what can be chosen on it.

use distlock::Client;

use super::browser::browse;
use super::site::{Site, client};

#[tokio::test]
async fn long_key_is_cut_in_the_middle_and_shown_whole_when_asked_for() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let key = format!("order:{}:end", "x".repeat(3_000));
    let _guard = worker.lock(key.clone()).acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", " … ").await;
        let (length, height) = (
            "return document.querySelector('#rows a').textContent.length",
            "return document.querySelector('#rows tr').offsetHeight",
        );
        assert!(page.run(length).await.as_u64().unwrap() < 100);
        let height = page.run(height).await.as_u64().unwrap();
        assert!(height < 150, "{height} px");
        let title = page
            .run("return document.querySelector('#rows a').title")
            .await;
        assert_eq!(title, key);
        page.click("#rows a").await;
        page.shows("#one-key", ":end").await;
        page.shows("#one-holders", "worker").await;
        let text = "return document.querySelector('#one-key').textContent";
        assert!(page.run(text).await.as_str().unwrap().len() < 200);
        page.click("#whole").await;
        assert_eq!(page.run(text).await, key);
    })
    .await;
}

#[tokio::test]
async fn key_with_a_line_break_and_a_turned_text_is_seen_and_freed_as_it_is_shown() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let key = "pay\n\u{202e}exe ";
    let _guard = worker.lock(key).acquire().await.unwrap();
    let shown = r"pay\n\u{202e}exe\u{20}";
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", shown).await;
        page.click("#rows a").await;
        page.shows("#one-key", shown).await;
        page.shows("#as-shown", "with its escapes").await;
        page.type_into("#confirmation", "pay exe").await;
        page.click("#release button").await;
        page.shows("#released", "This is not the key").await;
        page.clear("#confirmation").await;
        page.type_into("#confirmation", shown).await;
        page.click("#release button").await;
        page.shows("#released", "The lock was freed").await;
        assert!(!worker.lock(key).is_locked().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn head_and_title_say_server_prefix_environment_and_version() {
    let server = distlock_tests::RedisServer::start().await;
    let builder = Client::builder().key_prefix("shop:");
    let client = builder.connect(&server.url()).await.unwrap();
    let site = Site::serve(client.clone(), |console| console.environment("production")).await;
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#environment", "production").await;
        page.shows("#where", &client.servers()).await;
        page.shows("#where", "prefix shop:").await;
        page.shows("#where", env!("CARGO_PKG_VERSION")).await;
        let title = page.run("return document.title").await;
        let title = title.as_str().unwrap();
        assert!(title.starts_with("production"), "{title}");
        assert!(
            title.contains(&client.servers()) && title.contains("shop:"),
            "{title}"
        );
    })
    .await;
}

#[tokio::test]
async fn kind_prefix_and_client_filter_the_list() {
    let (server, site) = Site::start().await;
    let (one, two) = (client(&server, "shop").await, client(&server, "mail").await);
    let _guards = (
        one.lock("order:1").acquire().await.unwrap(),
        one.fenced_lock("stock:2").acquire().await.unwrap(),
        two.lock("order:3").acquire().await.unwrap(),
    );
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#count", "3 keys").await;
        let choose = async |id: &str, value: &str| {
            let script = format!(
                "const it = document.getElementById('{id}'); it.value = '{value}';
                it.dispatchEvent(new Event('change')); return it.value;"
            );
            assert_eq!(page.run(&script).await, value);
        };
        choose("kind", "fenced_lock").await;
        page.shows("#count", "1 of 3 keys match").await;
        page.shows("#rows", "stock:2").await;
        choose("kind", "").await;
        choose("prefix", "order:").await;
        page.shows("#count", "2 of 3 keys match").await;
        choose("client", "mail").await;
        page.shows("#count", "1 of 3 keys match").await;
        page.shows("#rows", "order:3").await;
    })
    .await;
}

#[tokio::test]
async fn paused_page_stays_as_it_is_until_it_goes_on() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let guard = worker.lock("order:1").acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", "order:1").await;
        page.click("#pause").await;
        page.shows("#state", "Paused").await;
        let now = page.run("return serverNow()").await;
        guard.release().await.unwrap();
        let _next = worker.lock("order:2").acquire().await.unwrap();
        page.shows("#rows", "order:1").await;
        assert_eq!(page.run("return serverNow()").await, now);
        assert_eq!(page.run("return events").await, serde_json::Value::Null);
        page.click("#pause").await;
        page.shows("#rows", "order:2").await;
        page.shows("#state", "Live").await;
    })
    .await;
}

#[tokio::test]
async fn time_of_day_is_told_where_an_age_is_shown() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("order:1").acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", "order:1").await;
        for (column, begins) in [(3, "s"), (4, "until ")] {
            let title = format!(
                "return document.querySelector('#rows td:nth-child({column}) > span').title"
            );
            let title = page.run(&title).await;
            let title = title.as_str().unwrap();
            assert!(
                title.starts_with(begins) && title.contains("202"),
                "{title}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn page_behind_a_proxy_that_strips_its_prefix_works_with_and_without_the_last_slash() {
    let (server, site) = Site::stripped().await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("a/b").acquire().await.unwrap();
    browse(async |page| {
        for url in [site.url.clone(), format!("{}/", site.url)] {
            page.open(&url).await;
            page.shows("#rows", "a/b").await;
            page.click("#rows a").await;
            page.shows("#one-holders", "worker").await;
        }
    })
    .await;
}

#[tokio::test]
async fn table_of_locks_begins_within_the_first_screen_of_a_phone() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("order:1").acquire().await.unwrap();
    let waits: Vec<_> = (0..50)
        .map(|_| tokio::spawn(site.client.lock("order:1").acquire().into_future()))
        .collect();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#own-count", "50 acquisitions wait").await;
        page.picture(390, 844, "light").await;
        let top = page
            .run("return document.querySelector('#locks').getBoundingClientRect().top")
            .await;
        let top = top.as_f64().unwrap();
        assert!(top < 844.0, "{top} px");
    })
    .await;
    waits.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn semaphore_that_nobody_uses_is_not_listed_and_its_page_is_found_by_the_search() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let pool = worker.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#count", "0 keys").await;
        page.type_into("#search", "pool").await;
        page.click("#exact a").await;
        page.shows("#one-key", "pool").await;
        page.shows("#one-facts", "count 3").await;
        let _permit = pool.acquire().await.unwrap();
        page.shows("#one-facts", "2 free, 1 taken").await;
        page.click("#back").await;
        page.shows("#rows", "pool").await;
    })
    .await;
}
