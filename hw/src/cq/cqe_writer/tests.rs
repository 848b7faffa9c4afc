//! A host that polls, rings and arms, behind a memory that is slow.

use std::collections::{HashMap, VecDeque};

use super::*;
use crate::testing::{Bench, Driver, Monitor, Stalls};
use verbena_abi::arith::Ring;
use verbena_abi::queue::{CqeStatus, EventKind};

use ArmKind::{Any, Errors, Solicited};

struct Run {
    bench: Bench<CqeWriter>,
    cqes: Driver<CqeReq>,
    bells: Driver<CqBell>,
    reqs: Monitor<WriteReq>,
    lines: Monitor<Line>,
    events: Monitor<CqEvent>,
    random: Stalls,
    /// Writes taken and not yet visible, with the clock at which they are.
    under_way: VecDeque<(u64, u64, [u8; 32])>,
    taken: usize,
    memory: HashMap<u64, [u8; 32]>,
    /// Clocks from a write to its being visible: least, and how much may be added.
    latency: (u64, u64),
    holds_done: bool,
    done: usize,
    written: usize,
    lost: usize,
    bad_bells: usize,
    overruns: Vec<u64>,
    /// Writes done before each event.
    done_at_event: Vec<usize>,
    visible: Vec<(u64, u64)>,
    moderations: Vec<(u64, u64, u64)>,
}

/// What the moderator makes of it.
fn kind_of(event: &CqEvent) -> u64 {
    let kind = if event.is_overrun { EventKind::CqOverrun } else { EventKind::Completion };
    kind as u64
}

fn bytes_of(line: Bits<512>, upper: bool) -> [u8; 32] {
    std::array::from_fn(|byte| line.get_bits::<8>(8 * (byte + if upper { 32 } else { 0 })).to_u64() as u8)
}

fn cqe(cqn: u64, index: u64, status: u64) -> CqeReq {
    CqeReq {
        cqn: cqn.into(),
        qpn: (index & 0xFF ^ 0xA5).into(),
        index: (index & 0xFFFF).into(),
        status: status.into(),
        opcode: 1u64.into(),
        syndrome: (status * 3).into(),
    }
}

fn consumer(cqn: u64, index: u64) -> CqBell {
    CqBell { cqn: cqn.into(), index: index.into(), kind: 0u64.into(), is_arm: false, ..Default::default() }
}

fn arm(cqn: u64, index: u64, kind: ArmKind) -> CqBell {
    CqBell { cqn: cqn.into(), index: index.into(), kind: (kind as u64).into(), is_arm: true, ..Default::default() }
}

fn expected(index: u64, status: u64, log_depth: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = (index & 0xFF ^ 0xA5) as u8;
    bytes[4..6].copy_from_slice(&(index as u16).to_le_bytes());
    bytes[6] = status as u8;
    bytes[7] = 1;
    bytes[8] = (status * 3) as u8;
    bytes[31] = u8::from(Ring::new(log_depth).phase(index as u32));
    bytes
}

impl Run {
    fn new(name: &str, stalled: bool) -> Self {
        let stalls = |seed| if stalled { Stalls::new(seed) } else { Stalls::none() };
        Self {
            bench: Bench::new(name, CqeWriter::default(), |uut| &mut uut.clock),
            cqes: Driver::new([], stalls(51)),
            bells: Driver::new([], stalls(52)),
            reqs: Monitor::new(stalls(53)),
            lines: Monitor::new(stalls(54)),
            events: Monitor::new(stalls(55)),
            random: Stalls::new(56),
            under_way: VecDeque::new(),
            taken: 0,
            memory: HashMap::new(),
            latency: (4, if stalled { 40 } else { 0 }),
            holds_done: false,
            done: 0,
            written: 0,
            lost: 0,
            bad_bells: 0,
            overruns: vec![],
            done_at_event: vec![],
            visible: vec![],
            moderations: vec![],
        }
    }

