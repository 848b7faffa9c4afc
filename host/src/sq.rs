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
use verbena_abi::queue::{self, wqe_flags, CqeStatus, QpState, SqProgress, SqWqe, SqWqeMore, WqeOp, SQ_UNIT};
use verbena_abi::regs::Doorbell;
use zerocopy::IntoBytes;

use crate::cq::{Completion, CompletionStatus, Operation};
use crate::device::Bar;
use crate::dma::Units;
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
    /// The request makes no completion on success. Read by the poster, and by the poller of a card that is gone.
    is_silent: AtomicBool,
}

/// What poster, poller and the rest of the driver share about a send queue.
#[derive(Debug)]
pub(crate) struct SqShared {
    qpn: u32,
    /// Offset of the doorbell.
    doorbell: u32,
    qp_context: u64,
    depth: u64,
    ring: Ring,
    /// The QP's state, written by commands and events, read by the poster.
    state: AtomicU8,
    /// Somebody posts.
    has_poster: AtomicBool,
    /// Requests, by slot.
    slots: Box<[Slot]>,
    /// Requests ever posted. Written by the poster.
    producer: AtomicU64,
    /// Requests up to the last one whose doorbell may wait. Written by the poster.
    deferred: AtomicU64,
    /// Requests ever shown to the card by the poster, who notes it before it rings.
    rung: AtomicU64,
    /// Requests ever shown to the card by those who put the QP in error, who note it before they ring.
    rung_by_flush: AtomicU64,
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
            doorbell: Doorbell::Sq.offset(qpn),
            qp_context,
            depth: depth.into(),
            ring,
            state: AtomicU8::new(QpState::Reset as u8),
            has_poster: AtomicBool::new(false),
            slots: (0..ring.depth()).map(|_| Slot::default()).collect(),
            producer: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            rung: AtomicU64::new(0),
            rung_by_flush: AtomicU64::new(0),
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
        known_state(self.state.load(Ordering::Acquire))
    }

    /// Takes the state `next`, unless an error came in between, out of which nothing leads. Returns whether it did.
    pub(crate) fn advance(&self, next: QpState) -> bool {
        let error = QpState::Error as u8;
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| (old != error).then_some(next as u8)).is_ok()
    }

    /// Stops posting and shows deferred requests to the card, so that it flushes them too. Any other request was or will be rung for.
    ///
    /// May run while another thread posts. Here the state is stored and then `deferred` read, in a deferred post `deferred` is stored
    /// and then the state read. All accesses of `deferred` are read-modify-writes, of which one is the first: either it is the post's,
    /// and its index is seen here, or it is this one, and the post sees the state. So at least one of them rings.
    pub(crate) fn enter_error(&self, bar: &dyn Bar) {
        self.state.store(QpState::Error as u8, Ordering::Release);
        let mut shown = self.deferred.fetch_add(0, Ordering::AcqRel);
        if self.rung.load(Ordering::Acquire) >= shown || self.rung_by_flush.fetch_max(shown, Ordering::AcqRel) >= shown {
            return;
        }
        loop {
            self.ring_for(bar, shown);
            // Somebody may have rung for a later request before this doorbell, which then takes the card's index back. The later
            // index was noted before it was rung for, so if this doorbell overtook one, it is seen behind this fence.
            fence(Ordering::SeqCst);
            let latest = self.rung.load(Ordering::Acquire).max(self.rung_by_flush.load(Ordering::Acquire));
            if latest <= shown {
                return;
            }
            shown = latest;
        }
    }

    /// Notes a request whose doorbell may wait. Returns whether it may: not if the QP went to error since the poster looked, for the
    /// flush may have looked before. The counterpart of [`SqShared::enter_error`].
    #[inline]
    fn defer(&self, producer: u64) -> bool {
        self.deferred.swap(producer, Ordering::AcqRel);
        self.state.load(Ordering::Acquire) == QpState::Rts as u8
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

    /// Returns the first request from `from` on that is not silent, or not done by the record that says `consumer`, of `producer` ever posted.
    fn first_not_done(&self, from: u64, producer: u64, consumer: u16) -> u64 {
        let behind = u64::from((producer as u16).wrapping_sub(consumer));
        // An older record than the last completion that was polled, or nonsense: nothing to learn.
        if behind >= producer - from {
            return from;
        }
        let done = producer - behind;
        let is_silent = |index: &u64| {
            let slot = self.slots.get(self.ring.slot(*index as u32) as usize);
            slot.is_some_and(|slot| slot.is_silent.load(Ordering::Relaxed))
        };
        (from..done).find(|index| !is_silent(index)).unwrap_or(done)
    }

    /// Returns the oldest request that a card that is gone leaves without completion, if there is one. `consumer` is what its progress record
    /// says; nothing up to the request of the entry with `wqe_index` counts.
    pub(crate) fn oldest_lost(&self, consumer: Option<u16>, wqe_index: Option<u16>) -> Option<u64> {
        // In this order: what is free was posted before.
        let from = self.completed.load(Ordering::Relaxed).max(self.freed.load(Ordering::Acquire));
        let producer = self.producer.load(Ordering::Acquire);
        let behind_entry =
            wqe_index.and_then(|index| producer.checked_sub(u64::from((producer as u16).wrapping_sub(index)))).map_or(0, |index| index + 1);
        let from = from.max(behind_entry).min(producer);
        let index = consumer.map_or(from, |consumer| self.first_not_done(from, producer, consumer));
        (index < producer).then_some(index)
    }

    /// Ends the oldest request that a card that is gone leaves without completion.
    pub(crate) fn take_lost(&self, consumer: Option<u16>) -> Option<Completion> {
        let (index, context) = loop {
            let index = self.oldest_lost(consumer, None)?;
            let context = self.slots.get(self.ring.slot(index as u32) as usize)?.context.load(Ordering::Relaxed);
            // Pairs with the fence of a poster that is late and finds the slot free: if this was its context, what it freed shows.
            fence(Ordering::Acquire);
            if self.freed.load(Ordering::Relaxed) <= index {
                break (index, context);
            }
        };
        self.completed.store(index + 1, Ordering::Relaxed);
        Some(Completion {
            qpn: self.qpn,
            qp_context: self.qp_context,
            context,
            status: CompletionStatus::Card(CqeStatus::Flushed),
            op: Operation::Send(WqeOp::Write),
            syndrome: 0,
        })
    }

    /// Frees the slots of all requests that are ended. To be called when the CQ's consumer index is
    /// with the card: who posts into a freed slot counts on room for its completion.
    pub(crate) fn release(&self) {
        // Pairs with the acquire of the poster: the slot is written again only after its context was read.
        self.freed.fetch_max(self.completed.load(Ordering::Relaxed), Ordering::Release);
    }

    #[inline]
    fn ring_for(&self, bar: &dyn Bar, producer: u64) {
        // The card fetches what the doorbell names: entries first. Pairs with the card's read of the ring after
        // the doorbell has reached it. The fence also covers what another thread wrote that we ring for in `enter_error`:
        // the read of `deferred` saw its swap. The order of the write itself behind the fence is `Bar`'s.
        fence(Ordering::Release);
        bar.write32(self.doorbell, producer as u32 & 0xFFFF);
    }
}

