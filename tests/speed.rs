//! How fast: counted in clocks, so the machine that runs the tests does not matter.
//!
//! A test for each column of the table that the card is held to (`docs/performance.md`), with a shorter run than
//! `verbena bench write` takes; a cell that is missed is named with its figure. PCIe is the default, Gen3 x16 with 800 ns.

use std::fmt::Write;

use verbena_sim::bench::{depth, Bench, BenchOptions, Part};

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// Measures each size, and fails with the list of those whose share of the limit, in per cent, is below the bar.
fn column(options: BenchOptions, cells: &[(u32, f64)]) {
    let options = BenchOptions { warm_up: 8_000, clocks: 16_000, ..options };
    let mut missed = String::new();
    let mut idle = None;
    for &(size, bar) in cells {
        let bench = Bench::prepare(idle.take(), options, depth(size, options.qps), size).unwrap();
        let (point, bench) = bench.measure(size).unwrap_or_else(|error| panic!("{size} bytes: {error}"));
        idle = bench;
        let share = 100.0 * point.share;
        println!("{size:>9} bytes, {:>3} QPs: {:.2} Gb/s, {share:.2} % of the limit", options.qps, point.gbps);
        assert_eq!(point.dropped, 0, "{size} bytes: frames were dropped");
        if share < bar {
            writeln!(missed, "{size} bytes: {share:.2} % of the limit, the bar is {bar} %").unwrap();
        }
    }
    assert!(missed.is_empty(), "{} QPs, MTU {}:\n{missed}", options.qps, options.mtu);
}

#[test]
fn one_queue_pair_reaches_the_limit_of_the_wire() {
    let cells = [(64, 97.0), (256, 99.0), (KIB, 99.0), (4 * KIB, 99.0), (64 * KIB, 99.5), (MIB, 99.5), (16 * MIB, 99.5)];
    column(BenchOptions::default(), &cells);
}

#[test]
fn sixteen_queue_pairs_reach_the_limit_of_the_wire() {
    let cells = [(8, 90.0), (64, 99.0), (256, 99.0), (KIB, 99.0), (4 * KIB, 99.0), (64 * KIB, 99.5), (MIB, 99.5), (16 * MIB, 99.5)];
    column(BenchOptions { qps: 16, ..BenchOptions::default() }, &cells);
}

#[test]
fn two_hundred_and_fifty_six_queue_pairs_reach_the_limit_of_the_wire() {
    let cells = [(8, 90.0), (64, 99.0), (256, 99.0), (KIB, 99.0), (4 * KIB, 99.0), (64 * KIB, 99.5), (MIB, 99.5), (16 * MIB, 99.5)];
    column(BenchOptions { qps: 256, ..BenchOptions::default() }, &cells);
}

#[test]
fn both_directions_at_once_reach_the_limit_of_the_wire() {
    // 8 bytes are reported, not held to a bar.
    let cells = [(64, 95.0), (256, 99.0), (KIB, 99.0), (4 * KIB, 99.0), (64 * KIB, 99.0), (MIB, 99.0), (16 * MIB, 99.0)];
    column(BenchOptions { qps: 16, both: true, ..BenchOptions::default() }, &cells);
}

#[test]
fn the_limit_is_reached_at_mtu_1024_too() {
    for qps in [1, 16] {
        let cells = [(KIB, 99.0), (4 * KIB, 99.0), (64 * KIB, 99.5), (MIB, 99.5), (16 * MIB, 99.5)];
        column(BenchOptions { qps, mtu: 1024, ..BenchOptions::default() }, &cells);
    }
}

#[test]
fn a_thousand_queue_pairs_reach_the_limit_of_the_wire() {
    column(BenchOptions { qps: 1024, ..BenchOptions::default() }, &[(8, 90.0), (64, 99.0)]);
}

#[test]
fn inline_data_makes_one_queue_pair_reach_the_limit_with_the_shortest_messages() {
    column(BenchOptions { inline: true, ..BenchOptions::default() }, &[(8, 97.0), (64, 99.0)]);
}

/// Returns the clocks that both cards take for a write of 64 bytes.
fn clocks_of_64_bytes(inline: bool) -> u64 {
    let mut bench = Bench::new(BenchOptions { inline, ..BenchOptions::default() }, 8, 64).unwrap();
    bench.latency(64).unwrap();
    let latency = bench.latency(64).unwrap();
    for stage in &latency.stages {
        println!("{:5} {:>4}  {}", format!("{:?}", stage.part), stage.clocks, stage.name);
    }
    bench.close().unwrap();
    latency.clocks_in(Part::Card)
}

#[test]
fn the_cards_take_125_clocks_for_an_inline_write_of_64_bytes() {
    let clocks = clocks_of_64_bytes(true);
    assert!(clocks <= 125, "{clocks} clocks in the cards");
}

#[test]
fn the_cards_take_135_clocks_for_a_write_of_64_bytes_from_memory() {
    let clocks = clocks_of_64_bytes(false);
    assert!(clocks <= 135, "{clocks} clocks in the cards");
}
