//! The seed of a run, and what a failure prints so that it can be repeated.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;
use verbena_sim::World;

/// Returns the seed: `VERBENA_SEED`, or 1.
pub fn seed() -> u64 {
    env::var("VERBENA_SEED").map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("VERBENA_SEED is a number, not `{text}`")))
}

/// Returns the file for the signals of a run: `VERBENA_TRACE`, if that is set.
pub fn trace() -> Option<PathBuf> {
    env::var_os("VERBENA_TRACE").map(PathBuf::from)
}

/// Prints, if the test that holds it panics, the command that repeats the run, and keeps its capture.
#[derive(Debug)]
pub struct Repeat {
    /// The run's seed.
    pub seed: u64,
    /// The simulation and the folder of its capture, if there is one.
    pub capture: Option<(Arc<World>, TempDir)>,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let seed = self.seed;
        let program = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned())).unwrap_or_default();
        // Cargo puts a hash behind the name of a test program.
        let target = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
        let current = thread::current();
        let test = current.name().filter(|name| *name != "main").map(|name| format!(" -- --exact {name}")).unwrap_or_default();
        eprintln!("seed {seed}; to repeat: VERBENA_SEED={seed} cargo test -p verbena-tests --test {target}{test}");
        eprintln!("with VERBENA_TRACE=trace.fst in front of it, all signals are dumped to that file and to trace-b.fst");
        if let Some((world, folder)) = self.capture.take() {
            // What was captured is of use even if the rest can't be written.
            let _ = world.finish_capture();
            eprintln!("its capture is in {}", folder.keep().display());
        }
    }
}
