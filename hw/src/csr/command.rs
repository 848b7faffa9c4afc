//! Executes the driver's commands and broadcasts what they change to the tables of the card.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `go`, `opcode`, `tag` | in | one clock: start this command |
//! | `window_address`, `window_data` | out, in | the argument window, read in the same clock |
//! | `busy`, `code`, `done_tag` | out | `CmdStatus` |
//! | `result_*` | out | writes a word of `CmdResult` |
//! | `ready`, `tables_ready` | out, in | the tables here are cleared, and so are all others |
//! | `qp_write`, `mr_write`, `cq_write` | out | one clock: this entry changes |
//! | `tx_*`, `rx_*`, `cq_*` `entered`, `finished` | in | free-running counts of what went in and came out |
//! | `query_qpn`, `query_cqn`, `q_*` | out, in | live state of a queue, valid eight clocks after its number changed |
//! | `event_out` | source | the command's event |
//! | `bad_command` | out | one clock for a refused command and for a `go` that is ignored |
//!
//! Latency, from `go` to the end of `busy`: 24 clocks; a query 32 clocks; a command that waits for what is under
//! way 58 clocks and the wait. One command at a time: a `go` while busy or before `ready` is
//! ignored and counted. The driver leaves the window alone while `busy`: it is copied in the first 19 clocks.
//!
//! After reset the walker writes an invalid entry to every index of every table, here and by the
//! broadcasts, one a clock for as many clocks as there are most objects of a kind; no other block has to clear what it keeps from them.
//!
//! DestroyQp, ModifyQp to RESET or ERROR, DestroyMr and DestroyCq first broadcast the change, give it 32 clocks
//! to arrive everywhere, note what has entered transmitter, responder and CQ writer by then, and are done when
//! that much has come out. The counts are compared by their difference modulo 2^16, each until it has once been
//! reached, so that neither a wrap nor a long wait for another one matters.
//!
//! Checks in this order: opcode, index, in use, a state that does not exist, the transition, other arguments.
//! MTU and peer are looked at only on the way to RTR or RTS, since the driver does not know them before. A region
//! whose sum of address and length reaches 2^64 is refused. A key with another changing part names no region.
//! The state of a QP that the card found dead counts as ERROR.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_CQS, LOG_MRS, LOG_OBJECTS, LOG_QPS};
use verbena_abi::queue::{CommandCode, CommandOp, EventKind, QpState};

use super::arguments::{Arguments, WORDS};
use crate::bus::{CqWrite, Cqn, EventReq, MrWrite, QpWrite, Qpn, StreamSource};
use crate::prim::{Fifo, Ram};

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Clear,
    Idle,
    Copy,
    Look,
    Judge,
    Act,
    Pause,
    Drain,
    Answer,
    Report,
}

/// Region as the processor knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct MrUse {
    is_used: Bit,
    tag: Bits<8>,
}

/// QP as the processor knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct QpUse {
    is_used: Bit,
    state: Bits<3>,
}

/// Command processor.
#[derive(LogicBlock)]
pub struct CommandProcessor {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub go: Signal<In, Bit>,
    pub opcode: Signal<In, Bits<8>>,
    pub tag: Signal<In, Bits<16>>,
    pub window_address: Signal<Out, Bits<5>>,
    pub window_data: Signal<In, Bits<32>>,
    pub busy: Signal<Out, Bit>,
    pub code: Signal<Out, Bits<8>>,
    pub done_tag: Signal<Out, Bits<16>>,
    pub result_write: Signal<Out, Bit>,
    pub result_index: Signal<Out, Bits<3>>,
    pub result_value: Signal<Out, Bits<32>>,
    pub ready: Signal<Out, Bit>,
    pub tables_ready: Signal<In, Bit>,
    pub qp_write: Signal<Out, QpWrite>,
    pub mr_write: Signal<Out, MrWrite>,
    pub cq_write: Signal<Out, CqWrite>,
    pub tx_entered: Signal<In, Bits<16>>,
    pub tx_finished: Signal<In, Bits<16>>,
    pub rx_entered: Signal<In, Bits<16>>,
    pub rx_finished: Signal<In, Bits<16>>,
    pub cq_entered: Signal<In, Bits<16>>,
    pub cq_finished: Signal<In, Bits<16>>,
    pub flush_pending: Signal<In, Bit>,
    pub query_qpn: Signal<Out, Qpn>,
    pub q_next_psn: Signal<In, Bits<24>>,
    pub q_unacked_psn: Signal<In, Bits<24>>,
    pub q_expected_psn: Signal<In, Bits<24>>,
    pub q_msn: Signal<In, Bits<24>>,
    pub q_producer: Signal<In, Bits<16>>,
    pub q_fetched: Signal<In, Bits<16>>,
    pub q_consumer: Signal<In, Bits<16>>,
    pub q_rx_dead: Signal<In, Bit>,
    pub q_tx_dead: Signal<In, Bit>,
    pub query_cqn: Signal<Out, Cqn>,
    pub q_cq_producer: Signal<In, Bits<24>>,
    pub q_cq_consumer: Signal<In, Bits<24>>,
    pub q_cq_overrun: Signal<In, Bit>,
    pub event_out: StreamSource<EventReq>,
    pub bad_command: Signal<Out, Bit>,

