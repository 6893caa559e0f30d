//! Attempts and releases of many tasks that travel together.
//!
//! A command costs the client and the server more than what it does: a write, a wake-up, a parse, a script that begins. So, while
//! many of them are under way to a server, the attempts and releases of plain locks that come up are collected, and go out as one
//! call of a script, which does each for itself and answers for each. Several locks that are acquired or released together are one
//! operation, which goes alone if they are many.
//!
//! While less is under way, a command goes out at once, by its own script. Batches would cost time then: the tasks of a batch are
//! told together and come back together, and the server is idle meanwhile. For the same reason, batches share what there is, so that
//! the server has one while the client works on the others.
//!
//! Those of readers are collected beside them, and have a script of their own. It looks at a lock once for all its readers in a batch.
//!
//! Each runtime of a client has a [`Collector`] for plain locks and one for readers. It decides which operations go, and when. It is
//! plain data. `batch_sender.rs` has the tasks that send what it has collected: each sends one batch after the other, and ends when
//! nothing waits.
//!
//! An operation waits while a few batches of its runtime are under way, but not longer than a millisecond, which matters where an answer
//! takes longer, and not if it fills a further batch. So a server that is far away is sent as much as without batches.
//!
//! An operation means in a batch what it means alone:
//! * An error that it meets is its own. If the outcome of the batch is unknown, that of each operation is.
//! * If a server refuses a batch as a whole, because a user may not use one of its keys, for instance, each operation is sent
//!   alone by its caller, and so are those that wait when the connection fails or the task that sends has ended.
//! * An operation whose caller is gone before it is sent is not sent. If the caller of an attempt was dropped by the time of the
//!   answer, the attempt is withdrawn, because its owner is not used again. A caller that is told that the outcome is unknown may
//!   attempt again under the same owner, so its attempt is not withdrawn.
//! * A caller waits until its sender tells it, and has no timeout of its own. The sender has those of any command. It runs in the
//!   runtime in which its callers were polled first: if it stands still there, so do they. A future that is moved to another runtime
//!   after that depends on both.
//! * An attempt has its slot in `attempt_slots.rs` from before it waits here until its caller has noticed the answer. Renewals
//!   never wait here.
//! * Confirmations by replicas follow the grant, whichever way it came.
//!
//! The keys of a batch have to be on one server, whatever their slots. The client of a cluster therefore sends each operation
//! alone.

mod answers;
mod call;
mod collector;
mod operation;
mod under_way;

pub(super) use self::answers::{may_be_granted, read_answers};
pub(super) use self::collector::{Collected, Collector, Phase};
pub(super) use self::operation::{BatchKind, Caller, Operation, Told};
pub(super) use self::under_way::{Alone, Batches, Here};
