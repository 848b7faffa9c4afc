//! Writes completion entries, watches for overrun, and turns armed completions into events.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `cqe` | sink | completions |
//! | `bell` | sink | consumer indices, arms and moderations |
//! | `cq_write` | in | one clock: this queue begins or ends, its state starts from nothing |
//! | `req`, `line` | source | one write of 32 bytes for every entry |
//! | `done` | in | one clock for every such write that is visible to the host, in order |
//! | `event_out` | source | completion and overrun events |
//! | `visible` | out | each entry that is visible to the host now |
//! | `moderation` | out | moderations of queues that exist |
//! | `overrun`, `overrun_cqn` | out | one clock: this queue is dead, and so are its QPs |
//! | `query_cqn`, `q_*` | in, out | state of a queue, one clock later |
//! | `entered`, `finished` | out | free-running counts of entries written and done |
//! | `count_*` | out | one clock for an entry written, an entry lost, a doorbell dropped |
//!
//! Latency: three or four clocks from `cqe` to `req`. Throughput: one entry every two clocks, and beside it one doorbell
//! every two clocks; neither slows the other.
//!
//! Time goes in turns of two clocks. In the first ("look") the state of one entry's queue and of one bell's
//! queue is read; in the second ("act") both are judged and written back, so that the next look finds it.
//! Every memory has one writer. Where bell and entry of a turn are of the same queue the bell counts as the
//! earlier one. An arm is a toggle that bells write (`arms`), compared with a toggle that entries write
//! (`states`): the queue is armed while they differ.
//!
//! **Visibility.** Each write leaves a mark in a FIFO of 256, and so does each event. A write's mark is taken off by
//! `done`, an event's mark when it is at the head; so an event follows every entry written before it.
//! When 252 marks are held, entries and bells wait for `done`, which always comes.
//!
//! **Overrun.** An entry that finds `producer - consumer` at the depth is lost, the queue is dead until it is
//! created again, and one event tells. Entries of a queue that is dead or does not exist are lost; all are counted.
//!
//! **Arms.** `ANY` fires at once if an entry was written since the index in the arm, `ERRORS` and `SOLICITED`
//! if an entry with an error status was: the index behind the newest such entry is kept. (No entry of this build is
//! solicited.) After 2^23 entries without another one an old error can be taken for a new one: an event too many,
//! never one too few. An arm of `ANY` that has not fired is not weakened by a later one. A dead queue is not armed.
//!
//! A consumer index beyond the producer, or more than the depth behind it, is dropped and counted, as is a bell
//! of a queue that does not exist.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_QPS};
use verbena_abi::queue::PHASE;
use verbena_abi::regs::ArmKind;

use crate::bus::{CqBell, CqEntry, CqEvent, CqModeration, CqVisible, CqWrite, CqeReq, Cqn, Line, StreamSink, StreamSource, WriteReq};
use crate::prim::{Fifo, Ram};

/// What does not change while a queue lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Place {
    valid: Bit,
    address: Bits<64>,
    /// Number of entries, less one.
    mask: Bits<16>,
}

/// What entries change.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct CqState {
    producer: Bits<24>,
    /// Index behind the newest entry with an error status.
    error_mark: Bits<24>,
    has_error: Bit,
    is_dead: Bit,
    /// As in [`Arm`] when the last arm fired.
    toggle: Bit,
}

/// What arms change.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Arm {
    toggle: Bit,
    any: Bit,
}

/// A write that is under way, or an event that waits for the writes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Mark {
    cqn: Cqn,
    is_write: Bit,
    fires: Bit,
    is_overrun: Bit,
    /// Of the entry, or in the arm.
    index: Bits<24>,
}

