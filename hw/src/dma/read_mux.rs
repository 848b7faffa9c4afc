//! Joins two read engines on one AXI read port.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `ar0`, `ar1` | sink | bursts of the clients; bit 7 of the ID is 0 |
//! | `ar` | source | bursts of both; bit 7 of the ID is the client |
//! | `r` | sink | beats for both |
//! | `r0`, `r1` | source | beats of each client, with the ID as it came |
//!
//! Client 0 fetches work requests, which all else waits for, so it goes first; when both wait, they
//! take turns, so that neither starves. Latency: one clock for addresses, none for data.
//! Throughput: one burst and one beat every clock.
//!
//! Read engines take a beat every clock, so `r.ready` is always high and `ready` of `r0` and `r1`
//! is not looked at. When the host stalls, the clients' `ready` falls after two bursts.

use rust_hdl::prelude::*;

use super::axi::{AxiAr, AxiR};
use crate::bus::{StreamSink, StreamSource};
use crate::prim::Fifo;

/// The multiplexer.
#[derive(LogicBlock)]
pub struct ReadMux {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ar0: StreamSink<AxiAr>,
    pub ar1: StreamSink<AxiAr>,
    pub ar: StreamSource<AxiAr>,
    pub r: StreamSink<AxiR>,
    pub r0: StreamSource<AxiR>,
    pub r1: StreamSource<AxiR>,

    ars: Fifo<AxiAr, 1, 2>,
    /// Client 0 went last.
    was_zero: DFF<Bit>,
    is_zero: Signal<Local, Bit>,
    is_one: Signal<Local, Bit>,
    id: Signal<Local, Bits<8>>,
    beat_id: Signal<Local, Bits<8>>,
    client: Signal<Local, Bit>,
    client_one: Constant<Bits<8>>,
}

impl Default for ReadMux {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            ar0: Default::default(),
            ar1: Default::default(),
            ar: Default::default(),
            r: Default::default(),
            r0: Default::default(),
            r1: Default::default(),
            ars: Default::default(),
            was_zero: Default::default(),
            is_zero: Default::default(),
            is_one: Default::default(),
            id: Default::default(),
            beat_id: Default::default(),
            client: Default::default(),
            client_one: Constant::new(0x80u8.to_bits()),
        }
    }
}

