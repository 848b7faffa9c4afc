//! Random programs of an NDK consumer, as many as one likes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use verbena_tests::programs::{bench, programs, run};

/// Programs that run on one pair of cards, one after the other, before a new pair is made.
const PER_BENCH: usize = 50;

/// Runs random programs of a consumer on two simulated cards, and holds each to the contract of NDKPI. Stops at the first one that breaks it.
#[derive(Debug, Parser)]
struct Arguments {
    /// Programs
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: usize,
    /// Most steps of a program
    #[arg(long, value_name = "N", default_value_t = 250)]
    steps: usize,
    /// Seed of the programs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Of a million frames, so many that get lost, as many that arrive twice or late, half as many with a wrong bit
    #[arg(long, value_name = "PPM", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    loss: u32,
    /// Simulations beside each other; default: one a processor
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

fn main() {
    let arguments = Arguments::parse();
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let bar = ProgressBar::new(arguments.count as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} programs, {eta} left").expect("a template of this program"));
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let first = next.fetch_add(PER_BENCH, Ordering::Relaxed);
                if first >= arguments.count {
                    break;
                }
                share(&arguments, first, &bar);
            });
        }
    });
    bar.finish_and_clear();
    let (count, seed) = (arguments.count, arguments.seed);
    let time = start.elapsed();
    println!(
        "{count} programs of up to {} steps, each as the contract says: {} ({:.0} s), seed {seed}",
        arguments.steps,
        HumanDuration(time),
        time.as_secs_f64()
    );
}

/// Runs the programs from number `first` on.
fn share(arguments: &Arguments, first: usize, bar: &ProgressBar) {
    let mut bench = bench(arguments.loss);
    let last = (first + PER_BENCH).min(arguments.count);
    for number in first..last {
        // Each program has a seed of its own, so that it can be run alone.
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&arguments.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&(number as u64).to_le_bytes());
        let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let program = programs(arguments.steps).new_tree(&mut runner).expect("no program is rejected").current();
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&mut bench, &program)));
        if let Err(panic) = told {
            eprintln!("program {number} of seed {} breaks the contract:\n{program:#?}", arguments.seed);
            // What it holds of the cards is in no state to be closed.
            std::mem::forget(bench);
            drop(panic);
            std::process::exit(1);
        }
        bar.inc(1);
    }
    bench.close();
}
