//! Reads host memory with many bursts in flight and answers in order.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `req` | sink | address and length in bytes, 1 to 4096 |
//! | `line` | source | each aligned line that a request touches, in order; `last` on its last one. Bytes outside the request mean nothing |
//! | `ar` | source | bursts of 1 to 8 lines inside one 512-byte block; bit 7 of the ID is 0. Of a line alone only the smallest aligned power of two that holds its bytes |
//! | `r` | sink | beats, each ID in order, different IDs in any order and interleaved |
//! | `error` | out | a pulse for each beat whose response is not OKAY |
//!
//! Latency: two clocks from an accepted request to `ar.valid`, five from a beat to `line.valid` if
//! the beat is the next in order. A line leaves as soon as it is there; its burst need not be complete.
//! Throughput: one burst and one line every clock. In flight at most: 128 bursts and 1024 lines,
//! which is 250 clocks of latency at full rate from 512-byte reads, with as much again in reserve.
//!
//! Room in the reorder ring is taken when a burst is issued, so `r.ready` is always high; when the
//! ring or the IDs are used up, bursts wait. A beat with an error passes on like any other, so the
//! count of lines never depends on the host. IDs are given out in turn and so are freed in order.
//!
//! How far each burst has arrived is a count with the lap of its ID. The lap makes an entry that is
//! left over from the burst before count as zero, so nothing has to be cleared when an ID is used
//! again. After a reset both tables are cleared in 128 clocks, in which requests wait and beats are
//! dropped; beats that come later than that for bursts from before the reset must not exist.

use rust_hdl::prelude::*;

use super::axi::{AxiAr, AxiR, Burst};
use super::Split;
use crate::bus::{Line, ReadReq, StreamSink, StreamSource};
use crate::prim::{Fifo, LutRam, Ram};

/// Where the beats of an ID go.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Place {
    base: Bits<10>,
    lap: Bit,
}

/// What is known of an ID when its lines leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Extent {
    beats: Bits<4>,
    last: Bit,
}

/// Beats of an ID that have arrived, if the lap is that of its burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Arrival {
    count: Bits<4>,
    lap: Bit,
}

/// The read engine.
#[derive(LogicBlock)]
pub struct ReadEngine {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub req: StreamSink<ReadReq>,
    pub line: StreamSource<Line>,
    pub ar: StreamSource<AxiAr>,
    pub r: StreamSink<AxiR>,
    pub error: Signal<Out, Bit>,

    split: Split<3>,
    places: LutRam<Place, 7>,
    extents: LutRam<Extent, 7>,
    /// Two copies, since beats and the head of the queue each read one. The second is written
    /// together with the ring, a clock later than the first.
    arrivals: LutRam<Arrival, 7>,
    landed: LutRam<Arrival, 7>,
    ring: Ram<Bits<512>, 10>,
    lines: Fifo<Line, 2, 3>,

    is_clearing: DFF<Bit>,
    clear_slot: DFF<Bits<7>>,
    issued: DFF<Bits<8>>,
    base: DFF<Bits<10>>,
    used: DFF<Bits<11>>,
    beat_valid: DFF<Bit>,
    beat: DFF<AxiR>,
    bad: DFF<Bit>,
    put_valid: DFF<Bit>,
    put_index: DFF<Bits<10>>,
    put_slot: DFF<Bits<7>>,
    put_lap: DFF<Bit>,
    put_count: DFF<Bits<4>>,
    put_data: DFF<Bits<512>>,
    head: DFF<Bits<8>>,
    drained: DFF<Bits<4>>,
    drain_index: DFF<Bits<10>>,
    is_reading: DFF<Bit>,
    is_reading_last: DFF<Bit>,

