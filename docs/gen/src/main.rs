//! Writes `docs/registers.md` and `docs/layouts.md` from `verbena-abi`, and `verbena_ndk.h` from `verbena-ndk`, or checks that they are current.
//!
//! ```text
//! cargo run -p verbena-docs              # writes all
//! cargo run -p verbena-docs -- --check   # fails if one differs from what would be written
//! ```

/// The file itself: a dependency on its crate would build the simulation for a page.
#[path = "../../../ndk/src/abi.rs"]
#[allow(dead_code, reason = "the header is made from the text; the tables alone are used")]
mod abi;
mod header;
mod layouts;
mod registers;
mod source;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use source::Failure;

const USAGE: &str = "usage: verbena-docs [--check]";

fn main() -> ExitCode {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        [flag] if flag == "--help" || flag == "-h" => {
            println!("{USAGE}\n\nWrites docs/registers.md, docs/layouts.md and ndk/include/verbena_ndk.h from the sources. With --check, writes nothing and fails if they differ.");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match run(check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("write them anew with `cargo run -p verbena-docs` and commit the result together with the change of the source");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes or checks all of them. Returns whether all is well.
fn run(check: bool) -> Result<bool, Failure> {
    let pages =
        [("docs/registers.md", registers::page()?), ("docs/layouts.md", layouts::page()?), ("ndk/include/verbena_ndk.h", header::text()?)];
    let mut is_current = true;
    for (name, text) in pages {
        let path = root().join(name);
        if check {
            let committed = fs::read_to_string(&path).unwrap_or_default();
            if let Some(hint) = difference(&committed, &text) {
                eprintln!("{name} is not current: {hint}");
                is_current = false;
            }
        } else {
            fs::write(&path, text).map_err(|error| Failure(format!("cannot write {name}: {error}")))?;
            println!("{name}");
        }
    }
    Ok(is_current)
}

/// Returns where two texts begin to differ, if they do.
fn difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    if old.is_empty() {
        return Some("it is missing or empty".into());
    }
    let line = old.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
    let show = |text: &str| text.lines().nth(line).map_or("  (end of the page)".to_owned(), |line| format!("  {line}"));
    Some(format!("line {}\n- {}\n+ {}", line + 1, show(old).trim_start(), show(new).trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_with_its_line() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").unwrap(), "line 2\n- b\n+ c");
        assert_eq!(difference("a\n", "a\nc\n").unwrap(), "line 2\n- (end of the page)\n+ c");
        assert_eq!(difference("", "a\n").unwrap(), "it is missing or empty");
    }
}
