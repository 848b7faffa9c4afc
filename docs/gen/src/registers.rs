//! `docs/registers.md`: BAR0 and the doorbell pages.

use std::fmt::Write;

use syn::{Expr, Item};
use verbena_abi::regs::{
    Access, ArmKind, Counter, Counters, Doorbell, RegisterInfo, WideCounter, BAR0, BAR0_ADDR_BITS, CQ_INDEX_BITS, DOORBELL_BASE,
    DOORBELL_PAGE,
};
use verbena_abi::stages::Stage;
use verbena_abi::ABI_VERSION;

use crate::source::{doc, plain, read, text_of, Failure};

/// The words of a doorbell page as the code has them, to compare with what its source says.
const DOORBELLS: [(&str, u32); 5] = [
    ("Sq", Doorbell::Sq as u32),
    ("Rq", Doorbell::Rq as u32),
    ("CqConsumer", Doorbell::CqConsumer as u32),
    ("CqArm", Doorbell::CqArm as u32),
    ("CqModeration", Doorbell::CqModeration as u32),
];
const ARM_KINDS: [(&str, u32); 3] =
    [("Errors", ArmKind::Errors as u32), ("Any", ArmKind::Any as u32), ("Solicited", ArmKind::Solicited as u32)];

/// Returns the page.
pub fn page() -> Result<String, Failure> {
    let mut out = String::new();
    let (major, minor) = ABI_VERSION;
    write!(
        out,
        "# Registers\n\n\
         <!-- Written by `cargo run -p verbena-docs` from abi/src/regs.rs and abi/src/stages.rs. Do not edit. -->\n\n\
         BAR0 of the card, ABI version {major}.{minor}, {BAR0_ADDR_BITS} address bits. Registers are 32 bits wide and lie below {DOORBELL_BASE:#x}; \
         doorbell pages lie above. A register is written with all four bytes at once. A read never hangs; reserved offsets and bits read 0, \
         and writes to them are ignored.\n\n\
         Access: Ro reads and ignores writes, Rw reads what was written, Wo acts when it is written and reads 0.\n\n\
         ## Map\n\n| offset | register | access | after reset | what it is for |\n|---|---|---|---|---|\n"
    )
    .expect("a string grows");
    for register in BAR0 {
        writeln!(
            out,
            "| {} | [{}](#{}) | {:?} | {} | {} |",
            range(register),
            name(register),
            register.name.to_lowercase(),
            register.access,
            value(register.reset),
            plain(register.doc)
        )
        .expect("a string grows");
    }
    out += "\n## Fields\n";
    for register in BAR0 {
        write!(out, "\n### {}\n\n{}\n\n{}, {}", register.name, plain(register.doc), range(register), access(register.access))
            .expect("a string grows");
        if register.count > 1 {
            write!(out, ", {} registers", register.count).expect("a string grows");
        }
        out += ".\n\n| bits | field | after reset | meaning |\n|---|---|---|---|\n";
        for field in register.fields {
            let bits = if field.hi == field.lo { field.hi.to_string() } else { format!("{}:{}", field.hi, field.lo) };
            writeln!(out, "| {bits} | `{}` | {} | {} |", field.name, value(field.get(register.reset)), plain(field.doc))
                .expect("a string grows");
        }
    }
    write!(out, "\n## Counters\n\nEach counts from the reset on and wraps.\n\n| offset | number | counter | counts |\n|---|---|---|---|\n")
        .expect("a string grows");
    for (counter, name, doc) in Counter::ALL {
        writeln!(out, "| {:#06x} | {} | `{name}` | {} |", counter.offset(), *counter as u32, plain(doc)).expect("a string grows");
    }
    debug_assert_eq!(Counter::COUNT, BAR0.iter().find(|register| register.offset == Counters::OFFSET).map_or(0, |r| r.count as usize));
    out += "\n## Counters of 64 bits\n\nEach counts from the reset on, since interface 1.3. To read one that counts meanwhile, read the high word, the low word and the high \
            word again, until the high words agree. An octet is a byte of a frame as the MAC has it, headers included, \
            preamble and FCS not.\n\n\
            | low word | high word | number | counter | counts |\n|---|---|---|---|---|\n";
    for (counter, name, doc) in WideCounter::ALL {
        let (low, high) = (counter.offset(), counter.offset() + 4);
        writeln!(out, "| {low:#06x} | {high:#06x} | {} | `{name}` | {} |", *counter as u32, plain(doc)).expect("a string grows");
    }
    write!(
        out,
        "\n## Stages\n\nStreams between blocks, in the order in which a write walks through the card. A beat is a clock in which a stream moves something, a stall \
         one in which it offers something that is not taken; idle is the rest of `Clocks`. All of them stand still under `StageControl.HOLD`, count from the reset on \
         and wrap.\n\n| beats | stalls | number | stage | part | carries |\n|---|---|---|---|---|---|\n"
    )
    .expect("a string grows");
    for (stage, name, doc) in Stage::ALL {
        let (beats, stalls, number) = (stage.beats_offset(), stage.stalls_offset(), *stage as u32);
        writeln!(out, "| {beats:#06x} | {stalls:#06x} | {number} | `{name}` | {:?} | {} |", stage.path(), plain(doc))
            .expect("a string grows");
    }
    doorbells(&mut out)?;
    Ok(out)
}

