//! CRC-32 (Ethernet, reflected) over 512-bit beats, and the way back over zero bytes.
//!
//! [`Crc512`]:
//!
//! | port | role | carries |
//! |---|---|---|
//! | `valid` `first` `last` `data` | in | one beat of a frame, byte 0 in bits 7:0, bit 0 of a byte first |
//! | `out_valid` `out_last` `out_state` | out | the register after that beat, [`Crc512::LATENCY`] clocks later |
//!
//! The register is zero in front of `first`. A user that wants another start XORs it into the first
//! four bytes that count: leading zero bytes leave a zero register at zero, so the bytes in front
//! are simply zeroed. All 64 bytes of a beat are fed; [`CrcUndo`] takes zero bytes at the end back.
//!
//! [`CrcUndo`]:
//!
//! | port | role | carries |
//! |---|---|---|
//! | `state` `zeros` | in | a register, and how many zero bytes at the end are too many |
//! | `out_state` | out | the register before these zero bytes, [`CrcUndo::LATENCY`] clocks later |
//!
//! Throughput: both are pure pipelines that take something every clock and never stall; the user
//! carries everything else beside them in a delay line of the same latency. Gaps between the beats
//! of a frame are allowed, beats of two frames must not be mixed. The reset of [`Crc512`] only
//! empties its valid bits.
//!
//! Depth: a row of a data group has about 32 of 64 bits, at most six levels of LUT6 where Yosys shares
//! terms between rows. The sum of the groups, the step of the register and an undo stage are shallower;
//! an undo stage takes two bits of `zeros` with their three matrices side by side, so that no
//! network feeds another in one clock.

use rust_hdl::prelude::*;

use super::XorNet;
use verbena_abi::wire::CRC32_POLY;

/// Returns the register after one zero byte.
pub const fn zero_byte(mut state: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        state = if state & 1 == 1 { (state >> 1) ^ CRC32_POLY } else { state >> 1 };
        bit += 1;
    }
    state
}

/// Returns the register after `count` zero bytes.
pub const fn zero_bytes(mut state: u32, count: usize) -> u32 {
    let mut byte = 0;
    while byte < count {
        state = zero_byte(state);
        byte += 1;
    }
    state
}

/// Returns the register before `count` zero bytes that led to `state`.
pub const fn undo_zero_bytes(mut state: u32, count: usize) -> u32 {
    let mut bit = 0;
    while bit < 8 * count {
        // The polynomial has bit 31 set, so bit 31 tells whether it was added.
        state = if state >> 31 == 1 { ((state ^ CRC32_POLY) << 1) | 1 } else { state << 1 };
        bit += 1;
    }
    state
}

/// Returns the register after `bytes`, as software computes it.
pub fn crc32_step(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| zero_byte(state ^ u32::from(*byte)))
}

/// Columns of the map from data bits `64 * group ..` of a beat to the register behind the beat.
fn data_columns(group: usize) -> impl Iterator<Item = u64> {
    (0..64).map(move |bit| u64::from(zero_bytes(1 << (bit % 8), 64 - 8 * group - bit / 8)))
}

/// Columns of the map from a register to that after a beat of zeros.
fn beat_columns() -> impl Iterator<Item = u64> {
    (0..32).map(|bit| u64::from(zero_bytes(1 << bit, 64)))
}

/// Columns of the map from a register to that `count` zero bytes before.
fn undo_columns(count: usize) -> impl Iterator<Item = u64> {
    (0..32).map(move |bit| u64::from(undo_zero_bytes(1 << bit, count)))
}

/// The CRC over beats.
#[derive(LogicBlock)]
pub struct Crc512 {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub valid: Signal<In, Bit>,
    pub first: Signal<In, Bit>,
    pub last: Signal<In, Bit>,
    pub data: Signal<In, Bits<512>>,
    pub out_valid: Signal<Out, Bit>,
    pub out_last: Signal<Out, Bit>,
    pub out_state: Signal<Out, Bits<32>>,

