//! The table has each future that the text of the public API names.

use std::collections::BTreeSet;

use crate::rows;

/// The text that `.ci/run api` compares with the code.
const TEXT: &str = include_str!("../../gates/checks/api/distlock.txt");

/// Their futures are the closures' of a user, who awaits nothing of the crate in them.
const NONE_OF_OURS: [&str; 3] = [
    "Builder::credentials_from",
    "Builder::tls_ca_pem_from",
    "Builder::tls_client_pem_from",
];

/// `Lock<K>::try_acquire` is `Lock::try_acquire`.
fn without_parameters(name: &str) -> String {
    let mut depth = 0;
    let kept = name.chars().filter(|letter| {
        depth += i32::from(*letter == '<');
        let outside = depth == 0;
        depth -= i32::from(*letter == '>');
        outside
    });
    kept.collect()
}

fn own(name: &str) -> Option<String> {
    Some(without_parameters(name.strip_prefix("distlock::")?))
}

/// The type of a line that says that it is a future, a stream, or turns into a future.
fn awaitable(line: &str) -> Option<String> {
    let (_, ty) = line
        .strip_prefix("impl")?
        .split_once("Future for ")
        .or_else(|| line.split_once("Stream for "))?;
    own(ty.split(" where ").next()?)
}

/// The function of a line, if it is asynchronous or returns a future.
fn asynchronous(line: &str, futures: &BTreeSet<String>) -> Option<String> {
    if let Some(function) = line.strip_prefix("pub async fn ") {
        return own(function.split('(').next()?);
    }
    let function = line.strip_prefix("pub fn ")?;
    let returned = function.rsplit_once(") -> ")?.1.split(" where ").next()?;
    let is_future = returned.starts_with("impl core::future::future::Future")
        || function.contains(") -> impl core::future::future::Future")
        || own(returned).is_some_and(|returned| futures.contains(&returned));
    is_future.then(|| own(function.split('(').next()?))?
}

/// What the text has of futures. Whoever returns a builder of one awaits nothing.
fn futures() -> BTreeSet<String> {
    let mut types: BTreeSet<String> = TEXT.lines().filter_map(awaitable).collect();
    let mut returned = types.clone();
    for builder in ["Acquire", "LatchWait", "UntilFree"] {
        assert!(returned.remove(builder), "{builder} is awaited no more");
    }
    types.extend(
        TEXT.lines()
            .filter_map(|line| asynchronous(line, &returned)),
    );
    for name in NONE_OF_OURS {
        types.remove(name);
    }
    types
}

#[test]
fn table_has_each_future_of_the_public_api_and_no_other() {
    let named = futures();
    let rows = rows::all();
    let played: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| row.items)
        .map(|item| (*item).to_owned())
        .collect();
    let missing: Vec<_> = named.difference(&played).collect();
    let unknown: Vec<_> = played.difference(&named).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "futures without a row: {missing:?}, and rows of no future: {unknown:?}"
    );
    assert!(named.len() > 60, "{} futures", named.len());
    let names: BTreeSet<&String> = rows.iter().map(|row| &row.name).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
}
