//! Walks the register table.

use super::*;
use verbena_abi::stages::Stage;

use crate::testing::{Bench, Driver, Stalls};

struct Run {
    bench: Bench<Registers>,
}

fn mask(info: &RegisterInfo) -> u32 {
    info.fields.iter().fold(0, |mask, field| mask | field.place(field.max()))
}

impl Run {
    fn new(name: &str) -> Self {
        let mut run = Self { bench: Bench::new(name, Registers::default(), |uut| &mut uut.clock) };
        run.bench.cycles(32);
        run
    }

    fn read(&mut self, offset: u32) -> u32 {
        self.bench.uut.read_valid.next = true;
        self.bench.uut.read_offset.next = u64::from(offset).into();
        self.bench.edge();
        self.bench.uut.read_valid.next = false;
        self.bench.cycles(2);
        self.bench.settle();
        self.bench.uut.read_value.val().to_u64() as u32
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.bench.uut.write.valid.next = true;
        self.bench.uut.write.data.next = BarWrite { offset: u64::from(offset).into(), value: u64::from(value).into() };
        self.bench.settle();
        assert!(self.bench.uut.write.ready.val(), "a write waits");
        self.bench.edge();
        self.bench.uut.write.valid.next = false;
    }
}

/// Every register of the table, one by one.
fn words() -> impl Iterator<Item = (u32, &'static RegisterInfo)> {
    BAR0.iter().flat_map(|info| (0..info.count).map(move |index| (info.offset + 4 * index, info)))
}

#[test]
fn every_register_has_its_reset_value_and_keeps_what_its_access_says() {
    let mut run = Run::new("registers");
    for (offset, info) in words() {
        assert_eq!(run.read(offset), info.reset, "{} at {offset:#x} after reset", info.name);
    }
    let value = |offset: u32| 0xFFFF_FFFF ^ offset.wrapping_mul(0x0101_0101);
    for (offset, _) in words() {
        run.write(offset, value(offset));
    }
    for (offset, info) in words() {
        let expected = match info.access {
            Access::Ro => info.reset,
            Access::Rw => value(offset) & mask(info),
            Access::Wo => 0,
        };
        assert_eq!(run.read(offset), expected, "{} at {offset:#x} after a write", info.name);
    }
    run.bench.uut.reset.next = true;
    run.bench.cycles(1);
    run.bench.uut.reset.next = false;
    run.bench.settle();
    assert!(!run.bench.uut.write.ready.val());
    assert_eq!(run.read(regs::CmdArgs::OFFSET + 124), 0, "the window reads 0 while it is cleared");
    run.bench.cycles(32);
    for (offset, info) in words() {
        assert_eq!(run.read(offset), info.reset, "{} at {offset:#x} after another reset", info.name);
    }
    run.bench.finish();
}

#[test]
fn gaps_read_0_and_ignore_writes() {
    let mut run = Run::new("registers_gaps");
    let known: Vec<u32> = words().map(|(offset, _)| offset).collect();
    let mut gaps: Vec<u32> = (0..0x1100).step_by(4).collect();
    gaps.extend([0x1800, 0x4000, 0x8080, 0xFFFC]);
    gaps.extend([0x1_0000, 0x1_0080, 0x1_1000, 0x80_1084, 0xFF_FFFC]);
    gaps.retain(|offset| !known.contains(offset));
    for offset in &gaps {
        if *offset < 0x1_0000 {
            run.write(*offset, 0xFFFF_FFFF);
        }
    }
    // What other blocks answer shows at their own addresses alone; that of the stages gives 0 itself where it has none.
    let stages = regs::StageBeats::OFFSET..regs::StageStalls::OFFSET + 128;
    (run.bench.uut.stage_value.next, run.bench.uut.traffic_value.next) = (0x5555_5555u64.into(), 0xAAAA_AAAAu64.into());
    for offset in &gaps {
        let expected = if stages.contains(offset) { 0x5555_5555 } else { 0 };
        assert_eq!(run.read(*offset), expected, "{offset:#x}");
    }
    for (offset, info) in words() {
        let expected = match info.offset {
            regs::WideCounters::OFFSET => 0xAAAA_AAAA,
            _ if stages.contains(&offset) => 0x5555_5555,
            _ => info.reset,
        };
        assert_eq!(run.read(offset), expected, "{} was hit by a write to a gap, or gives what is another's", info.name);
    }
    run.bench.finish();
}

