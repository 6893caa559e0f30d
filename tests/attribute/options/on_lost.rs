use super::*;

#[derive(Debug, PartialEq)]
enum Failed {
    Body,
    Lock { completed: bool },
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let completed = error.body_completed();
        Self::Lock { completed }
    }
}

#[derive(Debug, PartialEq)]
struct Payment {
    id: u64,
    needs_check: bool,
}

fn payment(id: u64) -> Payment {
    Payment {
        id,
        needs_check: false,
    }
}

fn check(paid: Payment, loss: &Error) -> Payment {
    assert!(loss.is_lost() && loss.body_completed(), "{loss}");
    let id = paid.id;
    Payment {
        id,
        needs_check: true,
    }
}

/// A closure needs no types: they are those of the function.
#[distributed_lock(key = "k", client = client, on_lost = |paid, loss| Ok(Payment { needs_check: true, ..check(paid, &loss) }))]
async fn loses(client: &Client, result: Result<Payment, Failed>) -> Result<Payment, Failed> {
    client.lock("k").force_release().await?;
    result
}

type Paid<T> = Result<T, Failed>;

#[distributed_lock(key = "k", client = client, on_lost = |paid, _| if paid.id == 7 { Err(Failed::Body) } else { Ok(paid) })]
async fn by_an_alias(client: &Client, id: u64) -> Paid<Payment> {
    client.lock("k").force_release().await?;
    Ok(payment(id))
}

#[distributed_lock(
    key = "k",
    client = client,
    on_lost = |paid, loss| check(paid, &loss),
    on_error = |_| payment(0),
)]
async fn without_a_result(client: &Client, lose: bool) -> Payment {
    if lose {
        client.lock("k").force_release().await.expect(MEMORY);
    }
    payment(7)
}

/// Only the compiler knows the type, so the closure names it.
#[distributed_lock(key = "k", client = client, on_lost = |paid: Payment, loss| check(paid, &loss), on_error = |_| payment(0))]
async fn behind_impl_trait(client: &Client) -> impl Into<Payment> {
    client.lock("k").force_release().await.expect(MEMORY);
    payment(7)
}

#[distributed_lock(key = "k", client = client, on_lost = |paid: Result<Payment, Failed>, loss| paid.map(|paid| check(paid, &loss)))]
async fn result_behind_impl_trait(
    client: &Client,
    result: Result<Payment, Failed>,
) -> impl Into<Result<Payment, Failed>> {
    client.lock("k").force_release().await?;
    result
}

#[distributed_lock(key = "k", client = client, lease = "1s", on_lost = |_, _| unreachable!("the body was cut"))]
async fn is_cut(client: &Client) -> Result<Payment, Failed> {
    sleep(LONG).await;
    Ok(payment(7))
}

fn named(paid: u64, _loss: Error) -> Result<u64, Error> {
    Ok(paid + 1)
}

#[distributed_lock(key = "k", client = client, on_lost = named, on_error = |_| Ok(0))]
async fn by_a_function(client: &Client, lose: bool) -> Result<u64, Error> {
    if lose {
        client.lock("k").force_release().await?;
    }
    Ok(7)
}

#[tokio::test]
async fn value_goes_to_on_lost_and_an_error_of_the_body_does_not() {
    let client = Client::in_memory();
    let checked = Payment {
        id: 7,
        needs_check: true,
    };
    assert_eq!(loses(&client, Ok(payment(7))).await, Ok(checked));
    assert_eq!(loses(&client, Err(Failed::Body)).await, Err(Failed::Body));
    assert_eq!(by_an_alias(&client, 7).await, Err(Failed::Body));
    assert_eq!(by_an_alias(&client, 8).await, Ok(payment(8)));
    assert_eq!(by_a_function(&client, true).await.unwrap(), 8);
}

#[tokio::test]
async fn return_value_that_is_no_result_goes_to_on_lost_as_a_whole() {
    let client = Client::in_memory();
    assert!(without_a_result(&client, true).await.needs_check);
    assert_eq!(without_a_result(&client, false).await, payment(7));
}

#[tokio::test]
async fn value_behind_impl_trait_goes_to_on_lost_as_a_whole_also_if_it_is_a_result() {
    let client = Client::in_memory();
    assert!(behind_impl_trait(&client).await.into().needs_check);
    let lost = result_behind_impl_trait(&client, Ok(payment(7))).await;
    assert!(lost.into().unwrap().needs_check);
    let failed = result_behind_impl_trait(&client, Err(Failed::Body)).await;
    assert_eq!(failed.into(), Err(Failed::Body));
}

#[tokio::test(start_paused = true)]
async fn on_lost_is_called_neither_for_a_body_that_was_cut_nor_without_a_loss() {
    let client = Client::in_memory();
    let cut = soon(is_cut(&client)).await;
    assert_eq!(cut, Err(Failed::Lock { completed: false }));
    assert_eq!(by_a_function(&client, false).await.unwrap(), 7);
}
