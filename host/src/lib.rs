//! The Verbena driver: NDK's objects over BAR0, DMA memory and interrupts.
//!
//! | module | holds |
//! |---|---|
//! | [`device`] | the seam to whatever carries the driver to a card: [`device::Bar`] and [`device::Device`] |
//! | [`dma`] | memory that the card reaches |
//! | [`adapter`] | one opened card: limits, addresses, counters |
//! | [`command`] | the command window: one command at a time, the others wait in order |
//! | [`events`] | the event queue: what the card tells by itself |
//! | [`pd`], [`cq`], [`mr`], [`qp`] | the objects, one a file |
//! | [`cm`] | listeners and connectors, between adapters of one process |
//! | [`connect`] | addresses of QPs and the way to a connected one |
//! | [`sq`], [`rq`] | the posting paths |
//! | [`ndk`] | NDK's words: statuses, flags, results |
//! | [`mock`] | a card that expects an exact order of register accesses, for tests |
//! | [`pci`] | a card on a PCI bus; a real one through VFIO with the feature `vfio` |
//!
//! A consumer opens an [`Adapter`], creates objects, and calls [`Adapter::process_events`] whenever
//! the card raised an interrupt (or in a loop). Callbacks run inside that call and nowhere else,
//! except where a function says so. Each asynchronous call has a blocking twin for programs that
//! have nothing else to do.
//!
//! # Lifetimes
//!
//! An object holds what it was made from: a [`Qp`] its [`Pd`] and both [`Cq`]s, all of them the
//! [`Adapter`]. Objects are handed out as `Arc`; closing one gives the handle back, and the object
//! leaves the card when its last holder is gone. Hence every order of closing is safe. A command
//! under way keeps the adapter alive: a program ends with [`Adapter::close_blocking`].

#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod adapter;
mod capabilities;
pub mod cm;
pub mod command;
pub mod connect;
pub mod cq;
#[expect(unsafe_code, reason = "the trait has an unsafe method: the caller vouches for the memory that it maps")]
pub mod device;
#[expect(unsafe_code, reason = "memory shared with a card is raw memory; this module is the bounds-checked way to it")]
pub mod dma;
pub mod error;
pub mod events;
pub mod mock;
#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "has loom watch accesses that nothing else keeps apart")]
mod model;
pub mod mr;
pub mod ndk;
mod numbers;
#[expect(unsafe_code, reason = "maps process memory for the card, and BAR0 into this process")]
pub mod pci;
pub mod pd;
mod psn;
pub mod qp;
pub mod rq;
pub mod sq;
mod sync;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use adapter::{Adapter, AdapterConfig, AdapterInfo, Anomalies, Counters, ObjectCounts, StageCount, StageCounts, Traffic};
pub use command::{CloseStatus, Submitted};
pub use connect::{QpAddress, QpPeer};
pub use cq::{Completion, Cq, CqNotice, Operation};
pub use device::{Bar, Device};
pub use dma::DmaBuffer;
pub use error::Error;
pub use mr::{FastMr, Mr, PrivilegedMr};
pub use pd::Pd;
pub use qp::{Qp, QpOptions};
pub use rq::ReceiveQueue;
pub use sq::{SendQueue, Sge, WriteFlags};
pub use verbena_abi::queue::{access, CqeStatus, QpState};
pub use verbena_abi::regs::ArmKind;

/// Locks, also after a panic of another holder: every critical section of this crate leaves its
/// data whole at each point where a callee may panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
