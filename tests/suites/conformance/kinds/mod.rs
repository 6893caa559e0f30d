//! What the kinds of exclusive locks promise: each of them alone, and all of them in `every_lock`. The reentrant lock has the
//! folder `lock`.

mod every_lock;
mod fair;
mod fenced;
mod keys;
mod lock_source;
mod non_reentrant;
mod spin;
