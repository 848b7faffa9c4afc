//! Turns writes to the doorbell pages into bells for the scheduler and for the CQ writer.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `write` | sink | one BAR0 write at or above [`DOORBELL_BASE`](verbena_abi::regs::DOORBELL_BASE) |
//! | `sq_bell` | source | QP and its new producer index |
//! | `cq_bell` | source | CQ and a new consumer index, an arm, or a moderation; of all CQs in the order of the writes |
//! | `bad_doorbell` | out | one clock for every write to a page or a word that does not exist |
//!
//! Latency: one clock from an accepted write to `valid`. Throughput: one doorbell every clock.
//! Each source has a FIFO of 32 bells in front of it. When either holds 30 the BAR write waits; both
//! consumers take a bell every few clocks, so the wait is bounded. The receive queue's word is
//! accepted and ignored, as the ABI says. Whether a queue exists is not known here: the consumers see to that.

use rust_hdl::prelude::*;
use verbena_abi::limits::{LOG_CQS, LOG_QPS};
use verbena_abi::regs::{Doorbell as Word, BAR0_ADDR_BITS};

use crate::bus::{BarOffset, BarWrite, CqBell, SqBell, StreamSink, StreamSource};
use crate::prim::Fifo;

/// Bits of the number of a 4 KiB page of BAR0.
const PAGE_BITS: usize = BAR0_ADDR_BITS - 12;

/// Decoder of doorbell pages.
#[derive(LogicBlock)]
pub struct Doorbell {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub write: StreamSink<BarWrite>,
    pub sq_bell: StreamSource<SqBell>,
    pub cq_bell: StreamSource<CqBell>,
    pub bad_doorbell: Signal<Out, Bit>,

    sq: Fifo<SqBell, 5, 6>,
    cq: Fifo<CqBell, 5, 6>,
    is_bad: DFF<Bit>,
    is_open: DFF<Bit>,
    offset: Signal<Local, BarOffset>,
    value: Signal<Local, Bits<32>>,
    number: Signal<Local, Bits<PAGE_BITS>>,
    word: Signal<Local, Bits<12>>,
    kind: Signal<Local, Bits<2>>,
    take: Signal<Local, Bit>,
    is_sq_page: Signal<Local, Bit>,
    is_cq_page: Signal<Local, Bit>,
    is_arm: Signal<Local, Bit>,
    is_moderation: Signal<Local, Bit>,
    first_page: Constant<Bits<PAGE_BITS>>,
    sq_pages: Constant<Bits<PAGE_BITS>>,
    cq_pages: Constant<Bits<PAGE_BITS>>,
    sq_word: Constant<Bits<12>>,
    rq_word: Constant<Bits<12>>,
    consumer_word: Constant<Bits<12>>,
    arm_word: Constant<Bits<12>>,
    moderation_word: Constant<Bits<12>>,
    kinds: Constant<Bits<2>>,
    room: Constant<Bits<6>>,
}

impl Default for Doorbell {
    fn default() -> Self {
        use verbena_abi::{limits, regs};
        Self {
            clock: Default::default(),
            reset: Default::default(),
            write: Default::default(),
            sq_bell: Default::default(),
            cq_bell: Default::default(),
            bad_doorbell: Default::default(),
            sq: Default::default(),
            cq: Default::default(),
            is_bad: Default::default(),
            is_open: Default::default(),
            offset: Default::default(),
            value: Default::default(),
            number: Default::default(),
            word: Default::default(),
            kind: Default::default(),
            take: Default::default(),
            is_sq_page: Default::default(),
            is_cq_page: Default::default(),
            is_arm: Default::default(),
            is_moderation: Default::default(),
            first_page: Constant::new((regs::DOORBELL_BASE / regs::DOORBELL_PAGE).to_bits()),
            sq_pages: Constant::new(limits::QPS.to_bits()),
            cq_pages: Constant::new(limits::CQS.to_bits()),
            sq_word: Constant::new((Word::Sq as u32).to_bits()),
            rq_word: Constant::new((Word::Rq as u32).to_bits()),
            consumer_word: Constant::new((Word::CqConsumer as u32).to_bits()),
            arm_word: Constant::new((Word::CqArm as u32).to_bits()),
            moderation_word: Constant::new((Word::CqModeration as u32).to_bits()),
            kinds: Constant::new((regs::ArmKind::Solicited as u32).to_bits()),
            room: Constant::new(30u8.to_bits()),
        }
    }
}

