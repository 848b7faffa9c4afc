//! Repeats a recorded run on verilated Verilog.
//!
//! The model is built once for each Verilog text and kept under `target/lockstep`, so benches of
//! the same block share it.

use std::collections::hash_map::DefaultHasher;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use super::bench::Port;

/// Models that are being built: a bench of the same block waits, one of another block builds beside it.
static BUILDING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
static BUILT: Condvar = Condvar::new();
/// Runs so far.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// The right to build a model, handed on when it is dropped, be it in a panic.
struct Turn(u64);

impl Turn {
    fn wait(hash: u64) -> Self {
        let mut building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        while !building.insert(hash) {
            building = BUILT.wait(building).unwrap_or_else(PoisonError::into_inner);
        }
        Self(hash)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        BUILDING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        BUILT.notify_all();
    }
}

/// Fails unless the verilated block gives the recorded outputs on every clock.
pub(super) fn check(name: &str, verilog: &str, ports: &[Port], trace: &[Vec<String>]) {
    let program = build(name, verilog, ports);
    // A file of its own for each run: two tests may have the same model and the same name.
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let stimulus = program.with_file_name(format!("{name}-{}-{number}.stimulus", std::process::id()));
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

/// Returns the folder in which models are kept.
fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from)
        .join("lockstep")
}

/// Runs a program that a model needs, and returns what it prints. What it does is named in the message of a failure.
fn run(what: &str, command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{what}: cannot run {:?} ({error}); install it with: apt install verilator g++", command.get_program())
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {command:?} fails\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn verilator() -> Command {
    Command::new(std::env::var("VERILATOR").unwrap_or_else(|_| "verilator".into()))
}

fn compiler(include: &Path) -> Command {
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "g++".into()));
    command.args(["-O1", "-std=gnu++17", "-faligned-new", "-pthread", "-w"]);
    command.args(
        ["VERILATOR=1", "VM_COVERAGE=0", "VM_SC=0", "VM_TRACE=0", "VM_TRACE_FST=0", "VM_TRACE_VCD=0"].map(|name| format!("-D{name}")),
    );
    command.arg("-I").arg(include).arg("-I").arg(include.join("vltstd"));
    command
}

/// Verilator's own part of every model, and the folder of its headers. It is compiled once, as it takes longer than most blocks.
struct Runtime {
    include: PathBuf,
    objects: [PathBuf; 2],
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let root = run("Verilator's folder", verilator().args(["--getenv", "VERILATOR_ROOT"]));
        let include = Path::new(root.trim()).join("include");
        let mut hasher = DefaultHasher::new();
        run("Verilator's version", verilator().arg("--version")).hash(&mut hasher);
        let folder = folder().join(format!("runtime-{:016x}", hasher.finish()));
        fs::create_dir_all(&folder).expect("the folder for Verilator's runtime can be made");
        let objects = ["verilated", "verilated_threads"].map(|name| {
            let object = folder.join(name).with_extension("o");
            if !object.exists() {
                let unfinished = object.with_extension("new");
                run(name, compiler(&include).arg("-c").arg(include.join(name).with_extension("cpp")).arg("-o").arg(&unfinished));
                fs::rename(&unfinished, &object).expect("Verilator's runtime can be kept");
            }
            object
        });
        Runtime { include, objects }
    })
}

fn build(name: &str, verilog: &str, ports: &[Port]) -> PathBuf {
    let harness = harness(ports);
    let mut hasher = DefaultHasher::new();
    (verilog, &harness).hash(&mut hasher);
    let hash = hasher.finish();
    let folder = folder().join(format!("{hash:016x}"));
    let program = folder.join("obj").join("Vtop");
    let _turn = Turn::wait(hash);
    if folder.join("done").exists() {
        return program;
    }
    fs::create_dir_all(&folder).expect("the folder for the verilated bench can be made");
    fs::write(folder.join("top.v"), verilog).expect("the Verilog can be written");
    fs::write(folder.join("main.cpp"), harness).expect("the harness can be written");
    let mut command = verilator();
    command.current_dir(&folder).args(["--cc", "-O3", "--top-module", "top", "--Mdir", "obj"]);
    command.args(WAIVED.iter().map(|(warning, _)| format!("-Wno-{warning}"))).arg("top.v");
    run(name, &mut command);

    let Runtime { include, objects } = runtime();
    let parts = fs::read_dir(folder.join("obj"))
        .expect("Verilator has made the folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let sources: String =
        parts.filter(|part| part.starts_with("Vtop") && part.ends_with(".cpp")).map(|part| format!("#include \"{part}\"\n")).collect();
    fs::write(folder.join("obj/all.cpp"), format!("{sources}#include \"../main.cpp\"\n")).expect("the list of sources can be written");
    run(name, compiler(include).current_dir(folder.join("obj")).args(["-I", ".", "all.cpp"]).args(objects).args(["-o", "Vtop"]));
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
