//! Computes the invariant CRC of each frame and puts it in its place.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `beat_in` | sink | frames with room for the ICRC |
//! | `beat` | source | finished frames |
//!
//! The CRC runs over whole beats: Ethernet header and what lies behind the covered bytes are fed
//! as zeros, fields that may change on the way as ones, and the seed is added to the first four
//! bytes that count. Zeros in front leave the register at zero; those behind are undone. The
//! masks of the first two beats depend on tag and IP version alone (IBTA annex A17; Linux
//! `rxe_icrc_hdr`).
//!
//! Latency: [`Icrc::LATENCY`] clocks. Throughput: one beat a clock. A beat is taken only while the
//! FIFO behind has room for all that are under way, so a frame leaves without gaps.

use num_bigint::BigUint;
use rust_hdl::prelude::*;
use verbena_abi::wire;

use super::headers::header_bytes;
use crate::bus::{Beat, FrameBeat, StreamSink, StreamSource};
use crate::prim::{Crc512, CrcUndo, Fifo};

/// Clocks from a beat's entry to its ICRC: masking, the CRC, undoing.
const DELAY: usize = 1 + Crc512::LATENCY + CrcUndo::LATENCY;
// The kernel names the last bit of the delay line by number.
const _: () = assert!(DELAY == 7);

#[derive(LogicBlock)]
pub struct Icrc {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub beat_in: StreamSink<FrameBeat>,
    pub beat: StreamSource<Beat>,

    held: Fifo<FrameBeat, 4, 5>,
    covered: Fifo<Bits<6>, 4, 5>,
    beats: Fifo<Beat, 5, 6>,
    crc: Crc512,
    undo: CrcUndo,
    masked: DFF<Bits<512>>,
    masked_first: DFF<Bit>,
    masked_last: DFF<Bit>,
    masked_valid: DFF<Bit>,
    // One bit for each beat under way: it leaves when its bit arrives.
    tokens: DFF<Bits<DELAY>>,
    // The last stage: the value is put in place.
    value: Signal<Local, Bits<32>>,
    carry: DFF<Bits<16>>,

    entering: Signal<Local, FrameBeat>,
    take: Signal<Local, Bit>,
    keep: Signal<Local, Bits<512>>,
    ones: Signal<Local, Bits<512>>,
    seed: Signal<Local, Bits<512>>,
    leaving: Signal<Local, FrameBeat>,
    token: Signal<Local, Bit>,
    zeros: Signal<Local, Bits<6>>,
    now: Signal<Local, FrameBeat>,
    place: Signal<Local, Bits<6>>,
    wide: Signal<Local, Bits<512>>,
    by_four: Signal<Local, Bits<512>>,
    by_eight: Signal<Local, Bits<512>>,
    by_sixteen: Signal<Local, Bits<512>>,
    by_thirty_two: Signal<Local, Bits<512>>,
    high_half: Signal<Local, Bits<16>>,
    room: Constant<Bits<6>>,
    inverted: Constant<Bits<32>>,
    keep_v4: Constant<Bits<512>>,
    ones_v4: Constant<Bits<512>>,
    seed_v4: Constant<Bits<512>>,
    keep_v4_vlan: Constant<Bits<512>>,
    ones_v4_vlan: Constant<Bits<512>>,
    seed_v4_vlan: Constant<Bits<512>>,
    keep_v6: Constant<Bits<512>>,
    ones_v6: Constant<Bits<512>>,
    ones2_v6: Constant<Bits<512>>,
    keep_v6_vlan: Constant<Bits<512>>,
    ones_v6_vlan: Constant<Bits<512>>,
    ones2_v6_vlan: Constant<Bits<512>>,
    all: Constant<Bits<512>>,
}

impl Icrc {
    /// Clocks from a beat at `beat_in` to the same at `beat`.
    pub const LATENCY: usize = DELAY + 1;
}

/// The bytes of a frame's first two beats that are not fed to the CRC as they are.
struct Masks {
    keep: BigUint,
    ones: BigUint,
    seed: BigUint,
}

