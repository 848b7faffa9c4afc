//! Random programs of an NDK consumer, as many as one likes.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Serialize;
use verbena_tests::programs::{environments, programs, Environment, Tally};

/// Programs that run on one pair of cards, one after the other, before a new pair is made in another environment.
const PER_BENCH: usize = 50;
/// Time between two lines of progress where no bar can be drawn.
const BETWEEN_LINES: Duration = Duration::from_secs(60);
/// Exit code of a run that was interrupted, as shells have it.
const INTERRUPTED: u8 = 130;

/// Somebody has asked for an end: no program begins any more.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs random programs of a consumer on two simulated cards, and holds each to the contract of NDKPI. Stops at the first one that breaks it,
/// and on Ctrl-C behind the programs under way, with a tally of those that ran; on a second Ctrl-C at once.
///
/// Every 50 programs have a pair of cards of their own, in hosts that are fast or slow and on a link that loses frames or none, by chance.
#[derive(Debug, Parser)]
struct Arguments {
    /// Programs
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: usize,
    /// Number of the first program; it runs on new cards
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: usize,
    /// Most steps of a program behind its first connection; three programs in five have at most 20
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u16).range(1..))]
    steps: u16,
    /// Seed of the programs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Of a million frames, so many that get lost, as many that arrive twice or late, half as many with a wrong bit; default: by chance, none
    /// for about half of the pairs of cards
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(0..=20_000))]
    loss: Option<u32>,
    /// Simulations beside each other; default: one a processor
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Writes the tally to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Report {
    seed: u64,
    first: usize,
    count: usize,
    most_steps: u16,
    loss_ppm: Option<u32>,
    seconds: f64,
    #[serde(flatten)]
    tally: Tally,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    ctrlc::set_handler(interrupt).context("can't be told of an interrupt")?;
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let end = arguments.first.saturating_add(arguments.count);
    let progress = Progress::new(arguments.count);
    let (next, tally) = (AtomicUsize::new(arguments.first), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let first = next.fetch_add(PER_BENCH, Ordering::Relaxed);
                if first >= end || is_interrupted() {
                    break;
                }
                let more = share(&arguments, first, end.min(first + PER_BENCH), &progress);
                *tally.lock().expect("no share panics") += more;
            });
        }
    });
    let (tally, seconds) = (tally.into_inner().expect("no share panics"), progress.end());
    let Arguments { seed, first, count, steps: most_steps, loss: loss_ppm, .. } = arguments;
    let Tally { programs, steps, clocks, pairs, accepted, refused, succeeded, failed, silent } = tally;
    println!("{programs} programs of up to {most_steps} steps, each as the contract says: {seconds:.0} s, seed {seed}");
    println!("{steps} steps, {clocks} clocks, {pairs} pairs of QPs");
    println!("{accepted} requests accepted: {succeeded} succeeded, {silent} did so in silence, {failed} failed or were flushed; {refused} refused");
    if let Some(file) = &arguments.json {
        let report = serde_json::to_string_pretty(&Report { seed, first, count, most_steps, loss_ppm, seconds, tally })?;
        std::fs::write(file, report + "\n").with_context(|| format!("can't write {}", file.display()))?;
    }
    if tally.programs < count as u64 {
        eprintln!("interrupted: {} of {count} programs have run", tally.programs);
        return Ok(INTERRUPTED.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Has programs begin no more. The second time it ends everything: a program may hang.
fn interrupt() {
    if IS_INTERRUPTED.swap(true, Ordering::Relaxed) {
        std::process::exit(INTERRUPTED.into());
    }
}

fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Runs the programs `first..end` on a new pair of cards.
fn share(arguments: &Arguments, first: usize, end: usize, progress: &Progress) -> Tally {
    let seed = arguments.seed;
    let drawn: Environment = draw(&environments(), [seed, first as u64, 1]);
    let environment = arguments.loss.map_or(drawn, |ppm| drawn.with_loss(ppm));
    // Each program has a seed of its own, so that it is the same behind fewer others.
    let program = |number: usize| draw(&programs(arguments.steps.into()), [seed, number as u64, 0]);
    let at = Cell::new(first);
    let run = || {
        let mut cards = environment.cards();
        let mut tally = Tally::default();
        for number in first..end {
            if is_interrupted() {
                break;
            }
            at.set(number);
            tally += cards.run(&program(number));
            progress.add();
        }
        cards.close();
        tally
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(tally) => tally,
        Err(_) => {
            let number = at.get();
            eprintln!("program {number} of seed {seed} breaks the contract, in {environment:#?}:\n{:#?}", program(number));
            let (count, steps) = (number - first + 1, arguments.steps);
            let loss = arguments.loss.map_or_else(String::new, |ppm| format!(" --loss {ppm}"));
            let numbers = format!("--seed {seed} --first {first} --count {count} --steps {steps}{loss}");
            eprintln!("to repeat: cargo run --release -p verbena-tests --bin programs -- {numbers}");
            std::process::exit(1);
        }
    }
}

/// Returns a value that depends on the numbers alone.
fn draw<S: Strategy>(strategy: &S, numbers: [u64; 3]) -> S::Value {
    let mut seed = [0; 32];
    for (place, number) in seed.chunks_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    strategy.new_tree(&mut runner).expect("nothing is rejected").current()
}

/// A bar, or a line now and then where there is no terminal.
struct Progress {
    bar: ProgressBar,
    start: Instant,
    last_line: Mutex<Instant>,
}

impl Progress {
    fn new(count: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr())
            .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} programs, {eta} left").expect("a template of this program"));
        let start = Instant::now();
        Self { bar, start, last_line: Mutex::new(start) }
    }

    fn add(&self) {
        self.bar.inc(1);
        let mut last_line = self.last_line.lock().expect("no share panics");
        if self.bar.is_hidden() && last_line.elapsed() >= BETWEEN_LINES {
            *last_line = Instant::now();
            let (position, length) = (self.bar.position(), self.bar.length().unwrap_or_default());
            eprintln!("{position}/{length} programs, {} left", HumanDuration(self.bar.eta()));
        }
    }

    /// Returns the seconds that it took.
    fn end(&self) -> f64 {
        self.bar.finish_and_clear();
        self.start.elapsed().as_secs_f64()
    }
}
