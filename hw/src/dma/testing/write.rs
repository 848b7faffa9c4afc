//! The write channels of the host.

use std::collections::{BTreeMap, VecDeque};

use super::{pattern, to_bytes};
use crate::bus::{StreamSink, StreamSource};
use crate::dma::axi::{AxiAw, AxiB, AxiW};
use crate::testing::Stalls;

/// Which of address and data the host wants first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accept {
    /// It takes what comes.
    Any,
    /// It takes data only for a burst whose address it has.
    AddressFirst,
    /// It takes an address only when it has all data of the burst.
    DataFirst,
}

/// Lines of memory that were written. All other bytes hold [`pattern`], so a byte written by
/// mistake anywhere, next to the range or far away, makes two memories differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory(pub BTreeMap<u64, [u8; 64]>);

impl Memory {
    /// Writes one byte.
    pub fn set(&mut self, addr: u64, byte: u8) {
        self.0.entry(addr / 64).or_insert_with(|| pattern(addr / 64))[(addr % 64) as usize] = byte;
    }
}

/// Memory that is written.
pub struct WriteHost {
    latency: u64,
    accept: Accept,
    aw_stalls: Stalls,
    w_stalls: Stalls,
    b_stalls: Stalls,
    clock: u64,
    held_aw: Option<AxiAw>,
    held_w: Option<AxiW>,
    addresses: VecDeque<AxiAw>,
    data: VecDeque<Vec<AxiW>>,
    current: Vec<AxiW>,
    responses: VecDeque<(u64, bool)>,
    is_offered: bool,
    /// What was written.
    pub memory: Memory,
    /// First lines of the bursts, in the order in which they took effect.
    pub order: Vec<u64>,
    /// Addresses and complete bursts of data taken.
    pub taken: (usize, usize),
    /// Most bursts that waited for their response at once.
    pub most_in_flight: usize,
    /// Responses given, and those of them with an error.
    pub responded: (usize, usize),
    /// Tells which bursts, by first line, answer with an error.
    pub is_bad: fn(u64) -> bool,
    /// No response is given while set.
    pub is_paused: bool,
}

impl WriteHost {
    /// Returns a host that responds after `latency` clocks and stalls its channels by `seed`, or never if that is 0.
    pub fn new(latency: u64, accept: Accept, seed: u64) -> Self {
        let stalls = |n| if seed == 0 { Stalls::none() } else { Stalls::new(seed + n) };
        Self {
            latency,
            accept,
            aw_stalls: stalls(400),
            w_stalls: stalls(500),
            b_stalls: stalls(600),
            clock: 0,
            held_aw: None,
            held_w: None,
            addresses: VecDeque::new(),
            data: VecDeque::new(),
            current: vec![],
            responses: VecDeque::new(),
            is_offered: false,
            memory: Memory::default(),
            order: vec![],
            taken: (0, 0),
            most_in_flight: 0,
            responded: (0, 0),
            is_bad: |_| false,
            is_paused: false,
        }
    }

    /// Tells whether every burst has its response.
    pub fn is_idle(&self) -> bool {
        self.addresses.is_empty() && self.data.is_empty() && self.current.is_empty() && self.responses.is_empty()
    }

    /// Sets the inputs of the ports; call it before settle.
    pub fn before(&mut self, aw: &mut StreamSource<AxiAw>, w: &mut StreamSource<AxiW>, b: &mut StreamSink<AxiB>) {
        aw.ready.next = self.aw_stalls.go() && (self.accept != Accept::DataFirst || self.taken.1 > self.taken.0);
        w.ready.next = self.w_stalls.go() && (self.accept != Accept::AddressFirst || self.taken.0 > self.taken.1);
        b.valid.next = false;
        self.is_offered = false;
        if self.is_paused || !self.b_stalls.go() {
            return;
        }
        if let Some(&(due, is_bad)) = self.responses.front() {
            if due <= self.clock {
                self.is_offered = true;
                b.valid.next = true;
                b.data.next = AxiB { id: 0u64.into(), resp: if is_bad { 3u64 } else { 0 }.into() };
            }
        }
    }

    /// Takes note of transfers and checks the rules; call it between settle and edge.
    pub fn after(&mut self, aw: &StreamSource<AxiAw>, w: &StreamSource<AxiW>, b: &StreamSink<AxiB>) {
        assert!(b.ready.val(), "responses never wait");
        if self.is_offered {
            let (_, is_bad) = self.responses.pop_front().expect("a response was offered");
            self.responded = (self.responded.0 + 1, self.responded.1 + usize::from(is_bad));
        }
        if let Some(held) = self.held_aw {
            assert!(aw.valid.val() && aw.data.val() == held, "the address did not hold still");
        }
        if let Some(held) = self.held_w {
            assert!(w.valid.val() && w.data.val() == held, "the data did not hold still");
        }
        self.held_aw = (aw.valid.val() && !aw.ready.val()).then(|| aw.data.val());
        self.held_w = (w.valid.val() && !w.ready.val()).then(|| w.data.val());
        if aw.valid.val() && aw.ready.val() {
            let (addr, beats) = (u64::from(aw.data.val().addr), u64::from(aw.data.val().len) + 1);
            assert_eq!(u64::from(aw.data.val().id), 0, "all writes have one ID");
            assert_eq!(addr % 64, 0, "a burst begins at a line");
            assert_eq!(addr / 4096, (addr + beats * 64 - 1) / 4096, "a burst stays in its page");
            self.addresses.push_back(aw.data.val());
            self.taken.0 += 1;
        }
        if w.valid.val() && w.ready.val() {
            self.current.push(w.data.val());
            if w.data.val().last {
                self.data.push_back(std::mem::take(&mut self.current));
                self.taken.1 += 1;
            }
        }
        while !self.addresses.is_empty() && !self.data.is_empty() {
            let (aw, beats) = (self.addresses.pop_front().expect("checked"), self.data.pop_front().expect("checked"));
            self.perform(u64::from(aw.addr) / 64, u64::from(aw.len) + 1, &beats);
        }
        self.most_in_flight = self.most_in_flight.max(self.taken.0.max(self.taken.1) - self.responded.0);
        self.clock += 1;
    }

    fn perform(&mut self, line: u64, len: u64, beats: &[AxiW]) {
        assert_eq!(beats.len() as u64, len, "wlast is on the last beat of the burst");
        let mut is_begun = false;
        let mut is_over = false;
        for (beat, line) in beats.iter().zip(line..) {
            let (strb, bytes) = (u64::from(beat.strb), to_bytes(beat.data));
            assert_ne!(strb, 0, "a beat without a byte");
            for (byte, addr) in bytes.iter().zip(line * 64..) {
                let is_written = strb >> (addr % 64) & 1 == 1;
                assert!(!(is_written && is_over), "a hole in the strobes");
                is_over |= is_begun && !is_written;
                is_begun |= is_written;
                if is_written {
                    self.memory.set(addr, *byte);
                }
            }
        }
        self.order.push(line);
        self.responses.push_back((self.clock + self.latency, (self.is_bad)(line)));
    }
}
