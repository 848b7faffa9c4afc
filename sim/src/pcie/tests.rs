//! A master without a card: reads and writes as fast as the port takes them.

use std::ptr::NonNull;

use super::*;
use crate::axi::Checker;

const KIB: u64 = 1024;

/// A port, memory of 1 MiB behind it, and a master that keeps it busy.
struct Bench {
    port: HostPort,
    checker: Checker,
    memory: Memory,
    store: Vec<u8>,
    base: u64,
    clock: u64,
    input: AxiIn,
    output: AxiOut,
    /// Clock, ID, last and first byte of every beat of read data.
    beats: Vec<(u64, u8, bool, u8)>,
    /// Clock and ID of every write's answer.
    answers: Vec<(u64, u8)>,
}

impl Bench {
    fn new(config: PcieConfig, seed: u64) -> Self {
        let mut store = vec![0u8; (1024 * KIB + 64) as usize];
        let skip = store.as_ptr().align_offset(64);
        for (number, line) in store[skip..].chunks_mut(64).enumerate() {
            line.fill(number as u8);
        }
        let mut memory = Memory::new();
        let ptr = NonNull::new(store[skip..].as_mut_ptr()).unwrap();
        // SAFETY: `store` lives as long as `memory`, and is looked at after the last access.
        let base = unsafe { memory.map(ptr, 1024 * KIB as usize, 4096) };
        let base = base.next_multiple_of(4096);
        Self {
            port: HostPort::new(config, Rng::new(seed, 0)),
            checker: Checker::new(config.id_reuse),
            memory,
            store,
            base,
            clock: 0,
            input: AxiIn::default(),
            output: AxiOut { rready: true, bready: true, ..AxiOut::default() },
            beats: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn tick(&mut self) -> Result<(), Stray> {
        self.port.drive(self.clock, &mut self.input, &mut self.memory)?;
        self.checker.check(&self.output, &self.input).unwrap();
        self.port.sample(self.clock, &self.output, &self.input).unwrap();
        if self.input.rvalid && self.output.rready {
            self.beats.push((self.clock, self.input.rid, self.input.rlast, self.input.rdata[63]));
        }
        if self.input.bvalid && self.output.bready {
            self.answers.push((self.clock, self.input.bid));
        }
        self.clock += 1;
        Ok(())
    }

    /// Offers a read until it is taken.
    fn read(&mut self, address: u64, beats: u8, id: u8) {
        (self.output.araddr, self.output.arlen, self.output.arid) = (address, beats - 1, id);
        (self.output.arsize, self.output.arburst, self.output.arvalid) = (6, 1, true);
        loop {
            self.tick().unwrap();
            if self.input.arready {
                break;
            }
        }
        self.output.arvalid = false;
    }

    /// Writes full lines of `fill`, the request one clock ahead of the data.
    fn write(&mut self, address: u64, beats: u8, id: u8, fill: u8) -> Result<(), Stray> {
        (self.output.awaddr, self.output.awlen, self.output.awid) = (address, beats - 1, id);
        (self.output.awsize, self.output.awburst, self.output.awvalid) = (6, 1, true);
        (self.output.wdata, self.output.wstrb) = ([fill; 64], u64::MAX);
        let mut sent = 0;
        while self.output.awvalid || sent < beats {
            self.output.wvalid = sent < beats;
            self.output.wlast = sent + 1 == beats;
            self.tick()?;
            self.output.awvalid &= !self.input.awready;
            sent += u8::from(self.output.wvalid && self.input.wready);
        }
        self.output.wvalid = false;
        Ok(())
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            self.tick().unwrap();
            if self.port.is_idle() {
                return;
            }
        }
        panic!("the port does not come to rest");
    }
}

fn without_jitter() -> PcieConfig {
    PcieConfig { read_jitter: 0, ..PcieConfig::GEN3_X16 }
}

#[test]
fn the_first_beat_comes_after_the_latency() {
    for latency in [10, 200, 250] {
        let mut bench = Bench::new(PcieConfig { read_latency: latency, ..without_jitter() }, 1);
        bench.read(bench.base + 64, 4, 9);
        let taken = bench.clock - 1;
        bench.drain();
        assert_eq!(bench.beats[0], (taken + latency, 9, false, bench.beats[0].3));
        assert_eq!(bench.beats.len(), 4);
        assert!(bench.beats[3].2, "the last beat is marked");
    }
}

#[test]
fn reads_reach_the_link_s_rate_within_one_percent() {
    // Gen3 x16: 63.016 bytes a clock, of which 256 in 276 are data. Gen4 x16: the port's 64 bytes are less.
    for (config, expected) in [(PcieConfig::GEN3_X16, 63.016 * 256.0 / 276.0), (PcieConfig::GEN4_X16, 64.0)] {
        let mut bench = Bench::new(PcieConfig { id_reuse: IdReuse::Allow, ..config }, 2);
        for number in 0..2000u64 {
            bench.read(bench.base + number * 512 % (512 * KIB), 8, (number % 64) as u8);
            // Requests come as fast as data, and never faster than the tags allow.
            for _ in 0..6 {
                bench.tick().unwrap();
            }
        }
        bench.drain();
        let (first, last) = (bench.beats[2000].0, bench.beats[14_000].0);
        let rate = 12_000.0 * 64.0 / (last - first) as f64;
        assert!((rate / expected - 1.0).abs() < 0.01, "{rate} bytes a clock, expected {expected}");
    }
}

#[test]
fn writes_reach_the_link_s_rate_within_one_percent() {
    let mut bench = Bench::new(PcieConfig::GEN3_X16, 3);
    for number in 0..100u64 {
        bench.write(bench.base + number * 4 * KIB % (512 * KIB), 64, 0, 1).unwrap();
    }
    let start = bench.clock;
    // From here on the posted buffer is full.
    for number in 0..200u64 {
        bench.write(bench.base + number * 4 * KIB % (512 * KIB), 64, 0, 1).unwrap();
    }
    let rate = 200.0 * 4096.0 / (bench.clock - start) as f64;
    let expected = 63.016 * 256.0 / 280.0;
    // The bench leaves a clock between bursts, which the buffer hides.
    assert!((rate / expected - 1.0).abs() < 0.01, "{rate} bytes a clock, expected {expected}");
}

#[test]
fn tags_bound_what_is_under_way() {
    // 8 requests of 512 bytes per latency.
    let mut bench = Bench::new(PcieConfig { tags: 8, read_latency: 400, ..without_jitter() }, 4);
    for id in 0..64 {
        bench.read(bench.base + u64::from(id) * 512, 8, id);
    }
    bench.drain();
    let rate = 64.0 * 512.0 / bench.clock as f64;
    let bound = 8.0 * 512.0 / 400.0;
    assert!(rate < bound && rate > 0.8 * bound, "{rate} bytes a clock, bound {bound}");
}

#[test]
fn bursts_come_back_out_of_order_between_ids_and_in_order_within_one() {
    for interleave in [false, true] {
        let config = PcieConfig { interleave, id_reuse: IdReuse::Allow, ..PcieConfig::GEN3_X16 };
        let mut bench = Bench::new(config, 5);
        for number in 0..256u64 {
            bench.read(bench.base + number * 1024, 16, (number % 16) as u8);
        }
        bench.drain();
        assert_eq!(bench.beats.len(), 256 * 16);
        let ids: Vec<u8> = bench.beats.iter().filter(|beat| beat.2).map(|beat| beat.1).collect();
        assert!(ids.windows(2).any(|pair| pair[1] != (pair[0] + 1) % 16), "some burst overtook another");
        for id in 0..16u8 {
            let seen: Vec<u8> = bench.beats.iter().filter(|beat| beat.1 == id).map(|beat| beat.3).collect();
            let sent: Vec<u8> =
                (0..16u64).flat_map(|lap| (0..16).map(move |beat| ((lap * 16 + u64::from(id)) * 16 + beat) as u8)).collect();
            assert_eq!(
                seen.iter().map(|value| value.wrapping_sub(seen[0])).collect::<Vec<_>>(),
                sent.iter().map(|value| value.wrapping_sub(sent[0])).collect::<Vec<_>>()
            );
        }
        let turns = bench.beats.windows(2).any(|pair| !pair[0].2 && pair[0].1 != pair[1].1);
        assert_eq!(turns, interleave, "bursts take turns only when told");
    }
}

#[test]
fn a_burst_with_more_requests_than_tags_comes_back_whole() {
    let mut bench = Bench::new(PcieConfig { tags: 3, ..PcieConfig::GEN3_X16 }, 6);
    for id in 0..8 {
        bench.read(bench.base + u64::from(id) * 4096, 64, id);
    }
    bench.drain();
    assert_eq!(bench.beats.len(), 8 * 64);
}

#[test]
fn an_unaligned_read_leaves_poison_in_front() {
    let mut bench = Bench::new(without_jitter(), 7);
    bench.read(bench.base + 70, 1, 0);
    bench.drain();
    assert_eq!(bench.input.rdata[..6], [crate::memory::POISON; 6]);
    assert_ne!(bench.input.rdata[6..], [crate::memory::POISON; 58]);
}

#[test]
fn a_write_is_visible_when_it_has_crossed_and_answered_after_that() {
    let mut bench = Bench::new(PcieConfig { write_latency: 20, ..without_jitter() }, 8);
    let address = bench.base + 64;
    bench.write(address, 1, 5, 0xEE).unwrap();
    let taken = bench.clock;
    let mut line = [0; 64];
    bench.memory.read_line(address, &mut line).unwrap();
    assert_ne!(line, [0xEE; 64], "it is still on the link");
    bench.drain();
    bench.memory.read_line(address, &mut line).unwrap();
    assert_eq!(line, [0xEE; 64]);
    let (answered, id) = bench.answers[0];
    assert_eq!(id, 5);
    assert!((taken + 20..taken + 25).contains(&answered), "answered {} clocks later", answered - taken);
}

#[test]
fn an_access_outside_of_what_is_mapped_is_reported_with_its_id() {
    let mut bench = Bench::new(without_jitter(), 9);
    let end = bench.base + 1024 * KIB + 8192;
    let outcome = bench.write(end, 1, 3, 1).and_then(|()| (0..100).try_for_each(|_| bench.tick()));
    let stray = outcome.unwrap_err();
    assert_eq!((stray.at.address, stray.at.len_bytes, stray.id, stray.is_write), (end, 64, 3, true));

    let mut bench = Bench::new(without_jitter(), 9);
    bench.read(0, 1, 4);
    let stray = (0..1000).try_for_each(|_| bench.tick()).unwrap_err();
    assert_eq!((stray.at.address, stray.id, stray.is_write), (0, 4, false));
}

#[test]
fn a_missing_wlast_is_found() {
    let mut bench = Bench::new(without_jitter(), 10);
    (bench.output.awaddr, bench.output.awlen, bench.output.awsize, bench.output.awburst) = (bench.base, 1, 6, 1);
    bench.output.awvalid = true;
    bench.tick().unwrap();
    bench.output = AxiOut { wvalid: true, wlast: true, wstrb: 1, ..AxiOut::default() };
    bench.port.drive(1, &mut bench.input, &mut bench.memory).unwrap();
    let error = bench.port.sample(1, &bench.output, &bench.input).unwrap_err();
    assert!(error.contains("wlast too early"), "{error}");
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let run = |seed| {
        let config = PcieConfig { stall_percent: 30, interleave: true, ..PcieConfig::GEN3_X16 };
        let mut bench = Bench::new(config, seed);
        for id in 0..200 {
            bench.read(bench.base + u64::from(id) * 512, 8, id);
        }
        for number in 0..50 {
            bench.write(bench.base + number * 512, 8, 0, 7).unwrap();
        }
        bench.drain();
        assert!(bench.store.iter().filter(|byte| **byte == 7).count() >= 50 * 512);
        (bench.beats, bench.answers, bench.clock)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}
