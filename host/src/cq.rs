//! Completion queues: a ring that the card fills, read in batches, with a callback that must be armed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use verbena_abi::arith::Ring;
use verbena_abi::queue::{CmdCq, CommandOp, Cqe, CqeStatus, WqeOp, PHASE};
use verbena_abi::regs::{ArmKind, Doorbell, Moderation, CQ_INDEX_BITS};

use crate::adapter::Adapter;
use crate::command::{CloseCallback, CloseStatus, Command, Submitted};
use crate::dma::Units;
use crate::error::Error;
use crate::lock;
use crate::qp::{Qp, QpFault};
use crate::rq::{RqShared, Signal};
use crate::sq::{ProgressRecord, SqShared};

/// The ring of a completion queue, an entry a unit.
type CqUnits = Units<{ size_of::<Cqe>() / 8 }>;
const _: () = assert!(std::mem::offset_of!(Cqe, phase) == CqUnits::BYTES - 1, "the phase is the last byte of an entry's last word");

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// What the card says.
    Card(CqeStatus),
    /// The card says something that is not defined; the request is over all the same.
    Unknown(u8),
}

impl CompletionStatus {
    /// Tells whether the request was done.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Card(CqeStatus::Success))
    }

    /// Returns the card's code.
    pub const fn raw(self) -> u8 {
        match self {
            Self::Card(status) => status as u8,
            Self::Unknown(code) => code,
        }
    }
}

/// What a completed request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send request.
    Send(WqeOp),
    /// A receive.
    Receive,
}

/// One completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Queue pair number.
    pub qpn: u32,
    /// The QP's context, see [`crate::QpOptions::context`].
    pub qp_context: u64,
    /// The context that was given when the request was posted.
    pub context: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// What it was.
    pub op: Operation,
    /// AETH syndrome that caused the status, or 0.
    pub syndrome: u8,
}

impl Default for Completion {
    /// Returns what fills a slice that is to be polled into; no request completes like this.
    fn default() -> Self {
        Self { qpn: 0, qp_context: 0, context: 0, status: CompletionStatus::Unknown(0xFF), op: Operation::Send(WqeOp::Write), syndrome: 0 }
    }
}

/// What a CQ's callback is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqNotice {
    /// The arm was satisfied. The CQ is not armed any more.
    Completion,
    /// The card found the ring full: the CQ and its QPs are dead, nothing more will be reported. Told to whoever has armed, or arms.
    Overrun,
}

/// Callback of a CQ. Calls for one CQ never overlap. It may poll and arm.
pub type CqCallback = Box<dyn Fn(&Arc<Cq>, CqNotice) + Send + Sync>;

/// A completion queue.
pub struct Cq {
    adapter: Arc<Adapter>,
    cqn: u32,
    depth: u32,
    ring: Ring,
    memory: CqUnits,
    reader: Mutex<Reader>,
    callback: Option<CqCallback>,
    is_dead: AtomicBool,
    /// The card is gone: what is outstanding is completed here.
    is_lost: AtomicBool,
    flushed: Signal,
    /// A QP that completes here is left on the card.
    is_kept: AtomicBool,
    on_close: Mutex<Vec<CloseCallback>>,
}

/// What polling changes. NDK consumers poll and arm one CQ serially, so the lock is never contended;
/// it is taken once a batch.
#[derive(Default)]
struct Reader {
    /// Free-running index of the next entry to read.
    consumer: u32,
    /// The arm that is in force. The card has it too, but for [`ArmKind::Errors`].
    armed: Option<ArmKind>,
    /// The widest arm that the card may have, since its last event.
    at_card: Option<ArmKind>,
    /// The driver itself has satisfied the arm in force, and its notification is due even if the entry is polled before.
    is_due: bool,
    /// Receive queues that complete here. One whose QP is gone stays until its flushed receives were polled.
    receivers: Vec<Arc<RqShared>>,
    senders: Senders,
    /// Completions of QPs that were destroyed before their entries were polled, by index of the entry.
    resolved: BTreeMap<u32, Completion>,
    /// Completions of QPs that were closed on a card that is gone, without entries.
    lost: VecDeque<Completion>,
}

