//! `docs/layouts.md`: structures in host memory, command arguments, wire headers, and their codes.

use std::collections::BTreeMap;
use std::fmt::Write;

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, BinOp, Expr, Fields, Ident, Item, ItemMod, ItemStruct, Lit, Type};
use verbena_abi::{limits, queue, wire};

use crate::source::{doc, read, text_of, Failure};

/// A structure's size as the compiler sees it.
macro_rules! sizes {
    ($($module:ident :: $name:ident),+ $(,)?) => { &[$((stringify!($name), size_of::<$module::$name>())),+] };
}

/// Finds an enumeration's values with their meaning, by its name.
macro_rules! codes {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        fn codes_of(name: &str) -> Option<CodeRows> {
            match name {
                $(stringify!($name) => Some(rows($module::$name::ALL, |code| code as u8)),)+
                _ => None,
            }
        }
    };
}

type CodeRows = Vec<(u8, &'static str, &'static str)>;

fn rows<T: Copy>(all: &[(T, &'static str, &'static str)], number: impl Fn(T) -> u8) -> CodeRows {
    all.iter().map(|(code, name, doc)| (number(*code), *name, *doc)).collect()
}

const SIZES: &[(&str, usize)] = sizes![
    queue::Sge,
    queue::SqWqe,
    queue::SqWqeMore,
    queue::Cqe,
    queue::Eqe,
    queue::SqProgress,
    queue::CmdQp,
    queue::CmdCq,
    queue::CmdMr,
    queue::QueryQpResult,
    queue::QueryCqResult,
    wire::Ethernet,
    wire::Vlan,
    wire::Ipv4,
    wire::Ipv6,
    wire::Udp,
    wire::Bth,
    wire::Reth,
    wire::Aeth,
];

codes![
    queue::WqeOp,
    queue::CqeStatus,
    queue::EventKind,
    queue::CommandOp,
    queue::CommandCode,
    queue::QpState,
    wire::Opcode,
    wire::RxVerdict,
];

/// Constants that lengths of arrays are made of.
const LENGTHS: &[(&str, usize)] = &[("limits::SGES_ONE_UNIT", limits::SGES_ONE_UNIT), ("limits::MAX_SGES", limits::MAX_SGES)];

/// A field with its place.
#[derive(Debug)]
struct Place {
    offset: usize,
    bytes: usize,
    name: String,
    kind: String,
    doc: String,
}

/// Returns the page.
pub fn page() -> Result<String, Failure> {
    let mut out = String::from(
        "# Layouts\n\n\
         <!-- Written by `cargo run -p verbena-docs` from abi/src/queue.rs and abi/src/wire.rs. Do not edit. -->\n\n\
         Offsets and sizes are in bytes. No structure has padding of its own, and none asks for an alignment beyond what its place \
         in a ring or in a frame gives it. Reserved bytes are written as 0 and not looked at.\n",
    );
    let mut sizes = BTreeMap::new();
    out += "\n## Host memory and command window: little-endian\n";
    section(&mut out, &read("queue.rs")?, &mut sizes)?;
    out += "\n## Wire headers: big-endian\n";
    section(&mut out, &read("wire.rs")?, &mut sizes)?;
    for (name, _) in SIZES {
        if !sizes.contains_key(*name) {
            return Err(Failure(format!("docs/gen/src/layouts.rs lists the structure {name}, which the sources do not have")));
        }
    }
    Ok(out)
}

/// Writes what a source file defines, in its order: structures, codes, flags; constants first.
fn section(out: &mut String, file: &syn::File, sizes: &mut BTreeMap<String, usize>) -> Result<(), Failure> {
    let mut constants = String::new();
    for item in &file.items {
        if let Item::Const(item) = item {
            if item.ident != "_" && matches!(item.vis, syn::Visibility::Public(_)) {
                writeln!(constants, "| `{}` | `{}` | {} |", item.ident, text_of(&item.expr), doc(&item.attrs)).expect("a string grows");
            }
        }
    }
    if !constants.is_empty() {
        write!(out, "\n### Constants\n\n| constant | value | meaning |\n|---|---|---|\n{constants}").expect("a string grows");
    }
    for item in &file.items {
        match item {
            Item::Struct(item) if is_layout(item) => structure(out, item, sizes)?,
            Item::Macro(item) if item.mac.path.is_ident("code") => codes(out, item.mac.parse_body().map_err(|e| Failure(e.to_string()))?)?,
            Item::Mod(item) if !is_test(item) => flags(out, item),
            _ => {}
        }
    }
    Ok(())
}

