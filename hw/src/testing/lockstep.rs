//! Repeats a recorded run on verilated Verilog.
//!
//! The model is built once for each Verilog text and kept under `target/lockstep`, so benches of
//! the same block share it.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::bench::Port;

/// One model is built at a time: builds use all cores by themselves.
static BUILD: Mutex<()> = Mutex::new(());

/// Fails unless the verilated block gives the recorded outputs on every clock.
pub(super) fn check(name: &str, verilog: &str, ports: &[Port], trace: &[Vec<String>]) {
    let program = build(name, verilog, ports);
    let stimulus = program.with_file_name(format!("{name}-{}.stimulus", std::process::id()));
    let mut file = std::io::BufWriter::new(fs::File::create(&stimulus).expect("the stimulus file can be written"));
    for values in trace {
        writeln!(file, "{}", values.join(" ")).expect("the stimulus file can be written");
    }
    file.into_inner().expect("the stimulus file can be written").sync_all().ok();
    let output = Command::new(&program).arg(&stimulus).output().expect("the verilated bench runs");
    assert!(
        output.status.success(),
        "{name}: RustHDL and verilated Verilog differ\n{}\nrepeat with: {} {}",
        String::from_utf8_lossy(&output.stdout),
        program.display(),
        stimulus.display()
    );
    fs::remove_file(&stimulus).ok();
}

fn build(name: &str, verilog: &str, ports: &[Port]) -> PathBuf {
    let harness = harness(ports);
    let mut hasher = DefaultHasher::new();
    (verilog, &harness).hash(&mut hasher);
    let root = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let folder = root.join("lockstep").join(format!("{:016x}", hasher.finish()));
    let program = folder.join("obj").join("Vtop");
    let _guard = BUILD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if folder.join("done").exists() {
        return program;
    }
    fs::create_dir_all(&folder).expect("the folder for the verilated bench can be made");
    fs::write(folder.join("top.v"), verilog).expect("the Verilog can be written");
    fs::write(folder.join("main.cpp"), harness).expect("the harness can be written");
    let verilator = std::env::var("VERILATOR").unwrap_or_else(|_| "verilator".into());
    let output = Command::new(&verilator)
        .current_dir(&folder)
        .args(["--cc", "--exe", "--build", "-O3", "--top-module", "top", "--Mdir", "obj"])
        .args(WAIVED.iter().map(|(warning, _)| format!("-Wno-{warning}")))
        .args(["-CFLAGS", "-O1", "top.v", "main.cpp"])
        .output()
        .unwrap_or_else(|error| panic!("{name}: cannot run {verilator} ({error}); install it with: apt install verilator g++ make"));
    assert!(
        output.status.success(),
        "{name}: verilator refuses the generated Verilog in {}\n{}{}",
        folder.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(folder.join("done"), name).expect("the mark can be written");
    program
}

/// Warnings of Verilator that RustHDL's output draws by its nature, with the reason. All others are errors.
pub const WAIVED: &[(&str, &str)] = &[("WIDTH", "literals in kernels are 32 bits wide")];

fn harness(ports: &[Port]) -> String {
    let mut steps = String::new();
    for port in ports.iter().filter(|port| port.name != "clock") {
        let member = port.name.replace('$', "__024");
        let call = if port.is_input { "drive" } else { "compare" };
        let stage = if port.is_input { "inputs" } else { "outputs" };
        writeln!(steps, "    {stage}.push_back([&](const std::string& hex) {{ return {call}(top->{member}, hex); }});").unwrap();
    }
    let order: String = ports
        .iter()
        .map(|port| match (port.name.as_str(), port.is_input) {
            ("clock", _) => 'c',
            (_, true) => 'i',
            (_, false) => 'o',
        })
        .collect();
    let names = ports.iter().filter(|p| !p.is_input).map(|p| format!("\"{}\"", p.name)).collect::<Vec<_>>().join(", ");
    HARNESS.replace("@STEPS@", &steps).replace("@ORDER@", &order).replace("@NAMES@", &names)
}

const HARNESS: &str = r#"
#include "Vtop.h"
#include "verilated.h"
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

static uint64_t number(const std::string& hex) { return std::stoull(hex, nullptr, 16); }
static uint32_t word(const std::string& hex, size_t index) {
    size_t end = hex.size() > 8 * index ? hex.size() - 8 * index : 0;
    size_t begin = end > 8 ? end - 8 : 0;
    return end == 0 ? 0 : (uint32_t)std::stoul(hex.substr(begin, end - begin), nullptr, 16);
}
template <class T> static bool drive(T& port, const std::string& hex) { port = (T)number(hex); return true; }
template <class T> static bool compare(T& port, const std::string& hex) { return (uint64_t)port == number(hex); }
template <size_t N> static bool drive(VlWide<N>& port, const std::string& hex) {
    for (size_t i = 0; i < N; i++) port[i] = word(hex, i);
    return true;
}
template <size_t N> static bool compare(VlWide<N>& port, const std::string& hex) {
    for (size_t i = 0; i < N; i++) if (port[i] != word(hex, i)) return false;
    return true;
}

int main(int argc, char** argv) {
    auto context = std::make_unique<VerilatedContext>();
    auto top = std::make_unique<Vtop>(context.get());
    std::vector<std::function<bool(const std::string&)>> inputs, outputs;
@STEPS@
    const std::string order = "@ORDER@";
    const std::vector<std::string> names = {@NAMES@};
    std::ifstream file(argv[1]);
    std::string line;
    top->clock = 0;
    for (uint64_t clock = 0; std::getline(file, line); clock++) {
        std::vector<std::string> in, out;
        std::istringstream words(line);
        std::string hex;
        for (size_t i = 0; words >> hex; i++) (order[i] == 'i' ? in : out).push_back(order[i] == 'c' ? "" : hex), (void)0;
        // The clock's own column is dropped from the outputs.
        std::vector<std::string> kept;
        for (auto& value : out) if (!value.empty()) kept.push_back(value);
        for (size_t i = 0; i < in.size(); i++) inputs[i](in[i]);
        top->eval();
        for (size_t i = 0; i < kept.size(); i++) {
            if (!outputs[i](kept[i])) {
                std::cout << "clock " << clock << ": " << names[i] << " should be " << kept[i] << std::endl;
                return 1;
            }
        }
        top->clock = 1;
        top->eval();
        top->clock = 0;
        top->eval();
    }
    return 0;
}
"#;
