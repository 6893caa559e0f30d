//! A server that does not answer, answers late or twice, or drops its subscriptions.

mod outage;
mod outcome;
mod subscriptions;
