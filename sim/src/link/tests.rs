//! A sender and a receiver without cards.

use verbena_abi::wire::{write_wire_bytes, WIRE_OVERHEAD};

use super::*;

struct Bench {
    tx: MacTx,
    rx: MacRx,
    clock: u64,
    beat: Beat,
    /// Clock of the first beat, of the last beat, bytes, mark.
    received: Vec<(u64, u64, Vec<u8>, bool)>,
    rx_ready: bool,
}

impl Bench {
    fn new(config: LinkConfig, seed: u64) -> Self {
        let wire = Arc::new(Wire::default());
        let tx = MacTx::new(config, wire.clone(), Rng::new(seed, 1));
        let rx = MacRx::new(config, wire, Rng::new(seed, 2));
        Self { tx, rx, clock: 0, beat: Beat::default(), received: Vec::new(), rx_ready: true }
    }

    /// Runs a clock in which the sender offers `beat`. Returns whether it was taken.
    fn tick(&mut self, beat: &Beat) -> Result<bool, String> {
        let ready = self.tx.drive(self.clock);
        self.tx.sample(self.clock, beat, ready)?;
        self.rx.drive(self.clock, &mut self.beat);
        if self.beat.valid && self.rx_ready {
            if self.received.last().is_none_or(|frame| frame.1 != 0) {
                self.received.push((self.clock, 0, Vec::new(), false));
            }
            let frame = self.received.last_mut().unwrap();
            frame.2.extend_from_slice(&self.beat.data[..self.beat.keep.count_ones() as usize]);
            if self.beat.last {
                (frame.1, frame.3) = (self.clock, self.beat.user);
            }
        }
        self.rx.sample(&mut self.beat, self.rx_ready);
        self.clock += 1;
        Ok(beat.valid && ready)
    }

    fn send(&mut self, frame: &[u8], is_bad: bool) {
        for (number, chunk) in frame.chunks(64).enumerate() {
            let last = (number + 1) * 64 >= frame.len();
            let mut beat = Beat { keep: u64::MAX >> (64 - chunk.len()), valid: true, last, user: last && is_bad, ..Beat::default() };
            beat.data[..chunk.len()].copy_from_slice(chunk);
            while !self.tick(&beat).unwrap() {}
        }
    }

    fn idle(&mut self, clocks: u64) {
        for _ in 0..clocks {
            self.tick(&Beat::default()).unwrap();
        }
    }
}

