//! Visits, turns, rewinds and fetches against a model.

use super::*;
use crate::testing::{Bench, Driver, Monitor, Stalls};
use queue::QpState;

fn write(qpn: u64, state: QpState, log_depth: u64, two_units: bool, clear: bool) -> QpWrite {
    let flags = if two_units { queue::qp_flags::TWO_UNITS } else { 0 };
    QpWrite {
        valid: true,
        qpn: qpn.into(),
        clear,
        context: QpContext {
            state: (state as u64).into(),
            flags: u64::from(flags).into(),
            sq_address: address(qpn).into(),
            sq_log_depth: log_depth.into(),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn address(qpn: u64) -> u64 {
    0x1_0000_0000 * qpn + 0x4000
}

fn set(bench: &mut Bench<Scheduler>, change: QpWrite) {
    bench.uut.qp_write.next = change;
    bench.cycles(1);
    bench.uut.qp_write.next = QpWrite::default();
    bench.cycles(5);
}

fn reset(bench: &mut Bench<Scheduler>) {
    bench.uut.bell.valid.next = false;
    bench.uut.halt.valid.next = false;
    bench.uut.rewind.valid.next = false;
    bench.uut.begun.next = false;
    bench.uut.qp_write.next = QpWrite::default();
    bench.uut.reset.next = true;
    bench.cycles(2);
    bench.uut.reset.next = false;
}

/// The segmenter's side: it begins a request every clock.
#[derive(Default)]
struct Segmenter {
    waiting: u64,
}

impl Segmenter {
    fn before(&mut self, bench: &mut Bench<Scheduler>) {
        bench.uut.begun.next = self.waiting > 0;
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Takes note of what is fetched in this clock, if it is taken; returns it.
    fn after(&mut self, bench: &Bench<Scheduler>) -> Option<Fetch> {
        let port = &bench.uut.fetch;
        let fetch = (port.valid.val() && port.ready.val()).then(|| port.data.val());
        self.waiting += fetch.map_or(0, |fetch| fetch.count.to_u64());
        fetch
    }
}

/// A send queue: log2 of its depth, its units, and how far it was fetched.
#[derive(Clone, Copy)]
struct Queue {
    log_depth: u64,
    two_units: bool,
    fetched: u64,
    posted: u64,
}

/// Checks fetches and reads against the queues, and moves them on.
fn follow(queues: &mut [Queue], fetches: &[Fetch], reads: &[ReadReq]) -> u64 {
    let mut total = 0;
    for (fetch, read) in fetches.iter().zip(reads) {
        let queue = &mut queues[fetch.qpn.index()];
        let (count, depth) = (fetch.count.to_u64(), 1 << queue.log_depth);
        let unit = if queue.two_units { 128 } else { 64 };
        assert!((1..=8).contains(&count));
        assert_eq!(fetch.index, queue.fetched % 0x1_0000, "requests are fetched in order, each once");
        assert_eq!(fetch.two_units, queue.two_units);
        let slot = queue.fetched % depth;
        assert!(slot + count <= depth, "a batch ends where the ring ends");
        assert_eq!(read.addr, address(fetch.qpn.to_u64()) + slot * unit);
        assert_eq!(read.len, count * unit);
        queue.fetched += count;
        if queue.fetched == queue.posted {
            assert!(fetch.is_tail, "the last request posted is told");
        }
        assert!(queue.fetched <= queue.posted, "nothing is fetched that was not posted");
        total += count;
    }
    total
}

#[test]
fn every_posted_request_is_fetched_once_and_in_order_under_random_stalls() {
    let mut bench = Bench::new("tx_scheduler", Scheduler::default(), |uut| &mut uut.clock);
    let shapes = [(0, false), (1, true), (3, false), (4, true), (5, false), (9, true)];
    for (seed, limit) in [(1, 150), (1, 6000), (2, 220), (2, 6000), (3, 6000)] {
        reset(&mut bench);
        let mut queues: Vec<_> = shapes
            .iter()
            .map(|(log_depth, two_units)| Queue { log_depth: *log_depth, two_units: *two_units, fetched: 0, posted: 0 })
            .collect();
        // Commands right behind the reset wait until the states are cleared.
        for (qpn, (log_depth, two_units)) in shapes.into_iter().enumerate().skip(4) {
            bench.uut.qp_write.next = write(qpn as u64, QpState::Rts, log_depth, two_units, true);
            bench.cycles(1);
            bench.uut.qp_write.next = QpWrite::default();
        }
        bench.cycles(limits::QPS + 4);
        for (qpn, (log_depth, two_units)) in shapes.into_iter().enumerate().take(4) {
            set(&mut bench, write(qpn as u64, QpState::Rts, log_depth, two_units, true));
        }
        let mut random = Stalls::new(seed);
        let mut bell = Driver::new([], Stalls::new(seed + 10));
        let mut read = Monitor::new(Stalls::new(seed + 20));
        let mut fetch = Monitor::new(Stalls::new(seed + 30));
        let (mut rung, mut bad, mut expected_bad, mut seen, mut total) = (0, 0, 0, 0, 0);
        let mut clock = 0;
        let mut segmenter = Segmenter::default();
        while clock < limit && !(rung == 150 && bell.is_done() && queues.iter().all(|queue| queue.fetched == queue.posted)) {
            // The host rings within the depth behind what is known to be fetched; sometimes it does not.
            if bell.is_done() && rung < 150 {
                rung += 1;
                let qpn = random.random() as usize % 7;
                if qpn == 6 {
                    bell.queue.push_back(SqBell { qpn: 77u64.into(), index: 1u64.into() });
                    expected_bad += 1;
                } else if random.random() % 12 == 0 {
                    // Ahead by more than the depth, however much was fetched meanwhile.
                    let index = queues[qpn].posted + (1 << queues[qpn].log_depth) + 1;
                    bell.queue.push_back(SqBell { qpn: (qpn as u64).into(), index: index.into() });
                    expected_bad += 1;
                } else {
                    let queue = &mut queues[qpn];
                    let room = (1 << queue.log_depth) - (queue.posted - queue.fetched);
                    queue.posted += random.random() % (room.min(40) + 1);
                    bell.queue.push_back(SqBell { qpn: (qpn as u64).into(), index: queue.posted.into() });
                }
            }
            segmenter.before(&mut bench);
            bell.before(&mut bench.uut.bell);
            read.before(&mut bench.uut.read);
            fetch.before(&mut bench.uut.fetch);
            bench.settle();
            bell.after(&bench.uut.bell);
            read.after(&bench.uut.read);
            fetch.after(&bench.uut.fetch);
            bad += usize::from(bench.uut.bad_bell.val());
            segmenter.after(&bench);
            bench.edge();
            let until = read.got.len().min(fetch.got.len());
            total += follow(&mut queues, &fetch.got[seen..until], &read.got[seen..until]);
            seen = until;
            clock += 1;
        }
        if limit == 6000 {
            assert!(clock < limit, "a request hangs");
            for _ in 0..6 {
                bench.cycles(1);
                bad += usize::from(bench.uut.bad_bell.val());
            }
            assert_eq!(bad, expected_bad);
            assert_eq!(bench.uut.entered.val(), total % 0x1_0000);
            for (qpn, queue) in queues.iter().enumerate() {
                bench.uut.query_qpn.next = (qpn as u64).into();
                bench.cycles(1);
                assert_eq!((bench.uut.query_producer.val(), bench.uut.query_fetched.val()), (queue.posted.into(), queue.fetched.into()));
            }
        }
    }
    bench.finish();
}

fn ring(bench: &mut Bench<Scheduler>, qpn: u64, index: u64) {
    bench.uut.bell.data.next = SqBell { qpn: qpn.into(), index: (index % 0x1_0000).into() };
    bench.uut.bell.valid.next = true;
    bench.settle();
    while !bench.uut.bell.ready.val() {
        bench.cycles(1);
    }
    bench.cycles(1);
    bench.uut.bell.valid.next = false;
}

/// Rings, and tells whether the doorbell is refused.
fn is_refused(bench: &mut Bench<Scheduler>, qpn: u64, index: u64) -> bool {
    ring(bench, qpn, index);
    let mut count = 0;
    for _ in 0..5 {
        bench.settle();
        count += usize::from(bench.uut.bad_bell.val());
        bench.cycles(1);
    }
    assert!(count <= 1, "a doorbell is counted once");
    count == 1
}

#[test]
fn a_busy_queue_gives_eight_requests_in_six_clocks_and_busy_queues_in_four_by_turns() {
    let mut bench = Bench::new("tx_scheduler_rate", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    for qpn in 0..3 {
        set(&mut bench, write(qpn, QpState::Rts, 6, false, true));
    }
    bench.uut.read.ready.next = true;
    bench.uut.fetch.ready.next = true;
    for (busy, posted) in [(1, 64), (3, 48)] {
        let base = if busy == 1 { 0 } else { 64 };
        // Nothing leaves before all have rung.
        bench.uut.read.ready.next = false;
        bench.uut.fetch.ready.next = false;
        for qpn in 0..busy {
            ring(&mut bench, qpn, posted + if qpn == 0 { base } else { 0 });
        }
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        let (mut order, mut clocks) = (vec![], vec![]);
        let mut segmenter = Segmenter::default();
        for _ in 0..240 {
            segmenter.before(&mut bench);
            bench.settle();
            if let Some(fetch) = segmenter.after(&bench) {
                order.push(fetch.qpn.to_u64());
                clocks.push(bench.clock_count());
            }
            bench.edge();
        }
        assert_eq!(order.len() as u64, busy * posted / 8);
        let gap = if busy == 1 { 6 } else { 4 };
        assert!(clocks[4..].windows(2).all(|pair| pair[1] - pair[0] == gap), "{clocks:?}");
        // The first one may be fetched twice before all have rung, and the last alone at the end.
        assert!(order[3..order.len() - 3].windows(busy as usize).all(|turn| turn[1..].iter().all(|qpn| *qpn != turn[0])), "{order:?}");
    }
    bench.finish();
}

#[test]
fn nothing_more_is_fetched_of_a_halted_queue_pair_and_a_waiting_visit_lets_doorbells_pass() {
    let mut bench = Bench::new("tx_scheduler_halt", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    for qpn in 0..2 {
        set(&mut bench, write(qpn, QpState::Rts, 9, false, true));
    }
    // Nobody reads: two reads wait, and the visit of the third. Doorbells are still taken.
    ring(&mut bench, 0, 100);
    bench.cycles(30);
    ring(&mut bench, 1, 20);
    ring(&mut bench, 1, 30);
    bench.cycles(10);
    bench.uut.halt.data.next = 0u64.into();
    bench.uut.halt.valid.next = true;
    bench.cycles(1);
    bench.uut.halt.valid.next = false;
    bench.uut.read.ready.next = true;
    bench.uut.fetch.ready.next = true;
    let mut counts = [0, 0];
    for _ in 0..80 {
        bench.settle();
        if bench.uut.fetch.valid.val() {
            counts[bench.uut.fetch.data.val().qpn.index()] += bench.uut.fetch.data.val().count.index();
        }
        bench.edge();
    }
    assert_eq!(counts, [16, 30]);
    // A doorbell of the halted queue pair is dropped and counted.
    assert!(is_refused(&mut bench, 0, 101));
    // As deep as the queue is allowed, one more is not.
    assert!(is_refused(&mut bench, 1, 30 + 513));
    assert!(!is_refused(&mut bench, 1, 30 + 512));
    let mut segmenter = Segmenter::default();
    for _ in 0..900 {
        segmenter.before(&mut bench);
        bench.settle();
        segmenter.after(&bench);
        bench.edge();
    }
    bench.uut.query_qpn.next = 1u64.into();
    bench.cycles(1);
    assert_eq!(bench.uut.query_fetched.val(), 542u64);
    bench.finish();
}

fn rewind(bench: &mut Bench<Scheduler>, qpn: u64, index: u64, is_long: bool) {
    bench.uut.rewind.data.next = Rewind { qpn: qpn.into(), index: index.into(), is_long };
    bench.uut.rewind.valid.next = true;
    bench.settle();
    while !bench.uut.rewind.ready.val() {
        bench.cycles(1);
    }
    bench.cycles(1);
    bench.uut.rewind.valid.next = false;
}

/// Returns queue pair, index and count of what is fetched in `clocks` clocks.
fn fetched(bench: &mut Bench<Scheduler>, clocks: usize) -> Vec<(u64, u64, u64)> {
    let mut got = vec![];
    for _ in 0..clocks {
        bench.settle();
        if bench.uut.fetch.valid.val() {
            let fetch = bench.uut.fetch.data.val();
            got.push((fetch.qpn.to_u64(), fetch.index.to_u64(), fetch.count.to_u64()));
        }
        bench.edge();
    }
    got
}

#[test]
fn a_turn_that_ended_goes_on_where_it_says_and_a_long_one_asks_for_one_request_at_a_time() {
    let mut bench = Bench::new("tx_scheduler_rewind", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    for qpn in 0..2 {
        set(&mut bench, write(qpn, QpState::Rts, 6, false, true));
    }
    bench.uut.read.ready.next = true;
    bench.uut.fetch.ready.next = true;
    ring(&mut bench, 0, 20);
    assert_eq!(fetched(&mut bench, 60), [(0, 0, 8), (0, 8, 8), (0, 16, 4)]);
    // Behind what was fetched already, in the middle of request 3: this one alone, and no more however often it rings.
    rewind(&mut bench, 0, 3, true);
    assert_eq!(fetched(&mut bench, 40), [(0, 3, 1)]);
    ring(&mut bench, 0, 21);
    assert_eq!(fetched(&mut bench, 40), []);
    rewind(&mut bench, 0, 3, true);
    assert_eq!(fetched(&mut bench, 40), [(0, 3, 1)]);
    // It is done.
    rewind(&mut bench, 0, 4, false);
    assert_eq!(fetched(&mut bench, 60), [(0, 4, 8), (0, 12, 8), (0, 20, 1)]);
    // A turn that ended between two requests.
    rewind(&mut bench, 0, 18, false);
    assert_eq!(fetched(&mut bench, 60), [(0, 18, 3)]);
    rewind(&mut bench, 0, 21, false);
    assert_eq!(fetched(&mut bench, 40), [], "there is nothing behind the last one");

    // The report of a queue pair that died meanwhile comes to nothing, and one that starts anew is not parked.
    ring(&mut bench, 0, 25);
    assert_eq!(fetched(&mut bench, 40), [(0, 21, 4)]);
    rewind(&mut bench, 0, 21, true);
    assert_eq!(fetched(&mut bench, 40), [(0, 21, 1)]);
    set(&mut bench, write(0, QpState::Error, 6, false, false));
    rewind(&mut bench, 0, 21, true);
    assert_eq!(fetched(&mut bench, 40), []);
    set(&mut bench, write(0, QpState::Reset, 6, false, true));
    set(&mut bench, write(0, QpState::Rts, 6, false, false));
    ring(&mut bench, 0, 1);
    assert_eq!(fetched(&mut bench, 40), [(0, 0, 1)]);
    ring(&mut bench, 0, 3);
    assert_eq!(fetched(&mut bench, 40), [(0, 1, 2)]);
    bench.finish();
}

#[test]
fn doorbells_are_measured_from_the_last_request_ever_fetched_while_a_queue_pair_sends_again() {
    let mut bench = Bench::new("tx_scheduler_again", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    set(&mut bench, write(0, QpState::Rts, 3, false, true));
    set(&mut bench, write(1, QpState::Rts, 3, false, true));
    bench.uut.read.ready.next = true;
    bench.uut.fetch.ready.next = true;
    ring(&mut bench, 0, 8);
    assert_eq!(fetched(&mut bench, 40), [(0, 0, 8)]);
    // Back to the first request, and nothing is fetched yet. All eight are done by now, and eight more are posted.
    bench.uut.read.ready.next = false;
    for index in 1..4 {
        ring(&mut bench, 1, index);
        bench.cycles(5);
    }
    assert!(!bench.uut.reads.fill.ready.val());
    rewind(&mut bench, 0, 0, false);
    assert!(!is_refused(&mut bench, 0, 16), "sixteen wait, but eight of them were fetched");
    assert!(is_refused(&mut bench, 0, 17));
    bench.uut.read.ready.next = true;
    let got: Vec<_> = fetched(&mut bench, 100).into_iter().filter(|fetch| fetch.0 == 0).collect();
    assert_eq!(got, [(0, 0, 8), (0, 8, 8)]);
    // As far as the last one ever fetched and no farther, also when it goes there in two steps.
    rewind(&mut bench, 0, 13, false);
    assert_eq!(fetched(&mut bench, 40), [(0, 13, 3)]);
    assert!(is_refused(&mut bench, 0, 25));
    ring(&mut bench, 0, 18);
    assert_eq!(fetched(&mut bench, 40), [(0, 16, 2)]);
    rewind(&mut bench, 0, 17, false);
    assert_eq!(fetched(&mut bench, 40), [(0, 17, 1)]);
    assert!(!is_refused(&mut bench, 0, 26));
    bench.finish();
}

#[test]
fn a_rewind_between_doorbells_neither_loses_nor_repeats_a_request_under_random_stalls() {
    let mut bench = Bench::new("tx_scheduler_rewinds", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    const PAIRS: usize = 4;
    for qpn in 0..PAIRS as u64 {
        set(&mut bench, write(qpn, QpState::Rts, 6, qpn % 2 == 1, true));
    }
    let mut random = Stalls::new(5);
    let mut bell = Driver::new([], Stalls::new(6));
    let mut reports = Driver::new([], Stalls::new(7));
    let mut read = Monitor::new(Stalls::new(8));
    let mut fetch = Monitor::new(Stalls::new(9));
    // The segmenter's side: what comes next of each queue pair, and whether the scheduler waits for a report.
    let (mut posted, mut due, mut is_long) = ([0u64; PAIRS], [0u64; PAIRS], [false; PAIRS]);
    let (mut seen, mut stale, mut turns, mut segmenter) = (0, 0, 0, Segmenter::default());
    let mut clock = 0;
    while due != [600; PAIRS] {
        clock += 1;
        assert!(clock < 40_000, "a request hangs; {due:?} of {posted:?} are sent");
        if bell.is_done() && random.random() % 4 == 0 {
            let qpn = random.random() as usize % PAIRS;
            posted[qpn] = (posted[qpn] + random.random() % 12).min(due[qpn] + 64).min(600);
            bell.queue.push_back(SqBell { qpn: (qpn as u64).into(), index: posted[qpn].into() });
        }
        segmenter.before(&mut bench);
        bell.before(&mut bench.uut.bell);
        reports.before(&mut bench.uut.rewind);
        read.before(&mut bench.uut.read);
        fetch.before(&mut bench.uut.fetch);
        bench.settle();
        bell.after(&bench.uut.bell);
        reports.after(&bench.uut.rewind);
        read.after(&bench.uut.read);
        fetch.after(&bench.uut.fetch);
        segmenter.after(&bench);
        assert!(!bench.uut.bad_bell.val());
        bench.edge();
        for fetch in &fetch.got[seen..] {
            let (qpn, count) = (fetch.qpn.index(), fetch.count.to_u64());
            for index in fetch.index.to_u64()..fetch.index.to_u64() + count {
                if index != due[qpn] {
                    stale += 1;
                    continue;
                }
                assert!(!is_long[qpn] || count == 1, "of a long one, one request");
                let mut report = |index, long| {
                    reports.queue.push_back(Rewind { qpn: (qpn as u64).into(), index: u64::into(index), is_long: long });
                };
                match random.random() % 8 {
                    // In its middle.
                    0 => {
                        report(index, true);
                        is_long[qpn] = true;
                        turns += 1;
                    }
                    // In front of it.
                    1 if !is_long[qpn] => {
                        report(index, false);
                        turns += 1;
                    }
                    _ => {
                        due[qpn] += 1;
                        if std::mem::take(&mut is_long[qpn]) {
                            report(index + 1, false);
                        }
                    }
                }
                if index == due[qpn] {
                    // What follows in this batch is stale, also if it is this one again.
                    stale += fetch.index.to_u64() + count - (index + 1);
                    break;
                }
            }
        }
        seen = fetch.got.len();
    }
    assert!(turns > 300 && stale > 300, "{turns} turns end, {stale} requests are fetched in vain");
    bench.finish();
}

#[test]
fn no_more_is_fetched_ahead_than_the_limit_says() {
    let mut bench = Bench::new("tx_scheduler_ahead", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    bench.uut.read.ready.next = true;
    bench.uut.fetch.ready.next = true;
    for qpn in 0..2 {
        set(&mut bench, write(qpn, QpState::Rts, 9, false, true));
        ring(&mut bench, qpn, 300);
    }
    bench.cycles(400);
    let most = limits::FETCH_AHEAD as u64;
    let ahead = bench.uut.entered.val().to_u64();
    assert!((most - 15..=most).contains(&ahead), "{ahead} requests are fetched ahead");
    bench.uut.begun.next = true;
    bench.cycles(100);
    bench.uut.begun.next = false;
    bench.cycles(100);
    let after = bench.uut.entered.val().to_u64();
    assert!((most - 15 + 100..=most + 100).contains(&after), "{after} requests are fetched");
    bench.finish();
}

#[test]
fn others_wait_if_they_are_queued_or_were_fetched_last() {
    let mut bench = Bench::new("tx_scheduler_others", Scheduler::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    bench.cycles(limits::QPS);
    for qpn in 0..3 {
        set(&mut bench, write(qpn, QpState::Rts, 6, false, true));
    }
    bench.uut.read.ready.next = true;
    bench.uut.fetch.ready.next = true;
    let waits = |bench: &mut Bench<Scheduler>, qpn: u64| {
        bench.uut.sending_qpn.next = qpn.into();
        bench.cycles(2);
        bench.uut.others_wait.val()
    };
    ring(&mut bench, 1, 64);
    bench.cycles(100);
    assert!(!waits(&mut bench, 1), "it is the only one");
    assert!(waits(&mut bench, 2), "it was fetched last");
    // Nobody reads any more: one in front of the queue, then one behind it.
    bench.uut.read.ready.next = false;
    ring(&mut bench, 1, 80);
    bench.cycles(30);
    ring(&mut bench, 1, 100);
    bench.cycles(30);
    assert!(!waits(&mut bench, 1));
    ring(&mut bench, 2, 1);
    bench.cycles(10);
    assert!(waits(&mut bench, 1));
    bench.finish();
}
