//! A card that executes commands and requests in memory, as the ABI says and without any time.
//!
//! Payload is not moved. A test can hold commands back, refuse them, hold requests back, make them
//! fail, take the card away, and write nonsense into the queues.

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbena_abi::arith::Ring;
use verbena_abi::queue::{
    qp_flags, wqe_flags, CmdCq, CmdMr, CmdQp, CommandCode, CommandOp, Cqe, CqeStatus, Eqe, EventKind, QpState, SqProgress, SqWqe, SqWqeMore,
};
use verbena_abi::regs::{
    CmdArgs, CmdGo, CmdResult, CmdStatus, Doorbell, EqBaseHi, EqBaseLo, EqConfig, Status, BAR0, DOORBELL_BASE, DOORBELL_PAGE,
};
use verbena_host::{Bar, Device, DmaBuffer, Error};
use zerocopy::{FromBytes, IntoBytes};

/// What a test can look at and change.
#[derive(Default)]
pub struct State {
    /// Values of registers that were written, by offset.
    pub registers: BTreeMap<u32, u32>,
    /// Commands in the order in which they were executed, with their first argument word.
    pub commands: Vec<(CommandOp, u32)>,
    /// Contexts that the card was given, in order.
    pub contexts: Vec<CmdQp>,
    /// Commands stay in the window until a wait or [`FakeCard::step`].
    pub hold_commands: bool,
    /// Waits execute held commands.
    pub wait_steps: bool,
    /// Answers for the next commands, in place of executing them.
    pub refuse: VecDeque<u8>,
    /// Commands make no events.
    pub is_mute: bool,
    /// Requests stay in the queue until [`FakeCard::complete`] or [`FakeCard::fail`].
    pub hold_requests: bool,
    /// Every read gives all ones.
    pub is_gone: bool,
    /// Requests that were executed.
    pub requests: Vec<(u32, SqWqe, SqWqeMore)>,
    /// Doorbells of send queues, in order.
    pub doorbells: Vec<(u32, u32)>,
    /// Words of moderation, with their CQ.
    pub moderations: Vec<(u32, u32)>,
    /// Called when a CQ's consumer index arrives.
    pub on_consumer: Option<Box<dyn FnMut() + Send>>,
    /// Regions by index.
    pub mrs: BTreeMap<u32, CmdMr>,
    pub qps: BTreeMap<u32, FakeQp>,
    pub cqs: BTreeMap<u32, FakeCq>,
    pub memory: Vec<DmaBuffer>,
    /// Bus addresses of mappings that were taken back.
    pub unmapped: Vec<u64>,
    interrupts: u32,
    pending: Option<(u8, u16)>,
    status: u32,
    eq_producer: u32,
    next_iova: u64,
}

pub struct FakeQp {
    pub context: CmdQp,
    pub producer: u16,
    pub consumer: u16,
}

pub struct FakeCq {
    pub args: CmdCq,
    pub producer: u32,
    pub consumer: u32,
    pub armed: Option<u32>,
    pub is_dead: bool,
}

pub struct FakeCard {
    state: Mutex<State>,
}

