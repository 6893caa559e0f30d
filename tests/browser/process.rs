//! What the process that serves the page holds and waits for itself, and what went wrong in it.

use std::time::Duration;

use tokio::sync::Barrier;

use super::browser::browse;
use super::site::{Site, client};

const HOUR: Duration = Duration::from_secs(3600);

fn line(line: u32) -> String {
    format!("process.rs:{line}:")
}

#[tokio::test]
async fn holds_and_waits_of_this_process_come_and_go_with_their_lines() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "billing-2b81").await;
    let _other = worker.lock("other").acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#own-count", "It holds no lock, and nothing waits")
            .await;
        let lock = site.client.lock("order:42");
        let (guard, held) = (lock.acquire().await.unwrap(), line!());
        let (waits, waiting) = (lock.acquire().wait(HOUR), line!());
        let waits = tokio::spawn(waits.into_future());
        let second = tokio::spawn(lock.acquire().into_future());
        let other = tokio::spawn(site.client.lock("other").acquire().into_future());

        page.shows("#own-count", "It holds 1 lock, and 3 acquisitions wait")
            .await;
        // Folded, and grouped by the line.
        page.click("#own > summary").await;
        page.shows("#own-holds", &line(held)).await;
        page.shows("#own-holds", "1 lock is held from here").await;
        page.shows("#own-waits", &line(waiting)).await;
        page.shows("#own-waits", "1 acquisition waits here").await;
        page.run("document.querySelectorAll('#own .line').forEach((it) => { it.open = true; })")
            .await;
        page.shows("#own-waits", "gives up in 59 min").await;
        page.shows("#own-waits", "and 1 other of this process")
            .await;
        // Behind whom: the line of this process, or the client that the server names.
        let behind = "return [...document.querySelectorAll('#own-waits td:last-child')]\
            .map((it) => it.innerText).join('|')";
        let behind = page.run(behind).await.as_str().unwrap().to_owned();
        assert!(behind.contains(&line(held)), "{behind}");
        assert!(behind.contains("billing-2b81"), "{behind}");

        page.click("#own-waits a").await;
        page.shows("#one-own-wait-rows", &line(waiting)).await;
        page.shows("#one-own-hold-rows", &line(held)).await;
        page.click("#back").await;

        second.abort();
        other.abort();
        guard.release().await.unwrap();
        let next = waits.await.unwrap().unwrap();
        page.shows("#own-count", "It holds 1 lock, and 0 acquisitions wait")
            .await;
        page.shows("#own-holds", &line(waiting)).await;
        next.release().await.unwrap();
        page.shows("#own-count", "It holds no lock, and nothing waits")
            .await;
    })
    .await;
}

#[tokio::test]
async fn possible_deadlock_and_lost_lock_stand_above_the_locks_and_this_process_below_them() {
    let (_server, site) = Site::start().await;
    let lease = Duration::from_secs(1);
    let lost = site.client.lock("lost").acquire().lease(lease).await;
    let both = Barrier::new(2);
    let one_inside_the_other = async |outer: &str, inner: &str| {
        let guard = site.client.lock(outer).acquire().await.unwrap();
        both.wait().await;
        let inner = site.client.lock(inner).acquire();
        drop(guard.scope(async { inner.await.ok() }).await);
    };
    let watch = browse(async |page| {
        page.open(&site.url).await;
        page.shows("#problem-list li:nth-child(1)", "Possible deadlock")
            .await;
        page.shows("#problem-list li:nth-child(1)", "waits for b and holds a")
            .await;
        page.shows("#problem-list li:nth-child(2)", "Lost lock")
            .await;
        page.shows("#problem-list li:nth-child(2)", "process.rs:")
            .await;
        let tops = "return ['.figures', '#problems', '#search', '#locks', '#own']\
            .map((it) => document.querySelector(it).getBoundingClientRect().top)";
        let tops = page.run(tops).await;
        let tops: Vec<_> = tops.as_array().unwrap().iter().collect();
        assert!(
            tops.is_sorted_by(|one, other| one.as_f64() < other.as_f64()),
            "{tops:?}"
        );
    });
    tokio::select! {
        () = watch => {}
        _ = async { tokio::join!(one_inside_the_other("a", "b"), one_inside_the_other("b", "a")) } => {
            panic!("they wait for each other")
        }
    }
    drop(lost);
}

/// An outage loses many locks at once.
#[tokio::test]
async fn many_lost_locks_are_folded_so_that_the_locks_are_on_the_second_screen_of_a_phone() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let lease = Duration::from_secs(1);
    let mut kept = Vec::new();
    for lost in 0..20 {
        let lock = site.client.lock(format!("lost:{lost}"));
        kept.push(lock.acquire().lease(lease).await.unwrap());
    }
    let _guard = worker.lock("order:1").acquire().await.unwrap();
    browse(async |page| {
        page.open(&site.url).await;
        page.shows("#more-problems > summary", "17 more").await;
        page.picture(390, 844, "light").await;
        let top = page
            .run("return document.querySelector('#locks').getBoundingClientRect().top")
            .await;
        let top = top.as_f64().unwrap();
        assert!(top < 2.0 * 844.0, "{top} px");
        page.click("#more-problems > summary").await;
        let shown = "return document.querySelectorAll('.problems li').length";
        assert_eq!(page.run(shown).await, 20);
        page.shows("#more-problems", "Lost lock").await;
    })
    .await;
}

#[tokio::test]
async fn hold_of_this_process_is_there_since_it_began_and_not_since_somebody_looked() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let _theirs = worker.lock("theirs").acquire().await.unwrap();
    let _ours = site.client.lock("ours").acquire().await.unwrap();
    browse(async |page| {
        for (key, is_known) in [("ours", true), ("theirs", false)] {
            page.open(&format!("{}#key={key}", site.url)).await;
            page.shows("#one-holders", " s").await;
            let held = "return document.querySelector('#one-holders td:nth-child(2)').innerText";
            let held = page.run(held).await.as_str().unwrap().to_owned();
            assert_eq!(!held.contains("over"), is_known, "{key}: {held}");
            page.open(&site.url).await;
            page.shows("#rows", key).await;
        }
        let all = "return [...document.querySelectorAll('#rows td:nth-child(3)')]\
            .map((it) => it.innerText).filter((it) => it.includes('over')).length";
        assert_eq!(page.run(all).await, 1);
    })
    .await;
}