/// The poster's side of the indices. There is one for a queue at a time.
#[derive(Debug)]
pub(crate) struct Poster {
    shared: Arc<SqShared>,
    /// Requests ever posted.
    producer: u64,
    /// Requests whose slots are known to be free.
    freed: u64,
}

impl Poster {
    /// Begins to post where the last one ended, unless somebody posts.
    pub(crate) fn take(shared: &Arc<SqShared>) -> Option<Self> {
        // Pairs with the release of the last poster, whose entries and indices this one goes on with.
        if shared.has_poster.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Self {
            producer: shared.producer.load(Ordering::Relaxed),
            freed: shared.freed.load(Ordering::Acquire),
            shared: Arc::clone(shared),
        })
    }

    /// Ends posting. Each deferred request was posted with success, so each must complete: they are shown to the card.
    pub(crate) fn give_back<'a>(&mut self, bar: impl FnOnce() -> &'a dyn Bar) {
        self.ring(bar);
        self.shared.has_poster.store(false, Ordering::Release);
    }

    /// Returns the slot of the next request, if one is free. `progress` reads the index in the progress record.
    #[inline]
    pub(crate) fn free_slot(&mut self, progress: impl FnOnce() -> Option<u16>) -> Option<usize> {
        if self.producer - self.freed >= self.shared.depth {
            self.reclaim(progress);
            if self.producer - self.freed >= self.shared.depth {
                return None;
            }
        }
        Some(self.shared.ring.slot(self.producer as u32) as usize)
    }

    /// Makes the request known that lies in `slot`, and shows it to the card unless it may be deferred.
    #[inline]
    pub(crate) fn publish<'a>(&mut self, slot: usize, context: u64, flags: WriteFlags, bar: impl FnOnce() -> &'a dyn Bar) {
        if let Some(kept) = self.shared.slots.get(slot) {
            kept.context.store(context, Ordering::Relaxed);
            kept.is_silent.store(flags.contains(WriteFlags::SILENT_SUCCESS), Ordering::Relaxed);
        }
        self.producer += 1;
        // Before the doorbell: the poller may see the completion at once and looks for the request below this index.
        self.shared.producer.store(self.producer, Ordering::Release);
        if !flags.contains(WriteFlags::DEFER) {
            self.ring_now(bar());
        } else if !self.shared.defer(self.producer) {
            self.ring(bar);
        }
    }

    /// Shows all requests to the card that it was not shown yet.
    pub(crate) fn ring<'a>(&self, bar: impl FnOnce() -> &'a dyn Bar) {
        let rung = self.shared.rung.load(Ordering::Relaxed).max(self.shared.rung_by_flush.load(Ordering::Relaxed));
        if rung < self.producer {
            self.ring_now(bar());
        }
    }

    #[inline]
    fn ring_now(&self, bar: &dyn Bar) {
        // No read-modify-write: nobody but the poster writes it, and a locked instruction would wait for the last doorbell to leave.
        self.shared.rung.store(self.producer, Ordering::Release);
        self.shared.ring_for(bar, self.producer);
    }

    /// Returns how many requests can be posted now.
    pub(crate) fn free_slots(&mut self, progress: impl FnOnce() -> Option<u16>) -> u32 {
        self.reclaim(progress);
        (self.shared.depth - (self.producer - self.freed)) as u32
    }

    /// Learns which slots are free: from polled completions, then from the progress record.
    #[cold]
    fn reclaim(&mut self, progress: impl FnOnce() -> Option<u16>) {
        // Pairs with the release of the poller, which has read the contexts that will be overwritten.
        self.freed = self.freed.max(self.shared.freed.load(Ordering::Acquire));
        if self.freed == self.producer {
            return;
        }
        let Some(consumer) = progress() else { return };
        // Pairs with the card's order: it writes the record when it has read the requests, which will be overwritten.
        fence(Ordering::Acquire);
        self.freed = self.shared.first_not_done(self.freed, self.producer, consumer);
        self.shared.freed.fetch_max(self.freed, Ordering::Release);
        // Before the slots are written again, see `take_lost`.
        fence(Ordering::Release);
    }
}

