//! `verbena verilog`: writes the Verilog that this program was built from.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use verbena_sim::verilog;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder to write to; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print one JSON object with the files
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    fs::create_dir_all(&arguments.out).with_context(|| format!("cannot make the folder {}", arguments.out.display()))?;
    let mut files = Vec::new();
    for (top, text) in [("verbena_core", verilog::CORE), ("verbena_rx_front", verilog::RX_FRONT)] {
        let path = arguments.out.join(format!("{top}.v"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        if !arguments.json {
            println!("{}: module {top}, {} lines", path.display(), text.lines().count());
        }
        files.push(serde_json::json!({ "top": top, "file": path, "lines": text.lines().count() }));
    }
    if arguments.json {
        println!("{}", serde_json::json!({ "files": files }));
    }
    Ok(())
}
