//! Decides what becomes of a checked packet, by the state of its QP.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `checked`, `checked_valid` | in | packets; those of one QP at least two clocks apart |
//! | `peek_qpn` | in | the QP of the packet that may come in the next clock |
//! | `mr_write`, `life` | in | broadcast to the table of registrations |
//! | `action`, `ack`, `ack_in`, `refusal` with `_valid` | out | for one clock each; the user has room |
//! | `count_*` | out | pulses |
//! | `query_qpn`, `query_*` | in, out | the state of a QP, one clock later |
//! | `ready` | out | low while the states are cleared after a reset, as many clocks as there are most objects of a kind |
//!
//! Latency: [`Decide::LATENCY`] clocks from `checked` to what comes of it. Throughput: a packet every
//! clock, of one QP every two: the state is asked for a clock before the packet, compared in its first clock and
//! written in its second, in which the outcome is there too, without a register of its own: it goes into FIFOs.
//!
//! The rules are those of rocev2.md 9, in its order. Three things are worth a word:
//!
//! - A NAK 0x60 goes out once, until the expected packet comes. Acknowledgements of duplicates in the
//!   meantime are marked weak, so that they can't displace that NAK while it is queued.
//! - After NAK 0x61 or 0x62 the QP is dead for the responder: everything for it is dropped until its
//!   state starts anew.
//! - A Middle or Last is written only if its message's region is still the registration that First
//!   was checked against (`life`); otherwise it is refused with 0x62.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_MRS, LOG_QPS};

use super::{AckRecord, Checked, RxAction};
use crate::bus::{AckIn, EventReq, MrEntry, MrIndex, MrWrite, Qpn};
use crate::prim::Ram;
use verbena_abi::queue::EventKind;

/// The responder's state of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct RxState {
    expected_psn: Bits<24>,
    msn: Bits<24>,
    is_busy: Bit,
    nak_sent: Bit,
    is_dead: Bit,
    // Of the message in progress: bus address of the next byte, bytes to come, region.
    cursor: Bits<64>,
    left: Bits<32>,
    mr_index: MrIndex,
    life: Bits<40>,
}

/// What can be queried.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct QueryRow {
    expected_psn: Bits<24>,
    msn: Bits<24>,
    is_dead: Bit,
}

/// A registration of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct LifeRow {
    valid: Bit,
    life: Bits<40>,
}

/// Read-modify-write of the responder's state.
#[derive(LogicBlock)]
pub struct Decide {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub checked: Signal<In, Checked>,
    pub checked_valid: Signal<In, Bit>,
    pub peek_qpn: Signal<In, Qpn>,
    pub mr_write: Signal<In, MrWrite>,
    pub life: Signal<In, Bits<40>>,
    pub action: Signal<Out, RxAction>,
    pub action_valid: Signal<Out, Bit>,
    pub ack: Signal<Out, AckRecord>,
    pub ack_valid: Signal<Out, Bit>,
    pub ack_in: Signal<Out, AckIn>,
    pub ack_in_valid: Signal<Out, Bit>,
    pub refusal: Signal<Out, EventReq>,
    pub refusal_valid: Signal<Out, Bit>,
    pub count_requests: Signal<Out, Bit>,
    pub count_duplicates: Signal<Out, Bit>,
    pub count_out_of_order: Signal<Out, Bit>,
    pub count_no_qp: Signal<Out, Bit>,
    pub count_not_executed: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_expected_psn: Signal<Out, Bits<24>>,
    pub query_msn: Signal<Out, Bits<24>>,
    pub query_dead: Signal<Out, Bit>,

    states: Ram<RxState, { limits::LOG_QPS }>,
    queries: Ram<QueryRow, { limits::LOG_QPS }>,
    // What was written while the memory was asked for it.
    is_passed: DFF<Bit>,
    passed: DFF<RxState>,
    lives: Ram<LifeRow, { limits::LOG_MRS }>,
    cleared: DFF<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    is_clear: Signal<Local, Bit>,
    entry: Signal<Local, MrEntry>,

    // First clock: read and compare.
    row: Signal<Local, RxState>,
    wide_len: Signal<Local, Bits<32>>,
    gap: Signal<Local, Bits<24>>,
    packet: DFF<Checked>,
    packet_valid: DFF<Bit>,
    state: DFF<RxState>,
    is_expected: DFF<Bit>,
    is_ahead: DFF<Bit>,
    ends_exactly: DFF<Bit>,
    leaves_more: DFF<Bit>,

