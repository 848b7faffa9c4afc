//! `verbena bench`: goodput and latency against the limits of wire and PCIe.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use verbena_sim::bench::{depth, Bench, BenchOptions};
use verbena_sim::ffi::CLOCK_NS;
use verbena_sim::Threads;

use super::bench_report::{print_latency, print_pictures, print_row, print_stages, print_title, Report};
use super::plot;
use super::report::per_second;
use super::values::{parse_mtu, parse_size, without_panic, Pcie};

/// Bytes of the messages, unless others are named.
const SIZES: [u32; 11] = [8, 16, 32, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20];
/// Bytes of the messages whose latency is shown, and whether they are inline data of their requests.
const LATENCIES: [(u32, bool); 5] = [(8, true), (64, true), (8, false), (64, false), (4096, false)];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// RDMA WRITE
    Write(WriteArguments),
}

#[derive(Debug, clap::Args)]
struct WriteArguments {
    /// Bytes of a message, e.g. 8 64 4KiB 1MiB; default: 8 bytes to 16 MiB
    #[arg(value_name = "SIZE", value_parser = parse_size)]
    sizes: Vec<u32>,
    /// Queue pairs; several numbers make several tables, e.g. 1,16,256
    #[arg(long, value_name = "N", default_value = "1,16", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=32_768))]
    qps: Vec<u32>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = parse_mtu)]
    mtu: u32,
    /// One request in N makes a completion, the others are silent; 0: all are silent
    #[arg(long, value_name = "N", default_value_t = 16)]
    signal_every: u32,
    /// Both directions at once; the figures are those of the slower one
    #[arg(long)]
    both: bool,
    /// Show after each table what every stage of both cards did, and where beats are lost
    #[arg(long)]
    explain: bool,
    /// Messages of up to 96 bytes are inline data of their requests, which are longer for more than 32 bytes
    #[arg(long)]
    inline: bool,
    /// Clocks of each measurement
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    clocks: u64,
    /// Clocks before each measurement
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    warm_up: u64,
    /// Requests of a QP under way; default: so many that the wire never waits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    depth: Option<u32>,
    /// Read latency of host memory, nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 800)]
    host_latency: u64,
    /// Latency of the link one way, MAC to MAC, nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 500)]
    link_latency: u64,
    /// PCIe between card and host
    #[arg(long, value_enum, default_value = "gen3x16")]
    pcie: Pcie,
    /// Leave the latencies out
    #[arg(long)]
    no_latency: bool,
    /// Draw goodput.svg, rate.svg and latency.svg in this folder; the first two need two sizes
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Seed of everything that happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulate both cards in one thread
    #[arg(long)]
    one_thread: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let What::Write(arguments) = &arguments.what;
    write(arguments)
}

fn write(arguments: &WriteArguments) -> Result<()> {
    let sizes = if arguments.sizes.is_empty() { &SIZES[..] } else { &arguments.sizes };
    let (pcie_name, mut pcie) = arguments.pcie.config();
    pcie.read_latency = arguments.host_latency.div_ceil(CLOCK_NS).max(1);
    let options = BenchOptions {
        mtu: arguments.mtu,
        signal_every: arguments.signal_every,
        both: arguments.both,
        inline: arguments.inline,
        explain: arguments.explain,
        warm_up: arguments.warm_up,
        clocks: arguments.clocks,
        seed: arguments.seed,
        pcie,
        link: verbena_sim::LinkConfig { latency: arguments.link_latency.div_ceil(CLOCK_NS).max(1), ..Default::default() },
        threads: if arguments.one_thread { Threads::One } else { Threads::Auto },
        ..BenchOptions::default()
    };
    let mut report = Report {
        pcie: pcie_name,
        host_latency_ns: arguments.host_latency,
        link_latency_ns: arguments.link_latency,
        seed: arguments.seed,
        points: Vec::new(),
        latencies: Vec::new(),
        clocks: 0,
        clocks_per_second: 0.0,
        svg: Vec::new(),
    };
    if let Some(directory) = &arguments.svg {
        // Now, as measuring takes minutes.
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let total = arguments.qps.len() * sizes.len() + if arguments.no_latency { 0 } else { LATENCIES.len() };
    let bar = progress(arguments, total as u64)?;
    let mut ran = Duration::ZERO;
    let mut count = |world: &verbena_sim::World, report: &mut Report, before: (u64, Duration)| {
        ran += world.ran() - before.1;
        report.clocks += world.clock() - before.0;
        report.clocks_per_second = per_second(report.clocks, ran);
    };

    for qps in &arguments.qps {
        let options = BenchOptions { qps: *qps, ..options };
        if !arguments.json {
            bar.suspend(|| print_title(&options));
        }
        let mut idle = None;
        let first = report.points.len();
        for size in sizes {
            bar.set_message(format!("{size} bytes, {qps} QPs"));
            let depth = arguments.depth.unwrap_or_else(|| depth(*size, *qps));
            let bench = Bench::prepare(idle.take(), options, depth, *size).with_context(|| format!("setting up {qps} QPs"))?;
            let world = bench.world().clone();
            let before = (world.clock(), world.ran());
            let (point, bench) =
                without_panic(&world, || Ok(bench.measure(*size)?)).with_context(|| format!("messages of {size} bytes over {qps} QPs"))?;
            count(&world, &mut report, before);
            if !arguments.json {
                bar.suspend(|| print_row(&point));
            }
            report.points.push(point);
            idle = bench;
            bar.inc(1);
        }
        if !arguments.json {
            bar.suspend(|| report.points[first..].iter().for_each(print_stages));
        }
    }
    if !arguments.no_latency {
        for (size, inline) in LATENCIES {
            bar.set_message(format!("latency of {size} bytes"));
            let mut bench = Bench::new(BenchOptions { inline, ..options }, 8, size).context("setting up 1 QP")?;
            let world = bench.world().clone();
            // The first write finds the tables as they are after connecting; the figure is that of the second.
            without_panic(&world, || Ok(bench.latency(size)?))?;
            report.latencies.push(without_panic(&world, || Ok(bench.latency(size)?))?);
            bench.close()?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    // Figures are printed even if they can't be drawn.
    let drawn = arguments.svg.as_ref().map(|directory| plot::write(directory, &report, &options)).transpose();
    if let Ok(Some(paths)) = &drawn {
        report.svg.clone_from(paths);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print_latency(&report);
        if matches!(drawn, Ok(Some(_))) {
            print_pictures(&report);
        }
    }
    drawn.map(|_| ())
}

fn progress(arguments: &WriteArguments, steps: u64) -> Result<ProgressBar> {
    if arguments.json || !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left")?;
    Ok(ProgressBar::new(steps).with_style(style))
}