fn doorbells(out: &mut String) -> Result<(), Failure> {
    let file = read("regs.rs")?;
    write!(
        out,
        "\n## Doorbell pages\n\n\
         A page of {DOORBELL_PAGE} bytes for each queue number, so that a page can be handed to one process alone: page `n` lies at \
         {DOORBELL_BASE:#x} + `n` * {DOORBELL_PAGE:#x} and has the words of QP `n` and of CQ `n`. There are {} pages. Words are only written; they read 0.\n\n\
         | offset in the page | word | written |\n|---|---|---|\n",
        verbena_abi::regs::DOORBELL_PAGES
    )
    .expect("a string grows");
    for (name, value, doc) in enumeration(&file, "Doorbell", &DOORBELLS)? {
        writeln!(out, "| {value:#x} | `{name}` | {doc} |").expect("a string grows");
    }
    write!(
        out,
        "\nKinds of an arm, bits {}:{CQ_INDEX_BITS} of `CqArm`:\n\n| value | kind | completions that raise an event |\n|---|---|---|\n",
        CQ_INDEX_BITS + 1
    )
    .expect("a string grows");
    for (name, value, doc) in enumeration(&file, "ArmKind", &ARM_KINDS)? {
        writeln!(out, "| {value} | `{name}` | {doc} |").expect("a string grows");
    }
    out.push_str(concat!(
        "\n`CqModeration` has an interval in microseconds in bits 15:0 and a number of completions in bits 31:16. The event of a satisfied arm is held back until the interval is over since the completion ",
        "that satisfied it, or until there are so many completions, that one included. 0xFFFF is no limit, and the other one decides alone; an interval of 0, a number of 0 or 1, or ",
        "no limit in both switch moderation off, as at the creation of a CQ.\n"
    ));
    Ok(())
}

/// Returns names, values and comments of an enumeration in the source; `known` is what the compiler makes of it.
fn enumeration(file: &syn::File, wanted: &str, known: &[(&str, u32)]) -> Result<Vec<(String, u32, String)>, Failure> {
    let item = file.items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == wanted => Some(item),
        _ => None,
    });
    let item = item.ok_or_else(|| Failure(format!("abi/src/regs.rs has no enumeration {wanted}")))?;
    if item.variants.len() != known.len() {
        return Err(Failure(format!("{wanted} has {} values, docs/gen/src/registers.rs knows {}", item.variants.len(), known.len())));
    }
    let mut rows = vec![];
    for (variant, (name, value)) in item.variants.iter().zip(known) {
        let said: Option<&Expr> = variant.discriminant.as_ref().map(|(_, value)| value);
        if variant.ident != name {
            return Err(Failure(format!("{wanted}::{} stands where docs/gen/src/registers.rs has {name}", variant.ident)));
        }
        if said.is_none() {
            return Err(Failure(format!("{wanted}::{name} has no value of its own ({})", text_of(variant))));
        }
        rows.push((name.to_string(), *value, doc(&variant.attrs)));
    }
    Ok(rows)
}

fn range(register: &RegisterInfo) -> String {
    let last = register.offset + 4 * (register.count - 1);
    if register.count == 1 {
        format!("{:#06x}", register.offset)
    } else {
        format!("{:#06x} to {last:#06x}", register.offset)
    }
}

fn name(register: &RegisterInfo) -> String {
    if register.count == 1 {
        format!("`{}`", register.name)
    } else {
        format!("`{}[{}]`", register.name, register.count)
    }
}

fn value(value: u32) -> String {
    if value < 10 {
        value.to_string()
    } else {
        format!("{value:#x}")
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Ro => "read-only",
        Access::Rw => "read and write",
        Access::Wo => "write-only",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_counter_and_stage_has_its_row() {
        let page = page().unwrap();
        for register in BAR0 {
            assert!(page.contains(&format!("\n### {}\n", register.name)), "{}", register.name);
        }
        for (_, name, _) in Counter::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for (_, name, _) in WideCounter::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for (_, name, _) in Stage::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        assert!(page.contains("| 0xc | `CqArm` |") && page.contains("| 0x10 | `CqModeration` |"));
    }
}
