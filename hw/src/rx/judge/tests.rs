//! Verdicts of frames of which everything is random.

use super::*;
use crate::prim::pack;
use crate::rx::frames::report;
use crate::testing::{Bench, Stalls};

/// All inputs of one clock, and whether the block was in reset.
#[derive(Clone, Copy)]
struct Inputs {
    valid: bool,
    last: bool,
    bad: bool,
    fields: RxFields,
    checks: RxChecks,
    icrc_ok: bool,
    overflow: bool,
    reset: bool,
}

fn bit(random: &mut Stalls) -> bool {
    random.random() % 2 == 0
}

fn bits<const N: usize>(random: &mut Stalls) -> Bits<N> {
    let bytes: [u8; 8] = core::array::from_fn(|_| random.random() as u8);
    (u64::from_le_bytes(bytes) & (u64::MAX >> (64 - N))).to_bits()
}

fn fields(random: &mut Stalls) -> RxFields {
    RxFields {
        opcode: bits(random),
        se: bit(random),
        migreq: bit(random),
        pad: bits(random),
        tver: bits(random),
        pkey: bits(random),
        fecn: bit(random),
        becn: bit(random),
        dqpn: bits(random),
        ackreq: bit(random),
        psn: bits(random),
        has_reth: bit(random),
        va: bits(random),
        rkey: bits(random),
        dma_len: bits(random),
        has_aeth: bit(random),
        syndrome: bits(random),
        msn: bits(random),
        has_imm: bit(random),
        imm: bits(random),
        ipv6: bit(random),
        vlan: bit(random),
        sport: bits(random),
        source_ip: pack(&core::array::from_fn::<u8, 16, _>(|_| random.random() as u8)),
    }
}

fn checks(random: &mut Stalls) -> RxChecks {
    RxChecks {
        is_roce: bit(random),
        is_ours: random.random() % 8 != 0,
        is_malformed: random.random() % 6 == 0,
        is_unsupported: random.random() % 4 == 0,
        has_extension: bit(random),
        payload_len: bits(random),
        offset: bits(random),
        skip: bit(random),
        needed: bits(random),
        frame_len: bits(random),
    }
}

/// The verdict, by the order of the page.
fn verdict(bad: bool, checks: &RxChecks, icrc_ok: bool) -> RxVerdict {
    let faults = [
        (bad, RxVerdict::BadFrame),
        (!checks.is_ours, RxVerdict::NotOurs),
        (checks.is_malformed, RxVerdict::Malformed),
        (checks.is_unsupported, RxVerdict::Unsupported),
        (!icrc_ok, RxVerdict::BadIcrc),
    ];
    faults.into_iter().find(|(is_so, _)| *is_so).map_or(RxVerdict::Accepted, |(_, verdict)| verdict)
}

fn head(fields: &RxFields, checks: &RxChecks) -> RxHead {
    RxHead {
        opcode: fields.opcode,
        solicited: fields.se,
        ack_req: fields.ackreq,
        pad: fields.pad,
        qpn: fields.dqpn,
        psn: fields.psn,
        va: fields.va,
        rkey: fields.rkey,
        dma_len: fields.dma_len,
        syndrome: fields.syndrome,
        msn: fields.msn,
        imm: fields.imm,
        len: (checks.payload_len.index() % 8192).to_bits(),
        offset: checks.offset,
        ipv6: fields.ipv6,
        source_ip: fields.source_ip,
    }
}

struct Case {
    bench: Bench<RxJudge>,
    random: Stalls,
    /// All clocks so far.
    past: Vec<Inputs>,
    /// Reports by verdict.
    verdicts: [usize; 8],
}

impl Case {
    fn new(name: &str) -> Self {
        let bench = Bench::new(name, RxJudge::default(), |uut| &mut uut.clock);
        Self { bench, random: Stalls::new(601), past: vec![], verdicts: [0; 8] }
    }

    /// The beat that came `ago` clocks before this one, if there was one and no reset has forgotten it.
    fn beat(&self, ago: usize) -> Option<Inputs> {
        let since = &self.past[self.past.len().checked_sub(ago)?..];
        let is_kept = since[0].valid && since.iter().all(|inputs| !inputs.reset);
        is_kept.then_some(since[0])
    }

