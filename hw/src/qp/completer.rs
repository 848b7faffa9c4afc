//! Keeps what is outstanding, and turns acknowledgements, refusals and flushes into completions.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts |
//! | `issue` | sink | requests that got their PSNs |
//! | `ack` | sink | the newest acknowledgement of a queue pair, or a wish to look at it again, or that its time is up |
//! | `flush` | sink | queue pairs of which everything posted is to be flushed |
//! | `producer`, `is_dead` | in | of queue pair `look_qpn`: how far to flush, as of one clock ago, and whether at all |
//! | `cqe` | source | completions |
//! | `progress` | source | send queues whose last done requests were silent |
//! | `restart` | source | where a queue pair whose time is up begins to send again |
//! | `retired` | out | each request that is done, at once |
//! | `unacked` | out | each change of an oldest unacknowledged PSN |
//! | `halt` | source | queue pairs that have failed just now |
//! | `fatal` | source | the event that goes with it |
//! | `is_flushing` | out | a flush is under way |
//! | `query_*` | in/out | state of one queue pair, one clock later |
//!
//! Per queue pair there is the oldest unacknowledged PSN and the oldest request that is not done:
//! what loss recovery starts from. The table has one entry for each request that may be under way
//! ([`SQ_DEPTH`] for each queue pair): its last PSN, whether it is signaled, and why it was refused
//! if it was.
//!
//! When no acknowledgement comes in time (`timers.rs`), the queue pair restarts with that PSN and that request; after the last
//! retry the request fails. If something was acknowledged since the timer looked, nothing happens. A restart also goes out, once, when a request was refused
//! and those before it did not ask for an acknowledgement. When the FIFO of 16 is full, because the transmitter stands still, a late queue pair is left to the timer,
//! and the other kind, which comes once, waits.
//!
//! Latency: three clocks from an acknowledgement to its first completion. Throughput: one request a
//! clock while an acknowledgement is worked off, and four clocks for the acknowledgement itself. A
//! request that was refused keeps its place: it completes with its error when all before it are
//! done, and then its queue pair is dead. An acknowledgement that fits nothing is counted
//! (`ghost`), never acted on.
//!
//! [`SQ_DEPTH`]: verbena_abi::limits::SQ_DEPTH

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_CQS, LOG_QPS};
use verbena_abi::{queue, wire};

use crate::bus::*;
use crate::prim::{Fifo, Ram};

/// Bits that name an entry of the table.
const TABLE: usize = limits::LOG_QPS + limits::LOG_SQ_DEPTH;

