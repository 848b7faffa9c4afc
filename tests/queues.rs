//! Queues: full, around the ring, many at once, shared, armed, closed while busy, and connected anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use verbena_abi::regs::Counter;
use verbena_host::cq::{CompletionStatus, CqNotice};
use verbena_host::{ArmKind, Completion, Cq, CqeStatus, Error, Qp, QpOptions, QpState, WriteFlags};
use verbena_sim::rng::Rng;
use verbena_tests::pair::{check_done, Connection, Link, Options, Pair, Write};

fn small() -> Options {
    Options { region_bytes: 128 << 10, mtu: 1024, ..Options::default() }
}

#[test]
fn a_send_queue_takes_its_whole_depth_and_not_one_more() {
    let mut pair = Pair::new(small());
    for depth in [1u32, 2, 5, 64, 512] {
        let mut connection = pair.connect(&Link { depth, ..Link::default() });
        for lap in 0..3u64 {
            let first = lap * u64::from(depth);
            for context in first..first + u64::from(depth) {
                let write = Write::new((13 * context as usize) % 60_000, 64 + 100 * (context as usize % 512), 77);
                pair.post(&mut connection, 0, context, &write, WriteFlags::DEFER).unwrap();
            }
            assert_eq!(connection.queues[0].free_slots(), 0);
            let refused = connection.queues[0].write(0, &[], 0, 0, WriteFlags::DEFER);
            assert!(matches!(refused, Err(Error::QueueFull { depth: found, .. }) if found == depth), "{refused:?}");
            check_done(&pair.reap(0, depth as usize, "a whole queue"), first..first + u64::from(depth));
            assert_eq!(connection.queues[0].free_slots(), depth);
        }
        pair.settle("three laps");
        connection.close();
    }
    pair.close([]);
}

#[test]
fn rings_go_around_many_times() {
    let mut pair = Pair::new(Options { cq_depth: 8, ..small() });
    let mut connection = pair.connect(&Link { depth: 4, sges: 3, ..Link::default() });
    let mut rng = Rng::new(pair.options.seed, 5);
    let mut posted = 0;
    let mut done = 0;
    while done < 100 {
        while posted < 100 && connection.queues[0].free_slots() != 0 {
            let pieces = (0..rng.below(4)).map(|_| (rng.below(60_000) as usize, rng.below(300) as u32)).collect();
            pair.post(&mut connection, 0, posted, &Write { pieces, to: 64 + 1_100 * posted as usize }, WriteFlags::NONE).unwrap();
            posted += 1;
        }
        check_done(&pair.reap(0, 1, "the oldest of four"), [done]);
        done += 1;
    }
    pair.settle("25 laps");
    pair.close([connection]);
}

#[test]
fn sixteen_bits_of_a_request_index_wrap() {
    // More than 2^16 requests of no bytes, of which few make a completion.
    let mut pair = Pair::new(Options { cq_depth: 512, ..small() });
    let mut connection = pair.connect(&Link { depth: 512, ..Link::default() });
    let (last, every) = (66_000u64, 500);
    let mut expected = 0;
    for context in 0..=last {
        if connection.queues[0].free_slots() == 0 {
            check_done(&pair.reap(0, 1, "a completion of each 500 requests"), [expected]);
            expected += every;
        }
        let flags = if context % every == 0 { WriteFlags::NONE } else { WriteFlags::SILENT_SUCCESS };
        connection.queues[0].write(context, &[], 0, 0, if context % 16 == 0 { flags } else { flags | WriteFlags::DEFER }).unwrap();
    }
    connection.queues[0].ring_doorbell();
    while expected <= last {
        check_done(&pair.reap(0, 1, "the last completions"), [expected]);
        expected += every;
    }
    let write = Write::new(0, 100, 5_000);
    pair.post(&mut connection, 0, 7, &write, WriteFlags::NONE).unwrap();
    check_done(&pair.reap(0, 1, "a write behind the wrap"), [7]);
    pair.settle("66,000 requests");
    let report = connection.qps[0].query_blocking().unwrap();
    assert_eq!(report.sq_producer, (last + 2) as u16);
    pair.close([connection]);
}

