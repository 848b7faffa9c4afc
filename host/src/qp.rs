//! Queue pairs: creation, state, faults, and their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use verbena_abi::arith::{Psn, Ring};
use verbena_abi::queue::{qp_flags, CmdQp, CommandOp, CqeStatus, QpState};

#[cfg(doc)]
use crate::adapter::Adapter;
use crate::adapter::AdapterInfo;
use crate::command::{CloseCallback, CloseStatus, Command, CommandResult, Submitted};
use crate::cq::Cq;
use crate::error::Error;
use crate::lock;
use crate::pd::Pd;
use crate::rq::{ReceiveQueue, RqShared};
use crate::sq::{self, Poster, ProgressRecord, SendQueue, SqShared, SqUnits};

/// What a QP is made for. Fixed for its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Comes back in each completion of the QP.
    pub context: u64,
    /// Requests that can be outstanding at once; all of them are usable. 0 is legal: then nothing can be posted.
    pub send_depth: u32,
    /// Receives that can be outstanding at once.
    pub receive_depth: u32,
    /// SGEs of a request.
    pub send_sges: u32,
    /// SGEs of a receive.
    pub receive_sges: u32,
    /// Bytes of inline data of a request, see [`SendQueue::write_inline`]. More than 32 of them, as more than two
    /// SGEs, make each request of the send queue twice as long.
    pub inline_bytes: u32,
    /// First PSN to send, 24 bits; none: one by chance, or as [`crate::AdapterConfig::psn_seed`] says.
    pub first_psn: Option<u32>,
}

impl QpOptions {
    /// Returns a QP that sends, with context 0, two SGEs a request and no PSN of its own.
    pub const fn sender(send_depth: u32) -> Self {
        Self { context: 0, send_depth, receive_depth: 0, send_sges: 2, receive_sges: 0, inline_bytes: 0, first_psn: None }
    }

    /// Checks everything against the card's limits.
    fn check(&self, info: &AdapterInfo) -> Result<(), Error> {
        let limits = [
            ("receive queue depth", self.receive_depth, info.max_receive_depth),
            ("send queue depth", self.send_depth, info.max_send_depth),
            ("number of SGEs of a receive", self.receive_sges, info.max_receive_sges),
            ("number of SGEs of a send", self.send_sges, info.max_send_sges),
            ("inline data size", self.inline_bytes, info.max_inline_bytes),
            ("first PSN", self.first_psn.unwrap_or(0), Psn::MASK),
        ];
        for (what, value, limit) in limits {
            if value > limit {
                return Err(Error::AboveLimit { what, value: value.into(), limit: limit.into() });
            }
        }
        Ok(())
    }
}

/// Why a QP is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpFault {
    /// A request of the peer was refused.
    Access {
        /// Syndrome of the NAK that the peer got.
        syndrome: u8,
    },
    /// A request of this end failed; its completion tells which.
    Requester {
        /// The card's code.
        code: u8,
        /// Its meaning, if it has one.
        status: Option<CqeStatus>,
    },
    /// The card is gone.
    DeviceRemoved,
    /// A CQ of the QP was overrun.
    CqOverrun {
        /// Which.
        cqn: u32,
    },
}

/// Called when there is a fault of a QP, which is in error then, or was before. Calls never overlap.
pub type FaultCallback = Box<dyn Fn(&Arc<Qp>, QpFault) + Send + Sync>;

/// What the card knows of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpReport {
    /// State; errors that the card found by itself included.
    pub state: QpState,
    /// PSN of the next new request packet.
    pub next_psn: Psn,
    /// Oldest unacknowledged PSN.
    pub unacked_psn: Psn,
    /// Next PSN expected from the peer.
    pub expected_psn: Psn,
    /// Message sequence number.
    pub msn: u32,
    /// Producer index of the send queue, as rung.
    pub sq_producer: u16,
    /// Index of the next request to fetch.
    pub sq_fetched: u16,
    /// Index of the oldest request that is not done.
    pub sq_consumer: u16,
}

/// A queue pair.
pub struct Qp {
    parts: Parts,
    context: Mutex<Context>,
    is_receive_queue_out: AtomicBool,
    has_connector: AtomicBool,
    was_connected: AtomicBool,
    fault: Mutex<Option<QpFault>>,
    on_fault: Mutex<Option<Arc<FaultCallback>>>,
    on_close: Mutex<Vec<CloseCallback>>,
}

