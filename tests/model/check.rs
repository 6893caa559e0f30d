//! Visits every state of a model.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::rules::Rule;

/// With all rules: no state breaks a property, and what has to happen somewhere does. Prints the number of states.
pub(crate) fn holds<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.is_done(), "{name}: the checker stopped early");
    checker.assert_properties();
    let properties = checker.model().properties();
    let promises = properties
        .iter()
        .filter(|property| property.expectation == Expectation::Always);
    println!(
        "{name}: {} states, up to {} steps deep, {} promises kept",
        checker.unique_state_count(),
        checker.max_depth(),
        promises.count()
    );
}

/// Without this rule, a state breaks the property. Prints a way there.
pub(crate) fn breaks<M>(rule: Rule, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(until).spawn_bfs().join();
    let Some(path) = checker.discovery(property) else {
        panic!("without {rule:?}, all states keep the promise: {property}");
    };
    println!("without {rule:?}, this breaks the promise \"{property}\":");
    let condition = checker.model().property(property).condition;
    // The checker may have gone on for some steps.
    for (state, action) in path.into_vec() {
        match action {
            Some(action) if condition(checker.model(), &state) => println!("  {action:?}"),
            _ => return,
        }
    }
}