    state: DFF<State>,
    step: DFF<Bits<5>>,
    walk: DFF<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    op: DFF<Bits<8>>,
    held_tag: DFF<Bits<16>>,
    result: DFF<Bits<8>>,
    queried: DFF<Bits<{ limits::LOG_OBJECTS }>>,
    events: Fifo<EventReq, 1, 2>,
    has_room: DFF<Bit>,
    is_refused: DFF<Bit>,
    is_ignored: DFF<Bit>,

    arguments: Arguments,
    /// First word: QPN, CQN or key.
    name: Signal<Local, Bits<32>>,

    // The tables.
    qps: Ram<QpUse, { limits::LOG_QPS }>,
    cqs: Ram<Bit, { limits::LOG_CQS }>,
    mrs: Ram<MrUse, { limits::LOG_MRS }>,
    qp: Signal<Local, QpUse>,
    cq: Signal<Local, Bit>,
    mr: Signal<Local, MrUse>,

    // What the command is.
    is_qp: Signal<Local, Bit>,
    is_cq: Signal<Local, Bit>,
    is_mr: Signal<Local, Bit>,
    is_create: Signal<Local, Bit>,
    is_destroy: Signal<Local, Bit>,
    is_modify: Signal<Local, Bit>,
    is_query: Signal<Local, Bit>,
    has_context: Signal<Local, Bit>,
    to: Signal<Local, Bits<8>>,
    stored: Signal<Local, Bits<3>>,
    from: Signal<Local, Bits<3>>,
    is_to_reset: Signal<Local, Bit>,
    is_to_init: Signal<Local, Bit>,
    is_to_rtr: Signal<Local, Bit>,
    is_to_rts: Signal<Local, Bit>,
    is_to_error: Signal<Local, Bit>,
    is_known_state: Signal<Local, Bit>,
    may_create: Signal<Local, Bit>,
    may_modify: Signal<Local, Bit>,
    is_dead: Signal<Local, Bit>,
    is_there: Signal<Local, Bit>,
    is_bad_index: DFF<Bit>,
    is_bad_argument: Signal<Local, Bit>,
    drains: Signal<Local, Bit>,

    // The broadcasts.
    number: DFF<Bits<{ limits::LOG_OBJECTS }>>,
    is_blank: DFF<Bit>,
    writes_qp: DFF<Bit>,
    writes_cq: DFF<Bit>,
    writes_mr: DFF<Bit>,
    starts_rx: DFF<Bit>,
    starts_tx: DFF<Bit>,
    clears: DFF<Bit>,

    // The wait.
    tx_mark: DFF<Bits<16>>,
    rx_mark: DFF<Bits<16>>,
    cq_mark: DFF<Bits<16>>,
    tx_distance: Signal<Local, Bits<16>>,
    rx_distance: Signal<Local, Bits<16>>,
    cq_distance: Signal<Local, Bits<16>>,
    is_tx_drained: DFF<Bit>,
    is_rx_drained: DFF<Bit>,
    is_cq_drained: DFF<Bit>,