impl FakeCard {
    pub fn new() -> Arc<Self> {
        let state = State { next_iova: 0x4000_0000, wait_steps: true, ..State::default() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // Also after a failed assertion: what is dropped then talks to the card, and must not hide the assertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes the command in the window, if there is one. Returns whether there was.
    pub fn step(&self) -> bool {
        self.state().execute_pending()
    }

    /// Finishes the `count` oldest requests of a QP.
    pub fn complete(&self, qpn: u32, count: u16) {
        self.state().complete(qpn, count);
    }

    /// Makes the oldest request of a QP fail, and flushes the others.
    pub fn fail(&self, qpn: u32, status: CqeStatus, syndrome: u8) {
        let mut state = self.state();
        state.finish_one(qpn, status as u8, syndrome);
        state.set_error(qpn);
        state.event(EventKind::QpFatal as u8, qpn, status as u8);
    }

    /// Writes an event.
    pub fn event(&self, kind: u8, number: u32, code: u8) {
        self.state().event(kind, number, code);
    }

    /// Writes a completion entry, whatever it says.
    pub fn completion(&self, cqn: u32, cqe: Cqe) {
        self.state().cqe(cqn, cqe);
    }

    /// Tells whether nobody but the card knows any of the memory that the driver got, but for the first `kept` buffers.
    pub fn is_memory_free(&self, kept: usize) -> bool {
        self.state().memory.iter().skip(kept).all(|buffer| buffer.holders() == 1)
    }
}

impl State {
    fn register(&self, offset: u32) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn at(&self, iova: u64) -> (DmaBuffer, usize) {
        let found = self.memory.iter().find(|buffer| (buffer.iova()..buffer.iova() + buffer.len() as u64).contains(&iova));
        let buffer = found.unwrap_or_else(|| panic!("the card was given {iova:#x}, which is no memory")).clone();
        let offset = (iova - buffer.iova()) as usize;
        (buffer, offset)
    }

    fn execute_pending(&mut self) -> bool {
        let Some((op, tag)) = self.pending.take() else { return false };
        let args: Vec<u8> = (0..32).flat_map(|word| self.register(CmdArgs::OFFSET + 4 * word).to_le_bytes()).collect();
        let code = match self.refuse.pop_front() {
            Some(code) => code,
            None => self.execute(CommandOp::try_from(op).unwrap(), &args) as u8,
        };
        self.status = CmdStatus::reset().with(CmdStatus::CODE, code.into()).with(CmdStatus::TAG, tag.into()).raw();
        if !self.is_mute {
            self.event(EventKind::Command as u8, tag.into(), code);
        }
        true
    }

    fn execute(&mut self, op: CommandOp, args: &[u8]) -> CommandCode {
        let qp = CmdQp::read_from_bytes(args).unwrap();
        let cq = CmdCq::read_from_bytes(args).unwrap();
        let mr = CmdMr::read_from_bytes(args).unwrap();
        let (qpn, cqn, key) = (qp.qpn.get(), cq.cqn.get(), mr.key.get());
        self.commands.push((op, qpn));
        match op {
            CommandOp::CreateQp | CommandOp::ModifyQp => self.contexts.push(qp),
            _ => {}
        }
        match op {
            CommandOp::CreateQp if qpn == 0 => CommandCode::BadIndex,
            CommandOp::CreateQp if self.qps.contains_key(&qpn) => CommandCode::InUse,
            CommandOp::CreateQp => {
                self.qps.insert(qpn, FakeQp { context: qp, producer: 0, consumer: 0 });
                CommandCode::Ok
            }
            CommandOp::ModifyQp => {
                let Some(known) = self.qps.get_mut(&qpn) else { return CommandCode::NotInUse };
                known.context = qp;
                if qp.state == QpState::Error as u8 {
                    self.flush(qpn);
                }
                CommandCode::Ok
            }
            CommandOp::QueryQp => {
                let Some(known) = self.qps.get(&qpn) else { return CommandCode::NotInUse };
                let result = [known.context.state.into(), 1, 2, 3, 4, known.producer.into(), 6, known.consumer.into()];
                for (index, word) in (0..).zip(result) {
                    self.registers.insert(CmdResult::OFFSET + 4 * index, word);
                }
                CommandCode::Ok
            }
            CommandOp::DestroyQp => self.qps.remove(&qpn).map_or(CommandCode::NotInUse, |_| CommandCode::Ok),
            CommandOp::CreateCq if self.cqs.contains_key(&cqn) => CommandCode::InUse,
            CommandOp::CreateCq => {
                self.cqs.insert(cqn, FakeCq { args: cq, producer: 0, consumer: 0, armed: None, is_dead: false });
                CommandCode::Ok
            }
            CommandOp::DestroyCq => {
                assert!(
                    self.qps.values().all(|qp| u32::from(qp.context.send_cqn.get()) != cqn),
                    "CQ {cqn} is destroyed in front of its QPs"
                );
                self.cqs.remove(&cqn).map_or(CommandCode::NotInUse, |_| CommandCode::Ok)
            }
            CommandOp::CreateMr if self.mrs.contains_key(&(key >> 8)) => CommandCode::InUse,
            CommandOp::CreateMr => {
                self.mrs.insert(key >> 8, mr);
                CommandCode::Ok
            }
            CommandOp::DestroyMr => self.mrs.remove(&(key >> 8)).map_or(CommandCode::NotInUse, |_| CommandCode::Ok),
            CommandOp::QueryCq | CommandOp::QueryMr => CommandCode::BadOpcode,
        }
    }

    fn event(&mut self, kind: u8, number: u32, code: u8) {
        let config = self.register(EqConfig::OFFSET);
        if EqConfig::ENABLE.get(config) == 0 {
            return;
        }
        let base = u64::from(self.register(EqBaseHi::OFFSET)) << 32 | u64::from(self.register(EqBaseLo::OFFSET));
        let ring = Ring::new(EqConfig::LOG_DEPTH.get(config) as u8);
        let index = self.eq_producer;
        self.eq_producer = index.wrapping_add(1);
        let eqe = Eqe { number: number.into(), kind, code, reserved: [0; 25], phase: ring.phase(index).into() };
        let (buffer, offset) = self.at(base + 32 * u64::from(ring.slot(index)));
        buffer.write(offset, &eqe).unwrap();
        self.interrupts |= 1 << EqConfig::VECTOR.get(config);
    }

    fn cqe(&mut self, cqn: u32, mut cqe: Cqe) {
        let Some(cq) = self.cqs.get_mut(&cqn) else { return };
        if cq.is_dead {
            return;
        }
        let ring = Ring::new(cq.args.log_depth);
        let index = cq.producer;
        if index.wrapping_sub(cq.consumer) & 0xFF_FFFF >= ring.depth() {
            cq.is_dead = true;
            return self.event(EventKind::CqOverrun as u8, cqn, 0);
        }
        cq.producer = index.wrapping_add(1);
        cqe.phase = ring.phase(index).into();
        let place = cq.args.address.get() + 32 * u64::from(ring.slot(index));
        let fires = match cq.armed {
            Some(1) => true,
            Some(2) => cqe.status != 0,
            _ => false,
        };
        if fires {
            cq.armed = None;
        }
        let (buffer, offset) = self.at(place);
        buffer.write(offset, &cqe).unwrap();
        if fires {
            self.event(EventKind::Completion as u8, cqn, 0);
        }
    }

    fn arm(&mut self, cqn: u32, word: u32) {
        let Some(cq) = self.cqs.get_mut(&cqn) else { return };
        let kind = word >> 24 & 3;
        if kind == 1 && (cq.producer ^ word) & 0xFF_FFFF != 0 {
            cq.armed = None;
            self.event(EventKind::Completion as u8, cqn, 0);
        } else {
            cq.armed = Some(kind);
        }
    }

    fn finish_one(&mut self, qpn: u32, status: u8, syndrome: u8) {
        let Some(qp) = self.qps.get_mut(&qpn) else { return };
        if qp.consumer == qp.producer {
            return;
        }
        let (context, index) = (qp.context, qp.consumer);
        qp.consumer = index.wrapping_add(1);
        let has_two_units = context.flags & qp_flags::TWO_UNITS != 0;
        let slot_bytes = if has_two_units { 128 } else { 64 };
        let ring = Ring::new(context.sq_log_depth);
        let (buffer, offset) = self.at(context.sq_address.get() + slot_bytes * u64::from(ring.slot(index.into())));
        let wqe: SqWqe = buffer.read(offset).unwrap();
        let more = if has_two_units { buffer.read(offset + 64).unwrap() } else { SqWqeMore::default() };
        self.requests.push((qpn, wqe, more));
        let (next, is_signaled) = (index.wrapping_add(1), wqe.flags & wqe_flags::SIGNALED != 0);
        // A request that failed holds the record: its context is still needed.
        if status == 0 && (!is_signaled || (index ^ next) >> 14 & 1 == 1) {
            let (buffer, offset) = self.at(context.progress_address.get());
            buffer.write(offset, &SqProgress { consumer: u32::from(next).into() }).unwrap();
        }
        if status != 0 || is_signaled {
            let cqe = Cqe { qpn: qpn.into(), wqe_index: index.into(), status, opcode: wqe.opcode, syndrome, ..Cqe::default() };
            self.cqe(context.send_cqn.get().into(), cqe);
        }
    }

    fn complete(&mut self, qpn: u32, count: u16) {
        for _ in 0..count {
            if self.qps.get(&qpn).is_none_or(|qp| qp.consumer == qp.producer) {
                return;
            }
            self.finish_one(qpn, 0, 0);
        }
    }

    fn flush(&mut self, qpn: u32) {
        while self.qps.get(&qpn).is_some_and(|qp| qp.consumer != qp.producer) {
            self.finish_one(qpn, CqeStatus::Flushed as u8, 0);
        }
    }

    fn set_error(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.context.state = QpState::Error as u8;
        }
        self.flush(qpn);
    }

    fn doorbell(&mut self, offset: u32, value: u32) {
        let number = (offset - DOORBELL_BASE) / DOORBELL_PAGE;
        if offset == Doorbell::Sq.offset(number) {
            self.doorbells.push((number, value));
            let Some(qp) = self.qps.get_mut(&number) else { return };
            qp.producer = value as u16;
            if qp.context.state == QpState::Error as u8 {
                self.flush(number);
            } else if !self.hold_requests {
                self.complete(number, u16::MAX);
            }
        } else if offset == Doorbell::CqConsumer.offset(number) {
            if let Some(cq) = self.cqs.get_mut(&number) {
                cq.consumer = value;
            }
            if let Some(hook) = &mut self.on_consumer {
                hook();
            }
        } else if offset == Doorbell::CqArm.offset(number) {
            self.arm(number, value);
        } else if offset == Doorbell::CqModeration.offset(number) {
            self.moderations.push((number, value));
        }
    }
}

impl Bar for FakeCard {
    fn read32(&self, offset: u32) -> u32 {
        let state = self.state();
        if state.is_gone {
            return u32::MAX;
        }
        match offset {
            Status::OFFSET => Status::reset().with(Status::READY, 1).raw(),
            CmdStatus::OFFSET => state.status,
            _ => {
                let reset = BAR0.iter().find(|register| register.offset == offset).map_or(0, |register| register.reset);
                state.registers.get(&offset).copied().unwrap_or(reset)
            }
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        if offset >= DOORBELL_BASE {
            return state.doorbell(offset, value);
        }
        state.registers.insert(offset, value);
        if offset == CmdGo::OFFSET {
            assert!(state.pending.is_none(), "a second command while one is being executed");
            let tag = CmdGo::TAG.get(value) as u16;
            state.pending = Some((CmdGo::OPCODE.get(value) as u8, tag));
            state.status = CmdStatus::reset().with(CmdStatus::BUSY, 1).with(CmdStatus::TAG, tag.into()).raw();
            if !state.hold_commands {
                state.execute_pending();
            }
        }
    }
}

impl Device for FakeCard {
    fn bar(&self) -> &dyn Bar {
        self
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        let mut state = self.state();
        let iova = state.next_iova.next_multiple_of(align as u64);
        state.next_iova = iova + len as u64;
        let buffer = DmaBuffer::on_heap(len, align, iova)?;
        state.memory.push(buffer.clone());
        Ok(buffer)
    }

    unsafe fn map(&self, _ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        let mut state = self.state();
        let iova = state.next_iova.next_multiple_of(4096);
        state.next_iova = iova + len as u64;
        Ok(iova)
    }

    fn unmap(&self, iova: u64, _len: usize) {
        self.state().unmapped.push(iova);
    }

    fn take_interrupts(&self) -> u32 {
        std::mem::take(&mut self.state().interrupts)
    }

    fn wait(&self) {
        let mut state = self.state();
        if state.wait_steps {
            state.execute_pending();
        }
    }
}

/// The bytes of a structure as the words of the argument window.
pub fn words(args: &impl WordsOf) -> Vec<u32> {
    args.bytes().chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// A structure of the argument window.
pub trait WordsOf {
    fn bytes(&self) -> &[u8];
}

impl<T: IntoBytes + zerocopy::Immutable> WordsOf for T {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}
