//! The registers of BAR0 below the doorbell pages.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `write` | sink | one BAR0 write below 64 KiB |
//! | `read_valid`, `read_offset` | in | one clock: what does this offset hold? |
//! | `read_value` | out | the answer three clocks later, until the next question |
//! | `mac` to `eq_consumer` | out | what the driver wrote; bytes of addresses in wire order, first byte lowest |
//! | `eq_restart` | out | one clock with the first value of a written `EqConfig` |
//! | `ready`, `dma_error` | in | `Status`; `dma_error` may be a pulse, it is kept until reset |
//! | `pulses` | in | bit n adds 1 to counter n, in the order of [`Counter`] |
//! | `stage_hold`, `clocks` | out, in | `StageControl.HOLD`, `Clocks` |
//! | `stage_address`, `stage_value` | out, in | a word of `StageBeats` (0 to 31) or `StageStalls` (32 to 63), one clock later |
//! | `traffic_address`, `traffic_value` | out, in | a word of `WideCounters`, one clock later |
//! | `go`, `go_opcode`, `go_tag` | out | one clock for a write to `CmdGo` |
//! | `window_address`, `window_data` | in, out | a word of `CmdArgs`, in the same clock |
//! | `busy`, `code`, `done_tag` | in | `CmdStatus` |
//! | `result_write`, `result_index`, `result_value` | in | writes a word of `CmdResult` |
//!
//! Latency of a read: three clocks. Throughput: one write every clock; one read every three clocks.
//! For 32 clocks after reset `write.ready` is low while window, results and counters are
//! cleared; they read 0 meanwhile. Reserved offsets and bits read 0; writes to them and to read-only
//! registers are ignored.
//!
//! Which registers there are, their constants and their bits come from the table [`BAR0`]. Counters are in a
//! [`Tally`], so one is at most 29 clocks old.

use std::array::from_fn;

use rust_hdl::prelude::*;
use verbena_abi::regs::{self, Access, Counter, RegisterInfo, BAR0};

use super::{Tally, BELL_BITS};
use crate::bus::{BarOffset, BarWrite, StreamSink};
use crate::prim::LutRam;

const FIXED: usize = 14;
const PLAIN: usize = 12;
const COUNTERS: usize = 28;
const _: () = assert!(Counter::COUNT == COUNTERS);

/// Registers below 64 KiB.
#[derive(LogicBlock)]
pub struct Registers {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub write: StreamSink<BarWrite>,
    pub read_valid: Signal<In, Bit>,
    pub read_offset: Signal<In, BarOffset>,
    pub read_value: Signal<Out, Bits<32>>,
    pub mac: Signal<Out, Bits<48>>,
    pub ipv4: Signal<Out, Bits<32>>,
    pub ipv6: Signal<Out, Bits<128>>,
    pub eq_base: Signal<Out, Bits<64>>,
    pub eq_log_depth: Signal<Out, Bits<5>>,
    pub eq_vector: Signal<Out, Bits<8>>,
    pub eq_enable: Signal<Out, Bit>,
    pub eq_restart: Signal<Out, Bit>,
    pub eq_consumer: Signal<Out, Bits<32>>,
    pub ready: Signal<In, Bit>,
    pub dma_error: Signal<In, Bit>,
    pub pulses: Signal<In, Bits<28>>,
    pub stage_hold: Signal<Out, Bit>,
    pub clocks: Signal<In, Bits<32>>,
    pub stage_address: Signal<Out, Bits<6>>,
    pub stage_value: Signal<In, Bits<32>>,
    pub traffic_address: Signal<Out, Bits<3>>,
    pub traffic_value: Signal<In, Bits<32>>,
    pub go: Signal<Out, Bit>,
    pub go_opcode: Signal<Out, Bits<8>>,
    pub go_tag: Signal<Out, Bits<16>>,
    pub window_address: Signal<In, Bits<5>>,
    pub window_data: Signal<Out, Bits<32>>,
    pub busy: Signal<In, Bit>,
    pub code: Signal<In, Bits<8>>,
    pub done_tag: Signal<In, Bits<16>>,
    pub result_write: Signal<In, Bit>,
    pub result_index: Signal<In, Bits<3>>,
    pub result_value: Signal<In, Bits<32>>,