#[test]
fn a_progress_record_is_never_a_lap_old() {
    // A silent request, then a lap of the 16 bits with completions alone, then silent ones of which nothing comes back.
    let pair = Pair::new(Options { cq_depth: 512, ..small() });
    let mut connection = pair.connect(&Link { depth: 512, ..Link::default() });
    connection.queues[0].write(0, &[], 0, 0, WriteFlags::SILENT_SUCCESS).unwrap();
    pair.wait_for("the silent request", || (connection.queues[0].free_slots() == 512).then_some(()));
    let mut next = 1u64;
    while next < 1 << 16 {
        let end = (next + 512).min(1 << 16) - 1;
        for context in next..end {
            connection.queues[0].write(context, &[], 0, 0, WriteFlags::DEFER).unwrap();
        }
        connection.queues[0].write(end, &[], 0, 0, WriteFlags::NONE).unwrap();
        check_done(&pair.reap(0, (end + 1 - next) as usize, "a queue full of completions"), next..=end);
        next = end + 1;
    }
    pair.world.lose(1, |_| true);
    for context in 0..512 {
        connection.queues[0].write(context, &[], 0, 0, WriteFlags::SILENT_SUCCESS).unwrap();
    }
    let full = connection.queues[0].write(512, &[], 0, 0, WriteFlags::SILENT_SUCCESS);
    assert!(matches!(full, Err(Error::QueueFull { .. })), "{full:?}");
    connection.qps[0].flush();
    let flushed = pair.reap(0, 512, "what nobody has acknowledged");
    assert!(flushed.iter().all(|entry| entry.status.raw() == CqeStatus::Flushed as u8));
    pair.world.lose_none(1);
    pair.close([connection]);
}

#[test]
fn packet_sequence_numbers_wrap_in_the_middle_of_a_message() {
    let mut pair = Pair::new(Options { capture: true, ..small() });
    let psn = [0xFF_FFFE, 0xFF_FFFF];
    let mut connection = pair.connect(&Link { psn, ..Link::default() });
    let mut expected = [Vec::new(), Vec::new()];
    for context in 0..6 {
        for from in [0, 1] {
            let len = [0, 3_000, 1_024, 1, 5_000, 2_048][context];
            let write = Write::new(64_000 + 7 * context, 200 + 6_000 * context, len);
            pair.post(&mut connection, from, context as u64, &write, WriteFlags::NONE).unwrap();
            for _ in 0..len.div_ceil(1024).max(1) {
                let next = (psn[from] + expected[from].len() as u32) & 0xFF_FFFF;
                expected[from].push(next);
            }
        }
    }
    for from in [0, 1] {
        check_done(&pair.reap(from, 6, "six writes around the wrap"), 0..6);
        let report = connection.qps[from].query_blocking().unwrap();
        let next = (psn[from] + expected[from].len() as u32) & 0xFF_FFFF;
        assert_eq!((report.next_psn.raw(), report.unacked_psn.raw(), report.state), (next, next, QpState::Rts));
        assert_eq!(connection.qps[1 - from].query_blocking().unwrap().expected_psn.raw(), next);
    }
    pair.settle("six writes");
    let packets = pair.close([connection]).packets;
    for from in [0, 1] {
        let found: Vec<u32> =
            packets.iter().filter(|packet| packet.from == from && packet.opcode != 0x11).map(|packet| packet.psn).collect();
        assert_eq!(found, expected[from], "PSNs of end {from}");
    }
}