/// Send queues that complete on a CQ, by QPN: each is found in a few instructions, however many there are.
#[derive(Default)]
struct Senders(Vec<Option<Sender>>);

/// A send queue, and where the card says how far it is.
struct Sender {
    shared: Arc<SqShared>,
    /// Boxed, as only a card that is gone needs it, and the table has many places.
    progress: Box<ProgressRecord>,
}

const _: () = assert!(size_of::<Option<Sender>>() == 16);

impl Sender {
    /// Ends the oldest request that a card that is gone leaves without completion.
    fn take_lost(&self) -> Option<Completion> {
        self.shared.take_lost(self.progress.read())
    }

    /// Tells whether there is such a request, behind that of an entry.
    fn has_lost_behind(&self, wqe_index: Option<u16>) -> bool {
        self.shared.oldest_lost(self.progress.read(), wqe_index).is_some()
    }
}

impl Senders {
    fn insert(&mut self, shared: &Arc<SqShared>, progress: ProgressRecord) {
        let index = shared.qpn() as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(Sender { shared: Arc::clone(shared), progress: Box::new(progress) });
    }

    fn remove(&mut self, qpn: u32) {
        if let Some(place) = self.0.get_mut(qpn as usize) {
            *place = None;
        }
    }

    #[inline]
    fn get(&self, qpn: u32) -> Option<&Sender> {
        self.0.get(qpn as usize)?.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Sender> {
        self.0.iter().flatten()
    }
}

const SUCCESS: CompletionStatus = CompletionStatus::Card(CqeStatus::Success);

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cq({}, {} entries)", self.cqn, self.depth)
    }
}