    // Writes.
    offset: Signal<Local, BarOffset>,
    value: Signal<Local, Bits<32>>,
    word: Signal<Local, Bits<14>>,
    take: Signal<Local, Bit>,
    plain: [DFF<Bits<32>>; PLAIN],
    plain_word: [Constant<Bits<14>>; PLAIN],
    plain_mask: [Constant<Bits<32>>; PLAIN],
    base_lo: Signal<Local, Bits<32>>,
    base_hi: Signal<Local, Bits<32>>,
    mac_lo: Signal<Local, Bits<32>>,
    mac_hi: Signal<Local, Bits<32>>,
    eq_config: Signal<Local, Bits<32>>,
    stage_control: Signal<Local, Bits<32>>,
    config_word: Constant<Bits<14>>,
    restarts: DFF<Bit>,
    go_word: Constant<Bits<14>>,
    goes: DFF<Bit>,
    opcode: DFF<Bits<8>>,
    tag: DFF<Bits<16>>,
    args_page: Constant<Bits<9>>,
    window: LutRam<Bits<32>, 5>,
    window_copy: LutRam<Bits<32>, 5>,
    results: LutRam<Bits<32>, 3>,
    clear_index: DFF<Bits<6>>,
    is_clear: Signal<Local, Bit>,
    has_dma_error: DFF<Bit>,

    counters: Tally<28>,

    // Reads.
    address: DFF<Bits<14>>,
    is_below: DFF<Bit>,
    fixed_word: [Constant<Bits<14>>; FIXED],
    fixed_value: [Constant<Bits<32>>; FIXED],
    fixed: DFF<Bits<32>>,
    kept: DFF<Bits<32>>,
    window_read: DFF<Bits<32>>,
    sum_read: DFF<Bits<32>>,
    result_read: DFF<Bits<32>>,
    is_args: DFF<Bit>,
    is_sum: DFF<Bit>,
    is_stage: DFF<Bit>,
    is_traffic: DFF<Bit>,
    is_result: DFF<Bit>,
    status_word: Constant<Bits<14>>,
    clocks_word: Constant<Bits<14>>,
    command_status_word: Constant<Bits<14>>,
    counters_page: Constant<Bits<9>>,
    stages_page: Constant<Bits<8>>,
    traffic_page: Constant<Bits<11>>,
    results_page: Constant<Bits<11>>,
    answer: DFF<Bits<32>>,
}

/// Returns the word addresses and the descriptions of the registers with `access` that are neither counters nor stages, nor of a command.
fn single(access: Access) -> Vec<(u32, &'static RegisterInfo)> {
    let listed = BAR0.iter().filter(|info| info.access == access && info.offset < regs::Counters::OFFSET);
    let listed = listed.filter(|info| info.offset != regs::Status::OFFSET && info.offset != regs::Clocks::OFFSET);
    listed.flat_map(|info| (0..info.count).map(move |index| (info.offset / 4 + index, info))).collect()
}

