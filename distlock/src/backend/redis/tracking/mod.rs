//! A server tells at once that a hold may be lost (`CLIENT TRACKING`).
//!
//! Without this, a hold whose key was deleted, freed by force, flushed or evicted is told at its next renewal, up to a third
//! of its lease later. With it, the server sends a word over the connection for commands when a key changes that it tracks,
//! and the client reads the key.
//!
//! # How it goes
//! 1. The server is told to track keys by `CLIENT CACHING YES` and an `EXISTS` of the keys behind it, which reads them. A hold
//!    that is older than [`TRACK_AFTER`](crate::config::TRACK_AFTER) is tracked like that, and then read once, with many others
//!    in one script (`still_held.lua`). Shorter holds cost no command more.
//! 2. A change of the key makes the server send `invalidate` with its name, once. Then it does not track the key any more, until
//!    the key is read again.
//! 3. A word leads to a *read* and never to a renewal. A renewal is a write: it is told to all other clients that track the key,
//!    and two readers would confirm each other for ever.
//! 4. The renewal of such a hold is followed by the same two commands, because its write has ended the tracking. They travel in
//!    one pipeline. What others change between the renewal and the `EXISTS` is not told, and is found by the next renewal, unless
//!    the key changes again: then that is told. `NOLOOP` keeps the server from telling this client of its own writes, and does not keep them from
//!    ending the tracking. So the session reads a key that several owners share again after each other write of its own, and any
//!    key that it has freed by force.
//! 5. `CLIENT TRACKING ON OPTIN NOLOOP` is sent before the first such command of each connection. When a connection is replaced,
//!    or a slot has moved, all holds of that server are renewed, which has the new server track their keys.
//!
//! No script runs behind `CLIENT CACHING YES`: the server would track its keys anew for each read of the script. Before Redis 7.2
//! it even tracks all keys of the script for each of them, which made renewals cost four times as much. `EXISTS` takes each key
//! once.
//!
//! # Invariants
//! 1. An attempt or a release is never delayed, and never has a command more: what tracks are reads and renewals alone.
//! 2. A word is only a hint. If it is not sent, not heard, or sent without a reason, the renewals find each loss as before.
//! 3. A server that refuses either command is not asked again over that connection, and what it is sent is as without tracking:
//!    it is sent no read. The same goes for one whose connections end when it is asked.
//!
//! # What the server does without being asked
//! * Its table of tracked keys is bounded (`tracking-table-max-keys`, a million). When it overflows, keys are taken out and told
//!   as changed. The session reads a key at most once a second, so that two keys do not push each other out for ever.
//! * `FLUSHALL` and `FLUSHDB` are told by a word without names.
//! * Servers before Redis 7.0 do not know that a write of a script is the client's own. They tell a renewal to the client itself,
//!   which costs a read.
//! * A word has no number of a database. A key of the same name in another one costs a read.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `keys` | which keys are tracked for a hold, and the command that reads them |
//! | `told` | what the servers have sent, until the session takes it: plain data and a wake-up |
//! | `switch` | whether tracking is on for a connection: a state machine, and how a command is sent with it |
//!
//! The read itself is in `backend/redis/still_held.rs`, and when a key is read is decided in `session/tracking`.

mod keys;
mod switch;
mod told;

pub(super) use self::keys::{key_of, read};
pub(super) use self::switch::{COMMANDS, Order, Switch, Track};
pub(super) use self::told::Heard;