    fn step(&mut self) {
        let now = self.bench.clock_count();
        let is_done = !self.holds_done && self.under_way.front().is_some_and(|write| write.0 <= now);
        if is_done {
            let (_, address, bytes) = self.under_way.pop_front().unwrap();
            self.memory.insert(address, bytes);
            self.done += 1;
        }
        let uut = &mut self.bench.uut;
        uut.done.next = is_done;
        self.cqes.before(&mut uut.cqe);
        self.bells.before(&mut uut.bell);
        self.reqs.before(&mut uut.req);
        self.lines.before(&mut uut.line);
        self.events.before(&mut uut.event_out);
        self.bench.settle();
        let uut = &self.bench.uut;
        self.cqes.after(&uut.cqe);
        self.bells.after(&uut.bell);
        self.reqs.after(&uut.req);
        self.lines.after(&uut.line);
        let events = self.events.got.len();
        self.events.after(&uut.event_out);
        if self.events.got.len() > events {
            self.done_at_event.push(self.done);
        }
        self.written += usize::from(uut.count_cqe.val());
        self.lost += usize::from(uut.count_overrun.val());
        self.bad_bells += usize::from(uut.count_bad_bell.val());
        let (visible, moderation) = (uut.visible.val(), uut.moderation.val());
        if visible.valid {
            self.visible.push((visible.cqn.to_u64(), visible.index.to_u64()));
            assert!(self.visible.len() <= self.done, "told before it is visible");
        }
        if moderation.valid {
            self.moderations.push((moderation.cqn.to_u64(), moderation.interval.to_u64(), moderation.count.to_u64()));
        }
        if uut.overrun.val() {
            self.overruns.push(uut.overrun_cqn.val().to_u64());
        }
        while self.taken < self.reqs.got.len().min(self.lines.got.len()) {
            let (req, line) = (self.reqs.got[self.taken], self.lines.got[self.taken]);
            self.taken += 1;
            let address = req.addr.to_u64();
            assert!(req.len == 32u64 && line.last && address % 32 == 0);
            let at = now + self.latency.0 + if self.latency.1 == 0 { 0 } else { self.random.random() % self.latency.1 };
            let at = self.under_way.back().map_or(at, |write| write.0.max(at));
            self.under_way.push_back((at, address, bytes_of(line.data, address % 64 == 32)));
        }
        self.bench.edge();
    }

    fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.step();
        }
    }

    /// Runs until nothing is left to do but events that nobody has asked for.
    fn drain(&mut self) {
        let limit = self.bench.clock_count() + 6_000;
        let mut quiet = 0;
        while quiet < 12 {
            self.step();
            let uut = &self.bench.uut;
            let is_offered = uut.req.valid.val() || uut.line.valid.val() || uut.event_out.valid.val();
            let is_quiet = self.cqes.is_done() && self.bells.is_done() && self.under_way.is_empty() && !is_offered;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            assert!(self.bench.clock_count() < limit, "the CQ writer hangs");
        }
    }

    fn change(&mut self, cqn: u64, entry: CqEntry) {
        self.bench.uut.cq_write.next = CqWrite { valid: true, cqn: cqn.into(), entry };
        self.step();
        self.bench.uut.cq_write.next = CqWrite::default();
        self.steps(3);
    }

    fn create(&mut self, cqn: u64, address: u64, log_depth: u64) {
        self.change(cqn, CqEntry { valid: true, address: address.into(), log_depth: log_depth.into() });
    }

    /// Writes one entry and rings for it, so that the queue stays empty.
    fn pass(&mut self, cqn: u64, index: u64, status: u64) {
        self.cqes.queue.push_back(cqe(cqn, index, status));
        self.drain();
        self.bells.queue.push_back(consumer(cqn, index + 1));
        self.drain();
    }

    fn event_list(&self) -> Vec<(u64, u64)> {
        self.events.got.iter().map(|event| (kind_of(event), event.cqn.to_u64())).collect()
    }

    fn query(&mut self, cqn: u64) -> (u64, u64, bool) {
        self.bench.uut.query_cqn.next = cqn.into();
        self.steps(2);
        self.bench.settle();
        let uut = &self.bench.uut;
        (uut.q_producer.val().to_u64(), uut.q_consumer.val().to_u64(), uut.q_overrun.val())
    }
}

