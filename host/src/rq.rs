//! Receives: posted, kept, and flushed by the driver.
//!
//! No operation that the card executes takes a receive, so a receive ends in one way: it is
//! flushed with its queue pair. Its completion is made here, when the CQ is polled.
//!
//! Poster and poller share indices that run free. A slot is taken by the post and free again when
//! the completion was polled, so that the consumer may post from its loop at once.

use std::sync::Arc;

use verbena_abi::queue::CqeStatus;

use crate::cq::{Completion, CompletionStatus, Operation};
use crate::error::Error;
use crate::qp::Qp;
use crate::sq::Sge;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// What poster, poller and the rest of the driver share about a receive queue.
#[derive(Debug)]
pub(crate) struct RqShared {
    qpn: u32,
    qp_context: u64,
    /// Contexts of the receives, by index modulo their number, which is the depth.
    contexts: Box<[AtomicU64]>,
    /// Receives ever posted. Written by the poster.
    producer: AtomicU64,
    /// Receives ever polled. Written under the CQ's lock.
    consumer: AtomicU64,
    /// Nothing can be posted any more, and what was is flushed.
    is_stopped: AtomicBool,
    /// The queue pair is gone: nobody posts any more.
    is_detached: AtomicBool,
}

impl RqShared {
    pub(crate) fn new(qpn: u32, qp_context: u64, depth: u32) -> Self {
        Self {
            qpn,
            qp_context,
            contexts: (0..depth).map(|_| AtomicU64::new(0)).collect(),
            producer: AtomicU64::new(0),
            consumer: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
        }
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Keeps a receive. Returns whether the queue was stopped meanwhile, so that the CQ must be told; fails if there is no room
    /// or if it was stopped before.
    ///
    /// May run while another thread stops the queue. The poster stores the index and then loads the flag, the other stores
    /// the flag and then loads the index; both touch the index with a read-modify-write, so whoever comes second there sees
    /// what the first did: one of them at least tells the CQ.
    pub(crate) fn post(&self, context: u64) -> Result<bool, Error> {
        if self.is_stopped.load(Ordering::Acquire) {
            return Err(Error::ReceivesStopped { qpn: self.qpn });
        }
        let depth = self.contexts.len() as u64;
        let producer = self.producer.load(Ordering::Relaxed);
        // Pairs with the release of the poller, which has read the context that is overwritten here.
        if producer - self.consumer.load(Ordering::Acquire) >= depth {
            return Err(Error::QueueFull { queue: "receive", qpn: self.qpn, depth: depth as u32 });
        }
        self.contexts[(producer % depth) as usize].store(context, Ordering::Relaxed);
        self.producer.swap(producer + 1, Ordering::AcqRel);
        Ok(self.is_stopped.load(Ordering::Acquire))
    }

    /// Stops the queue. Returns whether there is something to flush.
    pub(crate) fn stop(&self) -> bool {
        self.is_stopped.store(true, Ordering::Release);
        self.producer.fetch_add(0, Ordering::AcqRel) != self.consumer.load(Ordering::Relaxed)
    }

    /// Returns the completion of the oldest receive, if the queue is stopped and there is one. For the poller alone.
    fn take_flushed(&self) -> Option<Completion> {
        if !self.is_stopped.load(Ordering::Acquire) {
            return None;
        }
        let consumer = self.consumer.load(Ordering::Relaxed);
        if self.producer.load(Ordering::Acquire) == consumer {
            return None;
        }
        let context = self.contexts[(consumer % self.contexts.len() as u64) as usize].load(Ordering::Relaxed);
        self.consumer.store(consumer + 1, Ordering::Release);
        Some(Completion {
            qpn: self.qpn,
            qp_context: self.qp_context,
            context,
            status: CompletionStatus::Card(CqeStatus::Flushed),
            op: Operation::Receive,
            syndrome: 0,
        })
    }

    /// Tells whether [`RqShared::take_flushed`] would give something.
    fn has_flushed(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire) && self.producer.load(Ordering::Acquire) != self.consumer.load(Ordering::Relaxed)
    }

    /// Notes that nobody posts any more.
    pub(crate) fn detach(&self) {
        self.is_detached.store(true, Ordering::Release);
    }

    /// Tells whether nobody posts any more and everything was polled.
    pub(crate) fn is_over(&self) -> bool {
        self.is_detached.load(Ordering::Acquire) && self.producer.load(Ordering::Acquire) == self.consumer.load(Ordering::Relaxed)
    }
}

