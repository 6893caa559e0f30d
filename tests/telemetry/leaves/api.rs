//! The table has each future that the text of the public API names.

use std::collections::BTreeSet;

use crate::rows;

/// The texts that `.ci/run api` compares with the code.
const TEXTS: [&str; 3] = [
    include_str!("../../gates/checks/api/distlock.txt"),
    include_str!("../../gates/checks/api/distlock_macros.txt"),
    include_str!("../../gates/checks/api/distlock_tower.txt"),
];

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
    let name = name
        .strip_prefix("distlock::")
        .or_else(|| name.strip_prefix("distlock_tower::"))?;
    Some(without_parameters(name))
}

/// The type of a line that says that it is a future, a stream, the body of a message, or turns into a future.
fn awaitable(line: &str) -> Option<String> {
    let line = line.strip_prefix("impl")?;
    let traits = ["Future for ", "Stream for ", "Body for "];
    let ty = traits.iter().find_map(|name| line.split_once(name))?.1;
    own(ty.split(" where ").next()?)
}

/// The attribute of a line. It makes the future of the function under it another one.
fn attribute(line: &str) -> Option<String> {
    let name = line.strip_prefix("pub proc macro distlock_macros::#[")?;
    Some(name.strip_suffix(']')?.to_owned())
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

/// What the text has of futures. A function that returns a builder of one awaits nothing.
fn futures() -> BTreeSet<String> {
    let lines = || TEXTS.into_iter().flat_map(str::lines);
    let mut types: BTreeSet<String> = lines().filter_map(awaitable).collect();
    let mut returned = types.clone();
    for builder in ["Acquire", "LatchWait", "UntilFree"] {
        assert!(returned.remove(builder), "{builder} is awaited no more");
    }
    types.extend(lines().filter_map(|line| asynchronous(line, &returned)));
    types.extend(lines().filter_map(attribute));
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
