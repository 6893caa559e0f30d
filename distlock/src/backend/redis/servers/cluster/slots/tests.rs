//! The slot map against a table with one entry for each slot, under random steps.

use proptest::prelude::*;

use super::*;
use crate::backend::redis::slot::slot_of;

fn node(number: u8) -> Address {
    Address::Tcp {
        host: format!("10.0.0.{number}"),
        port: 7000,
    }
}

fn owned(owner: Option<&Address>, changed: u64) -> SlotOwner<'_> {
    SlotOwner { owner, changed }
}

#[test]
fn learned_slot_is_kept_until_the_map_is_replaced() {
    let mut map = SlotMap::new(vec![node(9)]);
    assert_eq!(map.owner(5), owned(None, 0));
    let half = |slots, number| OwnedSlots {
        slots,
        owner: node(number),
    };
    assert!(map.replace(&[half(0..=8_191, 1), half(8_192..=16_383, 2)], 1));
    assert!(map.learn(5, &node(2), 2) && !map.learn(5, &node(2), 3));
    assert_eq!(map.owner(5), owned(Some(&node(2)), 2));
    assert_eq!(map.owner(4), owned(Some(&node(1)), 1));
    assert_eq!(map.owner(6), owned(Some(&node(1)), 1));
    assert!(!map.learn(SLOTS, &node(1), 3));
    // A node that knows less takes the slot back; the next redirect teaches it again.
    assert!(map.replace(&[half(0..=8_191, 1), half(8_192..=16_383, 2)], 4));
    assert_eq!(map.owner(5), owned(Some(&node(1)), 4));
    assert_eq!(map.owner(6), owned(Some(&node(1)), 1), "it did not change");
    map.unsettle(6, 5);
    assert_eq!(map.owner(6), owned(Some(&node(1)), 5));
    assert_eq!(map.owners(), BTreeSet::from([&node(1), &node(2)]));
    assert_eq!(map.seeds_without_slots(), [node(9)]);
}

#[test]
fn slot_that_gets_another_owner_may_have_lost_data_and_one_whose_order_is_unknown_has_not() {
    let mut map = SlotMap::new(Vec::new());
    let all = |number| OwnedSlots {
        slots: 0..=16_383,
        owner: node(number),
    };
    map.replace(&[all(1)], 1);
    map.unsettle(5, 2);
    assert_eq!((map.owner(5), map.lossy(5)), (owned(Some(&node(1)), 2), 1));
    // A master that a failover has demoted sends the same redirect as one that gives a slot away.
    assert!(map.learn(5, &node(2), 3));
    assert_eq!((map.owner(5), map.lossy(5)), (owned(Some(&node(2)), 3), 3));
    map.replace(&[all(2)], 4);
    assert_eq!((map.lossy(5), map.lossy(6)), (3, 4));
}

#[test]
fn node_without_slots_is_forgotten_some_time_after_it_was_asked() {
    let mut map = SlotMap::new(Vec::new());
    let linger = Duration::from_secs(10);
    map.learn(0, &node(1), 1);
    map.visit(&node(2), Tick::from_millis(1_000));
    let known = [node(1), node(2), node(3)];
    let mut forgotten = |ms| map.take_forgotten(known.iter(), Tick::from_millis(ms), linger);
    assert_eq!(forgotten(10_999), [node(3)]);
    assert_eq!(forgotten(11_000), [node(2), node(3)]);
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u16, u8),
    Unsettle(u16),
    Replace(Vec<(u16, u16, u8)>),
}

fn step() -> impl Strategy<Value = Step> {
    // Few boundaries, so that ranges touch and overlap often.
    let slot = prop_oneof![0_u16..20, 8_000_u16..8_010, 16_370..=u16::MAX];
    let range = (slot.clone(), slot.clone(), 0_u8..4);
    prop_oneof![
        3 => (slot.clone(), 0_u8..4).prop_map(|(slot, node)| Step::Learn(slot, node)),
        1 => slot.prop_map(Step::Unsettle),
        1 => prop::collection::vec(range, 0..6).prop_map(Step::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn map_agrees_with_a_table_of_all_slots(steps in prop::collection::vec(step(), 1..40)) {
        let mut map = SlotMap::new(Vec::new());
        let mut table: Vec<(Option<Address>, u64)> = vec![(None, 0); usize::from(SLOTS)];
        for (number, step) in (1_u64..).zip(steps) {
            let before = table.clone();
            let was_changed = match step {
                Step::Learn(slot, at) => {
                    if let Some(one) = table.get_mut(usize::from(slot)).filter(|one| one.0 != Some(node(at))) {
                        *one = (Some(node(at)), number);
                    }
                    map.learn(slot, &node(at), number)
                }
                Step::Unsettle(slot) => {
                    if let Some(one) = table.get_mut(usize::from(slot)) {
                        one.1 = number;
                    }
                    map.unsettle(slot, number);
                    before != table
                }
                Step::Replace(ranges) => {
                    let owned: Vec<_> = ranges
                        .iter()
                        .map(|(first, last, at)| OwnedSlots { slots: *first..=*last, owner: node(*at) })
                        .collect();
                    for (slot, one) in table.iter_mut().enumerate() {
                        let owner = owned.iter().find(|owned| owned.slots.contains(&u16::try_from(slot).unwrap()));
                        let owner = owner.map(|owned| owned.owner.clone());
                        if one.0 != owner {
                            *one = (owner, number);
                        }
                    }
                    map.replace(&owned, number)
                }
            };
            prop_assert_eq!(was_changed, before != table);
            for (slot, (owner, changed)) in table.iter().enumerate() {
                let slot = u16::try_from(slot).unwrap();
                prop_assert_eq!(map.owner(slot), owned(owner.as_ref(), *changed), "slot {}", slot);
            }
            let owners: BTreeSet<_> = table.iter().filter_map(|one| one.0.as_ref()).collect();
            prop_assert_eq!(map.owners(), owners);
            prop_assert!(map.ranges.keys().all(|first| *first < SLOTS) && map.ranges.contains_key(&0));
        }
    }

    #[test]
    fn every_name_has_a_slot(name in ".{0,40}") {
        prop_assert!(slot_of(&name) < SLOTS);
    }
}