impl Masks {
    /// Returns the masks of both beats, 1024 bits wide.
    fn new(ipv6: bool, vlan: bool) -> Self {
        let bth = header_bytes(ipv6, vlan) - size_of::<wire::Bth>();
        let udp = bth - size_of::<wire::Udp>();
        let ip = udp - if ipv6 { size_of::<wire::Ipv6>() } else { size_of::<wire::Ipv4>() };
        let byte = |at: usize, mask: u8| BigUint::from(mask) << (8 * at);
        let mut ones = byte(udp + 6, 0xFF) | byte(udp + 7, 0xFF) | byte(bth + 4, 0xFF);
        if ipv6 {
            // Traffic class, flow label, hop limit.
            ones |= byte(ip, 0x0F) | byte(ip + 1, 0xFF) | byte(ip + 2, 0xFF) | byte(ip + 3, 0xFF) | byte(ip + 7, 0xFF);
        } else {
            // Type of service, time to live, header checksum.
            ones |= byte(ip + 1, 0xFF) | byte(ip + 8, 0xFF) | byte(ip + 10, 0xFF) | byte(ip + 11, 0xFF);
        }
        let all = (BigUint::from(1u32) << 1024u32) - 1u32;
        let ethernet = (BigUint::from(1u32) << (8 * ip)) - 1u32;
        Self { keep: all ^ ethernet, ones, seed: BigUint::from(wire::ICRC_SEED) << (8 * ip) }
    }

    fn beat(of: &BigUint, index: u32) -> Constant<Bits<512>> {
        let mask = (BigUint::from(1u32) << 512u32) - 1u32;
        Constant::new(Bits::<512>::from((of >> (512 * index)) & mask))
    }
}

impl Default for Icrc {
    fn default() -> Self {
        let (v4, v4_vlan) = (Masks::new(false, false), Masks::new(false, true));
        let (v6, v6_vlan) = (Masks::new(true, false), Masks::new(true, true));
        Self {
            clock: Default::default(),
            reset: Default::default(),
            beat_in: Default::default(),
            beat: Default::default(),
            held: Default::default(),
            covered: Default::default(),
            beats: Default::default(),
            crc: Default::default(),
            undo: Default::default(),
            masked: Default::default(),
            masked_first: Default::default(),
            masked_last: Default::default(),
            masked_valid: Default::default(),
            tokens: Default::default(),
            value: Default::default(),
            carry: Default::default(),
            entering: Default::default(),
            take: Default::default(),
            keep: Default::default(),
            ones: Default::default(),
            seed: Default::default(),
            leaving: Default::default(),
            token: Default::default(),
            zeros: Default::default(),
            now: Default::default(),
            place: Default::default(),
            wide: Default::default(),
            by_four: Default::default(),
            by_eight: Default::default(),
            by_sixteen: Default::default(),
            by_thirty_two: Default::default(),
            high_half: Default::default(),
            room: Constant::new(20u8.to_bits()),
            inverted: Constant::new(u32::MAX.to_bits()),
            keep_v4: Masks::beat(&v4.keep, 0),
            ones_v4: Masks::beat(&v4.ones, 0),
            seed_v4: Masks::beat(&v4.seed, 0),
            keep_v4_vlan: Masks::beat(&v4_vlan.keep, 0),
            ones_v4_vlan: Masks::beat(&v4_vlan.ones, 0),
            seed_v4_vlan: Masks::beat(&v4_vlan.seed, 0),
            keep_v6: Masks::beat(&v6.keep, 0),
            ones_v6: Masks::beat(&v6.ones, 0),
            ones2_v6: Masks::beat(&v6.ones, 1),
            keep_v6_vlan: Masks::beat(&v6_vlan.keep, 0),
            ones_v6_vlan: Masks::beat(&v6_vlan.ones, 0),
            ones2_v6_vlan: Masks::beat(&v6_vlan.ones, 1),
            all: Constant::new(Bits::<512>::from((BigUint::from(1u32) << 512u32) - 1u32)),
        }
    }
}

