//! Bytes to bits and back, byte 0 in bits 7:0: the order of every internal stream.

use rust_hdl::prelude::*;

/// Returns the bits of `bytes`; missing bytes are 0, and more than `N` bits panic.
pub fn pack<const N: usize>(bytes: &[u8]) -> Bits<N> {
    assert!(8 * bytes.len() <= N, "{} bytes do not fit {N} bits", bytes.len());
    if N <= 64 {
        return bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte)).to_bits();
    }
    let mut bits = [false; N];
    for (bit, value) in bits.iter_mut().enumerate().take(8 * bytes.len()) {
        *value = bytes[bit / 8] >> (bit % 8) & 1 == 1;
    }
    Bits::Long(bits.into())
}

/// Returns the bytes of `bits`; `N` is a multiple of 8.
pub fn unpack<const N: usize>(bits: Bits<N>) -> Vec<u8> {
    (0..N / 8).map(|byte| (0..8).fold(0, |value, bit| value | u8::from(bits.get_bit(8 * byte + bit)) << bit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_0_is_in_the_lowest_bits_and_comes_back_first() {
        assert_eq!(pack::<16>(&[0x34, 0x12]), Bits::<16>::from(0x1234u64));
        let bytes = Vec::from_iter(1..=64u8);
        assert_eq!(pack::<512>(&bytes).get_bits::<32>(0), Bits::<32>::from(0x0403_0201u64));
        assert_eq!(unpack(pack::<512>(&bytes)), bytes);
    }
}
