//! Holds acknowledgements back until what they acknowledge is in host memory, and merges them.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `record` | sink | acknowledgements and NAKs in the order of the packets |
//! | `done` | in | pulse: the host has taken one more write request |
//! | `ack` | source | what is to be sent, at most one answer of a QP at a time |
//! | `ready` | out | low while the queue is cleared after a reset, as many clocks as QPs; records wait meanwhile |
//!
//! Latency: four clocks from a record to `ack`, if its write is done and nothing else waits. Throughput: a record every
//! clock, an answer every two. 256 records can wait for the host; then `record.ready` is low.
//!
//! Every record waits for all writes up to and with its own packet, also those of other QPs, since
//! the host takes writes in order anyway. A NAK 0x60 waits too, for it acknowledges all before its
//! PSN. Behind the gate a QP's newest answer replaces one that is still queued: it says all that the
//! older said. Weak records are the exception, see [`super::Decide`].

use rust_hdl::prelude::*;
use verbena_abi::limits;

use super::AckRecord;
use crate::bus::{AckReq, StreamSink, StreamSource};
use crate::prim::{Coalesce, DeepFifo};

/// Order of writes and acknowledgements.
#[derive(LogicBlock, Default)]
pub struct AckGate {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub record: StreamSink<AckRecord>,
    pub done: Signal<In, Bit>,
    pub ack: StreamSource<AckReq>,

    records: DeepFifo<AckRecord, 8, 9>,
    queue: Coalesce<AckReq, { limits::LOG_QPS }, { limits::LOG_QPS + 1 }>,
    done_count: DFF<Bits<16>>,
    lead: Signal<Local, Bits<16>>,
    opens: Signal<Local, Bit>,
}

