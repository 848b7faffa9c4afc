//! The Verilog of the outermost blocks, under names that a shell can instantiate.

use rust_hdl::prelude::*;

use crate::prim::{Rotate, Shifter};
use crate::rx::{IcrcCheck, RxFrontTop};
use crate::top::Core;
use crate::tx::Icrc;

/// Returns the whole card, module `verbena_core`: see [`Core`] for its ports.
pub fn core() -> String {
    alone(Core::default(), "verbena_core")
}

/// Returns the receive front alone, module `verbena_rx_front`: see [`RxFrontTop`] for its ports.
pub fn rx_front() -> String {
    alone(RxFrontTop::default(), "verbena_rx_front")
}

/// The names that [`block`] knows.
pub const BLOCKS: [&str; 4] = ["icrc", "icrc_check", "rotate", "shifter"];

/// Returns a single block, module `verbena_NAME`, to route or look at it alone; `None` for a name that is not in [`BLOCKS`].
///
/// The ports are those of the block, a signal of a stream as `stream$signal`.
pub fn block(name: &str) -> Option<String> {
    match name {
        "icrc" => Some(alone(Icrc::default(), "verbena_icrc")),
        "icrc_check" => Some(alone(IcrcCheck::default(), "verbena_icrc_check")),
        "rotate" => Some(alone(Rotate::default(), "verbena_rotate")),
        "shifter" => Some(alone(Shifter::default(), "verbena_shifter")),
        _ => None,
    }
}

fn alone(mut block: impl Block, name: &str) -> String {
    block.connect_all();
    named(crate::untangle(&generate_verilog(&block)), name)
}

/// Returns `verilog` with its outermost module called `name` and the others `name$…`.
///
/// RustHDL calls the outermost module `top` and the others `top$` and their path, so that two cards
/// or cores in one design would collide.
pub fn named(verilog: String, name: &str) -> String {
    let mut result = String::with_capacity(verilog.len());
    let mut rest = verilog.as_str();
    while let Some(at) = rest.find("top") {
        let (before, behind) = (&rest[..at], &rest[at + 3..]);
        let is_inside = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$';
        let begins_word = !before.chars().next_back().or(result.chars().next_back()).is_some_and(is_inside);
        let is_module = begins_word && behind.chars().next().is_none_or(|letter| letter == '$' || !is_inside(letter));
        result += before;
        result += if is_module { name } else { "top" };
        rest = behind;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_of_a_design_carry_its_name_and_other_words_stay() {
        let verilog = "module top(a,stop_top,top_a);\n  top$ram ram(.top(top));\nmodule top$ram(); // stop top$".to_string();
        assert_eq!(
            named(verilog, "card"),
            "module card(a,stop_top,top_a);\n  card$ram ram(.card(card));\nmodule card$ram(); // stop card$"
        );
    }

    /// Returns the bits that one of `entries` objects takes in the memories whose names, without the core's, `is_theirs` accepts.
    fn bits_of_one(verilog: &str, entries: usize, is_theirs: impl Fn(&str) -> bool) -> usize {
        let (mut module, mut bits) = ("", 0);
        for line in verilog.lines() {
            if let Some(rest) = line.strip_prefix("module ") {
                module = rest.split('(').next().unwrap().trim().strip_prefix("verbena_core$").unwrap_or("");
            }
            let Some((_, memory)) = line.split_once("reg [") else { continue };
            let Some((width, rest)) = memory.split_once(":0] mem [0:") else { continue };
            let last: usize = rest.trim_end_matches("];").parse().unwrap();
            if is_theirs(module) && (last + 1) % entries == 0 {
                bits += (width.parse::<usize>().unwrap() + 1) * (last + 1) / entries;
            }
        }
        bits
    }

    #[test]
    fn objects_cost_as_many_bits_as_the_docs_say() {
        use verbena_abi::limits::{CQS, MRS, QPS};
        let verilog = core();
        let regions = ["rx$responder$check$mrs", "tx$key_check$mr_ram", "rx$responder$decide$lives", "control$command$mrs"];
        let of_queues = |name: &str| {
            name.starts_with("cqes$") && !name.starts_with("cqes$marks") || name.starts_with("moderator$") || name.starts_with("events$")
        };
        let table = bits_of_one(&verilog, QPS, |name| name == "requester$completer$entries");
        let pair = bits_of_one(&verilog, QPS, |name| !regions.contains(&name) && name != "requester$completer$entries");
        let queue = bits_of_one(&verilog, CQS, |name| of_queues(name) || name == "control$command$cqs");
        let region = bits_of_one(&verilog, MRS, |name| regions.contains(&name));
        let page = include_str!("../../docs/synthesis.md");
        for (what, bits) in [
            ("queue pair, its state", pair),
            ("queue pair, its outstanding requests", table),
            ("completion queue", queue),
            ("memory region", region),
        ] {
            let row = format!("| {what} | {bits} |");
            assert!(page.contains(&row), "docs/synthesis.md has no row `{row}`");
        }
    }

    #[test]
    fn the_receive_front_has_one_outermost_module_with_plain_port_names() {
        let verilog = rx_front();
        assert!(verilog.contains("module verbena_rx_front(") || verilog.contains("module verbena_rx_front ("));
        assert!(!verilog.contains("module top"));
        assert!(verilog.contains("s_axis_rx_tdata") && verilog.contains("rep_payload_len"));
    }

    #[test]
    fn every_named_block_is_one_design_of_its_own_and_other_names_are_none() {
        for name in BLOCKS {
            let verilog = block(name).unwrap();
            let modules: Vec<&str> = verilog.lines().filter_map(|line| line.strip_prefix("module ")).collect();
            let own = format!("verbena_{name}");
            assert_eq!(modules.iter().filter(|module| module.starts_with(&format!("{own}("))).count(), 1, "{name}");
            assert!(modules.iter().all(|module| module.starts_with(&own)), "{name}: {modules:?}");
        }
        assert_eq!(block("core"), None);
    }
}
