use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;

/// Whatever a server may answer.
fn value() -> impl Strategy<Value = Value> {
    let edges = prop::sample::select(vec![i64::MIN, -2, -1, 0, 1, 2, i64::MAX]);
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>().prop_map(Value::Double),
        edges.prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        "[0-9]{0,25}".prop_map(|text| Value::BulkString(text.into_bytes())),
        vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
        ".{0,10}".prop_map(Value::SimpleString),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}

fn targets(kind: Kind, many: usize) -> Vec<Target> {
    let resource = Resource {
        kind,
        key: Key::new("", "k").unwrap(),
    };
    let target = Target::of(&resource, Owner::new(uuid::Uuid::nil(), 1));
    vec![target; many]
}

proptest! {
    #[test]
    fn reply_of_any_shape_is_read_or_refused(value in value(), wanted in 0..5_usize) {
        let is_refused = |fault: &Fault| matches!(fault, Fault::Protocol(_));
        let mut refused = Vec::new();
        refused.extend(attempted(value.clone()).err());
        refused.extend(attempted_permits(value.clone(), false).err());
        if let Some(at) = of_another_type(&value, wanted) {
            prop_assert!(at < wanted && attempted_all(value.clone(), wanted).is_err());
        }
        if let Ok(AttemptedAll { at, attempted }) = attempted_all(value.clone(), wanted) {
            let is_granted = matches!(attempted, Attempted::Granted { .. });
            prop_assert!(at < wanted || is_granted);
        }
        if let Ok(ours) = renewed(value.clone(), wanted) {
            let lost = ours.iter().filter(|ours| !**ours).count();
            let named = matches!(&value, Value::Array(parts) if parts.len() > lost);
            prop_assert!(ours.len() == wanted && named);
        }
        refused.extend(renewed(value.clone(), wanted).err());
        for kind in [Kind::Reentrant, Kind::CountDownLatch] {
            if let Ok(looked) = looked(value.clone(), &targets(kind, wanted)) {
                prop_assert_eq!(looked.len(), wanted);
            }
        }
        refused.extend(each(value.clone(), wanted).err());
        refused.extend(released(value.clone(), || 1).err());
        refused.extend(forced(value.clone()).err());
        refused.extend(inspected(value.clone()).err());
        refused.extend(inspected_permits(value.clone()).err());
        refused.extend(number(value.clone()).err());
        refused.extend(two_numbers(value).err());
        prop_assert!(refused.iter().all(is_refused), "{:?}", refused);
    }
}

#[test]
fn leases_round_up_to_whole_milliseconds() {
    assert_eq!(millis(Duration::from_millis(30_000)), 30_000);
    assert_eq!(millis(Duration::from_micros(1_001)), 2);
    assert_eq!(millis(Duration::from_nanos(1)), 1);
}

#[test]
fn replies_are_read_and_odd_ones_are_faults() {
    assert_eq!(
        attempted(Value::Nil).unwrap(),
        Attempted::Granted { token: None }
    );
    assert_eq!(attempted(Value::Int(-1)).unwrap(), Attempted::held(None));
    assert!(attempted(Value::Okay).is_err());
    assert_eq!(
        released(Value::Int(1), || 1).unwrap(),
        Released::Freed { others: 0 }
    );
    assert_eq!(
        released(Value::Int(4), || 1).unwrap(),
        Released::Freed { others: 3 }
    );
    assert_eq!(released(Value::Int(-1), || 0).unwrap(), Released::NotOurs);
    let held = vec![
        Value::Int(5),
        Value::BulkString(b"o".to_vec()),
        Value::BulkString(b"2".to_vec()),
    ];
    assert_eq!(
        inspected(Value::Array(held)).unwrap().holders,
        [(b"o".to_vec(), 2)]
    );
}

#[test]
fn renewal_names_those_that_are_not_their_owners_any_more() {
    let reply = |numbers: &[i64]| {
        let values = numbers.iter().copied().map(Value::Int).collect();
        renewed(Value::Array(values), 3)
    };
    assert_eq!(reply(&[3]).unwrap(), [true, true, true]);
    assert_eq!(reply(&[3, 1, 3]).unwrap(), [false, true, false]);
    // It says nothing of three holds, or something of another one.
    for odd in [&[][..], &[2], &[4], &[-3], &[3, 0], &[3, 4], &[3, -1]] {
        assert!(reply(odd).is_err(), "{odd:?}");
    }
    let text = Value::BulkString(b"1".to_vec());
    let unreadable = Value::Array(vec![Value::Int(3), text]);
    assert!(renewed(unreadable, 3).is_err());
}

#[test]
fn refusal_names_an_owner_and_nothing_else() {
    let five = Some(Duration::from_millis(5));
    let client = "0ddad9e6-60bc-45a5-8797-1987353a9077";
    let owner = Owner::new(client.parse().unwrap(), 7);
    let refusal = |name: &str| {
        let name = Value::BulkString(name.into());
        Value::Array(vec![Value::Int(5), name, Value::Int(2)])
    };
    for name in [format!("{client}:7"), format!("{client}:7:write")] {
        let named = attempted(refusal(&name)).unwrap();
        assert_eq!(named, Attempted::held_by(five, owner, 2), "{name}");
    }
    // A key that stays taken without a holder, a transaction, and data of others.
    for name in [":7:rest", ":7:write:9", ":x", "", ":-7"] {
        let name = format!("{client}{name}");
        let named = attempted(refusal(&name)).unwrap();
        assert_eq!(named, Attempted::held(five), "{name}");
    }
    let short = Value::Array(vec![Value::Int(5), Value::BulkString("a".into())]);
    assert!(attempted(short).is_err());
    let at = Value::Array(vec![
        Value::Int(2),
        Value::Int(5),
        Value::BulkString(format!("{client}:7").into()),
        Value::Int(0),
    ]);
    let held = Attempted::held_by(five, owner, 0);
    let refused = AttemptedAll {
        at: 1,
        attempted: held,
    };
    assert_eq!(of_another_type(&at, 2), None);
    let another_type = |at| of_another_type(&Value::Array(vec![Value::Int(at)]), 2);
    assert_eq!(
        [0, 1, 2, 3].map(another_type),
        [None, Some(0), Some(1), None]
    );
    assert_eq!(attempted_all(at.clone(), 2).unwrap(), refused);
    assert!(attempted_all(at, 1).is_err());
}
