//! Arithmetic of numbers that wrap: packet sequence numbers and ring indices.

/// A 24-bit packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Bits of a PSN.
    pub const BITS: usize = 24;
    /// Mask of the bits that count.
    pub const MASK: u32 = 0xFF_FFFF;

    /// Returns the number with its upper eight bits dropped.
    pub const fn new(raw: u32) -> Self {
        Self(raw & Self::MASK)
    }

    /// Returns the 24-bit value.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Returns the PSN `n` packets later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// Returns how far `self` is ahead of `other`, in -2^23 .. 2^23 (negative: behind).
    pub const fn ahead_of(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

/// Number of packets of a message: a message without bytes is one packet.
pub const fn packets(len_bytes: u32, mtu_bytes: u32) -> u32 {
    if len_bytes == 0 {
        1
    } else {
        len_bytes.div_ceil(mtu_bytes)
    }
}

/// A ring of a power of two of slots, with free-running 16- or 32-bit indices.
///
/// Empty is `producer == consumer`; full is `producer - consumer == depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    log_depth: u8,
    mask: u32,
}

impl Ring {
    /// Returns a ring of `1 << log_depth` slots.
    pub const fn new(log_depth: u8) -> Self {
        Self { log_depth, mask: (1 << log_depth) - 1 }
    }

    /// Returns the smallest ring with at least `slots` slots.
    pub const fn with_slots(slots: u32) -> Self {
        let slots = if slots == 0 { 1 } else { slots };
        Self::new(slots.next_power_of_two().trailing_zeros() as u8)
    }

    /// Returns log2 of the number of slots.
    pub const fn log_depth(self) -> u8 {
        self.log_depth
    }

    /// Returns the number of slots.
    pub const fn depth(self) -> u32 {
        1 << self.log_depth
    }

    /// Returns the slot that a free-running index names.
    pub const fn slot(self, index: u32) -> u32 {
        index & self.mask
    }

    /// Returns the phase bit of an index: 1 on the first lap, 0 on the second, and so on, so that
    /// zeroed memory is never taken for a valid entry.
    pub const fn phase(self, index: u32) -> bool {
        (index >> self.log_depth) & 1 == 0
    }

    /// Returns the number of entries between the two indices.
    pub const fn used(self, producer: u32, consumer: u32) -> u32 {
        producer.wrapping_sub(consumer)
    }

    /// Tells whether no slot is free.
    pub const fn is_full(self, producer: u32, consumer: u32) -> bool {
        self.used(producer, consumer) >= self.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_psn_wraps_at_24_bits() {
        assert_eq!(Psn::new(0xFF_FFFF).plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).ahead_of(Psn::new(0xFF_FFFF)), 1);
        assert_eq!(Psn::new(0xFF_FFFF).ahead_of(Psn::new(0)), -1);
        assert_eq!(Psn::new(0x80_0000).ahead_of(Psn::new(0)), -(1 << 23));
    }

    #[test]
    fn a_message_without_bytes_is_one_packet() {
        assert_eq!(packets(0, 1024), 1);
        assert_eq!(packets(1024, 1024), 1);
        assert_eq!(packets(1025, 1024), 2);
        assert_eq!(packets(1 << 31, 256), 1 << 23);
    }

    #[test]
    fn zeroed_memory_never_has_the_phase_of_the_first_lap() {
        let ring = Ring::new(3);
        assert!((0..8).all(|i| ring.phase(i)));
        assert!((8..16).all(|i| !ring.phase(i)));
    }

    proptest! {
        #[test]
        fn distance_is_what_was_added(start in 0u32..1 << 24, n in 0u32..1 << 23) {
            let a = Psn::new(start);
            prop_assert_eq!(a.plus(n).ahead_of(a), n as i32);
            prop_assert_eq!(a.ahead_of(a.plus(n)), -(n as i32));
        }

        #[test]
        fn a_ring_is_full_after_exactly_its_depth(log in 0u8..12, start: u32) {
            let ring = Ring::new(log);
            let end = start.wrapping_add(ring.depth());
            prop_assert!(ring.is_full(end, start));
            prop_assert!(!ring.is_full(end.wrapping_sub(1), start));
            prop_assert_eq!(ring.slot(end), ring.slot(start));
            prop_assert!(ring.phase(end) != ring.phase(start));
        }
    }
}
