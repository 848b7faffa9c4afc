//! `verbena_ndk.h`: declarations by cbindgen from `ndk/src/abi.rs` and `ndk/src/open.rs`, statuses and assertions from the crate's tables.

use std::fmt::Write;

use cbindgen::{Builder, EnumConfig, ExportConfig, Language, Style};
use verbena_host::ndk::NtStatus;

use crate::abi::LAYOUTS;
use crate::source::Failure;

/// What the header begins with: types that the system has on Windows, and the two structures that Rust can't say as C does.
const PRELUDE: &str = include_str!("prelude.h");

/// Types that the prelude declares.
const DECLARED: &[&str] = &[
    "BOOLEAN",
    "USHORT",
    "ULONG",
    "UINT32",
    "UINT64",
    "ULONG64",
    "ULONG_PTR",
    "SIZE_T",
    "PVOID",
    "NTSTATUS",
    "NDIS_STATUS",
    "NDIS_HANDLE",
    "SOCKADDR",
    "LARGE_INTEGER",
    "GUID",
    "GROUP_AFFINITY",
    "MDL",
    "NDK_SGE",
    "NDK_LOGICAL_ADDRESS",
    "PAGE_SIZE",
    "Layout",
    "LAYOUTS",
];

/// Functions that a build may lack, and the feature that they need.
const OPTIONAL: &[(&str, &str)] = &[("VerbenaOpenSimulation", "sim"), ("VerbenaOpenVfio", "vfio")];

/// Returns the header.
pub fn text() -> Result<String, Failure> {
    let export = ExportConfig { exclude: DECLARED.iter().map(|name| (*name).to_owned()).collect(), ..ExportConfig::default() };
    let folder = crate::root().join("ndk/src");
    let bindings = Builder::new()
        .with_config(cbindgen::Config {
            language: Language::C,
            style: Style::Both,
            cpp_compat: true,
            no_includes: true,
            line_length: 120,
            export,
            enumeration: EnumConfig { prefix_with_name: false, ..EnumConfig::default() },
            defines: OPTIONAL
                .iter()
                .map(|(_, feature)| (format!("feature = {feature}"), format!("VERBENA_HAS_{}", feature.to_uppercase())))
                .collect(),
            ..cbindgen::Config::default()
        })
        .with_src(folder.join("abi.rs"))
        .with_src(folder.join("open.rs"))
        .generate()
        .map_err(|error| Failure(format!("cbindgen: {error}")))?;
    let mut declarations = Vec::new();
    bindings.write(&mut declarations);
    let mut declarations = String::from_utf8(declarations).map_err(|error| Failure(error.to_string()))?;
    declarations = in_c(&declarations);
    // What the system declares has its own tags there.
    for name in DECLARED {
        declarations = declarations.replace(&format!("struct {name} "), &format!("{name} "));
    }

    let mut text = PRELUDE.to_owned();
    text += "\n/* Statuses. */\n";
    for (name, status) in NtStatus::ALL {
        let prefix = if status.0 >> 16 == 0xC001 { "NDIS_STATUS" } else { "STATUS" };
        let _ = writeln!(text, "#ifndef {prefix}_{name}\n#define {prefix}_{name} ((NTSTATUS)0x{:08X}L)\n#endif", status.0);
        // The system may have its own.
        let _ = writeln!(text, "VERBENA_ASSERT({prefix}_{name} == (NTSTATUS)0x{:08X}L, \"{prefix}_{name}\");", status.0);
    }
    text += "\n/* Objects. */\n";
    for (name, _, _) in LAYOUTS.iter().filter(|(_, _, fields)| fields.iter().any(|(field, _)| *field == "Dispatch") && fields.len() == 2) {
        let _ = writeln!(text, "typedef struct {name} {name};");
    }
    text += "\n";
    text += &declarations;
    text += "\n/* The layout of ndkpi.h on x64. */\n";
    for (name, size, fields) in LAYOUTS {
        let _ = writeln!(text, "VERBENA_ASSERT(sizeof({name}) == {size}, \"{name}\");");
        for (field, offset) in *fields {
            let _ = writeln!(text, "VERBENA_ASSERT(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        }
    }
    // Rust has one address in the place of the union.
    for member in ["VirtualAddress", "LogicalAddress"] {
        let _ = writeln!(text, "VERBENA_ASSERT(offsetof(NDK_SGE, {member}) == 0, \"NDK_SGE.{member}\");");
    }
    text += "VERBENA_ASSERT(sizeof(NDK_LOGICAL_ADDRESS) == 8, \"NDK_LOGICAL_ADDRESS\");\n";
    text += "\n#endif\n";
    Ok(text)
}

/// Returns declarations whose comments say in C's words what they say to rustdoc.
fn in_c(declarations: &str) -> String {
    let text = declarations.replace("[`", "`").replace("`]", "`").replace("NDIS_HANDLE _device", "NDIS_HANDLE device");
    text.replace(" * # Safety\n * ", " * By contract: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_every_table_every_status_and_every_function() {
        let text = text().unwrap();
        for (name, _, _) in LAYOUTS {
            assert!(text.contains(&format!("}} {name}")), "{name}");
        }
        for (name, _) in NtStatus::ALL {
            assert!(text.contains(&format!("STATUS_{name} ")), "{name}");
        }
        for (function, _) in OPTIONAL {
            assert!(text.contains(function), "{function}");
        }
        for word in ["[`", "# Safety", "_device"] {
            assert!(!text.contains(word), "{word} is none of C's");
        }
    }
}