    create_qp: Constant<Bits<8>>,
    modify_qp: Constant<Bits<8>>,
    query_qp: Constant<Bits<8>>,
    destroy_qp: Constant<Bits<8>>,
    create_cq: Constant<Bits<8>>,
    destroy_cq: Constant<Bits<8>>,
    create_mr: Constant<Bits<8>>,
    destroy_mr: Constant<Bits<8>>,
    query_cq: Constant<Bits<8>>,
    query_mr: Constant<Bits<8>>,
    ok: Constant<Bits<8>>,
    bad_opcode: Constant<Bits<8>>,
    bad_index: Constant<Bits<8>>,
    bad_state: Constant<Bits<8>>,
    in_use: Constant<Bits<8>>,
    not_in_use: Constant<Bits<8>>,
    bad_parameter: Constant<Bits<8>>,
    state_reset: Constant<Bits<8>>,
    state_init: Constant<Bits<8>>,
    state_rtr: Constant<Bits<8>>,
    state_rts: Constant<Bits<8>>,
    state_error: Constant<Bits<8>>,
    from_reset: Constant<Bits<3>>,
    from_init: Constant<Bits<3>>,
    from_rtr: Constant<Bits<3>>,
    from_rts: Constant<Bits<3>>,
    from_error: Constant<Bits<3>>,
    last_word: Constant<Bits<5>>,
    last_pause: Constant<Bits<5>>,
    last_result: Constant<Bits<5>>,
    event_kind: Constant<Bits<8>>,
    first_qpn: Constant<Bits<32>>,
    qp_count: Constant<Bits<32>>,
    cq_count: Constant<Bits<32>>,
    key_end: Constant<Bits<32>>,
    first_key: Constant<Bits<32>>,
    walk_qps: Constant<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    walk_cqs: Constant<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    walk_mrs: Constant<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    walk_end: Constant<Bits<{ limits::LOG_OBJECTS + 1 }>>,
}

