//! Random pauses on all ports of both cards, and runs that are the same clock by clock.

use verbena_host::WriteFlags;
use verbena_sim::rng::Rng;
use verbena_tests::pair::{check_done, Connection, Link, Options, Outcome, Pair, Write};

/// Runs `count` random writes each way. What is written, and where, depends on `seed` alone; the timing also on `chance`.
fn writes(stalls: u8, seed: u64, chance: u64, mtu: u32, count: u64) -> (Outcome, Vec<u8>) {
    let mut pair = Pair::new(Options { stalls, seed: chance, mtu, capture: true, region_bytes: 2 << 20, ..Options::default() });
    let half = 1 << 20;
    for end in &mut pair.ends {
        end.region.randomise(seed);
        end.region.clear(0, half);
    }
    let mut rng = Rng::new(seed, 1);
    let mut connections = [10, 0xFF_FFF0].map(|psn| pair.connect(&Link { psn: [psn, psn], sges: 4, depth: 32, ..Link::default() }));
    let mut to = [64; 2];
    let mut done = [[0; 2]; 2];
    for context in 0..count {
        for from in [0, 1] {
            let which = (context & 1) as usize;
            let number = context / 2;
            // The CQ is shared: what comes first may belong to the other QP.
            while number - done[from][which] == 32 {
                reap(&pair, &connections, from, &mut done);
            }
            let long = rng.percent(10);
            let pieces: Vec<(usize, u32)> = (0..1 + rng.below(4))
                .map(|_| (half + rng.below(half as u64 - 8_000) as usize, rng.below(if long { 2_500 } else { 300 }) as u32))
                .collect();
            let len: u32 = pieces.iter().map(|(_, len)| len).sum();
            pair.post(&mut connections[which], from, number, &Write { pieces, to: to[from] }, WriteFlags::NONE).unwrap();
            to[from] += len as usize + 1 + rng.below(70) as usize;
        }
    }
    for from in [0, 1] {
        while done[from] != [count / 2; 2] {
            reap(&pair, &connections, from, &mut done);
        }
    }
    pair.settle("random writes each way");
    let memory: Vec<u8> = pair.ends.iter().flat_map(|end| end.region.mr.memory().to_vec()).collect();
    (pair.close(connections), memory)
}

/// Takes one completion of end `from`.
fn reap(pair: &Pair, connections: &[Connection; 2], from: usize, done: &mut [[u64; 2]; 2]) {
    let found = pair.reap(from, 1, "random writes");
    let which = usize::from(found[0].qpn == connections[1].qps[from].qpn());
    check_done(&found, [done[from][which]]);
    done[from][which] += 1;
}

#[test]
fn writes_arrive_in_spite_of_few_pauses() {
    let seed = verbena_tests::repeat::seed();
    writes(10, seed, seed, 1024, 200);
}

#[test]
fn writes_arrive_in_spite_of_many_pauses() {
    let seed = verbena_tests::repeat::seed();
    writes(50, seed, seed, 256, 200);
}

#[test]
fn writes_arrive_when_ports_hardly_ever_move() {
    let seed = verbena_tests::repeat::seed();
    writes(85, seed, seed, 4096, 60);
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let seed = verbena_tests::repeat::seed();
    for stalls in [0, 30] {
        let (first, memory) = writes(stalls, seed, seed, 512, 60);
        let (again, same) = writes(stalls, seed, seed, 512, 60);
        assert_eq!(first.clocks, again.clocks, "clocks of two runs of seed {seed} with {stalls} % pauses");
        assert!(!first.capture.is_empty() && first.capture == again.capture, "captures of two runs differ, {stalls} % pauses");
        assert!(memory == same, "memories of two runs differ, {stalls} % pauses");
        let (other, same) = writes(stalls, seed, seed + 1, 512, 60);
        assert!(first.capture != other.capture, "another seed has the same timing, {stalls} % pauses");
        assert!(memory == same, "another timing has another result, {stalls} % pauses");
    }
}
