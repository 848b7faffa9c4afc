//! Holds completion events back while their queue's moderation says so.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `event_in` | sink | completion and overrun events |
//! | `event` | source | the same, some of them later |
//! | `moderation` | in | how the events of a queue are moderated from now on |
//! | `visible` | in | each entry that is visible to the host now |
//! | `cq_write` | in | this queue begins or ends: it is not moderated, and an event that is held back is forgotten |
//!
//! Latency: one clock for an event that is not moderated. Throughput: one event a clock, but for those that are let go. An
//! overrun is never held back. Of a queue at most one event is held back; another one of the same queue meanwhile is dropped, since it would tell the same.
//!
//! **Holding back.** The first event of a moderated queue notes the time and the index of the entry that made it. A walker visits a queue every clock, and each
//! once in [`CQS`] clocks (1.024 us with 256). It lets the event go when the interval is over, or when as many entries are visible as the count says, the
//! noted one included; or when moderation was switched off meanwhile. So an event comes at most one lap late, and a time in whole microseconds may be
//! up to one short. Entries are visible to who polls all the while.
//!
//! A visit takes four clocks, pipelined: read; subtract; compare; let go. When the walker lets an event go, `event_in` waits a clock.
//!
//! [`CQS`]: verbena_abi::limits::CQS

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_CQS};
use verbena_abi::queue::EventKind;
use verbena_abi::regs::Moderation;

use crate::bus::{CqEvent, CqModeration, CqVisible, CqWrite, Cqn, EventReq, StreamSink, StreamSource};
use crate::prim::{Fifo, LutRam, Ram};

/// Clocks of a microsecond.
const MICROSECOND: u32 = limits::CLOCK_KHZ / 1000;
/// Bits of a time in microseconds: one more than the longest interval has.
const TIME: usize = 17;

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Setting {
    interval: Bits<16>,
    count: Bits<16>,
}

/// An event that is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Held {
    since: Bits<TIME>,
    index: Bits<24>,
}

#[derive(LogicBlock)]
pub struct Moderator {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub cq_write: Signal<In, CqWrite>,
    pub moderation: Signal<In, CqModeration>,
    pub visible: Signal<In, CqVisible>,
    pub event_in: StreamSink<CqEvent>,
    pub event: StreamSource<EventReq>,

    settings: Ram<Setting, { limits::LOG_CQS }>,
    /// The queue is moderated.
    is_on: LutRam<Bit, { limits::LOG_CQS }>,
    seen: Ram<Bits<24>, { limits::LOG_CQS }>,
    held: Ram<Held, { limits::LOG_CQS }>,
    // An event is held back while the toggle of its arrival differs from that of its leave. Each in two copies.
    came: LutRam<Bit, { limits::LOG_CQS }>,
    came_of_walk: LutRam<Bit, { limits::LOG_CQS }>,
    left: LutRam<Bit, { limits::LOG_CQS }>,
    left_of_walk: LutRam<Bit, { limits::LOG_CQS }>,
    events: Fifo<EventReq, 1, 2>,
    clocks: DFF<Bits<8>>,
    now: DFF<Bits<TIME>>,
    cqn: DFF<Cqn>,
    is_clearing: DFF<Bit>,
    drop: DFF<CqWrite>,
    // Subtract.
    cqn1: DFF<Cqn>,
    came1: DFF<Bit>,
    waits1: DFF<Bit>,
    // Compare.
    cqn2: DFF<Cqn>,
    came2: DFF<Bit>,
    waits2: DFF<Bit>,
    setting2: DFF<Setting>,
    elapsed: DFF<Bits<TIME>>,
    arrived: DFF<Bits<24>>,
    // Let go.
    cqn3: DFF<Cqn>,
    came3: DFF<Bit>,
    waits3: DFF<Bit>,
    is_due: DFF<Bit>,

