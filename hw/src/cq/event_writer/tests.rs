//! A driver that reads the event queue, and sources that do not wait.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::testing::{Bench, Monitor, Stalls};
use verbena_abi::arith::Ring;

struct Run {
    bench: Bench<EventWriter>,
    /// What the four sources still have to say.
    sources: [VecDeque<EventReq>; 4],
    stalls: [Stalls; 4],
    reqs: Monitor<WriteReq>,
    lines: Monitor<Line>,
    irqs: Monitor<Bits<5>>,
    taken: usize,
    under_way: VecDeque<u64>,
    latency: u64,
    /// Address and bytes of the entries, in order.
    entries: Vec<(u64, [u8; 32])>,
    visible: usize,
    /// Entries visible when an interrupt was taken.
    visible_at_irq: usize,
    written: usize,
    lost: usize,
    /// The shell takes no interrupts.
    holds_irq: bool,
}

fn event(kind: EventKind, number: u64, code: u64) -> EventReq {
    EventReq { number: number.into(), kind: (kind as u64).into(), code: code.into() }
}

fn bytes(event: &EventReq, phase: bool) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&(event.number.to_u64() as u16).to_le_bytes());
    bytes[4] = event.kind.to_u64() as u8;
    bytes[5] = event.code.to_u64() as u8;
    bytes[31] = u8::from(phase);
    bytes
}

impl Run {
    fn new(name: &str, stalled: bool) -> Self {
        let stalls = |seed| if stalled { Stalls::new(seed) } else { Stalls::none() };
        let mut run = Self {
            bench: Bench::new(name, EventWriter::default(), |uut| &mut uut.clock),
            sources: Default::default(),
            stalls: [stalls(61), stalls(62), stalls(63), stalls(64)],
            reqs: Monitor::new(stalls(65)),
            lines: Monitor::new(stalls(66)),
            irqs: Monitor::new(stalls(67)),
            taken: 0,
            under_way: VecDeque::new(),
            latency: 10,
            entries: vec![],
            visible: 0,
            visible_at_irq: 0,
            written: 0,
            lost: 0,
            holds_irq: false,
        };
        run.steps(255);
        assert!(!run.bench.uut.ready.val());
        run.steps(2);
        assert!(run.bench.uut.ready.val());
        run
    }

    fn configure(&mut self, base: u64, log_depth: u64, vector: u64, enable: bool) {
        let uut = &mut self.bench.uut;
        uut.eq_base.next = base.into();
        uut.eq_log_depth.next = log_depth.into();
        uut.eq_vector.next = vector.into();
        uut.eq_enable.next = enable;
        uut.eq_consumer.next = 0u64.into();
        uut.eq_restart.next = true;
        self.step();
        self.bench.uut.eq_restart.next = false;
    }

    fn step(&mut self) {
        let now = self.bench.clock_count();
        let is_done = self.under_way.front().is_some_and(|at| *at <= now);
        if is_done {
            self.under_way.pop_front();
            self.visible += 1;
        }
        let uut = &mut self.bench.uut;
        uut.done.next = is_done;
        let ports = [&mut uut.command, &mut uut.cq, &mut uut.responder, &mut uut.requester];
        for ((port, source), stalls) in ports.into_iter().zip(&mut self.sources).zip(&mut self.stalls) {
            port.valid.next = !source.is_empty() && stalls.go();
            if let Some(event) = source.front() {
                port.data.next = *event;
            }
        }
        self.reqs.before(&mut uut.req);
        self.lines.before(&mut uut.line);
        self.irqs.before(&mut uut.irq);
        if self.holds_irq {
            uut.irq.ready.next = false;
        }
        self.bench.settle();
        let uut = &self.bench.uut;
        for (port, source) in [&uut.command, &uut.cq, &uut.responder, &uut.requester].into_iter().zip(&mut self.sources) {
            assert!(port.ready.val(), "a source is blocked");
            if port.valid.val() {
                source.pop_front();
            }
        }
        self.reqs.after(&uut.req);
        self.lines.after(&uut.line);
        let irqs = self.irqs.got.len();
        self.irqs.after(&uut.irq);
        if self.irqs.got.len() > irqs {
            self.visible_at_irq = self.visible;
        }
        self.written += usize::from(uut.count_eqe.val());
        self.lost += usize::from(uut.count_overrun.val());
        while self.taken < self.reqs.got.len().min(self.lines.got.len()) {
            let (req, line) = (self.reqs.got[self.taken], self.lines.got[self.taken]);
            self.taken += 1;
            assert!(req.len == 32u64 && line.last);
            let shift = (req.addr.to_u64() & 32) as usize;
            let bytes = std::array::from_fn(|byte| line.data.get_bits::<8>(8 * (byte + shift)).to_u64() as u8);
            self.entries.push((req.addr.to_u64(), bytes));
            self.under_way.push_back(now + self.latency);
        }
        self.bench.edge();
    }

    fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.step();
        }
    }

    fn drain(&mut self) {
        let mut quiet = 0;
        let limit = self.bench.clock_count() + 10_000;
        while quiet < 30 {
            self.step();
            let uut = &self.bench.uut;
            let is_offered = uut.req.valid.val() || uut.line.valid.val() || uut.irq.valid.val();
            let is_quiet = self.sources.iter().all(VecDeque::is_empty) && self.under_way.is_empty() && !is_offered;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            assert!(self.bench.clock_count() < limit, "the event writer hangs");
        }
    }

    fn consume(&mut self) {
        self.bench.uut.eq_consumer.next = (self.entries.len() as u64).into();
    }
}

#[test]
fn events_of_all_sources_lie_in_the_ring_in_the_order_of_their_source() {
    let mut run = Run::new("events", true);
    run.configure(0x7_0000_0FC0, 3, 0xE5, true);
    let kinds = [EventKind::Command, EventKind::CqOverrun, EventKind::QpAccess, EventKind::QpFatal];
    for (source, kind) in kinds.into_iter().enumerate() {
        run.sources[source].extend((0..30).map(|i| event(kind, 1000 * source as u64 + i, i)));
    }
    let mut clocks = 0;
    while run.entries.len() < 120 || run.visible < 120 {
        run.step();
        if run.random_go() {
            run.bench.uut.eq_consumer.next = (run.visible as u64).into();
        }
        clocks += 1;
        assert!(clocks < 8_000, "the event writer hangs");
    }
    run.drain();
    let ring = Ring::new(3);
    let mut next = [0u64; 4];
    for (index, (address, got)) in run.entries.iter().enumerate() {
        assert_eq!(*address, 0x7_0000_0FC0 + 32 * u64::from(ring.slot(index as u32)));
        let number = u64::from(got[0]) | u64::from(got[1]) << 8;
        let source = (number / 1000) as usize;
        assert_eq!(number % 1000, next[source]);
        assert_eq!(*got, bytes(&event(kinds[source], number, next[source]), ring.phase(index as u32)));
        next[source] += 1;
    }
    assert_eq!(next, [30; 4]);
    assert_eq!((run.written, run.lost), (120, 0));
    assert!(run.irqs.got.iter().all(|vector| *vector == 5u64));
    assert_eq!(run.visible_at_irq, 120, "the last interrupt came after the last entry");
    run.bench.finish();
}

impl Run {
    fn random_go(&mut self) -> bool {
        self.stalls[0].random() % 3 == 0
    }
}

#[test]
fn a_full_queue_holds_its_depth_and_goes_on_when_the_driver_has_read() {
    let mut run = Run::new("events_full", false);
    run.configure(0x1000, 2, 0, true);
    run.sources[0].extend((0..9).map(|i| event(EventKind::Command, i, 0)));
    run.drain();
    assert_eq!(run.entries.len(), 4);
    run.bench.uut.eq_consumer.next = 1u64.into();
    run.drain();
    assert_eq!(run.entries.len(), 5);
    run.consume();
    run.drain();
    assert_eq!(run.entries.len(), 9);
    assert_eq!(run.lost, 0);
    run.bench.finish();
}

#[test]
fn while_full_each_source_keeps_64_events_and_the_rest_is_lost_and_counted() {
    let mut run = Run::new("events_lost", false);
    run.configure(0x1000, 0, 0, true);
    run.sources[0].push_back(event(EventKind::Command, 0, 0));
    run.drain();
    for source in [0, 2, 3] {
        run.sources[source].extend((0..80).map(|i| event(EventKind::QpFatal, i, 0)));
    }
    run.sources[1].extend((0..300).map(|i| event(EventKind::CqOverrun, i, 0)));
    run.drain();
    // One of them has been taken out of its FIFO and waits for the ring.
    assert_eq!(run.lost, 3 * 16 + 44 - 1);
    for _ in 0..3 * 64 + 256 + 1 {
        run.consume();
        run.steps(8);
    }
    run.drain();
    assert_eq!(run.entries.len(), 1 + 3 * 64 + 256 + 1);
    run.bench.finish();
}

#[test]
fn while_full_no_completion_is_lost_and_one_that_waits_stands_for_all() {
    let mut run = Run::new("events_completions", false);
    run.configure(0x1000, 0, 0, true);
    run.sources[0].push_back(event(EventKind::Command, 0, 0));
    run.drain();
    run.sources[1].extend((0..260).map(|i| event(EventKind::CqOverrun, i, 0)));
    for _ in 0..3 {
        run.sources[1].extend((0..256).map(|cqn| event(EventKind::Completion, cqn, 0)));
    }
    run.drain();
    for _ in 0..600 {
        run.consume();
        run.steps(8);
    }
    let completions: Vec<u8> = run.entries.iter().filter(|(_, bytes)| bytes[4] == 1).map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(completions.len(), 256);
    assert_eq!(completions.iter().collect::<BTreeSet<_>>().len(), 256);
    // After its event is out, a CQ's next completion gets one of its own.
    run.sources[1].push_back(event(EventKind::Completion, 7, 0));
    run.consume();
    run.drain();
    assert_eq!(run.entries.last().unwrap().1[0], 7);
    run.bench.finish();
}