/// Tells that there may be something to look at: a CQ, that some receive queue has flushed receives to give; the adapter, that
/// some CQ has to call back.
#[derive(Debug, Default)]
pub(crate) struct Signal(AtomicBool);

impl Signal {
    /// To be called behind what there is to tell of.
    pub(crate) fn raise(&self) {
        // A read-modify-write, so that who takes it down sees what all did who raised it, not the last of them alone.
        self.0.swap(true, Ordering::AcqRel);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Takes it down, before the look, and returns whether it was raised.
    pub(crate) fn lower(&self) -> bool {
        // A read-modify-write, so that the look sees what was raised until now; but none where there is nothing to see.
        self.is_raised() && self.0.swap(false, Ordering::AcqRel)
    }

    /// Moves flushed receives into `out`, returns how many, and forgets the queues that are over. For the poller alone.
    pub(crate) fn take_flushed(&self, receivers: &mut Vec<Arc<RqShared>>, out: &mut [Completion]) -> usize {
        // Before the look: a receive that is posted after it, into a queue that is stopped, raises it again.
        self.lower();
        let mut filled = 0;
        for receiver in receivers.iter() {
            while filled < out.len() {
                let Some(completion) = receiver.take_flushed() else { break };
                out[filled] = completion;
                filled += 1;
            }
        }
        if receivers.iter().any(|receiver| receiver.has_flushed()) {
            self.raise();
        }
        receivers.retain(|receiver| !receiver.is_over());
        filled
    }
}

/// The receive queue of a QP, for the one who posts. Holds the QP: it must be dropped for the QP to close.
#[derive(Debug)]
pub struct ReceiveQueue {
    qp: Arc<Qp>,
    shared: Arc<RqShared>,
    max_sges: u32,
    max_message_bytes: u64,
}

impl ReceiveQueue {
    pub(crate) fn new(qp: Arc<Qp>, shared: Arc<RqShared>) -> Self {
        let max_sges = qp.options().receive_sges;
        let max_message_bytes = qp.pd().adapter().info().max_message_bytes.into();
        Self { qp, shared, max_sges, max_message_bytes }
    }

    /// Returns the QP.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Returns the most scatter/gather entries of a receive.
    pub fn max_sges(&self) -> u32 {
        self.max_sges
    }

    /// Posts a receive into the bytes of `sges`, connected or not. It makes exactly one completion with `context`.
    ///
    /// A failure posts nothing, makes no completion, and leaves the queue working: [`Error::ReceivesStopped`],
    /// [`Error::QueueFull`], [`Error::TooManySges`], [`Error::MessageTooLong`].
    pub fn post(&mut self, context: u64, sges: &[Sge]) -> Result<(), Error> {
        if sges.len() > self.max_sges as usize {
            return Err(Error::TooManySges { sges: sges.len(), limit: self.max_sges });
        }
        let len_bytes = sges.iter().map(|sge| u64::from(sge.len_bytes)).sum();
        if len_bytes > self.max_message_bytes {
            return Err(Error::MessageTooLong { len_bytes, limit: self.max_message_bytes });
        }
        if self.shared.post(context)? {
            self.qp.receive_cq().receives_flushed();
        }
        Ok(())
    }
}

impl Drop for ReceiveQueue {
    fn drop(&mut self) {
        self.qp.give_back_receive_queue();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_come_back_in_order_when_the_queue_is_stopped_and_not_before() {
        let shared = RqShared::new(7, 99, 3);
        for context in [10, 11, 12] {
            assert!(!shared.post(context).unwrap());
        }
        assert!(matches!(shared.post(13), Err(Error::QueueFull { queue: "receive", qpn: 7, depth: 3 })));
        assert_eq!(shared.take_flushed(), None, "still waiting for a message");
        assert!(shared.stop());
        assert!(matches!(shared.post(14), Err(Error::ReceivesStopped { qpn: 7 })));
        let flushed: Vec<_> = std::iter::from_fn(|| shared.take_flushed()).map(|c| (c.qp_context, c.context, c.status.raw())).collect();
        assert_eq!(flushed, [(99, 10, 5), (99, 11, 5), (99, 12, 5)]);
        assert!(!shared.is_over(), "the queue pair may still be there");
        shared.detach();
        assert!(shared.is_over());
    }

    #[test]
    fn a_queue_of_no_receives_takes_none() {
        let shared = RqShared::new(7, 0, 0);
        assert!(matches!(shared.post(1), Err(Error::QueueFull { depth: 0, .. })));
        assert!(!shared.stop());
        assert_eq!(shared.take_flushed(), None);
    }
}