impl Cq {
    /// Creates a CQ of at least `depth` entries; all of them are usable.
    ///
    /// The consumer sees to it that no more requests are outstanding than fit, silent ones counted.
    /// `callback` is not called before the first [`Cq::arm`].
    ///
    /// Fails inline with [`Error::AboveLimit`] or [`Error::BelowMinimum`] for the depth,
    /// [`Error::OutOfNumbers`], [`Error::OutOfMemory`], or the errors of a command; `done` gets the card's refusal.
    pub fn create(
        adapter: &Arc<Adapter>,
        depth: u32,
        callback: Option<CqCallback>,
        done: impl FnOnce(Result<Arc<Self>, Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        let limit = adapter.info().max_cq_depth;
        if depth > limit {
            return Err(Error::AboveLimit { what: "CQ depth", value: depth.into(), limit: limit.into() });
        }
        if depth == 0 {
            return Err(Error::BelowMinimum { what: "CQ depth", value: 0, min: 1 });
        }
        let ring = Ring::with_slots(depth);
        let memory = Arc::clone(adapter.device()).alloc(ring.depth() as usize * CqUnits::BYTES, 4096)?;
        let memory = CqUnits::new(memory)?;
        let cqn = adapter.take_number(|numbers| &mut numbers.cqs)?;
        let args = CmdCq { cqn: cqn.into(), log_depth: ring.log_depth(), address: memory.buffer().iova().into(), ..Default::default() };
        let submitted = adapter.submit(Command::create_cq(&args), move |adapter, outcome| {
            if let Err(error) = outcome {
                adapter.retire(|numbers| &mut numbers.cqs, cqn, memory, Some(&error));
                return done(Err(error));
            }
            let cq = Arc::new(Self {
                adapter: Arc::clone(adapter),
                cqn,
                depth,
                ring,
                memory,
                reader: Mutex::default(),
                callback,
                is_dead: AtomicBool::new(false),
                is_lost: AtomicBool::new(false),
                flushed: Signal::default(),
                is_kept: AtomicBool::new(false),
                on_close: Mutex::default(),
            });
            adapter.enter_cq(cqn, Arc::downgrade(&cq));
            done(Ok(cq));
        });
        submitted.inspect_err(|_| adapter.give_back_number(|numbers| &mut numbers.cqs, cqn))
    }

    /// Does what [`Cq::create`] does and waits for the result; see [`Adapter::block_on`] for bound and errors.
    pub fn create_blocking(adapter: &Arc<Adapter>, depth: u32, callback: Option<CqCallback>) -> Result<Arc<Self>, Error> {
        adapter.block_on("a CQ to be created", |done| Self::create(adapter, depth, callback, done))
    }

    /// Returns the CQ number.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Returns the depth that was asked for.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the adapter.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Tells whether the card found the ring full.
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// Takes completions, in the order in which the card wrote them, and returns how many.
    ///
    /// Fewer than fit into `out` means that the queue is empty for the moment. Each returned
    /// completion has freed its slot of the send queue. A dead CQ gives none.
    pub fn poll(&self, out: &mut [Completion]) -> usize {
        if self.is_dead() {
            return 0;
        }
        let mut reader = lock(&self.reader);
        // Before the look at the entries: all that the card has written are there then.
        let is_lost = self.is_lost.load(Ordering::Acquire);
        let start = reader.consumer;
        let mut filled = 0;
        if self.flushed.is_raised() {
            filled = self.flushed.take_flushed(&mut reader.receivers, out);
            if filled > 0 && reader.is_armed() {
                self.make_due(&mut reader);
            }
        }
        while let Some(place) = out.get_mut(filled) {
            let index = reader.consumer;
            let Some(cqe) = self.entry(index) else { break };
            reader.consumer = index.wrapping_add(1);
            match reader.take_resolved(index).or_else(|| reader.resolve(&cqe)) {
                Some(completion) => {
                    *place = completion;
                    filled += 1;
                }
                None => self.note_stray(&cqe),
            }
        }
        if reader.consumer != start {
            // At once, not every now and then: the consumer may post for each completion it got, and a ring of
            // exactly the depth it counted on must have room for what completes next.
            // The card may overwrite the entries from here on. Our reads of them come before (order of `Bar`).
            let index = reader.consumer & ((1 << CQ_INDEX_BITS) - 1);
            self.adapter.bar().write32(Doorbell::CqConsumer.offset(self.cqn), index);
        }
        // The card has yet to answer an arm that the driver has satisfied, and can't say then whether this is what it has answered.
        let is_early = (reader.armed, reader.at_card) == (Some(ArmKind::Solicited), Some(ArmKind::Any));
        if is_early && out[..filled].iter().any(|completion| completion.status != SUCCESS) {
            self.make_due(&mut reader);
        }
        if is_lost {
            filled += reader.take_lost(&mut out[filled..]);
            // The card tells of none of them.
            let satisfies = match reader.armed {
                Some(ArmKind::Any) => filled > 0,
                Some(ArmKind::Solicited) => out[..filled].iter().any(|completion| completion.status != SUCCESS),
                _ => false,
            };
            if satisfies {
                self.make_due(&mut reader);
            }
        }
        // Only now, for the same reason: another thread may be posting, and waits for nothing but a free slot. Once for all that
        // follow each other, since a queue frees everything at once.
        let mut released = None;
        for completion in &out[..filled] {
            if completion.op != Operation::Receive && released != Some(completion.qpn) {
                released = Some(completion.qpn);
                if let Some(sender) = reader.senders.get(completion.qpn) {
                    sender.shared.release();
                }
            }
        }
        filled
    }

    /// Asks for one call of the callback when a completion of `kind` is written that was not polled
    /// yet; soon, but not on the caller's stack, if there is one already.
    ///
    /// [`ArmKind::Errors`] asks for errors of the CQ itself; the other kinds include them. Arming again before
    /// the callback keeps the wider of both kinds. An arm of a dead CQ is answered with [`CqNotice::Overrun`].
    pub fn arm(self: &Arc<Self>, kind: ArmKind) {
        let mut reader = lock(&self.reader);
        let kind = reader.armed.map_or(kind, |armed| wider(armed, kind));
        reader.armed = Some(kind);
        if self.is_dead() {
            return self.make_due(&mut reader);
        }
        if kind == ArmKind::Errors {
            return;
        }
        reader.at_card = Some(reader.at_card.map_or(kind, |at_card| wider(at_card, kind)));
        // The card compares the index with its own and raises the event itself if an entry came in between, so this write
        // needs no order with our reads of the ring.
        self.adapter.bar().write32(Doorbell::CqArm.offset(self.cqn), kind.word(reader.consumer));
        if self.flushed.is_raised() || self.has_untold(&reader) {
            self.make_due(&mut reader);
        }
    }

    /// Tells whether there is something to poll that satisfies the arm, and of which a card that is gone does not tell.
    fn has_untold(&self, reader: &Reader) -> bool {
        if !self.is_lost.load(Ordering::Acquire) {
            return false;
        }
        let is_solicited = reader.armed == Some(ArmKind::Solicited);
        // Requests with an entry are none that are lost.
        let mut last_entries = BTreeMap::new();
        for index in (0..self.ring.depth()).map(|distance| reader.consumer.wrapping_add(distance)) {
            let Some(cqe) = self.entry(index) else { break };
            if !is_solicited || cqe.status != CqeStatus::Success as u8 {
                return true;
            }
            last_entries.insert(cqe.qpn.get(), cqe.wqe_index.get());
        }
        let mut senders = reader.senders.all();
        !reader.lost.is_empty() || senders.any(|sender| sender.has_lost_behind(last_entries.get(&sender.shared.qpn()).copied()))
    }

    /// Has the card call back less often: `interval_us` microseconds after the completion that satisfied an arm, or when there are `count`
    /// completions, that one included, whichever comes first. Completions can be polled all the while.
    ///
    /// An interval of 0, or a count of 0 or 1, is no moderation; `u32::MAX` microseconds, or a count above the depth, leave the
    /// decision to the other one. Intervals above 65,534 us are cut to that, counts above 65,534 completions too. It holds for arms
    /// that are satisfied soon after the call, and for what is held back at that time. What the driver itself has to tell is not moderated:
    /// flushed receives, the end of the CQ.
    ///
    /// Fails with [`Error::UnlimitedModeration`] if nothing decides, and with [`Error::AbiVersion`] if the card is too old.
    pub fn moderate(&self, interval_us: u32, count: u32) -> Result<(), Error> {
        self.adapter.check_for_moderation()?;
        let most = u32::from(Moderation::NO_LIMIT) - 1;
        let moderation = match (interval_us, count) {
            (0, _) | (_, 0 | 1) => Moderation::OFF,
            (u32::MAX, count) if count > self.depth => return Err(Error::UnlimitedModeration),
            _ => Moderation {
                interval_us: if interval_us == u32::MAX { Moderation::NO_LIMIT } else { interval_us.min(most) as u16 },
                count: if count > self.depth { Moderation::NO_LIMIT } else { count.min(most) as u16 },
            },
        };
        self.adapter.bar().write32(Doorbell::CqModeration.offset(self.cqn), moderation.word());
        Ok(())
    }

    /// A receive queue has flushed receives: they are polled from now on, and satisfy an arm, as cancelled requests do.
    ///
    /// A post may say so, so this takes no lock.
    pub(crate) fn receives_flushed(&self) {
        self.flushed.raise();
        self.adapter.wake_cqs.raise();
    }

    /// Has the callback called where callbacks belong.
    fn make_due(&self, reader: &mut Reader) {
        reader.is_due = true;
        self.adapter.wake_cqs.raise();
    }

    /// Calls back if the driver has satisfied the arm in force. Returns whether it did.
    pub(crate) fn wake(cq: &Arc<Self>) -> bool {
        let is_due = {
            let reader = lock(&cq.reader);
            reader.is_due || (reader.is_armed() && (cq.flushed.is_raised() || cq.has_untold(&reader)))
        };
        if is_due {
            Self::call_back(cq, if cq.is_dead() { CqNotice::Overrun } else { CqNotice::Completion });
        }
        is_due
    }

    /// Closes the CQ. It leaves the card when the last handle and the last QP are gone; then `done` is called.
    pub fn close(self: Arc<Self>, done: impl FnOnce() + Send + 'static) -> CloseStatus {
        lock(&self.on_close).push(Box::new(done));
        CloseStatus::Pending
    }

    /// Closes the CQ and waits until it has left the card; see [`Adapter::block_on`] for bound and errors.
    pub fn close_blocking(self: Arc<Self>) -> Result<(), Error> {
        let adapter = Arc::clone(&self.adapter);
        adapter.block_on_close(&format!("CQ {} and its QPs to be closed", self.cqn), |done| self.close(done))
    }

    /// The card raised the event of an arm.
    pub(crate) fn notified(cq: &Arc<Self>) {
        {
            let mut reader = lock(&cq.reader);
            match (reader.armed, reader.at_card.take()) {
                // The event is that of an arm that the driver has satisfied, and the one in force now takes less: the card is asked anew.
                (Some(ArmKind::Errors), _) => return,
                (Some(ArmKind::Solicited), Some(ArmKind::Any)) => {
                    reader.at_card = Some(ArmKind::Solicited);
                    cq.adapter.bar().write32(Doorbell::CqArm.offset(cq.cqn), ArmKind::Solicited.word(reader.consumer));
                    return;
                }
                _ => {}
            }
        }
        Self::call_back(cq, CqNotice::Completion);
    }

    /// Notes that a QP that completes here has ended; the card may not have given it up.
    pub(crate) fn retired(&self, is_off_the_card: bool) {
        if !is_off_the_card {
            self.is_kept.store(true, Ordering::Release);
        }
    }

    /// The card is gone.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// The card found the ring full. All QPs of the CQ die with it, both queues of each.
    pub(crate) fn overran(cq: &Arc<Self>) {
        tracing::error!(cqn = cq.cqn, "completion queue overrun: the CQ and its QPs are dead");
        // Before the look: a QP whose creation is under way looks at this when it is done.
        if !cq.is_dead.swap(true, Ordering::AcqRel) {
            cq.adapter.anomalies().count_dead_cq();
        }
        let mut qpns: Vec<u32> = {
            let reader = lock(&cq.reader);
            let receivers = reader.receivers.iter().map(|receiver| receiver.qpn());
            reader.senders.all().map(|sender| sender.shared.qpn()).chain(receivers).collect()
        };
        qpns.sort_unstable();
        qpns.dedup();
        for qp in qpns.into_iter().filter_map(|qpn| cq.adapter.qp(qpn)) {
            // The receives of a QP that is gone stay here until they are polled, and its number may have another one by then.
            if Arc::ptr_eq(qp.send_cq(), cq) || Arc::ptr_eq(qp.receive_cq(), cq) {
                Qp::failed(&qp, QpFault::CqOverrun { cqn: cq.cqn });
            }
        }
        Self::call_back(cq, CqNotice::Overrun);
    }

    /// Satisfies the arm, if there is one, and only then calls: the callback usually arms again.
    fn call_back(cq: &Arc<Self>, notice: CqNotice) {
        {
            let mut reader = lock(&cq.reader);
            reader.is_due = false;
            if reader.armed.take().is_none() {
                // The driver itself had something to tell, and did, before the card's event was here.
                return;
            }
        }
        if let Some(callback) = &cq.callback {
            callback(cq, notice);
        }
    }

    /// Makes completions of a queue pair known: of its send queue, of its receive queue, or of both.
    pub(crate) fn attach(&self, sender: Option<(&Arc<SqShared>, ProgressRecord)>, receiver: Option<&Arc<RqShared>>) {
        let mut reader = lock(&self.reader);
        if let Some((sender, progress)) = sender {
            reader.senders.insert(sender, progress);
        }
        reader.receivers.extend(receiver.cloned());
    }

    /// Forgets a receive queue whose QP has left the card, as soon as its flushed receives were polled.
    pub(crate) fn detach_receiver(&self, receiver: &Arc<RqShared>) {
        receiver.detach();
        lock(&self.reader).receivers.retain(|receiver| !receiver.is_over());
    }

    /// Forgets a send queue that has left the card. Entries of it that were not polled yet keep
    /// their place and their contexts, so that its number can be used again.
    pub(crate) fn detach(&self, qpn: u32) {
        let mut reader = lock(&self.reader);
        // Before the look at the entries, as in `poll`.
        let is_lost = self.is_lost.load(Ordering::Acquire);
        let mut index = reader.consumer;
        while let Some(cqe) = self.entry(index) {
            if cqe.qpn.get() == qpn && !reader.resolved.contains_key(&index) {
                if let Some(completion) = reader.resolve(&cqe) {
                    reader.resolved.insert(index, completion);
                }
            }
            index = index.wrapping_add(1);
            if self.ring.is_full(index, reader.consumer) {
                break;
            }
        }
        if is_lost {
            while let Some(completion) = reader.senders.get(qpn).and_then(Sender::take_lost) {
                reader.lost.push_back(completion);
            }
        }
        reader.senders.remove(qpn);
    }

    /// Returns a copy of entry `index`, if the card has written it.
    #[inline]
    fn entry(&self, index: u32) -> Option<Cqe> {
        let slot = self.ring.slot(index) as usize;
        let [.., phase] = self.memory.read_last_word(slot).ok()?.to_ne_bytes();
        if (phase & PHASE != 0) != self.ring.phase(index) {
            return None;
        }
        // Pairs with the card's order: payload, entry, phase. What is read from here on is not older than the phase.
        // On x86-64 loads keep their order and the fence binds the compiler alone; other hosts of a real card: see `pci`.
        fence(Ordering::Acquire);
        self.memory.read_words(slot).ok().map(|words| zerocopy::transmute!(words))
    }

    #[cold]
    fn note_stray(&self, cqe: &Cqe) {
        self.adapter.anomalies().count_stray_completion();
        tracing::warn!(cqn = self.cqn, qpn = cqe.qpn.get(), index = cqe.wqe_index.get(), "completion of no known request");
    }
}

impl Reader {
    /// Tells whether a completion is waited for.
    fn is_armed(&self) -> bool {
        matches!(self.armed, Some(ArmKind::Any | ArmKind::Solicited))
    }

