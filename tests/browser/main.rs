//! The console in a real browser: what people see, and what the browser had to complain about.
//!
//! Each test has a browser and a Redis for itself. After each test the browser must have reported no error, and must have
//! asked no other host.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod browser;
mod names;
mod pictures;
mod process;
mod release;
mod site;

use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock::Client;
use distlock_tests::{RedisCluster, RedisServer};
use serde_json::Value;

use self::browser::{Page, browse, browse_with_failures};
use self::site::{Site, client, many_locks};

#[tokio::test]
async fn lock_of_another_client_appears_and_goes_while_the_page_is_open() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "orders-7f9c").await;
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", "Nothing is locked").await;
        page.shows("#state", "Live").await;

        let guard = worker.lock("order:42").acquire().await.unwrap();
        page.shows("#rows", "order:42").await;
        page.shows("#rows", "orders-7f9c").await;
        page.shows("#held", "1").await;

        guard.release().await.unwrap();
        page.shows("#rows", "Nothing is locked").await;
        page.shows("#held", "0").await;
    })
    .await;
}

#[tokio::test]
async fn search_leaves_what_matches_by_key_or_by_client() {
    let (server, site) = Site::start().await;
    let (one, two) = (client(&server, "shop").await, client(&server, "mail").await);
    let _guards = (
        one.multi_lock(["order:42", "stock:7"])
            .acquire()
            .await
            .unwrap(),
        two.lock("letter").acquire().await.unwrap(),
    );
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#count", "3 keys").await;
        // The key of the keyboard that leads to the search.
        page.press("/").await;
        page.press("ORDER").await;
        page.shows("#count", "1 of 3 keys match").await;
        page.shows("#rows", "order:42").await;
        page.clear("#search").await;
        page.type_into("#search", "mail").await;
        page.shows("#count", "1 of 3 keys match").await;
        page.shows("#rows", "letter").await;
        page.type_into("#search", "x").await;
        page.shows("#rows", "No key matches").await;
    })
    .await;
}

#[tokio::test]
async fn page_of_a_key_shows_who_holds_it_who_waits_and_who_held_it() {
    let (server, site) = Site::start().await;
    let (one, two) = (
        client(&server, "first").await,
        client(&server, "second").await,
    );
    let guard = one.fair_lock("a/b?#c").acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", "a/b?#c").await;
        page.click("#rows a").await;
        page.shows("#one-key", "a/b?#c").await;
        page.shows("#one-holders", "first").await;

        let waits = tokio::spawn(two.fair_lock("a/b?#c").acquire().into_future());
        page.shows("#one-waiters", "second").await;
        page.shows("#one-facts", "waiter").await;
        page.has("#one-contention path").await;

        guard.release().await.unwrap();
        let _second = waits.await.unwrap().unwrap();
        page.shows("#one-holders", "second").await;
        page.shows("#one-past", "first").await;
        page.shows("#one-past", "released").await;
        let ended = "return document.querySelector('#one-past td:nth-child(2) > span').title";
        let ended = page.run(ended).await.as_str().unwrap().to_owned();
        assert!(ended.starts_with("between "), "{ended}");

        page.click("#back").await;
        page.shows("#rows", "a/b?#c").await;
        // The contention of the last minutes, of all keys and of this one.
        page.has("#contention path").await;
        page.has("#rows svg.spark path").await;
    })
    .await;
}