/// Completion queue writer.
#[derive(LogicBlock)]
pub struct CqeWriter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub cqe: StreamSink<CqeReq>,
    pub bell: StreamSink<CqBell>,
    pub cq_write: Signal<In, CqWrite>,
    pub req: StreamSource<WriteReq>,
    pub line: StreamSource<Line>,
    pub done: Signal<In, Bit>,
    pub event_out: StreamSource<CqEvent>,
    pub visible: Signal<Out, CqVisible>,
    pub moderation: Signal<Out, CqModeration>,
    pub overrun: Signal<Out, Bit>,
    pub overrun_cqn: Signal<Out, Cqn>,
    pub query_cqn: Signal<In, Cqn>,
    pub q_producer: Signal<Out, Bits<24>>,
    pub q_consumer: Signal<Out, Bits<24>>,
    pub q_overrun: Signal<Out, Bit>,
    pub entered: Signal<Out, Bits<16>>,
    pub finished: Signal<Out, Bits<16>>,
    pub count_cqe: Signal<Out, Bit>,
    pub count_overrun: Signal<Out, Bit>,
    pub count_bad_bell: Signal<Out, Bit>,

    bells: Fifo<CqBell, 2, 3>,
    reqs: Fifo<WriteReq, 2, 3>,
    lines: Fifo<Line, 2, 3>,
    marks: Fifo<Mark, 8, 9>,
    events: Fifo<CqEvent, 2, 3>,
    is_act: DFF<Bit>,
    has_room: DFF<Bit>,

    // A queue that begins waits for the next look, where no state is written.
    change: DFF<CqWrite>,
    changes: DFF<Bit>,
    change_entry: Signal<Local, CqEntry>,
    change_log: Signal<Local, Bits<5>>,
    held_change: Signal<Local, CqWrite>,
    shifted: Signal<Local, Bits<17>>,
    change_mask: Signal<Local, Bits<17>>,
    change_cqn: Signal<Local, Cqn>,
    change_valid: Signal<Local, Bit>,
    begins: Signal<Local, Bit>,

    // State, each twice or thrice: one copy for each that reads it.
    places: Ram<Place, { limits::LOG_CQS }>,
    places_bell: Ram<Place, { limits::LOG_CQS }>,
    states: Ram<CqState, { limits::LOG_CQS }>,
    states_bell: Ram<CqState, { limits::LOG_CQS }>,
    states_query: Ram<CqState, { limits::LOG_CQS }>,
    consumers: Ram<Bits<24>, { limits::LOG_CQS }>,
    consumers_query: Ram<Bits<24>, { limits::LOG_CQS }>,
    arms: Ram<Arm, { limits::LOG_CQS }>,
    arms_bell: Ram<Arm, { limits::LOG_CQS }>,

    // The entry of this turn.
    is_entry: DFF<Bit>,
    entry: DFF<CqeReq>,
    entry_cqn: Signal<Local, Cqn>,
    place: Signal<Local, Place>,
    cq_state: Signal<Local, CqState>,
    consumer: Signal<Local, Bits<24>>,
    arm: Signal<Local, Arm>,
    producer: Signal<Local, Bits<24>>,
    used: Signal<Local, Bits<24>>,
    mask: Signal<Local, Bits<24>>,
    depth: Signal<Local, Bits<24>>,
    is_full: Signal<Local, Bit>,
    is_alive: Signal<Local, Bit>,
    is_written: Signal<Local, Bit>,
    is_error: Signal<Local, Bit>,
    fires: Signal<Local, Bit>,
    arm_now: Signal<Local, Arm>,
    is_same: Signal<Local, Bit>,
    writes_state: Signal<Local, Bit>,

    // The bell of this turn.
    is_bell: DFF<Bit>,
    rung: DFF<CqBell>,
    rung_cqn: Signal<Local, Cqn>,
    index: Signal<Local, Bits<24>>,
    bell_place: Signal<Local, Place>,
    bell_state: Signal<Local, CqState>,
    bell_arm: Signal<Local, Arm>,
    bell_mask: Signal<Local, Bits<24>>,
    bell_depth: Signal<Local, Bits<24>>,
    behind: Signal<Local, Bits<24>>,
    since_error: Signal<Local, Bits<24>>,
    beyond: Signal<Local, Bits<24>>,
    is_error_new: Signal<Local, Bit>,
    is_any: Signal<Local, Bit>,
    is_arm: Signal<Local, Bit>,
    is_moderation: Signal<Local, Bit>,
    frees: Signal<Local, Bit>,
    is_known: Signal<Local, Bit>,
    is_possible: Signal<Local, Bit>,
    fires_now: Signal<Local, Bit>,
    was_armed: Signal<Local, Bit>,
    new_arm: Signal<Local, Arm>,
    arm_is_set: Signal<Local, Bit>,

    // The entry on its way out, one clock behind its act.
    goes_out: DFF<Bit>,
    out_address: DFF<Bits<64>>,
    out_slot: DFF<Bits<16>>,
    out_phase: DFF<Bit>,
    out_words: DFF<Bits<64>>,
    out_syndrome: DFF<Bits<8>>,
    out_mark: DFF<Mark>,
    marks_out: DFF<Bit>,
    words: Signal<Local, Bits<64>>,
    half: Signal<Local, Bits<256>>,

    // The marks.
    credits: DFF<Bits<9>>,
    head: DFF<Mark>,
    has_head: DFF<Bit>,
    takes: Signal<Local, Bit>,
    events_open: DFF<Bit>,
    entered_count: DFF<Bits<16>>,
    finished_count: DFF<Bits<16>>,
    is_lost: DFF<Bit>,
    is_overrun: DFF<Bit>,
    overrun_number: DFF<Cqn>,
    is_bad_bell: DFF<Bit>,
    last_visible: DFF<CqVisible>,
    last_moderation: DFF<CqModeration>,

    ones: Constant<Bits<17>>,
    entry_bytes: Constant<Bits<13>>,
    phase_bit: Constant<Bits<256>>,
    any_kind: Constant<Bits<2>>,
    mark_room: Constant<Bits<9>>,
    skid_room: Constant<Bits<3>>,
    no_state: Constant<CqState>,
    no_arm: Constant<Arm>,
    no_mark: Constant<Mark>,
    no_line: Constant<Line>,
}

