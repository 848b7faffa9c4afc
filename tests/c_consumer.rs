//! Programs in C against the header: compiled by the system's compiler, linked with the library, and run on two simulated cards.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the folder with the library that this test was built with.
fn library_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the path of the test");
    program.parent().expect("a folder").to_owned()
}

/// Returns a command that compiles `source` against the header, with all warnings.
fn compile(compiler: &str, source: &Path, language: &[&str]) -> Command {
    let mut command = Command::new(compiler);
    command.args(language).args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(root().join("ndk/include")).arg(source);
    command
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Compiles a program, links it with the shared library, or with the static one and what that needs, runs it, and returns what it prints.
#[track_caller]
fn compile_and_run(source: &str, is_static: bool) -> String {
    let folder = tempfile::tempdir().expect("a folder for the program");
    let (program, library) = (folder.path().join("program"), library_folder());
    let mut command = compile("gcc", &root().join(source), &["-std=c11", "-pedantic", "-D_POSIX_C_SOURCE=200809L", "-DVERBENA_HAS_SIM"]);
    if is_static {
        command.arg(library.join("libverbena_ndk.a")).args(["-lstdc++", "-lz", "-llz4", "-lm"]);
    } else {
        command.arg("-L").arg(&library).arg("-lverbena_ndk").arg(format!("-Wl,-rpath,{}", library.display()));
    }
    run(command.arg("-o").arg(&program));
    run(&mut Command::new(&program))
}

#[test]
fn a_consumer_in_c_creates_posts_arms_reaps_flushes_and_closes_in_an_unfriendly_order() {
    let steps = ["adapters are open, objects created", "connected", "written, notified, reaped", "streamed", "flushed", "closed"];
    for is_static in [false, true] {
        let printed = compile_and_run("tests/c/consumer.c", is_static);
        assert_eq!(printed.lines().collect::<Vec<_>>(), steps);
    }
}

#[test]
fn the_example_says_hello() {
    assert!(compile_and_run("examples/hello_write.c", false).contains("hello, write"));
}

#[test]
fn a_program_in_c_hears_what_the_library_has_to_say() {
    let said = compile_and_run("tests/c/log.c", false);
    let expected = "WARN verbena_ndk::open: closing an adapter waits for objects that are not closed left=1 \
                    objects=ObjectCounts { qps: 0, cqs: 1, mrs: 0, pds: 0 } waits=256";
    assert_eq!(said.trim(), expected);
}

#[test]
fn the_header_compiles_as_c_and_as_cpp_with_its_layout_asserted() {
    let header = root().join("ndk/include/verbena_ndk.h");
    run(compile("gcc", &header, &["-std=c11", "-pedantic", "-fsyntax-only", "-x", "c"]).arg("-DVERBENA_HAS_VFIO"));
    run(compile("g++", &header, &["-std=c++17", "-fsyntax-only", "-x", "c++"]).arg("-DVERBENA_HAS_SIM"));
}

#[test]
fn the_consumer_compiles_for_windows_if_its_compiler_is_here() {
    let compiler = "x86_64-w64-mingw32-gcc";
    if Command::new(compiler).arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{compiler} is missing, which CI installs");
        eprintln!("left out: no {compiler} (package gcc-mingw-w64-x86-64-win32)");
        return;
    }
    let source = root().join("tests/c/consumer.c");
    run(compile(compiler, &source, &["-std=c11", "-fsyntax-only", "-D_WIN32_WINNT=0x0600"]).arg("-DVERBENA_HAS_SIM"));
}