    net0: XorNet<64, 32>,
    net1: XorNet<64, 32>,
    net2: XorNet<64, 32>,
    net3: XorNet<64, 32>,
    net4: XorNet<64, 32>,
    net5: XorNet<64, 32>,
    net6: XorNet<64, 32>,
    net7: XorNet<64, 32>,
    part0: DFF<Bits<32>>,
    part1: DFF<Bits<32>>,
    part2: DFF<Bits<32>>,
    part3: DFF<Bits<32>>,
    part4: DFF<Bits<32>>,
    part5: DFF<Bits<32>>,
    part6: DFF<Bits<32>>,
    part7: DFF<Bits<32>>,
    part_valid: DFF<Bit>,
    part_first: DFF<Bit>,
    part_last: DFF<Bit>,
    sum: DFF<Bits<32>>,
    sum_valid: DFF<Bit>,
    sum_first: DFF<Bit>,
    sum_last: DFF<Bit>,
    step: XorNet<32, 32>,
    state: DFF<Bits<32>>,
    state_valid: DFF<Bit>,
    state_last: DFF<Bit>,
}

impl Crc512 {
    /// Clocks from a beat to the register after it.
    pub const LATENCY: usize = 3;
}

impl Default for Crc512 {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            valid: Default::default(),
            first: Default::default(),
            last: Default::default(),
            data: Default::default(),
            out_valid: Default::default(),
            out_last: Default::default(),
            out_state: Default::default(),
            net0: XorNet::new(data_columns(0)),
            net1: XorNet::new(data_columns(1)),
            net2: XorNet::new(data_columns(2)),
            net3: XorNet::new(data_columns(3)),
            net4: XorNet::new(data_columns(4)),
            net5: XorNet::new(data_columns(5)),
            net6: XorNet::new(data_columns(6)),
            net7: XorNet::new(data_columns(7)),
            part0: Default::default(),
            part1: Default::default(),
            part2: Default::default(),
            part3: Default::default(),
            part4: Default::default(),
            part5: Default::default(),
            part6: Default::default(),
            part7: Default::default(),
            part_valid: Default::default(),
            part_first: Default::default(),
            part_last: Default::default(),
            sum: Default::default(),
            sum_valid: Default::default(),
            sum_first: Default::default(),
            sum_last: Default::default(),
            step: XorNet::new(beat_columns()),
            state: Default::default(),
            state_valid: Default::default(),
            state_last: Default::default(),
        }
    }
}

impl Logic for Crc512 {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, part0, part1, part2, part3, part4, part5, part6, part7, part_valid, part_first, part_last);
        dff_setup!(self, clock, sum, sum_valid, sum_first, sum_last, state, state_valid, state_last);

        self.net0.operand.next = self.data.val().get_bits::<64>(0);
        self.net1.operand.next = self.data.val().get_bits::<64>(64);
        self.net2.operand.next = self.data.val().get_bits::<64>(128);
        self.net3.operand.next = self.data.val().get_bits::<64>(192);
        self.net4.operand.next = self.data.val().get_bits::<64>(256);
        self.net5.operand.next = self.data.val().get_bits::<64>(320);
        self.net6.operand.next = self.data.val().get_bits::<64>(384);
        self.net7.operand.next = self.data.val().get_bits::<64>(448);
        self.part0.d.next = self.net0.product.val();
        self.part1.d.next = self.net1.product.val();
        self.part2.d.next = self.net2.product.val();
        self.part3.d.next = self.net3.product.val();
        self.part4.d.next = self.net4.product.val();
        self.part5.d.next = self.net5.product.val();
        self.part6.d.next = self.net6.product.val();
        self.part7.d.next = self.net7.product.val();
        self.part_valid.d.next = self.valid.val();
        self.part_first.d.next = self.first.val();
        self.part_last.d.next = self.last.val();

        self.sum.d.next = self.part0.q.val()
            ^ self.part1.q.val()
            ^ self.part2.q.val()
            ^ self.part3.q.val()
            ^ self.part4.q.val()
            ^ self.part5.q.val()
            ^ self.part6.q.val()
            ^ self.part7.q.val();
        self.sum_valid.d.next = self.part_valid.q.val();
        self.sum_first.d.next = self.part_first.q.val();
        self.sum_last.d.next = self.part_last.q.val();

        self.step.operand.next = self.state.q.val();
        if self.sum_valid.q.val() {
            self.state.d.next = self.sum.q.val() ^ self.step.product.val();
            if self.sum_first.q.val() {
                self.state.d.next = self.sum.q.val();
            }
        }
        self.state_valid.d.next = self.sum_valid.q.val();
        self.state_last.d.next = self.sum_last.q.val();

        self.out_valid.next = self.state_valid.q.val();
        self.out_last.next = self.state_last.q.val();
        self.out_state.next = self.state.q.val();

        if self.reset.val() {
            self.part_valid.d.next = false;
            self.sum_valid.d.next = false;
            self.state_valid.d.next = false;
        }
    }
}