    /// Returns what entry `index` was found to be when its QP was destroyed, if it was.
    #[inline]
    fn take_resolved(&mut self, index: u32) -> Option<Completion> {
        if self.resolved.is_empty() {
            return None;
        }
        self.resolved.remove(&index)
    }

    /// Moves completions into `out` that a card that is gone does not write any more, and returns how many.
    #[cold]
    fn take_lost(&mut self, out: &mut [Completion]) -> usize {
        let Self { lost, senders, .. } = self;
        let of_senders = senders.all().flat_map(|sender| std::iter::from_fn(|| sender.take_lost()));
        let completions = std::iter::from_fn(|| lost.pop_front()).chain(of_senders);
        out.iter_mut().zip(completions).map(|(place, completion)| *place = completion).count()
    }

    /// Finds the request of an entry and ends it, or returns nothing if there is no such request outstanding.
    fn resolve(&self, cqe: &Cqe) -> Option<Completion> {
        let sender = &self.senders.get(cqe.qpn.get())?.shared;
        let context = sender.complete(cqe.wqe_index.get())?;
        let status = CqeStatus::try_from(cqe.status).map_or_else(|code| CompletionStatus::Unknown(code.0), CompletionStatus::Card);
        let qp_context = sender.qp_context();
        Some(Completion { qpn: sender.qpn(), qp_context, context, status, op: Operation::Send(WqeOp::Write), syndrome: cqe.syndrome })
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let (cqn, memory) = (self.cqn, self.memory.clone());
        let on_close = std::mem::take(&mut *lock(&self.on_close));
        // A card that is gone keeps nothing.
        if self.is_kept.load(Ordering::Acquire) && !self.is_lost.load(Ordering::Acquire) {
            self.adapter.keep(cqn, memory, None);
            // The adapter stays until they are called.
            let adapter = Arc::clone(&self.adapter);
            return self.adapter.defer(move || {
                on_close.into_iter().for_each(|done| done());
                drop(adapter);
            });
        }
        self.adapter.submit_teardown(Command::naming(CommandOp::DestroyCq, cqn), move |adapter, outcome| {
            adapter.retire(|numbers| &mut numbers.cqs, cqn, memory, outcome.err().as_ref());
            for done in on_close {
                done();
            }
        });
    }
}

/// Returns the arm that is in force after arming twice.
fn wider(first: ArmKind, second: ArmKind) -> ArmKind {
    match (first, second) {
        (ArmKind::Any, _) | (_, ArmKind::Any) => ArmKind::Any,
        (ArmKind::Solicited, _) | (_, ArmKind::Solicited) => ArmKind::Solicited,
        (ArmKind::Errors, ArmKind::Errors) => ArmKind::Errors,
    }
}