impl Default for Registers {
    fn default() -> Self {
        let plain = single(Access::Rw);
        let fixed = single(Access::Ro);
        let place = |offset: u32| plain.iter().position(|(word, _)| *word == offset / 4).expect("a register of the table");
        let places = [
            regs::MacLo::OFFSET,
            regs::MacHi::OFFSET,
            regs::Ipv4::OFFSET,
            regs::Ipv6::OFFSET,
            regs::Ipv6::OFFSET + 12,
            regs::EqBaseLo::OFFSET,
            regs::EqBaseHi::OFFSET,
            regs::EqConfig::OFFSET,
            regs::EqConsumer::OFFSET,
            regs::StageControl::OFFSET,
        ];
        assert_eq!(places.map(place), [0, 1, 2, 3, 6, 7, 8, 9, 10, 11], "the kernel names registers by their place in the table");
        assert_eq!((plain.len(), fixed.len()), (PLAIN, FIXED));
        let mask = |info: &RegisterInfo| info.fields.iter().fold(0, |mask, field| mask | field.place(field.max()));
        let word = |offset: u32| Constant::new((offset / 4).to_bits());
        Self {
            clock: Default::default(),
            reset: Default::default(),
            write: Default::default(),
            read_valid: Default::default(),
            read_offset: Default::default(),
            read_value: Default::default(),
            mac: Default::default(),
            ipv4: Default::default(),
            ipv6: Default::default(),
            eq_base: Default::default(),
            eq_log_depth: Default::default(),
            eq_vector: Default::default(),
            eq_enable: Default::default(),
            eq_restart: Default::default(),
            eq_consumer: Default::default(),
            ready: Default::default(),
            dma_error: Default::default(),
            pulses: Default::default(),
            stage_hold: Default::default(),
            clocks: Default::default(),
            stage_address: Default::default(),
            stage_value: Default::default(),
            traffic_address: Default::default(),
            traffic_value: Default::default(),
            go: Default::default(),
            go_opcode: Default::default(),
            go_tag: Default::default(),
            window_address: Default::default(),
            window_data: Default::default(),
            busy: Default::default(),
            code: Default::default(),
            done_tag: Default::default(),
            result_write: Default::default(),
            result_index: Default::default(),
            result_value: Default::default(),
            offset: Default::default(),
            value: Default::default(),
            word: Default::default(),
            take: Default::default(),
            plain: Default::default(),
            plain_word: from_fn(|i| Constant::new(plain[i].0.to_bits())),
            plain_mask: from_fn(|i| Constant::new(mask(plain[i].1).to_bits())),
            base_lo: Default::default(),
            base_hi: Default::default(),
            mac_lo: Default::default(),
            mac_hi: Default::default(),
            eq_config: Default::default(),
            stage_control: Default::default(),
            config_word: word(regs::EqConfig::OFFSET),
            restarts: Default::default(),
            go_word: word(regs::CmdGo::OFFSET),
            goes: Default::default(),
            opcode: Default::default(),
            tag: Default::default(),
            args_page: Constant::new((regs::CmdArgs::OFFSET / 128).to_bits()),
            window: Default::default(),
            window_copy: Default::default(),
            results: Default::default(),
            clear_index: Default::default(),
            is_clear: Default::default(),
            has_dma_error: Default::default(),
            counters: Default::default(),
            address: Default::default(),
            is_below: Default::default(),
            fixed_word: from_fn(|i| Constant::new(fixed[i].0.to_bits())),
            fixed_value: from_fn(|i| Constant::new(fixed[i].1.reset.to_bits())),
            fixed: Default::default(),
            kept: Default::default(),
            window_read: Default::default(),
            sum_read: Default::default(),
            result_read: Default::default(),
            is_args: Default::default(),
            is_sum: Default::default(),
            is_stage: Default::default(),
            is_traffic: Default::default(),
            is_result: Default::default(),
            status_word: word(regs::Status::OFFSET),
            clocks_word: word(regs::Clocks::OFFSET),
            command_status_word: word(regs::CmdStatus::OFFSET),
            counters_page: Constant::new((regs::Counters::OFFSET / 128).to_bits()),
            stages_page: Constant::new((regs::StageBeats::OFFSET / 256).to_bits()),
            traffic_page: Constant::new((regs::WideCounters::OFFSET / 32).to_bits()),
            results_page: Constant::new((regs::CmdResult::OFFSET / 32).to_bits()),
            answer: Default::default(),
        }
    }
}