impl Logic for Icrc {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, masked, masked_first, masked_last, masked_valid, tokens);
        dff_setup!(self, clock, carry);
        clock!(self, clock, held, covered, beats, crc, undo);
        self.held.reset.next = self.reset.val();
        self.covered.reset.next = self.reset.val();
        self.beats.reset.next = self.reset.val();
        self.crc.reset.next = self.reset.val();
        StreamSource::<Beat>::link(&mut self.beat, &mut self.beats.drain);

        // Entry: the beat waits in a FIFO while its masked copy goes through the CRC.
        self.entering.next = self.beat_in.data.val();
        self.beat_in.ready.next = self.beats.level.val() <= self.room.val();
        self.take.next = self.beat_in.valid.val() & (self.beats.level.val() <= self.room.val());
        self.held.fill.valid.next = self.take.val();
        self.held.fill.data.next = self.entering.val();
        self.keep.next = self.all.val();
        self.ones.next = 0.into();
        self.seed.next = 0.into();
        if self.entering.val().first {
            if self.entering.val().ipv6 & self.entering.val().vlan {
                self.keep.next = self.keep_v6_vlan.val();
                self.ones.next = self.ones_v6_vlan.val();
                self.seed.next = self.seed_v4_vlan.val();
            } else if self.entering.val().ipv6 {
                self.keep.next = self.keep_v6.val();
                self.ones.next = self.ones_v6.val();
                self.seed.next = self.seed_v4.val();
            } else if self.entering.val().vlan {
                self.keep.next = self.keep_v4_vlan.val();
                self.ones.next = self.ones_v4_vlan.val();
                self.seed.next = self.seed_v4_vlan.val();
            } else {
                self.keep.next = self.keep_v4.val();
                self.ones.next = self.ones_v4.val();
                self.seed.next = self.seed_v4.val();
            }
        } else if self.entering.val().second & self.entering.val().ipv6 {
            self.ones.next = self.ones2_v6.val();
            if self.entering.val().vlan {
                self.ones.next = self.ones2_v6_vlan.val();
            }
        }
        self.masked.d.next = ((self.entering.val().data & self.keep.val()) | self.ones.val()) ^ self.seed.val();
        self.masked_first.d.next = self.entering.val().first;
        self.masked_last.d.next = self.entering.val().ends_icrc;
        self.masked_valid.d.next = self.take.val();
        self.crc.valid.next = self.masked_valid.q.val();
        self.crc.first.next = self.masked_first.q.val();
        self.crc.last.next = self.masked_last.q.val();
        self.crc.data.next = self.masked.q.val();

        // Zeros behind the covered bytes are undone. Their number travels beside the CRC.
        self.covered.fill.valid.next = self.take.val();
        self.covered.fill.data.next = self.entering.val().covered;
        self.covered.drain.ready.next = self.crc.out_valid.val();
        self.zeros.next = 0 - self.covered.drain.data.val();
        self.undo.state.next = self.crc.out_state.val();
        self.undo.zeros.next = self.zeros.val();

        // Exit: each beat leaves a fixed number of clocks after it came.
        self.tokens.d.next = (self.tokens.q.val() << 1) | bit_cast::<DELAY, 1>(self.take.val().into());
        self.token.next = self.tokens.q.val().get_bit(6);
        self.leaving.next = self.held.drain.data.val();
        self.held.drain.ready.next = self.token.val();
        self.value.next = self.undo.out_state.val() ^ self.inverted.val();

        self.now.next = self.leaving.val();
        self.place.next = self.now.val().covered;
        self.wide.next = bit_cast::<512, 32>(self.value.val()) << 16;
        self.by_four.next = self.wide.val();
        if self.place.val().get_bit(2) {
            self.by_four.next = self.wide.val() << 32;
        }
        self.by_eight.next = self.by_four.val();
        if self.place.val().get_bit(3) {
            self.by_eight.next = self.by_four.val() << 64;
        }
        self.by_sixteen.next = self.by_eight.val();
        if self.place.val().get_bit(4) {
            self.by_sixteen.next = self.by_eight.val() << 128;
        }
        self.by_thirty_two.next = self.by_sixteen.val();
        if self.place.val().get_bit(5) {
            self.by_thirty_two.next = self.by_sixteen.val() << 256;
        }
        self.high_half.next = self.value.val().get_bits::<16>(16);
        self.beats.fill.valid.next = self.token.val();
        self.beats.fill.data.next.data = self.now.val().data;
        self.beats.fill.data.next.bytes = self.now.val().bytes;
        self.beats.fill.data.next.last = self.now.val().last;
        if self.now.val().ends_icrc {
            self.beats.fill.data.next.data = self.now.val().data | self.by_thirty_two.val();
            // Between two beats of a frame there may be one that does not leave yet.
            if self.token.val() {
                self.carry.d.next = self.high_half.val();
            }
        } else if self.now.val().last {
            // Only half of the ICRC had room in the beat before.
            self.beats.fill.data.next.data = bit_cast::<512, 16>(self.carry.q.val());
        }

        if self.reset.val() {
            self.masked_valid.d.next = false;
            self.tokens.d.next = 0.into();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::prim::{crc32_step, pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    pub(in crate::tx) const LAYOUTS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

    /// Returns the ICRC of a frame without it, over a masked copy of all that it covers.
    pub(in crate::tx) fn icrc(frame: &[u8], ipv6: bool, vlan: bool) -> [u8; 4] {
        let ip = if vlan { 18 } else { 14 };
        let udp = ip + if ipv6 { 40 } else { 20 };
        let mut copy = frame.to_vec();
        if ipv6 {
            copy[ip] |= 0x0F;
            [1, 2, 3, 7].into_iter().for_each(|at| copy[ip + at] = 0xFF);
        } else {
            [1, 8, 10, 11].into_iter().for_each(|at| copy[ip + at] = 0xFF);
        }
        [udp + 6, udp + 7, udp + 12].into_iter().for_each(|at| copy[at] = 0xFF);
        (!crc32_step(wire::ICRC_SEED, &copy[ip..])).to_le_bytes()
    }

    /// Returns the beats that the merger gives for a frame without ICRC.
    pub(in crate::tx) fn frame_beats(frame: &[u8], ipv6: bool, vlan: bool) -> Vec<FrameBeat> {
        let len = frame.len() + 4;
        (0..len.div_ceil(64))
            .map(|i| FrameBeat {
                data: pack(&frame[(64 * i).min(frame.len())..(64 * i + 64).min(frame.len())]),
                bytes: ((len - 64 * i).min(64) as u64).into(),
                last: 64 * i + 64 >= len,
                first: i == 0,
                second: i == 1,
                ends_icrc: 64 * i < frame.len() && frame.len() <= 64 * i + 64,
                covered: ((frame.len() + 64 - 64 * i) as u64 % 64).into(),
                ipv6,
                vlan,
            })
            .collect()
    }

    /// Joins beats to frames.
    pub(in crate::tx) fn frames(beats: &[Beat]) -> Vec<Vec<u8>> {
        let mut frames = vec![vec![]];
        for beat in beats {
            let (bytes, len) = (unpack(beat.data), beat.bytes.to_u64() as usize);
            assert!(bytes[len..].iter().all(|byte| *byte == 0), "bytes behind the frame are zero");
            frames.last_mut().unwrap().extend(&bytes[..len]);
            if beat.last {
                frames.push(vec![]);
            }
        }
        assert_eq!(frames.pop(), Some(vec![]), "the last frame is whole");
        frames
    }

    /// Frames of random bytes of all layouts, with each fill of the last beat in their second or third beat.
    fn random_frames(seed: u64, step: usize) -> Vec<(Vec<u8>, bool, bool)> {
        let mut random = Stalls::new(seed);
        let mut frames = vec![];
        for (ipv6, vlan) in LAYOUTS {
            for words in 0..34 {
                // Those whose ICRC lies across the end of a beat are always among them.
                let len = header_bytes(ipv6, vlan) + 4 * words;
                if words % step != 0 && len % 64 != 62 {
                    continue;
                }
                frames.push(((0..len).map(|_| random.random() as u8).collect(), ipv6, vlan));
            }
        }
        frames
    }

    /// Sends frames, until all are out or for `limit` clocks; returns what came, and the clocks from the first beat in to the first and last out.
    fn run(bench: &mut Bench<Icrc>, beats: &[FrameBeat], stalls: [Stalls; 2], limit: usize) -> (Vec<Beat>, u64, u64) {
        let [fill, drain] = stalls;
        let mut driver = Driver::new(beats.iter().copied(), fill);
        let mut monitor = Monitor::new(drain);
        let (mut start, mut first) = (None, None);
        for clock in 0..limit {
            driver.before(&mut bench.uut.beat_in);
            monitor.before(&mut bench.uut.beat);
            bench.settle();
            driver.after(&bench.uut.beat_in);
            monitor.after(&bench.uut.beat);
            start = start.or((driver.queue.len() < beats.len()).then_some(clock));
            first = first.or(bench.uut.beat.valid.val().then_some(clock));
            bench.edge();
            if monitor.got.len() == beats.len() {
                let start = start.unwrap();
                return (monitor.got, (first.unwrap() - start) as u64, (clock - start) as u64);
            }
        }
        bench.uut.beat_in.valid.next = false;
        (monitor.got, 0, 0)
    }

    fn reset(bench: &mut Bench<Icrc>) {
        bench.uut.beat_in.valid.next = false;
        bench.uut.beat.ready.next = false;
        bench.uut.reset.next = true;
        bench.cycles(10);
        bench.uut.reset.next = false;
    }

    fn check(got: &[Beat], sent: &[(Vec<u8>, bool, bool)]) {
        let got = frames(got);
        assert_eq!(got.len(), sent.len());
        for (got, (frame, ipv6, vlan)) in got.iter().zip(sent) {
            let what = format!("IPv6 {ipv6}, tag {vlan}, {} bytes", frame.len());
            assert!(got[..frame.len()] == *frame, "{what}: the frame itself has changed");
            assert_eq!(got[frame.len()..], icrc(frame, *ipv6, *vlan), "{what}");
        }
    }

    #[test]
    fn every_layout_and_every_fill_of_the_last_beat_has_the_icrc_of_a_masked_copy_at_a_beat_a_clock() {
        let mut bench = Bench::new("tx_icrc", Icrc::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        let sent = random_frames(1, 1);
        let beats: Vec<_> = sent.iter().flat_map(|(frame, ipv6, vlan)| frame_beats(frame, *ipv6, *vlan)).collect();
        // The last beat with nothing but half an ICRC is among them, for each layout.
        assert_eq!(
            beats.iter().filter(|beat| beat.last && beat.bytes == 2u64).map(|beat| (beat.ipv6, beat.vlan)).fold(vec![], |mut all, one| {
                if !all.contains(&one) {
                    all.push(one);
                }
                all
            }),
            LAYOUTS
        );
        let (got, first, last) = run(&mut bench, &beats, [Stalls::none(), Stalls::none()], 5000);
        check(&got, &sent);
        assert_eq!(first, Icrc::LATENCY as u64);
        assert_eq!(last, (Icrc::LATENCY + beats.len() - 1) as u64);
        bench.finish();
    }

    #[test]
    fn frames_pass_under_random_stalls_and_after_a_reset_in_the_middle_of_one() {
        let mut bench = Bench::new("tx_icrc_stalls", Icrc::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for seed in 1..4 {
            let sent = random_frames(seed, 5);
            let beats: Vec<_> = sent.iter().flat_map(|(frame, ipv6, vlan)| frame_beats(frame, *ipv6, *vlan)).collect();
            run(&mut bench, &beats, [Stalls::new(seed + 10), Stalls::new(seed + 20)], 55 + seed as usize);
            reset(&mut bench);
            let (got, ..) = run(&mut bench, &beats, [Stalls::new(seed + 30), Stalls::new(seed + 40)], 5000);
            check(&got, &sent);
        }
        // With the exit shut, what was taken fits the FIFO behind, and comes out whole.
        let sent = random_frames(9, 4);
        let beats: Vec<_> = sent.iter().flat_map(|(frame, ipv6, vlan)| frame_beats(frame, *ipv6, *vlan)).collect();
        let mut driver = Driver::new(beats.iter().copied(), Stalls::none());
        let mut monitor = Monitor::new(Stalls::none());
        for clock in 0.. {
            driver.before(&mut bench.uut.beat_in);
            monitor.before(&mut bench.uut.beat);
            if clock < 60 {
                bench.uut.beat.ready.next = false;
            }
            bench.settle();
            driver.after(&bench.uut.beat_in);
            monitor.after(&bench.uut.beat);
            bench.edge();
            if clock == 59 {
                assert!(!bench.uut.beat_in.ready.val());
                let taken = (beats.len() - driver.queue.len()) as u64;
                assert_eq!(bench.uut.beats.level.val(), taken);
            }
            if monitor.got.len() == beats.len() {
                break;
            }
            assert!(clock < 1000, "a frame hangs");
        }
        check(&monitor.got, &sent);
        bench.finish();
    }
}