const _: () = assert!(limits::LOG_CQ_DEPTH == 16, "masks and slots have 16 bits");

impl Default for CqeWriter {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            cqe: Default::default(),
            bell: Default::default(),
            cq_write: Default::default(),
            req: Default::default(),
            line: Default::default(),
            done: Default::default(),
            event_out: Default::default(),
            visible: Default::default(),
            moderation: Default::default(),
            overrun: Default::default(),
            overrun_cqn: Default::default(),
            query_cqn: Default::default(),
            q_producer: Default::default(),
            q_consumer: Default::default(),
            q_overrun: Default::default(),
            entered: Default::default(),
            finished: Default::default(),
            count_cqe: Default::default(),
            count_overrun: Default::default(),
            count_bad_bell: Default::default(),
            bells: Default::default(),
            reqs: Default::default(),
            lines: Default::default(),
            marks: Default::default(),
            events: Default::default(),
            is_act: Default::default(),
            has_room: Default::default(),
            change: Default::default(),
            changes: Default::default(),
            change_entry: Default::default(),
            change_log: Default::default(),
            held_change: Default::default(),
            shifted: Default::default(),
            change_mask: Default::default(),
            change_cqn: Default::default(),
            change_valid: Default::default(),
            begins: Default::default(),
            places: Default::default(),
            places_bell: Default::default(),
            states: Default::default(),
            states_bell: Default::default(),
            states_query: Default::default(),
            consumers: Default::default(),
            consumers_query: Default::default(),
            arms: Default::default(),
            arms_bell: Default::default(),
            is_entry: Default::default(),
            entry: Default::default(),
            entry_cqn: Default::default(),
            place: Default::default(),
            cq_state: Default::default(),
            consumer: Default::default(),
            arm: Default::default(),
            producer: Default::default(),
            used: Default::default(),
            mask: Default::default(),
            depth: Default::default(),
            is_full: Default::default(),
            is_alive: Default::default(),
            is_written: Default::default(),
            is_error: Default::default(),
            fires: Default::default(),
            arm_now: Default::default(),
            is_same: Default::default(),
            writes_state: Default::default(),
            is_bell: Default::default(),
            rung: Default::default(),
            rung_cqn: Default::default(),
            index: Default::default(),
            bell_place: Default::default(),
            bell_state: Default::default(),
            bell_arm: Default::default(),
            bell_mask: Default::default(),
            bell_depth: Default::default(),
            behind: Default::default(),
            since_error: Default::default(),
            beyond: Default::default(),
            is_error_new: Default::default(),
            is_any: Default::default(),
            is_arm: Default::default(),
            is_moderation: Default::default(),
            frees: Default::default(),
            is_known: Default::default(),
            is_possible: Default::default(),
            fires_now: Default::default(),
            was_armed: Default::default(),
            new_arm: Default::default(),
            arm_is_set: Default::default(),
            goes_out: Default::default(),
            out_address: Default::default(),
            out_slot: Default::default(),
            out_phase: Default::default(),
            out_words: Default::default(),
            out_syndrome: Default::default(),
            out_mark: Default::default(),
            marks_out: Default::default(),
            words: Default::default(),
            half: Default::default(),
            credits: Default::default(),
            head: Default::default(),
            has_head: Default::default(),
            takes: Default::default(),
            events_open: Default::default(),
            entered_count: Default::default(),
            finished_count: Default::default(),
            is_lost: Default::default(),
            is_overrun: Default::default(),
            overrun_number: Default::default(),
            is_bad_bell: Default::default(),
            last_visible: Default::default(),
            last_moderation: Default::default(),
            ones: Constant::new(0x1_FFFFu32.to_bits()),
            entry_bytes: Constant::new(32u32.to_bits()),
            phase_bit: Constant::new(Bits::<256>::from(u64::from(PHASE)) << 248),
            any_kind: Constant::new((ArmKind::Any as u32).to_bits()),
            mark_room: Constant::new(252u32.to_bits()),
            skid_room: Constant::new(2u32.to_bits()),
            no_state: Constant::new(CqState::default()),
            no_arm: Constant::new(Arm::default()),
            no_mark: Constant::new(Mark::default()),
            no_line: Constant::new(Line::default()),
        }
    }
}