#[test]
fn silent_requests_free_their_slots_and_make_no_completions() {
    let mut pair = Pair::new(Options { cq_depth: 8, ..small() });
    let mut connection = pair.connect(&Link { depth: 8, ..Link::default() });
    let last = 200;
    for context in 0..=last {
        // The CQ is never polled meanwhile.
        let start = pair.world.clock();
        while connection.queues[0].free_slots() == 0 {
            assert!(pair.world.clock() - start < 50_000, "waiting for the progress record to free a slot; {}", pair.describe());
            pair.run(50);
        }
        let flags = if context == last { WriteFlags::NONE } else { WriteFlags::SILENT_SUCCESS };
        let write = Write::new(17 * context as usize, 64 + 500 * context as usize, 333);
        pair.post(&mut connection, 0, context, &write, flags).unwrap();
    }
    check_done(&pair.reap(0, 1, "the one that is not silent"), [last]);
    pair.settle("201 writes");
    assert_eq!(pair.ends[0].adapter.read_counter(Counter::Cqes), 1);
    assert_eq!(pair.ends[0].adapter.read_counter(Counter::QueueOverruns), 0);
    pair.close([connection]);
}

#[test]
fn silent_and_other_requests_mix() {
    let mut pair = Pair::new(Options { cq_depth: 16, ..small() });
    let mut connection = pair.connect(&Link { depth: 16, ..Link::default() });
    let mut rng = Rng::new(pair.options.seed, 6);
    let mut expected = Vec::new();
    let mut found: Vec<Completion> = Vec::new();
    let mut room = [Completion::default(); 16];
    for context in 0..300u64 {
        let start = pair.world.clock();
        while connection.queues[0].free_slots() == 0 {
            assert!(pair.world.clock() - start < 50_000, "waiting for a free slot; {}", pair.describe());
            pair.run(50);
            let news = pair.ends[0].cq.poll(&mut room);
            found.extend(&room[..news]);
        }
        let is_silent = rng.percent(60);
        if !is_silent {
            expected.push(context);
        }
        let write = Write::new(17 * context as usize, 64 + 400 * context as usize, rng.below(390) as u32);
        let flags = if is_silent { WriteFlags::SILENT_SUCCESS } else { WriteFlags::NONE };
        pair.post(&mut connection, 0, context, &write, flags).unwrap();
    }
    found.extend(pair.reap(0, expected.len() - found.len(), "all that are not silent"));
    check_done(&found, expected);
    pair.settle("300 writes");
    pair.close([connection]);
}

/// Checks that each QP's completions are all there, once, and in order.
fn check_by_qp(found: &[Completion], connections: &[Connection], from: usize, each: u64) {
    let mut by_qp: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for done in found {
        assert!(done.status.is_success(), "{done:?}");
        by_qp.entry(done.qpn).or_default().push(done.context);
    }
    for (number, connection) in connections.iter().enumerate() {
        let contexts = by_qp.remove(&connection.qps[from].qpn()).unwrap_or_default();
        let first = 1000 * number as u64;
        assert_eq!(contexts, (first..first + each).collect::<Vec<_>>(), "completions of QP {number}");
    }
    assert!(by_qp.is_empty(), "completions of unknown QPs: {by_qp:?}");
}

/// Posts `each` writes on every connection from both ends, in turns, and waits for all of them.
fn all_at_once(pair: &mut Pair, connections: &mut [Connection], each: u64) {
    let count = connections.len();
    for round in 0..each {
        for (number, connection) in connections.iter_mut().enumerate() {
            for from in [0, 1] {
                let place = number * each as usize + round as usize;
                let write = Write::new(600_000 + 11 * place, 64 + 450 * place, (place % 449) as u32);
                pair.post(connection, from, 1000 * number as u64 + round, &write, WriteFlags::DEFER).unwrap();
            }
        }
    }
    for connection in connections.iter_mut() {
        connection.queues.iter_mut().for_each(|queue| queue.ring_doorbell());
    }
    for from in [0, 1] {
        let found = pair.reap(from, count * each as usize, "writes of all QPs");
        check_by_qp(&found, connections, from, each);
    }
}