/// What a QP is made of: exists before the card has the QP, and until the card has given it up.
#[derive(Clone)]
struct Parts {
    options: QpOptions,
    shared: Arc<SqShared>,
    receives: Arc<RqShared>,
    units: SqUnits,
    slot_bytes: usize,
    send_cq: Arc<Cq>,
    receive_cq: Arc<Cq>,
    pd: Arc<Pd>,
}

impl Parts {
    /// Stops posting, and has everything flushed that was posted.
    fn enter_error(&self) {
        self.shared.enter_error(self.pd.adapter().bar());
        if self.receives.stop() {
            self.receive_cq.receives_flushed();
        }
    }

    /// Forgets the QP. `error` is the card's answer to its creation or destruction.
    fn retire(&self, error: Option<&Error>) {
        let qpn = self.shared.qpn();
        // Before the number is free: completions that were not polled yet must not meet the next QP of that number.
        self.send_cq.detach(qpn);
        self.receive_cq.detach_receiver(&self.receives);
        let is_gone = self.pd.adapter().retire(|numbers| &mut numbers.qps, qpn, self.units.buffer().clone(), error);
        self.pd.retired(is_gone);
        self.send_cq.retired(is_gone);
        self.receive_cq.retired(is_gone);
    }
}

/// The context as last sent to the card.
struct Context {
    latest: CmdQp,
    is_changing: bool,
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Qp({}, {:?})", self.qpn(), self.state())
    }
}

impl Qp {
    /// Creates a QP in RESET. Both CQs may be the same one.
    ///
    /// Fails inline with [`Error::AboveLimit`] for any of the options, [`Error::OtherAdapter`], [`Error::DeadCq`],
    /// [`Error::OutOfNumbers`], [`Error::OutOfMemory`], or the errors of a command; `done` gets the
    /// card's refusal. When `done` is called the QP can be used for everything.
    pub fn create(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        options: QpOptions,
        done: impl FnOnce(Result<Arc<Self>, Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        let adapter = pd.adapter();
        options.check(adapter.info())?;
        if !Arc::ptr_eq(adapter, send_cq.adapter()) || !Arc::ptr_eq(adapter, receive_cq.adapter()) {
            return Err(Error::OtherAdapter { what: "CQ" });
        }
        if let Some(dead) = [send_cq, receive_cq].into_iter().find(|cq| cq.is_dead()) {
            return Err(Error::DeadCq { cqn: dead.cqn() });
        }
        let ring = Ring::with_slots(options.send_depth);
        let slot_bytes = sq::slot_bytes(options.send_sges, options.inline_bytes);
        let memory = Arc::clone(adapter.device()).alloc(sq::memory_bytes(ring, slot_bytes), 4096)?;
        let units = SqUnits::new(memory)?;
        let iova = units.buffer().iova();
        let qpn = adapter.take_number(|numbers| &mut numbers.qps)?;
        let shared = Arc::new(SqShared::new(qpn, options.context, options.send_depth));
        let receives = Arc::new(RqShared::new(qpn, options.context, options.receive_depth));
        let progress = iova.wrapping_add(sq::progress_offset(ring, slot_bytes) as u64);
        let latest = CmdQp {
            qpn: qpn.into(),
            state: QpState::Reset as u8,
            flags: if slot_bytes == sq::slot_bytes(0, 0) { 0 } else { qp_flags::TWO_UNITS },
            pd: pd.label().into(),
            // CQ numbers fit because the capability was checked for that.
            send_cqn: (send_cq.cqn() as u16).into(),
            receive_cqn: (receive_cq.cqn() as u16).into(),
            sq_psn: options.first_psn.unwrap_or_else(|| adapter.first_psns.take().raw()).into(),
            sq_address: iova.into(),
            progress_address: progress.into(),
            sq_log_depth: ring.log_depth(),
            ..Default::default()
        };
        let parts = Parts {
            options,
            shared,
            receives,
            units,
            slot_bytes,
            send_cq: Arc::clone(send_cq),
            receive_cq: Arc::clone(receive_cq),
            pd: Arc::clone(pd),
        };
        send_cq.attach(Some((&parts.shared, ProgressRecord::new(&parts.units, ring, slot_bytes))), None);
        receive_cq.attach(None, Some(&parts.receives));
        let unsubmitted = parts.clone();
        let submitted = adapter.submit(Command::create_qp(&latest), move |adapter, outcome| {
            if let Err(error) = outcome {
                parts.retire(Some(&error));
                return done(Err(error));
            }
            let qp = Arc::new(Self {
                parts,
                context: Mutex::new(Context { latest, is_changing: false }),
                is_receive_queue_out: AtomicBool::new(false),
                has_connector: AtomicBool::new(false),
                was_connected: AtomicBool::new(false),
                fault: Mutex::default(),
                on_fault: Mutex::default(),
                on_close: Mutex::default(),
            });
            adapter.enter_qp(qpn, Arc::downgrade(&qp));
            // An overrun before this place does not find the QP.
            if let Some(dead) = [qp.send_cq(), qp.receive_cq()].into_iter().find(|cq| cq.is_dead()) {
                Self::failed(&qp, QpFault::CqOverrun { cqn: dead.cqn() });
            }
            done(Ok(qp));
        });
        submitted.inspect_err(|_| unsubmitted.retire(None))
    }

    /// Does what [`Qp::create`] does and waits for the result; see [`Adapter::block_on`] for bound and errors.
    pub fn create_blocking(pd: &Arc<Pd>, send_cq: &Arc<Cq>, receive_cq: &Arc<Cq>, options: QpOptions) -> Result<Arc<Self>, Error> {
        pd.adapter().block_on("a QP to be created", |done| Self::create(pd, send_cq, receive_cq, options, done))
    }

    /// Returns the queue pair number.
    pub fn qpn(&self) -> u32 {
        self.parts.shared.qpn()
    }

    /// Returns the first PSN that the QP sends.
    pub fn first_psn(&self) -> u32 {
        lock(&self.context).latest.sq_psn.get()
    }

    /// Returns what the QP was made for.
    pub fn options(&self) -> &QpOptions {
        &self.parts.options
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.parts.pd
    }

    /// Returns the CQ of the send queue.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.parts.send_cq
    }