#[test]
fn entries_lie_where_the_ring_says_with_the_phase_of_their_lap() {
    let mut run = Run::new("cqe_laps", true);
    run.create(7, 0x1_0000_0FC0, 2);
    run.create(8, 0xFFFF_FFFF_0000_0040, 0);
    for index in 0..11 {
        run.pass(7, index, index % 3);
        run.pass(8, index, 0);
        assert_eq!(run.memory[&(0x1_0000_0FC0 + index % 4 * 32)], expected(index, index % 3, 2), "entry {index}");
        assert_eq!(run.memory[&0xFFFF_FFFF_0000_0040], expected(index, 0, 0));
    }
    assert_eq!(run.query(7), (11, 11, false));
    assert_eq!((run.written, run.lost, run.bad_bells, run.events.got.len()), (22, 0, 0, 0));
    run.steps(4);
    assert_eq!((run.bench.uut.entered.val().to_u64(), run.bench.uut.finished.val().to_u64()), (22, 22));
    run.bench.finish();
}

#[test]
fn an_entry_is_written_every_two_clocks_while_bells_are_taken() {
    let mut run = Run::new("cqe_rate", false);
    run.create(1, 0x4000, 16);
    run.create(2, 0x80_0000, 16);
    run.steps(4);
    run.cqes.queue.extend((0..200).map(|index| cqe(1, index, 0)));
    run.bells.queue.extend((0..200).map(|index| if index % 2 == 0 { consumer(1, 0) } else { arm(2, 0, Any) }));
    let start = run.bench.clock_count();
    while run.written < 200 {
        run.step();
        assert!(run.bench.clock_count() < 1_000, "the CQ writer is slow");
    }
    let clocks = run.bench.clock_count() - start;
    assert!(clocks <= 2 * 200 + 6, "{clocks} clocks for 200 entries");
    run.drain();
    assert_eq!(run.bad_bells, 0);
    run.bench.finish();
}

#[test]
fn a_full_queue_dies_with_one_event_and_others_live_on() {
    let mut run = Run::new("cqe_overrun", true);
    run.create(3, 0x1000, 2);
    run.create(4, 0x2000, 2);
    run.cqes.queue.extend((0..7).map(|index| cqe(3, index, 0)));
    run.cqes.queue.extend((0..4).map(|index| cqe(4, index, 0)));
    run.drain();
    assert_eq!((run.written, run.lost), (8, 3));
    assert_eq!(run.overruns, [3]);
    assert_eq!(run.event_list(), [(3, 3)]);
    assert!(run.done_at_event[0] >= 4, "the event comes after the entries that were written");
    assert_eq!((run.query(3), run.query(4)), ((4, 0, true), (4, 0, false)));
    // Room does not bring it back, and an arm of a dead queue is ignored.
    run.bells.queue.extend([consumer(3, 4), arm(3, 0, Any)]);
    run.drain();
    run.cqes.queue.push_back(cqe(3, 9, 0));
    run.drain();
    assert_eq!((run.written, run.lost, run.events.got.len()), (8, 4, 1));
    // Another life does, and starts from nothing.
    run.change(3, CqEntry::default());
    run.cqes.queue.push_back(cqe(3, 9, 0));
    run.drain();
    assert_eq!(run.lost, 5);
    run.create(3, 0x3000, 1);
    assert_eq!(run.query(3), (0, 0, false));
    run.pass(3, 0, 0);
    assert_eq!(run.memory[&0x3000], expected(0, 0, 1));
    run.bench.finish();
}

