//! What posting and reaping cost the processor, through the driver's own interface and through that in C.
//!
//! | module | holds |
//! |---|---|
//! | [`cases`] | what is measured |
//! | [`rig`] | two connected queue pairs, one behind each interface |
//! | `card` | a card that executes commands, and then does nothing at a doorbell |
//! | [`count`] | instructions, by valgrind's callgrind |
//! | [`report`] | the table, or JSON |
//!
//! `cargo bench -p verbena-host` prints both instructions and nanoseconds; `cargo run --release -p verbena-cost` instructions alone,
//! which takes little time to build. A program that measures calls [`count::serve`] first, since it runs itself under valgrind.

#![deny(missing_docs)]

mod card;
pub mod cases;
pub mod count;
pub mod report;
pub mod rig;