impl Logic for CqeWriter {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_act, has_room, change, changes, is_entry, entry, is_bell, rung);
        dff_setup!(self, clock, goes_out, out_address, out_slot, out_phase, out_words, out_syndrome, out_mark, marks_out);
        dff_setup!(self, clock, head, has_head, credits, events_open, entered_count, finished_count, is_lost, is_overrun, overrun_number);
        dff_setup!(self, clock, is_bad_bell, last_visible, last_moderation);
        clock!(self, clock, bells, reqs, lines, marks, events, places, places_bell, states, states_bell);
        clock!(self, clock, states_query, consumers, consumers_query, arms, arms_bell);
        self.bells.reset.next = self.reset.val();
        self.reqs.reset.next = self.reset.val();
        self.lines.reset.next = self.reset.val();
        self.marks.reset.next = self.reset.val();
        self.events.reset.next = self.reset.val();

        self.bells.fill.data.next = self.bell.data.val();
        self.bells.fill.valid.next = self.bell.valid.val();
        self.bell.ready.next = self.bells.fill.ready.val();
        self.req.data.next = self.reqs.drain.data.val();
        self.req.valid.next = self.reqs.drain.valid.val();
        self.reqs.drain.ready.next = self.req.ready.val();
        self.line.data.next = self.lines.drain.data.val();
        self.line.valid.next = self.lines.drain.valid.val();
        self.lines.drain.ready.next = self.line.ready.val();
        self.event_out.data.next = self.events.drain.data.val();
        self.event_out.valid.next = self.events.drain.valid.val();
        self.events.drain.ready.next = self.event_out.ready.val();

        // A queue begins or ends.
        self.held_change.next = self.change.q.val();
        self.change_cqn.next = self.held_change.val().cqn;
        self.change_entry.next = self.held_change.val().entry;
        self.change_valid.next = self.change_entry.val().valid;
        self.change_log.next = self.change_entry.val().log_depth;
        self.shifted.next = self.ones.val() << self.change_log.val();
        self.change_mask.next = !self.shifted.val();
        self.begins.next = self.changes.q.val() & self.change_valid.val() & !self.is_act.q.val();
        if self.changes.q.val() & (!self.is_act.q.val() | !self.change_valid.val()) {
            self.changes.d.next = false;
        }
        if self.cq_write.val().valid {
            self.changes.d.next = true;
            self.change.d.next = self.cq_write.val();
        }
        self.places.write_enable.next = self.begins.val() | (self.changes.q.val() & !self.change_valid.val());
        self.places.write_address.next = self.change_cqn.val();
        self.places.write_data.next.valid = self.change_valid.val();
        self.places.write_data.next.address = self.change_entry.val().address;
        self.places.write_data.next.mask = self.change_mask.val().get_bits::<16>(0);
        self.places_bell.write_enable.next = self.places.write_enable.val();
        self.places_bell.write_address.next = self.places.write_address.val();
        self.places_bell.write_data.next = self.places.write_data.val();

        // Look.
        self.is_act.d.next = !self.is_act.q.val();
        self.has_room.d.next = (self.marks.level.val() < self.mark_room.val())
            & (self.reqs.level.val() < self.skid_room.val())
            & (self.lines.level.val() < self.skid_room.val());
        self.entry_cqn.next = self.cqe.data.val().cqn;
        self.rung_cqn.next = self.bells.drain.data.val().cqn;
        self.places.read_address.next = self.entry_cqn.val();
        self.states.read_address.next = self.entry_cqn.val();
        self.consumers.read_address.next = self.entry_cqn.val();
        self.arms.read_address.next = self.entry_cqn.val();
        self.places_bell.read_address.next = self.rung_cqn.val();
        self.states_bell.read_address.next = self.rung_cqn.val();
        self.arms_bell.read_address.next = self.rung_cqn.val();
        // In the clock of the act, the memories answer what the look has asked.
        self.place.next = self.places.read_data.val();
        self.cq_state.next = self.states.read_data.val();
        self.consumer.next = self.consumers.read_data.val();
        self.arm.next = self.arms.read_data.val();
        self.bell_place.next = self.places_bell.read_data.val();
        self.bell_state.next = self.states_bell.read_data.val();
        self.bell_arm.next = self.arms_bell.read_data.val();
        self.is_entry.d.next = false;
        self.is_bell.d.next = false;
        self.cqe.ready.next = !self.is_act.q.val() & self.has_room.q.val();
        self.bells.drain.ready.next = !self.is_act.q.val() & self.has_room.q.val();
        if !self.is_act.q.val() {
            self.entry.d.next = self.cqe.data.val();
            self.rung.d.next = self.bells.drain.data.val();
            self.is_entry.d.next = self.cqe.valid.val() & self.has_room.q.val();
            self.is_bell.d.next = self.bells.drain.valid.val() & self.has_room.q.val();
        }

        // Act, the bell.
        self.index.next = self.rung.q.val().index;
        self.is_arm.next = self.rung.q.val().is_arm;
        self.is_moderation.next = self.rung.q.val().is_moderation;
        self.frees.next = !self.is_arm.val() & !self.is_moderation.val();
        self.is_any.next = self.rung.q.val().kind == self.any_kind.val();
        self.is_known.next = self.is_bell.q.val() & self.bell_place.val().valid;
        self.bell_mask.next = bit_cast::<24, 16>(self.bell_place.val().mask);
        self.bell_depth.next = self.bell_mask.val() + 1;
        self.behind.next = self.bell_state.val().producer - self.index.val();
        self.since_error.next = self.bell_state.val().error_mark - self.index.val();
        // The same as `behind <= depth`, without a second carry chain behind that of `behind`.
        self.beyond.next = self.behind.val() & !self.bell_mask.val();
        self.is_possible.next = (self.beyond.val() == 0) | (self.behind.val() == self.bell_depth.val());
        self.was_armed.next = self.bell_arm.val().toggle ^ self.bell_state.val().toggle;
        self.is_error_new.next = self.bell_state.val().has_error & (self.since_error.val() != 0) & !self.since_error.val().get_bit(23);
        self.fires_now.next = (self.is_any.val() & (self.behind.val() != 0)) | self.is_error_new.val();
        self.arm_is_set.next = self.is_known.val() & self.is_arm.val() & !self.bell_state.val().is_dead;
        self.new_arm.next.toggle = self.bell_state.val().toggle ^ !self.fires_now.val();
        self.new_arm.next.any = self.is_any.val() | (self.was_armed.val() & self.bell_arm.val().any);
        self.arms.write_enable.next = self.arm_is_set.val();
        self.arms.write_address.next = self.rung.q.val().cqn;
        self.arms.write_data.next = self.new_arm.val();
        self.consumers.write_enable.next = self.is_known.val() & self.frees.val() & self.is_possible.val();
        self.consumers.write_address.next = self.rung.q.val().cqn;
        self.consumers.write_data.next = self.index.val();
        self.is_bad_bell.d.next = self.is_bell.q.val() & (!self.is_known.val() | (self.frees.val() & !self.is_possible.val()));
        self.last_moderation.d.next.valid = self.is_known.val() & self.is_moderation.val();
        self.last_moderation.d.next.cqn = self.rung.q.val().cqn;
        self.last_moderation.d.next.interval = self.index.val().get_bits::<16>(0);
        self.last_moderation.d.next.count = self.rung.q.val().count;
        self.moderation.next = self.last_moderation.q.val();

        // Act, the entry.
        self.is_same.next = self.arm_is_set.val() & (self.rung.q.val().cqn == self.entry.q.val().cqn);
        self.arm_now.next = self.arm.val();
        if self.is_same.val() {
            self.arm_now.next = self.new_arm.val();
        }
        self.producer.next = self.cq_state.val().producer;
        self.mask.next = bit_cast::<24, 16>(self.place.val().mask);
        self.depth.next = self.mask.val() + 1;
        self.used.next = self.producer.val() - self.consumer.val();
        self.is_full.next = (self.used.val() & self.depth.val()) != 0;
        self.is_alive.next = self.is_entry.q.val() & self.place.val().valid & !self.cq_state.val().is_dead;
        self.is_written.next = self.is_alive.val() & !self.is_full.val();
        self.is_error.next = self.entry.q.val().status != 0;
        self.fires.next = self.is_written.val()
            & (self.arm_now.val().toggle ^ self.cq_state.val().toggle)
            & (self.arm_now.val().any | self.is_error.val());
        self.writes_state.next = self.is_alive.val();
        self.states.write_enable.next = self.writes_state.val();
        self.states.write_address.next = self.entry.q.val().cqn;
        self.states.write_data.next = self.cq_state.val();
        if self.is_written.val() {
            self.states.write_data.next.producer = self.producer.val() + 1;
            if self.is_error.val() {
                self.states.write_data.next.error_mark = self.producer.val() + 1;
                self.states.write_data.next.has_error = true;
            }
            if self.fires.val() {
                self.states.write_data.next.toggle = self.arm_now.val().toggle;
            }
        } else {
            self.states.write_data.next.is_dead = true;
        }
        self.is_lost.d.next = self.is_entry.q.val() & !self.is_written.val();
        self.is_overrun.d.next = self.is_alive.val() & self.is_full.val();
        self.overrun_number.d.next = self.entry.q.val().cqn;
        self.overrun.next = self.is_overrun.q.val();
        self.overrun_cqn.next = self.overrun_number.q.val();
        self.count_overrun.next = self.is_lost.q.val();
        self.count_bad_bell.next = self.is_bad_bell.q.val();

        // A queue that begins has nothing of an earlier life.
        if self.begins.val() {
            self.states.write_enable.next = true;
            self.states.write_address.next = self.change_cqn.val();
            self.states.write_data.next = self.no_state.val();
            self.arms.write_enable.next = true;
            self.arms.write_address.next = self.change_cqn.val();
            self.arms.write_data.next = self.no_arm.val();
            self.consumers.write_enable.next = true;
            self.consumers.write_address.next = self.change_cqn.val();
            self.consumers.write_data.next = 0.into();
        }
        self.states_bell.write_enable.next = self.states.write_enable.val();
        self.states_bell.write_address.next = self.states.write_address.val();
        self.states_bell.write_data.next = self.states.write_data.val();
        self.states_query.write_enable.next = self.states.write_enable.val();
        self.states_query.write_address.next = self.states.write_address.val();
        self.states_query.write_data.next = self.states.write_data.val();
        self.arms_bell.write_enable.next = self.arms.write_enable.val();
        self.arms_bell.write_address.next = self.arms.write_address.val();
        self.arms_bell.write_data.next = self.arms.write_data.val();
        self.consumers_query.write_enable.next = self.consumers.write_enable.val();
        self.consumers_query.write_address.next = self.consumers.write_address.val();
        self.consumers_query.write_data.next = self.consumers.write_data.val();

        // Out, in the clock of the next look.
        self.goes_out.d.next = self.is_written.val();
        self.out_address.d.next = self.place.val().address;
        self.out_slot.d.next = self.producer.val().get_bits::<16>(0) & self.place.val().mask;
        self.out_phase.d.next = (self.producer.val() & self.depth.val()) == 0;
        self.words.next = bit_cast::<64, LOG_QPS>(self.entry.q.val().qpn)
            | (bit_cast::<64, 16>(self.entry.q.val().index) << 32)
            | (bit_cast::<64, 8>(self.entry.q.val().status) << 48)
            | (bit_cast::<64, 8>(self.entry.q.val().opcode) << 56);
        self.out_words.d.next = self.words.val();
        self.out_syndrome.d.next = self.entry.q.val().syndrome;
        self.marks_out.d.next = self.is_alive.val();
        self.out_mark.d.next.cqn = self.entry.q.val().cqn;
        self.out_mark.d.next.is_write = self.is_written.val();
        self.out_mark.d.next.fires = self.fires.val() | self.is_full.val();
        self.out_mark.d.next.is_overrun = self.is_full.val();
        self.out_mark.d.next.index = self.producer.val();

        self.half.next = bit_cast::<256, 64>(self.out_words.q.val()) | (bit_cast::<256, 8>(self.out_syndrome.q.val()) << 64);
        if self.out_phase.q.val() {
            self.half.next = self.half.val() | self.phase_bit.val();
        }
        self.reqs.fill.valid.next = self.goes_out.q.val();
        self.reqs.fill.data.next.addr = self.out_address.q.val() + (bit_cast::<64, 16>(self.out_slot.q.val()) << 5);
        self.reqs.fill.data.next.len = self.entry_bytes.val();
        // Both halves of the line hold the entry: the range of the request says which one is written.
        self.lines.fill.valid.next = self.goes_out.q.val();
        self.lines.fill.data.next = self.no_line.val();
        self.lines.fill.data.next.data = bit_cast::<512, 256>(self.half.val()) | (bit_cast::<512, 256>(self.half.val()) << 256);
        self.lines.fill.data.next.last = true;
        self.count_cqe.next = self.goes_out.q.val();

        // An arm's mark goes in with its act, an entry's one clock later: never both at once.
        self.marks.fill.valid.next = self.marks_out.q.val();
        self.marks.fill.data.next = self.out_mark.q.val();
        if self.is_act.q.val() {
            self.marks.fill.valid.next = self.arm_is_set.val() & self.fires_now.val();
            self.marks.fill.data.next = self.no_mark.val();
            self.marks.fill.data.next.cqn = self.rung.q.val().cqn;
            self.marks.fill.data.next.fires = true;
            self.marks.fill.data.next.index = self.index.val();
        }
        self.events_open.d.next = self.events.level.val() < self.skid_room.val();
        self.takes.next = self.has_head.q.val()
            & (!self.head.q.val().is_write | (self.credits.q.val() != 0))
            & (!self.head.q.val().fires | self.events_open.q.val());
        // The same again, so that no signal joins the way of `ready` with the way of `valid`.
        self.marks.drain.ready.next = !self.has_head.q.val()
            | ((!self.head.q.val().is_write | (self.credits.q.val() != 0)) & (!self.head.q.val().fires | self.events_open.q.val()));
        if !self.has_head.q.val() | self.takes.val() {
            self.has_head.d.next = self.marks.drain.valid.val();
            self.head.d.next = self.marks.drain.data.val();
        }
        self.events.fill.valid.next = self.takes.val() & self.head.q.val().fires;
        self.events.fill.data.next.cqn = self.head.q.val().cqn;
        self.events.fill.data.next.is_overrun = self.head.q.val().is_overrun;
        self.events.fill.data.next.index = self.head.q.val().index;
        self.last_visible.d.next.valid = self.takes.val() & self.head.q.val().is_write;
        self.last_visible.d.next.cqn = self.head.q.val().cqn;
        self.last_visible.d.next.index = self.head.q.val().index + 1;
        self.visible.next = self.last_visible.q.val();
        if self.done.val() & !(self.takes.val() & self.head.q.val().is_write) {
            self.credits.d.next = self.credits.q.val() + 1;
        }
        if !self.done.val() & self.takes.val() & self.head.q.val().is_write {
            self.credits.d.next = self.credits.q.val() - 1;
        }
        if self.goes_out.q.val() {
            self.entered_count.d.next = self.entered_count.q.val() + 1;
        }
        if self.done.val() {
            self.finished_count.d.next = self.finished_count.q.val() + 1;
        }
        self.entered.next = self.entered_count.q.val();
        self.finished.next = self.finished_count.q.val();

        self.states_query.read_address.next = self.query_cqn.val();
        self.consumers_query.read_address.next = self.query_cqn.val();
        self.q_producer.next = self.states_query.read_data.val().producer;
        self.q_overrun.next = self.states_query.read_data.val().is_dead;
        self.q_consumer.next = self.consumers_query.read_data.val();

        if self.reset.val() {
            self.is_act.d.next = false;
            self.has_room.d.next = false;
            self.changes.d.next = false;
            self.is_entry.d.next = false;
            self.is_bell.d.next = false;
            self.goes_out.d.next = false;
            self.marks_out.d.next = false;
            self.credits.d.next = 0.into();
            self.has_head.d.next = false;
            self.events_open.d.next = false;
            self.entered_count.d.next = 0.into();
            self.finished_count.d.next = 0.into();
            self.is_lost.d.next = false;
            self.is_overrun.d.next = false;
            self.is_bad_bell.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
