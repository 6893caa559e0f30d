//! What the page says of a lock that was to be freed by force.

use serde_json::Value;

use super::browser::browse;
use super::site::{Site, client};

/// Holds the answers to requests that free a lock back, until `answer` is called. It returns when the page has read the answer.
const HOLD_BACK: &str = "
    const ask = window.fetch;
    window.fetch = (path, options) => path !== 'api/force-release' ? ask(path, options) : new Promise((resolve) => {
        const answer = new Response(JSON.stringify({ released: true }), { headers: { 'content-type': 'application/json' } });
        window.answer = () => new Promise((done) => {
            resolve(answer);
            const look = () => setTimeout(answer.bodyUsed ? () => setTimeout(done, 100) : look, 5);
            look();
        });
    });";

#[tokio::test]
async fn answer_about_one_key_is_not_shown_on_the_page_of_another_one() {
    let (server, site) = Site::start().await;
    let worker = client(&server, "worker").await;
    let _guard = worker.multi_lock(["one", "two"]).acquire().await.unwrap();
    browse(async |page| {
        page.open(&format!("{}#key=one", site.url)).await;
        page.shows("#release", "Free this lock by force").await;
        page.run(HOLD_BACK).await;
        page.type_into("#confirmation", "one").await;
        page.click("#release button").await;
        page.run("location.hash = '#key=two'").await;
        page.shows("#one-key", "two").await;
        page.shows("#release", "Free this lock by force").await;
        page.type_into("#confirmation", "tw").await;
        page.run("return answer()").await;
        let told = page.run("return document.querySelector('#released').textContent");
        assert_eq!(told.await, Value::from(""));
        let typed = page.run("return document.querySelector('#confirmation').value");
        assert_eq!(typed.await, Value::from("tw"));
    })
    .await;
}