#[test]
fn what_the_driver_writes_comes_out_for_the_card() {
    let mut run = Run::new("registers_card");
    run.write(regs::MacLo::OFFSET, 0x4433_2211);
    run.write(regs::MacHi::OFFSET, 0xFFFF_6655);
    run.write(regs::Ipv4::OFFSET, 0x0200_000A);
    for index in 0..4 {
        run.write(regs::Ipv6::OFFSET + 4 * index, 0x1000_0001 * (index + 1));
    }
    run.write(regs::EqBaseLo::OFFSET, 0x1234_5680);
    run.write(regs::EqBaseHi::OFFSET, 0x9ABC);
    run.write(regs::EqConsumer::OFFSET, 0xFFFF_FFFE);
    run.write(regs::EqConfig::OFFSET, 0x8000_030A);
    run.bench.settle();
    assert!(run.bench.uut.eq_restart.val());
    run.bench.edge();
    let uut = &run.bench.uut;
    assert!(!uut.eq_restart.val() && uut.eq_enable.val());
    assert_eq!(uut.mac.val(), 0x6655_4433_2211u64);
    assert_eq!(uut.ipv4.val(), 0x0200_000Au64);
    assert_eq!(uut.ipv6.val().to_u128(), 0x4000_0004_3000_0003_2000_0002_1000_0001);
    assert_eq!(uut.eq_base.val(), 0x9ABC_1234_5680u64);
    assert_eq!((uut.eq_log_depth.val().to_u64(), uut.eq_vector.val().to_u64()), (10, 3));
    assert_eq!(uut.eq_consumer.val(), 0xFFFF_FFFEu64);
    run.bench.finish();
}

#[test]
fn status_shows_the_card_and_keeps_a_dma_error() {
    let mut run = Run::new("registers_status");
    run.bench.uut.ready.next = true;
    run.bench.uut.dma_error.next = true;
    run.bench.edge();
    run.bench.uut.dma_error.next = false;
    assert_eq!(run.read(regs::Status::OFFSET), 3);
    run.bench.uut.ready.next = false;
    assert_eq!(run.read(regs::Status::OFFSET), 2);
    run.bench.uut.busy.next = true;
    run.bench.uut.code.next = 5u64.into();
    run.bench.uut.done_tag.next = 0xABCDu64.into();
    assert_eq!(run.read(regs::CmdStatus::OFFSET), 0xABCD_0501);
    run.bench.finish();
}

#[test]
fn every_counter_counts_its_own_pulses_and_none_is_lost() {
    let mut run = Run::new("registers_counters");
    let mut random = Stalls::new(9);
    let mut expected = [0u32; COUNTERS];
    for clock in 0..700 {
        // All at once for a while, so that the six bits are filled as far as they can be.
        let pulses = if clock < 100 { (1 << COUNTERS) - 1 } else { random.random() & random.random() & ((1 << COUNTERS) - 1) };
        run.bench.uut.pulses.next = pulses.into();
        for (bit, count) in expected.iter_mut().enumerate() {
            *count += (pulses >> bit & 1) as u32;
        }
        run.bench.edge();
    }
    run.bench.uut.pulses.next = 0u64.into();
    run.bench.cycles(29);
    for (counter, name, _) in Counter::ALL {
        assert_eq!(run.read(counter.offset()), expected[*counter as usize], "{name}");
    }
    run.bench.finish();
}

#[test]
fn pulses_during_the_clear_are_counted() {
    let mut bench = Bench::new("registers_early", Registers::default(), |uut| &mut uut.clock);
    bench.uut.pulses.next = ((1u64 << COUNTERS) - 1).into();
    bench.cycles(60);
    bench.uut.pulses.next = 0u64.into();
    bench.cycles(30);
    let mut run = Run { bench };
    for (counter, name, _) in Counter::ALL {
        assert_eq!(run.read(counter.offset()), 60, "{name}");
    }
    run.bench.finish();
}

