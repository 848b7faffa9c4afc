//! The read channels of the host.

use super::{pattern, to_bits};
use crate::bus::{StreamSink, StreamSource};
use crate::dma::axi::{AxiAr, AxiR};
use crate::testing::Stalls;

/// In which order beats come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Burst after burst.
    Issued,
    /// Any burst that is due, beat by beat.
    Shuffled,
}

struct Burst {
    id: u64,
    line: u64,
    beats: u64,
    /// Bytes of a line that are asked for.
    bytes: std::ops::Range<usize>,
    sent: u64,
    due: u64,
}

/// Memory that is read.
pub struct ReadHost {
    latency: u64,
    order: Order,
    ar_stalls: Stalls,
    r_stalls: Stalls,
    random: Stalls,
    clock: u64,
    in_flight: Vec<Burst>,
    held: Option<AxiAr>,
    offered: Option<usize>,
    /// Tells which lines answer with an error.
    pub is_bad: fn(u64) -> bool,
    /// Beats given with an error.
    pub bad_beats: u64,
    /// Bursts taken: ID, first line, beats.
    pub bursts: Vec<(u64, u64, u64)>,
    /// What they asked for: address, log2 of the bytes of a beat.
    pub asked: Vec<(u64, u64)>,
    /// Most bursts and most beats that were in flight at once.
    pub most: (usize, u64),
    /// Nothing is answered while set.
    pub is_paused: bool,
}

impl ReadHost {
    /// Returns a host that answers after `latency` clocks and stalls both channels by `seed`, or never if that is 0.
    pub fn new(latency: u64, order: Order, seed: u64) -> Self {
        let stalls = |n| if seed == 0 { Stalls::none() } else { Stalls::new(seed + n) };
        Self {
            latency,
            order,
            ar_stalls: stalls(100),
            r_stalls: stalls(200),
            random: Stalls::new(seed + 300),
            clock: 0,
            in_flight: vec![],
            held: None,
            offered: None,
            is_bad: |_| false,
            bad_beats: 0,
            bursts: vec![],
            asked: vec![],
            most: (0, 0),
            is_paused: false,
        }
    }

    /// Tells whether every burst is answered in full.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Sets the inputs of the ports; call it before settle.
    pub fn before(&mut self, ar: &mut StreamSource<AxiAr>, r: &mut StreamSink<AxiR>) {
        ar.ready.next = self.ar_stalls.go();
        r.valid.next = false;
        self.offered = None;
        if self.is_paused || !self.r_stalls.go() {
            return;
        }
        let due: Vec<usize> = (0..self.in_flight.len()).filter(|&i| self.in_flight[i].due <= self.clock).collect();
        let Some(&first) = due.first() else { return };
        let index = match self.order {
            Order::Issued if first > 0 => return,
            Order::Issued => 0,
            Order::Shuffled => due[self.random.random() as usize % due.len()],
        };
        let burst = &self.in_flight[index];
        let line = burst.line + burst.sent;
        self.offered = Some(index);
        r.valid.next = true;
        r.data.next = AxiR {
            id: burst.id.into(),
            data: to_bits(&std::array::from_fn(|i| if burst.bytes.contains(&i) { pattern(line)[i] } else { 0xDB })),
            resp: if (self.is_bad)(line) { 2u64 } else { 0 }.into(),
            last: burst.sent + 1 == burst.beats,
        };
    }

    /// Takes note of transfers and checks the rules; call it between settle and edge.
    pub fn after(&mut self, ar: &StreamSource<AxiAr>, r: &StreamSink<AxiR>) {
        assert!(r.ready.val(), "room for beats is taken when they are asked for, so they never wait");
        if let Some(index) = self.offered {
            let burst = &mut self.in_flight[index];
            self.bad_beats += u64::from((self.is_bad)(burst.line + burst.sent));
            burst.sent += 1;
            if burst.sent == burst.beats {
                self.in_flight.remove(index);
            }
        }
        if let Some(held) = self.held {
            assert!(ar.valid.val(), "arvalid fell before arready came");
            assert_eq!(ar.data.val(), held, "the address changed before arready came");
        }
        self.held = (ar.valid.val() && !ar.ready.val()).then(|| ar.data.val());
        if ar.valid.val() && ar.ready.val() {
            self.take(ar.data.val());
        }
        self.clock += 1;
    }

    fn take(&mut self, ar: AxiAr) {
        let (id, addr, beats) = (u64::from(ar.id), u64::from(ar.addr), u64::from(ar.len) + 1);
        let size = 1 << u64::from(ar.size);
        assert!(size <= 64 && addr % size == 0 && (size == 64 || beats == 1), "a beat is aligned, and a narrow one is alone");
        let first = addr as usize % 64;
        assert!(beats <= 8, "a burst has at most 512 bytes");
        assert_eq!(addr / 512, (addr / 64 + beats - 1) / 8, "a burst stays in its 512 bytes");
        assert!(self.in_flight.iter().all(|burst| burst.id != id), "ID {id} is in flight already");
        self.in_flight.push(Burst {
            id,
            line: addr / 64,
            beats,
            sent: 0,
            bytes: first..first + size as usize,
            due: self.clock + self.latency,
        });
        self.bursts.push((id, addr / 64, beats));
        self.asked.push((addr, u64::from(ar.size)));
        let lines = self.in_flight.iter().map(|burst| burst.beats).sum();
        self.most = (self.most.0.max(self.in_flight.len()), self.most.1.max(lines));
    }
}
