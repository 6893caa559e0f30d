//! How deep annotated functions nest: the figures of the section "Cost" in the documentation of the attribute.
//!
//! Each lock adds some layers of types, and rustc refuses more of them than its default `recursion_limit`. So this file compiles,
//! or the figures are wrong.

use distlock::{Client, Error, distributed_lock};

/// A chain of functions, each of which calls the next one: `name => next`.
macro_rules! chain {
    ($(#[$attr:meta])* $last:ident) => {
        $(#[$attr])*
        #[distributed_lock(key = concat!("depth:", stringify!($last)), client = client)]
        async fn $last(client: &Client) -> Result<u32, Error> {
            Ok(1)
        }
    };
    ($(#[$attr:meta])* $name:ident $next:ident $($rest:ident)*) => {
        $(#[$attr])*
        #[distributed_lock(key = concat!("depth:", stringify!($name)), client = client)]
        async fn $name(client: &Client) -> Result<u32, Error> {
            Ok($next(client).await? + 1)
        }
        chain!($(#[$attr])* $next $($rest)*);
    };
}

mod alone {
    use super::*;

    chain!(first a b c d e f g h i j k);

    pub(super) async fn depth(client: &Client) -> Result<u32, Error> {
        first(client).await
    }
}

mod with_spans {
    use super::*;

    chain!(#[tracing::instrument(skip_all)] first a b c d e f);

    pub(super) async fn depth(client: &Client) -> Result<u32, Error> {
        first(client).await
    }
}

#[tokio::test]
async fn twelve_functions_nest_and_seven_with_spans_under_the_default_recursion_limit() {
    let client = Client::in_memory();
    assert_eq!(alone::depth(&client).await.unwrap(), 12);
    assert_eq!(with_spans::depth(&client).await.unwrap(), 7);
}