#[test]
fn stages_are_read_from_their_block_and_held_by_their_bit() {
    let mut run = Run::new("registers_stages");
    let value = |address: u64| address.wrapping_mul(0x0123_4567) & 0xFFFF_FFFF;
    for (stage, name, _) in Stage::ALL {
        for (offset, address) in [(stage.beats_offset(), *stage as u64), (stage.stalls_offset(), 32 + *stage as u64)] {
            run.bench.uut.read_valid.next = true;
            run.bench.uut.read_offset.next = u64::from(offset).into();
            run.bench.edge();
            run.bench.uut.read_valid.next = false;
            run.bench.settle();
            assert_eq!(run.bench.uut.stage_address.val(), address, "{name}");
            run.bench.edge();
            run.bench.uut.stage_value.next = value(address).into();
            run.bench.edge();
            run.bench.uut.stage_value.next = 0u64.into();
            run.bench.settle();
            assert_eq!(run.bench.uut.read_value.val(), value(address), "{name}");
        }
    }
    run.bench.uut.clocks.next = 0x8765_4321u64.into();
    assert_eq!(run.read(regs::Clocks::OFFSET), 0x8765_4321);
    assert!(!run.bench.uut.stage_hold.val());
    run.write(regs::StageControl::OFFSET, regs::StageControl::reset().with(regs::StageControl::HOLD, 1).raw());
    run.bench.settle();
    assert!(run.bench.uut.stage_hold.val());
    run.write(regs::StageControl::OFFSET, 0);
    run.bench.settle();
    assert!(!run.bench.uut.stage_hold.val());
    run.bench.finish();
}

#[test]
fn words_of_the_traffic_are_read_from_their_block() {
    let mut run = Run::new("registers_traffic");
    for (counter, name, _) in regs::WideCounter::ALL {
        for half in 0..2u32 {
            let value = 0x8000_0001 + 0x0123_4567 * u64::from(counter.offset() / 8 + half);
            run.bench.uut.read_valid.next = true;
            run.bench.uut.read_offset.next = u64::from(counter.offset() + 4 * half).into();
            run.bench.edge();
            run.bench.uut.read_valid.next = false;
            run.bench.settle();
            assert_eq!(run.bench.uut.traffic_address.val(), u64::from(2 * *counter as u32 + half), "{name}");
            run.bench.edge();
            run.bench.uut.traffic_value.next = (value & 0xFFFF_FFFF).into();
            run.bench.edge();
            run.bench.uut.traffic_value.next = 0u64.into();
            run.bench.settle();
            assert_eq!(run.bench.uut.read_value.val(), value & 0xFFFF_FFFF, "{name}, word {half}");
        }
    }
    run.bench.finish();
}

#[test]
fn a_command_is_started_and_its_window_and_results_are_seen_from_both_sides() {
    let mut run = Run::new("registers_command");
    for index in 0..32u32 {
        run.write(regs::CmdArgs::OFFSET + 4 * index, 0x1111 * index);
    }
    for index in 0..32u32 {
        run.bench.uut.window_address.next = u64::from(index).into();
        run.bench.settle();
        assert_eq!(run.bench.uut.window_data.val(), u64::from(0x1111 * index));
    }
    run.write(regs::CmdGo::OFFSET, 0xBEEF_FF07);
    run.bench.settle();
    assert!(run.bench.uut.go.val());
    assert_eq!(run.bench.uut.go_opcode.val(), 7u64);
    assert_eq!(run.bench.uut.go_tag.val(), 0xBEEFu64);
    run.bench.edge();
    assert!(!run.bench.uut.go.val());
    for index in 0..8u64 {
        run.bench.uut.result_write.next = true;
        run.bench.uut.result_index.next = index.into();
        run.bench.uut.result_value.next = (0x55 * index + 1).into();
        run.bench.edge();
    }
    run.bench.uut.result_write.next = false;
    for index in 0..8 {
        assert_eq!(run.read(regs::CmdResult::OFFSET + 4 * index), 0x55 * index + 1);
    }
    run.bench.finish();
}

#[test]
fn writes_with_random_stalls_pass_one_a_clock() {
    let mut run = Run::new("registers_stalls");
    let writes = (0..200u64).map(|i| BarWrite { offset: (0x1000 + 4 * (i % 32)).into(), value: (i * i).into() });
    let mut driver = Driver::new(writes, Stalls::new(21));
    while !driver.is_done() {
        driver.before(&mut run.bench.uut.write);
        run.bench.settle();
        assert!(run.bench.uut.write.ready.val());
        driver.after(&run.bench.uut.write);
        run.bench.edge();
        assert!(run.bench.clock_count() < 2_000, "a write hangs");
    }
    run.bench.uut.write.valid.next = false;
    for index in 0..32u32 {
        let last = (0..200).rfind(|i| i % 32 == index).unwrap();
        assert_eq!(run.read(0x1000 + 4 * index), last * last);
    }
    run.bench.finish();
}
