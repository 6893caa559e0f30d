//! Pictures of the page, for people to look at: in `target/console`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use distlock::{Client, Guard, Permit};
use distlock_tests::RedisServer;

use super::browser::{Page, browse};
use super::site::{Site, client, many_locks};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/console");

async fn take(page: &Page, name: &str, (width, height): (u32, u32), scheme: &str) {
    let png = page.picture(width, height, scheme).await;
    assert!(png.starts_with(b"\x89PNG"));
    fs::create_dir_all(FOLDER).unwrap();
    fs::write(Path::new(FOLDER).join(format!("{name}.png")), png).unwrap();
    let wider = "return document.documentElement.scrollWidth - innerWidth";
    let wider = page.run(wider).await.as_i64().unwrap();
    assert!(
        wider <= 0,
        "{name}: the page is {wider} px wider than the screen"
    );
}

/// Locks of several kinds, some of which are waited for.
async fn work(server: &RedisServer, orders: &Client, billing: &Client) -> (Vec<Guard>, Permit) {
    let mut kept = Vec::new();
    for key in ["order:42", "order:57", "order:103", "stock:lamp"] {
        let guard = orders.lock(key).acquire().await.unwrap();
        kept.push(guard);
    }
    let lease = Duration::from_secs(45);
    let report = billing.lock("report:monthly").acquire().lease(lease).await;
    kept.push(report.unwrap());
    let invoice = billing.fair_lock("invoice:2026-11").acquire().await;
    kept.push(invoice.unwrap());
    for _ in 0..3 {
        tokio::spawn(orders.fair_lock("invoice:2026-11").acquire().into_future());
    }
    tokio::spawn(billing.lock("order:42").acquire().into_future());
    let stock = billing.rw_lock("prices").read().acquire().await.unwrap();
    kept.push(stock);
    let printers = orders.semaphore("printers");
    printers.try_set_permits(3).await.unwrap();
    let permit = printers.acquire().await.unwrap();
    // As Redisson writes it.
    let owner = "8a1ce3f2-0c55-4a0e-9d2b-6f4b8f0f7a11:37";
    server.cli(&["HSET", "export:nightly", owner, "1"]).await;
    server.cli(&["PEXPIRE", "export:nightly", "21000"]).await;
    (kept, permit)
}

/// Work of the process that has the console.
async fn own_work(client: &Client) -> Guard {
    let lease = Duration::from_secs(600);
    let guard = client.lock("report:weekly").acquire().lease(lease).await;
    tokio::spawn(
        client
            .lock("report:weekly")
            .acquire()
            .wait(lease)
            .into_future(),
    );
    tokio::spawn(client.lock("order:42").acquire().into_future());
    guard.unwrap()
}

#[tokio::test]
async fn pictures_fit_their_screens() {
    let (server, site) = Site::start().await;
    let orders = client(&server, "orders-7f9c").await;
    let billing = client(&server, "billing-2b81").await;
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#state", "Live").await;
        let _kept = work(&server, &orders, &billing).await;
        page.shows("#rows", "export:nightly").await;
        let _own = own_work(&site.client).await;
        page.shows("#waiting", "6").await;
        page.shows("#own-count", "2 acquisitions wait").await;
        take(page, "list-light", (1100, 820), "light").await;
        take(page, "list-dark", (1100, 820), "dark").await;
        take(page, "list-phone", (390, 844), "light").await;
        page.open(&format!("{}#key=invoice%3A2026-11", site.url))
            .await;
        page.shows("#one-waiters", "orders-7f9c").await;
        take(page, "key-light", (1100, 900), "light").await;
        take(page, "key-phone-dark", (390, 1200), "dark").await;
    })
    .await;
}

#[tokio::test]
async fn many_locks_hostile_names_lost_locks_and_an_outage_fit_their_screens() {
    let (mut server, site) = Site::of(|console| console.environment("production")).await;
    many_locks(&server, 2_000).await;
    let worker = client(&server, &"n".repeat(120)).await;
    let long = format!("export:{}:end", "k".repeat(3_000));
    let keys = [
        &*long,
        "pay\u{202e}gpj.exe",
        "a\nb ",
        "<b>bold</b>",
        "שלום עולם",
    ];
    let _hostile = worker.multi_lock(keys).acquire().await.unwrap();
    let lease = Duration::from_millis(500);
    let _lost = site.client.lock("lost").acquire().lease(lease).await;
    let sizes = [("wide", (1280, 900)), ("narrow", (390, 844))];
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#count", "2,005 keys").await;
        page.shows("#problem-list", "Lost lock").await;
        take(page, "many-dark", (1280, 900), "dark").await;
        for (name, size) in sizes {
            take(page, &format!("many-{name}"), size, "light").await;
        }
        page.run("const it = document.getElementById('client'); it.selectedIndex = it.options.length - 1; \
            it.dispatchEvent(new Event('change'));")
            .await;
        page.shows("#count", "5 of 2,005 keys match").await;
        for (name, size) in sizes {
            take(page, &format!("hostile-{name}"), size, "light").await;
        }
        server.kill();
        page.shows("#notices", "cannot look at the server").await;
        for (name, size) in sizes {
            take(page, &format!("outage-{name}"), size, "light").await;
        }
    })
    .await;
}

#[tokio::test]
async fn pages_of_semaphores_and_latches_fit_their_screens() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "printing-7f9c").await;
    let (printers, seats) = (
        worker.semaphore("printers"),
        worker.expirable_semaphore("seats:flight:LH123"),
    );
    printers.try_set_permits(3).await.unwrap();
    seats.try_set_permits(2).await.unwrap();
    let _permit = printers.acquire_many(2).await.unwrap();
    let _seats = (
        seats.acquire().await.unwrap(),
        seats.acquire().await.unwrap(),
    );
    let _waits = tokio::spawn(seats.acquire().into_future());
    let latch = worker.count_down_latch("import:parts");
    latch.try_set_count(4).await.unwrap();
    let waits = latch.clone();
    let _waits = tokio::spawn(async move { waits.wait().await });
    worker.semaphore("idle").try_set_permits(5).await.unwrap();
    let sizes = [
        ("wide", (1100, 900), "light"),
        ("phone", (390, 1200), "dark"),
    ];
    browse(async |page| {
        for (name, key, fact) in [
            ("semaphore", "printers", "1 free, 2 taken"),
            ("expirable", "seats%3Aflight%3ALH123", "0 free, 2 taken"),
            ("latch", "import%3Aparts", "count 4"),
            ("unused", "idle", "count 5"),
        ] {
            page.open(&format!("{}#key={key}", site.url)).await;
            page.shows("#one-facts", fact).await;
            for (size, pixels, scheme) in sizes {
                take(page, &format!("{name}-{size}"), pixels, scheme).await;
            }
        }
        page.open(&site.url).await;
        page.shows("#count", "3 keys").await;
        for (size, pixels, scheme) in sizes {
            take(page, &format!("numbers-{size}"), pixels, scheme).await;
        }
        // On a phone a cell has two columns: its label and one value. A latch has neither a time nor a lease.
        let odd = "return [...document.querySelectorAll('#rows td:not(:first-child)')]\
            .filter((it) => it.checkVisibility() && it.children.length !== 1).map((it) => it.innerText)";
        assert_eq!(page.run(odd).await, serde_json::json!([]));
    })
    .await;
}
