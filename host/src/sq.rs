//! The posting path: from a request to the doorbell, without a lock and without an allocation.
//!
//! # Which slots are free
//!
//! Indices run free in 64 bits here; the card sees their low 16. A slot is taken by the post and
//! freed by whichever comes first:
//!
//! * a completion of it or of a later request was polled;
//! * the progress record has passed it, and neither it nor an earlier request is signalled and not polled yet.
//!
//! The second is for silent requests. It stops at signalled ones because their completion may still
//! lie unread in the CQ, and its context in the slot. It relies on the card to leave the progress
//! record in front of a request that failed: that one makes a completion although it was silent.

use std::sync::Arc;

use verbena_abi::arith::Ring;
use verbena_abi::limits::{INLINE_ONE_UNIT, MAX_INLINE, MAX_SGES, SGES_ONE_UNIT};
use verbena_abi::queue::{self, wqe_flags, QpState, SqProgress, SqWqe, SqWqeMore, WqeOp, SQ_UNIT};
use verbena_abi::regs::Doorbell;
use zerocopy::IntoBytes;

use crate::device::Bar;
use crate::dma::DmaBuffer;
use crate::error::Error;
use crate::ndk::op_flags;
use crate::qp::Qp;
use crate::sync::{fence, AtomicBool, AtomicU64, AtomicU8, Ordering};

/// A piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte, as the region names it.
    pub va: u64,
    /// Bytes; 0 is legal.
    pub len_bytes: u32,
    /// Key of the region, see [`crate::Mr::lkey`].
    pub lkey: u32,
}

/// Flags of a write; the numbers are those of `NDK_OP_FLAG_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags(pub u32);

impl WriteFlags {
    /// No flags: a completion in any case, the doorbell at once.
    pub const NONE: Self = Self(0);
    /// Success makes no completion; failure and cancellation always do.
    pub const SILENT_SUCCESS: Self = Self(op_flags::SILENT_SUCCESS);
    /// Do not start before all earlier reads of the QP are done.
    pub const READ_FENCE: Self = Self(op_flags::READ_FENCE);
    /// Copy the data during the call: of [`SendQueue::write_inline`] alone, since a region's address is none of this process.
    pub const INLINE: Self = Self(op_flags::INLINE);
    /// The doorbell may wait for the next request without this flag.
    pub const DEFER: Self = Self(op_flags::DEFER);
    /// All flags that exist.
    pub const ALL: Self = Self(op_flags::SILENT_SUCCESS | op_flags::READ_FENCE | op_flags::INLINE | op_flags::DEFER);

