//! Code that runs under a lock: annotated functions, streams, and what such code can ask.

mod attribute;
mod current;
mod stream;
mod wakers;