impl Logic for AckGate {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, done_count);
        clock!(self, clock, records, queue);
        self.records.reset.next = self.reset.val();
        self.queue.reset.next = self.reset.val();
        self.ready.next = self.queue.ready.val();

        self.records.fill.data.next = self.record.data.val();
        self.records.fill.valid.next = self.record.valid.val();
        self.record.ready.next = self.records.fill.ready.val();

        if self.done.val() {
            self.done_count.d.next = self.done_count.q.val() + 1;
        }
        self.lead.next = self.done_count.q.val() - self.records.drain.data.val().after;
        self.opens.next = self.records.drain.valid.val() & self.queue.ready.val() & !self.lead.val().get_bit(15);
        self.records.drain.ready.next = self.opens.val();
        self.queue.put_valid.next = self.opens.val();
        self.queue.put_weak.next = self.records.drain.data.val().is_weak;
        self.queue.put_key.next = self.records.drain.data.val().qpn;
        self.queue.put_data.next.qpn = self.records.drain.data.val().qpn;
        self.queue.put_data.next.psn = self.records.drain.data.val().psn;
        self.queue.put_data.next.syndrome = self.records.drain.data.val().syndrome;
        self.queue.put_data.next.msn = self.records.drain.data.val().msn;
        self.ack.data.next = self.queue.get_data.val();
        self.ack.valid.next = self.queue.get_valid.val();
        self.queue.get_ready.next = self.ack.ready.val();

        if self.reset.val() {
            self.done_count.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    fn bench(name: &str) -> Bench<AckGate> {
        let mut bench = Bench::new(name, AckGate::default(), |uut| &mut uut.clock);
        while !bench.uut.ready.val() {
            bench.edge();
            assert!(bench.clock_count() < limits::QPS as u64 + 44, "ready does not come");
        }
        bench
    }

    fn record(qpn: u64, psn: u64, syndrome: u64, after: u64) -> AckRecord {
        AckRecord {
            qpn: qpn.to_bits(),
            psn: psn.to_bits(),
            syndrome: syndrome.to_bits(),
            msn: psn.to_bits(),
            after: after.to_bits(),
            is_weak: false,
        }
    }

    fn answer(record: &AckRecord) -> AckReq {
        AckReq { qpn: record.qpn, psn: record.psn, syndrome: record.syndrome, msn: record.msn }
    }

    #[test]
    fn no_answer_goes_out_before_its_writes_are_done_and_the_newest_of_each_qp_comes_out() {
        let mut random = Stalls::new(51);
        let mut after = 0;
        let records: Vec<AckRecord> = (0..500)
            .map(|i| {
                after += random.random() % 3;
                record(random.random() % 6, i, 0x1F, after)
            })
            .collect();
        let mut bench = bench("ack_gate");
        let mut driver = Driver::new(records.clone(), Stalls::new(52));
        let mut monitor = Monitor::new(Stalls::new(53));
        let mut host = Stalls::new(54);
        let mut dones = 0u64;
        let mut idle = 0;
        let mut last = [None; 6];
        while idle < limits::QPS + 44 {
            driver.before(&mut bench.uut.record);
            monitor.before(&mut bench.uut.ack);
            let is_done = dones < after && host.go();
            bench.uut.done.next = is_done;
            bench.settle();
            driver.after(&bench.uut.record);
            let got = monitor.got.len();
            monitor.after(&bench.uut.ack);
            idle += 1;
            for ack in &monitor.got[got..] {
                idle = 0;
                let index = records.iter().position(|record| answer(record) == *ack).expect("an answer that was asked for");
                let needs = records[index].after;
                assert!(needs <= dones.to_bits::<16>(), "answer {index} is early");
                let qpn = ack.qpn.index();
                assert!(last[qpn] < Some(index), "answer {index} is late");
                last[qpn] = Some(index);
            }
            dones += is_done as u64;
            bench.edge();
            assert!(bench.clock_count() < 20_000, "the gate hangs");
        }
        for (qpn, last) in last.iter().enumerate() {
            assert_eq!(*last, records.iter().rposition(|record| record.qpn.index() == qpn));
        }
        bench.finish();
    }

    #[test]
    fn a_weak_answer_leaves_a_queued_nak_alone_and_a_newer_answer_replaces_it() {
        let mut bench = bench("ack_gate_nak");
        let mut records =
            vec![record(9, 1, 0x1F, 0), record(9, 2, 0x1F, 0), record(5, 50, 0x60, 0), record(5, 49, 0x1F, 0), record(6, 10, 0x60, 0)];
        records[3].is_weak = true;
        records.push(record(6, 10, 0x1F, 0));
        let mut driver = Driver::new(records.clone(), Stalls::none());
        let mut monitor = Monitor::new(Stalls::none());
        for clock in 0..60 {
            driver.before(&mut bench.uut.record);
            monitor.before(&mut bench.uut.ack);
            if clock < 30 {
                bench.uut.ack.ready.next = false;
            }
            bench.settle();
            driver.after(&bench.uut.record);
            monitor.after(&bench.uut.ack);
            bench.edge();
        }
        // The first is on offer already when the second comes.
        let expected: Vec<AckReq> = [0, 2, 5].iter().map(|i| answer(&records[*i])).collect();
        assert_eq!(monitor.got.iter().filter(|ack| ack.qpn != 9u64).copied().collect::<Vec<_>>(), expected[1..]);
        assert_eq!(monitor.got[0].qpn, 9u64.to_bits());
        bench.finish();
    }

    #[test]
    fn records_of_a_host_that_does_not_answer_fill_the_gate_and_none_is_lost() {
        let mut bench = bench("ack_gate_full");
        let records: Vec<AckRecord> = (0..300).map(|i| record(i % 256, i, 0x1F, 1)).collect();
        let mut driver = Driver::new(records, Stalls::none());
        let mut monitor = Monitor::new(Stalls::none());
        for clock in 0..1000 {
            driver.before(&mut bench.uut.record);
            monitor.before(&mut bench.uut.ack);
            bench.uut.done.next = clock == 320;
            bench.settle();
            driver.after(&bench.uut.record);
            monitor.after(&bench.uut.ack);
            if clock == 319 {
                assert!((40..=44).contains(&driver.queue.len()), "{} are left", driver.queue.len());
                assert!(monitor.got.is_empty());
            }
            bench.edge();
        }
        // The second answers of 44 queue pairs may have replaced the first.
        for i in 44..300 {
            assert_eq!(monitor.got.iter().filter(|ack| ack.qpn == i % 256 && ack.psn == i).count(), 1, "answer {i}");
        }
        bench.finish();
    }

    #[test]
    fn an_answer_takes_four_clocks() {
        let mut bench = bench("ack_gate_latency");
        bench.uut.ack.ready.next = true;
        bench.uut.record.data.next = record(1, 2, 0x1F, 0);
        bench.uut.record.valid.next = true;
        let mut clocks = 0;
        while !bench.uut.ack.valid.val() {
            bench.edge();
            bench.uut.record.valid.next = false;
            clocks += 1;
            assert!(clocks < 20, "no answer");
        }
        assert_eq!(clocks, 4);
    }

    #[test]
    fn a_reset_forgets_what_waits() {
        let mut bench = bench("ack_gate_reset");
        bench.uut.record.data.next = record(1, 2, 0x1F, 0);
        bench.uut.record.valid.next = true;
        bench.cycles(8);
        bench.uut.record.valid.next = false;
        bench.uut.reset.next = true;
        bench.edge();
        bench.uut.reset.next = false;
        bench.cycles(limits::QPS + 44);
        assert!(bench.uut.ready.val() && !bench.uut.ack.valid.val());
        bench.finish();
    }
}