    /// Tells whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for WriteFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What the driver keeps of a posted request.
#[derive(Debug, Default)]
struct Slot {
    context: AtomicU64,
    /// The request makes no completion on success. Read by the poster alone.
    is_silent: AtomicBool,
}

/// What poster, poller and the rest of the driver share about a send queue.
#[derive(Debug)]
pub(crate) struct SqShared {
    qpn: u32,
    qp_context: u64,
    depth: u64,
    ring: Ring,
    /// The QP's state, written by commands and events, read by the poster.
    state: AtomicU8,
    /// Requests, by slot.
    slots: Box<[Slot]>,
    /// Requests ever posted. Written by the poster.
    producer: AtomicU64,
    /// Requests ever shown to the card. Written by whoever rings.
    rung: AtomicU64,
    /// Requests up to the last one whose completion was polled. Only grows; written under the CQ's lock.
    completed: AtomicU64,
    /// Requests whose slots are free again. Only grows.
    freed: AtomicU64,
}

impl SqShared {
    pub(crate) fn new(qpn: u32, qp_context: u64, depth: u32) -> Self {
        let ring = Ring::with_slots(depth);
        Self {
            qpn,
            qp_context,
            depth: depth.into(),
            ring,
            state: AtomicU8::new(QpState::Reset as u8),
            slots: (0..ring.depth()).map(|_| Slot::default()).collect(),
            producer: AtomicU64::new(0),
            rung: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    pub(crate) fn qp_context(&self) -> u64 {
        self.qp_context
    }

    pub(crate) fn state(&self) -> QpState {
        // Only states are ever stored; the fallback is the one in which nothing can be posted.
        QpState::try_from(self.state.load(Ordering::SeqCst)).unwrap_or(QpState::Error)
    }

    /// Takes the state `next`, unless an error came in between, out of which nothing leads. Returns whether it did.
    pub(crate) fn advance(&self, next: QpState) -> bool {
        let error = QpState::Error as u8;
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| (old != error).then_some(next as u8)).is_ok()
    }

    /// Stops posting and shows deferred requests to the card, so that it flushes them too.
    ///
    /// May run while another thread posts: the store of the state and the load of the producer here,
    /// the store of the producer and the load of the state in a deferred post, are all sequentially
    /// consistent, so at least one of the two threads sees the other and rings.
    pub(crate) fn enter_error(&self, bar: &dyn Bar) {
        self.state.store(QpState::Error as u8, Ordering::SeqCst);
        let producer = self.producer.load(Ordering::SeqCst);
        if self.rung.fetch_max(producer, Ordering::SeqCst) < producer {
            self.ring_for(bar, producer);
        }
    }

    /// Makes a request known whose doorbell may wait, and rings if the QP went to error since the poster
    /// looked: the flush may have read the producer before. The counterpart of [`SqShared::enter_error`].
    fn publish_deferred(&self, bar: &dyn Bar, producer: u64) {
        self.producer.store(producer, Ordering::SeqCst);
        if self.state() != QpState::Rts && self.rung.fetch_max(producer, Ordering::SeqCst) < producer {
            self.ring_for(bar, producer);
        }
    }

    /// Tells whether requests were posted that are neither polled nor known to be done.
    pub(crate) fn is_busy(&self) -> bool {
        self.freed.load(Ordering::Acquire) < self.producer.load(Ordering::Acquire)
    }

    /// Returns how many requests were ever posted.
    pub(crate) fn producer(&self) -> u64 {
        self.producer.load(Ordering::Acquire)
    }

    /// Tells whether a request was ever posted.
    pub(crate) fn was_used(&self) -> bool {
        self.producer.load(Ordering::Acquire) != 0
    }

    /// Ends the request with the 16-bit index of a completion, and all before it. Returns its
    /// context, or nothing if no such request is outstanding. [`SqShared::release`] frees the slots.
    pub(crate) fn complete(&self, wqe_index: u16) -> Option<u64> {
        let producer = self.producer.load(Ordering::Acquire);
        let distance = u64::from((producer as u16).wrapping_sub(wqe_index));
        let index = producer.checked_sub(distance).filter(|_| distance != 0 && distance <= self.depth)?;
        if index < self.completed.load(Ordering::Relaxed).max(self.freed.load(Ordering::Acquire)) {
            return None;
        }
        let context = self.slots.get(self.ring.slot(index as u32) as usize)?.context.load(Ordering::Relaxed);
        self.completed.store(index + 1, Ordering::Relaxed);
        Some(context)
    }

    /// Frees the slots of all requests that are ended. To be called when the CQ's consumer index is
    /// with the card: who posts into a freed slot counts on room for its completion.
    pub(crate) fn release(&self) {
        // Pairs with the acquire of the poster: the slot is written again only after its context was read.
        self.freed.fetch_max(self.completed.load(Ordering::Relaxed), Ordering::Release);
    }

    fn ring_for(&self, bar: &dyn Bar, producer: u64) {
        // The card fetches what the doorbell names: entries first. Pairs with the card's read of the ring after
        // the doorbell has reached it.
        fence(Ordering::Release);
        bar.write32(Doorbell::Sq.offset(self.qpn), producer as u32 & 0xFFFF);
    }
}

/// The send queue of a QP, for the one who posts. Holds the QP: it must be dropped for the QP to close.
pub struct SendQueue {
    qp: Arc<Qp>,
    shared: Arc<SqShared>,
    memory: DmaBuffer,
    /// Bytes of a slot.
    slot_bytes: usize,
    max_sges: u32,
    max_inline_bytes: u32,
    max_message_bytes: u64,
    producer: u64,
    /// Requests whose slots are known to be free.
    freed: u64,
}

impl std::fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendQueue(QP {}, {} posted, {} done)", self.shared.qpn, self.producer, self.freed)
    }
}

impl SendQueue {
    pub(crate) fn new(qp: Arc<Qp>, shared: Arc<SqShared>, memory: DmaBuffer, slot_bytes: usize) -> Self {
        let options = qp.options();
        let info = qp.pd().adapter().info();
        Self {
            max_sges: options.send_sges,
            max_inline_bytes: options.inline_bytes,
            max_message_bytes: info.max_message_bytes.into(),
            producer: shared.producer.load(Ordering::Acquire),
            freed: shared.freed.load(Ordering::Acquire),
            qp,
            shared,
            memory,
            slot_bytes,
        }
    }