/// Syndrome of a wish to look at a queue pair again; a reserved value, so no packet brings it.
pub const LOOK_AGAIN: u8 = 0xFF;
/// Syndrome of a queue pair that waited too long for an acknowledgement of its PSN: it is to send again. Reserved, too.
pub const SEND_AGAIN: u8 = 0xFE;
/// As [`SEND_AGAIN`], but there is no retry left.
pub const GIVE_UP: u8 = 0xFD;

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Entry {
    last_psn: Bits<24>,
    signaled: Bit,
    status: Bits<4>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Issued {
    index: Bits<16>,
    next_psn: Bits<24>,
    /// The last one is refused, and nobody has asked for an acknowledgement of those before it.
    is_unasked: Bit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Done {
    index: Bits<16>,
    unacked: Bits<24>,
    is_dead: Bit,
    /// What is before a refused request was sent again for its acknowledgement.
    is_prompted: Bit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Target {
    cqn: Cqn,
    progress: Bits<64>,
}

/// A change that a command makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Change {
    qpn: Qpn,
    clear: Bit,
    start: Bit,
    psn: Bits<24>,
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Clear,
    Idle,
    Judge,
    Walk,
    Refuse,
    Flush,
    Store,
    Tell,
}

#[derive(LogicBlock)]
pub struct Completer {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub issue: StreamSink<Issue>,
    pub ack: StreamSink<AckIn>,
    pub flush: StreamSink<Qpn>,
    pub look_qpn: Signal<Out, Qpn>,
    pub producer: Signal<In, Bits<16>>,
    pub is_dead: Signal<In, Bit>,
    pub cqe: StreamSource<CqeReq>,
    pub progress: StreamSource<Progress>,
    pub restart: StreamSource<Restart>,
    pub retired: Signal<Out, Retired>,
    pub unacked: Signal<Out, Unacked>,
    pub halt: StreamSource<Qpn>,
    pub fatal: StreamSource<EventReq>,
    pub is_flushing: Signal<Out, Bit>,
    pub count_ack: Signal<Out, Bit>,
    pub count_nak: Signal<Out, Bit>,
    pub count_ghost: Signal<Out, Bit>,
    pub count_restart: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_unacked: Signal<Out, Bits<24>>,
    pub query_consumer: Signal<Out, Bits<16>>,
    pub query_dead: Signal<Out, Bit>,

    state: DFF<State>,
    entries: Ram<Entry, TABLE>,
    issued_look: Ram<Issued, { limits::LOG_QPS }>,
    done_ram: Ram<Done, { limits::LOG_QPS }>,
    done_look: Ram<Done, { limits::LOG_QPS }>,
    targets: Ram<Target, { limits::LOG_QPS }>,
    changes: Fifo<Change, 1, 2>,
    cqes: Fifo<CqeReq, 2, 3>,
    progresses: Fifo<Progress, 2, 3>,
    restarts: Fifo<Restart, 4, 5>,
    halts: Fifo<Qpn, 1, 2>,
    fatals: Fifo<EventReq, 2, 3>,
    qpn: DFF<Qpn>,
    psn: DFF<Bits<24>>,
    syndrome: DFF<Bits<8>>,
    is_flush: DFF<Bit>,
    target: DFF<Target>,
    acked: DFF<Bits<24>>,
    index: DFF<Bits<16>>,
    is_silent: DFF<Bit>,
    has_died: DFF<Bit>,
    has_prompted: DFF<Bit>,
    status: DFF<Bits<8>>,
    was_ack: DFF<Bit>,
    was_nak: DFF<Bit>,
    was_ghost: DFF<Bit>,
    was_restart: DFF<Bit>,
    last_retired: DFF<Retired>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    change: Signal<Local, Change>,
    incoming: Signal<Local, AckIn>,
    fresh: Signal<Local, Issue>,
    may_issue: Signal<Local, Bit>,
    asked: Signal<Local, Qpn>,
    issued_now: Signal<Local, Issued>,
    loaded: Signal<Local, Done>,
    kind: Signal<Local, Bits<3>>,
    is_ack: Signal<Local, Bit>,
    is_nak: Signal<Local, Bit>,
    is_look: Signal<Local, Bit>,
    is_late: Signal<Local, Bit>,
    is_given_up: Signal<Local, Bit>,
    prompts: Signal<Local, Bit>,
    is_rnr: Signal<Local, Bit>,
    is_fatal_nak: Signal<Local, Bit>,
    behind_psn: Signal<Local, Bits<24>>,
    distance: Signal<Local, Bits<24>>,
    outstanding: Signal<Local, Bits<24>>,
    nak_status: Signal<Local, Bits<8>>,
    entry: Signal<Local, Entry>,
    margin: Signal<Local, Bits<24>>,
    is_known: Signal<Local, Bit>,
    is_acked: Signal<Local, Bit>,
    needs_cqe: Signal<Local, Bit>,
    advance: Signal<Local, Bit>,
    next_index: Signal<Local, Bits<16>>,
    ask_index: Signal<Local, Bits<16>>,
    write_done: Signal<Local, Bit>,
    done_address: Signal<Local, Qpn>,
    done_data: Signal<Local, Done>,
    write_issued: Signal<Local, Bit>,
    issued_address: Signal<Local, Qpn>,
    issued_data: Signal<Local, Issued>,
    slot: Signal<Local, Bits<TABLE>>,
    zero_done: Constant<Done>,
    zero_issued: Constant<Issued>,
    look_again: Constant<Bits<8>>,
    send_again: Constant<Bits<8>>,
    give_up: Constant<Bits<8>>,
    ack_kind: Constant<Bits<3>>,
    rnr_kind: Constant<Bits<3>>,
    nak_kind: Constant<Bits<3>>,
    nak_invalid: Constant<Bits<8>>,
    nak_access: Constant<Bits<8>>,
    nak_operation: Constant<Bits<8>>,
    success: Constant<Bits<8>>,
    flushed: Constant<Bits<8>>,
    remote_invalid: Constant<Bits<8>>,
    remote_access: Constant<Bits<8>>,
    remote_operation: Constant<Bits<8>>,
    retry_exceeded: Constant<Bits<8>>,
    write_op: Constant<Bits<8>>,
    fatal_kind: Constant<Bits<8>>,
    slot_mask: Constant<Bits<16>>,
    slot_bits: Constant<Bits<5>>,
    last_qpn: Constant<Qpn>,
}

impl Default for Completer {
    fn default() -> Self {
        let status = |status: queue::CqeStatus| Constant::new((status as u8).to_bits());
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            issue: Default::default(),
            ack: Default::default(),
            flush: Default::default(),
            look_qpn: Default::default(),
            producer: Default::default(),
            is_dead: Default::default(),
            cqe: Default::default(),
            progress: Default::default(),
            restart: Default::default(),
            retired: Default::default(),
            unacked: Default::default(),
            halt: Default::default(),
            fatal: Default::default(),
            is_flushing: Default::default(),
            count_ack: Default::default(),
            count_nak: Default::default(),
            count_ghost: Default::default(),
            count_restart: Default::default(),
            query_qpn: Default::default(),
            query_unacked: Default::default(),
            query_consumer: Default::default(),
            query_dead: Default::default(),
            state: Default::default(),
            entries: Default::default(),
            issued_look: Default::default(),
            done_ram: Default::default(),
            done_look: Default::default(),
            targets: Default::default(),
            changes: Default::default(),
            cqes: Default::default(),
            progresses: Default::default(),
            restarts: Default::default(),
            halts: Default::default(),
            fatals: Default::default(),
            qpn: Default::default(),
            psn: Default::default(),
            syndrome: Default::default(),
            is_flush: Default::default(),
            target: Default::default(),
            acked: Default::default(),
            index: Default::default(),
            is_silent: Default::default(),
            has_died: Default::default(),
            has_prompted: Default::default(),
            status: Default::default(),
            was_ack: Default::default(),
            was_nak: Default::default(),
            was_ghost: Default::default(),
            was_restart: Default::default(),
            last_retired: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            change: Default::default(),
            incoming: Default::default(),
            fresh: Default::default(),
            may_issue: Default::default(),
            asked: Default::default(),
            issued_now: Default::default(),
            loaded: Default::default(),
            kind: Default::default(),
            is_ack: Default::default(),
            is_nak: Default::default(),
            is_look: Default::default(),
            is_late: Default::default(),
            is_given_up: Default::default(),
            prompts: Default::default(),
            is_rnr: Default::default(),
            is_fatal_nak: Default::default(),
            behind_psn: Default::default(),
            distance: Default::default(),
            outstanding: Default::default(),
            nak_status: Default::default(),
            entry: Default::default(),
            margin: Default::default(),
            is_known: Default::default(),
            is_acked: Default::default(),
            needs_cqe: Default::default(),
            advance: Default::default(),
            next_index: Default::default(),
            ask_index: Default::default(),
            write_done: Default::default(),
            done_address: Default::default(),
            done_data: Default::default(),
            write_issued: Default::default(),
            issued_address: Default::default(),
            issued_data: Default::default(),
            slot: Default::default(),
            zero_done: Constant::new(Done::default()),
            zero_issued: Constant::new(Issued::default()),
            look_again: Constant::new(LOOK_AGAIN.to_bits()),
            send_again: Constant::new(SEND_AGAIN.to_bits()),
            give_up: Constant::new(GIVE_UP.to_bits()),
            ack_kind: Constant::new(0u8.to_bits()),
            rnr_kind: Constant::new((wire::syndrome::RNR_NAK >> 5).to_bits()),
            nak_kind: Constant::new((wire::syndrome::NAK_SEQUENCE >> 5).to_bits()),
            nak_invalid: Constant::new(wire::syndrome::NAK_INVALID_REQUEST.to_bits()),
            nak_access: Constant::new(wire::syndrome::NAK_REMOTE_ACCESS.to_bits()),
            nak_operation: Constant::new(wire::syndrome::NAK_REMOTE_OPERATION.to_bits()),
            success: status(queue::CqeStatus::Success),
            flushed: status(queue::CqeStatus::Flushed),
            remote_invalid: status(queue::CqeStatus::RemoteInvalidRequest),
            remote_access: status(queue::CqeStatus::RemoteAccess),
            remote_operation: status(queue::CqeStatus::RemoteOperation),
            retry_exceeded: status(queue::CqeStatus::RetryExceeded),
            write_op: Constant::new((queue::WqeOp::Write as u8).to_bits()),
            fatal_kind: Constant::new((queue::EventKind::QpFatal as u8).to_bits()),
            slot_bits: Constant::new(limits::LOG_SQ_DEPTH.to_bits()),
            slot_mask: Constant::new((limits::SQ_DEPTH - 1).to_bits()),
            last_qpn: Constant::new((limits::QPS - 1).to_bits()),
        }
    }
}

impl Logic for Completer {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, qpn, psn, syndrome, is_flush, target, acked, index);
        dff_setup!(self, clock, is_silent, has_died, has_prompted, status, was_ack, was_nak, was_ghost, was_restart, last_retired);
        clock!(self, clock, entries, issued_look, done_ram, done_look, targets);
        clock!(self, clock, changes, cqes, progresses, restarts, halts, fatals);
        self.changes.reset.next = self.reset.val();
        self.cqes.reset.next = self.reset.val();
        self.progresses.reset.next = self.reset.val();
        self.restarts.reset.next = self.reset.val();
        self.halts.reset.next = self.reset.val();
        self.fatals.reset.next = self.reset.val();
        StreamSource::<CqeReq>::link(&mut self.cqe, &mut self.cqes.drain);
        StreamSource::<Progress>::link(&mut self.progress, &mut self.progresses.drain);
        StreamSource::<Restart>::link(&mut self.restart, &mut self.restarts.drain);
        StreamSource::<Qpn>::link(&mut self.halt, &mut self.halts.drain);
        StreamSource::<EventReq>::link(&mut self.fatal, &mut self.fatals.drain);
        self.is_flushing.next = self.is_flush.q.val() & (self.state.q.val() != State::Idle);
        self.count_ack.next = self.was_ack.q.val();
        self.count_nak.next = self.was_nak.q.val();
        self.count_ghost.next = self.was_ghost.q.val();
        self.count_restart.next = self.was_restart.q.val();
        self.retired.next = self.last_retired.q.val();
        self.was_ack.d.next = false;
        self.was_nak.d.next = false;
        self.was_ghost.d.next = false;
        self.was_restart.d.next = false;
        self.last_retired.d.next.valid = false;

        // Whose state is looked up: in `Idle` already, as soon as it is known.
        self.incoming.next = self.ack.data.val();
        self.asked.next = self.qpn.q.val();
        if self.state.q.val() == State::Idle {
            self.asked.next = self.incoming.val().qpn;
            if self.flush.valid.val() {
                self.asked.next = self.flush.data.val();
            }
        }

        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.targets.write_enable.next = self.broadcast.val().valid;
        self.targets.write_address.next = self.broadcast.val().qpn;
        self.targets.write_data.next.cqn = bit_cast::<LOG_CQS, 16>(self.attributes.val().send_cqn);
        self.targets.write_data.next.progress = self.attributes.val().progress_address;
        self.targets.read_address.next = self.asked.val();
        self.changes.fill.valid.next = self.broadcast.val().valid & (self.broadcast.val().clear | self.broadcast.val().start_tx);
        self.changes.fill.data.next.qpn = self.broadcast.val().qpn;
        self.changes.fill.data.next.clear = self.broadcast.val().clear;
        self.changes.fill.data.next.start = self.broadcast.val().start_tx;
        self.changes.fill.data.next.psn = self.attributes.val().sq_psn;
        self.change.next = self.changes.drain.data.val();
        self.changes.drain.ready.next = false;

        // From `Judge` on, `loaded` and `issued_now` are those of the queue pair; how far is issued is
        // known as of the clock in which the table's entry was asked for.
        self.look_qpn.next = self.asked.val();
        self.issued_look.read_address.next = self.asked.val();
        self.issued_now.next = self.issued_look.read_data.val();
        self.done_ram.read_address.next = self.asked.val();
        self.loaded.next = self.done_ram.read_data.val();

        // The issue side writes the table; a command's change has priority at its small memory.
        self.fresh.next = self.issue.data.val();
        self.may_issue.next = (self.state.q.val() != State::Clear) & !self.changes.drain.valid.val();
        self.issue.ready.next = self.may_issue.val();
        self.write_issued.next = self.may_issue.val() & self.issue.valid.val();
        self.issued_address.next = self.fresh.val().qpn;
        self.issued_data.next.index = self.fresh.val().index + 1;
        self.issued_data.next.next_psn = self.fresh.val().last_psn + 1;
        self.issued_data.next.is_unasked = self.fresh.val().is_unasked;
        self.entries.write_enable.next = self.write_issued.val();
        self.slot.next =
            (bit_cast::<TABLE, LOG_QPS>(self.fresh.val().qpn) << 9) | bit_cast::<TABLE, 16>(self.fresh.val().index & self.slot_mask.val());
        self.entries.write_address.next = self.slot.val();
        self.entries.write_data.next.last_psn = self.fresh.val().last_psn;
        self.entries.write_data.next.signaled = self.fresh.val().signaled;
        self.entries.write_data.next.status = self.fresh.val().status;

        // The acknowledgement: the first PSN that it does not cover, against what is outstanding.
        self.ack.ready.next = false;
        self.flush.ready.next = false;
        self.kind.next = self.syndrome.q.val().get_bits::<3>(5);
        self.is_look.next = self.syndrome.q.val() == self.look_again.val();
        self.is_given_up.next = self.syndrome.q.val() == self.give_up.val();
        self.is_late.next = (self.syndrome.q.val() == self.send_again.val()) | self.is_given_up.val();
        self.is_ack.next = self.kind.val() == self.ack_kind.val();
        self.is_rnr.next = self.kind.val() == self.rnr_kind.val();
        self.is_nak.next = (self.kind.val() == self.nak_kind.val()) | self.is_rnr.val();
        self.is_fatal_nak.next = (self.syndrome.q.val() == self.nak_invalid.val())
            | (self.syndrome.q.val() == self.nak_access.val())
            | (self.syndrome.q.val() == self.nak_operation.val());
        self.behind_psn.next = self.psn.q.val();
        if self.is_ack.val() {
            self.behind_psn.next = self.psn.q.val() + 1;
        }
        self.distance.next = self.behind_psn.val() - self.loaded.val().unacked;
        self.outstanding.next = self.issued_now.val().next_psn - self.loaded.val().unacked;

        self.nak_status.next = self.remote_operation.val();
        if self.syndrome.q.val() == self.nak_invalid.val() {
            self.nak_status.next = self.remote_invalid.val();
        } else if self.syndrome.q.val() == self.nak_access.val() {
            self.nak_status.next = self.remote_access.val();
        } else if self.is_given_up.val() {
            self.nak_status.next = self.retry_exceeded.val();
        }

        // The entry under consideration.
        self.entry.next = self.entries.read_data.val();
        self.margin.next = self.acked.q.val() - self.entry.val().last_psn - 1;
        self.is_known.next = self.index.q.val() != self.issued_now.val().index;
        self.is_acked.next = !self.margin.val().get_bit(23);
        self.needs_cqe.next = self.entry.val().signaled | self.entry.val().status.any();
        self.advance.next = false;
        self.next_index.next = self.index.q.val() + 1;
        self.cqes.fill.valid.next = false;
        self.cqes.fill.data.next.cqn = self.target.q.val().cqn;
        self.cqes.fill.data.next.qpn = self.qpn.q.val();
        self.cqes.fill.data.next.index = self.index.q.val();
        self.cqes.fill.data.next.status = bit_cast::<8, 4>(self.entry.val().status);
        self.cqes.fill.data.next.opcode = self.write_op.val();
        self.cqes.fill.data.next.syndrome = 0.into();
        self.progresses.fill.valid.next = false;
        self.progresses.fill.data.next.addr = self.target.q.val().progress;
        self.progresses.fill.data.next.index = self.index.q.val();
        self.restarts.fill.valid.next = false;
        self.restarts.fill.data.next.qpn = self.qpn.q.val();
        self.restarts.fill.data.next.index = self.index.q.val();
        self.restarts.fill.data.next.psn = self.acked.q.val();
        self.restarts.fill.data.next.end_psn = self.entry.val().last_psn + 1;
        self.halts.fill.valid.next = false;
        self.halts.fill.data.next = self.qpn.q.val();
        self.fatals.fill.valid.next = false;
        self.fatals.fill.data.next.number = bit_cast::<16, LOG_QPS>(self.qpn.q.val());
        self.fatals.fill.data.next.kind = self.fatal_kind.val();
        self.fatals.fill.data.next.code = self.status.q.val();

        self.write_done.next = false;
        self.done_address.next = self.qpn.q.val();
        self.done_data.next.index = self.index.q.val();
        self.done_data.next.unacked = self.acked.q.val();
        self.done_data.next.is_dead = self.loaded.val().is_dead | self.has_died.q.val() | self.is_flush.q.val();
        self.done_data.next.is_prompted = self.loaded.val().is_prompted | self.has_prompted.q.val();
        self.prompts.next = self.issued_now.val().is_unasked & !self.loaded.val().is_prompted;

        match self.state.q.val() {
            State::Clear => {
                self.qpn.d.next = self.qpn.q.val() + 1;
                self.write_done.next = true;
                self.done_data.next = self.zero_done.val();
                self.write_issued.next = true;
                self.issued_address.next = self.qpn.q.val();
                self.issued_data.next = self.zero_issued.val();
                if self.qpn.q.val() == self.last_qpn.val() {
                    self.state.d.next = State::Idle;
                }
            }
            State::Idle => {
                self.is_silent.d.next = false;
                self.has_died.d.next = false;
                self.has_prompted.d.next = false;
                if self.changes.drain.valid.val() {
                    self.changes.drain.ready.next = true;
                    self.qpn.d.next = self.change.val().qpn;
                    self.write_done.next = true;
                    self.done_address.next = self.change.val().qpn;
                    self.done_data.next = self.zero_done.val();
                    self.done_data.next.unacked = self.change.val().psn;
                    self.write_issued.next = true;
                    self.issued_address.next = self.change.val().qpn;
                    self.issued_data.next = self.zero_issued.val();
                    self.issued_data.next.next_psn = self.change.val().psn;
                } else if self.flush.valid.val() {
                    self.flush.ready.next = true;
                    self.qpn.d.next = self.flush.data.val();
                    self.is_flush.d.next = true;
                    self.state.d.next = State::Judge;
                } else if self.ack.valid.val() {
                    self.ack.ready.next = true;
                    self.qpn.d.next = self.incoming.val().qpn;
                    self.psn.d.next = self.incoming.val().psn;
                    self.syndrome.d.next = self.incoming.val().syndrome;
                    self.is_flush.d.next = false;
                    self.state.d.next = State::Judge;
                }
            }
            State::Judge => {
                self.target.d.next = self.targets.read_data.val();
                self.index.d.next = self.loaded.val().index;
                self.acked.d.next = self.loaded.val().unacked;
                if self.is_flush.q.val() {
                    // A queue pair that was reset meanwhile is not dead any more.
                    self.state.d.next = State::Idle;
                    if self.is_dead.val() {
                        self.state.d.next = State::Flush;
                    }
                } else if self.loaded.val().is_dead {
                    self.was_ghost.d.next = !self.is_look.val() & !self.is_late.val();
                    self.state.d.next = State::Idle;
                } else if self.is_look.val() | self.is_late.val() {
                    if self.psn.q.val() != self.loaded.val().unacked {
                        self.syndrome.d.next = self.look_again.val();
                    }
                    self.state.d.next = State::Walk;
                } else if self.is_ack.val() & self.distance.val().any() & (self.distance.val() <= self.outstanding.val()) {
                    self.was_ack.d.next = true;
                    self.acked.d.next = self.behind_psn.val();
                    self.state.d.next = State::Walk;
                } else if self.is_nak.val() & (self.distance.val() < self.outstanding.val()) {
                    self.was_nak.d.next = true;
                    self.acked.d.next = self.behind_psn.val();
                    self.state.d.next = State::Walk;
                } else {
                    // It may have taken the place of a wish to look again.
                    self.was_ghost.d.next = true;
                    self.syndrome.d.next = self.look_again.val();
                    self.state.d.next = State::Walk;
                }
            }
            State::Walk => {
                if self.is_known.val() & self.entry.val().status.any() {
                    self.cqes.fill.valid.next = true;
                    if self.cqes.fill.ready.val() {
                        self.advance.next = true;
                        self.status.d.next = bit_cast::<8, 4>(self.entry.val().status);
                        self.has_died.d.next = true;
                        self.is_silent.d.next = false;
                        self.state.d.next = State::Store;
                    }
                } else if self.is_known.val() & self.is_acked.val() {
                    self.cqes.fill.valid.next = self.needs_cqe.val();
                    self.advance.next = self.cqes.fill.ready.val() | !self.needs_cqe.val();
                    self.is_silent.d.next = !self.needs_cqe.val();
                } else if (self.is_fatal_nak.val() | self.is_given_up.val()) & self.is_known.val() {
                    self.state.d.next = State::Refuse;
                } else if (self.is_late.val() | self.prompts.val()) & self.is_known.val() {
                    self.restarts.fill.valid.next = true;
                    self.was_restart.d.next = self.is_late.val() & self.restarts.fill.ready.val();
                    self.has_prompted.d.next = self.prompts.val() & self.restarts.fill.ready.val();
                    // A late one comes again.
                    if self.restarts.fill.ready.val() | self.is_late.val() {
                        self.state.d.next = State::Store;
                    }
                } else {
                    self.state.d.next = State::Store;
                }
            }
            State::Refuse => {
                // The request at fault: everything before it is acknowledged.
                self.cqes.fill.valid.next = true;
                if !self.is_given_up.val() {
                    self.cqes.fill.data.next.syndrome = self.syndrome.q.val();
                }
                self.cqes.fill.data.next.status = self.nak_status.val();
                self.status.d.next = self.nak_status.val();
                if self.cqes.fill.ready.val() {
                    self.advance.next = true;
                    self.has_died.d.next = true;
                    self.is_silent.d.next = false;
                    self.state.d.next = State::Store;
                }
            }
            State::Flush => {
                if self.index.q.val() == self.producer.val() {
                    self.state.d.next = State::Store;
                } else {
                    self.cqes.fill.valid.next = true;
                    self.cqes.fill.data.next.status = self.flushed.val();
                    self.advance.next = self.cqes.fill.ready.val();
                }
            }
            State::Store => {
                if self.progresses.fill.ready.val() | !self.is_silent.q.val() {
                    self.progresses.fill.valid.next = self.is_silent.q.val();
                    self.write_done.next = true;
                    self.state.d.next = State::Idle;
                    if self.has_died.q.val() {
                        self.state.d.next = State::Tell;
                    }
                }
            }
            State::Tell => {
                if self.halts.fill.ready.val() & self.fatals.fill.ready.val() {
                    self.halts.fill.valid.next = true;
                    self.fatals.fill.valid.next = true;
                    self.state.d.next = State::Idle;
                }
            }
            _ => {
                self.state.d.next = State::Idle;
            }
        }
        self.ask_index.next = self.index.q.val();
        if self.state.q.val() == State::Judge {
            self.ask_index.next = self.loaded.val().index;
        } else if self.advance.val() {
            self.index.d.next = self.next_index.val();
            self.ask_index.next = self.next_index.val();
            self.last_retired.d.next.valid = true;
            self.last_retired.d.next.qpn = self.qpn.q.val();
            self.last_retired.d.next.index = self.next_index.val();
            self.last_retired.d.next.psn = self.entry.val().last_psn + 1;
        }
        if self.state.q.val() == State::Idle {
            // A command starts the queue pair anew.
            self.last_retired.d.next.valid = self.changes.drain.valid.val();
            self.last_retired.d.next.qpn = self.change.val().qpn;
            self.last_retired.d.next.index = 0.into();
            self.last_retired.d.next.psn = self.change.val().psn;
        }
        self.entries.read_address.next = (bit_cast::<TABLE, LOG_QPS>(self.qpn.q.val()) << self.slot_bits.val())
            | bit_cast::<TABLE, 16>(self.ask_index.val() & self.slot_mask.val());
        self.done_ram.write_enable.next = self.write_done.val();
        self.done_ram.write_address.next = self.done_address.val();
        self.done_ram.write_data.next = self.done_data.val();
        self.done_look.write_enable.next = self.write_done.val();
        self.done_look.write_address.next = self.done_address.val();
        self.done_look.write_data.next = self.done_data.val();
        self.unacked.next.valid = self.write_done.val();
        self.unacked.next.qpn = self.done_address.val();
        self.unacked.next.psn = self.done_data.val().unacked;
        self.unacked.next.is_dead = self.done_data.val().is_dead;
        self.unacked.next.is_new = self.state.q.val() == State::Idle;
        self.done_look.read_address.next = self.query_qpn.val();
        self.query_unacked.next = self.done_look.read_data.val().unacked;
        self.query_consumer.next = self.done_look.read_data.val().index;
        self.query_dead.next = self.done_look.read_data.val().is_dead;
        self.issued_look.write_enable.next = self.write_issued.val();
        self.issued_look.write_address.next = self.issued_address.val();
        self.issued_look.write_data.next = self.issued_data.val();

        if self.reset.val() {
            self.state.d.next = State::Clear;
            self.qpn.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use queue::{CqeStatus, QpState};

    const PROGRESS: u64 = 0x7000_0000;
    /// Status of requests that are refused behind one that did not ask for an acknowledgement.
    const UNASKED: u64 = CqeStatus::LocalOperation as u64;

    /// A request in the table of the model.
    #[derive(Clone, Copy)]
    struct Request {
        last_psn: u64,
        signaled: bool,
        status: u64,
    }

    /// A queue pair of the model: what is issued and not done, and where it stands.
    #[derive(Clone, Default)]
    struct Model {
        waiting: VecDeque<Request>,
        index: u64,
        next_psn: u64,
        unacked: u64,
        is_dead: bool,
        is_prompted: bool,
    }

    /// Queue pairs of the model, and what is expected on the streams.
    #[derive(Default)]
    struct Expected {
        pairs: Vec<Model>,
        cqes: Vec<CqeReq>,
        progresses: Vec<Progress>,
        restarts: Vec<Restart>,
        /// So many of them because of the timer.
        timeouts: usize,
        /// Queue pair, index and PSN behind each request that is done; a flushed one has no PSN.
        retired: Vec<(u64, u64, Option<u64>)>,
        halts: Vec<Qpn>,
        fatals: Vec<EventReq>,
        acks: usize,
        naks: usize,
        ghosts: usize,
    }

    impl Expected {
        fn retire(&mut self, qpn: usize, last_psn: Option<u64>) {
            let pair = &mut self.pairs[qpn];
            pair.index += 1;
            self.retired.push((qpn as u64, pair.index % 0x1_0000, last_psn.map(|psn| (psn + 1) & 0xFF_FFFF)));
        }

        fn cqe(&mut self, qpn: usize, status: u64, syndrome: u64, last_psn: Option<u64>) {
            let pair = &mut self.pairs[qpn];
            self.cqes.push(CqeReq {
                cqn: (0x40 + qpn as u64).into(),
                qpn: (qpn as u64).into(),
                index: (pair.index % 0x1_0000).into(),
                status: status.into(),
                opcode: 1u64.into(),
                syndrome: syndrome.into(),
            });
            self.retire(qpn, last_psn);
        }

        fn die(&mut self, qpn: usize, status: u64) {
            self.pairs[qpn].is_dead = true;
            self.halts.push((qpn as u64).into());
            self.fatals.push(EventReq {
                number: (qpn as u64).into(),
                kind: (queue::EventKind::QpFatal as u64).into(),
                code: status.into(),
            });
        }

        fn ack(&mut self, qpn: usize, psn: u64, syndrome: u64) {
            let pair = &mut self.pairs[qpn];
            let ahead = |psn: u64, of: u64| psn.wrapping_sub(of) & 0xFF_FFFF;
            let is_late = [SEND_AGAIN, GIVE_UP].map(u64::from).contains(&syndrome);
            let is_look = syndrome == u64::from(LOOK_AGAIN) || is_late;
            let is_due = is_late && psn == pair.unacked;
            let outstanding = ahead(pair.next_psn, pair.unacked);
            if pair.is_dead {
                self.ghosts += usize::from(!is_look);
                return;
            }
            let mut refusal = None;
            match syndrome >> 5 {
                0 if (1..=outstanding).contains(&ahead(psn + 1, pair.unacked)) => {
                    self.acks += 1;
                    pair.unacked = (psn + 1) & 0xFF_FFFF;
                }
                1 | 3 if ahead(psn, pair.unacked) < outstanding => {
                    self.naks += 1;
                    pair.unacked = psn;
                    refusal = match syndrome {
                        0x61 => Some(CqeStatus::RemoteInvalidRequest as u64),
                        0x62 => Some(CqeStatus::RemoteAccess as u64),
                        0x63 => Some(CqeStatus::RemoteOperation as u64),
                        _ => None,
                    };
                }
                _ => self.ghosts += usize::from(!is_look),
            }
            let mut is_silent = false;
            while let Some(request) = self.pairs[qpn].waiting.front().copied() {
                if request.status != 0 {
                    self.cqe(qpn, request.status, 0, Some(request.last_psn));
                    return self.die(qpn, request.status);
                }
                let covered = (self.pairs[qpn].unacked.wrapping_sub(request.last_psn + 1) & 0xFF_FFFF) < 0x80_0000;
                if !covered {
                    break;
                }
                self.pairs[qpn].waiting.pop_front();
                is_silent = !request.signaled;
                if request.signaled {
                    self.cqe(qpn, 0, 0, Some(request.last_psn));
                } else {
                    self.retire(qpn, Some(request.last_psn));
                }
            }
            let oldest = self.pairs[qpn].waiting.front().map(|request| request.last_psn);
            let is_sent_again = is_due && syndrome == u64::from(SEND_AGAIN);
            self.timeouts += usize::from(is_sent_again && refusal.is_none() && oldest.is_some());
            match (refusal, oldest) {
                (Some(status), Some(_)) => {
                    self.cqe(qpn, status, syndrome, oldest);
                    self.die(qpn, status);
                }
                (None, Some(_)) if is_due && syndrome == u64::from(GIVE_UP) => {
                    let status = CqeStatus::RetryExceeded as u64;
                    self.cqe(qpn, status, 0, oldest);
                    self.die(qpn, status);
                }
                (None, Some(last_psn)) => {
                    if self.prompts(qpn) | is_due {
                        self.restarts.push(Restart {
                            qpn: (qpn as u64).into(),
                            index: (self.pairs[qpn].index % 0x1_0000).into(),
                            psn: self.pairs[qpn].unacked.into(),
                            end_psn: ((last_psn + 1) & 0xFF_FFFF).into(),
                        });
                    }
                    self.progress(qpn, is_silent);
                }
                _ => self.progress(qpn, is_silent),
            }
        }

        fn progress(&mut self, qpn: usize, is_silent: bool) {
            let index = (self.pairs[qpn].index % 0x1_0000).into();
            self.progresses.extend(is_silent.then(|| Progress { addr: (PROGRESS + 4 * qpn as u64).into(), index }));
        }

        /// Tells whether what is before a refused request is to be sent again, once.
        fn prompts(&mut self, qpn: usize) -> bool {
            let pair = &mut self.pairs[qpn];
            let is_unasked = pair.waiting.back().is_some_and(|request| request.status == UNASKED);
            let is_first = is_unasked && !pair.is_prompted;
            pair.is_prompted |= is_unasked;
            is_first
        }

        fn flush(&mut self, qpn: usize, producer: u64, is_dead: bool) {
            if is_dead {
                while self.pairs[qpn].index % 0x1_0000 != producer {
                    self.cqe(qpn, CqeStatus::Flushed as u64, 0, None);
                }
                self.pairs[qpn].is_dead = true;
            }
        }
    }

    /// The block with its model, which takes one event at a time.
    struct Case {
        bench: Bench<Completer>,
        cqe: Monitor<CqeReq>,
        progress: Monitor<Progress>,
        halt: Monitor<Qpn>,
        fatal: Monitor<EventReq>,
        restart: Monitor<Restart>,
        retired: Vec<Retired>,
        acks: usize,
        naks: usize,
        ghosts: usize,
        counted_restarts: usize,
        /// Nobody takes a restart.
        is_shut: bool,
        expected: Expected,
        issue_stalls: Stalls,
    }

    impl Case {
        fn new(name: &str) -> Self {
            let mut case = Self {
                bench: Bench::new(name, Completer::default(), |uut| &mut uut.clock),
                cqe: Monitor::new(Stalls::none()),
                progress: Monitor::new(Stalls::none()),
                halt: Monitor::new(Stalls::none()),
                fatal: Monitor::new(Stalls::none()),
                restart: Monitor::new(Stalls::none()),
                retired: vec![],
                acks: 0,
                naks: 0,
                ghosts: 0,
                counted_restarts: 0,
                is_shut: false,
                expected: Expected::default(),
                issue_stalls: Stalls::none(),
            };
            case.reset(|_| Stalls::none());
            case
        }

        fn reset(&mut self, stalls: impl Fn(u64) -> Stalls) {
            self.bench.uut.issue.valid.next = false;
            self.bench.uut.ack.valid.next = false;
            self.bench.uut.flush.valid.next = false;
            self.bench.uut.qp_write.next = QpWrite::default();
            self.bench.uut.reset.next = true;
            self.bench.cycles(2);
            self.bench.uut.reset.next = false;
            (self.cqe, self.progress) = (Monitor::new(stalls(1)), Monitor::new(stalls(2)));
            (self.halt, self.fatal) = (Monitor::new(stalls(3)), Monitor::new(stalls(4)));
            self.restart = Monitor::new(stalls(6));
            self.retired.clear();
            (self.acks, self.naks, self.ghosts, self.counted_restarts) = (0, 0, 0, 0);
            self.issue_stalls = stalls(5);
            self.expected = Expected { pairs: vec![Model::default(); 8], ..Default::default() };
        }

        fn clock(&mut self) {
            self.cqe.before(&mut self.bench.uut.cqe);
            self.progress.before(&mut self.bench.uut.progress);
            self.halt.before(&mut self.bench.uut.halt);
            self.fatal.before(&mut self.bench.uut.fatal);
            self.restart.before(&mut self.bench.uut.restart);
            if self.is_shut {
                self.bench.uut.restart.ready.next = false;
            }
            self.bench.settle();
            let uut = &self.bench.uut;
            self.cqe.after(&uut.cqe);
            self.progress.after(&uut.progress);
            self.halt.after(&uut.halt);
            self.fatal.after(&uut.fatal);
            self.restart.after(&uut.restart);
            let retired = uut.retired.val();
            self.retired.extend((retired.valid && retired.index.any()).then_some(retired));
            self.counted_restarts += usize::from(uut.count_restart.val());
            self.acks += usize::from(uut.count_ack.val());
            self.naks += usize::from(uut.count_nak.val());
            self.ghosts += usize::from(uut.count_ghost.val());
            self.bench.edge();
        }

        fn quiet(&mut self) {
            let start = self.bench.clock_count();
            while self.bench.uut.state.q.val() != State::Idle || self.bench.uut.changes.drain.valid.val() {
                self.clock();
                assert!(self.bench.clock_count() < start + 5000, "the completer hangs");
            }
            self.bench.settle();
        }

        fn command(&mut self, qpn: u64, clear: bool, start_tx: bool, psn: u64) {
            let context = QpContext {
                state: (QpState::Rts as u64).into(),
                sq_psn: psn.into(),
                send_cqn: (0x40 + qpn).into(),
                progress_address: (PROGRESS + 4 * qpn).into(),
                ..Default::default()
            };
            self.bench.uut.qp_write.next = QpWrite { valid: true, qpn: qpn.into(), clear, start_tx, context, ..Default::default() };
            self.clock();
            self.bench.uut.qp_write.next = QpWrite::default();
            self.clock();
            self.quiet();
            self.expected.pairs[qpn as usize] = Model { next_psn: psn, unacked: psn, ..Default::default() };
        }

        /// Issues requests of `packets` packets each; a refused one has none.
        fn issue(&mut self, qpn: usize, requests: &[(u64, bool, u64)]) {
            let mut issues = vec![];
            for (packets, signaled, status) in requests.iter().copied() {
                let pair = &mut self.expected.pairs[qpn];
                let packets = if status == 0 { packets } else { 0 };
                let last_psn = (pair.next_psn + packets + 0xFF_FFFF) & 0xFF_FFFF;
                pair.next_psn = (last_psn + 1) & 0xFF_FFFF;
                issues.push(Issue {
                    qpn: (qpn as u64).into(),
                    index: ((pair.index + pair.waiting.len() as u64) % 0x1_0000).into(),
                    last_psn: last_psn.into(),
                    signaled,
                    status: status.into(),
                    is_unasked: status == UNASKED,
                });
                pair.waiting.push_back(Request { last_psn, signaled, status });
            }
            let mut driver = Driver::new(issues, self.issue_stalls.clone());
            self.issue_stalls.random();
            while !driver.is_done() {
                driver.before(&mut self.bench.uut.issue);
                self.bench.settle();
                driver.after(&self.bench.uut.issue);
                self.clock();
            }
            self.bench.uut.issue.valid.next = false;
        }

        /// Gives an acknowledgement and lets it be worked off; returns the clocks from its taking until the next could be taken.
        fn ack(&mut self, qpn: usize, psn: u64, syndrome: u64) -> u64 {
            self.bench.uut.ack.data.next = AckIn { qpn: (qpn as u64).into(), psn: (psn & 0xFF_FFFF).into(), syndrome: syndrome.into() };
            self.bench.uut.ack.valid.next = true;
            self.quiet();
            assert!(self.bench.uut.ack.ready.val());
            self.clock();
            self.bench.uut.ack.valid.next = false;
            let start = self.bench.clock_count() - 1;
            self.quiet();
            self.expected.ack(qpn, psn & 0xFF_FFFF, syndrome);
            self.bench.clock_count() - start
        }

        fn look(&mut self, qpn: usize) {
            self.ack(qpn, 0, u64::from(LOOK_AGAIN));
        }

        /// Says that an acknowledgement of `psn` is late.
        fn is_late(&mut self, qpn: usize, psn: u64, syndrome: u8) {
            self.ack(qpn, psn, u64::from(syndrome));
        }

        fn flush(&mut self, qpn: usize, producer: u64, is_dead: bool) {
            self.bench.uut.flush.data.next = (qpn as u64).into();
            self.bench.uut.flush.valid.next = true;
            self.bench.uut.producer.next = producer.into();
            self.bench.uut.is_dead.next = is_dead;
            self.quiet();
            assert!(self.bench.uut.flush.ready.val());
            self.clock();
            self.bench.uut.flush.valid.next = false;
            assert_eq!(self.bench.uut.look_qpn.val(), qpn as u64);
            self.quiet();
            self.expected.flush(qpn, producer, is_dead);
        }

        /// Lets the streams run dry and compares everything.
        fn check(&mut self) {
            for _ in 0..400 {
                self.clock();
                let uut = &self.bench.uut;
                if !(uut.cqe.valid.val()
                    | uut.progress.valid.val()
                    | uut.halt.valid.val()
                    | uut.fatal.valid.val()
                    | uut.restart.valid.val())
                {
                    break;
                }
            }
            (0..2).for_each(|_| self.clock());
            assert_eq!(self.cqe.got, self.expected.cqes);
            assert_eq!(self.progress.got, self.expected.progresses);
            assert_eq!(self.halt.got, self.expected.halts);
            assert_eq!(self.fatal.got, self.expected.fatals);
            assert_eq!(self.restart.got, self.expected.restarts);
            assert_eq!(self.counted_restarts, self.expected.timeouts);
            assert_eq!(self.retired.len(), self.expected.retired.len());
            for (retired, (qpn, index, psn)) in self.retired.iter().zip(&self.expected.retired) {
                assert_eq!((retired.qpn.to_u64(), retired.index.to_u64()), (*qpn, *index));
                assert!(psn.is_none_or(|psn| retired.psn == psn), "{retired:?}, not {psn:?}");
            }
            assert_eq!((self.acks, self.naks, self.ghosts), (self.expected.acks, self.expected.naks, self.expected.ghosts));
            for (qpn, pair) in self.expected.pairs.iter().enumerate() {
                self.bench.uut.query_qpn.next = (qpn as u64).into();
                self.bench.cycles(1);
                assert_eq!(self.bench.uut.query_unacked.val(), pair.unacked);
                assert_eq!(self.bench.uut.query_consumer.val(), pair.index % 0x1_0000);
                assert_eq!(self.bench.uut.query_dead.val(), pair.is_dead);
            }
        }
    }

    const SILENT: (u64, bool, u64) = (1, false, 0);
    const SIGNALED: (u64, bool, u64) = (1, true, 0);
    const REFUSED: (u64, bool, u64) = (0, true, 4);

    #[test]
    fn acknowledgements_complete_what_they_cover_and_progress_is_told_when_the_last_was_silent() {
        let mut case = Case::new("completer");
        case.clock();
        assert!(!case.bench.uut.issue.ready.val(), "nothing is taken while the tables are cleared");
        case.quiet();
        // PSNs pass FFFFFF on the way.
        case.command(3, true, false, 0);
        case.command(3, false, true, 0xFF_FFFD);
        case.issue(3, &[SIGNALED, SILENT, (4, true, 0), (3, false, 0), SILENT, SIGNALED]);
        assert_eq!(case.ack(3, 0xFF_FFFD, 0x1F), 5, "one request and four clocks");
        case.ack(3, 0xFF_FFFD, 0x1F); // again: a ghost
        case.ack(3, 0xFF_FFFE, 0x1F); // silent: progress
        case.ack(3, 0x00_0000, 0x1F); // in the middle of the third
        case.ack(3, 0x00_0002, 0x00); // any AETH of kind 0 acknowledges; completes the third
        case.ack(3, 0x00_0008, 0x1F); // above what was sent: a ghost
        case.ack(3, 0x00_0007, 0x1F); // three at once, the last signaled: no progress
        case.ack(3, 0x00_0006, 0x1F); // behind: a ghost
        case.check();
        assert_eq!((case.cqe.got.len(), case.progress.got.len(), case.ghosts), (3, 1, 3));

        // Sequence NAK and RNR acknowledge what is before them, and refuse nothing.
        case.issue(3, &[SIGNALED, SIGNALED, SILENT, SIGNALED]);
        case.ack(3, 0x00_0009, 0x60);
        case.ack(3, 0x00_0009, 0x60); // nothing new, but not a ghost either
        case.ack(3, 0x00_000B, 0x2E);
        case.ack(3, 0x00_000C, 0x60); // never sent: a ghost
        case.ack(3, 0x00_0008, 0x62); // behind: a ghost that refuses nothing
        case.ack(3, 0x00_000B, 0x9F); // a reserved kind
        case.ack(3, 0x00_000B, 0x1F);
        case.check();
        assert_eq!((case.naks, case.ghosts), (3, 6));

        // One acknowledgement of a whole table, past its end: a request a clock.
        let all = [SIGNALED; 512];
        case.issue(3, &all);
        let psn = case.expected.pairs[3].next_psn + 0xFF_FFFF;
        assert_eq!(case.ack(3, psn, 0x1F), 512 + 4);
        case.check();
        case.issue(3, &[SILENT; 40]);
        let psn = case.expected.pairs[3].next_psn + 0xFF_FFFF;
        case.ack(3, psn, 0x1F);
        case.check();
        case.bench.finish();
    }

    #[test]
    fn the_first_completion_comes_three_clocks_behind_its_acknowledgement() {
        let mut case = Case::new("completer_latency");
        case.quiet();
        case.command(2, false, true, 5);
        case.issue(2, &[SIGNALED]);
        case.clock();
        case.bench.uut.ack.data.next = AckIn { qpn: 2u64.into(), psn: 5u64.into(), syndrome: 0x1Fu64.into() };
        case.bench.uut.ack.valid.next = true;
        case.clock();
        case.bench.uut.ack.valid.next = false;
        let start = case.bench.clock_count() - 1;
        case.expected.ack(2, 5, 0x1F);
        while !case.bench.uut.cqe.valid.val() {
            case.clock();
        }
        assert_eq!(case.bench.clock_count() - start, 3);
        case.check();
        case.bench.finish();
    }

    #[test]
    fn refusals_kill_at_their_place_and_what_is_posted_is_flushed() {
        let mut case = Case::new("completer_refusals");
        case.quiet();
        for (qpn, syndrome) in [(1, 0x61), (2, 0x62), (3, 0x63)] {
            case.command(qpn, false, true, 100);
            let qpn = qpn as usize;
            case.issue(qpn, &[SIGNALED, SILENT, (3, false, 0), SIGNALED]);
            // In the middle of the third: the first two are done, the third is at fault, though silent.
            case.ack(qpn, 103, syndrome);
            case.ack(qpn, 105, 0x1F); // dead: a ghost
            case.look(qpn); // not counted
                            // The fourth was issued, the fifth and sixth never were.
            case.flush(qpn, 6, true);
            case.flush(qpn, 6, true); // nothing left
            case.flush(qpn, 8, true); // posted behind the death
            case.check();
        }
        assert_eq!(case.fatal.got.iter().map(|event| event.code.to_u64()).collect::<Vec<_>>(), [9, 10, 11]);
        assert_eq!(case.ghosts, 3);
        // At the first request, and at the very first PSN.
        case.command(4, false, true, 0);
        case.issue(4, &[SIGNALED]);
        case.ack(4, 0, 0x62);
        // A queue pair that was reset meanwhile is alive: the late flush does nothing.
        case.command(4, true, false, 0);
        case.flush(4, 0, false);
        case.command(4, false, true, 9);
        case.flush(4, 5, false);
        case.issue(4, &[SILENT, SIGNALED]);
        case.ack(4, 9, 0x1F);
        case.ack(4, 10, 0x1F);
        case.check();
        // Killed by command: all that is posted is flushed.
        case.issue(4, &[SIGNALED, SIGNALED]);
        case.flush(4, 7, true);
        case.ack(4, 12, 0x1F);
        case.check();
        case.bench.finish();
    }

    #[test]
    fn a_refused_request_completes_when_all_before_it_are_done() {
        let mut case = Case::new("completer_refused");
        case.quiet();
        // Reached late: the acknowledgement of the last before it finds it in the table.
        case.command(1, false, true, 0);
        case.issue(1, &[SIGNALED, SILENT, REFUSED]);
        case.look(1);
        case.ack(1, 0, 0x1F);
        case.look(1);
        assert!(case.halt.got.is_empty());
        case.ack(1, 1, 0x1F);
        case.check();
        // Reached early: all before it are done when it is issued, so a wish to look again finds it.
        case.command(2, false, true, 0);
        case.issue(2, &[SILENT]);
        case.ack(2, 0, 0x1F);
        case.issue(2, &[(0, false, 2)]);
        case.look(2);
        case.check();
        // Its wish was overwritten by a ghost, which then does the same.
        case.command(3, false, true, 0);
        case.issue(3, &[REFUSED]);
        case.ack(3, 77, 0x62);
        case.check();
        // A sequence NAK that acknowledges all before it.
        case.command(4, false, true, 0);
        case.issue(4, &[(2, false, 0), (1, false, 0), REFUSED]);
        case.ack(4, 2, 0x60);
        case.ack(4, 2, 0x1F);
        case.check();
        assert_eq!(case.halt.got.len(), 4);
        // The wish to look for one queue pair while requests before it are under way tells progress of none.
        case.command(5, false, true, 0);
        case.issue(5, &[SILENT, REFUSED]);
        case.look(5);
        case.check();
        case.bench.finish();
    }

    #[test]
    fn a_queue_pair_whose_time_is_up_restarts_at_its_oldest_packet_or_fails_there() {
        let mut case = Case::new("completer_late");
        case.quiet();
        case.command(3, false, true, 0xFF_FFFE);
        case.is_late(3, 0xFF_FFFE, SEND_AGAIN); // nothing is outstanding
        case.issue(3, &[SIGNALED, (4, false, 0), SILENT]);
        case.is_late(3, 0xFF_FFFE, SEND_AGAIN);
        case.ack(3, 0, 0x1F); // in the middle of the second
        case.is_late(3, 0xFF_FFFE, SEND_AGAIN); // something was acknowledged since the timer looked
        case.is_late(3, 0xFF_FFFE, GIVE_UP);
        case.is_late(3, 1, SEND_AGAIN);
        case.is_late(3, 1, SEND_AGAIN); // it was in vain
        case.check();
        let restart =
            |index: u64, psn: u64, end: u64| Restart { qpn: 3u64.into(), index: index.into(), psn: psn.into(), end_psn: end.into() };
        assert_eq!(case.restart.got, [restart(0, 0xFF_FFFE, 0xFF_FFFF), restart(1, 1, 3), restart(1, 1, 3)]);
        // What is sent again may be acknowledged late, all at once.
        case.ack(3, 3, 0x1F);
        case.issue(3, &[SILENT, SIGNALED]);
        case.is_late(3, 4, GIVE_UP);
        case.is_late(3, 4, SEND_AGAIN); // dead
        case.flush(3, 6, true);
        case.check();
        assert_eq!(case.fatal.got.iter().map(|event| event.code.to_u64()).collect::<Vec<_>>(), [CqeStatus::RetryExceeded as u64]);
        assert_eq!(case.ghosts, 0);
        // A request that was refused comes first, though time is up.
        case.command(4, false, true, 7);
        case.issue(4, &[REFUSED]);
        case.is_late(4, 7, SEND_AGAIN);
        case.check();
        case.bench.finish();
    }

    #[test]
    fn what_is_before_a_refused_request_is_asked_for_once_if_nobody_has() {
        let mut case = Case::new("completer_unasked");
        case.quiet();
        case.command(3, false, true, 5);
        case.issue(3, &[SILENT, (2, false, 0), SILENT, (0, true, UNASKED)]);
        case.ack(3, 5, 0x1F); // the wish to look came too late for its place in the queue, and this one stands for it
        case.look(3);
        case.ack(3, 6, 0x1F);
        case.check();
        let restart =
            |index: u64, psn: u64, end: u64| Restart { qpn: 3u64.into(), index: index.into(), psn: psn.into(), end_psn: end.into() };
        assert_eq!(case.restart.got, [restart(1, 6, 8)]);
        // Lost again: that is the timer's.
        case.is_late(3, 7, SEND_AGAIN);
        case.ack(3, 8, 0x1F);
        case.check();
        assert_eq!((case.restart.got.len(), case.fatal.got.len()), (2, 1));
        // Nothing is before it.
        case.command(4, false, true, 5);
        case.issue(4, &[(0, true, UNASKED)]);
        case.look(4);
        case.check();
        assert_eq!((case.restart.got.len(), case.fatal.got.len()), (2, 2));
        case.bench.finish();
    }

    #[test]
    fn restarts_that_find_no_room_are_left_to_the_timer() {
        let mut case = Case::new("completer_full");
        case.quiet();
        case.command(3, false, true, 5);
        case.issue(3, &[SIGNALED]);
        case.is_shut = true;
        for _ in 0..20 {
            case.bench.uut.ack.data.next = AckIn { qpn: 3u64.into(), psn: 5u64.into(), syndrome: SEND_AGAIN.to_bits() };
            case.bench.uut.ack.valid.next = true;
            case.quiet();
            case.clock();
            case.bench.uut.ack.valid.next = false;
            case.quiet();
        }
        case.is_shut = false;
        (0..40).for_each(|_| case.clock());
        assert_eq!((case.restart.got.len(), case.counted_restarts), (16, 16));
        case.bench.finish();
    }

    #[test]
    fn random_traffic_of_several_queue_pairs_gives_what_a_model_gives_under_stalls_and_after_resets() {
        let mut case = Case::new("completer_random");
        for seed in 1..4 {
            let mut random = Stalls::new(seed);
            for is_cut_short in [true, false] {
                case.reset(|n| Stalls::new(10 * seed + n));
                case.quiet();
                for qpn in 0..4 {
                    case.command(qpn, true, false, 0);
                    case.command(qpn, false, true, (0xFF_FFF0 + random.random() % 32) & 0xFF_FFFF);
                }
                for _ in 0..if is_cut_short { 10 } else { 90 } {
                    let qpn = random.random() as usize % 4;
                    let pair = case.expected.pairs[qpn].clone();
                    let outstanding = pair.next_psn.wrapping_sub(pair.unacked) & 0xFF_FFFF;
                    let is_refused = pair.waiting.back().is_some_and(|request| request.status != 0);
                    match random.random() % 12 {
                        0..=3 if !pair.is_dead && !is_refused => {
                            let refused = (random.random() % 12 == 0).then_some(REFUSED);
                            let requests: Vec<_> = (0..1 + random.random() % 6)
                                .map(|_| (1 + random.random() % 3, random.random() % 3 == 0, 0))
                                .chain(refused)
                                .collect();
                            case.issue(qpn, &requests);
                        }
                        0..=3 if pair.is_dead => {
                            let posted = pair.index + pair.waiting.len() as u64 + random.random() % 3;
                            case.flush(qpn, posted, true);
                            case.command(qpn as u64, true, false, 0);
                            case.command(qpn as u64, false, true, random.random() & 0xFF_FFFF);
                        }
                        4..=7 if outstanding > 0 => {
                            case.ack(qpn, pair.unacked + random.random() % outstanding, 0x1F);
                        }
                        8 => {
                            let psn = pair.unacked + random.random() % (outstanding + 2);
                            let syndrome = [0x60, 0x60, 0x21, 0x61, 0x62, 0x63][random.random() as usize % 6];
                            case.ack(qpn, psn, syndrome);
                        }
                        9 if random.random() % 2 == 0 => {
                            case.ack(qpn, pair.unacked + 0xFF_FFF0 + random.random() % 64, 0x1F);
                        }
                        10 => {
                            let psn = (pair.unacked + 0xFF_FFFF + random.random() % 3) & 0xFF_FFFF;
                            case.is_late(qpn, psn, if random.random() % 4 == 0 { GIVE_UP } else { SEND_AGAIN });
                        }
                        _ => case.look(qpn),
                    }
                }
                if !is_cut_short {
                    case.check();
                }
            }
        }
        case.bench.finish();
    }
}
