//! The control plane: everything that the driver reaches through BAR0.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `s_axil_*` | AXI4-Lite slave | BAR0 |
//! | `sq_bell`, `cq_bell` | source | doorbells |
//! | `mac` to `eq_consumer` | out | see [`Registers`] |
//! | `ready`, `tables_ready` | out, in | `Status.READY`; all tables outside this block are cleared |
//! | `pulses`, `dma_error` | in | what the rest of the card counts; bits of this block's own counters may be used too |
//! | `stage_valid`, `stage_ready` | in | the streams of the stages, see [`StageCounters`] |
//! | `rx_bytes`, `tx_bytes`, `tx_last` | in | traffic, see [`TrafficCounters`] |
//! | `qp_write` to `q_cq_overrun` | in, out | see [`CommandProcessor`] |
//! | `event_out` | source | events of commands |
//!
//! It only wires. A BAR0 write goes to the doorbells if its page is not one of the first 16, else to the
//! registers. Latencies and limits stand with the six blocks. A pulse from outside in the same clock as one of
//! this block's own for the same counter counts once.

mod arguments;
mod axil;
mod command;
mod doorbell;
mod registers;
mod stages;
mod tally;
mod traffic;

pub use arguments::Arguments;
pub use axil::AxiLite;
pub use command::CommandProcessor;
pub use doorbell::Doorbell;
pub use registers::Registers;
pub use stages::StageCounters;
pub use tally::Tally;
pub use traffic::TrafficCounters;

use rust_hdl::prelude::*;
use verbena_abi::regs::{Counter, BAR0_ADDR_BITS};

use crate::bus::{BarOffset, CqBell, CqWrite, Cqn, EventReq, MrWrite, QpWrite, Qpn, SqBell, StreamSource};

/// Bits of an offset in BAR0 above those of the registers: other than 0 at the doorbell pages.
const BELL_BITS: usize = BAR0_ADDR_BITS - 16;

/// Registers, doorbells and commands behind one AXI4-Lite port.
#[derive(LogicBlock)]
pub struct ControlPlane {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub s_axil_awaddr: Signal<In, BarOffset>,
    pub s_axil_awvalid: Signal<In, Bit>,
    pub s_axil_awready: Signal<Out, Bit>,
    pub s_axil_wdata: Signal<In, Bits<32>>,
    pub s_axil_wstrb: Signal<In, Bits<4>>,
    pub s_axil_wvalid: Signal<In, Bit>,
    pub s_axil_wready: Signal<Out, Bit>,
    pub s_axil_bresp: Signal<Out, Bits<2>>,
    pub s_axil_bvalid: Signal<Out, Bit>,
    pub s_axil_bready: Signal<In, Bit>,
    pub s_axil_araddr: Signal<In, BarOffset>,
    pub s_axil_arvalid: Signal<In, Bit>,
    pub s_axil_arready: Signal<Out, Bit>,
    pub s_axil_rdata: Signal<Out, Bits<32>>,
    pub s_axil_rresp: Signal<Out, Bits<2>>,
    pub s_axil_rvalid: Signal<Out, Bit>,
    pub s_axil_rready: Signal<In, Bit>,
    pub sq_bell: StreamSource<SqBell>,
    pub cq_bell: StreamSource<CqBell>,
    pub mac: Signal<Out, Bits<48>>,
    pub ipv4: Signal<Out, Bits<32>>,
    pub ipv6: Signal<Out, Bits<128>>,
    pub eq_base: Signal<Out, Bits<64>>,
    pub eq_log_depth: Signal<Out, Bits<5>>,
    pub eq_vector: Signal<Out, Bits<8>>,
    pub eq_enable: Signal<Out, Bit>,
    pub eq_restart: Signal<Out, Bit>,
    pub eq_consumer: Signal<Out, Bits<32>>,
    pub tables_ready: Signal<In, Bit>,
    pub dma_error: Signal<In, Bit>,
    pub pulses: Signal<In, Bits<28>>,
    pub stage_valid: Signal<In, Bits<30>>,
    pub stage_ready: Signal<In, Bits<30>>,
    pub rx_bytes: Signal<In, Bits<15>>,
    pub tx_bytes: Signal<In, Bits<7>>,
    pub tx_last: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
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
    pub query_cqn: Signal<Out, Cqn>,
    pub q_next_psn: Signal<In, Bits<24>>,
    pub q_unacked_psn: Signal<In, Bits<24>>,
    pub q_expected_psn: Signal<In, Bits<24>>,
    pub q_msn: Signal<In, Bits<24>>,
    pub q_producer: Signal<In, Bits<16>>,
    pub q_fetched: Signal<In, Bits<16>>,
    pub q_consumer: Signal<In, Bits<16>>,
    pub q_rx_dead: Signal<In, Bit>,
    pub q_tx_dead: Signal<In, Bit>,
    pub q_cq_producer: Signal<In, Bits<24>>,
    pub q_cq_consumer: Signal<In, Bits<24>>,
    pub q_cq_overrun: Signal<In, Bit>,
    pub event_out: StreamSource<EventReq>,

