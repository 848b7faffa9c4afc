//! What travels between blocks.

mod records;
mod stream;

pub use records::*;
pub use stream::*;
