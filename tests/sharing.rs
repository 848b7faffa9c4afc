//! How queue pairs share the wire: turns of eight requests or 32 KiB, whatever the size of a message and whoever is silent.

use verbena_abi::limits::{FETCH_AHEAD, FETCH_BATCH, TURN_BYTES};
use verbena_abi::regs::Counter;
use verbena_host::{Completion, Qp, QpOptions, QpPeer, Sge, WriteFlags};
use verbena_tests::pair::{check_done, Connection, Link, Options, Pair, Write};

const MIB: u32 = 1 << 20;
/// Queue pairs with short messages beside one with long ones.
const SHORT: f64 = 255.0;

/// A queue pair that is kept busy with messages of one size.
struct Flow {
    connection: Connection,
    message: u32,
    completed: u64,
}

impl Flow {
    fn new(pair: &Pair, message: u32, depth: u32, psn: u32) -> Self {
        Self { connection: pair.connect(&Link { depth, psn: [psn, psn], ..Link::default() }), message, completed: 0 }
    }

    /// Posts as much as fits, and rings once.
    fn post(&mut self, pair: &Pair, index: usize) {
        let queue = &mut self.connection.queues[0];
        let [from, to] = &pair.ends;
        for _ in 0..queue.free_slots() {
            let sge = Sge { len_bytes: self.message, ..from.region.sge(0, 0) };
            queue.write(index as u64, &[sge], to.region.va(0), to.region.key(), WriteFlags::DEFER).unwrap();
        }
        queue.ring_doorbell();
    }
}

/// Keeps all flows busy for `clocks` clocks, and counts what completes.
fn run(pair: &Pair, flows: &mut [Flow], clocks: u64) {
    let end = pair.world.clock() + clocks;
    let mut room = [Completion::default(); 256];
    while pair.world.clock() < end {
        let count = pair.ends[0].cq.poll(&mut room);
        for completion in &room[..count] {
            assert!(completion.status.is_success(), "{completion:?}");
            flows[completion.context as usize].completed += 1;
        }
        if count < room.len() {
            flows.iter_mut().enumerate().for_each(|(index, flow)| flow.post(pair, index));
            pair.run(64);
        }
    }
}

/// Returns what each flow completed in `clocks` clocks after a warm-up, and the payload that arrived.
fn measure(pair: &Pair, flows: &mut [Flow], clocks: u64) -> (Vec<u64>, u64) {
    run(pair, flows, 20_000);
    let before: Vec<u64> = flows.iter().map(|flow| flow.completed).collect();
    let payload = pair.world.counts(1).rx.payload;
    run(pair, flows, clocks);
    (flows.iter().zip(before).map(|(flow, before)| flow.completed - before).collect(), pair.world.counts(1).rx.payload - payload)
}

/// Large messages write where nobody looks: what arrives is not compared here, but counted.
fn pair() -> Pair {
    Pair::new(Options { region_bytes: 4 * MIB as usize, cq_depth: 16_384, ..Options::default() })
}

#[test]
fn a_queue_pair_with_long_messages_gets_its_turns_and_no_more_among_255_with_short_ones() {
    let pair = pair();
    let mut flows: Vec<Flow> =
        (0..256).map(|index| Flow::new(&pair, if index == 0 { MIB } else { 64 }, if index == 0 { 4 } else { 64 }, index)).collect();
    let (completed, payload) = measure(&pair, &mut flows, 60_000);
    let short: u64 = completed[1..].iter().sum();
    let long_bytes = payload - 64 * short;
    // A round: one turn of 32 KiB and 255 turns of eight requests. What is fetched ahead goes before a message that goes on.
    let ahead = (FETCH_AHEAD / FETCH_BATCH) as f64 / SHORT;
    let rounds = long_bytes as f64 / TURN_BYTES as f64;
    let share = short as f64 / SHORT / FETCH_BATCH as f64 / rounds;
    println!("{rounds:.1} rounds; {share:.3} turns of each other queue pair in a round");
    assert!(rounds > 5.0, "{rounds} turns of the long messages");
    assert!((0.85..1.15 + ahead).contains(&share), "{share} turns of a short queue pair for each of the long one");
    let (least, most) = (completed[1..].iter().min().unwrap(), completed[1..].iter().max().unwrap());
    assert!(*most - *least <= 2 * 64, "short ones are served alike: {least} to {most}");
}

#[test]
fn long_messages_of_several_queue_pairs_advance_together_and_arrive_whole() {
    let mut pair = pair();
    let mut connections: Vec<Connection> =
        (0..3).map(|index| pair.connect(&Link { depth: 4, psn: [0xFF_FF00 + index, index], ..Link::default() })).collect();
    // Odd lengths in two pieces, so that turns end inside a piece and between two.
    for (index, connection) in connections.iter_mut().enumerate() {
        for round in 0..2 {
            let (len, place) = (200_001 + 7 * index as u32, 2 * index + round);
            let write = Write { pieces: vec![(13 + place, 70_000 + round as u32), (500_000 + index, len)], to: 300_000 * place + 5 };
            pair.post(connection, 0, (10 * index + round) as u64, &write, WriteFlags::DEFER).unwrap();
        }
    }
    connections.iter_mut().for_each(|connection| connection.queues[0].ring_doorbell());
    let mut completions = pair.reap(0, 6, "six long writes");
    // The first messages of all end before the second of any.
    let first: Vec<u64> = completions[..3].iter().map(|completion| completion.context % 10).collect();
    assert_eq!(first, [0; 3], "they advance together");
    completions.sort_by_key(|completion| completion.context);
    check_done(&completions, [0, 1, 10, 11, 20, 21]);
    pair.settle("six long writes");
    pair.close(connections);
}

#[test]
fn a_silent_peer_costs_the_others_nothing() {
    let mut payloads = [0, 0];
    for (has_silent, payload) in [(false, 0), (true, 1)] {
        let pair = pair();
        // Its peer stays in RESET, so what it sends is dropped there and never answered.
        let silent = has_silent.then(|| {
            let make = |number: usize| {
                let end = &pair.ends[number];
                Qp::create_blocking(&end.pd, &end.cq, &end.cq, QpOptions { first_psn: Some(9), ..QpOptions::sender(64) }).unwrap()
            };
            let (mine, peer) = (make(0), make(1));
            mine.connect_blocking(&QpPeer::new(peer.address(), 4096)).unwrap();
            let mut queue = mine.take_send_queue().unwrap();
            let [from, to] = &pair.ends;
            for context in 0..64 {
                queue
                    .write(1_000_000 + context, &[from.region.sge(0, 70_000)], to.region.va(0), to.region.key(), WriteFlags::DEFER)
                    .unwrap();
            }
            queue.ring_doorbell();
            (mine, peer, queue)
        });
        // The silent one sends what it may, 4.5 MB, before all are measured.
        pair.run(if has_silent { 120_000 } else { 100 });
        let mut flows: Vec<Flow> = (0..16).map(|index| Flow::new(&pair, 256, 64, index)).collect();
        payloads[payload] = measure(&pair, &mut flows, 20_000).1;
        let ignored = pair.ends[1].adapter.read_counters().get(Counter::RxNoQp);
        assert_eq!(ignored > 500, has_silent, "{ignored} packets of the silent one's requests came for nobody");
        drop(silent);
    }
    println!("{} bytes without, {} bytes with a silent peer", payloads[0], payloads[1]);
    assert!(
        payloads[1].abs_diff(payloads[0]) * 1000 <= payloads[0],
        "{} bytes without, {} bytes with a silent peer",
        payloads[0],
        payloads[1]
    );
}
