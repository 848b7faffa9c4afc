//! The bounds on what a post and a poll cost, in instructions of a release build.

use std::process::Command;

/// Runs the cases and checks each against `most` instructions.
fn check(names: &[&str], most: f64) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "valgrind is needed in CI");
        eprintln!("left out: valgrind is not installed (Debian: apt-get install valgrind)");
        return;
    }
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "-p", "verbena-cost", "--bin", "cost", "--", "--json"])
        .args(names)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for name in names {
        let case = report["cases"].as_array().and_then(|cases| cases.iter().find(|case| case["name"] == *name)).expect("the case");
        let instructions = case["instructions"].as_f64().expect("a count");
        println!("{name}: {instructions} instructions");
        assert!((1.0..=most).contains(&instructions), "{name} takes {instructions} instructions, the bound is {most}");
    }
}

#[test]
fn a_write_of_one_sge_takes_at_most_150_instructions_through_either_interface() {
    check(&["write", "ndk_write"], 150.0);
}

#[test]
fn a_completion_of_a_batch_takes_at_most_160_instructions_through_either_interface() {
    check(&["poll_16", "ndk_results_16"], 160.0);
}
