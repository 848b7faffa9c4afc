//! BAR0 of the verilated card, register by register, as the table of the interface says.

use std::sync::Arc;

use verbena_abi::queue::CommandCode;
use verbena_abi::regs::{Access, Clocks, CmdGo, CmdStatus, Counter, Doorbell, RegisterInfo, StageControl, Status, BAR0, DOORBELL_BASE};
use verbena_host::Device;
use verbena_sim::{PcieConfig, SimDevice, Threads, World, WorldConfig};
use verbena_tests::repeat::{self, Repeat};

/// Clocks until the tables are cleared, at most.
const READY: u64 = 20_000;

/// Returns a card on which nobody has done anything, ready; with a host so near that many accesses take little time.
fn card() -> (Arc<SimDevice>, Repeat) {
    let seed = repeat::seed();
    let pcie = PcieConfig { mmio_latency: 1, ..PcieConfig::default() };
    let world = World::new(&WorldConfig { seed, pcie, threads: Threads::One, trace: repeat::trace(), ..WorldConfig::default() }).unwrap();
    let device = world.device(0);
    let limit = world.clock() + READY;
    while read(&device, Status::OFFSET) & Status::READY.place(1) == 0 {
        assert!(world.clock() < limit, "waiting for Status.READY");
    }
    (device, Repeat { seed, capture: None })
}

fn read(device: &SimDevice, offset: u32) -> u32 {
    let value = device.bar().read32(offset);
    assert_ne!(value, u32::MAX, "all ones at {offset:#x}: what a card gives that is not there");
    value
}

fn write(device: &SimDevice, offset: u32, value: u32) {
    device.bar().write32(offset, value);
}

/// Returns all registers but the one that runs by itself.
fn all() -> impl Iterator<Item = (&'static RegisterInfo, u32)> {
    let standing = BAR0.iter().filter(|register| register.offset != Clocks::OFFSET);
    standing.flat_map(|register| (0..register.count).map(move |index| (register, register.offset + 4 * index)))
}

/// Returns the bits that are in a field.
fn mask(register: &RegisterInfo) -> u32 {
    register.fields.iter().fold(0, |mask, field| mask | field.place(field.max()))
}

/// Returns what a register holds on a ready card that was not touched.
fn untouched(register: &RegisterInfo) -> u32 {
    register.reset | if register.offset == Status::OFFSET { Status::READY.place(1) } else { 0 }
}

#[test]
fn every_register_has_its_reset_value() {
    let (device, _repeat) = card();
    for (register, offset) in all() {
        assert_eq!(read(&device, offset), untouched(register), "{} at {offset:#x}", register.name);
    }
}

#[test]
fn registers_that_are_read_only_ignore_writes() {
    let (device, _repeat) = card();
    for pattern in [u32::MAX, 0, 0x5A5A_A5A5] {
        for (register, offset) in all().filter(|(register, _)| register.access == Access::Ro) {
            write(&device, offset, pattern);
            assert_eq!(read(&device, offset), untouched(register), "{} at {offset:#x} after {pattern:#x}", register.name);
        }
    }
    for (register, offset) in all() {
        assert_eq!(read(&device, offset), untouched(register), "{} at {offset:#x} after all writes", register.name);
    }
}

#[test]
fn registers_keep_what_is_written_in_their_fields_alone() {
    let (device, _repeat) = card();
    let writable: Vec<_> = all().filter(|(register, _)| register.access == Access::Rw).collect();
    for round in 0..34u32 {
        // Each bit alone, then two patterns; each register another one.
        let value = |index: usize| match round {
            0..32 => 1u32.rotate_left(round + index as u32),
            32 => 0xA5A5_5A5Au32.rotate_left(index as u32),
            _ => 0x7FFF_FFFE ^ index as u32,
        };
        for (index, (_, offset)) in writable.iter().enumerate() {
            write(&device, *offset, value(index));
        }
        for (index, (register, offset)) in writable.iter().enumerate() {
            let expected = value(index) & mask(register);
            assert_eq!(read(&device, *offset), expected, "{} at {offset:#x} after {:#x}", register.name, value(index));
        }
    }
    for (register, offset) in all().filter(|(register, _)| register.access != Access::Rw) {
        assert_eq!(read(&device, offset), untouched(register), "{} at {offset:#x} after writes of others", register.name);
    }
}