    burst: Signal<Local, Burst>,
    burst_line: Signal<Local, Bits<58>>,
    burst_beats: Signal<Local, Bits<7>>,
    line_head: Signal<Local, Bits<6>>,
    line_tail: Signal<Local, Bits<6>>,
    differing: Signal<Local, Bits<6>>,
    size: Signal<Local, Bits<3>>,
    skipped: Signal<Local, Bits<6>>,
    byte_addr: Signal<Local, Bits<64>>,
    less_one: Signal<Local, Bits<7>>,
    beats_wide: Signal<Local, Bits<11>>,
    wanted: Signal<Local, Bits<11>>,
    in_flight: Signal<Local, Bits<8>>,
    has_room: Signal<Local, Bit>,
    may_issue: Signal<Local, Bit>,
    issue: Signal<Local, Bit>,
    reserved: Signal<Local, Bits<11>>,
    issue_slot: Signal<Local, Bits<7>>,
    beat_id: Signal<Local, Bits<8>>,
    beat_slot: Signal<Local, Bits<7>>,
    beat_lap: Signal<Local, Bit>,
    beat_count: Signal<Local, Bits<4>>,
    beat_count_after: Signal<Local, Bits<4>>,
    head_slot: Signal<Local, Bits<7>>,
    head_lap: Signal<Local, Bit>,
    head_count: Signal<Local, Bits<4>>,
    drained_after: Signal<Local, Bits<4>>,
    is_end: Signal<Local, Bit>,
    held: Signal<Local, Bits<3>>,
    read: Signal<Local, Bit>,

    ring_lines: Constant<Bits<11>>,
    slots: Constant<Bits<8>>,
    last_slot: Constant<Bits<7>>,
    front_room: Constant<Bits<3>>,
}

impl Default for ReadEngine {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            req: Default::default(),
            line: Default::default(),
            ar: Default::default(),
            r: Default::default(),
            error: Default::default(),
            split: Default::default(),
            places: Default::default(),
            extents: Default::default(),
            arrivals: Default::default(),
            landed: Default::default(),
            ring: Default::default(),
            lines: Default::default(),
            is_clearing: Default::default(),
            clear_slot: Default::default(),
            issued: Default::default(),
            base: Default::default(),
            used: Default::default(),
            beat_valid: Default::default(),
            beat: Default::default(),
            bad: Default::default(),
            put_valid: Default::default(),
            put_index: Default::default(),
            put_slot: Default::default(),
            put_lap: Default::default(),
            put_count: Default::default(),
            put_data: Default::default(),
            head: Default::default(),
            drained: Default::default(),
            drain_index: Default::default(),
            is_reading: Default::default(),
            is_reading_last: Default::default(),
            burst: Default::default(),
            burst_line: Default::default(),
            burst_beats: Default::default(),
            line_head: Default::default(),
            line_tail: Default::default(),
            differing: Default::default(),
            size: Default::default(),
            skipped: Default::default(),
            byte_addr: Default::default(),
            less_one: Default::default(),
            beats_wide: Default::default(),
            wanted: Default::default(),
            in_flight: Default::default(),
            has_room: Default::default(),
            may_issue: Default::default(),
            issue: Default::default(),
            reserved: Default::default(),
            issue_slot: Default::default(),
            beat_id: Default::default(),
            beat_slot: Default::default(),
            beat_lap: Default::default(),
            beat_count: Default::default(),
            beat_count_after: Default::default(),
            head_slot: Default::default(),
            head_lap: Default::default(),
            head_count: Default::default(),
            drained_after: Default::default(),
            is_end: Default::default(),
            held: Default::default(),
            read: Default::default(),
            ring_lines: Constant::new(1024u16.to_bits()),
            slots: Constant::new(128u8.to_bits()),
            last_slot: Constant::new(127u8.to_bits()),
            front_room: Constant::new(3u8.to_bits()),
        }
    }
}