#[test]
fn bells_of_unknown_queues_and_impossible_indices_are_dropped_and_counted() {
    let mut run = Run::new("cqe_bad_bells", true);
    run.create(3, 0x1000, 2);
    run.cqes.queue.extend((0..3).map(|index| cqe(3, index, 0)));
    run.drain();
    run.bells.queue.extend([consumer(5, 0), arm(5, 0, Any), consumer(3, 4), consumer(3, 0xFF_FFFE)]);
    run.drain();
    assert_eq!((run.bad_bells, run.query(3)), (4, (3, 0, false)));
    run.bells.queue.extend([consumer(3, 3), consumer(3, 0xFF_FFFF)]);
    run.drain();
    assert_eq!((run.bad_bells, run.query(3).1), (4, 0xFF_FFFF), "as far behind as the depth is possible");
    run.cqes.queue.push_back(cqe(6, 0, 0));
    run.drain();
    assert_eq!((run.lost, run.overruns.len()), (1, 0));
    run.bench.finish();
}

#[test]
fn an_arm_fires_once_at_the_next_entry_or_at_once_if_there_is_a_new_one() {
    let mut run = Run::new("cqe_arm", true);
    run.create(9, 0x1000, 4);
    // Not armed: no event. Armed before: one event for two entries.
    run.pass(9, 0, 0);
    assert!(run.events.got.is_empty());
    run.bells.queue.push_back(arm(9, 1, Any));
    run.drain();
    assert!(run.events.got.is_empty(), "nothing is new");
    run.pass(9, 1, 0);
    run.pass(9, 2, 0);
    assert_eq!(run.event_list(), [(1, 9)]);
    // An entry came between the poll and the arm.
    run.bells.queue.push_back(arm(9, 2, Any));
    run.drain();
    assert_eq!(run.events.got.len(), 2);
    run.pass(9, 3, 0);
    assert_eq!(run.events.got.len(), 2, "the arm has fired");
    run.bench.finish();
}

#[test]
fn arms_for_errors_look_at_errors_alone() {
    for (kind, name) in [(Errors, "cqe_arm_errors"), (Solicited, "cqe_arm_solicited")] {
        let mut run = Run::new(name, true);
        run.create(9, 0x1000, 4);
        run.pass(9, 0, CqeStatus::RemoteAccess as u64);
        run.pass(9, 1, 0);
        run.bells.queue.push_back(arm(9, 1, kind));
        run.drain();
        run.pass(9, 2, 0);
        assert!(run.events.got.is_empty(), "the error is old and the new entries are none");
        run.pass(9, 3, CqeStatus::Flushed as u64);
        assert_eq!(run.events.got.len(), 1);
        run.pass(9, 4, 0);
        run.bells.queue.push_back(arm(9, 4, kind));
        run.drain();
        assert_eq!(run.events.got.len(), 1);
        // An arm for any is not weakened.
        run.bells.queue.extend([arm(9, 5, Any), arm(9, 5, kind)]);
        run.drain();
        run.pass(9, 5, 0);
        assert_eq!(run.events.got.len(), 2);
        // An error between poll and arm.
        run.pass(9, 6, CqeStatus::Flushed as u64);
        run.pass(9, 7, 0);
        run.bells.queue.push_back(arm(9, 6, kind));
        run.drain();
        assert_eq!(run.events.got.len(), 3);
        run.bench.finish();
    }
}

#[test]
fn an_event_waits_until_its_entry_is_visible() {
    let mut run = Run::new("cqe_visible", false);
    run.create(1, 0x1000, 4);
    run.holds_done = true;
    run.bells.queue.push_back(arm(1, 0, Any));
    run.steps(8);
    run.cqes.queue.extend((0..3).map(|index| cqe(1, index, 0)));
    run.steps(30);
    // This one fires at once and still follows the entries that are under way.
    run.bells.queue.push_back(arm(1, 0, Any));
    run.steps(50);
    assert_eq!((run.written, run.events.got.len()), (3, 0));
    run.holds_done = false;
    run.drain();
    assert_eq!(run.done_at_event.len(), 2);
    assert!(run.done_at_event[0] >= 1 && run.done_at_event[1] == 3);
    run.bench.finish();
}

