//! Writes the card's Verilog to standard output: `cargo run -p verbena-hw --example verilog > core.v`.

fn main() {
    print!("{}", verbena_hw::verilog::core());
}
