//! A request that clients may send again, and that is carried out once: the header `Idempotency-Key`.
//!
//! The lock keeps two copies of a request apart that arrive at the same time. A unique index would keep two rows apart, but not
//! two calls of a payment provider. A lock does not remember anything: the answer is stored, and a copy that comes later finds it.
//! The amount is stored with it: another payment with the same key is no copy, and is refused.
//!
//! If the process dies or its lock is lost between the payment and the record, or the provider does not answer in time, a copy calls the
//! provider again. The provider is given the key for this case, and recognizes the copy by it. If the lock is lost after the record, the
//! client gets the stored answer.
//!
//! The call of the provider has a limit, so that a call that hangs does not keep the lock: the client learns that the outcome is
//! unknown. `max_hold` is longer, and ends what hangs elsewhere, such as a query.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use distlock::{Client, distributed_lock};
use distlock_tower::Rejection;
use serde::Deserialize;
use sqlx::SqlitePool;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::Failure;

/// The table.
pub const SCHEMA: &str = "CREATE TABLE answer (idempotency_key TEXT PRIMARY KEY, amount INTEGER NOT NULL, text TEXT NOT NULL)";

const ANSWERED: &str = "SELECT amount, text FROM answer WHERE idempotency_key = ?";

/// How long the provider may take. A copy of the request waits for longer.
const CHARGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request whose payment has failed looks for a stored answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The payment provider, which takes part in no transaction.
#[derive(Clone, Default)]
pub struct Provider {
    charged: Arc<AtomicU64>,
    /// How long its answer takes.
    answers_after: Duration,
}

impl Provider {
    /// Charges, and returns the number of the payment. A real provider charges once for each key.
    async fn charge(&self, _key: &str, _amount: u32) -> u64 {
        let number = self.charged.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(self.answers_after).await;
        number
    }
}

/// What a replica needs.
#[derive(Clone)]
pub struct Shop {
    /// The locks.
    pub locks: Client,
    /// The database.
    pub pool: SqlitePool,
    /// Who is paid.
    pub provider: Provider,
}

/// A payment.
#[derive(Deserialize)]
pub struct Payment {
    /// How much. Without a sign: the provider would give a negative amount to the customer.
    pub amount: u32,
}

/// The routes of a replica.
pub fn app(shop: Shop) -> Router {
    Router::new().route("/payments", post(pay)).with_state(shop)
}

