//! The replies in the bytes of a server.

#[cfg(test)]
use proptest::collection::vec;
#[cfg(test)]
use proptest::prelude::*;
use redis::{Parser, Value};

/// The values that a server sends one after the other, as the driver reads them from the wire. Ends with the first one that
/// it does not understand.
pub(super) fn values(mut wire: &[u8]) -> impl Iterator<Item = Value> {
    let mut parser = Parser::new();
    std::iter::from_fn(move || parser.parse_value(&mut wire).ok())
}

/// Whatever a server may answer.
#[cfg(test)]
pub(super) fn any_value() -> impl Strategy<Value = Value> {
    let edges = prop::sample::select(vec![i64::MIN, -2, -1, 0, 1, 2, i64::MAX]);
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>().prop_map(Value::Double),
        edges.prop_map(Value::Int),
        (0_i64..20_000).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        "[0-9]{0,25}".prop_map(|text| Value::BulkString(text.into_bytes())),
        vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
        ".{0,10}".prop_map(Value::SimpleString),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}
