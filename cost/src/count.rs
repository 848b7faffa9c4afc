//! Instructions of a call, by valgrind's callgrind: exact, and the same on every run of a build.
//!
//! A program runs itself under callgrind, which counts inside [`verbena_cost_measured`] alone. The cost of a call is what 1000 more of
//! them add, less what 1000 more of the same call add when the function does nothing ([`Case::idle`]): from its first instruction to its return,
//! what it calls included. A BAR that does nothing takes four of them, and finding it three.

use std::process::Command;

use crate::cases::{self, Case};
use crate::rig::Rig;

/// Argument with which a program runs itself: `--serve CASE CALLS`, or `--serve-idle CASE CALLS`.
const SERVE: &str = "--serve";
/// The same for calls of what does nothing.
const SERVE_IDLE: &str = "--serve-idle";
/// Calls before those that count.
const FIRST: u64 = 100;
/// Calls that count.
const MORE: u64 = 1000;

/// What callgrind counts in.
#[no_mangle]
#[inline(never)]
pub fn verbena_cost_measured(rig: &mut Rig, call: fn(&mut Rig)) {
    call(rig);
}

/// Does what the process was started for, if it was started by [`instructions`], and then ends it.
pub fn serve() {
    let mut arguments = std::env::args().skip(1);
    let is_idle = match arguments.next().as_deref() {
        Some(SERVE) => false,
        Some(SERVE_IDLE) => true,
        _ => return,
    };
    let case = arguments.next().and_then(|name| cases::named(&name)).expect("a case");
    let calls = arguments.next().and_then(|calls| calls.parse().ok()).expect("a number of calls");
    let mut rig = Rig::new();
    if is_idle {
        (0..calls).for_each(|_| verbena_cost_measured(&mut rig, case.idle));
    } else {
        run(&mut rig, case, calls);
    }
    std::process::exit(0);
}

fn run(rig: &mut Rig, case: &Case, calls: u64) {
    let mut left = calls;
    while left > 0 {
        let lap = left.min(case.lap);
        (case.prepare)(rig);
        (0..lap).for_each(|_| verbena_cost_measured(rig, case.call));
        left -= lap;
    }
}

/// Why there is no figure.
#[derive(Debug)]
pub enum Failure {
    /// There is no valgrind.
    NoValgrind,
    /// It says something else than expected.
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoValgrind => write!(f, "no instructions are counted: valgrind is not installed (Debian: apt-get install valgrind)"),
            Self::Other(what) => write!(f, "callgrind failed: {what}"),
        }
    }
}

/// Returns the instructions of a case, for each request or completion.
pub fn instructions(case: &Case) -> Result<f64, Failure> {
    let added = |serve| Ok::<_, Failure>(collected(serve, case, FIRST + MORE)? - collected(serve, case, FIRST)?);
    Ok((added(SERVE)? - added(SERVE_IDLE)?) as f64 / (MORE * case.units) as f64)
}

/// Returns what callgrind counts in so many calls.
fn collected(serve: &str, case: &Case, calls: u64) -> Result<i64, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::Other(error.to_string()))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=verbena_cost_measured", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([serve, case.name, &calls.to_string()])
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::NoValgrind,
            _ => Failure::Other(error.to_string()),
        })?;
    let said = String::from_utf8_lossy(&output.stderr);
    // For instance `==12== Collected : 123456`.
    let count = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match count {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(Failure::Other(said.into_owned())),
    }
}