    /// Returns the QP.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Posts an RDMA WRITE of the bytes of `sges`, in their order, to `remote_va` of the peer's region `rkey`.
    ///
    /// Success makes exactly one completion with `context`, unless [`WriteFlags::SILENT_SUCCESS`] was
    /// given and the write succeeded. No SGEs, or empty ones, make a write of no bytes.
    ///
    /// A failure posts nothing, makes no completion, leaves the queue working, and shows deferred
    /// requests to the card: [`Error::NotConnected`], [`Error::QueueFull`], [`Error::BadFlags`] (also for
    /// [`WriteFlags::INLINE`]), [`Error::TooManySges`], [`Error::MessageTooLong`].
    pub fn write(&mut self, context: u64, sges: &[Sge], remote_va: u64, rkey: u32, flags: WriteFlags) -> Result<(), Error> {
        let outcome = self.post_regions(context, sges, remote_va, rkey, flags);
        self.posted(outcome, flags)
    }

    /// Posts an RDMA WRITE of the bytes of `pieces`, in their order. They are copied into the request, so their memory is free
    /// again when this returns, needs no region, and the card reads it together with the request: the shortest way for
    /// a short message. There may be any number of pieces.
    ///
    /// As [`SendQueue::write`] otherwise, with [`WriteFlags::INLINE`] or without. Fails with [`Error::InlineTooLong`] for
    /// more bytes than [`QpOptions::inline_bytes`](crate::QpOptions::inline_bytes).
    pub fn write_inline(&mut self, context: u64, pieces: &[&[u8]], remote_va: u64, rkey: u32, flags: WriteFlags) -> Result<(), Error> {
        self.write_inline_from(context, pieces.iter().copied(), remote_va, rkey, flags)
    }