fn is_layout(item: &ItemStruct) -> bool {
    item.attrs.iter().any(|attribute| attribute.path().is_ident("repr"))
}

fn is_test(item: &ItemMod) -> bool {
    item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

fn structure(out: &mut String, item: &ItemStruct, sizes: &mut BTreeMap<String, usize>) -> Result<(), Failure> {
    let name = item.ident.to_string();
    let places = places(item, sizes)?;
    let total = places.last().map_or(0, |place| place.offset + place.bytes);
    let (_, compiled) = SIZES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| Failure(format!("{name} is not in the list SIZES of docs/gen/src/layouts.rs")))?;
    if total != *compiled {
        return Err(Failure(format!("the fields of {name} have {total} bytes, the compiler says {compiled}")));
    }
    write!(
        out,
        "\n### {name}, {total} bytes\n\n{}\n\n| offset | bytes | field | type | meaning |\n|---|---|---|---|---|\n",
        doc(&item.attrs)
    )
    .expect("a string grows");
    for place in &places {
        let Place { offset, bytes, name, kind, doc } = place;
        writeln!(out, "| {offset} | {bytes} | `{name}` | `{kind}` | {doc} |").expect("a string grows");
    }
    sizes.insert(name, total);
    Ok(())
}

fn places(item: &ItemStruct, sizes: &BTreeMap<String, usize>) -> Result<Vec<Place>, Failure> {
    let Fields::Named(fields) = &item.fields else { return Err(Failure(format!("the fields of {} have no names", item.ident))) };
    let mut offset = 0;
    let mut places = vec![];
    for field in &fields.named {
        let name = field.ident.as_ref().map_or(String::new(), Ident::to_string);
        let bytes = bytes_of(&field.ty, sizes).map_err(|error| Failure(format!("{}::{name}: {error}", item.ident)))?;
        places.push(Place { offset, bytes, name, kind: kind_of(&field.ty), doc: doc(&field.attrs) });
        offset += bytes;
    }
    Ok(places)
}

/// Returns the type as the page spells it: integers in lower case, since the section says their byte order.
fn kind_of(kind: &Type) -> String {
    ["U16", "U32", "U64"].iter().fold(text_of(kind), |text, integer| text.replace(integer, &integer.to_lowercase()))
}

fn bytes_of(kind: &Type, sizes: &BTreeMap<String, usize>) -> Result<usize, Failure> {
    match kind {
        Type::Array(array) => Ok(bytes_of(&array.elem, sizes)? * value_of(&array.len)?),
        Type::Path(path) => {
            let name = text_of(path);
            match name.as_str() {
                "u8" => Ok(1),
                "U16" => Ok(2),
                "U32" => Ok(4),
                "U64" => Ok(8),
                _ => sizes.get(&name).copied().ok_or_else(|| Failure(format!("the size of {name} is not known"))),
            }
        }
        _ => Err(Failure(format!("the size of {} is not known", text_of(kind)))),
    }
}

fn value_of(length: &Expr) -> Result<usize, Failure> {
    match length {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().map_err(|error| Failure(error.to_string())),
            _ => Err(Failure(format!("{} is no length", text_of(length)))),
        },
        Expr::Path(path) => {
            let name = text_of(path);
            let found = LENGTHS.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value).ok_or_else(|| Failure(format!("{name} is not in the list LENGTHS of docs/gen/src/layouts.rs")))
        }
        Expr::Binary(binary) => {
            let (left, right) = (value_of(&binary.left)?, value_of(&binary.right)?);
            let value = match binary.op {
                BinOp::Add(_) => left.checked_add(right),
                BinOp::Sub(_) => left.checked_sub(right),
                BinOp::Mul(_) => left.checked_mul(right),
                _ => None,
            };
            value.ok_or_else(|| Failure(format!("{} can't be computed here", text_of(length))))
        }
        _ => Err(Failure(format!("{} is no length", text_of(length)))),
    }
}