    change: Signal<Local, CqWrite>,
    wish: Signal<Local, CqModeration>,
    wishes_on: Signal<Local, Bit>,
    ending: Signal<Local, CqWrite>,
    drops: Signal<Local, Bit>,
    entry: Signal<Local, CqVisible>,
    incoming: Signal<Local, CqEvent>,
    is_held: Signal<Local, Bit>,
    holds: Signal<Local, Bit>,
    may_take: Signal<Local, Bit>,
    takes: Signal<Local, Bit>,
    fires: Signal<Local, Bit>,
    walk_cqn: Signal<Local, Cqn>,
    walk_came: Signal<Local, Bit>,
    setting: Signal<Local, Setting>,
    note: Signal<Local, Held>,
    limits_now: Signal<Local, Setting>,
    is_late: Signal<Local, Bit>,
    are_enough: Signal<Local, Bit>,
    no_limit: Constant<Bits<16>>,
    last_clock: Constant<Bits<8>>,
    one: Constant<Bits<16>>,
    completion: Constant<Bits<8>>,
    cq_overrun: Constant<Bits<8>>,
}

impl Default for Moderator {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            cq_write: Default::default(),
            moderation: Default::default(),
            visible: Default::default(),
            event_in: Default::default(),
            event: Default::default(),
            settings: Default::default(),
            is_on: Default::default(),
            seen: Default::default(),
            held: Default::default(),
            came: Default::default(),
            came_of_walk: Default::default(),
            left: Default::default(),
            left_of_walk: Default::default(),
            events: Default::default(),
            clocks: Default::default(),
            now: Default::default(),
            cqn: Default::default(),
            is_clearing: Default::default(),
            drop: Default::default(),
            cqn1: Default::default(),
            came1: Default::default(),
            waits1: Default::default(),
            cqn2: Default::default(),
            came2: Default::default(),
            waits2: Default::default(),
            setting2: Default::default(),
            elapsed: Default::default(),
            arrived: Default::default(),
            cqn3: Default::default(),
            came3: Default::default(),
            waits3: Default::default(),
            is_due: Default::default(),
            change: Default::default(),
            wish: Default::default(),
            wishes_on: Default::default(),
            ending: Default::default(),
            drops: Default::default(),
            entry: Default::default(),
            incoming: Default::default(),
            is_held: Default::default(),
            holds: Default::default(),
            may_take: Default::default(),
            takes: Default::default(),
            fires: Default::default(),
            walk_cqn: Default::default(),
            walk_came: Default::default(),
            setting: Default::default(),
            note: Default::default(),
            limits_now: Default::default(),
            is_late: Default::default(),
            are_enough: Default::default(),
            no_limit: Constant::new(Moderation::NO_LIMIT.to_bits()),
            last_clock: Constant::new((MICROSECOND - 1).to_bits()),
            one: Constant::new(1u16.to_bits()),
            completion: Constant::new((EventKind::Completion as u8).to_bits()),
            cq_overrun: Constant::new((EventKind::CqOverrun as u8).to_bits()),
        }
    }
}

