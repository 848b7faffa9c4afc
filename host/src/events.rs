//! The event queue: what the card tells by itself, and who is told.
//!
//! All callbacks run inside [`Adapter::process_events`], one at a time: a second caller leaves its
//! work to the first. So the callbacks of a CQ never overlap, as NDK demands.

use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::Arc;

use verbena_abi::arith::Ring;
use verbena_abi::queue::{CqeStatus, Eqe, EventKind, PHASE};
use verbena_abi::regs::EqConsumer;

use crate::adapter::Adapter;
use crate::cq::Cq;
use crate::dma::DmaBuffer;
use crate::qp::{Qp, QpFault};

/// Offset of the phase byte of an entry.
const EQE_PHASE: usize = size_of::<Eqe>() - 1;
/// Entries after which the card learns what was read, within one call: far below any queue's depth.
const PUBLISH_EVERY: u32 = 64;

/// The ring of events and how far it was read.
#[derive(Debug)]
pub(crate) struct EventQueue {
    ring: Ring,
    memory: DmaBuffer,
    /// Written by the one caller that processes; an atomic only because that may be any thread.
    consumer: AtomicU32,
    /// Whether somebody is inside `process_events`, and whether somebody else has called meanwhile: [`IDLE`], [`RUNNING`], [`CALLED`].
    runner: AtomicU32,
}

impl EventQueue {
    pub(crate) fn new(ring: Ring, memory: DmaBuffer) -> Self {
        Self { ring, memory, consumer: AtomicU32::new(0), runner: AtomicU32::new(IDLE) }
    }

    /// Returns a copy of the next entry, if the card has written it.
    fn next(&self, index: u32) -> Option<Eqe> {
        let offset = self.ring.slot(index) as usize * size_of::<Eqe>();
        let phase = self.memory.read::<u8>(offset + EQE_PHASE).ok()?;
        if (phase & PHASE != 0) != self.ring.phase(index) {
            return None;
        }
        // Pairs with the card's write of the phase byte behind the rest of the entry: read the rest after the phase.
        // As in `Cq::entry`.
        fence(Ordering::Acquire);
        self.memory.read(offset).ok()
    }
}

/// Nobody is inside.
const IDLE: u32 = 0;
/// Somebody is.
const RUNNING: u32 = 1;
/// Somebody is, and somebody else has called, for whom he has to look once more.
const CALLED: u32 = 2;

/// Lets others in again, also when a consumer's callback panics.
struct Running<'a>(&'a AtomicU32);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Release);
    }
}

impl Adapter {
    /// Takes everything from the event queue and runs the callbacks that follow from it.
    ///
    /// To be called after an interrupt, or in a loop: some callbacks, those that do not follow from an event of the card
    /// (messages of connectors, flushed receives, the close of a CQ that is kept, what [`Adapter::poll_command`] found), wait for a call without an interrupt.
    /// Returns the number of events and such callbacks; 0 also when another thread (or a callback on this very stack) is
    /// inside, which then takes the new ones as well.
    pub fn process_events(self: &Arc<Self>) -> usize {
        let runner = &self.events.runner;
        // Who sees nothing to do does not call upon the one inside, or threads that call in a loop would keep him there.
        if runner.load(Ordering::Acquire) != IDLE && !self.has_events() {
            return 0;
        }
        if runner.swap(CALLED, Ordering::AcqRel) != IDLE {
            return 0;
        }
        let running = Running(runner);
        let mut events = 0;
        loop {
            // Before the look: who calls after it is served by another one. A read-modify-write, so that the look sees what a caller has seen.
            runner.swap(RUNNING, Ordering::AcqRel);
            events += self.drain_events();
            // Behind the events: what they made known may be what the deferred work waits for.
            events += self.run_deferred() + self.run_wakes();
            if runner.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                std::mem::forget(running);
                return events;
            }
        }
    }

    /// Tells whether there is something to do, as far as this thread sees.
    fn has_events(&self) -> bool {
        let index = self.events.consumer.load(Ordering::Relaxed);
        self.events.next(index).is_some() || self.has_deferred() || self.wake_cqs.is_raised()
    }

    fn drain_events(self: &Arc<Self>) -> usize {
        let start = self.events.consumer.load(Ordering::Relaxed);
        let mut index = start;
        // Each write of the index lets the card overwrite entries. They were read before (order of `Bar`).
        while let Some(eqe) = self.events.next(index) {
            index = index.wrapping_add(1);
            self.events.consumer.store(index, Ordering::Relaxed);
            if index.wrapping_sub(start) % PUBLISH_EVERY == 0 {
                self.bar().write32(EqConsumer::OFFSET, index);
            }
            self.dispatch(&eqe);
        }
        let events = index.wrapping_sub(start);
        if events % PUBLISH_EVERY != 0 {
            self.bar().write32(EqConsumer::OFFSET, index);
        }
        events as usize
    }

    fn dispatch(self: &Arc<Self>, eqe: &Eqe) {
        let number = eqe.number.get();
        let is_known = match EventKind::try_from(eqe.kind) {
            Ok(EventKind::Completion) => self.cq(number).map(|cq| Cq::notified(&cq)).is_some(),
            // A tag that is not with the card was finished by `poll_command`: no anomaly.
            Ok(EventKind::Command) => match u16::try_from(number) {
                Ok(tag) => {
                    self.finish_command(tag, eqe.code);
                    true
                }
                Err(_) => false,
            },
            Ok(EventKind::CqOverrun) => self.cq(number).map(|cq| Cq::overran(&cq)).is_some(),
            Ok(EventKind::QpAccess) => {
                let fault = QpFault::Access { syndrome: eqe.code };
                self.qp(number).map(|qp| Qp::failed(&qp, fault)).is_some()
            }
            Ok(EventKind::QpFatal) => {
                let fault = QpFault::Requester { code: eqe.code, status: CqeStatus::try_from(eqe.code).ok() };
                self.qp(number).map(|qp| Qp::failed(&qp, fault)).is_some()
            }
            Err(_) => false,
        };
        if !is_known {
            // An object that was dropped while its event was on the way ends here as well.
            self.anomalies.count_unknown_event();
            tracing::warn!(kind = eqe.kind, number, code = eqe.code, "event for nothing that is known");
        }
    }
}
