//! Drives and watches streams with stalls at random.

use std::collections::VecDeque;

use rust_hdl::prelude::*;

use crate::bus::{StreamSink, StreamSource};

/// A seeded source of "go" and "wait", with runs of both so that full and empty are met.
#[derive(Clone, Debug)]
pub struct Stalls {
    state: u64,
    left: u32,
    /// Quarters of the clocks that stall.
    level: u64,
}

impl Stalls {
    /// Returns a source that stalls at random.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, left: 0, level: 2 }
    }

    /// Returns a source that never stalls.
    pub fn none() -> Self {
        Self { state: 0, left: 0, level: 0 }
    }

    /// Returns a pseudo-random number.
    pub fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Tells whether to go in this clock.
    pub fn go(&mut self) -> bool {
        if self.state == 0 {
            return true;
        }
        if self.left == 0 {
            self.left = 1 + (self.random() % 40) as u32;
            self.level = self.random() % 5;
        }
        self.left -= 1;
        self.random() % 4 >= self.level
    }
}

/// Offers entries to a sink.
pub struct Driver<T: Synth> {
    /// What is still to be offered.
    pub queue: VecDeque<T>,
    stalls: Stalls,
    is_offered: bool,
}

impl<T: Synth> Driver<T> {
    /// Returns a driver for `entries`.
    pub fn new(entries: impl IntoIterator<Item = T>, stalls: Stalls) -> Self {
        Self { queue: entries.into_iter().collect(), stalls, is_offered: false }
    }

    /// Sets the inputs of the port; call it before [`super::Bench::settle`].
    pub fn before(&mut self, port: &mut StreamSink<T>) {
        if !self.is_offered && !self.queue.is_empty() && self.stalls.go() {
            self.is_offered = true;
            port.data.next = self.queue[0];
        }
        port.valid.next = self.is_offered;
    }

    /// Takes note of a transfer; call it between settle and edge.
    pub fn after(&mut self, port: &StreamSink<T>) {
        if self.is_offered && port.ready.val() {
            self.queue.pop_front();
            self.is_offered = false;
        }
    }

    /// Forgets an offer that a reset of the block has wiped out.
    pub fn restart(&mut self) {
        self.is_offered = false;
    }

    /// Tells whether everything was taken.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Takes entries from a source, and checks that an offer holds still until it is taken.
pub struct Monitor<T: Synth> {
    /// What was taken.
    pub got: Vec<T>,
    stalls: Stalls,
    pending: Option<T>,
}

impl<T: Synth> Monitor<T> {
    /// Returns a monitor.
    pub fn new(stalls: Stalls) -> Self {
        Self { got: vec![], stalls, pending: None }
    }

    /// Sets the inputs of the port; call it before [`super::Bench::settle`].
    pub fn before(&mut self, port: &mut StreamSource<T>) {
        port.ready.next = self.stalls.go();
    }

    /// Takes note of a transfer; call it between settle and edge.
    pub fn after(&mut self, port: &StreamSource<T>) {
        let valid = port.valid.val();
        if let Some(pending) = self.pending {
            assert!(valid, "valid fell before ready came");
            assert_eq!(pending, port.data.val(), "data changed before ready came");
        }
        self.pending = None;
        if valid && port.ready.val() {
            self.got.push(port.data.val());
        } else if valid {
            self.pending = Some(port.data.val());
        }
    }

    /// Forgets an offer that a reset of the block has withdrawn.
    pub fn restart(&mut self) {
        self.pending = None;
    }
}
