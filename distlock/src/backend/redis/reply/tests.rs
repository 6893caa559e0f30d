use super::*;
use crate::resource::owner::Owner;

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
