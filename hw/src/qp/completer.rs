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
//! | `progress` | source | send queues whose last done requests were silent, and each queue every 16,384 requests |
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
//! A flush goes as far as the newest doorbell says, by a queue's depth at most. An index that is behind what is done, or further ahead than a queue
//! is deep, flushes nothing: a doorbell of another processor may be late and take the index back, until the driver rings for the
//! later one again ([`Doorbell::Sq`]).
//!
//! [`Doorbell::Sq`]: verbena_abi::regs::Doorbell::Sq
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
    index_before: Signal<Local, Bits<16>>,
    passed: Signal<Local, Bits<16>>,
    tells: Signal<Local, Bit>,
    is_rnr: Signal<Local, Bit>,
    is_fatal_nak: Signal<Local, Bit>,
    behind_psn: Signal<Local, Bits<24>>,
    distance: Signal<Local, Bits<24>>,
    outstanding: Signal<Local, Bits<24>>,
    nak_status: Signal<Local, Bits<8>>,
    entry: Signal<Local, Entry>,
    margin: Signal<Local, Bits<24>>,
    is_known: Signal<Local, Bit>,
    to_flush: Signal<Local, Bits<16>>,
    is_posted: Signal<Local, Bit>,
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
    depth: Constant<Bits<16>>,
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
            index_before: Default::default(),
            passed: Default::default(),
            tells: Default::default(),
            is_rnr: Default::default(),
            is_fatal_nak: Default::default(),
            behind_psn: Default::default(),
            distance: Default::default(),
            outstanding: Default::default(),
            nak_status: Default::default(),
            entry: Default::default(),
            margin: Default::default(),
            is_known: Default::default(),
            to_flush: Default::default(),
            is_posted: Default::default(),
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
            depth: Constant::new(limits::SQ_DEPTH.to_bits()),
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
        self.to_flush.next = self.producer.val() - self.index.q.val();
        self.is_posted.next = self.to_flush.val().any() & (self.to_flush.val() <= self.depth.val());
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
        // The record is written for silent requests, and each 16,384 requests at least: its 16 bits must not be a lap old.
        self.index_before.next = self.loaded.val().index;
        self.passed.next = self.index_before.val() ^ self.index.q.val();
        self.tells.next = self.is_silent.q.val() | (self.passed.val().get_bit(14) & !self.has_died.q.val() & !self.is_flush.q.val());

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
                if !self.is_posted.val() {
                    self.state.d.next = State::Store;
                } else {
                    self.cqes.fill.valid.next = true;
                    self.cqes.fill.data.next.status = self.flushed.val();
                    self.advance.next = self.cqes.fill.ready.val();
                }
            }
            State::Store => {
                if self.progresses.fill.ready.val() | !self.tells.val() {
                    self.progresses.fill.valid.next = self.tells.val();
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
mod tests;
