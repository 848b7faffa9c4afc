//! The Verilog of the outermost blocks, under names that a shell can instantiate.

use rust_hdl::prelude::*;

use crate::rx::RxFrontTop;
use crate::top::Core;

/// Returns the whole card, module `verbena_core`: see [`Core`] for its ports.
pub fn core() -> String {
    let mut block = Core::default();
    block.connect_all();
    named(crate::untangle(&generate_verilog(&block)), "verbena_core")
}

/// Returns the receive front alone, module `verbena_rx_front`: see [`RxFrontTop`] for its ports.
pub fn rx_front() -> String {
    let mut block = RxFrontTop::default();
    block.connect_all();
    named(crate::untangle(&generate_verilog(&block)), "verbena_rx_front")
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

    #[test]
    fn the_receive_front_has_one_outermost_module_with_plain_port_names() {
        let verilog = rx_front();
        assert!(verilog.contains("module verbena_rx_front(") || verilog.contains("module verbena_rx_front ("));
        assert!(!verilog.contains("module top"));
        assert!(verilog.contains("s_axis_rx_tdata") && verilog.contains("rep_payload_len"));
    }
}
