//! A host with AXI4 ports: it answers like memory, late and out of order, and checks the rules.

mod read;
mod write;

pub use read::{Order, ReadHost};
pub use write::{Accept, Memory, WriteHost};

use rust_hdl::prelude::*;

use crate::bus::{Line, WriteReq};
use crate::testing::Stalls;

/// Bytes of a line of memory that nobody has written: they tell the address, so a line that comes
/// from elsewhere shows.
pub fn pattern(line: u64) -> [u8; 64] {
    let mut state = line.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// Bytes as a line on a stream, byte 0 in bits 7:0.
pub fn to_bits(bytes: &[u8; 64]) -> Bits<512> {
    bytes.rchunks(8).fold(Bits::from(0u64), |bits, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (bits << 64u64) | Bits::<512>::from(word)
    })
}

/// The reverse of [`to_bits`].
pub fn to_bytes(bits: Bits<512>) -> [u8; 64] {
    std::array::from_fn(|i| u64::from(bits.get_bits::<8>(8 * i)) as u8)
}

/// Tells whether `got` are the lines that reads of `ranges` must give. Bytes outside the ranges do not count.
pub fn are_lines_of(got: &[Line], ranges: &[(u64, u64)]) -> bool {
    let mut got = got.iter();
    let are_all = ranges.iter().all(|&(addr, len)| {
        let (first, last) = (addr / 64, (addr + len - 1) / 64);
        (first..=last).all(|number| {
            let Some(line) = got.next() else { return false };
            let (bytes, expected) = (to_bytes(line.data), pattern(number));
            let is_in_range = |at: usize| (addr..addr + len).contains(&(number * 64 + at as u64));
            line.last == (number == last) && (0..64).all(|at| !is_in_range(at) || bytes[at] == expected[at])
        })
    });
    are_all && got.next().is_none()
}

/// Returns how many lines reads of `ranges` give.
pub fn count_lines(ranges: &[(u64, u64)]) -> usize {
    ranges.iter().map(|&(addr, len)| ((addr + len - 1) / 64 - addr / 64 + 1) as usize).sum()
}

/// Requests that write `ranges` one after the other, their lines, and the memory that they leave.
/// Bytes of the lines outside the ranges are random too.
pub fn writes(ranges: &[(u64, u64)], seed: u64) -> (Vec<WriteReq>, Vec<Line>, Memory) {
    let mut random = Stalls::new(seed);
    let (mut lines, mut memory) = (vec![], Memory::default());
    for &(addr, len) in ranges {
        let (first, last) = (addr / 64, (addr + len - 1) / 64);
        for line in first..=last {
            let bytes: [u8; 64] = std::array::from_fn(|_| random.random() as u8);
            for (byte, at) in bytes.iter().zip(line * 64..) {
                if (addr..addr + len).contains(&at) {
                    memory.set(at, *byte);
                }
            }
            lines.push(Line { data: to_bits(&bytes), last: line == last });
        }
    }
    (ranges.iter().map(|&(addr, len)| WriteReq { addr: addr.into(), len: len.into() }).collect(), lines, memory)
}

/// Ranges at borders and at random places: lengths around lines, bursts and pages, at offsets that
/// make them end before, at and behind a border.
pub fn sample_ranges(seed: u64, count: usize, max_len: u64) -> Vec<(u64, u64)> {
    let mut random = Stalls::new(seed);
    let mut ranges: Vec<(u64, u64)> =
        [(4095, 1), (4096, 1), (4095, 2), (4032, 64), (4033, 64), (4064, 64), (8128, 128), (511, 2), (512, 512)]
            .into_iter()
            .map(|(offset, len)| (0x1_2345_0000_0000 + offset, len))
            .collect();
    while ranges.len() < count {
        let page = 0x4000_0000 + (random.random() % 64) * 8192;
        let (offset, len) = match random.random() % 3 {
            0 => (random.random() % 64, 1 + random.random() % 130),
            1 => (4096 - random.random() % 130, 1 + random.random() % 260),
            _ => (random.random() % 4096, 1 + random.random() % max_len),
        };
        ranges.push((page + offset, len.min(max_len)));
    }
    ranges
}