    /// Returns the CQ of the receive queue.
    pub fn receive_cq(&self) -> &Arc<Cq> {
        &self.parts.receive_cq
    }

    /// Returns the state as the driver knows it: an error that the card found shows when its event was processed.
    pub fn state(&self) -> QpState {
        self.parts.shared.state()
    }

    /// Returns the fault by which the QP is in error, if there was one.
    pub fn fault(&self) -> Option<QpFault> {
        *lock(&self.fault)
    }

    /// Sets what is called when a fault puts the QP in error, in place of what was set before.
    /// It is not called for a fault that was there already, see [`Qp::fault`]. A connector takes the place of whatever was set.
    pub fn set_fault_callback(&self, callback: FaultCallback) {
        *lock(&self.on_fault) = Some(Arc::new(callback));
    }

    /// Takes the send queue: there is one, so this gives nothing while somebody has it.
    pub fn take_send_queue(self: &Arc<Self>) -> Option<SendQueue> {
        let parts = &self.parts;
        let poster = Poster::take(&parts.shared)?;
        Some(SendQueue::new(Arc::clone(self), poster, parts.units.clone(), parts.slot_bytes))
    }

    /// Takes the receive queue: there is one, so this gives nothing while somebody has it.
    pub fn take_receive_queue(self: &Arc<Self>) -> Option<ReceiveQueue> {
        if self.is_receive_queue_out.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(ReceiveQueue::new(Arc::clone(self), Arc::clone(&self.parts.receives)))
    }

