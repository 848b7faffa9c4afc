//! What `verbena bench` found, for people and for programs.

use std::path::PathBuf;

use serde::Serialize;
use verbena_sim::bench::{BenchOptions, Bound, CardStages, Latency, Part, Point};
use verbena_sim::ffi::CLOCK_NS;

use super::report::thousands;

/// All measurements of a call.
#[derive(Debug, Serialize)]
pub struct Report {
    pub pcie: &'static str,
    pub host_latency_ns: u64,
    pub link_latency_ns: u64,
    pub seed: u64,
    pub points: Vec<Point>,
    pub latencies: Vec<Latency>,
    /// Clocks of the measurements, and how fast they were simulated.
    pub clocks: u64,
    pub clocks_per_second: f64,
    /// Pictures of it.
    pub svg: Vec<PathBuf>,
}

/// Returns how many queue pairs.
pub fn queue_pairs(qps: u32) -> String {
    if qps == 1 {
        "1 QP".to_owned()
    } else {
        format!("{qps} QPs")
    }
}

/// Returns which way messages go.
pub fn direction(both: bool) -> &'static str {
    if both {
        "both directions at once, the slower one"
    } else {
        "one direction"
    }
}

/// Returns which requests make a completion.
pub fn signals(every: u32) -> String {
    match every {
        0 => "all requests silent".to_owned(),
        1 => "all requests signalled".to_owned(),
        every => format!("one request in {every} signalled"),
    }
}

/// Prints the head of a table.
pub fn print_title(options: &BenchOptions) {
    let (qps, way, signals) = (queue_pairs(options.qps), direction(options.both), signals(options.signal_every));
    let data = if options.inline { ", inline up to 96 bytes" } else { "" };
    println!("\nRDMA WRITE, {qps}, path MTU {}, {way}, {signals}{data}, {} clocks a row", options.mtu, thousands(options.clocks));
    println!(
        "{:>9}  {:>10}  {:>8}  {:>9}  {:>9}  {:>10}  {:>8}  {:>6}  {:>5}  {:>4}",
        "bytes", "messages", "Gb/s", "M msg/s", "wire Gb/s", "PCIe Gb/s", "of limit", "bound", "depth", "bell"
    );
}

/// Prints a row of the table.
pub fn print_row(point: &Point) {
    let bound = match point.bound {
        Bound::Wire => "wire",
        Bound::Pcie => "PCIe",
    };
    println!(
        "{:>9}  {:>10}  {:>8.2}  {:>9.3}  {:>9.2}  {:>10.2}  {:>7.2}%  {:>6}  {:>5}  {:>4}",
        point.message_bytes,
        thousands(point.messages as u64),
        point.gbps,
        point.mmps,
        point.wire_gbps,
        point.pcie_gbps,
        100.0 * point.share,
        bound,
        point.depth,
        point.doorbell_every,
    );
}

/// Prints what the stages of both cards did, if they were counted, without those that did nothing.
pub fn print_stages(point: &Point) {
    let Some([a, b]) = &point.stages else { return };
    let (qps, clocks) = (queue_pairs(point.qps), thousands(a.clocks.into()));
    println!("\nStages with messages of {} bytes over {qps}, per cent of {clocks} clocks", point.message_bytes);
    println!("{:<8}  {:<16}  {:>8} {:>7} {:>7}  {:>8} {:>7} {:>7}", "", "", "A: beats", "stalls", "idle", "B: beats", "stalls", "idle");
    for (one, other) in a.stages.iter().zip(&b.stages) {
        let figures = [(a, one), (b, other)];
        if figures.iter().all(|(_, stage)| stage.beats == 0 && stage.stalls == 0) {
            continue;
        }
        print!("{:<8}  {:<16}", one.path, one.name);
        for (card, stage) in figures {
            let [beats, stalls, idle] = [stage.beats, stage.stalls, stage.idle].map(|clocks| card.per_cent(clocks));
            print!("  {beats:>8.2} {stalls:>7.2} {idle:>7.2}");
        }
        println!();
    }
    for (name, card) in [("A", a), ("B", b)] {
        println!("{name}: {}", where_lost(card));
    }
}

/// Returns where a card loses beats, in words.
fn where_lost(card: &CardStages) -> String {
    let find = |name: &str| card.stages.iter().find(|stage| stage.name == name);
    let held_up: Vec<String> = card
        .held_up
        .iter()
        .filter_map(|name| find(name))
        .map(|stage| {
            format!("{} is held up behind {}, which stalls in {:.2} % of the clocks", stage.path, stage.name, card.per_cent(stage.stalls))
        })
        .collect();
    if !held_up.is_empty() {
        return held_up.join("; ");
    }
    match card.busiest.and_then(find) {
        Some(stage) => format!("nothing is held up; the busiest is {} with {:.2} %", stage.name, card.per_cent(stage.beats)),
        None => "nothing moves".to_owned(),
    }
}

/// Prints the stages of single writes, and how fast all was simulated.
pub fn print_latency(report: &Report) {
    if !report.latencies.is_empty() {
        println!(
            "\nOne write on idle cards, clocks; host memory answers after {} ns, the link takes {} ns one way",
            report.host_latency_ns, report.link_latency_ns
        );
        print!("{:34}", "bytes");
        report.latencies.iter().for_each(|latency| print!("{:>8}", latency.message_bytes));
        print!("\n{:34}", "data");
        report.latencies.iter().for_each(|latency| print!("{:>8}", if latency.inline { "inline" } else { "memory" }));
        println!();
        let count = report.latencies.first().map_or(0, |latency| latency.stages.len());
        for index in 0..count {
            let stage = report.latencies[0].stages[index];
            let part = match stage.part {
                Part::Card => "card",
                Part::Host => "host",
                Part::Wire => "wire",
            };
            print!("  {part}  {:26}", stage.name);
            report.latencies.iter().for_each(|latency| print!("{:>8}", latency.stages[index].clocks));
            println!();
        }
        for (name, part) in [("both cards", Part::Card), ("hosts", Part::Host), ("wire", Part::Wire)] {
            print!("{name:34}");
            report.latencies.iter().for_each(|latency| print!("{:>8}", latency.clocks_in(part)));
            println!();
        }
        print!("{:34}", "posted to polled");
        report.latencies.iter().for_each(|latency| print!("{:>8}", latency.clocks()));
        print!("\n{:34}", "  in ns");
        report.latencies.iter().for_each(|latency| print!("{:>8}", latency.clocks() * CLOCK_NS));
        println!();
    }
    println!("\nsimulated {} clocks of both cards, {} a second", thousands(report.clocks), thousands(report.clocks_per_second as u64));
}

/// Prints where the pictures are.
pub fn print_pictures(report: &Report) {
    if report.svg.is_empty() {
        println!("no picture: one size makes no line, and there are no latencies");
    }
    report.svg.iter().for_each(|path| println!("drew {}", path.display()));
}