/// The send queue of a QP, for the one who posts. Holds the QP: it must be dropped for the QP to close.
pub struct SendQueue {
    qp: Arc<Qp>,
    poster: Poster,
    units: SqUnits,
    /// Units of a slot.
    slot_units: usize,
    progress: ProgressRecord,
    max_sges: u32,
    max_inline_bytes: u32,
    max_message_bytes: u64,
}

impl std::fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendQueue(QP {}, {} posted, {} done)", self.qp.qpn(), self.poster.producer, self.poster.freed)
    }
}

impl SendQueue {
    pub(crate) fn new(qp: Arc<Qp>, poster: Poster, units: SqUnits, slot_bytes: usize) -> Self {
        let options = qp.options();
        let info = qp.pd().adapter().info();
        Self {
            max_sges: options.send_sges,
            max_inline_bytes: options.inline_bytes,
            max_message_bytes: info.max_message_bytes.into(),
            progress: ProgressRecord::new(&units, poster.shared.ring, slot_bytes),
            poster,
            qp,
            units,
            slot_units: slot_bytes / SQ_UNIT,
        }
    }

    /// Returns the QP.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Returns the most scatter/gather entries of a request.
    pub fn max_sges(&self) -> u32 {
        self.max_sges
    }

    /// Returns the most inline bytes of a request.
    pub fn max_inline_bytes(&self) -> u32 {
        self.max_inline_bytes
    }

