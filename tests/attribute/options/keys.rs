use super::*;

struct Order {
    id: u64,
}

#[distributed_lock(key = "{pay}:<order.id>:<name.to_uppercase()>:<<<*count>>>", client = client)]
async fn template(client: &Client, order: Order, name: &str, count: &u8) -> Result<bool, Error> {
    let key = format!("{{pay}}:{}:{}:<{count}>", order.id, name.to_uppercase());
    Ok(held(client, &key).await)
}

#[tokio::test]
async fn template_renders_its_expressions() {
    let client = Client::in_memory();
    let order = Order { id: 7 };
    assert!(template(&client, order, "ab", &3).await.unwrap());
    assert!(!held(&client, "{pay}:7:AB:<3>").await);
}

#[distributed_lock(keys = [("order:<id>"), (("stock:<id>"))], client = client)]
async fn in_parentheses(client: &Client, id: u64) -> Result<[bool; 2], Error> {
    Ok([held(client, "order:7").await, held(client, "stock:7").await])
}

#[tokio::test]
async fn template_may_stand_in_parentheses() {
    let client = Client::in_memory();
    assert_eq!(in_parentheses(&client, 7).await.unwrap(), [true; 2]);
}

#[distributed_lock(key = format!("order:{id:04}"), client = client)]
async fn expression(client: &Client, id: u64) -> Result<bool, Error> {
    Ok(held(client, "order:0042").await)
}

#[tokio::test]
async fn expression_is_the_whole_key() {
    assert!(expression(&Client::in_memory(), 42).await.unwrap());
}

#[distributed_lock(key = "<tenant>:<id>", client = client)]
async fn parts(client: &Client, tenant: &str, id: &str, ran: &AtomicBool) -> Result<(), Error> {
    ran.store(true, Ordering::Relaxed);
    Ok(())
}

#[tokio::test]
async fn empty_placeholder_is_an_error_and_the_body_does_not_run() {
    let (client, ran) = (Client::in_memory(), AtomicBool::new(false));
    for (tenant, id) in [("", "1"), ("a", "")] {
        let error = parts(&client, tenant, id, &ran).await.unwrap_err();
        assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
    }
    assert!(!ran.load(Ordering::Relaxed));
    parts(&client, "a", "1", &ran).await.unwrap();
    assert!(ran.load(Ordering::Relaxed));
}

#[distributed_lock(keys = ["<tenant>:all", "<tenant>:<id>", ..more.iter().copied()], client = client)]
async fn list(
    client: &Client,
    (tenant, id): (&str, &str),
    more: &[&str],
    ran: &AtomicBool,
) -> Result<(), Error> {
    ran.store(true, Ordering::Relaxed);
    Ok(())
}

#[tokio::test]
async fn empty_placeholder_anywhere_in_a_list_is_an_error() {
    let (client, ran) = (Client::in_memory(), AtomicBool::new(false));
    for (parts, more) in [
        (("", "1"), ["x"].as_slice()),
        (("a", ""), &["x"]),
        (("a", ""), &[]),
        (("a", "1"), &["x", ""]),
    ] {
        let error = list(&client, parts, more, &ran).await.unwrap_err();
        assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
        assert!(!held(&client, "a:all").await);
    }
    assert!(!ran.load(Ordering::Relaxed));
    list(&client, ("a", "1"), &["x"], &ran).await.unwrap();
    assert!(ran.load(Ordering::Relaxed));
}

#[tokio::test]
async fn error_about_a_placeholder_names_the_placeholder() {
    let (client, ran) = (Client::in_memory(), AtomicBool::new(false));
    let error = parts(&client, "a", "", &ran).await.unwrap_err();
    let says = r#"invalid key "a:": its placeholder `<id>` is empty"#;
    assert_eq!(error.to_string(), says);
}

/// Its `Display` fails after the first half.
struct Half;

impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("half")?;
        Err(std::fmt::Error)
    }
}

#[distributed_lock(key = "a:<id>", client = client)]
async fn half(client: &Client, id: Half) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn placeholder_whose_display_fails_is_an_error() {
    let error = half(&Client::in_memory(), Half).await.unwrap_err();
    let says = r#"invalid key "a:half": its placeholder `<id>` cannot be rendered"#;
    assert_eq!(error.to_string(), says);
}

#[distributed_lock(key = key, client = client)]
async fn whole(client: &Client, key: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn empty_whole_key_is_an_error() {
    let error = whole(&Client::in_memory(), "").await.unwrap_err();
    assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
}
