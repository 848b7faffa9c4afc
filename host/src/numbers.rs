//! Numbers of QPs, CQs, regions and protection domains: handed out fresh first, reused as late as possible.
//!
//! A number that comes back late gives a stray packet, a stale key or an unread completion the
//! longest time to be recognised as what it is.

use std::collections::VecDeque;

use crate::error::Error;

/// The numbers `first..end` of one kind of object.
#[derive(Debug)]
pub(crate) struct Numbers {
    what: &'static str,
    first: u32,
    fresh: u32,
    end: u32,
    returned: VecDeque<u32>,
}

impl Numbers {
    /// Returns an allocator of `first..end`; `what` names the kind in errors.
    pub(crate) fn new(what: &'static str, first: u32, end: u32) -> Self {
        Self { what, first, fresh: first, end, returned: VecDeque::new() }
    }

    /// Takes a number: one never used while there are such, then the one returned longest ago.
    pub(crate) fn take(&mut self) -> Result<u32, Error> {
        if self.fresh < self.end {
            self.fresh += 1;
            return Ok(self.fresh - 1);
        }
        self.returned.pop_front().ok_or(Error::OutOfNumbers { what: self.what, limit: self.end.saturating_sub(self.first) })
    }

    /// Returns how many are taken.
    pub(crate) fn in_use(&self) -> u32 {
        self.fresh - self.first - self.returned.len() as u32
    }

    /// Gives a number back.
    pub(crate) fn give_back(&mut self, number: u32) {
        debug_assert!(number >= self.first && number < self.fresh && !self.returned.contains(&number));
        self.returned.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_returned_number_waits_until_all_others_were_used() {
        let mut numbers = Numbers::new("QPs", 1, 4);
        assert_eq!(numbers.take().unwrap(), 1);
        numbers.give_back(1);
        assert_eq!((numbers.take().unwrap(), numbers.take().unwrap(), numbers.take().unwrap()), (2, 3, 1));
    }

    #[test]
    fn an_exhausted_kind_names_itself_and_its_limit() {
        let mut numbers = Numbers::new("QPs", 1, 3);
        numbers.take().unwrap();
        numbers.take().unwrap();
        assert_eq!(numbers.take().unwrap_err().to_string(), "all 2 QPs are in use");
    }

    proptest! {
        #[test]
        fn no_number_is_out_twice(steps in proptest::collection::vec(any::<(bool, u8)>(), 0..200)) {
            let mut numbers = Numbers::new("regions", 1, 17);
            let mut out: Vec<u32> = Vec::new();
            for (take, pick) in steps {
                if take {
                    match numbers.take() {
                        Ok(number) => out.push(number),
                        Err(_) => prop_assert_eq!(out.len(), 16),
                    }
                } else if !out.is_empty() {
                    numbers.give_back(out.swap_remove(pick as usize % out.len()));
                }
                prop_assert_eq!(out.iter().collect::<HashSet<_>>().len(), out.len());
                prop_assert!(out.iter().all(|n| (1..17).contains(n)));
                prop_assert_eq!(numbers.in_use() as usize, out.len());
            }
        }
    }
}
