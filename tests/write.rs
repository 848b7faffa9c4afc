//! Writes of every alignment, length, number of SGEs and MTU. `cargo run --release -p verbena-tests --bin alignments` runs the whole product.

use verbena_host::WriteFlags;
use verbena_sim::rng::Rng;
use verbena_tests::alignments::{lengths, Case, Runner, LONG, MTUS, PAIRS, SGES};
use verbena_tests::pair::{check_done, Link, Options, Pair, Write, WRITABLE};
use verbena_tests::region::{Region, MARGIN};
use verbena_tests::repeat;

/// Runs the share of one MTU: each length with each number of SGEs at least once, and a fifth of the 64 x 64 pairs of
/// alignments, so that the tests of all MTUs together have each pair.
fn writes_of_mtu(number: usize) {
    let seed = repeat::seed();
    let mtu = MTUS[number];
    let mut rng = Rng::new(seed, 0);
    let mut pairs: Vec<usize> = (0..PAIRS).collect();
    for last in (1..PAIRS).rev() {
        pairs.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut share = pairs.into_iter().skip(number).step_by(MTUS.len());
    let mut cases = Vec::new();
    let combinations: Vec<(u32, usize)> = lengths(mtu).iter().flat_map(|len| (1..=SGES).map(|sges| (*len, sges))).collect();
    for (len, sges) in &combinations {
        cases.push(Case::new(share.next().expect("there are more pairs than combinations"), *len, *sges));
    }
    let short = combinations.iter().filter(|(len, _)| *len != LONG).cycle();
    cases.extend(share.zip(short).map(|(pair, (len, sges))| Case::new(pair, *len, *sges)));
    for last in (1..cases.len()).rev() {
        cases.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut runner = Runner::new(mtu, seed);
    runner.run(cases);
    runner.finish();
}

#[test]
fn writes_of_every_alignment_arrive_at_mtu_256() {
    writes_of_mtu(0);
}

#[test]
fn writes_of_every_alignment_arrive_at_mtu_512() {
    writes_of_mtu(1);
}

#[test]
fn writes_of_every_alignment_arrive_at_mtu_1024() {
    writes_of_mtu(2);
}

#[test]
fn writes_of_every_alignment_arrive_at_mtu_2048() {
    writes_of_mtu(3);
}

#[test]
fn writes_of_every_alignment_arrive_at_mtu_4096() {
    writes_of_mtu(4);
}

#[test]
fn six_entries_of_one_byte_each_are_one_message() {
    let mut pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link { sges: 6, ..Link::default() });
    for (context, used) in (0..).zip([6, 5, 3]) {
        let write = Write { pieces: (0..used).map(|piece| (4096 * piece + 63 + piece, 1)).collect(), to: 200 * context as usize + 61 };
        pair.post(&mut connection, 0, context, &write, WriteFlags::NONE).unwrap();
    }
    check_done(&pair.reap(0, 3, "three writes"), 0..3);
    pair.settle("three writes");
    pair.close([connection]);
}

#[test]
fn an_address_and_its_bus_address_may_differ_modulo_64() {
    let pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link::default());
    let end = &pair.ends[1];
    let whole = end.device.clone() as std::sync::Arc<dyn verbena_host::Device>;
    let whole = whole.alloc(3 * MARGIN, 4096).unwrap();
    let mut odd = Region::on(whole, 37, 1000, &end.pd, 0xFFFF_FFFF_0000_0011, WRITABLE);
    let source = &pair.ends[0].region;
    for (context, (from, to, len)) in (0..).zip([(5usize, 0usize, 63usize), (64, 64, 64), (131, 129, 500), (9, 999, 1), (700, 640, 300)]) {
        connection.queues[0].write(context, &[source.sge(from, len as u32)], odd.va(to), odd.key(), WriteFlags::NONE).unwrap();
        odd.expect(to, source.expected(from, len));
    }
    check_done(&pair.reap(0, 5, "five writes"), 0..5);
    odd.check("the odd region");
    odd.close();
    pair.settle("five writes");
    pair.close([connection]);
}

#[test]
fn both_directions_at_once_do_not_mix() {
    let mut pair = Pair::new(Options { mtu: 1024, ..Options::default() });
    let mut rng = Rng::new(pair.options.seed, 7);
    // Each end's upper half is source, its lower half target.
    let half = 1 << 19;
    pair.ends[0].region.clear(0, half);
    let mut connection = pair.connect(&Link::default());
    let mut to = [64, 64];
    for context in 0..60 {
        for from in [0, 1] {
            let len = rng.below(5000) as usize;
            let write = Write::new(half + rng.below((half - len) as u64) as usize, to[from], len as u32);
            pair.post(&mut connection, from, context, &write, WriteFlags::NONE).unwrap();
            to[from] += len + rng.below(64) as usize + 1;
        }
    }
    for from in [0, 1] {
        check_done(&pair.reap(from, 60, "60 writes"), 0..60);
    }
    pair.settle("120 writes");
    pair.close([connection]);
}

#[test]
fn inline_data_of_every_length_arrives_at_every_alignment_among_other_writes() {
    let seed = repeat::seed();
    // Without and with a second unit, behind headers of each length.
    for (number, limit) in [(0, 32usize), (1, 96), (2, 96), (3, 32)] {
        let (ipv6, vlan) = (number % 2 == 1, (number / 2 == 1).then_some(5));
        let mut pair = Pair::new(Options { seed, ipv6, vlan, ..Options::default() });
        let mut rng = Rng::new(seed, number);
        let mut connection = pair.connect(&Link { inline_bytes: limit as u32, ..Link::default() });
        let mut cases: Vec<(usize, usize)> = (0..=limit).flat_map(|len| (0..3).map(move |_| len)).zip((0..64).cycle()).collect();
        for last in (1..cases.len()).rev() {
            cases.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let (mut context, mut to) = (0, 64);
        for chunk in cases.chunks(20) {
            let first = context;
            for (len, alignment) in chunk {
                let bytes: Vec<u8> = (0..*len).map(|_| verbena_tests::region::source_byte(rng.next_u64() as u8)).collect();
                let at = to + alignment;
                pair.post_inline(&mut connection, 0, context, &bytes, at, WriteFlags::DEFER).unwrap();
                to = (at + len + 64) & !63;
                context += 1;
                if rng.below(3) == 0 {
                    let write = Write::new(rng.below(400_000) as usize, to + alignment, 1 + rng.below(700) as u32);
                    pair.post(&mut connection, 0, context, &write, WriteFlags::DEFER).unwrap();
                    to = (to + alignment + 764) & !63;
                    context += 1;
                }
            }
            connection.queues[0].ring_doorbell();
            check_done(&pair.reap(0, (context - first) as usize, "inline writes"), first..context);
        }
        pair.settle("inline writes");
        pair.close([connection]);
    }
}

#[test]
fn the_source_of_an_inline_write_is_free_at_once() {
    let mut pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link { inline_bytes: 96, ..Link::default() });
    let mut bytes = [0x11; 96];
    pair.post_inline(&mut connection, 0, 0, &bytes, 333, WriteFlags::INLINE).unwrap();
    bytes.fill(0x22);
    pair.post_inline(&mut connection, 0, 1, &bytes[..40], 1333, WriteFlags::NONE).unwrap();
    bytes.fill(0x33);
    check_done(&pair.reap(0, 2, "two writes"), 0..2);
    pair.settle("two writes");
    pair.close([connection]);
}