#[test]
fn sixty_four_queue_pairs_share_a_completion_queue() {
    let mut pair = Pair::new(Options { mtu: 256, capture: true, ..Options::default() });
    let mut connections: Vec<Connection> =
        (0..64).map(|number| pair.connect(&Link { depth: 8, psn: [number * 999, number + 5], ..Link::default() })).collect();
    all_at_once(&mut pair, &mut connections, 8);
    pair.settle("512 writes each way");
    pair.close(connections);
}

#[test]
fn every_queue_pair_that_the_card_has_can_be_made_and_the_highest_are_used_like_the_lowest() {
    let mut pair = Pair::new(Options { mtu: 256, ..Options::default() });
    let count = pair.ends[0].adapter.info().max_qps as usize;
    let make = |number: usize| {
        let end = &pair.ends[number];
        let options = |index: usize| QpOptions { first_psn: Some(index as u32), ..QpOptions::sender(2) };
        (0..count).map(|index| Qp::create_blocking(&end.pd, &end.cq, &end.cq, options(index)).unwrap()).collect::<Vec<_>>()
    };
    let all = [make(0), make(1)];
    assert!(Qp::create_blocking(&pair.ends[0].pd, &pair.ends[0].cq, &pair.ends[0].cq, QpOptions::sender(2)).is_err(), "one too many");
    // A spread of numbers, and both ends of it: all would take minutes.
    let is_used = |index: usize| index < 100 || index % 16 == 0 || index + 100 >= count;
    let mut connections: Vec<Connection> = (0..count)
        .filter(|index| is_used(*index))
        .map(|index| pair.join([0, 1].map(|number| all[number][index].clone()), &Link::default()))
        .collect();
    all_at_once(&mut pair, &mut connections, 2);
    pair.settle("two writes each way on every QP");
    for qps in all {
        qps.into_iter().enumerate().filter(|(index, _)| !is_used(*index)).for_each(|(_, qp)| qp.close_blocking().unwrap());
    }
    pair.close(connections);
}