impl Logic for ReadMux {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, was_zero);
        clock!(self, clock, ars);
        self.ars.reset.next = self.reset.val();
        StreamSource::<AxiAr>::link(&mut self.ar, &mut self.ars.drain);

        self.is_zero.next = self.ar0.valid.val() & (!self.ar1.valid.val() | !self.was_zero.q.val());
        self.is_one.next = self.ar1.valid.val() & !self.is_zero.val();
        self.ar0.ready.next = self.is_zero.val() & self.ars.fill.ready.val();
        self.ar1.ready.next = self.is_one.val() & self.ars.fill.ready.val();
        self.ars.fill.valid.next = self.is_zero.val() | self.is_one.val();
        if self.is_zero.val() {
            self.ars.fill.data.next = self.ar0.data.val();
        } else {
            self.ars.fill.data.next = self.ar1.data.val();
        }
        self.id.next = self.ar0.data.val().id;
        if !self.is_zero.val() {
            self.id.next = self.ar1.data.val().id | self.client_one.val();
        }
        self.ars.fill.data.next.id = self.id.val();
        if self.ars.fill.ready.val() & (self.is_zero.val() | self.is_one.val()) {
            self.was_zero.d.next = self.is_zero.val();
        }

        self.beat_id.next = self.r.data.val().id;
        self.client.next = self.beat_id.val().get_bit(7);
        self.r.ready.next = true;
        self.r0.data.next = self.r.data.val();
        self.r1.data.next = self.r.data.val();
        self.r0.valid.next = self.r.valid.val() & !self.client.val();
        self.r1.valid.next = self.r.valid.val() & self.client.val();

        if self.reset.val() {
            self.was_zero.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    fn bursts(base: u64, count: u64) -> Vec<AxiAr> {
        (0..count)
            .map(|i| AxiAr { id: (i % 128).into(), addr: (base + i * 64).into(), len: (i % 8).into(), size: (i % 7).into() })
            .collect()
    }

    /// Sends bursts of both clients and returns what the host sees, as client and address.
    fn run(name: &str, counts: [u64; 2], stalls: [Stalls; 3]) -> (Vec<(bool, u64)>, u64) {
        let mut bench = Bench::new(name, ReadMux::default(), |uut| &mut uut.clock);
        let [stalls0, stalls1, stalls_out] = stalls;
        let mut client0 = Driver::new(bursts(0, counts[0]), stalls0);
        let mut client1 = Driver::new(bursts(0x10_0000, counts[1]), stalls1);
        let mut host: Monitor<AxiAr> = Monitor::new(stalls_out);
        while (host.got.len() as u64) < counts[0] + counts[1] {
            client0.before(&mut bench.uut.ar0);
            client1.before(&mut bench.uut.ar1);
            host.before(&mut bench.uut.ar);
            bench.settle();
            client0.after(&bench.uut.ar0);
            client1.after(&bench.uut.ar1);
            host.after(&bench.uut.ar);
            bench.edge();
            assert!(bench.clock_count() < 8_000, "bursts are missing");
        }
        for (client, base) in [(0, 0), (1, 0x10_0000)] {
            let got: Vec<_> = host.got.iter().filter(|ar| u64::from(ar.id) >> 7 == client).collect();
            let sent = bursts(base, counts[client as usize]);
            assert_eq!(got.len(), sent.len());
            for (got, sent) in got.iter().zip(&sent) {
                assert_eq!((got.addr, got.len, u64::from(got.id) & 127), (sent.addr, sent.len, u64::from(sent.id)));
            }
        }
        let clocks = bench.clock_count();
        bench.finish();
        (host.got.iter().map(|ar| (u64::from(ar.id) >> 7 == 1, u64::from(ar.addr))).collect(), clocks)
    }

    #[test]
    fn bursts_of_both_clients_come_in_order_under_random_stalls() {
        run("read_mux", [300, 300], [Stalls::new(101), Stalls::new(102), Stalls::new(103)]);
    }

    #[test]
    fn clients_that_both_wait_take_turns_and_client_0_goes_first() {
        let (order, clocks) = run("read_mux_turns", [50, 100], [Stalls::none(), Stalls::none(), Stalls::none()]);
        assert!(order[..100].iter().enumerate().all(|(i, &(is_one, _))| is_one == (i % 2 == 1)), "{order:?}");
        assert_eq!(clocks, 151);
    }

    #[test]
    fn beats_go_to_the_client_that_their_id_names_and_a_reset_empties_the_queue() {
        let mut bench = Bench::new("read_mux_beats", ReadMux::default(), |uut| &mut uut.clock);
        for id in 0..=255u64 {
            bench.uut.r.data.next = AxiR { id: id.into(), data: (id * 3).into(), resp: (id % 4).into(), last: id % 2 == 1 };
            bench.uut.r.valid.next = id % 5 != 0;
            bench.settle();
            assert!(bench.uut.r.ready.val());
            assert_eq!(bench.uut.r0.valid.val(), id % 5 != 0 && id < 128);
            assert_eq!(bench.uut.r1.valid.val(), id % 5 != 0 && id >= 128);
            assert_eq!(bench.uut.r1.data.val().data, Bits::<512>::from(id * 3));
            bench.edge();
        }
        bench.uut.ar0.valid.next = true;
        bench.cycles(3);
        assert!(bench.uut.ar.valid.val() && !bench.uut.ar0.ready.val());
        bench.uut.reset.next = true;
        bench.uut.ar0.valid.next = false;
        bench.cycles(1);
        bench.uut.reset.next = false;
        bench.settle();
        assert!(!bench.uut.ar.valid.val());
        bench.finish();
    }
}