async fn pay(
    State(shop): State<Shop>,
    headers: HeaderMap,
    Json(payment): Json<Payment>,
) -> Response {
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok());
    let Some(key) = key else {
        return (StatusCode::BAD_REQUEST, "no Idempotency-Key").into_response();
    };
    // A client's own keys: add who it is, so that nobody can ask for the answers of others.
    let key = key.to_owned();
    // A handler is dropped when its client goes away. The payment runs in a separate task, which stores the answer even if nobody
    // waits for it. At the end of the program, `Client::close` waits for the lock of this task.
    let paid = tokio::spawn(async move { pay_or_find(&shop, &key, payment.amount).await });
    match paid.await.unwrap_or_else(|panic| Err(panic.into())) {
        Ok(Some(answer)) => answer.into_response(),
        Ok(None) => {
            let why = "the Idempotency-Key belongs to another payment";
            (StatusCode::UNPROCESSABLE_ENTITY, why).into_response()
        }
        // The texts of errors have keys and owners in them. They are for the log, and not for clients.
        Err(failure) => match failure.downcast::<distlock::Error>() {
            // The body takes no other lock. So nothing was done, except if the lock was lost before the answer was stored: that
            // answer says that the outcome is unknown.
            Ok(error) => Rejection::before_work(*error).into_response(),
            Err(failure) if failure.is::<Elapsed>() => {
                let what =
                    "the outcome is unknown: send the request again, with the same Idempotency-Key";
                (StatusCode::GATEWAY_TIMEOUT, what).into_response()
            }
            Err(failure) => {
                eprintln!("the payment failed: {failure}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        },
    }
}

/// If the payment fails, its answer may be stored all the same: the lock was lost after that, or a copy has paid.
async fn pay_or_find(shop: &Shop, key: &str, amount: u32) -> Result<Option<String>, Failure> {
    match pay_once(shop, key, amount).await {
        // With a limit of its own: the database may hang, and `max_hold` has ended.
        Err(failure) => match timeout(LOOK_TIMEOUT, stored(shop, key, amount)).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            _ => Err(failure),
        },
        paid => paid,
    }
}

/// Waits for a copy of the request that is under way, and then gives the same answer. `None` if the key belongs to another payment.
#[distributed_lock(key = "payment:<key>", client = shop.locks, wait = "10s", max_hold = "30s")]
async fn pay_once(shop: &Shop, key: &str, amount: u32) -> Result<Option<String>, Failure> {
    if let Some(answer) = stored(shop, key, amount).await? {
        return Ok(answer);
    }
    let payment = timeout(CHARGE_TIMEOUT, shop.provider.charge(key, amount)).await?;
    let answer = format!("payment {payment} of {amount}");
    let record = sqlx::query("INSERT INTO answer VALUES (?, ?, ?)")
        .bind(key)
        .bind(i64::from(amount))
        .bind(&answer);
    record.execute(&shop.pool).await?;
    Ok(Some(answer))
}

/// The stored answer, if there is one. It is `None` if the key belongs to another payment.
async fn stored(shop: &Shop, key: &str, amount: u32) -> Result<Option<Option<String>>, Failure> {
    let answered = sqlx::query_as::<_, (i64, String)>(ANSWERED).bind(key);
    let answered = answered.fetch_optional(&shop.pool).await?;
    Ok(answered.map(|(paid, answer)| (paid == i64::from(amount)).then_some(answer)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use distlock::MemoryServer;
    use sqlx::sqlite::SqlitePoolOptions;
    use tokio::sync::Semaphore;
    use tower::ServiceExt;

    use super::*;

    async fn send(replica: Router, key: &str, amount: i64) -> String {
        let (status, text) = answer(replica, key, amount).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        text
    }

    async fn answer(replica: Router, key: &str, amount: i64) -> (StatusCode, String) {
        let request = Request::post("/payments").header("idempotency-key", key);
        let request = request.header("content-type", "application/json");
        let body = Body::from(format!(r#"{{"amount":{amount}}}"#));
        let answer = replica.oneshot(request.body(body).unwrap()).await.unwrap();
        let status = answer.status();
        let bytes = to_bytes(answer.into_body(), 1000).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn database() -> SqlitePool {
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect("sqlite::memory:").await.unwrap();
        sqlx::query(SCHEMA).execute(&pool).await.unwrap();
        pool
    }

    #[tokio::test]
    async fn request_that_is_sent_ten_times_to_two_replicas_is_paid_once_and_has_one_answer() {
        let pool = database().await;
        let provider = Provider {
            answers_after: Duration::from_millis(20),
            ..Provider::default()
        };
        let server = MemoryServer::new();
        let replicas = [0, 1].map(|_| {
            let locks = Client::builder().in_memory(&server).unwrap();
            app(Shop {
                locks,
                pool: pool.clone(),
                provider: provider.clone(),
            })
        });
        let copies: Vec<_> = (0..10)
            .map(|n| tokio::spawn(send(replicas[n % 2].clone(), "a", 5)))
            .collect();
        for copy in copies {
            assert_eq!(copy.await.unwrap(), "payment 1 of 5");
        }
        assert_eq!(send(replicas[0].clone(), "b", 5).await, "payment 2 of 5");
        // Long after the locks were released.
        assert_eq!(send(replicas[1].clone(), "a", 5).await, "payment 1 of 5");
        // Another payment, although it has a key that was used.
        let (status, text) = answer(replicas[0].clone(), "a", 6).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        assert_eq!(provider.charged.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn payment_of_a_negative_amount_is_refused_before_anything_is_charged() {
        let (locks, pool, provider) = (Client::in_memory(), database().await, Provider::default());
        let replica = app(Shop {
            locks,
            pool,
            provider: provider.clone(),
        });
        let (status, text) = answer(replica, "a", -5).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        assert_eq!(provider.charged.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn request_whose_provider_never_answers_ends_and_a_copy_of_it_is_served() {
        let (pool, server) = (database().await, MemoryServer::new());
        let provider = Provider::default();
        let replica = |answers_after| {
            app(Shop {
                locks: Client::builder().in_memory(&server).unwrap(),
                pool: pool.clone(),
                provider: Provider {
                    answers_after,
                    ..provider.clone()
                },
            })
        };
        let hangs = replica(Duration::MAX);
        let first = tokio::spawn(async move { answer(hangs, "a", 5).await });
        while provider.charged.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        // The time of the database, which is another thread, must not be skipped.
        tokio::time::pause();
        let first = timeout(Duration::from_secs(60), first).await;
        tokio::time::resume();
        let (status, text) = first.expect("an answer").unwrap();
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{text}");
        // This provider of the test does not know the key again.
        let second = send(replica(Duration::ZERO), "a", 5).await;
        assert_eq!(second, "payment 2 of 5");
    }

    #[tokio::test]
    async fn request_whose_lock_is_lost_after_its_record_gets_the_stored_answer() {
        let (locks, provider) = (Client::in_memory(), Provider::default());
        // The connection is used to make the table, to look for an answer, and for the record.
        let uses = AtomicU64::new(0);
        let lock = locks.lock("payment:a");
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.before_acquire(move |_, _| {
            let is_for_record = uses.fetch_add(1, Ordering::Relaxed) == 2;
            let lock = lock.clone();
            Box::pin(async move {
                if is_for_record {
                    assert!(lock.force_release().await.unwrap());
                }
                Ok(true)
            })
        });
        let pool = pool.connect("sqlite::memory:").await.unwrap();
        sqlx::query(SCHEMA).execute(&pool).await.unwrap();
        let replica = app(Shop {
            locks,
            pool,
            provider: provider.clone(),
        });
        assert_eq!(send(replica.clone(), "a", 5).await, "payment 1 of 5");
        assert_eq!(send(replica, "a", 5).await, "payment 1 of 5");
        assert_eq!(provider.charged.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn request_whose_client_goes_away_between_the_payment_and_the_record_is_paid_once() {
        // The only connection comes back after the making of the table, and after the look for an answer only when it may.
        let may_come_back = Arc::new(Semaphore::new(1));
        let gate = Arc::clone(&may_come_back);
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.after_release(move |_, _| {
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                Ok(true)
            })
        });
        let pool = pool.connect("sqlite::memory:").await.unwrap();
        sqlx::query(SCHEMA).execute(&pool).await.unwrap();
        let provider = Provider::default();
        let replica = app(Shop {
            locks: Client::in_memory(),
            pool,
            provider: provider.clone(),
        });
        let is_charged = async {
            while provider.charged.load(Ordering::Relaxed) == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            answer = send(replica.clone(), "a", 5) => panic!("the record needs the connection: {answer}"),
            () = is_charged => {} // the client goes away
        }
        may_come_back.add_permits(Semaphore::MAX_PERMITS);
        assert_eq!(send(replica, "a", 5).await, "payment 1 of 5");
        assert_eq!(provider.charged.load(Ordering::Relaxed), 1);
    }
}