fn frame(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

#[test]
fn frames_arrive_whole_padded_and_marked() {
    let mut bench = Bench::new(LinkConfig::default(), 1);
    let lens = [1, 59, 60, 61, 64, 65, 128, 1500, 4166];
    for (number, len) in lens.into_iter().enumerate() {
        bench.send(&frame(len, number as u8), number % 2 == 1);
    }
    bench.idle(500);
    assert_eq!(bench.received.len(), lens.len());
    for (number, len) in lens.into_iter().enumerate() {
        let mut sent = frame(len, number as u8);
        sent.resize(len.max(60), 0);
        assert_eq!(bench.received[number].2, sent, "{len} bytes");
        assert_eq!(bench.received[number].3, number % 2 == 1);
    }
    assert_eq!(bench.tx.counts().frames, bench.rx.counts().frames);
}

#[test]
fn a_frame_arrives_after_the_latency() {
    for latency in [100, 125, 500] {
        let mut bench = Bench::new(LinkConfig { latency, ..LinkConfig::default() }, 1);
        bench.send(&frame(4166, 0), false);
        bench.idle(latency + 200);
        let (first, last, ..) = bench.received[0];
        assert!((latency..latency + 2).contains(&first), "first beat at {first}, latency {latency}");
        // 66 beats at 50 bytes a clock.
        assert!((82..85).contains(&(last - first)), "{} clocks for the frame", last - first);
    }
}

#[test]
fn frames_follow_each_other_at_the_wire_s_rate() {
    for len in [60usize, 62, 90, 346, 1098, 4166] {
        let mut bench = Bench::new(LinkConfig::default(), 1);
        let count = 400_000 / len;
        for _ in 0..count {
            bench.send(&frame(len, 0), false);
        }
        bench.idle(500);
        assert_eq!(bench.received.len(), count);
        let clocks = (bench.received[count - 1].0 - bench.received[0].0) as f64;
        let expected = (count - 1) as f64 * (len + WIRE_OVERHEAD) as f64 / BYTES_PER_CLOCK as f64;
        assert!((clocks / expected - 1.0).abs() < 0.01, "{len} bytes: {clocks} clocks, expected {expected}");
    }
    // The same arithmetic as the published limit: a write of one packet of 4 KiB.
    assert_eq!(write_wire_bytes(4096, 4096, 54), (14 + 20 + 8 + 12 + 16 + 4096 + 4 + WIRE_OVERHEAD) as u64);
}

#[test]
fn a_sender_that_breaks_a_rule_is_found() {
    let full = Beat { keep: u64::MAX, valid: true, ..Beat::default() };
    let mut bench = Bench::new(LinkConfig::default(), 1);
    bench.tick(&full).unwrap();
    assert!(bench.tick(&Beat::default()).unwrap_err().contains("fell within a frame"));

    let mut bench = Bench::new(LinkConfig::default(), 1);
    assert!(bench.tick(&Beat { keep: 0xF, ..full }).unwrap_err().contains("tkeep"));
    let mut bench = Bench::new(LinkConfig::default(), 1);
    assert!(bench.tick(&Beat { keep: 0xF0F, last: true, ..full }).unwrap_err().contains("tkeep"));

    let mut bench = Bench::new(LinkConfig::default(), 1);
    while bench.tick(&full).unwrap() {}
    let mut changed = full;
    changed.data[0] ^= 1;
    assert!(bench.tick(&changed).unwrap_err().contains("changed"));

    let mut bench = Bench::new(LinkConfig::default(), 1);
    let error = (0..).find_map(|_| bench.tick(&full).err());
    assert!(error.unwrap().contains("longer than"));
}

#[test]
fn a_receiver_that_does_not_keep_up_loses_whole_frames() {
    let mut bench = Bench::new(LinkConfig::default(), 1);
    bench.rx_ready = false;
    for number in 0..40 {
        bench.send(&frame(1000, number), false);
    }
    bench.idle(100);
    bench.rx_ready = true;
    bench.idle(2000);
    let counts = bench.rx.counts();
    assert!(counts.dropped > 10, "{} dropped", counts.dropped);
    assert_eq!(counts.frames + counts.dropped, 40);
    assert!(bench.received.iter().all(|received| received.2 == frame(1000, received.2[0])));
}

#[test]
fn what_goes_wrong_goes_wrong_by_seed() {
    let config = LinkConfig { loss_ppm: 50_000, duplicate_ppm: 50_000, reorder_ppm: 50_000, corrupt_ppm: 50_000, ..LinkConfig::default() };
    let run = |seed| {
        let mut bench = Bench::new(config, seed);
        for number in 0..2000u32 {
            let mut bytes = frame(100, 0);
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            bench.send(&bytes, false);
        }
        bench.idle(1000);
        bench.received
    };
    let received = run(1);
    assert_eq!(received, run(1));
    assert_ne!(received, run(2));
    let numbers: Vec<u32> = received.iter().map(|frame| u32::from_be_bytes(frame.2[..4].try_into().unwrap())).collect();
    assert!(numbers.windows(2).any(|pair| pair[0] == pair[1]), "some came twice");
    assert!(numbers.windows(2).any(|pair| pair[0] > pair[1]), "some were overtaken");
    assert!(received.iter().any(|received| received.2[4..] != frame(100, 0)[4..]), "some were damaged");
    let lost = (0..2000).filter(|number| !numbers.contains(number)).count();
    assert!((50..200).contains(&lost), "{lost} were lost");
}