impl Logic for Registers {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, restarts, goes, opcode, tag, clear_index, has_dma_error);
        dff_setup!(self, clock, address, is_below, fixed, kept, window_read, sum_read, result_read);
        dff_setup!(self, clock, is_args, is_sum, is_stage, is_traffic, is_result, answer);
        clock!(self, clock, window, window_copy, results, counters);
        self.counters.reset.next = self.reset.val();
        for i in 0_usize..12 {
            self.plain[i].clock.next = self.clock.val();
            self.plain[i].d.next = self.plain[i].q.val();
        }

        self.is_clear.next = self.clear_index.q.val().get_bit(5);
        if !self.is_clear.val() {
            self.clear_index.d.next = self.clear_index.q.val() + 1;
        }

        self.write.ready.next = self.clear_index.q.val().get_bit(5);
        self.take.next = self.write.valid.val() & self.is_clear.val();
        self.offset.next = self.write.data.val().offset;
        self.value.next = self.write.data.val().value;
        self.word.next = self.offset.val().get_bits::<14>(2);
        for i in 0_usize..12 {
            if self.take.val() & (self.word.val() == self.plain_word[i].val()) {
                self.plain[i].d.next = self.value.val() & self.plain_mask[i].val();
            }
        }
        self.restarts.d.next = self.take.val() & (self.word.val() == self.config_word.val());
        self.goes.d.next = self.take.val() & (self.word.val() == self.go_word.val());
        self.opcode.d.next = self.value.val().get_bits::<8>(0);
        self.tag.d.next = self.value.val().get_bits::<16>(16);
        self.go.next = self.goes.q.val();
        self.go_opcode.next = self.opcode.q.val();
        self.go_tag.next = self.tag.q.val();

        self.window.write_enable.next = self.take.val() & (self.word.val().get_bits::<9>(5) == self.args_page.val());
        self.window.write_address.next = self.word.val().get_bits::<5>(0);
        self.window.write_data.next = self.value.val();
        self.results.write_enable.next = self.result_write.val();
        self.results.write_address.next = self.result_index.val();
        self.results.write_data.next = self.result_value.val();
        if !self.is_clear.val() {
            self.window.write_enable.next = true;
            self.window.write_address.next = self.clear_index.q.val().get_bits::<5>(0);
            self.window.write_data.next = 0.into();
            self.results.write_enable.next = true;
            self.results.write_address.next = self.clear_index.q.val().get_bits::<3>(0);
            self.results.write_data.next = 0.into();
        }
        self.window_copy.write_enable.next = self.window.write_enable.val();
        self.window_copy.write_address.next = self.window.write_address.val();
        self.window_copy.write_data.next = self.window.write_data.val();
        self.window_copy.read_address.next = self.window_address.val();
        self.window_data.next = self.window_copy.read_data.val();

        self.mac_lo.next = self.plain[0].q.val();
        self.mac_hi.next = self.plain[1].q.val();
        self.mac.next = (bit_cast::<48, 32>(self.mac_hi.val()) << 32) | bit_cast::<48, 32>(self.mac_lo.val());
        self.ipv4.next = self.plain[2].q.val();
        self.ipv6.next = (bit_cast::<128, 32>(self.plain[6].q.val()) << 96)
            | (bit_cast::<128, 32>(self.plain[5].q.val()) << 64)
            | (bit_cast::<128, 32>(self.plain[4].q.val()) << 32)
            | bit_cast::<128, 32>(self.plain[3].q.val());
        self.base_lo.next = self.plain[7].q.val();
        self.base_hi.next = self.plain[8].q.val();
        self.eq_base.next = (bit_cast::<64, 32>(self.base_hi.val()) << 32) | bit_cast::<64, 32>(self.base_lo.val());
        self.eq_config.next = self.plain[9].q.val();
        self.eq_log_depth.next = self.eq_config.val().get_bits::<5>(0);
        self.eq_vector.next = self.eq_config.val().get_bits::<8>(8);
        self.eq_enable.next = self.eq_config.val().get_bit(31);
        self.eq_restart.next = self.restarts.q.val();
        self.eq_consumer.next = self.plain[10].q.val();
        if self.dma_error.val() {
            self.has_dma_error.d.next = true;
        }

        self.stage_control.next = self.plain[11].q.val();
        self.stage_hold.next = self.stage_control.val().get_bit(0);
        self.counters.pulses.next = self.pulses.val();

        // First clock of a read: the address. Second: every kind of register looks. Third: one of them answers.
        if self.read_valid.val() {
            self.address.d.next = self.read_offset.val().get_bits::<14>(2);
            self.is_below.d.next = self.read_offset.val().get_bits::<BELL_BITS>(16) == 0;
        }
        self.window.read_address.next = self.address.q.val().get_bits::<5>(0);
        self.window_read.d.next = self.window.read_data.val();
        self.counters.read_address.next = self.address.q.val().get_bits::<5>(0);
        self.sum_read.d.next = self.counters.read_data.val();
        self.stage_address.next = self.address.q.val().get_bits::<6>(0);
        self.traffic_address.next = self.address.q.val().get_bits::<3>(0);
        self.results.read_address.next = self.address.q.val().get_bits::<3>(0);
        self.result_read.d.next = self.results.read_data.val();
        self.is_args.d.next = self.is_clear.val() & (self.address.q.val().get_bits::<9>(5) == self.args_page.val());
        self.is_sum.d.next = self.counters.ready.val() & (self.address.q.val().get_bits::<9>(5) == self.counters_page.val());
        self.is_stage.d.next = self.address.q.val().get_bits::<8>(6) == self.stages_page.val();
        self.is_traffic.d.next = self.address.q.val().get_bits::<11>(3) == self.traffic_page.val();
        self.is_result.d.next = self.is_clear.val() & (self.address.q.val().get_bits::<11>(3) == self.results_page.val());
        self.fixed.d.next = 0.into();
        for i in 0_usize..14 {
            if self.address.q.val() == self.fixed_word[i].val() {
                self.fixed.d.next = self.fixed_value[i].val();
            }
        }
        self.kept.d.next = 0.into();
        for i in 0_usize..12 {
            if self.address.q.val() == self.plain_word[i].val() {
                self.kept.d.next = self.plain[i].q.val();
            }
        }
        if self.address.q.val() == self.status_word.val() {
            self.kept.d.next = bit_cast::<32, 1>(self.ready.val().into()) | (bit_cast::<32, 1>(self.has_dma_error.q.val().into()) << 1);
        }
        if self.address.q.val() == self.clocks_word.val() {
            self.kept.d.next = self.clocks.val();
        }
        if self.address.q.val() == self.command_status_word.val() {
            self.kept.d.next = bit_cast::<32, 1>(self.busy.val().into())
                | (bit_cast::<32, 8>(self.code.val()) << 8)
                | (bit_cast::<32, 16>(self.done_tag.val()) << 16);
        }
        self.answer.d.next = 0.into();
        if self.is_below.q.val() {
            self.answer.d.next = self.fixed.q.val() | self.kept.q.val();
            if self.is_args.q.val() {
                self.answer.d.next = self.window_read.q.val();
            }
            if self.is_sum.q.val() {
                self.answer.d.next = self.sum_read.q.val();
            }
            if self.is_stage.q.val() {
                self.answer.d.next = self.stage_value.val();
            }
            if self.is_traffic.q.val() {
                self.answer.d.next = self.traffic_value.val();
            }
            if self.is_result.q.val() {
                self.answer.d.next = self.result_read.q.val();
            }
        }
        self.read_value.next = self.answer.q.val();

        if self.reset.val() {
            for i in 0_usize..12 {
                self.plain[i].d.next = 0.into();
            }
            self.clear_index.d.next = 0.into();
            self.restarts.d.next = false;
            self.goes.d.next = false;
            self.has_dma_error.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