    // Second clock: decide and write.
    is_dead: Signal<Local, Bit>,
    is_live: Signal<Local, Bit>,
    expected: Signal<Local, Bit>,
    ahead: Signal<Local, Bit>,
    behind: Signal<Local, Bit>,
    begins: Signal<Local, Bit>,
    completes: Signal<Local, Bit>,
    in_sequence: Signal<Local, Bit>,
    is_permitted: Signal<Local, Bit>,
    accepts: Signal<Local, Bit>,
    refuses: Signal<Local, Bit>,
    writes: Signal<Local, Bit>,
    updates: Signal<Local, Bit>,
    long_len: Signal<Local, Bits<64>>,
    message_len: Signal<Local, Bits<32>>,
    address: Signal<Local, Bits<64>>,
    next_psn: Signal<Local, Bits<24>>,
    past_psn: Signal<Local, Bits<24>>,
    next_msn: Signal<Local, Bits<24>>,
    write_count: DFF<Bits<16>>,
    next_count: Signal<Local, Bits<16>>,
    new_state: Signal<Local, RxState>,

    clear_end: Constant<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    fresh: Constant<RxState>,
    no_query: Constant<QueryRow>,
    no_life: Constant<LifeRow>,
    acknowledge: Constant<Bits<8>>,
    nak_sequence: Constant<Bits<8>>,
    nak_invalid: Constant<Bits<8>>,
    nak_access: Constant<Bits<8>>,
    refusal_kind: Constant<Bits<8>>,
}

impl Decide {
    /// Clocks from `checked` to what comes of it.
    pub const LATENCY: usize = 1;
}

impl Default for Decide {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            ready: Default::default(),
            checked: Default::default(),
            checked_valid: Default::default(),
            peek_qpn: Default::default(),
            mr_write: Default::default(),
            life: Default::default(),
            action: Default::default(),
            action_valid: Default::default(),
            ack: Default::default(),
            ack_valid: Default::default(),
            ack_in: Default::default(),
            ack_in_valid: Default::default(),
            refusal: Default::default(),
            refusal_valid: Default::default(),
            count_requests: Default::default(),
            count_duplicates: Default::default(),
            count_out_of_order: Default::default(),
            count_no_qp: Default::default(),
            count_not_executed: Default::default(),
            query_qpn: Default::default(),
            query_expected_psn: Default::default(),
            query_msn: Default::default(),
            query_dead: Default::default(),
            states: Default::default(),
            queries: Default::default(),
            is_passed: Default::default(),
            passed: Default::default(),
            lives: Default::default(),
            cleared: Default::default(),
            is_clear: Default::default(),
            entry: Default::default(),
            row: Default::default(),
            wide_len: Default::default(),
            gap: Default::default(),
            packet: Default::default(),
            packet_valid: Default::default(),
            state: Default::default(),
            is_expected: Default::default(),
            is_ahead: Default::default(),
            ends_exactly: Default::default(),
            leaves_more: Default::default(),
            is_dead: Default::default(),
            is_live: Default::default(),
            expected: Default::default(),
            ahead: Default::default(),
            behind: Default::default(),
            begins: Default::default(),
            completes: Default::default(),
            in_sequence: Default::default(),
            is_permitted: Default::default(),
            accepts: Default::default(),
            refuses: Default::default(),
            writes: Default::default(),
            updates: Default::default(),
            long_len: Default::default(),
            message_len: Default::default(),
            address: Default::default(),
            next_psn: Default::default(),
            past_psn: Default::default(),
            next_msn: Default::default(),
            write_count: Default::default(),
            next_count: Default::default(),
            new_state: Default::default(),
            clear_end: Constant::new((1usize << limits::LOG_OBJECTS).to_bits()),
            fresh: Constant::new(RxState::default()),
            no_query: Constant::new(QueryRow::default()),
            no_life: Constant::new(LifeRow::default()),
            acknowledge: Constant::new(0x1Fu64.to_bits()),
            nak_sequence: Constant::new(0x60u64.to_bits()),
            nak_invalid: Constant::new(0x61u64.to_bits()),
            nak_access: Constant::new(0x62u64.to_bits()),
            refusal_kind: Constant::new((EventKind::QpAccess as u64).to_bits()),
        }
    }
}