#[tokio::test]
async fn lock_is_freed_by_force_after_the_key_was_typed_and_not_before() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "stuck").await;
    let _guard = worker.lock("order:42").acquire().await.unwrap();
    browse(async |page| {
        page.open(&format!("{}#key=order%3A42", site.url)).await;
        page.shows("#release", "Free this lock by force").await;
        page.type_into("#confirmation", "order:4").await;
        page.click("#release button").await;
        page.shows("#released", "This is not the key").await;
        assert!(worker.lock("order:42").is_locked().await.unwrap());

        page.type_into("#confirmation", "2").await;
        page.click("#release button").await;
        page.shows("#released", "The lock was freed").await;
        page.shows("#one-holders", "Nobody holds it").await;
        page.shows("#one-past", "freed by force by somebody").await;
        assert!(!worker.lock("order:42").is_locked().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn lock_that_has_another_holder_than_when_the_typing_began_is_not_freed() {
    let (server, site) = Site::start().await;
    let (first, second) = (
        client(&server, "first").await,
        client(&server, "second").await,
    );
    let guard = first.lock("k").acquire().await.unwrap();
    // The browser reports the refusal.
    browse_with_failures(async |page| {
        page.open(&format!("{}#key=k", site.url)).await;
        page.shows("#one-holders", "first").await;
        page.shows("#release", "Free this lock by force").await;
        page.type_into("#confirmation", "k").await;
        guard.release().await.unwrap();
        let _guard = second.lock("k").acquire().await.unwrap();
        page.shows("#one-holders", "second").await;
        page.click("#release button").await;
        page.shows("#released", "another holder by now: second")
            .await;
        assert!(second.lock("k").is_locked().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn semaphore_with_another_number_than_when_the_typing_began_is_not_deleted_and_then_it_is() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let pool = worker.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    let _permit = pool.acquire().await.unwrap();
    // The browser reports the refusal.
    browse_with_failures(async |page| {
        page.open(&format!("{}#key=pool", site.url)).await;
        page.shows("#one-facts", "2 free, 1 taken").await;
        page.shows("#release", "Delete this semaphore by force")
            .await;
        page.type_into("#confirmation", "pool").await;
        pool.add_permits(2).await.unwrap();
        page.shows("#one-facts", "4 free, 1 taken").await;
        page.click("#release button").await;
        page.shows("#released", "4 free permits by now").await;
        assert!(worker.inspect("pool").await.unwrap().is_held());

        page.type_into("#confirmation", "pool").await;
        page.click("#release button").await;
        page.shows("#released", "It was deleted").await;
        assert!(!worker.inspect("pool").await.unwrap().is_held());

        let latch = worker.count_down_latch("start");
        latch.try_set_count(2).await.unwrap();
        let waiting = tokio::spawn(async move { latch.wait().await });
        page.open(&format!("{}#key=start", site.url)).await;
        page.shows("#release", "Open this latch by force").await;
        page.type_into("#confirmation", "start").await;
        page.click("#release button").await;
        page.shows("#released", "It was deleted").await;
        waiting.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn page_without_the_permission_offers_no_force_release() {
    let (server, site) = Site::of(|console| console).await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("order:42").acquire().await.unwrap();
    browse(async |page| {
        page.open(&format!("{}#key=order%3A42", site.url)).await;
        page.shows("#one-holders", "worker").await;
        assert_eq!(
            page.run("return document.getElementById('release').hidden")
                .await,
            true
        );
    })
    .await;
}

#[tokio::test]
async fn html_in_names_is_shown_as_text() {
    const HTML: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>";
    let (server, site) = Site::start().await;
    let worker = client(&server, "<b>bold</b>").await;
    let _guard = worker.lock(HTML).acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", HTML).await;
        page.shows("#rows", "<b>bold</b>").await;
        page.click("#rows a").await;
        page.shows("#one-key", HTML).await;
        page.shows("#one-holders", "<b>bold</b>").await;
        let made = "return document.querySelectorAll('body script, img, td b').length";
        assert_eq!(page.run(made).await, 0);
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_locks_are_searched_and_few_are_in_the_page() {
    let (server, site) = Site::start().await;
    many_locks(&server, 10_000).await;
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#count", "10,000 keys").await;
        let rows = "return document.querySelectorAll('tr').length";
        let rows = page.run(rows).await.as_u64().unwrap();
        assert!((100..300).contains(&rows), "{rows} rows");

        page.type_into("#search", "order:09999").await;
        page.shows("#count", "1 of 10,000 keys match").await;
        page.shows("#rows", "order:09999").await;
        page.clear("#search").await;
        page.shows("#page", "Page 1 of 100").await;
        page.click("#next").await;
        page.shows("#page", "Page 2 of 100").await;
    })
    .await;
}

#[tokio::test]
async fn rights_that_are_missing_are_named_and_the_rest_is_shown() {
    let server = RedisServer::start().await;
    let user = |name: &str, without: &str| {
        let words = [
            "ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all", without,
        ];
        words.map(str::to_owned)
    };
    for words in [user("nameless", "-client|list"), user("blind", "-scan")] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        server.cli(&words).await;
    }
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("order:42").acquire().await.unwrap();
    let watcher = async |user: &str| {
        let url = server
            .url()
            .replace("redis://", &format!("redis://{user}:pw@"));
        let client = Client::connect(&url).await.unwrap();
        Site::serve(client, |console| console).await
    };
    let (nameless, blind) = (watcher("nameless").await, watcher("blind").await);
    browse(async |page| {
        page.open(&nameless.url).await;
        page.shows("#notices", "+client|list").await;
        page.shows("#rows", "order:42").await;

        page.open(&blind.url).await;
        page.shows("#notices", "+scan").await;
        page.open(&format!("{}#key=order%3A42", blind.url)).await;
        page.shows("#one-holders", "worker").await;
    })
    .await;
}

#[tokio::test]
async fn locks_of_the_other_nodes_are_shown_with_a_notice_while_one_is_away() {
    let builder = RedisCluster::builder().replicas(false);
    // Otherwise the others serve nothing either.
    let builder = builder.arg("--cluster-require-full-coverage", "no");
    let mut cluster = builder.start().await;
    let watcher = Client::connect(&cluster.url()).await.unwrap();
    let worker = Client::connect(&cluster.url()).await.unwrap();
    let site = Site::serve(watcher, |console| console).await;
    // Nodes are asked in the order of their addresses.
    let first = (0..3).min_by_key(|node| cluster.node(*node).port());
    let first = first.unwrap();
    let mut guards = Vec::new();
    for node in (0..3).filter(|node| *node != first) {
        let key = cluster.key_at(node, "order:").await;
        guards.push(worker.lock(&key).acquire().await.unwrap());
    }
    cluster.node_mut(first).kill();
    browse(async |page| {
        page.open(&site.url).await;
        for guard in &guards {
            page.shows("#rows", guard.key()).await;
        }
        page.shows("#notices", "some locks are missing below").await;
        let address = cluster.node(first).addr().to_string();
        page.shows("#notices", &address).await;
    })
    .await;
}

#[tokio::test]
async fn key_that_is_no_lock_is_said_to_be_none_and_a_pattern_without_a_match_has_no_keys() {
    let (server, site) = Site::of(|console| console.pattern("order:*")).await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("stock:7").acquire().await.unwrap();
    server.cli(&["SET", "order:text", "text"]).await;
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#state", "Live").await;
        page.shows("#count", "0 keys").await;
        page.shows("#rows", "Nothing is locked").await;
        page.open(&format!("{}#key=order%3Atext", site.url)).await;
        page.shows("#one-facts", "another program keeps data").await;
        page.shows("#one-holders", "Nobody holds it").await;
        page.open(&format!("{}#key=order%3Afree", site.url)).await;
        page.shows("#one-facts", "free").await;
    })
    .await;
}

/// Shows or hides the tab, as far as its scripts know.
async fn set_hidden(page: &Page, is_hidden: bool) {
    let script = format!(
        "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {is_hidden} }});
        document.dispatchEvent(new Event('visibilitychange'));"
    );
    page.run(&script).await;
}

#[tokio::test]
async fn tab_that_is_hidden_has_no_stream_and_one_that_is_shown_again_has_one() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#state", "Live").await;
        set_hidden(page, true).await;
        page.shows("#state", "Paused").await;
        let streams = site.proxy.streams.load(Ordering::SeqCst);
        let _guard = worker.lock("order:42").acquire().await.unwrap();
        assert_eq!(page.run("return events").await, Value::Null);
        set_hidden(page, false).await;
        page.shows("#rows", "order:42").await;
        page.shows("#state", "Live").await;
        // A stream lasts some seconds, so a slow browser may have opened the next one by now.
        assert!(site.proxy.streams.load(Ordering::SeqCst) > streams);
    })
    .await;
}

#[tokio::test]
async fn answer_that_is_not_the_console_s_is_said_as_what_it_is() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("..").acquire().await.unwrap();
    browse_with_failures(async |page| {
        page.open(&format!("{}#key=..", site.url)).await;
        page.shows("#one-holders", "worker").await;
        site.proxy.is_alone.store(true, Ordering::SeqCst);
        page.shows("#state", "502 Bad Gateway (text/html)").await;
        page.type_into("#confirmation", "..").await;
        page.click("#release button").await;
        page.shows("#released", "502 Bad Gateway (text/html)").await;
        assert!(worker.lock("..").is_locked().await.unwrap());

        site.proxy.is_alone.store(false, Ordering::SeqCst);
        page.shows("#state", "Live").await;
        site.proxy.wants_login.store(true, Ordering::SeqCst);
        page.shows("#state", "login").await;
    })
    .await;
}

#[tokio::test]
async fn closed_client_and_a_server_that_is_gone_are_said() {
    let (mut server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let _guard = worker.lock("order:42").acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#rows", "order:42").await;
        site.client.close(Duration::ZERO).await.unwrap();
        page.shows("#notices", "This client is closed").await;
        server.kill();
        page.shows("#notices", "cannot look at the server").await;
        page.shows("#rows", "order:42").await;
    })
    .await;
}