    /// One clock, with a beat or without.
    fn clock(&mut self, valid: bool, last: bool, reset: bool) {
        let now = self.past.len();
        // The buffer speaks only of a frame that it was told to keep.
        let was_kept = self.beat(LATENCY + 1).is_some_and(|beat| {
            let known = &self.past[now - 2];
            beat.last && verdict(beat.bad, &known.checks, known.icrc_ok) == RxVerdict::Accepted
        });
        let random = &mut self.random;
        let inputs = Inputs {
            valid,
            last,
            bad: random.random() % 8 == 0,
            fields: fields(random),
            checks: checks(random),
            icrc_ok: random.random() % 4 != 0,
            overflow: was_kept && random.random() % 3 == 0,
            reset,
        };
        let uut = &mut self.bench.uut;
        uut.valid.next = inputs.valid;
        uut.last.next = inputs.last;
        uut.bad.next = inputs.bad;
        uut.fields.next = inputs.fields;
        uut.checks.next = inputs.checks;
        uut.icrc_ok.next = inputs.icrc_ok;
        uut.overflow.next = inputs.overflow;
        uut.reset.next = inputs.reset;
        self.bench.settle();

        let uut = &self.bench.uut;
        let beat = self.beat(LATENCY);
        assert_eq!(uut.beat_valid.val(), beat.is_some(), "clock {now}");
        if let Some(beat) = beat {
            assert_eq!(uut.beat_last.val(), beat.last, "clock {now}");
            if beat.last {
                let known = &self.past[now - 1];
                assert_eq!(uut.accept.val(), verdict(beat.bad, &known.checks, known.icrc_ok) == RxVerdict::Accepted, "clock {now}");
                assert_eq!((uut.skip.val(), uut.needed.val()), (known.checks.skip, known.checks.needed));
                assert_eq!(uut.head.val(), head(&known.fields, &known.checks));
            }
        }
        let ended = self.beat(LATENCY + 2).filter(|beat| beat.last);
        assert_eq!(uut.report_valid.val(), ended.is_some(), "clock {now}");
        if let Some(beat) = ended {
            let known = &self.past[now - 3];
            let mut verdict = verdict(beat.bad, &known.checks, known.icrc_ok);
            if self.past[now - 1].overflow {
                verdict = RxVerdict::Overflow;
            }
            assert_eq!(uut.report.val(), report(verdict, &known.fields, &known.checks, known.icrc_ok), "clock {now}");
            self.verdicts[verdict as usize] += 1;
        }
        self.past.push(inputs);
        self.bench.edge();
    }

    fn clocks(&mut self, count: usize) {
        for _ in 0..count {
            self.clock(false, true, false);
        }
    }
}

#[test]
fn a_frame_gets_the_first_of_its_faults_as_verdict_whatever_the_pauses() {
    let mut case = Case::new("rx_judge");
    let mut pace = Stalls::new(602);
    for _ in 0..900 {
        let (valid, last) = (pace.go(), case.random.random() % 3 == 0);
        case.clock(valid, last, false);
    }
    case.clocks(12);
    println!("{:?}", case.verdicts);
    assert!(case.verdicts[..7].iter().all(|count| *count >= 8), "{:?}", case.verdicts);
    case.bench.finish();
}

#[test]
fn a_frame_every_clock_is_reported_every_clock() {
    let mut case = Case::new("rx_judge_rate");
    for _ in 0..80 {
        case.clock(true, true, false);
    }
    case.clocks(LATENCY + 2);
    assert_eq!(case.verdicts.iter().sum::<usize>(), 80);
    case.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_all_that_is_under_way() {
    let mut case = Case::new("rx_judge_reset");
    for before in 0..15 {
        for _ in 0..before {
            case.clock(true, true, false);
        }
        case.clocks(before % 4);
        case.clock(true, true, true);
        for _ in 0..before {
            case.clock(true, before % 3 == 0, false);
        }
        case.clocks(13);
    }
    case.bench.finish();
}