/// Takes up to 63 zero bytes at the end back.
#[derive(LogicBlock)]
pub struct CrcUndo {
    pub clock: Signal<In, Clock>,
    pub state: Signal<In, Bits<32>>,
    pub zeros: Signal<In, Bits<6>>,
    pub out_state: Signal<Out, Bits<32>>,

    undo1: XorNet<32, 32>,
    undo2: XorNet<32, 32>,
    undo3: XorNet<32, 32>,
    undo4: XorNet<32, 32>,
    undo8: XorNet<32, 32>,
    undo12: XorNet<32, 32>,
    undo16: XorNet<32, 32>,
    undo32: XorNet<32, 32>,
    undo48: XorNet<32, 32>,
    pair0: Signal<Local, Bits<2>>,
    pair1: Signal<Local, Bits<2>>,
    pair2: Signal<Local, Bits<2>>,
    after3: DFF<Bits<32>>,
    after15: DFF<Bits<32>>,
    after63: DFF<Bits<32>>,
    zeros3: DFF<Bits<6>>,
    zeros15: DFF<Bits<6>>,
}

impl CrcUndo {
    /// Clocks from a register to that before the zero bytes.
    pub const LATENCY: usize = 3;
}

impl Default for CrcUndo {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            state: Default::default(),
            zeros: Default::default(),
            out_state: Default::default(),
            undo1: XorNet::new(undo_columns(1)),
            undo2: XorNet::new(undo_columns(2)),
            undo3: XorNet::new(undo_columns(3)),
            undo4: XorNet::new(undo_columns(4)),
            undo8: XorNet::new(undo_columns(8)),
            undo12: XorNet::new(undo_columns(12)),
            undo16: XorNet::new(undo_columns(16)),
            undo32: XorNet::new(undo_columns(32)),
            undo48: XorNet::new(undo_columns(48)),
            pair0: Default::default(),
            pair1: Default::default(),
            pair2: Default::default(),
            after3: Default::default(),
            after15: Default::default(),
            after63: Default::default(),
            zeros3: Default::default(),
            zeros15: Default::default(),
        }
    }
}

