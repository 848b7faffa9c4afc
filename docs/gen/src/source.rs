//! Reads the sources of `verbena-abi`: doc comments are there and nowhere else.

use std::fmt;
use std::fs;

use quote::ToTokens;
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// Why a page can't be made.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a source file of `verbena-abi`, parsed.
pub fn read(name: &str) -> Result<syn::File, Failure> {
    let path = crate::root().join("abi/src").join(name);
    let text = fs::read_to_string(&path).map_err(|error| Failure(format!("cannot read abi/src/{name}: {error}")))?;
    syn::parse_file(&text).map_err(|error| Failure(format!("abi/src/{name}: {error}")))
}

/// Returns the doc comment among `attributes`, in one line.
pub fn doc(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let Meta::NameValue(pair) = &attribute.meta {
            if let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &pair.value {
                text += &line.value();
            }
        }
    }
    plain(&text)
}

/// Returns a doc comment without rustdoc's links, which mean nothing in a page, and fit for a table.
pub fn plain(text: &str) -> String {
    text.trim().replace("[`crate::", "[`").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// Returns the text of a piece of Rust as one would type it.
pub fn text_of(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [(" :: ", "::"), (" ;", ";"), ("[ ", "["), (" ]", "]"), ("( ", "("), (" )", ")")] {
        text = text.replace(from, to);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_rustdoc_become_plain_names() {
        assert_eq!(plain(" An [`EventKind`], see [`crate::arith::Ring`] "), "An `EventKind`, see `arith::Ring`");
    }
}