impl Logic for Decide {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, cleared, packet, packet_valid, state, is_expected, is_ahead, ends_exactly, leaves_more, write_count);
        dff_setup!(self, clock, is_passed, passed);
        clock!(self, clock, states, queries, lives);

        self.is_clear.next = self.cleared.q.val() == self.clear_end.val();
        self.ready.next = self.cleared.q.val() == self.clear_end.val();

        // Registrations.
        self.entry.next = self.mr_write.val().entry;
        self.lives.write_enable.next = self.mr_write.val().valid;
        self.lives.write_address.next = self.mr_write.val().index;
        self.lives.write_data.next.valid = self.entry.val().valid;
        self.lives.write_data.next.life = self.life.val();

        // First clock.
        self.states.read_address.next = self.peek_qpn.val();
        self.row.next = self.states.read_data.val();
        if self.is_passed.q.val() {
            self.row.next = self.passed.q.val();
        }
        self.lives.read_address.next = self.row.val().mr_index;
        self.packet.d.next = self.checked.val();
        self.packet_valid.d.next = self.checked_valid.val();
        self.state.d.next = self.row.val();
        self.gap.next = self.checked.val().psn - self.row.val().expected_psn;
        self.wide_len.next = bit_cast::<32, 13>(self.checked.val().len);
        self.is_expected.d.next = self.checked.val().psn == self.row.val().expected_psn;
        self.is_ahead.d.next = !self.gap.val().get_bit(23);
        self.ends_exactly.d.next = self.row.val().left == self.wide_len.val();
        self.leaves_more.d.next = self.row.val().left > self.wide_len.val();

        // Second clock: which case it is.
        self.is_dead.next = self.state.q.val().is_dead;
        self.is_live.next = self.packet_valid.q.val() & self.packet.q.val().is_request & !self.is_dead.val();
        self.expected.next = self.is_live.val() & self.is_expected.q.val();
        self.ahead.next = self.is_live.val() & !self.is_expected.q.val() & self.is_ahead.q.val();
        self.behind.next = self.is_live.val() & !self.is_expected.q.val() & !self.is_ahead.q.val();
        self.begins.next = self.packet.q.val().is_first | self.packet.q.val().is_only;
        self.completes.next = self.packet.q.val().is_last | self.packet.q.val().is_only;
        self.in_sequence.next = (self.begins.val() & !self.state.q.val().is_busy)
            | (self.packet.q.val().is_middle & self.state.q.val().is_busy & self.leaves_more.q.val())
            | (self.packet.q.val().is_last & self.state.q.val().is_busy & self.ends_exactly.q.val());
        self.is_permitted.next = (self.begins.val() & self.packet.q.val().is_granted)
            | (!self.begins.val() & self.lives.read_data.val().valid & (self.lives.read_data.val().life == self.state.q.val().life));
        self.accepts.next = self.expected.val() & self.in_sequence.val() & self.packet.q.val().is_legal & self.is_permitted.val();
        self.refuses.next = self.expected.val() & !self.accepts.val();
        self.writes.next = self.accepts.val() & (self.packet.q.val().len != 0);

        // What it would come to.
        self.long_len.next = bit_cast::<64, 13>(self.packet.q.val().len);
        self.message_len.next = self.state.q.val().left;
        self.address.next = self.state.q.val().cursor;
        if self.begins.val() {
            self.message_len.next = self.packet.q.val().dma_len;
            self.address.next = self.packet.q.val().bus;
        }
        self.next_psn.next = self.state.q.val().expected_psn + 1;
        self.past_psn.next = self.state.q.val().expected_psn - 1;
        self.next_msn.next = self.state.q.val().msn;
        if self.accepts.val() & self.completes.val() {
            self.next_msn.next = self.state.q.val().msn + 1;
        }
        self.next_count.next = self.write_count.q.val();
        if self.writes.val() {
            self.next_count.next = self.write_count.q.val() + 1;
        }
        self.write_count.d.next = self.next_count.val();

        // New state.
        self.new_state.next = self.state.q.val();
        self.updates.next = self.accepts.val() | self.refuses.val() | self.ahead.val();
        if self.accepts.val() {
            self.new_state.next.expected_psn = self.next_psn.val();
            self.new_state.next.msn = self.next_msn.val();
            self.new_state.next.is_busy = !self.completes.val();
            self.new_state.next.nak_sent = false;
            self.new_state.next.cursor = self.address.val() + self.long_len.val();
            self.new_state.next.left = self.message_len.val() - bit_cast::<32, 13>(self.packet.q.val().len);
            if self.begins.val() {
                self.new_state.next.mr_index = self.packet.q.val().mr_index;
                self.new_state.next.life = self.packet.q.val().life;
            }
        }
        if self.refuses.val() {
            self.new_state.next.is_dead = true;
        }
        if self.ahead.val() {
            self.new_state.next.nak_sent = true;
        }
        if self.packet_valid.q.val() & self.packet.q.val().is_start {
            self.updates.next = true;
            self.new_state.next = self.fresh.val();
            self.new_state.next.expected_psn = self.packet.q.val().psn;
        }
        self.states.write_enable.next = self.updates.val();
        self.states.write_address.next = self.packet.q.val().qpn;
        self.states.write_data.next = self.new_state.val();
        self.is_passed.d.next = self.updates.val() & (self.packet.q.val().qpn == self.peek_qpn.val());
        self.passed.d.next = self.new_state.val();
        self.queries.write_enable.next = self.updates.val();
        self.queries.write_address.next = self.packet.q.val().qpn;
        self.queries.write_data.next.expected_psn = self.new_state.val().expected_psn;
        self.queries.write_data.next.msn = self.new_state.val().msn;
        self.queries.write_data.next.is_dead = self.new_state.val().is_dead;

        // Outputs.
        self.action_valid.next = self.packet_valid.q.val() & !self.packet.q.val().is_start;
        self.action.next.write = self.writes.val();
        self.action.next.addr = self.address.val();
        self.action.next.len = self.packet.q.val().len;
        self.action.next.offset = self.packet.q.val().offset;

        self.ack_valid.next = (self.accepts.val() & self.packet.q.val().ack_req)
            | self.refuses.val()
            | (self.ahead.val() & !self.state.q.val().nak_sent)
            | (self.behind.val() & self.packet.q.val().acks_duplicate);
        self.ack.next.qpn = self.packet.q.val().qpn;
        self.ack.next.psn = self.packet.q.val().psn;
        self.ack.next.syndrome = self.acknowledge.val();
        self.ack.next.msn = self.next_msn.val();
        self.ack.next.after = self.next_count.val();
        self.ack.next.is_weak = self.behind.val() & self.state.q.val().nak_sent;
        if self.behind.val() {
            self.ack.next.psn = self.past_psn.val();
        }
        if self.ahead.val() {
            self.ack.next.psn = self.state.q.val().expected_psn;
            self.ack.next.syndrome = self.nak_sequence.val();
        }
        self.refusal_valid.next = self.refuses.val();
        self.refusal.next.number = bit_cast::<16, LOG_QPS>(self.packet.q.val().qpn);
        self.refusal.next.kind = self.refusal_kind.val();
        self.refusal.next.code = self.nak_access.val();
        if self.refuses.val() {
            self.ack.next.syndrome = self.nak_access.val();
            if !self.in_sequence.val() | !self.packet.q.val().is_legal {
                self.ack.next.syndrome = self.nak_invalid.val();
                self.refusal.next.code = self.nak_invalid.val();
            }
        }

        self.ack_in_valid.next = self.packet_valid.q.val() & self.packet.q.val().is_ack & !self.is_dead.val();
        self.ack_in.next.qpn = self.packet.q.val().qpn;
        self.ack_in.next.psn = self.packet.q.val().psn;
        self.ack_in.next.syndrome = self.packet.q.val().syndrome;

        self.count_requests.next = self.accepts.val();
        self.count_duplicates.next = self.behind.val();
        self.count_out_of_order.next = self.ahead.val();
        self.count_no_qp.next =
            self.packet_valid.q.val() & (self.packet.q.val().is_stray | (self.is_dead.val() & !self.packet.q.val().is_start));
        self.count_not_executed.next = self.packet_valid.q.val() & self.packet.q.val().is_foreign & !self.is_dead.val();

        // Queries.
        self.queries.read_address.next = self.query_qpn.val();
        self.query_expected_psn.next = self.queries.read_data.val().expected_psn;
        self.query_msn.next = self.queries.read_data.val().msn;
        self.query_dead.next = self.queries.read_data.val().is_dead;

        if !self.is_clear.val() {
            self.cleared.d.next = self.cleared.q.val() + 1;
            self.states.write_enable.next = true;
            self.states.write_address.next = self.cleared.q.val().get_bits::<LOG_QPS>(0);
            self.states.write_data.next = self.fresh.val();
            self.queries.write_enable.next = true;
            self.queries.write_address.next = self.cleared.q.val().get_bits::<LOG_QPS>(0);
            self.queries.write_data.next = self.no_query.val();
            self.lives.write_enable.next = true;
            self.lives.write_address.next = self.cleared.q.val().get_bits::<LOG_MRS>(0);
            self.lives.write_data.next = self.no_life.val();
        }

        if self.reset.val() {
            self.cleared.d.next = 0.into();
            self.packet_valid.d.next = false;
            self.is_passed.d.next = false;
            self.write_count.d.next = 0.into();
            self.action_valid.next = false;
            self.ack_valid.next = false;
            self.ack_in_valid.next = false;
            self.refusal_valid.next = false;
            self.count_requests.next = false;
            self.count_duplicates.next = false;
            self.count_out_of_order.next = false;
            self.count_no_qp.next = false;
            self.count_not_executed.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
