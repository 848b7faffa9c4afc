//! Arguments and sub-commands.

mod bench;
mod bench_report;
mod plot;
mod replay;
mod report;
mod send;
mod sender;
mod values;
mod verilog;

use std::io;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// An open RDMA network card, run from its generated Verilog.
#[derive(Debug, Parser)]
#[command(name = "verbena", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a file from one host's memory to another's by RDMA WRITE, through two cards and a 100 Gb/s link
    Send(send::Arguments),
    /// Measure the card against the limits of wire and PCIe
    Bench(bench::Arguments),
    /// Write the generated Verilog
    Verilog(verilog::Arguments),
    /// Show what the hardware's receive parser makes of each frame of a capture
    Replay(replay::Arguments),
}

/// Runs the command line.
pub fn run() -> Result<()> {
    let outcome = match Arguments::parse().command {
        Command::Send(arguments) => send::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Verilog(arguments) => verilog::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
    };
    match outcome {
        // Whoever reads may stop early: `verbena replay … | head`.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) => Ok(()),
        other => other,
    }
}