    /// Posts an RDMA WRITE of the bytes of `sges`, in their order, to `remote_va` of the peer's region `rkey`.
    ///
    /// Success makes exactly one completion with `context`, unless [`WriteFlags::SILENT_SUCCESS`] was
    /// given and the write succeeded. No SGEs, or empty ones, make a write of no bytes.
    ///
    /// A failure posts nothing, makes no completion, leaves the queue working, and shows deferred
    /// requests to the card: [`Error::NotConnected`], [`Error::QueueFull`], [`Error::BadFlags`] (also for
    /// [`WriteFlags::INLINE`]), [`Error::TooManySges`], [`Error::MessageTooLong`].
    #[inline]
    pub fn write(&mut self, context: u64, sges: &[Sge], remote_va: u64, rkey: u32, flags: WriteFlags) -> Result<(), Error> {
        let outcome = match sges {
            // What nearly all requests have gets a copy of its own, in which every question about other entries is answered.
            [one] => self.post_regions(context, std::slice::from_ref(one), remote_va, rkey, flags),
            other => self.post_any_regions(context, other, remote_va, rkey, flags),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(error),
        }
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
        match self.post_bytes(context, pieces, remote_va, rkey, flags) {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(error),
        }
    }

    /// Fails a post. NDK has deferred requests handed over before a failing post returns.
    #[cold]
    fn refuse(&mut self, error: Error) -> Result<(), Error> {
        self.ring_doorbell();
        Err(error)
    }

    /// Shows deferred requests to the card, if there are any.
    pub fn ring_doorbell(&mut self) {
        self.poster.ring(|| self.qp.pd().adapter().bar());
    }

    /// Returns how many requests can be posted now, by completions that were polled and by the card's progress record.
    pub fn free_slots(&mut self) -> u32 {
        self.poster.free_slots(|| self.progress.read())
    }

    #[inline(never)]
    fn post_any_regions(&mut self, context: u64, sges: &[Sge], remote_va: u64, rkey: u32, flags: WriteFlags) -> Result<(), Error> {
        self.post_regions(context, sges, remote_va, rkey, flags)
    }

    #[inline(always)]
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
        if sges.len() > SGES_ONE_UNIT {
            self.lay_out_more(slot, sges)?;
        }
        let wqe = SqWqe { sges: sges.len() as u8, sge: [laid_out(sges.first()), laid_out(sges.get(1))], ..head(flags, remote_va, rkey) };
        self.units.write(slot * self.slot_units, wqe.words())?;
        self.publish(slot, context, flags);
        Ok(())
    }

    /// Writes the second unit of a request that has one.
    #[inline(never)]
    fn lay_out_more(&self, slot: usize, sges: &[Sge]) -> Result<(), Error> {
        let mut unit = SqWqeMore::default();
        unit.sge.iter_mut().zip(&sges[SGES_ONE_UNIT..]).for_each(|(entry, sge)| *entry = laid_out(Some(sge)));
        self.units.write(slot * self.slot_units + 1, zerocopy::transmute!(unit))
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
        self.units.write(slot * self.slot_units, wqe.words())?;
        if len_bytes > INLINE_ONE_UNIT as u64 {
            let mut unit = SqWqeMore::default();
            unit.sge.as_mut_bytes().copy_from_slice(more);
            self.units.write(slot * self.slot_units + 1, zerocopy::transmute!(unit))?;
        }
        self.publish(slot, context, flags);
        Ok(())
    }

    #[inline]
    fn check(&self, what: &'static str, flags: WriteFlags, known: WriteFlags) -> Result<(), Error> {
        let shared = &self.poster.shared;
        let code = shared.state.load(Ordering::Acquire);
        if code != QpState::Rts as u8 {
            return Err(Error::NotConnected { qpn: shared.qpn, state: known_state(code) });
        }
        if flags.0 & !known.0 != 0 {
            return Err(Error::BadFlags { what, flags: flags.0, known: known.0 });
        }
        Ok(())
    }

    /// Returns the slot of the next request, if one is free.
    #[inline]
    fn free_slot(&mut self) -> Result<usize, Error> {
        match self.poster.free_slot(|| self.progress.read()) {
            Some(slot) => Ok(slot),
            None => Err(Error::QueueFull { queue: "send", qpn: self.qp.qpn(), depth: self.poster.shared.depth as u32 }),
        }
    }

    /// Makes the request known that lies in `slot`.
    #[inline]
    fn publish(&mut self, slot: usize, context: u64, flags: WriteFlags) {
        self.poster.publish(slot, context, flags, || self.qp.pd().adapter().bar());
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        self.poster.give_back(|| self.qp.pd().adapter().bar());
    }
}

