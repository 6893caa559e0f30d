use super::*;

#[distributed_lock(key = "k", client = client, mode = "fenced", token = token)]
async fn fenced(client: &Client) -> Result<u64, Error> {
    Ok(token)
}

#[distributed_lock(key = "k", client = client, mode = "fenced", token = _unused)]
async fn outer(client: &Client) -> Result<(u64, u64), Error> {
    Ok((_unused, fenced(client).await?))
}

#[tokio::test]
async fn each_grant_has_a_higher_token_and_a_nested_call_the_same_token() {
    let client = Client::in_memory();
    let first = fenced(&client).await.unwrap();
    assert!(first > 0);
    let (second, nested) = outer(&client).await.unwrap();
    assert!(second > first);
    assert_eq!(nested, second);
    assert!(fenced(&client).await.unwrap() > second);
}

#[distributed_lock(key = "k", client = client, mode = "fenced", on_error = |_| token)]
async fn without(client: &Client, token: u64) -> u64 {
    token
}

#[tokio::test]
async fn without_the_option_the_name_token_is_free() {
    assert_eq!(without(&Client::in_memory(), 7).await, 7);
}