impl Default for CommandProcessor {
    fn default() -> Self {
        let op = |op: CommandOp| Constant::new((op as u8).to_bits());
        let code = |code: CommandCode| Constant::new((code as u8).to_bits());
        let state = |state: QpState| Constant::new((state as u8).to_bits());
        let from = |state: QpState| Constant::new((state as u8).to_bits());
        Self {
            clock: Default::default(),
            reset: Default::default(),
            go: Default::default(),
            opcode: Default::default(),
            tag: Default::default(),
            window_address: Default::default(),
            window_data: Default::default(),
            busy: Default::default(),
            code: Default::default(),
            done_tag: Default::default(),
            result_write: Default::default(),
            result_index: Default::default(),
            result_value: Default::default(),
            ready: Default::default(),
            tables_ready: Default::default(),
            qp_write: Default::default(),
            mr_write: Default::default(),
            cq_write: Default::default(),
            tx_entered: Default::default(),
            tx_finished: Default::default(),
            rx_entered: Default::default(),
            rx_finished: Default::default(),
            cq_entered: Default::default(),
            cq_finished: Default::default(),
            flush_pending: Default::default(),
            query_qpn: Default::default(),
            q_next_psn: Default::default(),
            q_unacked_psn: Default::default(),
            q_expected_psn: Default::default(),
            q_msn: Default::default(),
            q_producer: Default::default(),
            q_fetched: Default::default(),
            q_consumer: Default::default(),
            q_rx_dead: Default::default(),
            q_tx_dead: Default::default(),
            query_cqn: Default::default(),
            q_cq_producer: Default::default(),
            q_cq_consumer: Default::default(),
            q_cq_overrun: Default::default(),
            event_out: Default::default(),
            bad_command: Default::default(),
            state: Default::default(),
            step: Default::default(),
            walk: Default::default(),
            op: Default::default(),
            held_tag: Default::default(),
            result: Default::default(),
            queried: Default::default(),
            arguments: Default::default(),
            name: Default::default(),
            events: Default::default(),
            has_room: Default::default(),
            is_refused: Default::default(),
            is_ignored: Default::default(),
            qps: Default::default(),
            cqs: Default::default(),
            mrs: Default::default(),
            qp: Default::default(),
            cq: Default::default(),
            mr: Default::default(),
            is_qp: Default::default(),
            is_cq: Default::default(),
            is_mr: Default::default(),
            is_create: Default::default(),
            is_destroy: Default::default(),
            is_modify: Default::default(),
            is_query: Default::default(),
            has_context: Default::default(),
            to: Default::default(),
            stored: Default::default(),
            from: Default::default(),
            is_to_reset: Default::default(),
            is_to_init: Default::default(),
            is_to_rtr: Default::default(),
            is_to_rts: Default::default(),
            is_to_error: Default::default(),
            is_known_state: Default::default(),
            may_create: Default::default(),
            may_modify: Default::default(),
            is_dead: Default::default(),
            is_there: Default::default(),
            is_bad_index: Default::default(),
            is_bad_argument: Default::default(),
            drains: Default::default(),
            number: Default::default(),
            is_blank: Default::default(),
            writes_qp: Default::default(),
            writes_cq: Default::default(),
            writes_mr: Default::default(),
            starts_rx: Default::default(),
            starts_tx: Default::default(),
            clears: Default::default(),
            tx_mark: Default::default(),
            rx_mark: Default::default(),
            cq_mark: Default::default(),
            tx_distance: Default::default(),
            rx_distance: Default::default(),
            cq_distance: Default::default(),
            is_tx_drained: Default::default(),
            is_rx_drained: Default::default(),
            is_cq_drained: Default::default(),
            create_qp: op(CommandOp::CreateQp),
            modify_qp: op(CommandOp::ModifyQp),
            query_qp: op(CommandOp::QueryQp),
            destroy_qp: op(CommandOp::DestroyQp),
            create_cq: op(CommandOp::CreateCq),
            destroy_cq: op(CommandOp::DestroyCq),
            create_mr: op(CommandOp::CreateMr),
            destroy_mr: op(CommandOp::DestroyMr),
            query_cq: op(CommandOp::QueryCq),
            query_mr: op(CommandOp::QueryMr),
            ok: code(CommandCode::Ok),
            bad_opcode: code(CommandCode::BadOpcode),
            bad_index: code(CommandCode::BadIndex),
            bad_state: code(CommandCode::BadState),
            in_use: code(CommandCode::InUse),
            not_in_use: code(CommandCode::NotInUse),
            bad_parameter: code(CommandCode::BadParameter),
            state_reset: state(QpState::Reset),
            state_init: state(QpState::Init),
            state_rtr: state(QpState::Rtr),
            state_rts: state(QpState::Rts),
            state_error: state(QpState::Error),
            from_reset: from(QpState::Reset),
            from_init: from(QpState::Init),
            from_rtr: from(QpState::Rtr),
            from_rts: from(QpState::Rts),
            from_error: from(QpState::Error),
            last_word: Constant::new((WORDS - 1).to_bits()),
            last_pause: Constant::new(31u8.to_bits()),
            last_result: Constant::new(7u8.to_bits()),
            event_kind: Constant::new((EventKind::Command as u8).to_bits()),
            first_qpn: Constant::new(limits::FIRST_QPN.to_bits()),
            qp_count: Constant::new(limits::QPS.to_bits()),
            cq_count: Constant::new(limits::CQS.to_bits()),
            key_end: Constant::new((limits::MRS << 8).to_bits()),
            first_key: Constant::new((1u32 << 8).to_bits()),
            walk_qps: Constant::new(limits::QPS.to_bits()),
            walk_cqs: Constant::new(limits::CQS.to_bits()),
            walk_mrs: Constant::new(limits::MRS.to_bits()),
            walk_end: Constant::new((1usize << limits::LOG_OBJECTS).to_bits()),
        }
    }
}

