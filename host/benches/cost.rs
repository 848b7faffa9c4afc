//! What posting and reaping cost: nanoseconds by criterion, instructions by valgrind's callgrind. `cargo bench -p verbena-host [-- --json]`.
//!
//! Criterion runs in a process of its own, so that what it prints does not get into the JSON.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use criterion::Criterion;
use verbena_cost::cases::{Case, CASES};
use verbena_cost::count::{self, Failure};
use verbena_cost::report::{self, Figure};
use verbena_cost::rig::Rig;

/// Argument of the process that measures times.
const MEASURE: &str = "--measure";

fn main() -> ExitCode {
    count::serve();
    if std::env::args().any(|argument| argument == MEASURE) {
        measure();
        return ExitCode::SUCCESS;
    }
    let as_json = std::env::args().any(|argument| argument == "--json");
    let program = std::env::current_exe().expect("this program");
    let output = if as_json { Stdio::null() } else { Stdio::inherit() };
    let status = Command::new(program).arg(MEASURE).stdout(output).status().expect("this program can be run");
    if !status.success() {
        return ExitCode::FAILURE;
    }
    let mut excuse = None;
    let mut figures = Vec::new();
    for case in CASES {
        let instructions = match excuse.is_none().then(|| count::instructions(case)) {
            Some(Ok(instructions)) => Some(instructions),
            Some(Err(failure)) => {
                excuse = Some(failure);
                None
            }
            None => None,
        };
        figures.push(Figure { case, instructions, ns: median_ns(case) });
    }
    report::print(&figures, as_json);
    match excuse {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            eprintln!("{failure}");
            if matches!(failure, Failure::NoValgrind) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Where criterion keeps its results.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cost")
}

/// Measures the time of each case; preparations do not count.
fn measure() {
    let mut rig = Rig::new();
    let mut criterion = Criterion::default()
        .output_directory(&folder())
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    for case in CASES {
        if case.lap == 1 {
            // The clock would take as long as the one call between two preparations.
            continue;
        }
        criterion.bench_function(case.name, |bencher| {
            bencher.iter_custom(|calls| {
                let (mut left, mut time) = (calls, Duration::ZERO);
                while left > 0 {
                    let lap = left.min(case.lap);
                    (case.prepare)(&mut rig);
                    let started = Instant::now();
                    (0..lap).for_each(|_| (case.call)(&mut rig));
                    time += started.elapsed();
                    left -= lap;
                }
                time
            });
        });
    }
}

/// Returns what criterion found, for each request or completion.
fn median_ns(case: &Case) -> Option<f64> {
    let text = std::fs::read(folder().join(case.name).join("new/estimates.json")).ok()?;
    let estimates: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(estimates["median"]["point_estimate"].as_f64()? / case.units as f64)
}