/// Creates a CQ whose callback counts its calls.
fn counted(pair: &Pair, depth: u32) -> (Arc<Cq>, Arc<AtomicU32>, Arc<AtomicU32>) {
    let (completions, overruns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (Arc::clone(&completions), Arc::clone(&overruns));
    let callback = move |_: &Arc<Cq>, notice: CqNotice| {
        let count = match notice {
            CqNotice::Completion => &counts.0,
            CqNotice::Overrun => &counts.1,
        };
        count.fetch_add(1, Ordering::SeqCst);
    };
    let cq = Cq::create_blocking(&pair.ends[0].adapter, depth, Some(Box::new(callback))).unwrap();
    (cq, completions, overruns)
}

#[test]
fn an_armed_queue_calls_back_once() {
    let mut pair = Pair::new(small());
    let (cq, calls, _) = counted(&pair, 16);
    let mut connection = pair.connect(&Link { cq: [Some(Arc::clone(&cq)), None], depth: 16, ..Link::default() });
    let count = || calls.load(Ordering::SeqCst);
    let mut post = |pair: &mut Pair, context| {
        pair.post(&mut connection, 0, context, &Write::new(9, 100, 50), WriteFlags::NONE).unwrap();
    };
    post(&mut pair, 0);
    check_done(&pair.reap_from(&cq, 1, "a write"), [0]);
    pair.settle("not armed");
    assert_eq!(count(), 0, "calls of a queue that was not armed");

    cq.arm(ArmKind::Any);
    pair.settle("armed, nothing new");
    assert_eq!(count(), 0, "calls before there is a completion");
    post(&mut pair, 1);
    pair.wait_for("the call of an armed queue", || (count() == 1).then_some(()));
    post(&mut pair, 2);
    check_done(&pair.reap_from(&cq, 2, "two writes"), [1, 2]);
    pair.settle("not armed again");
    assert_eq!(count(), 1, "calls after one arm");

    // The completion is there before the arm, and was not polled.
    post(&mut pair, 3);
    pair.run(4_000);
    cq.arm(ArmKind::Any);
    pair.wait_for("the call for a completion that was there before", || (count() == 2).then_some(()));
    check_done(&pair.reap_from(&cq, 1, "a write"), [3]);
    pair.settle("after the arm");
    assert_eq!(count(), 2);
    connection.close();
    cq.close_blocking().unwrap();
    pair.close([]);
}

#[test]
fn no_event_is_lost_wherever_the_arm_meets_the_completion() {
    let mut pair = Pair::new(small());
    let (cq, calls, _) = counted(&pair, 16);
    let mut connection = pair.connect(&Link { cq: [Some(Arc::clone(&cq)), None], depth: 16, ..Link::default() });
    // From arms that come long before the completion to arms that come behind it, and each clock around it.
    pair.post(&mut connection, 0, 0, &Write::new(9, 100, 50), WriteFlags::NONE).unwrap();
    let start = pair.world.clock();
    let mut room = [Completion::default()];
    while cq.poll(&mut room) == 0 {
        assert!(pair.world.clock() - start < 50_000, "waiting for a first completion; {}", pair.describe());
        pair.run(1);
    }
    let latency = pair.world.clock() - start;
    let mut delays: Vec<u64> = (0..latency + 200).step_by(97).collect();
    delays.extend(latency.saturating_sub(160)..latency + 10);
    for (delay, context) in delays.into_iter().zip(1..) {
        let before = calls.load(Ordering::SeqCst);
        pair.post(&mut connection, 0, context, &Write::new(9, 100, 50), WriteFlags::NONE).unwrap();
        pair.run(delay);
        cq.arm(ArmKind::Any);
        pair.wait_for(&format!("the call of an arm {delay} clocks behind the doorbell"), || {
            (calls.load(Ordering::SeqCst) != before).then_some(())
        });
        assert_eq!(calls.load(Ordering::SeqCst), before + 1, "calls of one arm, {delay} clocks behind the doorbell");
        check_done(&pair.reap_from(&cq, 1, "a write"), [context]);
    }
    pair.settle("all arms");
    connection.close();
    cq.close_blocking().unwrap();
    pair.close([]);
}

#[test]
fn an_arm_for_solicited_completions_ignores_what_went_well_and_hears_of_a_failure() {
    let mut pair = Pair::new(small());
    let (cq, calls, _) = counted(&pair, 16);
    let mut connection = pair.connect(&Link { cq: [Some(Arc::clone(&cq)), None], depth: 16, ..Link::default() });
    cq.arm(ArmKind::Solicited);
    for context in 0..3 {
        pair.post(&mut connection, 0, context, &Write::new(9, 100, 50), WriteFlags::NONE).unwrap();
    }
    check_done(&pair.reap_from(&cq, 3, "three writes"), 0..3);
    pair.settle("three writes that went well");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    connection.queues[0].write(3, &[pair.ends[0].region.sge(0, 4)], 0, 0, WriteFlags::NONE).unwrap();
    pair.wait_for("the call for an error", || (calls.load(Ordering::SeqCst) == 1).then_some(()));
    let found = pair.reap_from(&cq, 1, "a refused write");
    assert_eq!(found[0].status, CompletionStatus::Card(CqeStatus::RemoteAccess));
    pair.settle("after the error");
    connection.close();
    cq.close_blocking().unwrap();
    pair.close([]);
}

#[test]
fn a_completion_queue_that_overruns_dies_alone() {
    let mut pair = Pair::new(small());
    let (cq, calls, overruns) = counted(&pair, 4);
    let mut connection = pair.connect(&Link { cq: [Some(Arc::clone(&cq)), None], depth: 16, ..Link::default() });
    let mut other = pair.connect(&Link::default());
    // Errors of the queue itself, and of nothing else.
    cq.arm(ArmKind::Errors);
    for context in 0..8 {
        // Twice as many as the CQ holds, and nobody polls.
        pair.post(&mut connection, 0, context, &Write::new(9, 100, 50), WriteFlags::NONE).unwrap();
        pair.post(&mut other, 0, context, &Write::new(999, 1_000 + 100 * context as usize, 60), WriteFlags::NONE).unwrap();
    }
    pair.wait_for("the call for the overrun", || (overruns.load(Ordering::SeqCst) == 1).then_some(()));
    assert!(cq.is_dead());
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let refused = connection.queues[0].write(9, &[], 0, 0, WriteFlags::NONE);
    assert!(matches!(refused, Err(Error::NotConnected { .. })), "{refused:?}");
    check_done(&pair.reap(0, 8, "writes of another QP"), 0..8);
    for context in 8..12 {
        pair.post(&mut other, 0, context, &Write::new(99, 2_000 + 100 * context as usize, 60), WriteFlags::NONE).unwrap();
    }
    check_done(&pair.reap(0, 4, "writes of another QP after the overrun"), 8..12);
    connection.close();
    cq.close_blocking().unwrap();
    pair.settle("after the overrun");
    pair.close([other]);
}

/// Starts long writes, closes the QP of end `closed` in the middle, and sees that everything else goes on.
fn closed_while_busy(closed: usize) {
    for after in [0, 300, 1_500, 4_000, 9_000] {
        let mut pair = Pair::new(Options { region_bytes: 2 << 20, mtu: 1024, ..Options::default() });
        pair.ends[1].region.randomise(77);
        let mut busy = pair.connect(&Link { depth: 32, ..Link::default() });
        let mut other = pair.connect(&Link::default());
        let (each, count) = (60_000u32, 16u64);
        let first = 1 << 20;
        for context in 0..count {
            let (source, target) = (&pair.ends[0].region, &pair.ends[1].region);
            let sge = source.sge(first + 50_000 * context as usize, each);
            let va = target.va(first + 60_003 * context as usize);
            busy.queues[0].write(context, &[sge], va, target.key(), WriteFlags::NONE).unwrap();
        }
        for context in 0..6 {
            // Neither what the long writes read nor what they write, nor each other's sources.
            let write = Write::new(850_000 + 100 * context as usize, 900_064 + 10_000 * context as usize, 9_000);
            pair.post(&mut other, context as usize % 2, context, &write, WriteFlags::NONE).unwrap();
        }
        pair.run(after);
        let Connection { qps: [near, far], queues } = busy;
        drop(queues);
        let qpns = [near.qpn(), far.qpn()];
        let (victim, survivor) = if closed == 0 { (near, far) } else { (far, near) };
        victim.close_blocking().unwrap();
        pair.run(3_000);
        survivor.close_blocking().unwrap();
        let found = pair.reap(0, count as usize + 3, "all that were under way");
        let (mine, others): (Vec<Completion>, Vec<Completion>) = found.into_iter().partition(|done| done.qpn == qpns[0]);
        check_done(&others, [0, 2, 4]);
        check_done(&pair.reap(1, 3, "writes of another QP"), [1, 3, 5]);
        let contexts: Vec<u64> = mine.iter().map(|done| done.context).collect();
        assert_eq!(contexts, (0..count).collect::<Vec<_>>(), "each completes once, in order");
        let done = mine.iter().take_while(|done| done.status.is_success()).count();
        assert!(mine[done..].iter().all(|done| done.status == CompletionStatus::Card(CqeStatus::Flushed)), "{mine:?}");
        for context in 0..count as usize {
            let bytes = pair.ends[0].region.expected(first + 50_000 * context, each as usize).to_vec();
            let to = first + 60_003 * context;
            if context < done {
                pair.ends[1].region.expect(to, &bytes);
            } else {
                pair.ends[1].region.adopt(to, &bytes);
            }
        }
        pair.settle(&format!("closed after {after} clocks"));

        let mut fresh = pair.connect(&Link { psn: [1, 2], ..Link::default() });
        for context in 0..4 {
            for (from, connection) in [(0, &mut fresh), (1, &mut other)] {
                let write = Write::new(500_000 + 100 * context as usize, 200_000 + 10_000 * context as usize, 9_000);
                pair.post(connection, from, context, &write, WriteFlags::NONE).unwrap();
            }
        }
        check_done(&pair.reap(0, 4, "a new QP"), 0..4);
        check_done(&pair.reap(1, 4, "the other QP"), 0..4);
        pair.settle("at the end");
        pair.close([fresh, other]);
    }
}

#[test]
fn a_sender_that_is_closed_while_busy_leaves_both_cards_working() {
    closed_while_busy(0);
}

#[test]
fn a_receiver_that_is_closed_while_busy_leaves_both_cards_working() {
    closed_while_busy(1);
}

#[test]
fn a_flush_ends_every_request_once() {
    let mut pair = Pair::new(Options { region_bytes: 2 << 20, ..Options::default() });
    let mut connection = pair.connect(&Link { depth: 32, ..Link::default() });
    for context in 0..20u64 {
        let (source, target) = (&pair.ends[0].region, &pair.ends[1].region);
        let flags = if context % 3 == 1 { WriteFlags::SILENT_SUCCESS } else { WriteFlags::NONE };
        let flags = if context < 15 { flags } else { flags | WriteFlags::DEFER };
        connection.queues[0].write(context, &[source.sge(0, 50_000)], target.va(64), target.key(), flags).unwrap();
    }
    pair.run(5_000);
    connection.qps[0].flush();
    let refused = connection.queues[0].write(20, &[], 0, 0, WriteFlags::NONE);
    assert!(matches!(refused, Err(Error::NotConnected { state: QpState::Error, .. })), "{refused:?}");
    // Those that were done already made a completion unless they were silent; all others make one.
    pair.run(30_000);
    pair.process_events();
    let mut room = [Completion::default(); 32];
    let found = pair.ends[0].cq.poll(&mut room);
    let contexts: Vec<u64> = room[..found].iter().map(|done| done.context).collect();
    let done = room[..found].iter().filter(|done| done.status.is_success()).count();
    let flushed: Vec<u64> = room[done..found].iter().map(|done| done.context).collect();
    let first = *flushed.first().expect("something was under way");
    assert_eq!(flushed, (first..20).collect::<Vec<_>>(), "all from the first that was flushed; all: {contexts:?}");
    assert_eq!(contexts[..done], (0..first).filter(|context| context % 3 != 1).collect::<Vec<_>>(), "those before it");
    let bytes = pair.ends[0].region.expected(0, 50_000).to_vec();
    pair.ends[1].region.adopt(64, &bytes);
    pair.settle("after the flush");
    pair.close([connection]);
}

#[test]
fn the_same_numbers_can_be_connected_fifty_times() {
    let mut pair = Pair::new(small());
    let mut rng = Rng::new(pair.options.seed, 8);
    // The driver hands the number out that was not used for longest. With all others taken it is always the same.
    let count = pair.ends[0].adapter.info().max_qps as usize;
    let others: Vec<_> = (1..count)
        .map(|_| {
            [0, 1].map(|number| {
                let end = &pair.ends[number];
                Qp::create_blocking(&end.pd, &end.cq, &end.cq, QpOptions::sender(0)).unwrap()
            })
        })
        .collect();
    let mut numbers = None;
    for round in 0..50u64 {
        let psn = [rng.next_u64() as u32 & 0xFF_FFFF, rng.next_u64() as u32 & 0xFF_FFFF];
        let mut connection = pair.connect(&Link { psn, depth: 4, ..Link::default() });
        let found = [connection.qps[0].qpn(), connection.qps[1].qpn()];
        assert_eq!(*numbers.get_or_insert(found), found, "numbers in round {round}");
        for from in [0, 1] {
            let write = Write::new(100_000 + 10 * round as usize, 64 + 1_200 * round as usize, 1_100);
            pair.post(&mut connection, from, round, &write, WriteFlags::NONE).unwrap();
            check_done(&pair.reap(from, 1, &format!("a write in round {round}")), [round]);
        }
        connection.close();
    }
    for qp in others.into_iter().flatten() {
        qp.close_blocking().unwrap();
    }
    pair.settle("fifty rounds");
    pair.close([]);
}