/// The beginning of what stands in `code!`: comment and name.
struct CodeHead {
    attributes: Vec<Attribute>,
    name: Ident,
}

impl Parse for CodeHead {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        let _variants: braces::Braces = input.parse()?;
        Ok(Self { attributes, name })
    }
}

/// The braces behind the name, which the table `ALL` says better.
mod braces {
    use syn::parse::{Parse, ParseStream};

    pub struct Braces;

    impl Parse for Braces {
        fn parse(input: ParseStream) -> syn::Result<Self> {
            let content;
            syn::braced!(content in input);
            content.step(|cursor| {
                let mut rest = *cursor;
                while let Some((_, next)) = rest.token_tree() {
                    rest = next;
                }
                Ok(((), rest))
            })?;
            Ok(Self)
        }
    }
}

fn codes(out: &mut String, head: CodeHead) -> Result<(), Failure> {
    let name = head.name.to_string();
    let rows = codes_of(&name).ok_or_else(|| Failure(format!("{name} is not in the list of `codes!` in docs/gen/src/layouts.rs")))?;
    write!(out, "\n### {name}\n\n{}\n\n| value | name | meaning |\n|---|---|---|\n", doc(&head.attributes)).expect("a string grows");
    for (value, name, doc) in rows {
        let value = if value < 10 { value.to_string() } else { format!("{value:#04x}") };
        writeln!(out, "| {value} | `{name}` | {} |", crate::source::plain(doc)).expect("a string grows");
    }
    Ok(())
}

fn flags(out: &mut String, item: &ItemMod) {
    let Some((_, items)) = &item.content else { return };
    write!(out, "\n### {}\n\n{}\n\n| value | name | meaning |\n|---|---|---|\n", item.ident, doc(&item.attrs)).expect("a string grows");
    for item in items {
        if let Item::Const(item) = item {
            writeln!(out, "| `{}` | `{}` | {} |", text_of(&item.expr), item.ident, doc(&item.attrs)).expect("a string grows");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the offset of a field, from the page.
    fn offset(page: &str, structure: &str, field: &str) -> usize {
        let section = page.split("\n### ").find(|section| section.starts_with(&format!("{structure}, "))).unwrap();
        let row = section.lines().find(|line| line.contains(&format!("| `{field}` |"))).unwrap();
        row.split('|').nth(1).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn fields_lie_where_the_tests_of_the_abi_find_them() {
        let page = page().unwrap();
        for (structure, field, place) in [
            ("SqWqe", "remote_va", 8),
            ("SqWqe", "rkey", 16),
            ("SqWqe", "sge", 32),
            ("Cqe", "wqe_index", 4),
            ("Cqe", "phase", 31),
            ("Eqe", "phase", 31),
            ("CmdQp", "pkey", 38),
            ("CmdQp", "sq_log_depth", 72),
            ("Bth", "ack_psn", 8),
            ("Reth", "len_bytes", 12),
        ] {
            assert_eq!(offset(&page, structure, field), place, "{structure}::{field}");
        }
    }

    #[test]
    fn lengths_are_computed_from_named_limits() {
        let length = |text: &str| value_of(&syn::parse_str(text).unwrap()).map_err(|failure| failure.0);
        assert_eq!(length("limits::MAX_SGES - limits::SGES_ONE_UNIT"), Ok(limits::MAX_SGES - limits::SGES_ONE_UNIT));
        assert_eq!(length("3 * 4 + 1"), Ok(13));
        assert!(length("limits::UNKNOWN").is_err() && length("1 - 2").is_err());
    }
}