    /// Does what [`SendQueue::write_inline`] does with the pieces that an iterator gives. It is walked twice.
    pub fn write_inline_from<'a>(
        &mut self,
        context: u64,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
        remote_va: u64,
        rkey: u32,
        flags: WriteFlags,
    ) -> Result<(), Error> {
        let outcome = self.post_bytes(context, pieces, remote_va, rkey, flags);
        self.posted(outcome, flags)
    }

    /// Rings, unless the doorbell may wait. Also on failure: NDK has deferred requests handed over before a failing post returns.
    #[inline]
    fn posted(&mut self, outcome: Result<(), Error>, flags: WriteFlags) -> Result<(), Error> {
        if outcome.is_err() || !flags.contains(WriteFlags::DEFER) {
            self.ring_doorbell();
        }
        outcome
    }

    /// Shows deferred requests to the card, if there are any.
    pub fn ring_doorbell(&mut self) {
        if self.shared.rung.load(Ordering::Relaxed) < self.producer {
            // No read-modify-write: nobody else knows of a later request than the poster does.
            self.shared.rung.store(self.producer, Ordering::Relaxed);
            self.shared.ring_for(self.qp.pd().adapter().bar(), self.producer);
        }
    }

    /// Returns how many requests can be posted now, by completions that were polled and by the card's progress record.
    pub fn free_slots(&mut self) -> u32 {
        self.reclaim();
        (self.shared.depth - (self.producer - self.freed)) as u32
    }

    fn post_regions(&mut self, context: u64, sges: &[Sge], remote_va: u64, rkey: u32, flags: WriteFlags) -> Result<(), Error> {
        self.check("write from regions", flags, WriteFlags(WriteFlags::ALL.0 & !WriteFlags::INLINE.0))?;
        if sges.len() > self.max_sges as usize {
            return Err(Error::TooManySges { sges: sges.len(), limit: self.max_sges });
        }
        // In 64 bits: six lengths of 32 bits do not fit into 32.
        let len_bytes = sges.iter().map(|sge| u64::from(sge.len_bytes)).sum();
        if len_bytes > self.max_message_bytes {
            return Err(Error::MessageTooLong { len_bytes, limit: self.max_message_bytes });
        }
        let slot = self.free_slot()?;
        let (first, more) = sges.split_at(sges.len().min(SGES_ONE_UNIT));
        let mut wqe = head(flags, remote_va, rkey);
        wqe.sges = sges.len() as u8;
        lay_out(&mut wqe.sge, first);
        self.memory.write(slot * self.slot_bytes, &wqe)?;
        if !more.is_empty() {
            let mut unit = SqWqeMore::default();
            lay_out(&mut unit.sge, more);
            self.memory.write(slot * self.slot_bytes + SQ_UNIT, &unit)?;
        }
        self.publish(slot, context, flags);
        Ok(())
    }

    fn post_bytes<'a>(
        &mut self,
        context: u64,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
        remote_va: u64,
        rkey: u32,
        flags: WriteFlags,
    ) -> Result<(), Error> {
        self.check("inline write", flags, WriteFlags::ALL)?;
        let len_bytes = pieces.clone().map(|piece| piece.len() as u64).sum();
        if len_bytes > u64::from(self.max_inline_bytes) {
            return Err(Error::InlineTooLong { len_bytes, limit: self.max_inline_bytes });
        }
        let slot = self.free_slot()?;
        let mut wqe = head(flags, remote_va, rkey);
        wqe.inline_bytes = len_bytes as u8;
        let mut bytes = [0; MAX_INLINE];
        let mut place = 0;
        for piece in pieces {
            bytes[place..place + piece.len()].copy_from_slice(piece);
            place += piece.len();
        }
        let (first, more) = bytes.split_at(INLINE_ONE_UNIT);
        wqe.sge.as_mut_bytes().copy_from_slice(first);
        self.memory.write(slot * self.slot_bytes, &wqe)?;
        if len_bytes > INLINE_ONE_UNIT as u64 {
            let mut unit = SqWqeMore::default();
            unit.sge.as_mut_bytes().copy_from_slice(more);
            self.memory.write(slot * self.slot_bytes + SQ_UNIT, &unit)?;
        }
        self.publish(slot, context, flags);
        Ok(())
    }

    #[inline]
    fn check(&self, what: &'static str, flags: WriteFlags, known: WriteFlags) -> Result<(), Error> {
        let state = self.shared.state();
        if state != QpState::Rts {
            return Err(Error::NotConnected { qpn: self.shared.qpn, state });
        }
        if flags.0 & !known.0 != 0 {
            return Err(Error::BadFlags { what, flags: flags.0, known: known.0 });
        }
        Ok(())
    }

    /// Returns the slot of the next request, if one is free.
    #[inline]
    fn free_slot(&mut self) -> Result<usize, Error> {
        if self.producer - self.freed >= self.shared.depth {
            self.reclaim();
            if self.producer - self.freed >= self.shared.depth {
                return Err(Error::QueueFull { queue: "send", qpn: self.shared.qpn, depth: self.shared.depth as u32 });
            }
        }
        Ok(self.shared.ring.slot(self.producer as u32) as usize)
    }

    /// Makes the request known that lies in `slot`.
    #[inline]
    fn publish(&mut self, slot: usize, context: u64, flags: WriteFlags) {
        if let Some(kept) = self.shared.slots.get(slot) {
            kept.context.store(context, Ordering::Relaxed);
            kept.is_silent.store(flags.contains(WriteFlags::SILENT_SUCCESS), Ordering::Relaxed);
        }
        self.producer += 1;
        // Before the doorbell: the poller may see the completion at once and looks for the request below this index.
        if flags.contains(WriteFlags::DEFER) {
            self.shared.publish_deferred(self.qp.pd().adapter().bar(), self.producer);
        } else {
            self.shared.producer.store(self.producer, Ordering::Release);
        }
    }

    /// Learns which slots are free: from polled completions, then from the progress record.
    fn reclaim(&mut self) {
        // Pairs with the release of the poller, which has read the contexts that will be overwritten.
        self.freed = self.freed.max(self.shared.freed.load(Ordering::Acquire));
        let outstanding = self.producer - self.freed;
        if outstanding == 0 {
            return;
        }
        let Ok(progress) = self.memory.read::<SqProgress>(progress_offset(self.shared.ring, self.slot_bytes)) else { return };
        let behind = u64::from((self.producer as u16).wrapping_sub(progress.consumer.get() as u16));
        // An older record than the last completion that was polled, or nonsense: nothing to learn.
        if behind >= outstanding {
            return;
        }
        let done = self.producer - behind;
        let is_silent = |index: u64| {
            let slot = self.shared.slots.get(self.shared.ring.slot(index as u32) as usize);
            slot.is_some_and(|slot| slot.is_silent.load(Ordering::Relaxed))
        };
        while self.freed < done && is_silent(self.freed) {
            self.freed += 1;
        }
        self.shared.freed.fetch_max(self.freed, Ordering::Release);
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        // Each deferred request was posted with success, so each must complete.
        self.ring_doorbell();
        self.qp.give_back_send_queue();
    }
}

