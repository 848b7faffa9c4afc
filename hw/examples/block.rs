//! Writes the Verilog of a single block to standard output: `cargo run -p verbena-hw --example block NAME > NAME.v`.

use std::process::ExitCode;

use verbena_hw::verilog::{block, BLOCKS};

fn main() -> ExitCode {
    let usage = format!("usage: block NAME\nNAME is one of: {}", BLOCKS.join(", "));
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(help), None) if help == "--help" || help == "-h" => {
            println!("Writes the Verilog of a single block, module verbena_NAME, to standard output.\n{usage}");
            ExitCode::SUCCESS
        }
        (Some(name), None) => match block(&name) {
            Some(verilog) => {
                print!("{verilog}");
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("error: there is no block `{name}`\n{usage}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("error: one name is needed\n{usage}");
            ExitCode::FAILURE
        }
    }
}
