use axum::debug_handler;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use distlock::{Client, Error, distributed_lock};

pub enum Failed {
    Lock(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let Self::Lock(error) = self;
        (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
    }
}

#[debug_handler(state = Client)]
#[distributed_lock(key = "order:<id>", client = locks, wait = "5s")]
pub async fn above(State(locks): State<Client>, Path(id): Path<String>) -> Result<String, Failed> {
    // The `.await` is for clippy: `debug_handler` copies the body, and the copy would be an `async` without one.
    Ok(std::future::ready(id).await)
}

#[distributed_lock(key = "order:<id>", client = locks, wait = "5s")]
#[debug_handler(state = Client)]
pub async fn below(State(locks): State<Client>, Path(id): Path<String>) -> Result<String, Failed> {
    Ok(id)
}

#[distributed_lock(key = "<name>", client = locks, on_busy = |_| StatusCode::CONFLICT.into_response(), on_error = |_| StatusCode::SERVICE_UNAVAILABLE.into_response())]
#[debug_handler(state = Client)]
#[tracing::instrument(skip_all)]
pub async fn three(State(locks): State<Client>, Path(name): Path<String>) -> Response {
    name.into_response()
}

#[test]
fn runs() {
    let routes = axum::Router::<Client>::new()
        .route("/above/{id}", post(above))
        .route("/below/{id}", post(below))
        .route("/three/{name}", post(three));
    drop(routes.with_state::<()>(Client::in_memory()));
}