/// Returns the state of a code. Only states are ever stored; the fallback is the one in which nothing can be posted.
fn known_state(code: u8) -> QpState {
    QpState::try_from(code).unwrap_or(QpState::Error)
}

/// The progress record behind a send queue.
#[derive(Clone)]
pub(crate) struct ProgressRecord {
    units: SqUnits,
    unit: usize,
}

impl ProgressRecord {
    pub(crate) fn new(units: &SqUnits, ring: Ring, slot_bytes: usize) -> Self {
        Self { units: units.clone(), unit: progress_offset(ring, slot_bytes) / SQ_UNIT }
    }

    /// Returns the index in the record: requests before it are done.
    pub(crate) fn read(&self) -> Option<u16> {
        // One access: halves of two records would be an index that never was.
        let bytes = self.units.read_first_half(self.unit).ok()?.to_ne_bytes();
        let progress: SqProgress = zerocopy::transmute!(bytes);
        Some(progress.consumer.get() as u16)
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

/// The memory of a send queue: the units of its slots, and the progress record behind them.
pub(crate) type SqUnits = Units<{ SQ_UNIT / 8 }>;

/// Returns the bytes of ring and progress record.
pub(crate) const fn memory_bytes(ring: Ring, slot_bytes: usize) -> usize {
    progress_offset(ring, slot_bytes) + SQ_UNIT
}

/// Returns an SGE as it lies in a request, or zeros.
#[inline]
fn laid_out(sge: Option<&Sge>) -> queue::Sge {
    let sge = sge.copied().unwrap_or_default();
    queue::Sge { va: sge.va.into(), len_bytes: sge.len_bytes.into(), lkey: sge.lkey.into() }
}

const _: () = assert!(MAX_SGES == SGES_ONE_UNIT + 4, "two units hold all SGEs that a request may have");
const _: () = assert!(SQ_UNIT == SqUnits::BYTES, "units are whole words");
const _: () = assert!(MAX_INLINE <= u8::MAX as usize, "the length of inline data has eight bits");

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
        let (bar, shared) = (MockBar::default(), Arc::new(connected()));
        let mut poster = Poster::take(&shared).unwrap();
        // The flush sees no request, so it has nothing to ring for.
        shared.enter_error(&bar);
        bar.expect_write(Doorbell::Sq.offset(3), 1);
        poster.publish(0, 0, WriteFlags::DEFER, || &bar);
        bar.verify();
    }

    #[test]
    fn a_flush_behind_deferred_posts_rings_for_them() {
        let (bar, shared) = (MockBar::default(), Arc::new(connected()));
        let mut poster = Poster::take(&shared).unwrap();
        poster.publish(0, 0, WriteFlags::DEFER, || &bar);
        poster.publish(1, 0, WriteFlags::DEFER, || &bar);
        bar.expect_write(Doorbell::Sq.offset(3), 2);
        shared.enter_error(&bar);
        // Once: a second error, and the poster, find everything rung for.
        shared.enter_error(&bar);
        poster.ring(|| &bar);
        bar.verify();
    }

    /// A BAR on which the poster rings for another request just before the flush's first doorbell arrives.
    struct Overtaken {
        poster: Mutex<Option<Poster>>,
        doorbells: Mutex<Vec<u32>>,
    }

    impl Bar for Overtaken {
        fn read32(&self, _: u32) -> u32 {
            0
        }

        fn write32(&self, _: u32, value: u32) {
            let poster = crate::lock(&self.poster).take();
            if let Some(mut poster) = poster {
                poster.publish(1, 0, WriteFlags::NONE, || self);
            }
            crate::lock(&self.doorbells).push(value);
        }
    }

    #[test]
    fn a_doorbell_of_a_flush_that_the_poster_overtook_is_followed_by_the_later_index() {
        let shared = Arc::new(connected());
        let mut poster = Poster::take(&shared).unwrap();
        poster.publish(0, 0, WriteFlags::DEFER, || unreachable!());
        let bar = Overtaken { poster: Mutex::new(Some(poster)), doorbells: Mutex::default() };
        shared.enter_error(&bar);
        assert_eq!(*crate::lock(&bar.doorbells), [2, 1, 2], "the card takes what comes last");
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
