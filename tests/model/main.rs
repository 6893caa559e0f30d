//! A model of the rules of distlock that are its own, and their proof by a checker that visits every state.
//!
//! [README.md](README.md) says what is modelled, what was found and what is left out. Each file but `check` and `rules` is one
//! model. `rules` lists the rules, each with the function of distlock that has it.

mod batches;
mod check;
mod failover;
mod hand_over;
mod regain;
mod releases;
mod restart_grace;
mod rules;
mod tokens;
mod yielding;