impl Logic for Moderator {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, clocks, now, cqn, is_clearing, drop, cqn1, came1, waits1, cqn2, came2, waits2, setting2, elapsed, arrived);
        dff_setup!(self, clock, cqn3, came3, waits3, is_due);
        clock!(self, clock, settings, is_on, seen, held, came, came_of_walk, left, left_of_walk, events);
        self.events.reset.next = self.reset.val();
        StreamSource::<EventReq>::link(&mut self.event, &mut self.events.drain);
        self.clocks.d.next = self.clocks.q.val() + 1;
        if self.clocks.q.val() == self.last_clock.val() {
            self.clocks.d.next = 0.into();
            self.now.d.next = self.now.q.val() + 1;
        }

        // What others say. A queue that begins or ends lets a wish go first, which may be another queue's; commands come far apart.
        self.change.next = self.cq_write.val();
        self.wish.next = self.moderation.val();
        self.wishes_on.next = self.wish.val().interval.any()
            & (self.wish.val().count > self.one.val())
            & ((self.wish.val().interval != self.no_limit.val()) | (self.wish.val().count != self.no_limit.val()));
        self.settings.write_enable.next = self.wish.val().valid;
        self.settings.write_address.next = self.wish.val().cqn;
        self.settings.write_data.next.interval = self.wish.val().interval;
        self.settings.write_data.next.count = self.wish.val().count;
        if !self.wishes_on.val() {
            self.settings.write_data.next.interval = 0.into();
        }
        self.ending.next = self.drop.q.val();
        self.drops.next = self.ending.val().valid & !self.wish.val().valid & !self.is_clearing.q.val();
        if self.drops.val() {
            self.drop.d.next.valid = false;
        }
        if self.change.val().valid {
            self.drop.d.next = self.change.val();
        }
        self.is_on.write_enable.next = self.wish.val().valid | self.drops.val() | self.is_clearing.q.val();
        self.is_on.write_address.next = self.wish.val().cqn;
        self.is_on.write_data.next = self.wishes_on.val();
        if self.is_clearing.q.val() {
            self.is_on.write_address.next = self.cqn.q.val();
            self.is_on.write_data.next = false;
        } else if self.drops.val() {
            self.is_on.write_address.next = self.ending.val().cqn;
            self.is_on.write_data.next = false;
        }
        self.entry.next = self.visible.val();
        self.seen.write_enable.next = self.entry.val().valid;
        self.seen.write_address.next = self.entry.val().cqn;
        self.seen.write_data.next = self.entry.val().index;

        // An event: through, or held back. One that is let go comes first.
        self.fires.next = self.waits3.q.val() & self.is_due.q.val() & self.events.fill.ready.val() & !self.drops.val();
        self.incoming.next = self.event_in.data.val();
        self.is_on.read_address.next = self.incoming.val().cqn;
        self.came.read_address.next = self.incoming.val().cqn;
        self.left.read_address.next = self.incoming.val().cqn;
        self.is_held.next = self.came.read_data.val() ^ self.left.read_data.val();
        self.holds.next = self.is_on.read_data.val() & !self.incoming.val().is_overrun;
        self.may_take.next = self.events.fill.ready.val() & !self.fires.val() & !self.drops.val() & !self.is_clearing.q.val();
        self.event_in.ready.next = self.may_take.val();
        self.takes.next = self.event_in.valid.val() & self.may_take.val();
        self.came.write_enable.next = (self.takes.val() & self.holds.val() & !self.is_held.val()) | self.is_clearing.q.val();
        self.came.write_address.next = self.incoming.val().cqn;
        self.came.write_data.next = !self.came.read_data.val();
        if self.is_clearing.q.val() {
            self.came.write_address.next = self.cqn.q.val();
            self.came.write_data.next = false;
        }
        self.came_of_walk.write_enable.next = self.came.write_enable.val();
        self.came_of_walk.write_address.next = self.came.write_address.val();
        self.came_of_walk.write_data.next = self.came.write_data.val();
        self.held.write_enable.next = self.takes.val() & self.holds.val() & !self.is_held.val();
        self.held.write_address.next = self.incoming.val().cqn;
        self.held.write_data.next.since = self.now.q.val();
        self.held.write_data.next.index = self.incoming.val().index;

        // The walk. A queue that begins or ends takes the place of a visit, and whatever is on its way is visited again.
        self.walk_cqn.next = self.cqn.q.val();
        if self.drops.val() {
            self.walk_cqn.next = self.ending.val().cqn;
        } else {
            self.cqn.d.next = self.cqn.q.val() + 1;
            if self.cqn.q.val().all() {
                self.is_clearing.d.next = false;
            }
        }
        self.settings.read_address.next = self.walk_cqn.val();
        self.seen.read_address.next = self.walk_cqn.val();
        self.held.read_address.next = self.walk_cqn.val();
        self.came_of_walk.read_address.next = self.walk_cqn.val();
        self.left_of_walk.read_address.next = self.walk_cqn.val();
        self.walk_came.next = self.came_of_walk.read_data.val();
        self.cqn1.d.next = self.walk_cqn.val();
        self.came1.d.next = self.walk_came.val();
        self.waits1.d.next = (self.walk_came.val() ^ self.left_of_walk.read_data.val()) & !self.drops.val();

        // Subtract.
        self.setting.next = self.settings.read_data.val();
        self.note.next = self.held.read_data.val();
        self.cqn2.d.next = self.cqn1.q.val();
        self.came2.d.next = self.came1.q.val();
        self.waits2.d.next = self.waits1.q.val() & !self.drops.val();
        self.setting2.d.next = self.setting.val();
        self.elapsed.d.next = self.now.q.val() - self.note.val().since;
        self.arrived.d.next = self.seen.read_data.val() - self.note.val().index;

        // Compare.
        self.limits_now.next = self.setting2.q.val();
        self.is_late.next = (self.limits_now.val().interval != self.no_limit.val())
            & (self.elapsed.q.val() >= bit_cast::<TIME, 16>(self.limits_now.val().interval));
        self.are_enough.next = (self.limits_now.val().count != self.no_limit.val())
            & (self.arrived.q.val() >= bit_cast::<24, 16>(self.limits_now.val().count));
        self.cqn3.d.next = self.cqn2.q.val();
        self.came3.d.next = self.came2.q.val();
        self.waits3.d.next = self.waits2.q.val() & !self.drops.val();
        self.is_due.d.next = self.is_late.val() | self.are_enough.val();

        // Let go.
        self.left.write_enable.next = self.fires.val() | self.drops.val() | self.is_clearing.q.val();
        self.left.write_address.next = self.cqn3.q.val();
        self.left.write_data.next = self.came3.q.val();
        if self.is_clearing.q.val() {
            self.left.write_address.next = self.cqn.q.val();
            self.left.write_data.next = false;
        } else if self.drops.val() {
            self.left.write_address.next = self.walk_cqn.val();
            self.left.write_data.next = self.walk_came.val();
        }
        self.left_of_walk.write_enable.next = self.left.write_enable.val();
        self.left_of_walk.write_address.next = self.left.write_address.val();
        self.left_of_walk.write_data.next = self.left.write_data.val();

        self.events.fill.valid.next = self.fires.val() | (self.takes.val() & !self.holds.val());
        self.events.fill.data.next.number = bit_cast::<16, LOG_CQS>(self.incoming.val().cqn);
        self.events.fill.data.next.kind = self.completion.val();
        self.events.fill.data.next.code = 0.into();
        if self.incoming.val().is_overrun {
            self.events.fill.data.next.kind = self.cq_overrun.val();
        }
        if self.fires.val() {
            self.events.fill.data.next.number = bit_cast::<16, LOG_CQS>(self.cqn3.q.val());
            self.events.fill.data.next.kind = self.completion.val();
        }

        if self.reset.val() {
            self.cqn.d.next = 0.into();
            self.is_clearing.d.next = true;
            self.waits1.d.next = false;
            self.waits2.d.next = false;
            self.waits3.d.next = false;
            self.drop.d.next.valid = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    const LAP: u64 = 1 << limits::LOG_CQS;
    const US: u64 = MICROSECOND as u64;
    const NONE: u64 = Moderation::NO_LIMIT as u64;

    struct Case {
        bench: Bench<Moderator>,
        event_in: Driver<CqEvent>,
        event: Monitor<EventReq>,
        /// When each of them came, in clocks.
        times: Vec<u64>,
    }

    impl Case {
        fn new(name: &str) -> Self {
            let bench = Bench::new(name, Moderator::default(), |uut| &mut uut.clock);
            let mut case = Self { bench, event_in: Driver::new([], Stalls::none()), event: Monitor::new(Stalls::none()), times: vec![] };
            case.reset();
            case
        }

        fn reset(&mut self) {
            let uut = &mut self.bench.uut;
            uut.event_in.valid.next = false;
            (uut.cq_write.next, uut.moderation.next, uut.visible.next) = Default::default();
            self.bench.uut.reset.next = true;
            self.bench.cycles(2);
            self.bench.uut.reset.next = false;
            (self.event_in, self.event) = (Driver::new([], Stalls::none()), Monitor::new(Stalls::none()));
            self.times.clear();
            self.clocks(LAP + 4);
        }

        fn clocks(&mut self, count: u64) {
            for _ in 0..count {
                self.event_in.before(&mut self.bench.uut.event_in);
                self.event.before(&mut self.bench.uut.event);
                self.bench.settle();
                self.event_in.after(&self.bench.uut.event_in);
                self.event.after(&self.bench.uut.event);
                let now = self.bench.clock_count();
                self.times.resize(self.event.got.len(), now);
                self.bench.edge();
            }
        }

        fn moderate(&mut self, cqn: u64, interval: u64, count: u64) {
            self.bench.uut.moderation.next = CqModeration { valid: true, cqn: cqn.into(), interval: interval.into(), count: count.into() };
            self.clocks(1);
            self.bench.uut.moderation.next = CqModeration::default();
        }

        fn entry(&mut self, cqn: u64, index: u64) {
            self.bench.uut.visible.next = CqVisible { valid: true, cqn: cqn.into(), index: ((index + 1) & 0xFF_FFFF).into() };
            self.clocks(1);
            self.bench.uut.visible.next = CqVisible::default();
        }

        fn begin(&mut self, cqn: u64) {
            self.bench.uut.cq_write.next = CqWrite { valid: true, cqn: cqn.into(), ..Default::default() };
            self.clocks(1);
            self.bench.uut.cq_write.next = CqWrite::default();
        }

        /// An arm is satisfied by entry `index`. Returns the clock.
        fn arise(&mut self, cqn: u64, index: u64) -> u64 {
            self.event_in.queue.push_back(CqEvent { cqn: cqn.into(), is_overrun: false, index: index.into() });
            let at = self.bench.clock_count();
            self.clocks(1);
            at
        }

        /// Takes the queues whose events came since the last call, and when.
        fn taken(&mut self) -> Vec<(u64, u64)> {
            let events = self.event.got.drain(..).map(|event| {
                assert_eq!(event.kind, EventKind::Completion as u64);
                event.number.to_u64()
            });
            events.zip(self.times.drain(..)).collect()
        }
    }

    #[test]
    fn an_event_is_held_back_for_the_interval_or_until_there_are_enough_entries() {
        let mut case = Case::new("moderator");
        // Whoever is not moderated waits for a clock; an overrun too.
        let at = case.arise(7, 3);
        case.moderate(8, 0, 100);
        case.moderate(9, 100, 1);
        case.moderate(10, 100, 0);
        case.moderate(11, NONE, NONE);
        case.clocks(3);
        assert_eq!(case.taken(), [(7, at + 1)]);
        for cqn in 8..12 {
            let at = case.arise(cqn, 3);
            case.clocks(3);
            assert_eq!(case.taken(), [(cqn, at + 1)]);
        }
        // By time alone, on both sides of a whole microsecond.
        case.moderate(5, 20, NONE);
        for pause in [0, 100, 201] {
            case.clocks(pause);
            case.entry(5, 0);
            let at = case.arise(5, 0);
            (1..200).for_each(|index| case.entry(5, index));
            case.clocks(22 * US);
            let [(5, then)] = case.taken()[..] else { panic!("one event") };
            assert!((19 * US..20 * US + LAP + 6).contains(&(then - at)), "{} clocks", then - at);
        }
        // By entries alone, with an index that goes around: the one that satisfied the arm counts.
        case.moderate(250, NONE, 4);
        case.entry(250, 0xFF_FFFE);
        case.arise(250, 0xFF_FFFE);
        for index in [0xFF_FFFF, 0] {
            case.clocks(3 * LAP);
            case.entry(250, index);
        }
        case.clocks(200 * US);
        assert_eq!(case.taken(), []);
        case.entry(250, 1);
        case.clocks(LAP + 6);
        assert_eq!(case.taken().len(), 1);
        // Whichever comes first.
        case.moderate(6, 30, 3);
        case.entry(6, 10);
        case.arise(6, 10);
        case.entry(6, 11);
        case.clocks(5 * US);
        assert_eq!(case.taken(), []);
        case.entry(6, 12);
        case.clocks(LAP + 6);
        assert_eq!(case.taken().len(), 1);
        case.arise(6, 12);
        case.clocks(33 * US);
        assert_eq!(case.taken().len(), 1);
        case.bench.finish();
    }

    #[test]
    fn what_is_held_back_is_one_event_and_goes_when_moderation_ends_or_is_forgotten_with_its_queue() {
        let mut case = Case::new("moderator_held");
        case.moderate(3, 1_000, NONE);
        case.moderate(4, 1_000, NONE);
        for index in 0..3 {
            case.arise(3, index);
            case.arise(4, index);
            case.clocks(20);
        }
        // An overrun is never held back.
        case.event_in.queue.push_back(CqEvent { cqn: 3u64.into(), is_overrun: true, index: 9u64.into() });
        case.clocks(4);
        let overrun: Vec<_> = case.event.got.drain(..).map(|event| (event.number.to_u64(), event.kind.to_u64())).collect();
        assert_eq!(overrun, [(3, EventKind::CqOverrun as u64)]);
        case.times.clear();
        case.moderate(3, 0, 0);
        case.clocks(LAP + 6);
        assert_eq!(case.taken().iter().map(|event| event.0).collect::<Vec<_>>(), [3]);
        // The queue ends in the clock in which another one is moderated.
        case.bench.uut.cq_write.next = CqWrite { valid: true, cqn: 4u64.into(), ..Default::default() };
        case.moderate(5, 1_000, NONE);
        case.bench.uut.cq_write.next = CqWrite::default();
        case.moderate(6, 1_000, NONE);
        case.clocks(3 * LAP);
        // Its number begins anew, without moderation; those of the others are what they were set to.
        case.begin(4);
        case.clocks(3);
        (4..7).for_each(|cqn| {
            case.arise(cqn, 0);
        });
        case.clocks(900 * US);
        assert_eq!(case.taken().iter().map(|event| event.0).collect::<Vec<_>>(), [4]);
        case.clocks(110 * US);
        assert_eq!(case.taken().len(), 2);
        // A reset forgets settings and events.
        case.arise(5, 0);
        case.reset();
        case.arise(6, 0);
        case.clocks(1_200 * US);
        assert_eq!(case.taken().iter().map(|event| event.0).collect::<Vec<_>>(), [6]);
        case.bench.finish();
    }

    #[test]
    fn events_of_many_queues_come_each_once_whoever_stalls() {
        let mut case = Case::new("moderator_many");
        let mut random = Stalls::new(3);
        for cqn in 0..LAP {
            case.moderate(cqn, cqn % 4, NONE);
        }
        (case.event_in, case.event) = (Driver::new([], Stalls::new(1)), Monitor::new(Stalls::new(2)));
        let mut given = vec![0u64; LAP as usize];
        for _ in 0..8 {
            // Each at most once while it may be held back.
            for cqn in 0..LAP {
                if random.random() % 2 == 0 {
                    given[cqn as usize] += 1;
                    case.event_in.queue.push_back(CqEvent { cqn: cqn.into(), is_overrun: false, index: 0u64.into() });
                }
            }
            while !case.event_in.is_done() {
                case.clocks(1);
            }
            case.clocks(5 * US + 2 * LAP);
        }
        let mut found = vec![0u64; LAP as usize];
        case.taken().iter().for_each(|event| found[event.0 as usize] += 1);
        assert_eq!(found, given);
        case.bench.finish();
    }
}