#[test]
fn a_disabled_queue_drops_in_silence_and_a_restart_begins_at_index_0() {
    let mut run = Run::new("events_restart", true);
    run.sources[0].extend((0..5).map(|i| event(EventKind::Command, i, 0)));
    run.sources[1].push_back(event(EventKind::Completion, 3, 0));
    run.drain();
    assert_eq!((run.entries.len(), run.lost), (0, 0));
    run.configure(0x1000, 3, 1, true);
    run.sources[0].extend((0..5).map(|i| event(EventKind::Command, i, 0)));
    run.drain();
    assert_eq!(run.entries.len(), 5);
    run.configure(0x2000, 1, 2, true);
    run.sources[0].push_back(event(EventKind::Command, 9, 4));
    run.sources[1].push_back(event(EventKind::Completion, 3, 0));
    run.drain();
    assert_eq!(run.entries[5], (0x2000, bytes(&event(EventKind::Command, 9, 4), true)));
    assert_eq!(run.entries[6], (0x2020, bytes(&event(EventKind::Completion, 3, 0), true)));
    assert_eq!(run.irqs.got.last().unwrap().to_u64(), 2);
    run.bench.finish();
}

#[test]
fn one_interrupt_covers_what_became_visible_while_it_waited() {
    let mut run = Run::new("events_irq", false);
    run.configure(0x1000, 8, 7, true);
    run.sources[0].extend((0..40).map(|i| event(EventKind::Command, i, 0)));
    run.holds_irq = true;
    run.steps(400);
    assert_eq!(run.visible, 40);
    run.holds_irq = false;
    run.drain();
    assert_eq!(run.irqs.got.len(), 2);
    run.bench.finish();
}

#[test]
fn an_event_takes_at_most_six_clocks() {
    let mut run = Run::new("events_rate", false);
    run.configure(0x1000, 8, 0, true);
    run.sources[3].extend((0..40).map(|i| event(EventKind::QpFatal, i, 0)));
    let start = run.bench.clock_count();
    while run.written < 40 {
        run.step();
    }
    assert!(run.bench.clock_count() - start <= 40 * 6 + 10);
    for source in 0..4 {
        run.sources[source].extend((0..20).map(|i| event(EventKind::QpFatal, i, 0)));
    }
    let start = run.bench.clock_count();
    while run.written < 120 {
        run.step();
    }
    let clocks = run.bench.clock_count() - start;
    assert!(clocks <= 80 * 4 + 10, "{clocks} clocks for 80 events of all sources");
    run.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_the_events_and_the_waiting_completions() {
    let mut run = Run::new("events_reset", true);
    run.configure(0x1000, 0, 0, true);
    run.sources[1].extend((0..20).map(|i| event(EventKind::Completion, i, 0)));
    run.steps(80);
    run.bench.uut.reset.next = true;
    for source in &mut run.sources {
        source.clear();
    }
    run.under_way.clear();
    run.bench.uut.command.valid.next = false;
    run.bench.uut.cq.valid.next = false;
    run.bench.uut.done.next = false;
    run.bench.edge();
    run.bench.uut.reset.next = false;
    run.reqs.restart();
    run.lines.restart();
    run.irqs.restart();
    run.reqs.got.truncate(run.taken);
    run.lines.got.truncate(run.taken);
    run.bench.uut.eq_enable.next = false;
    run.steps(257);
    let before = run.entries.len();
    run.configure(0x2000, 5, 0, true);
    run.sources[1].extend((0..20).map(|i| event(EventKind::Completion, i, 0)));
    run.drain();
    assert_eq!(run.entries.len() - before, 20);
    assert_eq!(run.entries[before].0, 0x2000);
    run.bench.finish();
}

#[test]
fn an_event_is_on_its_way_after_three_to_eight_clocks() {
    let mut run = Run::new("events_latency", false);
    run.configure(0x1000, 8, 0, true);
    for source in 0..4 {
        for pause in 20..24 {
            run.steps(pause);
            run.sources[source].push_back(event(EventKind::QpFatal, 1, 0));
            let (start, seen) = (run.bench.clock_count(), run.reqs.got.len());
            while run.reqs.got.len() == seen {
                run.step();
            }
            let clocks = run.bench.clock_count() - 1 - start;
            assert!((3..=8).contains(&clocks), "{clocks} clocks from source {source}");
        }
    }
    run.bench.finish();
}
