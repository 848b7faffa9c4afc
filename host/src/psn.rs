//! Where the packets of a QP begin to count.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_abi::arith::Psn;

/// What SplitMix64 adds for each number.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// First PSNs that stale packets of an earlier connection, or a stranger's guess, are unlikely to hit.
#[derive(Debug)]
pub(crate) struct FirstPsns(AtomicU64);

impl FirstPsns {
    /// Returns the sequence of a seed, another one for each station address. Without a seed it comes by chance: the standard library's seed of
    /// its hash tables will do.
    pub(crate) fn new(seed: Option<u64>, mac: [u8; 6]) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let station = mac.iter().fold(0, |station, byte| station << 8 | u64::from(*byte));
        Self(AtomicU64::new(mix(seed) ^ mix(station)))
    }

    /// Returns the next one.
    pub(crate) fn take(&self) -> Psn {
        Psn::new(mix(self.0.fetch_add(STEP, Ordering::Relaxed)) as u32)
    }
}

/// The output function of SplitMix64, after its authors' public-domain code.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn take(seed: Option<u64>, mac: [u8; 6]) -> Vec<u32> {
        let psns = FirstPsns::new(seed, mac);
        (0..1000).map(|_| psns.take().raw()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_psns_and_no_seed_or_another_station_gives_others() {
        assert_eq!(take(Some(7), [2; 6]), take(Some(7), [2; 6]));
        assert_ne!(take(Some(7), [2; 6]), take(Some(8), [2; 6]));
        assert_ne!(take(Some(7), [2; 6]), take(Some(7), [4; 6]));
        assert_ne!(take(None, [2; 6]), take(None, [2; 6]));
    }

    #[test]
    fn psns_lie_all_over_their_24_bits() {
        let psns = take(Some(7), [2; 6]);
        assert!(psns.iter().all(|psn| *psn < 1 << 24));
        assert!(psns.iter().map(|psn| psn >> 18).collect::<BTreeSet<_>>().len() > 60, "of 64 parts");
        assert!(psns.iter().collect::<BTreeSet<_>>().len() > 990);
    }
}