#[test]
fn gaps_and_doorbells_read_zero_and_ignore_writes() {
    let (device, _repeat) = card();
    let known: std::collections::BTreeSet<u32> = all().map(|(_, offset)| offset).chain([Clocks::OFFSET]).collect();
    // All of what a page or a power of two around the registers could alias, and a part of the rest.
    let gaps = (0..0x2000u32).step_by(4).chain((0x2000..DOORBELL_BASE).step_by(0x404)).filter(|offset| !known.contains(offset));
    let doorbells = [0, 1, 2, 100, 255, 256, 1000, 3000].map(|number| Doorbell::Sq.offset(number));
    let pages = doorbells.into_iter().flat_map(|base| [0, 4, 8, 12, 16, 0x800, 0xFFC].map(|offset| base + offset));
    let offsets: Vec<u32> = gaps.chain(pages).collect();
    for offset in &offsets {
        assert_eq!(read(&device, *offset), 0, "the gap at {offset:#x}");
    }
    for offset in offsets.iter().filter(|offset| **offset < DOORBELL_BASE) {
        write(&device, *offset, 0x1234_5678);
    }
    for offset in &offsets {
        assert_eq!(read(&device, *offset), 0, "the gap at {offset:#x} after a write");
    }
    for (register, offset) in all() {
        assert_eq!(read(&device, offset), untouched(register), "{} at {offset:#x} after writes to gaps", register.name);
    }
}

#[test]
fn clocks_run_unless_stages_are_held_whatever_is_written_to_them() {
    let (device, _repeat) = card();
    let world = device.world();
    let run = |clocks: u64| world.run(clocks).unwrap();
    // From the reset on, which takes a few clocks itself.
    let now = read(&device, Clocks::OFFSET);
    assert!((world.clock() - 100..world.clock()).contains(&now.into()), "{now} after {} clocks of the simulation", world.clock());
    for _ in 0..3 {
        let (start, clock) = (read(&device, Clocks::OFFSET), world.clock());
        write(&device, Clocks::OFFSET, 0);
        run(1000);
        let (end, later) = (read(&device, Clocks::OFFSET), world.clock());
        assert_eq!(u64::from(end - start), later - clock, "clocks between two reads");

        write(&device, StageControl::OFFSET, StageControl::reset().with(StageControl::HOLD, 1).raw());
        run(100);
        let held = read(&device, Clocks::OFFSET);
        run(500);
        assert_eq!(read(&device, Clocks::OFFSET), held, "clocks while stages are held");
        write(&device, StageControl::OFFSET, StageControl::reset().with(StageControl::HOLD, 0).raw());
        run(100);
    }
}

#[test]
fn a_command_that_does_not_exist_is_answered_and_counted() {
    let (device, _repeat) = card();
    for (number, opcode) in (1..).zip([0u32, 11, 0x80, 0xFF]) {
        let tag = 0x1234 + opcode;
        write(&device, CmdGo::OFFSET, CmdGo::reset().with(CmdGo::OPCODE, opcode).with(CmdGo::TAG, tag).raw());
        let mut status = read(&device, CmdStatus::OFFSET);
        for _ in 0..1_000 {
            if CmdStatus::BUSY.get(status) == 0 {
                break;
            }
            status = read(&device, CmdStatus::OFFSET);
        }
        let found = (CmdStatus::BUSY.get(status), CmdStatus::CODE.get(status), CmdStatus::TAG.get(status));
        assert_eq!(found, (0, CommandCode::BadOpcode as u32, tag), "busy, code and tag after opcode {opcode}");
        assert_eq!(read(&device, CmdGo::OFFSET), 0);
        // A counter register follows within a bounded number of clocks, of which a read takes many.
        let counted = (0..10).any(|_| read(&device, Counter::BadCommands.offset()) == number);
        assert!(counted, "bad command {number} is counted");
    }
}

#[test]
fn doorbells_of_queues_that_do_not_exist_are_counted() {
    let (device, _repeat) = card();
    for (count, number) in (1..).zip([0u32, 5, 255]) {
        write(&device, Doorbell::Sq.offset(number), 1);
        device.world().run(200).unwrap();
        assert_eq!(read(&device, Counter::BadDoorbells.offset()), count, "after the doorbell of QP {number}");
    }
}