impl Logic for Doorbell {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_bad, is_open);
        clock!(self, clock, sq, cq);
        self.sq.reset.next = self.reset.val();
        self.cq.reset.next = self.reset.val();
        self.bad_doorbell.next = self.is_bad.q.val();

        self.offset.next = self.write.data.val().offset;
        self.value.next = self.write.data.val().value;
        self.number.next = self.offset.val().get_bits::<PAGE_BITS>(12) - self.first_page.val();
        self.word.next = self.offset.val().get_bits::<12>(0);
        self.kind.next = self.value.val().get_bits::<2>(24);
        // A page below the first wraps to a number beyond the last.
        self.is_sq_page.next = self.number.val() < self.sq_pages.val();
        self.is_cq_page.next = self.number.val() < self.cq_pages.val();
        self.is_arm.next = self.word.val() == self.arm_word.val();
        self.is_moderation.next = self.word.val() == self.moderation_word.val();

        // One clock old, so two places are kept free: one for this clock's bell, one for the next.
        self.is_open.d.next = (self.sq.level.val() < self.room.val()) & (self.cq.level.val() < self.room.val());
        self.write.ready.next = self.is_open.q.val();
        self.take.next = self.write.valid.val() & self.is_open.q.val();

        self.sq.fill.valid.next = false;
        self.sq.fill.data.next.qpn = bit_cast::<LOG_QPS, PAGE_BITS>(self.number.val());
        self.sq.fill.data.next.index = bit_cast::<16, 32>(self.value.val());
        self.cq.fill.valid.next = false;
        self.cq.fill.data.next.cqn = bit_cast::<LOG_CQS, PAGE_BITS>(self.number.val());
        self.cq.fill.data.next.index = bit_cast::<24, 32>(self.value.val());
        self.cq.fill.data.next.kind = 0.into();
        self.cq.fill.data.next.is_arm = self.is_arm.val();
        self.cq.fill.data.next.is_moderation = self.is_moderation.val();
        self.cq.fill.data.next.count = self.value.val().get_bits::<16>(16);
        if self.is_arm.val() {
            self.cq.fill.data.next.kind = self.kind.val();
        }

        self.is_bad.d.next = false;
        if self.take.val() {
            if self.is_sq_page.val() & (self.word.val() == self.sq_word.val()) {
                self.sq.fill.valid.next = true;
            } else if self.is_cq_page.val()
                & ((self.word.val() == self.consumer_word.val())
                    | self.is_moderation.val()
                    | (self.is_arm.val() & (self.kind.val() <= self.kinds.val())))
            {
                self.cq.fill.valid.next = true;
            } else if !self.is_sq_page.val() | (self.word.val() != self.rq_word.val()) {
                self.is_bad.d.next = true;
            }
        }

        self.sq_bell.data.next = self.sq.drain.data.val();
        self.sq_bell.valid.next = self.sq.drain.valid.val();
        self.sq.drain.ready.next = self.sq_bell.ready.val();
        self.cq_bell.data.next = self.cq.drain.data.val();
        self.cq_bell.valid.next = self.cq.drain.valid.val();
        self.cq.drain.ready.next = self.cq_bell.ready.val();

        if self.reset.val() {
            self.is_open.d.next = false;
            self.is_bad.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use verbena_abi::limits;
    use verbena_abi::regs::{ArmKind, Moderation, DOORBELL_BASE, DOORBELL_PAGES};

    fn write(offset: u32, value: u32) -> BarWrite {
        BarWrite { offset: u64::from(offset).into(), value: u64::from(value).into() }
    }

    struct Run {
        bench: Bench<Doorbell>,
        driver: Driver<BarWrite>,
        sq: Monitor<SqBell>,
        cq: Monitor<CqBell>,
        bad: usize,
    }

    impl Run {
        fn new(name: &str, writes: Vec<BarWrite>, stalled: bool) -> Self {
            let stalls = |seed| if stalled { Stalls::new(seed) } else { Stalls::none() };
            Self {
                bench: Bench::new(name, Doorbell::default(), |uut| &mut uut.clock),
                driver: Driver::new(writes, stalls(11)),
                sq: Monitor::new(stalls(12)),
                cq: Monitor::new(stalls(13)),
                bad: 0,
            }
        }

        fn step(&mut self) {
            self.driver.before(&mut self.bench.uut.write);
            self.sq.before(&mut self.bench.uut.sq_bell);
            self.cq.before(&mut self.bench.uut.cq_bell);
            self.bench.settle();
            self.driver.after(&self.bench.uut.write);
            self.sq.after(&self.bench.uut.sq_bell);
            self.cq.after(&self.bench.uut.cq_bell);
            self.bad += usize::from(self.bench.uut.bad_doorbell.val());
            self.bench.edge();
        }

        fn drain(&mut self) {
            while !self.driver.is_done() || self.bench.uut.sq_bell.valid.val() || self.bench.uut.cq_bell.valid.val() {
                self.step();
                assert!(self.bench.clock_count() < 10_000, "a doorbell hangs");
            }
            self.step();
            self.step();
        }
    }

    #[test]
    fn bells_come_out_in_order_and_unknown_words_are_counted() {
        let mut random = Stalls::new(5);
        let (mut sq, mut cq, mut bad, mut writes) = (vec![], vec![], 0, vec![]);
        for _ in 0..500 {
            let (number, value) = ((random.random() % 256) as u32, random.random() as u32);
            match random.random() % 9 {
                0 | 1 => {
                    writes.push(write(Word::Sq.offset(number), value));
                    sq.push((u64::from(number), u64::from(value & 0xFFFF)));
                }
                2 => {
                    writes.push(write(Word::CqConsumer.offset(number), value));
                    cq.push((u64::from(number), u64::from(value & 0xFF_FFFF), 0, false, None));
                }
                3 => {
                    let kind = [ArmKind::Errors, ArmKind::Any, ArmKind::Solicited][value as usize % 3];
                    writes.push(write(Word::CqArm.offset(number), kind.word(value)));
                    cq.push((u64::from(number), u64::from(value & 0xFF_FFFF), kind as u64, true, None));
                }
                4 => writes.push(write(Word::Rq.offset(number), value)),
                5 => {
                    writes.push(write(Word::CqArm.offset(number), 3 << 24));
                    bad += 1;
                }
                6 => {
                    writes.push(write(DOORBELL_BASE + number * 4096 + 20 + (value & 0x7F0), value));
                    bad += 1;
                }
                7 => {
                    let (interval_us, count) = (value as u16, (value >> 16) as u16);
                    writes.push(write(Word::CqModeration.offset(number), Moderation { interval_us, count }.word()));
                    cq.push((u64::from(number), u64::from(interval_us), 0, false, Some(u64::from(count))));
                }
                _ => {
                    writes.push(write(Word::Sq.offset(DOORBELL_PAGES as u32 + number), value));
                    bad += 1;
                }
            }
        }
        let mut run = Run::new("doorbell", writes, true);
        run.drain();
        assert_eq!(run.sq.got.iter().map(|bell| (bell.qpn.to_u64(), bell.index.to_u64())).collect::<Vec<_>>(), sq);
        let got = run.cq.got.iter().map(|bell| {
            let count = bell.is_moderation.then(|| bell.count.to_u64());
            let index = bell.index.to_u64() & if bell.is_moderation { 0xFFFF } else { 0xFF_FFFF };
            (bell.cqn.to_u64(), index, bell.kind.to_u64(), bell.is_arm, count)
        });
        assert_eq!(got.collect::<Vec<_>>(), cq);
        assert_eq!(run.bad, bad);
        run.bench.finish();
    }

    #[test]
    fn the_first_and_the_last_page_exist_and_their_neighbours_do_not() {
        let (last, last_cq) = (limits::QPS as u32 - 1, limits::CQS as u32 - 1);
        let writes = vec![
            write(DOORBELL_BASE - 4096, 1),
            write(Word::Sq.offset(0), 2),
            write(Word::Sq.offset(last), 3),
            write(Word::Sq.offset(last + 1), 4),
            write((1 << BAR0_ADDR_BITS) - 4096, 5),
            write(Word::CqConsumer.offset(last_cq), 6),
            write(Word::CqConsumer.offset(last_cq + 1), 7),
        ];
        let mut run = Run::new("doorbell_pages", writes, false);
        run.drain();
        assert_eq!(run.sq.got.iter().map(|bell| bell.index.to_u64()).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(run.cq.got.iter().map(|bell| bell.index.to_u64()).collect::<Vec<_>>(), [6]);
        assert_eq!(run.bad, 4);
        run.bench.finish();
    }

    #[test]
    fn a_doorbell_passes_every_clock_a_full_fifo_waits_and_a_reset_empties_it() {
        let writes = (0..40u32).map(|i| write(Word::Sq.offset(i), i)).collect();
        let mut run = Run::new("doorbell_rate", writes, false);
        while run.sq.got.len() < 40 {
            run.step();
        }
        assert_eq!(run.bench.clock_count(), 42);
        run.bench.uut.sq_bell.ready.next = false;
        run.bench.uut.write.valid.next = true;
        run.bench.uut.write.data.next = write(Word::Sq.offset(7), 7);
        run.bench.cycles(32);
        assert!(!run.bench.uut.write.ready.val());
        run.bench.uut.write.valid.next = false;
        run.bench.uut.reset.next = true;
        run.bench.cycles(1);
        run.bench.uut.reset.next = false;
        run.bench.cycles(2);
        assert!(run.bench.uut.write.ready.val() && !run.bench.uut.sq_bell.valid.val());
        run.bench.finish();
    }
}