impl Logic for CrcUndo {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, after3, after15, after63, zeros3, zeros15);

        self.undo1.operand.next = self.state.val();
        self.undo2.operand.next = self.state.val();
        self.undo3.operand.next = self.state.val();
        self.pair0.next = self.zeros.val().get_bits::<2>(0);
        self.after3.d.next = self.state.val();
        if self.pair0.val() == 1 {
            self.after3.d.next = self.undo1.product.val();
        }
        if self.pair0.val() == 2 {
            self.after3.d.next = self.undo2.product.val();
        }
        if self.pair0.val() == 3 {
            self.after3.d.next = self.undo3.product.val();
        }
        self.zeros3.d.next = self.zeros.val();

        self.undo4.operand.next = self.after3.q.val();
        self.undo8.operand.next = self.after3.q.val();
        self.undo12.operand.next = self.after3.q.val();
        self.pair1.next = self.zeros3.q.val().get_bits::<2>(2);
        self.after15.d.next = self.after3.q.val();
        if self.pair1.val() == 1 {
            self.after15.d.next = self.undo4.product.val();
        }
        if self.pair1.val() == 2 {
            self.after15.d.next = self.undo8.product.val();
        }
        if self.pair1.val() == 3 {
            self.after15.d.next = self.undo12.product.val();
        }
        self.zeros15.d.next = self.zeros3.q.val();

        self.undo16.operand.next = self.after15.q.val();
        self.undo32.operand.next = self.after15.q.val();
        self.undo48.operand.next = self.after15.q.val();
        self.pair2.next = self.zeros15.q.val().get_bits::<2>(4);
        self.after63.d.next = self.after15.q.val();
        if self.pair2.val() == 1 {
            self.after63.d.next = self.undo16.product.val();
        }
        if self.pair2.val() == 2 {
            self.after63.d.next = self.undo32.product.val();
        }
        if self.pair2.val() == 3 {
            self.after63.d.next = self.undo48.product.val();
        }
        self.out_state.next = self.after63.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::pack;
    use crate::testing::{Bench, Stalls};
    use std::collections::VecDeque;

    /// CRC-32 one bit at a time, from its definition.
    fn bit_serial(mut state: u32, bytes: &[u8]) -> u32 {
        for bit in bytes.iter().flat_map(|byte| (0..8).map(move |bit| u32::from(byte >> bit & 1))) {
            let feedback = (state ^ bit) & 1;
            state = (state >> 1) ^ if feedback == 1 { 0xEDB8_8320 } else { 0 };
        }
        state
    }

    #[test]
    fn the_software_step_is_the_crc_of_ethernet() {
        assert_eq!(!crc32_step(!0, b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32_step(!0, &[0xFF; 8]), verbena_abi::wire::ICRC_SEED);
    }

    proptest::proptest! {
        #[test]
        fn the_step_is_that_of_the_bit_serial_register(state: u32, bytes: [u8; 32]) {
            assert_eq!(crc32_step(state, &bytes), bit_serial(state, &bytes));
        }

        #[test]
        fn undoing_zero_bytes_is_the_inverse_of_feeding_them(state: u32, count in 0usize..200) {
            assert_eq!(undo_zero_bytes(bit_serial(state, &vec![0; count]), count), state);
        }

        #[test]
        fn a_seed_in_the_first_four_bytes_is_a_start_value(seed: u32, bytes: [u8; 40], lead in 0usize..20) {
            let mut seeded = vec![0; lead];
            seeded.extend(bytes);
            for (byte, seed) in seeded[lead..].iter_mut().zip(seed.to_le_bytes()) {
                *byte ^= seed;
            }
            assert_eq!(bit_serial(0, &seeded), bit_serial(seed, &bytes));
        }
    }

    #[test]
    fn frames_with_random_gaps_give_the_register_of_the_bit_serial_crc() {
        let mut bench = Bench::new("crc512", Crc512::default(), |uut| &mut uut.clock);
        let mut random = Stalls::new(11);
        let mut expected = VecDeque::new();
        let (mut state, mut left, mut is_first, mut got) = (0, 0u64, true, 0);
        for clock in 0..600 {
            let valid = clock < 590 && (clock < 100 || random.go());
            bench.uut.valid.next = valid;
            if left == 0 {
                left = 1 + random.random() % 4;
                is_first = true;
            }
            let bytes = Vec::from_iter((0..64).map(|_| random.random() as u8));
            bench.uut.first.next = is_first;
            bench.uut.last.next = left == 1;
            bench.uut.data.next = pack(&bytes);
            if valid {
                state = bit_serial(if is_first { 0 } else { state }, &bytes);
                expected.push_back((clock + Crc512::LATENCY, left == 1, state));
                left -= 1;
                is_first = false;
            }
            bench.settle();
            if bench.uut.out_valid.val() {
                let out = (clock, bench.uut.out_last.val(), bench.uut.out_state.val().to_u64() as u32);
                assert_eq!(Some(out), expected.pop_front());
                got += 1;
            }
            bench.edge();
        }
        assert!(expected.is_empty() && got > 300);
        bench.finish();
    }

    #[test]
    fn a_reset_in_the_middle_of_a_frame_empties_the_pipeline() {
        let mut bench = Bench::new("crc512_reset", Crc512::default(), |uut| &mut uut.clock);
        bench.uut.valid.next = true;
        bench.uut.first.next = true;
        bench.uut.data.next = pack(&[0x5A; 64]);
        bench.cycles(5);
        bench.uut.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(1);
        bench.uut.reset.next = false;
        for _ in 0..5 {
            bench.settle();
            assert!(!bench.uut.out_valid.val());
            bench.edge();
        }
        bench.uut.valid.next = true;
        bench.cycles(Crc512::LATENCY);
        assert_eq!(bench.uut.out_state.val().to_u64() as u32, bit_serial(0, &[0x5A; 64]));
        bench.finish();
    }

    #[test]
    fn the_undo_pipeline_takes_every_count_of_zero_bytes_back_every_clock() {
        let mut bench = Bench::new("crc_undo", CrcUndo::default(), |uut| &mut uut.clock);
        let mut random = Stalls::new(12);
        let mut expected = VecDeque::new();
        for clock in 0..256usize {
            let (before, zeros) = (random.random() as u32, clock % 64);
            expected.push_back(before);
            bench.uut.state.next = bit_serial(before, &vec![0; zeros]).to_bits();
            bench.uut.zeros.next = zeros.to_bits();
            bench.settle();
            if clock >= CrcUndo::LATENCY {
                assert_eq!(bench.uut.out_state.val().to_u64() as u32, expected.pop_front().unwrap());
            }
            bench.edge();
        }
        bench.finish();
    }
}