impl Logic for CommandProcessor {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, step, walk, op, held_tag, result, queried, has_room, is_refused, is_ignored);
        dff_setup!(self, clock, is_bad_index);
        dff_setup!(self, clock, number, is_blank, writes_qp, writes_cq, writes_mr, starts_rx, starts_tx, clears);
        dff_setup!(self, clock, tx_mark, rx_mark, cq_mark, is_tx_drained, is_rx_drained, is_cq_drained);
        clock!(self, clock, events, arguments, qps, cqs, mrs);
        self.events.reset.next = self.reset.val();
        self.arguments.shift.next = self.state.q.val() == State::Copy;
        self.arguments.word_in.next = self.window_data.val();
        self.arguments.is_blank.next = self.is_blank.q.val();
        self.name.next = self.arguments.number.val();

        self.busy.next = (self.state.q.val() != State::Idle) & (self.state.q.val() != State::Clear);
        self.ready.next = self.state.q.val() != State::Clear;
        self.code.next = self.result.q.val();
        self.done_tag.next = self.held_tag.q.val();
        self.window_address.next = self.step.q.val();
        self.query_qpn.next = self.queried.q.val().get_bits::<LOG_QPS>(0);
        self.query_cqn.next = self.queried.q.val().get_bits::<LOG_CQS>(0);
        self.has_room.d.next = self.events.level.val() == 0;
        self.events.fill.valid.next = false;
        self.events.fill.data.next.number = self.held_tag.q.val();
        self.events.fill.data.next.kind = self.event_kind.val();
        self.events.fill.data.next.code = self.result.q.val();
        self.event_out.data.next = self.events.drain.data.val();
        self.event_out.valid.next = self.events.drain.valid.val();
        self.events.drain.ready.next = self.event_out.ready.val();
        self.is_ignored.d.next = self.go.val() & (self.state.q.val() != State::Idle);
        self.bad_command.next = self.is_ignored.q.val() | self.is_refused.q.val();
        if !self.is_ignored.q.val() {
            self.is_refused.d.next = false;
        }

        self.is_qp.next = (self.op.q.val() == self.create_qp.val())
            | (self.op.q.val() == self.modify_qp.val())
            | (self.op.q.val() == self.query_qp.val())
            | (self.op.q.val() == self.destroy_qp.val());
        self.is_cq.next = (self.op.q.val() == self.create_cq.val())
            | (self.op.q.val() == self.destroy_cq.val())
            | (self.op.q.val() == self.query_cq.val());
        self.is_mr.next = (self.op.q.val() == self.create_mr.val())
            | (self.op.q.val() == self.destroy_mr.val())
            | (self.op.q.val() == self.query_mr.val());
        self.is_create.next = (self.op.q.val() == self.create_qp.val())
            | (self.op.q.val() == self.create_cq.val())
            | (self.op.q.val() == self.create_mr.val());
        self.is_destroy.next = (self.op.q.val() == self.destroy_qp.val())
            | (self.op.q.val() == self.destroy_cq.val())
            | (self.op.q.val() == self.destroy_mr.val());
        self.is_modify.next = self.op.q.val() == self.modify_qp.val();
        self.is_query.next =
            (self.op.q.val() == self.query_qp.val()) | (self.op.q.val() == self.query_cq.val()) | (self.op.q.val() == self.query_mr.val());
        self.has_context.next = self.is_qp.val() & (self.is_create.val() | self.is_modify.val());

        // The tables are read as soon as the words are there, in `Look`; what they hold is judged a clock later.
        self.qps.read_address.next = self.name.val().get_bits::<LOG_QPS>(0);
        self.cqs.read_address.next = self.name.val().get_bits::<LOG_CQS>(0);
        if self.is_qp.val() {
            self.cqs.read_address.next = self.arguments.send_cqn.val();
        }
        self.mrs.read_address.next = self.name.val().get_bits::<LOG_MRS>(8);
        self.qp.next = self.qps.read_data.val();
        self.cq.next = self.cqs.read_data.val();
        self.mr.next = self.mrs.read_data.val();

        self.is_bad_index.d.next = (self.is_qp.val()
            & ((self.name.val() >= self.qp_count.val()) | (self.name.val() < self.first_qpn.val())))
            | (self.is_cq.val() & (self.name.val() >= self.cq_count.val()))
            | (self.is_mr.val() & ((self.name.val() >= self.key_end.val()) | (self.name.val() < self.first_key.val())));
        self.to.next = self.arguments.to.val();
        self.is_to_reset.next = self.to.val() == self.state_reset.val();
        self.is_to_init.next = self.to.val() == self.state_init.val();
        self.is_to_rtr.next = self.to.val() == self.state_rtr.val();
        self.is_to_rts.next = self.to.val() == self.state_rts.val();
        self.is_to_error.next = self.to.val() == self.state_error.val();
        self.is_known_state.next =
            self.is_to_reset.val() | self.is_to_init.val() | self.is_to_rtr.val() | self.is_to_rts.val() | self.is_to_error.val();
        self.stored.next = self.qp.val().state;
        self.is_dead.next = (self.q_rx_dead.val() | self.q_tx_dead.val())
            & ((self.stored.val() == self.from_rtr.val()) | (self.stored.val() == self.from_rts.val()));
        self.from.next = self.stored.val();
        if self.is_dead.val() {
            self.from.next = self.from_error.val();
        }
        self.may_create.next = self.is_to_reset.val() | self.is_to_init.val();
        self.may_modify.next = self.is_to_reset.val()
            | (self.is_to_error.val() & (self.from.val() != self.from_reset.val()))
            | (self.is_to_init.val() & ((self.from.val() == self.from_reset.val()) | (self.from.val() == self.from_init.val())))
            | (self.is_to_rtr.val() & (self.from.val() == self.from_init.val()))
            | (self.is_to_rts.val() & ((self.from.val() == self.from_rtr.val()) | (self.from.val() == self.from_rts.val())));
        self.is_there.next = false;
        if self.is_qp.val() {
            self.is_there.next = self.qp.val().is_used;
        }
        if self.is_cq.val() {
            self.is_there.next = self.cq.val();
        }
        if self.is_mr.val() {
            self.is_there.next = self.mr.val().is_used & (self.is_create.val() | (self.mr.val().tag == self.name.val().get_bits::<8>(0)));
        }
        self.is_bad_argument.next = (self.has_context.val() & (self.arguments.is_bad_qp.val() | !self.cq.val()))
            | (self.has_context.val() & (self.is_to_rtr.val() | self.is_to_rts.val()) & self.arguments.is_bad_peer.val())
            | (self.is_cq.val() & self.is_create.val() & self.arguments.is_bad_cq.val())
            | (self.is_mr.val() & self.is_create.val() & self.arguments.is_bad_mr.val());
        self.drains.next = self.is_destroy.val() | (self.is_modify.val() & (self.is_to_reset.val() | self.is_to_error.val()));

        // The tables are written by the walker and by a command that is carried out.
        self.qps.write_enable.next = false;
        self.qps.write_address.next = self.name.val().get_bits::<LOG_QPS>(0);
        self.qps.write_data.next.is_used = !self.is_destroy.val();
        self.qps.write_data.next.state = self.to.val().get_bits::<3>(0);
        self.cqs.write_enable.next = false;
        self.cqs.write_address.next = self.name.val().get_bits::<LOG_CQS>(0);
        self.cqs.write_data.next = self.is_create.val();
        self.mrs.write_enable.next = false;
        self.mrs.write_address.next = self.name.val().get_bits::<LOG_MRS>(8);
        self.mrs.write_data.next.is_used = self.is_create.val();
        self.mrs.write_data.next.tag = self.name.val().get_bits::<8>(0);
        self.writes_qp.d.next = false;
        self.writes_cq.d.next = false;
        self.writes_mr.d.next = false;

        self.tx_distance.next = self.tx_finished.val() - self.tx_mark.q.val();
        self.rx_distance.next = self.rx_finished.val() - self.rx_mark.q.val();
        self.cq_distance.next = self.cq_finished.val() - self.cq_mark.q.val();
        if !self.tx_distance.val().get_bit(15) {
            self.is_tx_drained.d.next = true;
        }
        if !self.rx_distance.val().get_bit(15) {
            self.is_rx_drained.d.next = true;
        }
        if !self.cq_distance.val().get_bit(15) {
            self.is_cq_drained.d.next = true;
        }

        self.result_write.next = false;
        self.result_index.next = self.step.q.val().get_bits::<3>(0);
        self.result_value.next = 0.into();

        match self.state.q.val() {
            State::Clear => {
                self.number.d.next = self.walk.q.val().get_bits::<LOG_OBJECTS>(0);
                self.is_blank.d.next = true;
                self.clears.d.next = true;
                self.starts_rx.d.next = false;
                self.starts_tx.d.next = false;
                if self.walk.q.val() != self.walk_end.val() {
                    self.walk.d.next = self.walk.q.val() + 1;
                    if self.walk.q.val() < self.walk_mrs.val() {
                        self.mrs.write_enable.next = true;
                        self.mrs.write_address.next = self.walk.q.val().get_bits::<LOG_MRS>(0);
                        self.mrs.write_data.next.is_used = false;
                        self.writes_mr.d.next = true;
                    }
                    if self.walk.q.val() < self.walk_qps.val() {
                        self.qps.write_enable.next = true;
                        self.qps.write_address.next = self.walk.q.val().get_bits::<LOG_QPS>(0);
                        self.qps.write_data.next.is_used = false;
                        self.writes_qp.d.next = true;
                    }
                    if self.walk.q.val() < self.walk_cqs.val() {
                        self.cqs.write_enable.next = true;
                        self.cqs.write_address.next = self.walk.q.val().get_bits::<LOG_CQS>(0);
                        self.cqs.write_data.next = false;
                        self.writes_cq.d.next = true;
                    }
                } else if self.tables_ready.val() {
                    self.state.d.next = State::Idle;
                }
            }
            State::Idle => {
                self.step.d.next = 0.into();
                if self.go.val() {
                    self.op.d.next = self.opcode.val();
                    self.held_tag.d.next = self.tag.val();
                    self.state.d.next = State::Copy;
                }
            }
            State::Copy => {
                if self.step.q.val() == 0 {
                    self.queried.d.next = self.window_data.val().get_bits::<LOG_OBJECTS>(0);
                }
                self.step.d.next = self.step.q.val() + 1;
                if self.step.q.val() == self.last_word.val() {
                    self.state.d.next = State::Look;
                }
            }
            State::Look => {
                self.state.d.next = State::Judge;
            }
            State::Judge => {
                self.state.d.next = State::Act;
                if !(self.is_qp.val() | self.is_cq.val() | self.is_mr.val()) {
                    self.result.d.next = self.bad_opcode.val();
                } else if self.is_bad_index.q.val() {
                    self.result.d.next = self.bad_index.val();
                } else if self.is_create.val() & self.is_there.val() {
                    self.result.d.next = self.in_use.val();
                } else if (self.is_destroy.val() | self.is_modify.val() | (self.is_qp.val() & self.is_query.val())) & !self.is_there.val() {
                    self.result.d.next = self.not_in_use.val();
                } else if self.has_context.val() & !self.is_known_state.val() {
                    self.result.d.next = self.bad_parameter.val();
                } else if self.is_qp.val()
                    & ((self.is_create.val() & !self.may_create.val()) | (self.is_modify.val() & !self.may_modify.val()))
                {
                    self.result.d.next = self.bad_state.val();
                } else if self.is_bad_argument.val() {
                    self.result.d.next = self.bad_parameter.val();
                } else {
                    self.result.d.next = self.ok.val();
                }
            }
            State::Act => {
                self.step.d.next = 0.into();
                self.number.d.next = self.name.val().get_bits::<LOG_OBJECTS>(0);
                if self.is_mr.val() {
                    self.number.d.next = self.name.val().get_bits::<LOG_OBJECTS>(8);
                }
                self.is_blank.d.next = self.is_destroy.val();
                self.clears.d.next = !self.is_modify.val() | self.is_to_reset.val();
                self.starts_rx.d.next = self.is_modify.val() & self.is_to_rtr.val();
                self.starts_tx.d.next = self.is_modify.val() & self.is_to_rts.val() & (self.from.val() == self.from_rtr.val());
                self.state.d.next = State::Report;
                if self.result.q.val() == self.ok.val() {
                    if self.is_query.val() {
                        self.state.d.next = State::Answer;
                    } else {
                        self.qps.write_enable.next = self.is_qp.val();
                        self.cqs.write_enable.next = self.is_cq.val();
                        self.mrs.write_enable.next = self.is_mr.val();
                        self.writes_qp.d.next = self.is_qp.val();
                        self.writes_cq.d.next = self.is_cq.val();
                        self.writes_mr.d.next = self.is_mr.val();
                        if self.drains.val() {
                            self.state.d.next = State::Pause;
                        }
                    }
                }
            }
            State::Pause => {
                // What is flushed has to be among the completions that the drain then waits for.
                if (self.step.q.val() != self.last_pause.val()) | !self.flush_pending.val() {
                    self.step.d.next = self.step.q.val() + 1;
                }
                self.tx_mark.d.next = self.tx_entered.val();
                self.rx_mark.d.next = self.rx_entered.val();
                self.cq_mark.d.next = self.cq_entered.val();
                self.is_tx_drained.d.next = false;
                self.is_rx_drained.d.next = false;
                self.is_cq_drained.d.next = false;
                if (self.step.q.val() == self.last_pause.val()) & !self.flush_pending.val() {
                    self.state.d.next = State::Drain;
                }
            }
            State::Drain => {
                if self.is_tx_drained.q.val() & self.is_rx_drained.q.val() & self.is_cq_drained.q.val() {
                    self.state.d.next = State::Report;
                }
            }
            State::Answer => {
                self.result_write.next = true;
                self.step.d.next = self.step.q.val() + 1;
                if self.is_qp.val() {
                    if self.step.q.val() == 0 {
                        self.result_value.next = bit_cast::<32, 3>(self.from.val());
                    } else if self.step.q.val() == 1 {
                        self.result_value.next = bit_cast::<32, 24>(self.q_next_psn.val());
                    } else if self.step.q.val() == 2 {
                        self.result_value.next = bit_cast::<32, 24>(self.q_unacked_psn.val());
                    } else if self.step.q.val() == 3 {
                        self.result_value.next = bit_cast::<32, 24>(self.q_expected_psn.val());
                    } else if self.step.q.val() == 4 {
                        self.result_value.next = bit_cast::<32, 24>(self.q_msn.val());
                    } else if self.step.q.val() == 5 {
                        self.result_value.next = bit_cast::<32, 16>(self.q_producer.val());
                    } else if self.step.q.val() == 6 {
                        self.result_value.next = bit_cast::<32, 16>(self.q_fetched.val());
                    } else {
                        self.result_value.next = bit_cast::<32, 16>(self.q_consumer.val());
                    }
                } else if self.is_there.val() {
                    if self.step.q.val() == 0 {
                        self.result_value.next = 1.into();
                        if self.is_cq.val() & self.q_cq_overrun.val() {
                            self.result_value.next = 2.into();
                        }
                    } else if (self.step.q.val() == 1) & self.is_cq.val() {
                        self.result_value.next = bit_cast::<32, 24>(self.q_cq_producer.val());
                    } else if (self.step.q.val() == 2) & self.is_cq.val() {
                        self.result_value.next = bit_cast::<32, 24>(self.q_cq_consumer.val());
                    }
                }
                if self.step.q.val() == self.last_result.val() {
                    self.state.d.next = State::Report;
                }
            }
            State::Report => {
                if self.has_room.q.val() {
                    self.events.fill.valid.next = true;
                    self.is_refused.d.next = self.result.q.val() != self.ok.val();
                    self.state.d.next = State::Idle;
                }
            }
            _ => {
                self.state.d.next = State::Clear;
            }
        }

        self.qp_write.next.valid = self.writes_qp.q.val();
        self.qp_write.next.qpn = self.number.q.val().get_bits::<LOG_QPS>(0);
        self.qp_write.next.start_rx = self.starts_rx.q.val();
        self.qp_write.next.start_tx = self.starts_tx.q.val();
        self.qp_write.next.clear = self.clears.q.val();
        self.qp_write.next.context = self.arguments.qp_context.val();
        self.mr_write.next.valid = self.writes_mr.q.val();
        self.mr_write.next.index = self.number.q.val().get_bits::<LOG_MRS>(0);
        self.mr_write.next.entry = self.arguments.mr_entry.val();
        self.cq_write.next.valid = self.writes_cq.q.val();
        self.cq_write.next.cqn = self.number.q.val().get_bits::<LOG_CQS>(0);
        self.cq_write.next.entry = self.arguments.cq_entry.val();

        if self.reset.val() {
            self.state.d.next = State::Clear;
            self.walk.d.next = 0.into();
            self.held_tag.d.next = 0.into();
            self.result.d.next = 0.into();
            self.is_refused.d.next = false;
            self.is_ignored.d.next = false;
            self.writes_qp.d.next = false;
            self.writes_cq.d.next = false;
            self.writes_mr.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