    /// Takes the QP for a connector. Returns whether no other one has it.
    pub(crate) fn reserve_for_connection(&self) -> bool {
        !self.has_connector.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn release_from_connection(&self) {
        self.has_connector.store(false, Ordering::Release);
    }

    pub(crate) fn give_back_receive_queue(&self) {
        self.is_receive_queue_out.store(false, Ordering::Release);
    }

    /// Returns the context as last sent to the card: what [`Qp::modify`] starts from.
    pub fn context(&self) -> CmdQp {
        lock(&self.context).latest
    }

    /// Changes state and attributes to those of `context`. Numbers, queue and domain stay as they are, whatever it says.
    ///
    /// [`Qp::connect`] does all that a connection needs; this is for tests and for other ways to connect.
    /// Legal are one step from RESET to INIT, RTR, RTS, and from each of them to ERROR, or back to RESET
    /// as long as nothing was posted.
    ///
    /// Fails inline with [`Error::BadValue`], [`Error::WrongState`], [`Error::ChangeUnderWay`] or the errors of a command;
    /// `done` gets the card's refusal, or [`Error::Cancelled`] if the QP went to ERROR meanwhile.
    pub fn modify(self: &Arc<Self>, context: CmdQp, done: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<Submitted, Error> {
        let qpn = self.qpn();
        let next = QpState::try_from(context.state).map_err(|code| Error::BadValue {
            what: "QP state",
            value: code.0.into(),
            allowed: "RESET, INIT, RTR, RTS, ERROR",
        })?;
        let mut guard = lock(&self.context);
        // Under the lock: a flush that this does not see waits for it, and then sees the change that is under way.
        let state = self.state();
        let needed = match next {
            QpState::Reset => (state != QpState::Error && !self.parts.shared.was_used(), "not ERROR, nothing ever posted"),
            QpState::Init => (state == QpState::Reset, "RESET"),
            QpState::Rtr => (state == QpState::Init, "INIT"),
            QpState::Rts => (state == QpState::Rtr, "RTR"),
            QpState::Error => (true, "any"),
        };
        if let (false, needed) = needed {
            return Err(Error::WrongState { qpn, state, needed });
        }
        if guard.is_changing {
            return Err(Error::ChangeUnderWay { qpn });
        }
        let before = guard.latest;
        let context = with_fixed_parts_of(context, &before);
        let qp = Arc::clone(self);
        let submitted = self.pd().adapter().submit(Command::modify_qp(&context), move |_, outcome| {
            {
                let mut guard = lock(&qp.context);
                guard.is_changing = false;
                if outcome.is_err() {
                    guard.latest = before;
                }
            }
            let outcome = match outcome {
                // A flush between the look at the state and this command came to the card first.
                Err(Error::CommandRefused { .. }) if next != QpState::Error && qp.state() == QpState::Error => {
                    Err(Error::Cancelled { qpn })
                }
                Err(error) => Err(error),
                Ok(_) if qp.parts.shared.advance(next) => {
                    qp.was_connected.fetch_or(next == QpState::Rts, Ordering::AcqRel);
                    Ok(())
                }
                Ok(_) if next == QpState::Error => Ok(()),
                Ok(_) => Err(Error::Cancelled { qpn }),
            };
            done(outcome);
        });
        if submitted.is_ok() {
            guard.latest = context;
            guard.is_changing = true;
        }
        submitted
    }

    /// Puts the QP in ERROR: nothing can be posted any more, and each request that is outstanding
    /// completes as flushed, silent and deferred ones included.
    ///
    /// Returns at once; may run while another thread posts. A post that succeeds is always seen by the flush.
    pub fn flush(self: &Arc<Self>) {
        let qp = Arc::clone(self);
        self.parts.enter_error();
        if self.is_new_to_the_card() {
            // Nothing was ever posted to it, so there is nothing for the card to end, and it takes no such step.
            return;
        }
        self.pd().adapter().submit_teardown(Command::modify_qp(&self.error_context()), move |_, outcome| {
            match outcome {
                // Said once, for the card.
                Ok(_) | Err(Error::DeviceRemoved { .. }) => {}
                Err(error) => tracing::warn!(qpn = qp.qpn(), %error, "flush"),
            }
        });
    }

    /// Flushes the QP, and calls `done` when the card does nothing for it any more: no memory of any request, whether silent or not,
    /// is read, and every completion is written. On a card that is gone `done` is called at once.
    pub fn drain(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) {
        self.flush();
        self.wait_for_drain(Box::new(done));
    }

    fn wait_for_drain(self: &Arc<Self>, done: CloseCallback) {
        let qp = Arc::clone(self);
        self.pd().adapter().submit_teardown(Command::naming(CommandOp::QueryQp, self.qpn()), move |adapter, outcome| {
            match outcome.and_then(|result| report(qp.qpn(), result)) {
                // The card ends a request only when everything of it has left the transmitter (a flushed one included).
                Ok(report) if report.sq_consumer != qp.parts.shared.producer() as u16 => {
                    let qp = Arc::clone(&qp);
                    adapter.defer(move || qp.wait_for_drain(done));
                }
                Ok(_) => done(),
                Err(error) => {
                    tracing::debug!(qpn = qp.qpn(), %error, "drain");
                    done();
                }
            }
        });
    }

    /// Asks the card what it knows of the QP. Fails inline with the errors of a command; `done` gets
    /// the card's refusal or [`Error::BadAnswer`].
    pub fn query(self: &Arc<Self>, done: impl FnOnce(Result<QpReport, Error>) + Send + 'static) -> Result<Submitted, Error> {
        let qp = Arc::clone(self);
        self.pd().adapter().submit(Command::naming(CommandOp::QueryQp, self.qpn()), move |_, outcome| {
            done(outcome.and_then(|result| report(qp.qpn(), result)));
        })
    }

    /// Does what [`Qp::query`] does and waits for the result; see [`Adapter::block_on`] for bound and errors.
    pub fn query_blocking(self: &Arc<Self>) -> Result<QpReport, Error> {
        self.pd().adapter().block_on(&format!("QP {} to be queried", self.qpn()), |done| self.query(done))
    }

    /// Closes the QP. It leaves the card when the last handle is gone (the send queue has one), and then `done` is called.
    ///
    /// Nothing can be posted from now on. Completions that were not polled by then stay in the CQ.
    pub fn close(self: Arc<Self>, done: impl FnOnce() + Send + 'static) -> CloseStatus {
        lock(&self.on_close).push(Box::new(done));
        if Arc::strong_count(&self) > 1 {
            self.flush();
        }
        CloseStatus::Pending
    }

    /// Closes the QP and waits until it has left the card; see [`Adapter::block_on`] for bound and errors.
    pub fn close_blocking(self: Arc<Self>) -> Result<(), Error> {
        let adapter = Arc::clone(self.pd().adapter());
        adapter.block_on_close(&format!("QP {} to be closed, all handles to it included", self.qpn()), |done| self.close(done))
    }

    /// Tells whether the QP was ever connected.
    pub(crate) fn was_connected(&self) -> bool {
        self.was_connected.load(Ordering::Acquire)
    }

    /// Stops posting, and has everything flushed that was posted, as far as the driver does it.
    pub(crate) fn enter_error(&self) {
        self.parts.enter_error();
    }

    /// Tells whether the card has the QP in RESET, and no step from there is under way.
    fn is_new_to_the_card(&self) -> bool {
        let context = lock(&self.context);
        context.latest.state == QpState::Reset as u8 && !context.is_changing
    }

    /// The QP is in error by a fault.
    pub(crate) fn failed(qp: &Arc<Self>, fault: QpFault) {
        tracing::info!(qpn = qp.qpn(), ?fault, "QP in error");
        qp.parts.enter_error();
        lock(&qp.fault).get_or_insert(fault);
        // Half of the QP died by itself, the other has to be told: a requester, or what is posted would never complete;
        // a responder, or the peer could still write.
        qp.flush();
        let callback = lock(&qp.on_fault).clone();
        if let Some(callback) = callback {
            callback(qp, fault);
        }
    }

    fn error_context(&self) -> CmdQp {
        CmdQp { state: QpState::Error as u8, ..lock(&self.context).latest }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let adapter = Arc::clone(self.parts.pd.adapter());
        let shared = &self.parts.shared;
        let is_alive = matches!(shared.state(), QpState::Rtr | QpState::Rts);
        self.parts.enter_error();
        if is_alive && shared.is_busy() {
            // The card flushes what is outstanding before it gives the QP up, so that nothing is without a completion.
            adapter.submit_teardown(Command::modify_qp(&self.error_context()), |_, _| ());
        }
        let parts = self.parts.clone();
        let on_close = std::mem::take(&mut *lock(&self.on_close));
        adapter.submit_teardown(Command::naming(CommandOp::DestroyQp, self.qpn()), move |_, outcome| {
            parts.retire(outcome.err().as_ref());
            for done in on_close {
                done();
            }
            // After the callbacks have returned: closes of PD and CQs may not be over before them.
            drop(parts);
        });
    }
}

/// Returns `context` with everything that a QP keeps for life.
fn with_fixed_parts_of(context: CmdQp, old: &CmdQp) -> CmdQp {
    CmdQp {
        qpn: old.qpn,
        flags: (context.flags & !qp_flags::TWO_UNITS) | (old.flags & qp_flags::TWO_UNITS),
        pd: old.pd,
        send_cqn: old.send_cqn,
        receive_cqn: old.receive_cqn,
        sq_psn: old.sq_psn,
        sq_address: old.sq_address,
        progress_address: old.progress_address,
        sq_log_depth: old.sq_log_depth,
        ..context
    }
}

fn report(qpn: u32, result: CommandResult) -> Result<QpReport, Error> {
    let [state, next_psn, unacked_psn, expected_psn, msn, sq_producer, sq_fetched, sq_consumer] = result;
    let bad = Error::BadAnswer { op: CommandOp::QueryQp, number: qpn, value: state };
    let state = u8::try_from(state).ok().and_then(|code| QpState::try_from(code).ok()).ok_or(bad)?;
    Ok(QpReport {
        state,
        next_psn: Psn::new(next_psn),
        unacked_psn: Psn::new(unacked_psn),
        expected_psn: Psn::new(expected_psn),
        msn,
        sq_producer: sq_producer as u16,
        sq_fetched: sq_fetched as u16,
        sq_consumer: sq_consumer as u16,
    })
}