/// Returns a request without data.
#[inline]
fn head(flags: WriteFlags, remote_va: u64, rkey: u32) -> SqWqe {
    let mut bits = 0;
    if !flags.contains(WriteFlags::SILENT_SUCCESS) {
        bits |= wqe_flags::SIGNALED;
    }
    if flags.contains(WriteFlags::READ_FENCE) {
        bits |= wqe_flags::FENCE;
    }
    SqWqe { opcode: WqeOp::Write as u8, flags: bits, remote_va: remote_va.into(), rkey: rkey.into(), ..Default::default() }
}

/// Returns the bytes of a slot for requests of up to `sges` SGEs and up to `inline_bytes` bytes of inline data.
pub(crate) const fn slot_bytes(sges: u32, inline_bytes: u32) -> usize {
    if sges as usize > SGES_ONE_UNIT || inline_bytes as usize > INLINE_ONE_UNIT {
        2 * SQ_UNIT
    } else {
        SQ_UNIT
    }
}

/// Returns where the progress record lies behind the ring: in a 64-byte line of its own.
pub(crate) const fn progress_offset(ring: Ring, slot_bytes: usize) -> usize {
    ring.depth() as usize * slot_bytes
}

/// Returns the bytes of ring and progress record.
pub(crate) const fn memory_bytes(ring: Ring, slot_bytes: usize) -> usize {
    progress_offset(ring, slot_bytes) + SQ_UNIT
}

fn lay_out(places: &mut [queue::Sge], sges: &[Sge]) {
    for (place, sge) in places.iter_mut().zip(sges) {
        *place = queue::Sge { va: sge.va.into(), len_bytes: sge.len_bytes.into(), lkey: sge.lkey.into() };
    }
}

const _: () = assert!(MAX_SGES == SGES_ONE_UNIT + 4, "two units hold all SGEs that a request may have");
const _: () = assert!(MAX_INLINE <= u8::MAX as usize, "the length of inline data has eight bits");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::MockBar;

    /// A send queue in RTS whose poster has passed the check of the state.
    fn connected() -> SqShared {
        let shared = SqShared::new(3, 0, 4);
        assert!(shared.advance(QpState::Rts));
        shared
    }

    #[test]
    fn a_deferred_post_that_a_flush_overtook_rings_for_itself() {
        let (bar, shared) = (MockBar::default(), connected());
        // The flush sees no request, so it has nothing to ring for.
        shared.enter_error(&bar);
        bar.expect_write(Doorbell::Sq.offset(3), 1);
        shared.publish_deferred(&bar, 1);
        bar.verify();
    }

    #[test]
    fn a_flush_behind_a_deferred_post_rings_for_it() {
        let (bar, shared) = (MockBar::default(), connected());
        shared.publish_deferred(&bar, 2);
        bar.expect_write(Doorbell::Sq.offset(3), 2);
        shared.enter_error(&bar);
        // Once: a second error finds everything rung for.
        shared.enter_error(&bar);
        bar.verify();
    }

    #[test]
    fn nothing_leads_out_of_the_error_state() {
        let (bar, shared) = (MockBar::default(), connected());
        shared.enter_error(&bar);
        assert!(!shared.advance(QpState::Rts) && !shared.advance(QpState::Reset));
        assert_eq!(shared.state(), QpState::Error);
    }

    #[test]
    fn indices_of_completions_are_told_apart_over_many_laps() {
        let shared = connected();
        for producer in [1u64, 65_536, 65_537, 1 << 40] {
            shared.producer.store(producer, Ordering::Release);
            let newest = (producer - 1) as u16;
            assert_eq!(shared.complete(newest.wrapping_add(1)), None, "not posted yet");
            assert_eq!(shared.complete(newest.wrapping_sub(4)), None, "more than a depth ago");
            assert_eq!(shared.complete(newest), Some(0));
            assert_eq!(shared.complete(newest), None, "completed already");
        }
    }
}
