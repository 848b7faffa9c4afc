//! Atomics of the queues' shared parts: those of the standard library, or those of a model checker.
//!
//! With `--cfg loom` the crate is compiled for [loom](https://docs.rs/loom), which runs a test under every order of
//! the threads' accesses that the memory model allows. See `host/src/model.rs` and `ci/model.sh`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicU64, AtomicU8, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicU64, AtomicU8, Ordering};