impl Logic for ReadEngine {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            is_clearing,
            clear_slot,
            issued,
            base,
            used,
            beat_valid,
            beat,
            bad,
            put_valid,
            put_index,
            put_slot,
            put_lap,
            put_count,
            put_data,
            head,
            drained,
            drain_index,
            is_reading,
            is_reading_last
        );
        clock!(self, clock, split, places, extents, arrivals, landed, ring, lines);
        self.split.reset.next = self.reset.val();
        self.lines.reset.next = self.reset.val();
        StreamSource::<Line>::link(&mut self.line, &mut self.lines.drain);

        self.split.span.data.next.addr = self.req.data.val().addr;
        self.split.span.data.next.len = self.req.data.val().len;
        self.split.span.valid.next = self.req.valid.val();
        self.req.ready.next = self.split.span.ready.val();

        // Issue: a burst goes out when an ID and room for all of its lines are free.
        self.burst.next = self.split.burst.data.val();
        self.burst_line.next = self.burst.val().line;
        self.burst_beats.next = self.burst.val().beats;
        // Of one line alone, the smallest aligned power of two is asked for that holds the bytes: it costs the link less.
        self.line_head.next = self.burst.val().head;
        self.line_tail.next = self.burst.val().tail;
        self.differing.next = self.line_head.val() ^ (self.line_tail.val() - 1);
        self.size.next = 6.into();
        self.skipped.next = 0.into();
        if (self.burst_beats.val() == 1) & !self.differing.val().get_bit(5) {
            if self.differing.val().get_bit(4) {
                self.size.next = 5.into();
                self.skipped.next = self.line_head.val() & 0x20;
            } else if self.differing.val().get_bit(3) {
                self.size.next = 4.into();
                self.skipped.next = self.line_head.val() & 0x30;
            } else if self.differing.val().get_bit(2) {
                self.size.next = 3.into();
                self.skipped.next = self.line_head.val() & 0x38;
            } else {
                // The link moves whole double words.
                self.size.next = 2.into();
                self.skipped.next = self.line_head.val() & 0x3c;
            }
        }
        self.byte_addr.next = (bit_cast::<64, 58>(self.burst_line.val()) << 6) | bit_cast::<64, 6>(self.skipped.val());
        self.less_one.next = self.burst_beats.val() - 1;
        self.beats_wide.next = bit_cast::<11, 7>(self.burst_beats.val());
        self.wanted.next = self.used.q.val() + self.beats_wide.val();
        self.in_flight.next = self.issued.q.val() - self.head.q.val();
        self.has_room.next = (self.wanted.val() <= self.ring_lines.val()) & (self.in_flight.val() != self.slots.val());
        // Room that is there stays until this burst takes it, so `ar.valid` does not fall.
        self.may_issue.next = self.split.burst.valid.val() & self.has_room.val() & !self.is_clearing.q.val();
        self.issue.next = self.may_issue.val() & self.ar.ready.val();
        self.split.burst.ready.next = self.has_room.val() & !self.is_clearing.q.val() & self.ar.ready.val();
        self.issue_slot.next = self.issued.q.val().get_bits::<7>(0);
        self.ar.valid.next = self.may_issue.val();
        self.ar.data.next.id = bit_cast::<8, 7>(self.issue_slot.val());
        self.ar.data.next.addr = self.byte_addr.val();
        self.ar.data.next.len = bit_cast::<8, 7>(self.less_one.val());
        self.ar.data.next.size = self.size.val();
        self.places.write_enable.next = self.issue.val();
        self.places.write_address.next = self.issue_slot.val();
        self.places.write_data.next.base = self.base.q.val();
        self.places.write_data.next.lap = self.issued.q.val().get_bit(7);
        self.extents.write_enable.next = self.issue.val();
        self.extents.write_address.next = self.issue_slot.val();
        self.extents.write_data.next.beats = self.burst_beats.val().get_bits::<4>(0);
        self.extents.write_data.next.last = self.burst.val().last;
        self.reserved.next = self.used.q.val();
        if self.issue.val() {
            self.reserved.next = self.wanted.val();
            self.issued.d.next = self.issued.q.val() + 1;
            self.base.d.next = self.base.q.val() + self.beats_wide.val().get_bits::<10>(0);
        }

        // Arrival: where does the beat go, and how many of its burst are there now?
        self.r.ready.next = true;
        self.beat_valid.d.next = self.r.valid.val() & !self.is_clearing.q.val();
        self.beat.d.next = self.r.data.val();
        self.bad.d.next = self.beat_valid.q.val() & (self.beat.q.val().resp != 0);
        self.error.next = self.bad.q.val();
        self.beat_id.next = self.beat.q.val().id;
        self.beat_slot.next = self.beat_id.val().get_bits::<7>(0);
        self.places.read_address.next = self.beat_slot.val();
        self.arrivals.read_address.next = self.beat_slot.val();
        self.beat_lap.next = self.places.read_data.val().lap;
        self.beat_count.next = 0.into();
        if self.arrivals.read_data.val().lap == self.beat_lap.val() {
            self.beat_count.next = self.arrivals.read_data.val().count;
        }
        self.beat_count_after.next = self.beat_count.val() + 1;
        self.arrivals.write_enable.next = self.beat_valid.q.val() | self.is_clearing.q.val();
        self.arrivals.write_address.next = self.beat_slot.val();
        self.arrivals.write_data.next.count = self.beat_count_after.val();
        self.arrivals.write_data.next.lap = self.beat_lap.val();
        self.put_valid.d.next = self.beat_valid.q.val();
        self.put_index.d.next = self.places.read_data.val().base + bit_cast::<10, 4>(self.beat_count.val());
        self.put_slot.d.next = self.beat_slot.val();
        self.put_lap.d.next = self.beat_lap.val();
        self.put_count.d.next = self.beat_count_after.val();
        self.put_data.d.next = self.beat.q.val().data;

        self.ring.write_enable.next = self.put_valid.q.val();
        self.ring.write_address.next = self.put_index.q.val();
        self.ring.write_data.next = self.put_data.q.val();
        self.landed.write_enable.next = self.put_valid.q.val() | self.is_clearing.q.val();
        self.landed.write_address.next = self.put_slot.q.val();
        self.landed.write_data.next.count = self.put_count.q.val();
        self.landed.write_data.next.lap = self.put_lap.q.val();

        // The first burst after clearing has lap 0, so entries of lap 1 stand for "nothing there".
        if self.is_clearing.q.val() {
            self.arrivals.write_address.next = self.clear_slot.q.val();
            self.arrivals.write_data.next.count = 0.into();
            self.arrivals.write_data.next.lap = true;
            self.landed.write_address.next = self.clear_slot.q.val();
            self.landed.write_data.next.count = 0.into();
            self.landed.write_data.next.lap = true;
            self.clear_slot.d.next = self.clear_slot.q.val() + 1;
            if self.clear_slot.q.val() == self.last_slot.val() {
                self.is_clearing.d.next = false;
            }
        }

        // Leaving: the next line of the oldest burst, if it is there. An ID that is not issued has
        // an entry of another lap, so it needs no further check.
        self.head_slot.next = self.head.q.val().get_bits::<7>(0);
        self.head_lap.next = self.head.q.val().get_bit(7);
        self.landed.read_address.next = self.head_slot.val();
        self.extents.read_address.next = self.head_slot.val();
        self.head_count.next = 0.into();
        if self.landed.read_data.val().lap == self.head_lap.val() {
            self.head_count.next = self.landed.read_data.val().count;
        }
        self.held.next = self.lines.level.val() + bit_cast::<3, 1>(self.is_reading.q.val().into());
        self.read.next = (self.head_count.val() > self.drained.q.val()) & (self.held.val() <= self.front_room.val());
        self.drained_after.next = self.drained.q.val() + 1;
        self.is_end.next = self.drained_after.val() == self.extents.read_data.val().beats;
        self.ring.read_address.next = self.drain_index.q.val();
        self.is_reading.d.next = self.read.val();
        self.is_reading_last.d.next = self.is_end.val() & self.extents.read_data.val().last;
        self.used.d.next = self.reserved.val();
        if self.read.val() {
            self.used.d.next = self.reserved.val() - 1;
            self.drain_index.d.next = self.drain_index.q.val() + 1;
            self.drained.d.next = self.drained_after.val();
            if self.is_end.val() {
                self.drained.d.next = 0.into();
                self.head.d.next = self.head.q.val() + 1;
            }
        }
        self.lines.fill.valid.next = self.is_reading.q.val();
        self.lines.fill.data.next.data = self.ring.read_data.val();
        self.lines.fill.data.next.last = self.is_reading_last.q.val();

        if self.reset.val() {
            self.is_clearing.d.next = true;
            self.clear_slot.d.next = 0.into();
            self.issued.d.next = 0.into();
            self.base.d.next = 0.into();
            self.used.d.next = 0.into();
            self.beat_valid.d.next = false;
            self.bad.d.next = false;
            self.put_valid.d.next = false;
            self.head.d.next = 0.into();
            self.drained.d.next = 0.into();
            self.drain_index.d.next = 0.into();
            self.is_reading.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::testing::{are_lines_of, count_lines, sample_ranges, Order, ReadHost};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    /// The engine, its client and its host.
    struct Setup {
        bench: Bench<ReadEngine>,
        driver: Driver<ReadReq>,
        monitor: Monitor<Line>,
        host: ReadHost,
        errors: u64,
    }

    impl Setup {
        fn new(name: &str, ranges: &[(u64, u64)], host: ReadHost, stalls: [Stalls; 2]) -> Self {
            let [input, output] = stalls;
            Self {
                bench: Bench::new(name, ReadEngine::default(), |uut| &mut uut.clock),
                driver: Driver::new(requests(ranges), input),
                monitor: Monitor::new(output),
                host,
                errors: 0,
            }
        }

        fn step(&mut self) {
            let uut = &mut self.bench.uut;
            self.driver.before(&mut uut.req);
            self.monitor.before(&mut uut.line);
            self.host.before(&mut uut.ar, &mut uut.r);
            self.bench.settle();
            let uut = &self.bench.uut;
            self.driver.after(&uut.req);
            self.monitor.after(&uut.line);
            self.host.after(&uut.ar, &uut.r);
            self.errors += u64::from(uut.error.val());
            self.bench.edge();
        }

        fn run_until_lines(&mut self, count: usize, limit: u64) {
            while self.monitor.got.len() < count {
                self.step();
                assert!(self.bench.clock_count() < limit, "{} of {count} lines have come", self.monitor.got.len());
            }
        }
    }

    fn requests(ranges: &[(u64, u64)]) -> Vec<ReadReq> {
        ranges.iter().map(|&(addr, len)| ReadReq { addr: addr.into(), len: len.into() }).collect()
    }

    #[test]
    fn lines_come_in_order_however_the_host_answers() {
        for (seed, order) in [(21, Order::Shuffled), (22, Order::Issued)] {
            let ranges = sample_ranges(seed, 120, 700);
            let host = ReadHost::new(40, order, seed);
            let mut setup = Setup::new(&format!("read_{seed}"), &ranges, host, [Stalls::new(seed + 1), Stalls::new(seed + 2)]);
            setup.run_until_lines(count_lines(&ranges), 8_000);
            for _ in 0..20 {
                setup.step();
            }
            assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
            assert_eq!(setup.errors, 0);
            setup.bench.finish();
        }
    }

    #[test]
    fn the_longest_requests_at_every_kind_of_offset_give_all_their_lines() {
        let ranges = [(0, 4096), (1, 4096), (63, 4096), (4095, 4096), (512, 4095), (4032, 65), (448, 128)];
        let mut setup = Setup::new("read_long", &ranges, ReadHost::new(10, Order::Shuffled, 31), [Stalls::none(), Stalls::none()]);
        setup.run_until_lines(count_lines(&ranges), 4_000);
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        setup.bench.finish();
    }

    #[test]
    fn large_reads_run_at_full_rate_with_one_microsecond_of_latency() {
        let ranges: Vec<_> = (0..200).map(|i| (0x10_0000 + i * 512, 512)).collect();
        let mut setup = Setup::new("read_rate_large", &ranges, ReadHost::new(250, Order::Issued, 0), [Stalls::none(), Stalls::none()]);
        setup.run_until_lines(1600, 4_000);
        assert!(setup.bench.clock_count() <= 1600 + 250 + 12, "{} clocks", setup.bench.clock_count());
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        setup.bench.finish();
    }

    #[test]
    fn small_reads_run_at_one_a_clock_until_all_ids_are_in_flight() {
        let ranges: Vec<_> = (0..500).map(|i| (0x10_0000 + i * 64, 64)).collect();
        let mut setup = Setup::new("read_rate_small", &ranges, ReadHost::new(110, Order::Issued, 0), [Stalls::none(), Stalls::none()]);
        setup.run_until_lines(500, 4_000);
        assert!(setup.bench.clock_count() <= 500 + 110 + 12, "{} clocks", setup.bench.clock_count());
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        setup.bench.finish();

        // With a microsecond, the 128 IDs are the limit: 128 lines in each round trip.
        let mut setup = Setup::new("read_rate_ids", &ranges, ReadHost::new(250, Order::Issued, 0), [Stalls::none(), Stalls::none()]);
        setup.run_until_lines(500, 4_000);
        assert!(setup.bench.clock_count() <= 4 * (250 + 8) + 116, "{} clocks", setup.bench.clock_count());
        assert_eq!(setup.host.most.0, 128);
        setup.bench.finish();
    }

    #[test]
    fn a_ring_filled_to_the_last_line_takes_no_more_and_loses_nothing() {
        // One line short of the ring, all IDs are out.
        let mut ranges: Vec<_> = (0..127).map(|i| (i * 512, 512)).collect();
        ranges.extend([(0x10_0000, 448), (0x20_0000, 64), (0x30_0000, 512), (0x40_0000, 64)]);
        let mut setup = Setup::new("read_full", &ranges, ReadHost::new(5, Order::Shuffled, 41), [Stalls::none(), Stalls::none()]);
        setup.host.is_paused = true;
        for _ in 0..400 {
            setup.step();
        }
        assert_eq!(setup.host.most, (128, 1023), "all IDs are out");
        setup.host.is_paused = false;
        setup.run_until_lines(count_lines(&ranges), 5_000);
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        setup.bench.finish();

        let ranges: Vec<_> = (0..140).map(|i| (i * 512, 512)).collect();
        let mut setup = Setup::new("read_full_lines", &ranges, ReadHost::new(5, Order::Shuffled, 0), [Stalls::none(), Stalls::none()]);
        setup.host.is_paused = true;
        for _ in 0..300 {
            setup.step();
        }
        assert_eq!(setup.host.most, (128, 1024), "the ring is full");
        setup.host.is_paused = false;
        setup.run_until_lines(count_lines(&ranges), 5_000);
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        setup.bench.finish();
    }

    #[test]
    fn a_bad_response_is_reported_and_nothing_hangs() {
        let ranges: Vec<_> = (0..40).map(|i| (i * 300, 200)).collect();
        let mut host = ReadHost::new(20, Order::Shuffled, 51);
        host.is_bad = |line| line % 7 == 0;
        let mut setup = Setup::new("read_error", &ranges, host, [Stalls::new(52), Stalls::new(53)]);
        setup.run_until_lines(count_lines(&ranges), 4_000);
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        assert!(setup.host.bad_beats > 10);
        assert_eq!(setup.errors, setup.host.bad_beats);
        setup.bench.finish();
    }

    #[test]
    fn a_reset_drops_lines_that_wait_and_the_next_request_gets_its_own() {
        let ranges: Vec<_> = (0..150).map(|i| (i * 192, 100)).collect();
        let mut setup = Setup::new("read_reset", &ranges, ReadHost::new(15, Order::Shuffled, 61), [Stalls::none(), Stalls::new(62)]);
        setup.run_until_lines(200, 2_000);
        setup.driver = Driver::new([], Stalls::none());
        setup.bench.uut.req.valid.next = false;
        // The client stops taking lines, the host answers all that it was asked.
        setup.bench.uut.line.ready.next = false;
        setup.monitor.restart();
        for _ in 0..300 {
            setup.host.before(&mut setup.bench.uut.ar, &mut setup.bench.uut.r);
            setup.bench.settle();
            setup.host.after(&setup.bench.uut.ar, &setup.bench.uut.r);
            setup.bench.edge();
        }
        assert!(setup.host.is_idle(), "no transfer is in flight");
        assert!(setup.bench.uut.line.valid.val(), "lines wait");
        setup.bench.uut.reset.next = true;
        setup.bench.cycles(1);
        setup.bench.uut.reset.next = false;
        let ranges: Vec<_> = (0..150).map(|i| (0x8_0000 + i * 250, 100)).collect();
        setup.driver = Driver::new(requests(&ranges), Stalls::new(63));
        setup.monitor = Monitor::new(Stalls::new(64));
        setup.run_until_lines(count_lines(&ranges), 6_000);
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        setup.bench.finish();
    }

    #[test]
    fn of_a_line_alone_no_more_is_asked_for_than_an_aligned_power_of_two() {
        let cases = [
            ((0x1000, 8), vec![(0x1000, 3)]),
            ((0x1004, 8), vec![(0x1000, 4)]),
            ((0x103F, 1), vec![(0x103C, 2)]),
            ((0x1020, 32), vec![(0x1020, 5)]),
            ((0x101F, 2), vec![(0x1000, 6)]),
            ((0x1000, 64), vec![(0x1000, 6)]),
            ((0x1001, 63), vec![(0x1000, 6)]),
            ((0x1030, 17), vec![(0x1000, 6)]),
            // Two lines at the border of a block are two bursts of one line.
            ((0x11FE, 4), vec![(0x11FC, 2), (0x1200, 2)]),
        ];
        let ranges: Vec<_> = cases.iter().map(|case| case.0).collect();
        let host = ReadHost::new(5, Order::Issued, 0);
        let mut setup = Setup::new("read_narrow", &ranges, host, [Stalls::none(), Stalls::none()]);
        setup.run_until_lines(count_lines(&ranges), 1_000);
        assert!(are_lines_of(&setup.monitor.got, &ranges), "lines differ");
        assert_eq!(setup.host.asked, cases.into_iter().flat_map(|case| case.1).collect::<Vec<_>>());
        setup.bench.finish();
    }

    #[test]
    fn a_request_passes_in_two_clocks_and_its_line_in_five() {
        let mut setup = Setup::new("read_latency", &[(64, 64)], ReadHost::new(0, Order::Issued, 0), [Stalls::none(), Stalls::none()]);
        let mut asked = None;
        let mut answered = None;
        while setup.monitor.got.is_empty() {
            setup.step();
            let clock = setup.bench.clock_count();
            if setup.host.bursts.len() == 1 {
                asked.get_or_insert(clock - 1);
            }
            if asked.is_some() && setup.host.is_idle() {
                answered.get_or_insert(clock - 1);
            }
            assert!(clock < 100, "the line does not come");
        }
        // The request was taken in clock 0.
        assert_eq!(asked, Some(2));
        assert_eq!(setup.bench.clock_count() - 1 - answered.expect("the host has answered"), 5);
        setup.bench.finish();
    }
}