    axil: AxiLite,
    doorbell: Doorbell,
    registers: Registers,
    stages: StageCounters,
    traffic: TrafficCounters,
    command: CommandProcessor,
    offset: Signal<Local, BarOffset>,
    is_bell: Signal<Local, Bit>,
    ready_offset: Signal<Local, BarOffset>,
    is_bell_ready: Signal<Local, Bit>,
    doorbell_pulse: Signal<Local, Bits<28>>,
    command_pulse: Signal<Local, Bits<28>>,
    no_pulse: Constant<Bits<28>>,
    doorbell_mask: Constant<Bits<28>>,
    command_mask: Constant<Bits<28>>,
}

impl Default for ControlPlane {
    fn default() -> Self {
        let pulse = |counter: Counter| Constant::new((1u32 << counter as u32).to_bits());
        Self {
            clock: Default::default(),
            reset: Default::default(),
            s_axil_awaddr: Default::default(),
            s_axil_awvalid: Default::default(),
            s_axil_awready: Default::default(),
            s_axil_wdata: Default::default(),
            s_axil_wstrb: Default::default(),
            s_axil_wvalid: Default::default(),
            s_axil_wready: Default::default(),
            s_axil_bresp: Default::default(),
            s_axil_bvalid: Default::default(),
            s_axil_bready: Default::default(),
            s_axil_araddr: Default::default(),
            s_axil_arvalid: Default::default(),
            s_axil_arready: Default::default(),
            s_axil_rdata: Default::default(),
            s_axil_rresp: Default::default(),
            s_axil_rvalid: Default::default(),
            s_axil_rready: Default::default(),
            sq_bell: Default::default(),
            cq_bell: Default::default(),
            mac: Default::default(),
            ipv4: Default::default(),
            ipv6: Default::default(),
            eq_base: Default::default(),
            eq_log_depth: Default::default(),
            eq_vector: Default::default(),
            eq_enable: Default::default(),
            eq_restart: Default::default(),
            eq_consumer: Default::default(),
            tables_ready: Default::default(),
            dma_error: Default::default(),
            pulses: Default::default(),
            stage_valid: Default::default(),
            stage_ready: Default::default(),
            rx_bytes: Default::default(),
            tx_bytes: Default::default(),
            tx_last: Default::default(),
            ready: Default::default(),
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
            query_cqn: Default::default(),
            q_next_psn: Default::default(),
            q_unacked_psn: Default::default(),
            q_expected_psn: Default::default(),
            q_msn: Default::default(),
            q_producer: Default::default(),
            q_fetched: Default::default(),
            q_consumer: Default::default(),
            q_rx_dead: Default::default(),
            q_tx_dead: Default::default(),
            q_cq_producer: Default::default(),
            q_cq_consumer: Default::default(),
            q_cq_overrun: Default::default(),
            event_out: Default::default(),
            axil: Default::default(),
            doorbell: Default::default(),
            registers: Default::default(),
            stages: Default::default(),
            traffic: Default::default(),
            command: Default::default(),
            offset: Default::default(),
            is_bell: Default::default(),
            ready_offset: Default::default(),
            is_bell_ready: Default::default(),
            doorbell_pulse: Default::default(),
            command_pulse: Default::default(),
            no_pulse: Constant::new(0u32.to_bits()),
            doorbell_mask: pulse(Counter::BadDoorbells),
            command_mask: pulse(Counter::BadCommands),
        }
    }
}

