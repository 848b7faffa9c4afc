//! Bus addresses for mappings of an IOMMU: first fit in the ranges that the IOMMU allows.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bus addresses: those that are free and those that were handed out. What is in neither is lost, or on its way back.
#[derive(Debug)]
pub(super) struct IovaSpace {
    /// Disjoint ranges: start to end, the end not included.
    free: BTreeMap<u64, u64>,
    /// What [`IovaSpace::take`] has handed out: start to length.
    taken: BTreeMap<u64, u64>,
}

impl IovaSpace {
    /// Returns a space of the given ranges.
    pub(super) fn new(ranges: &[Range<u64>]) -> Self {
        let mut space = Self { free: BTreeMap::new(), taken: BTreeMap::new() };
        for range in ranges {
            space.add(range.start, range.end);
        }
        space
    }

    /// Takes `len` bytes at a multiple of `align`, a power of two; or nothing if there is no room.
    pub(super) fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (start, end, place) = self.free.iter().find_map(|(&start, &end)| {
            let place = start.checked_next_multiple_of(align)?;
            (place.checked_add(len)? <= end).then_some((start, end, place))
        })?;
        self.free.remove(&start);
        if start < place {
            self.free.insert(start, place);
        }
        if place + len < end {
            self.free.insert(place + len, end);
        }
        self.taken.insert(place, len);
        Some(place)
    }

    /// Begins to give back what was taken: tells whether exactly these addresses were. They are not handed out again before
    /// [`IovaSpace::give_back`], and nobody else can begin to give them back.
    pub(super) fn withdraw(&mut self, start: u64, len: u64) -> bool {
        if self.taken.get(&start) != Some(&len) {
            return false;
        }
        self.taken.remove(&start);
        true
    }

    /// Makes withdrawn addresses free.
    pub(super) fn give_back(&mut self, start: u64, len: u64) {
        self.add(start, start.saturating_add(len));
    }

    /// Adds the addresses from `start` to `end`, and joins them with free neighbours.
    fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, &its_end)) = self.free.range(..start).next_back() {
            if its_end == start {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some(its_end) = self.free.remove(&end) {
            end = its_end;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_space_that_was_given_back_is_whole_again() {
        let mut space = IovaSpace::new(std::slice::from_ref(&(0x1000..0x5000)));
        let parts: Vec<u64> = (0..4).map(|_| space.take(0x1000, 0x1000).unwrap()).collect();
        assert_eq!(parts, [0x1000, 0x2000, 0x3000, 0x4000]);
        assert_eq!(space.take(1, 1), None);
        for part in [0x2000, 0x4000, 0x1000, 0x3000] {
            assert!(space.withdraw(part, 0x1000));
            space.give_back(part, 0x1000);
        }
        assert_eq!(space.take(0x4000, 0x1000), Some(0x1000));
    }

    #[test]
    fn only_what_was_taken_can_be_withdrawn_and_once() {
        let mut space = IovaSpace::new(std::slice::from_ref(&(0x1000..0x5000)));
        assert_eq!(space.take(0x2000, 0x1000), Some(0x1000));
        for (start, len) in [(0x1000, 0x1000), (0x2000, 0x1000), (0x3000, 0x1000), (0x1000, 0), (0x1000, u64::MAX)] {
            assert!(!space.withdraw(start, len), "{start:#x} {len:#x}");
        }
        assert!(space.withdraw(0x1000, 0x2000) && !space.withdraw(0x1000, 0x2000));
        // Withdrawn and not given back: out of hand.
        assert_eq!(space.take(0x2000, 0x1000), Some(0x3000));
        assert_eq!(space.take(0x1000, 0x1000), None);
    }

    #[test]
    fn a_hole_between_ranges_is_never_handed_out() {
        let mut space = IovaSpace::new(&[0x1000..0x3000, 0x8000..0xC000]);
        assert_eq!(space.take(0x3000, 0x1000), Some(0x8000));
        assert_eq!(space.take(0x2000, 0x1000), Some(0x1000));
        assert_eq!(space.take(0x1001, 0x1000), None);
    }

    #[test]
    fn the_end_of_the_address_space_does_not_overflow() {
        let mut space = IovaSpace::new(std::slice::from_ref(&(u64::MAX - 0x1800..u64::MAX)));
        assert_eq!(space.take(0x1000, 0x1000), None);
        assert_eq!(space.take(u64::MAX, 1), None);
        assert_eq!(space.take(0x800, 0x1000), Some(u64::MAX - 0xFFF));
    }

    proptest! {
        #[test]
        fn what_is_handed_out_never_overlaps(steps in proptest::collection::vec((any::<bool>(), 1u64..0x40, 0u32..5), 1..100)) {
            let mut space = IovaSpace::new(&[0x40..0x400, 0x800..0xA00]);
            let mut out: Vec<(u64, u64)> = Vec::new();
            for (take, len, log_align) in steps {
                if take {
                    if let Some(start) = space.take(len, 1 << log_align) {
                        prop_assert_eq!(start % (1 << log_align), 0);
                        prop_assert!((0x40..=0x400 - len).contains(&start) || (0x800..=0xA00 - len).contains(&start));
                        prop_assert!(out.iter().all(|(from, to)| start + len <= *from || *to <= start));
                        out.push((start, start + len));
                    }
                } else if !out.is_empty() {
                    let (from, to) = out.swap_remove(len as usize % out.len());
                    prop_assert!(space.withdraw(from, to - from));
                    space.give_back(from, to - from);
                }
            }
        }
    }
}