#[test]
fn when_nothing_becomes_visible_entries_wait_and_none_is_lost() {
    let mut run = Run::new("cqe_marks", false);
    run.create(1, 0x10_0000, 16);
    run.holds_done = true;
    run.cqes.queue.extend((0..300).map(|index| cqe(1, index, 0)));
    run.steps(700);
    assert!(run.written >= 252 && run.written <= 256, "{} entries are under way", run.written);
    run.holds_done = false;
    run.drain();
    assert_eq!((run.written, run.done, run.lost), (300, 300, 0));
    for index in 0..300 {
        assert_eq!(run.memory[&(0x10_0000 + 32 * index)], expected(index, 0, 16));
    }
    run.bench.finish();
}

/// A queue whose driver polls only when an event says so.
struct Consumer {
    cqn: u64,
    base: u64,
    log_depth: u8,
    sent: u64,
    seen: u64,
    arms: usize,
    events: usize,
    is_woken: bool,
    /// Consumer indices that the card may not have got yet, with their clock.
    rung: VecDeque<(u64, u64)>,
    freed: u64,
}

#[test]
fn a_driver_that_polls_only_when_an_event_comes_sees_every_entry() {
    let mut run = Run::new("cqe_races", true);
    let mut queues: Vec<Consumer> = (0..3u64)
        .map(|number| Consumer {
            cqn: 10 * number,
            base: 0x10_0000 * (number + 1),
            log_depth: 3 + number as u8,
            sent: 0,
            seen: 0,
            arms: 1,
            events: 0,
            is_woken: false,
            rung: VecDeque::new(),
            freed: 0,
        })
        .collect();
    for queue in &queues {
        run.create(queue.cqn, queue.base, u64::from(queue.log_depth));
        run.bells.queue.push_back(arm(queue.cqn, 0, Any));
    }
    let mut events = 0;
    while queues.iter().any(|queue| queue.seen < 120) {
        let now = run.bench.clock_count();
        assert!(now < 12_000, "a wake-up was lost: {:?}", queues.iter().map(|queue| queue.seen).collect::<Vec<_>>());
        for event in &run.events.got[events..] {
            assert!(!event.is_overrun);
            let queue = queues.iter_mut().find(|queue| queue.cqn == event.cqn.to_u64()).unwrap();
            queue.events += 1;
            queue.is_woken = true;
            assert!(queue.events <= queue.arms, "an event without an arm");
        }
        events = run.events.got.len();
        for queue in &mut queues {
            let ring = Ring::new(queue.log_depth);
            while queue.rung.front().is_some_and(|(clock, _)| clock + 300 < now) && run.bells.queue.len() < 20 {
                queue.freed = queue.rung.pop_front().unwrap().1;
            }
            if queue.sent < 120 && queue.sent - queue.freed < u64::from(ring.depth()) && run.random.random() % 16 == 0 {
                run.cqes.queue.push_back(cqe(queue.cqn, queue.sent, queue.sent % 7));
                queue.sent += 1;
            }
            if queue.is_woken && run.random.random() % 8 == 0 {
                queue.is_woken = false;
                loop {
                    let address = queue.base + 32 * u64::from(ring.slot(queue.seen as u32));
                    let want = expected(queue.seen, queue.seen % 7, queue.log_depth);
                    match run.memory.get(&address) {
                        Some(bytes) if bytes[31] == want[31] => assert_eq!(*bytes, want),
                        _ => break,
                    }
                    queue.seen += 1;
                }
                queue.rung.push_back((now, queue.seen));
                run.bells.queue.push_back(consumer(queue.cqn, queue.seen));
                run.bells.queue.push_back(arm(queue.cqn, queue.seen, Any));
                queue.arms += 1;
            }
        }
        run.step();
    }
    assert_eq!((run.written, run.lost, run.bad_bells), (360, 0, 0));
    run.bench.finish();
}

#[test]
fn an_arm_and_an_entry_at_any_distance_give_exactly_one_event() {
    let mut run = Run::new("cqe_distance", false);
    for distance in 0..16u64 {
        let cqn = 100 + distance;
        run.create(cqn, 0x1000 * (distance + 1), 3);
        for clock in 0..24 {
            if clock == 8 {
                run.bells.queue.push_back(arm(cqn, 0, Any));
            }
            if clock == distance {
                run.cqes.queue.push_back(cqe(cqn, 0, 0));
            }
            run.step();
        }
        run.drain();
        assert_eq!(run.event_list().iter().filter(|event| event.1 == cqn).count(), 1, "entry {distance}, arm 8");
    }
    run.bench.finish();
}

