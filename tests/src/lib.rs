//! What the system tests share: two cards with a driver on each, guarded memory, and a look at the wire of its own.
//!
//! | module | holds |
//! |---|---|
//! | [`pair`] | two cards, a link, the driver's objects on both ends; posting and reaping |
//! | [`region`] | registered memory with canaries and a record of what should be in it |
//! | [`capture`] | frames as an independent decoder and an independent ICRC see them |
//! | [`ndk`](mod@ndk) | two cards behind the C interface, and what a consumer needs to call it |
//! | [`programs`] | random programs of a consumer, and the model that they are held to |
//! | [`alignments`] | writes of all alignments and lengths, for the test and for the command of that name |
//! | [`spy`] | a device that lets a test reach the driver's rings |
//! | [`repeat`] | seeds, and what a failure prints |
//!
//! A run depends on its seed alone. `VERBENA_SEED` chooses another one, `VERBENA_TRACE=OUT.fst` dumps the signals.

#![deny(unsafe_code)]
#![deny(missing_docs)]
// A macro that is used where it is defined is judged here.
#![allow(clippy::macro_metavars_in_unsafe, reason = "the arguments of `ndk!` are pointers and numbers of a test's own")]

pub mod alignments;
pub mod capture;
#[expect(unsafe_code, reason = "a consumer of the C interface calls through its tables")]
pub mod ndk;
pub mod pair;
#[expect(unsafe_code, reason = "as of `ndk`")]
pub mod programs;
pub mod region;
pub mod repeat;
#[expect(unsafe_code, reason = "the trait of a device has an unsafe method")]
pub mod spy;