impl Logic for ControlPlane {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, axil, doorbell, registers, stages, traffic, command);
        self.axil.reset.next = self.reset.val();
        self.doorbell.reset.next = self.reset.val();
        self.registers.reset.next = self.reset.val();
        self.stages.reset.next = self.reset.val();
        self.traffic.reset.next = self.reset.val();
        self.command.reset.next = self.reset.val();

        self.axil.s_axil_awaddr.next = self.s_axil_awaddr.val();
        self.axil.s_axil_awvalid.next = self.s_axil_awvalid.val();
        self.axil.s_axil_wdata.next = self.s_axil_wdata.val();
        self.axil.s_axil_wstrb.next = self.s_axil_wstrb.val();
        self.axil.s_axil_wvalid.next = self.s_axil_wvalid.val();
        self.axil.s_axil_bready.next = self.s_axil_bready.val();
        self.axil.s_axil_araddr.next = self.s_axil_araddr.val();
        self.axil.s_axil_arvalid.next = self.s_axil_arvalid.val();
        self.axil.s_axil_rready.next = self.s_axil_rready.val();
        self.s_axil_awready.next = self.axil.s_axil_awready.val();
        self.s_axil_wready.next = self.axil.s_axil_wready.val();
        self.s_axil_bresp.next = self.axil.s_axil_bresp.val();
        self.s_axil_bvalid.next = self.axil.s_axil_bvalid.val();
        self.s_axil_arready.next = self.axil.s_axil_arready.val();
        self.s_axil_rdata.next = self.axil.s_axil_rdata.val();
        self.s_axil_rresp.next = self.axil.s_axil_rresp.val();
        self.s_axil_rvalid.next = self.axil.s_axil_rvalid.val();

        self.offset.next = self.axil.write.data.val().offset;
        self.is_bell.next = self.offset.val().get_bits::<BELL_BITS>(16) != 0;
        self.doorbell.write.data.next = self.axil.write.data.val();
        self.doorbell.write.valid.next = self.axil.write.valid.val() & self.is_bell.val();
        self.registers.write.data.next = self.axil.write.data.val();
        self.registers.write.valid.next = self.axil.write.valid.val() & !self.is_bell.val();
        // Apart from `is_bell`, so that no signal joins the way of `valid` with the way of `ready`.
        self.ready_offset.next = self.axil.write.data.val().offset;
        self.is_bell_ready.next = self.ready_offset.val().get_bits::<BELL_BITS>(16) != 0;
        self.axil.write.ready.next = self.registers.write.ready.val();
        if self.is_bell_ready.val() {
            self.axil.write.ready.next = self.doorbell.write.ready.val();
        }
        self.registers.read_valid.next = self.axil.read_valid.val();
        self.registers.read_offset.next = self.axil.read_offset.val();
        self.axil.read_value.next = self.registers.read_value.val();

        self.sq_bell.data.next = self.doorbell.sq_bell.data.val();
        self.sq_bell.valid.next = self.doorbell.sq_bell.valid.val();
        self.doorbell.sq_bell.ready.next = self.sq_bell.ready.val();
        self.cq_bell.data.next = self.doorbell.cq_bell.data.val();
        self.cq_bell.valid.next = self.doorbell.cq_bell.valid.val();
        self.doorbell.cq_bell.ready.next = self.cq_bell.ready.val();

        self.mac.next = self.registers.mac.val();
        self.ipv4.next = self.registers.ipv4.val();
        self.ipv6.next = self.registers.ipv6.val();
        self.eq_base.next = self.registers.eq_base.val();
        self.eq_log_depth.next = self.registers.eq_log_depth.val();
        self.eq_vector.next = self.registers.eq_vector.val();
        self.eq_enable.next = self.registers.eq_enable.val();
        self.eq_restart.next = self.registers.eq_restart.val();
        self.eq_consumer.next = self.registers.eq_consumer.val();
        self.registers.dma_error.next = self.dma_error.val();
        self.doorbell_pulse.next = self.no_pulse.val();
        if self.doorbell.bad_doorbell.val() {
            self.doorbell_pulse.next = self.doorbell_mask.val();
        }
        self.command_pulse.next = self.no_pulse.val();
        if self.command.bad_command.val() {
            self.command_pulse.next = self.command_mask.val();
        }
        self.registers.pulses.next = self.pulses.val() | self.doorbell_pulse.val() | self.command_pulse.val();

        self.stages.valid.next = self.stage_valid.val();
        self.stages.ready.next = self.stage_ready.val();
        self.stages.hold.next = self.registers.stage_hold.val();
        self.stages.read_address.next = self.registers.stage_address.val();
        self.registers.stage_value.next = self.stages.read_value.val();
        self.registers.clocks.next = self.stages.clocks.val();

        self.traffic.rx_bytes.next = self.rx_bytes.val();
        self.traffic.tx_bytes.next = self.tx_bytes.val();
        self.traffic.tx_last.next = self.tx_last.val();
        self.traffic.read_address.next = self.registers.traffic_address.val();
        self.registers.traffic_value.next = self.traffic.read_value.val();

        self.command.go.next = self.registers.go.val();
        self.command.opcode.next = self.registers.go_opcode.val();
        self.command.tag.next = self.registers.go_tag.val();
        self.registers.window_address.next = self.command.window_address.val();
        self.command.window_data.next = self.registers.window_data.val();
        self.registers.busy.next = self.command.busy.val();
        self.registers.code.next = self.command.code.val();
        self.registers.done_tag.next = self.command.done_tag.val();
        self.registers.result_write.next = self.command.result_write.val();
        self.registers.result_index.next = self.command.result_index.val();
        self.registers.result_value.next = self.command.result_value.val();
        self.registers.ready.next = self.command.ready.val();
        self.ready.next = self.command.ready.val();
        self.command.tables_ready.next = self.tables_ready.val() & self.stages.cleared.val();
        self.qp_write.next = self.command.qp_write.val();
        self.mr_write.next = self.command.mr_write.val();
        self.cq_write.next = self.command.cq_write.val();
        self.query_qpn.next = self.command.query_qpn.val();
        self.query_cqn.next = self.command.query_cqn.val();
        self.command.tx_entered.next = self.tx_entered.val();
        self.command.tx_finished.next = self.tx_finished.val();
        self.command.rx_entered.next = self.rx_entered.val();
        self.command.rx_finished.next = self.rx_finished.val();
        self.command.cq_entered.next = self.cq_entered.val();
        self.command.cq_finished.next = self.cq_finished.val();
        self.command.flush_pending.next = self.flush_pending.val();
        self.command.q_next_psn.next = self.q_next_psn.val();
        self.command.q_unacked_psn.next = self.q_unacked_psn.val();
        self.command.q_expected_psn.next = self.q_expected_psn.val();
        self.command.q_msn.next = self.q_msn.val();
        self.command.q_producer.next = self.q_producer.val();
        self.command.q_fetched.next = self.q_fetched.val();
        self.command.q_consumer.next = self.q_consumer.val();
        self.command.q_rx_dead.next = self.q_rx_dead.val();
        self.command.q_tx_dead.next = self.q_tx_dead.val();
        self.command.q_cq_producer.next = self.q_cq_producer.val();
        self.command.q_cq_consumer.next = self.q_cq_consumer.val();
        self.command.q_cq_overrun.next = self.q_cq_overrun.val();
        self.event_out.data.next = self.command.event_out.data.val();
        self.event_out.valid.next = self.command.event_out.valid.val();
        self.command.event_out.ready.next = self.event_out.ready.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Monitor, Stalls};
    use verbena_abi::limits;
    use verbena_abi::queue::{CommandCode, CommandOp, EventKind};
    use verbena_abi::regs::{self, ArmKind, Doorbell as Word};
    use verbena_abi::stages::Stage;

    struct Run {
        bench: Bench<ControlPlane>,
        sq: Monitor<SqBell>,
        cq: Monitor<CqBell>,
        events: Monitor<EventReq>,
        cq_writes: Vec<CqWrite>,
    }

    impl Run {
        fn new(name: &str) -> Self {
            let mut bench = Bench::new(name, ControlPlane::default(), |uut| &mut uut.clock);
            bench.uut.tables_ready.next = true;
            bench.uut.s_axil_wstrb.next = 15u64.into();
            bench.uut.s_axil_bready.next = true;
            bench.uut.s_axil_rready.next = true;
            let [sq, cq, events] = [41, 42, 43].map(Stalls::new);
            Self { bench, sq: Monitor::new(sq), cq: Monitor::new(cq), events: Monitor::new(events), cq_writes: vec![] }
        }

        fn settle(&mut self) {
            self.sq.before(&mut self.bench.uut.sq_bell);
            self.cq.before(&mut self.bench.uut.cq_bell);
            self.events.before(&mut self.bench.uut.event_out);
            self.bench.settle();
            self.sq.after(&self.bench.uut.sq_bell);
            self.cq.after(&self.bench.uut.cq_bell);
            self.events.after(&self.bench.uut.event_out);
            if self.bench.uut.cq_write.val().valid {
                self.cq_writes.push(self.bench.uut.cq_write.val());
            }
        }

        fn step(&mut self) {
            self.settle();
            self.bench.edge();
        }

        /// Writes and returns the clocks until the answer.
        fn write(&mut self, offset: u32, value: u32) -> usize {
            self.bench.uut.s_axil_awaddr.next = u64::from(offset).into();
            self.bench.uut.s_axil_wdata.next = u64::from(value).into();
            self.bench.uut.s_axil_awvalid.next = true;
            self.bench.uut.s_axil_wvalid.next = true;
            for clock in 0..400 {
                self.settle();
                let done = self.bench.uut.s_axil_bvalid.val();
                self.bench.edge();
                self.bench.uut.s_axil_awvalid.next = false;
                self.bench.uut.s_axil_wvalid.next = false;
                if done {
                    return clock;
                }
            }
            panic!("a write to {offset:#x} hangs");
        }

        fn read(&mut self, offset: u32) -> u32 {
            self.bench.uut.s_axil_araddr.next = u64::from(offset).into();
            self.bench.uut.s_axil_arvalid.next = true;
            for _ in 0..10 {
                self.settle();
                let answer = self.bench.uut.s_axil_rvalid.val().then(|| self.bench.uut.s_axil_rdata.val().to_u64() as u32);
                self.bench.edge();
                self.bench.uut.s_axil_arvalid.next = false;
                if let Some(answer) = answer {
                    return answer;
                }
            }
            panic!("a read of {offset:#x} hangs");
        }

        fn command(&mut self, op: u32, tag: u32, args: &[u32]) -> u32 {
            for (index, value) in (0..).zip(args) {
                self.write(regs::CmdArgs::OFFSET + 4 * index, *value);
            }
            self.write(regs::CmdGo::OFFSET, op | tag << 16);
            for _ in 0..40 {
                let status = self.read(regs::CmdStatus::OFFSET);
                if regs::CmdStatus::BUSY.get(status) == 0 {
                    assert_eq!(regs::CmdStatus::TAG.get(status), tag);
                    return regs::CmdStatus::CODE.get(status);
                }
            }
            panic!("command {op} hangs");
        }
    }

    #[test]
    fn a_driver_finds_the_card_waits_for_it_and_creates_a_completion_queue() {
        let mut run = Run::new("control");
        for _ in 0..32 {
            run.step();
        }
        assert_eq!(run.read(regs::Id::OFFSET), regs::Id::RESET);
        assert_eq!(run.read(regs::CapQueues::OFFSET), regs::CapQueues::RESET);
        assert_eq!(run.read(regs::Status::OFFSET), 0);
        run.write(regs::CmdGo::OFFSET, 1);
        while run.read(regs::Status::OFFSET) == 0 {
            assert!(run.bench.clock_count() < (1 << limits::LOG_OBJECTS) + 200, "the card does not become ready");
        }
        run.cq_writes.clear();
        assert_eq!(run.command(CommandOp::CreateCq as u32, 0x77, &[3, 4, 0x1000, 1]), CommandCode::Ok as u32);
        assert_eq!(run.cq_writes.len(), 1);
        assert_eq!(run.cq_writes[0].entry.address, 0x1_0000_1000u64);
        assert_eq!(run.command(CommandOp::CreateCq as u32, 0x78, &[3, 4, 0x1000, 1]), CommandCode::InUse as u32);
        run.bench.uut.q_cq_producer.next = 0x55u64.into();
        assert_eq!(run.command(CommandOp::QueryCq as u32, 0x79, &[3]), CommandCode::Ok as u32);
        assert_eq!((run.read(regs::CmdResult::OFFSET), run.read(regs::CmdResult::OFFSET + 4)), (1, 0x55));
        for _ in 0..100 {
            run.step();
        }
        let events: Vec<_> = run.events.got.iter().map(|event| (event.number.to_u64(), event.kind.to_u64(), event.code.to_u64())).collect();
        let kind = EventKind::Command as u64;
        assert_eq!(events, [(0x77, kind, 0), (0x78, kind, CommandCode::InUse as u64), (0x79, kind, 0)]);
        assert_eq!(run.read(Counter::BadCommands.offset()), 2);
        run.bench.finish();
    }

    #[test]
    fn doorbells_and_registers_share_the_bar_and_bad_doorbells_are_counted() {
        let mut run = Run::new("control_bells");
        run.bench.uut.pulses.next = 0u64.into();
        for _ in 0..33 {
            run.step();
        }
        for number in 0..40 {
            run.write(Word::Sq.offset(number), 0x100 + number);
            run.write(Word::CqArm.offset(number), ArmKind::Any.word(number));
            run.write(regs::EqConsumer::OFFSET, number);
            run.write(Word::Sq.offset(regs::DOORBELL_PAGES as u32 + number), 0);
        }
        for _ in 0..200 {
            run.step();
        }
        assert_eq!(run.sq.got.iter().map(|bell| bell.index.to_u64()).collect::<Vec<_>>(), (0x100..0x128).collect::<Vec<_>>());
        assert_eq!(run.cq.got.iter().map(|bell| bell.index.to_u64()).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        assert!(run.cq.got.iter().all(|bell| bell.is_arm && bell.kind == 1u64));
        assert_eq!(run.read(regs::EqConsumer::OFFSET), 39);
        assert_eq!(run.read(Counter::BadDoorbells.offset()), 40);
        run.bench.finish();
    }

    #[test]
    fn stages_are_counted_between_two_holds_and_read_over_the_bar() {
        let mut run = Run::new("control_stages");
        for _ in 0..33 {
            run.step();
        }
        let hold = regs::StageControl::reset().with(regs::StageControl::HOLD, 1).raw();
        run.bench.uut.stage_valid.next = 0x3FFF_FFFFu64.into();
        run.bench.uut.stage_ready.next = 0x1555_5555u64.into();
        run.write(regs::StageControl::OFFSET, hold);
        for _ in 0..40 {
            run.step();
        }
        let offsets = || Stage::ALL.iter().flat_map(|(stage, _, _)| [stage.beats_offset(), stage.stalls_offset()]);
        let before: Vec<u32> = offsets().map(|offset| run.read(offset)).collect();
        let start = run.read(regs::Clocks::OFFSET);
        run.write(regs::StageControl::OFFSET, 0);
        for _ in 0..500 {
            run.step();
        }
        run.write(regs::StageControl::OFFSET, hold);
        for _ in 0..40 {
            run.step();
        }
        let clocks = run.read(regs::Clocks::OFFSET) - start;
        assert!((500..510).contains(&clocks), "{clocks} clocks");
        for (index, (offset, before)) in offsets().zip(before).enumerate() {
            // Even stages move and odd ones stall in each clock.
            let (stage, is_stalls) = (index / 2, index % 2 == 1);
            let expected = if (stage % 2 == 1) == is_stalls { clocks } else { 0 };
            assert_eq!(run.read(offset) - before, expected, "stage {stage}, stalls {is_stalls}");
        }
        run.bench.finish();
    }

    #[test]
    fn traffic_is_counted_and_read_over_the_bar() {
        let mut run = Run::new("control_traffic");
        for (rx, tx, last) in [(62u64, 64u64, false), (0, 18, true), (4_170, 64, true), (1, 0, true)] {
            (run.bench.uut.rx_bytes.next, run.bench.uut.tx_bytes.next, run.bench.uut.tx_last.next) = (rx.into(), tx.into(), last);
            run.step();
        }
        (run.bench.uut.rx_bytes.next, run.bench.uut.tx_bytes.next) = (0u64.into(), 0u64.into());
        let expected = [4_233, 146, 3, 2];
        for ((counter, name, _), expected) in regs::WideCounter::ALL.iter().zip(expected) {
            assert_eq!((run.read(counter.offset()), run.read(counter.offset() + 4)), (expected, 0), "{name}");
        }
        run.bench.finish();
    }

    #[test]
    fn a_write_is_answered_within_three_clocks_while_the_bells_are_taken() {
        let mut run = Run::new("control_rate");
        for _ in 0..33 {
            run.step();
        }
        run.sq = Monitor::new(Stalls::none());
        for number in 0..60 {
            assert!(run.write(Word::Sq.offset(number), number) <= 2);
        }
        run.step();
        run.step();
        assert_eq!(run.sq.got.len(), 60);
        run.bench.finish();
    }

    #[test]
    fn a_reset_in_the_middle_of_a_command_forgets_it_the_registers_and_the_bells_that_wait() {
        let mut run = Run::new("control_reset");
        let is_ready = |run: &mut Run| {
            for _ in 0..(1 << limits::LOG_OBJECTS) / 4 {
                if run.read(regs::Status::OFFSET) != 0 {
                    return;
                }
            }
            panic!("the card does not become ready");
        };
        is_ready(&mut run);
        assert_eq!(run.command(CommandOp::CreateCq as u32, 1, &[3, 4, 0x1000, 1]), CommandCode::Ok as u32);
        run.write(regs::EqConsumer::OFFSET, 77);
        run.write(Word::Sq.offset(9), 0x111);
        // A command is carried out while the reset comes.
        run.write(regs::CmdGo::OFFSET, CommandOp::DestroyCq as u32 | 2 << 16);
        for _ in 0..5 {
            run.step();
        }
        run.bench.uut.reset.next = true;
        run.step();
        run.bench.uut.reset.next = false;
        (run.sq, run.cq, run.events) = (Monitor::new(Stalls::new(51)), Monitor::new(Stalls::new(52)), Monitor::new(Stalls::new(53)));
        assert_eq!(run.read(regs::EqConsumer::OFFSET), 0);
        assert_eq!(run.read(regs::CmdStatus::OFFSET), 0);
        is_ready(&mut run);
        assert!(run.sq.got.is_empty() && run.events.got.is_empty(), "a bell or an event of before came out");
        assert_eq!(run.command(CommandOp::CreateCq as u32, 3, &[3, 4, 0x2000, 1]), CommandCode::Ok as u32, "the queue of before is gone");
        run.write(Word::Sq.offset(4), 0x222);
        for _ in 0..100 {
            run.step();
        }
        assert_eq!(run.sq.got.iter().map(|bell| (bell.qpn.to_u64(), bell.index.to_u64())).collect::<Vec<_>>(), [(4, 0x222)]);
        assert_eq!(run.events.got.iter().map(|event| event.number.to_u64()).collect::<Vec<_>>(), [3]);
        run.bench.finish();
    }
}
