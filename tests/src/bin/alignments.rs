//! Writes from every to every alignment: the whole product, or a random part of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use verbena_sim::rng::Rng;
use verbena_tests::alignments::{lengths, Case, Runner, LONG, MTUS, PAIRS, SGES};

/// Writes with all 64 x 64 pairs of source and target address modulo 64, at every MTU, of 13 lengths, over 1 to 4 SGEs, and
/// compares the whole memory.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run the whole product, but for writes of 1 MiB, of which it takes as many as without
    #[arg(long)]
    full: bool,
    /// Address pairs for each MTU, length and number of SGEs, unless --full
    #[arg(long, value_name = "N", default_value_t = 64)]
    pairs: usize,
    /// Address pairs of writes of 1 MiB, for each MTU and number of SGEs
    #[arg(long, value_name = "N", default_value_t = 4)]
    long: usize,
    /// Seed of what happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulations beside each other; default: one a processor
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// Cases of one MTU, length and number of SGEs.
#[derive(Clone, Copy)]
struct Share {
    mtu: u32,
    len: u32,
    sges: usize,
    pairs: usize,
}

fn main() {
    let arguments = Arguments::parse();
    let mut shares = Vec::new();
    for mtu in MTUS {
        for len in lengths(mtu) {
            for sges in 1..=SGES {
                let pairs = match (len == LONG, arguments.full) {
                    (true, _) => arguments.long,
                    (false, true) => PAIRS,
                    (false, false) => arguments.pairs,
                };
                shares.push(Share { mtu, len, sges, pairs: pairs.min(PAIRS) });
            }
        }
    }
    let total: usize = shares.iter().map(|share| share.pairs).sum();
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let bar = ProgressBar::new(total as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} writes, {eta} left").expect("a template of this program"));
    let (next, clocks) = (AtomicUsize::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(share) = shares.get(next.fetch_add(1, Ordering::Relaxed)) {
                    clocks.fetch_add(run(*share, arguments.seed, &bar), Ordering::Relaxed);
                }
            });
        }
    });
    bar.finish_and_clear();
    println!(
        "{total} writes, each in its place and complete once, in order: {} ({:.0} s), {} clocks, seed {}, {jobs} at a time",
        HumanDuration(start.elapsed()),
        start.elapsed().as_secs_f64(),
        clocks.into_inner(),
        arguments.seed
    );
}

/// Runs a share. Returns the clocks that it took.
fn run(share: Share, seed: u64, bar: &ProgressBar) -> u64 {
    let Share { mtu, len, sges, pairs } = share;
    let mut runner = Runner::new(mtu, seed);
    let mut rng = Rng::new(seed, u64::from(len) << 8 | sges as u64);
    let mut order: Vec<usize> = (0..PAIRS).collect();
    for last in (1..PAIRS).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    for chunk in order[..pairs].chunks(256) {
        runner.run(chunk.iter().map(|pair| Case::new(*pair, len, sges)));
        bar.inc(chunk.len() as u64);
    }
    let clocks = runner.clock();
    runner.finish();
    clocks
}
