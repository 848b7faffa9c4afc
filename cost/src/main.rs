//! Prints the instructions that posting and reaping take: `cost [--json] [CASE…]`.

use std::process::ExitCode;

use verbena_cost::cases::{self, CASES};
use verbena_cost::count;
use verbena_cost::report::{self, Figure};

fn main() -> ExitCode {
    count::serve();
    let (options, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if let Some(option) = options.iter().find(|option| *option != "--json") {
        eprintln!("unknown option {option}. Usage: cost [--json] [CASE…]");
        return ExitCode::from(2);
    }
    let chosen: Option<Vec<_>> = names.iter().map(|name| cases::named(name)).collect();
    let Some(mut chosen) = chosen else {
        eprintln!("unknown case; there are {}", CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", "));
        return ExitCode::from(2);
    };
    if chosen.is_empty() {
        chosen = CASES.iter().collect();
    }
    let figure = |case| count::instructions(case).map(|instructions| Figure { case, instructions: Some(instructions), ns: None });
    match chosen.into_iter().map(figure).collect::<Result<Vec<_>, _>>() {
        Ok(figures) => {
            report::print(&figures, options.iter().any(|option| option == "--json"));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