#[test]
fn a_reset_in_the_middle_leaves_nothing_behind_but_the_tables() {
    let mut run = Run::new("cqe_reset", true);
    run.create(1, 0x1000, 8);
    run.cqes.queue.extend((0..40).map(|index| cqe(1, index, 0)));
    run.bells.queue.push_back(arm(1, 0, Any));
    run.steps(60);
    run.cqes.queue.clear();
    run.bells.queue.clear();
    run.cqes.restart();
    run.bells.restart();
    run.bench.uut.reset.next = true;
    run.reqs.restart();
    run.lines.restart();
    run.events.restart();
    run.step();
    run.bench.uut.reset.next = false;
    run.reqs.restart();
    run.lines.restart();
    run.events.restart();
    run.reqs.got.clear();
    run.lines.got.clear();
    run.events.got.clear();
    run.under_way.clear();
    run.taken = 0;
    run.bench.settle();
    assert!(!run.bench.uut.req.valid.val() && !run.bench.uut.event_out.valid.val());
    // The command processor's walk invalidates every entry.
    run.change(1, CqEntry::default());
    run.create(1, 0x2000, 2);
    run.pass(1, 0, 0);
    assert_eq!(run.memory[&0x2000], expected(0, 0, 2));
    assert!(run.events.got.is_empty(), "the arm of the earlier life is forgotten");
    run.bench.finish();
}

#[test]
fn an_entry_is_on_its_way_after_three_or_four_clocks() {
    let mut run = Run::new("cqe_latency", false);
    run.create(1, 0x1000, 8);
    for index in 0..6 {
        run.steps(20 + index as usize);
        run.cqes.queue.push_back(cqe(1, index, 0));
        let (start, seen) = (run.bench.clock_count(), run.reqs.got.len());
        while run.reqs.got.len() == seen {
            run.step();
        }
        let clocks = run.bench.clock_count() - 1 - start;
        assert!((3..=4).contains(&clocks), "{clocks} clocks");
    }
    run.bench.finish();
}

#[test]
fn visible_entries_moderations_and_the_entries_of_events_are_told() {
    let mut run = Run::new("cqe_moderation", true);
    run.create(9, 0x1000, 4);
    let moderate = |cqn: u64, interval: u64, count: u64| CqBell {
        cqn: cqn.into(),
        index: interval.into(),
        is_moderation: true,
        count: count.into(),
        ..Default::default()
    };
    // They change neither consumer index nor arm, and need a queue.
    run.bells.queue.extend([arm(9, 0, Any), moderate(9, 0xFFFF, 3), moderate(10, 1, 2), moderate(9, 20, 0xFFFF)]);
    run.drain();
    assert_eq!(run.moderations, [(9, 0xFFFF, 3), (9, 20, 0xFFFF)]);
    assert_eq!((run.bad_bells, run.query(9)), (1, (0, 0, false)));
    (0..3).for_each(|index| run.pass(9, index, 0));
    run.bells.queue.push_back(arm(9, 1, Any));
    run.drain();
    run.cqes.queue.push_back(cqe(9, 3, 0));
    run.drain();
    run.bells.queue.push_back(arm(9, 4, Errors));
    run.drain();
    run.cqes.queue.push_back(cqe(9, 4, 0));
    run.cqes.queue.push_back(cqe(9, 5, CqeStatus::Flushed as u64));
    run.drain();
    assert_eq!(run.visible, (1..7).map(|index| (9, index)).collect::<Vec<_>>());
    // The entry that came, the index of an arm that was late, the error.
    assert_eq!(run.events.got.iter().map(|event| event.index.to_u64()).collect::<Vec<_>>(), [0, 1, 5]);
    run.bench.finish();
}
